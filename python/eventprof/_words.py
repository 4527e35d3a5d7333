"""Text for messages: suggestions, counts, durations, sizes. Imports nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class EventsLostWarning(UserWarning):
    """A recorder had no room for all events: the numbers of its trace are too small."""


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return the end of an error message: the most similar known word, if any is similar."""
    if not isinstance(word, str):
        return ""
    import difflib  # imported here: only needed for an error

    near = difflib.get_close_matches(word.lower(), list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


class _Elsewhere:
    """An attribute that other tools have: asking for it is an error with what to write here.

    A descriptor, because a class with ``__getattr__`` makes an object for each call of a method:
    ``recorder.stop()`` would be recorded with one more block.
    """

    def __init__(self, what: str, name: str, instead: str) -> None:
        self._said = f"{what} has no attribute {name!r}: write {instead}"
        self._name = name

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            return self
        raise AttributeError(self._said, name=self._name, obj=instance)


def known_elsewhere(kind: type, what: str, instead: Mapping[str, str]) -> None:
    """Let a class answer what people try who know other tools.

    Parameters
    ----------
    kind : type
        The class.
    what : str
        What its objects are, for the message.
    instead : mapping of str to str
        What to write here, by the name of the attribute.
    """
    for name, words in instead.items():
        setattr(kind, name, _Elsewhere(what, name, words))


def without_elsewhere(kind: type, names: Iterable[str]) -> list[str]:
    """Return the names of attributes for ``dir()``, without those of `known_elsewhere`."""
    return [name for name in names if not isinstance(getattr(kind, name, None), _Elsewhere)]


def printable(text: str) -> str:
    """Escape control characters, and surrogates, which no encoding has."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def escaped(text: str) -> str:
    """Escape control characters, surrogates and backslashes: no two texts become the same."""
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(
        c if c.isprintable() and c != "\\" else c.encode("unicode_escape").decode() for c in text
    )


def plural(count: int, what: str) -> str:
    """Return a count of something, in the plural if it is not 1."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def three_digits(value: float, size: float = 1) -> str:
    """Return ``value / size``, of 0 or more, with at least three digits.

    Halves are rounded up. The page does the same arithmetic (text.js), and so has the same text.
    """
    number = value / size
    digits = 0 if number >= 99.95 else 1 if number >= 9.995 else 2
    return f"{int(value * 10**digits / size + 0.5) / 10**digits:,.{digits}f}"


def show_ns(ns: float) -> str:
    """Return a duration with three digits and a unit that fits."""
    sign, ns = "-" if ns < 0 else "", abs(ns)
    for unit, size in (("ns", 1), ("us", 10**3), ("ms", 10**6)):
        if ns < 999.5 * size:
            # A duration is a whole number of ns, but a mean is not.
            whole = unit == "ns" and ns == int(ns)
            return f"{sign}{int(ns)} ns" if whole else f"{sign}{three_digits(ns, size)} {unit}"
    return f"{sign}{three_digits(ns, 10**9)} s"


def show_bytes(size: float) -> str:
    """Return a size with three digits, in units of 1024."""
    sign, size = "-" if size < 0 else "", abs(size)
    if size < 1000:
        return f"{sign}{int(size + 0.5)} B"
    for unit, each in (("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30)):
        if size < 999.5 * each:
            return f"{sign}{three_digits(size, each)} {unit}"
    return f"{sign}{three_digits(size, 2**40)} TiB"
