"""Text for messages: suggestions, counts, durations, sizes. Imports nothing."""

from __future__ import annotations

from collections.abc import Iterable


class EventsLostWarning(UserWarning):
    """A recorder had no room for all events: the numbers of its trace are too small."""


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Give the end of an error message: the known word that is most similar, if any is similar."""
    if not isinstance(word, str):
        return ""
    import difflib  # imported here: only needed for an error

    near = difflib.get_close_matches(word.lower(), list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


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
    """Give a count of something, in the plural if it is not 1."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _three_digits(value: float) -> str:
    # .3g would write 1e+03 for values that round to 1,000.
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"


def show_ns(ns: int) -> str:
    """Give a duration as text, with three digits and a unit that fits."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{_three_digits(ns / size)} {unit}"
    return f"{ns} ns"


def show_bytes(size: int) -> str:
    """Give a size as text, with three digits and a unit that fits."""
    for unit, bytes_each in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= bytes_each:
            return f"{_three_digits(size / bytes_each)} {unit}"
    return f"{size} B"
