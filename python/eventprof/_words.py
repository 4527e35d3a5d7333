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


def _three_digits(value: float) -> str:
    # .3g would write 1e+03 for values that round to 1,000.
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"


def show_ns(ns: int) -> str:
    """Return a duration as text, with three digits and a unit that fits."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{_three_digits(ns / size)} {unit}"
    return f"{ns} ns"


def show_bytes(size: int) -> str:
    """Return a size as text, with three digits and a unit that fits."""
    for unit, bytes_each in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= bytes_each:
            return f"{_three_digits(size / bytes_each)} {unit}"
    return f"{size} B"
