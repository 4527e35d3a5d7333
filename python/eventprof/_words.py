"""Words for messages: what was meant, counts, durations. Loads nothing."""

from __future__ import annotations

from collections.abc import Iterable


class EventsLostWarning(UserWarning):
    """A recorder had no room for all events: what its trace says is too small."""


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Give the end of an error message: the known word that is nearest, if one is near."""
    if not isinstance(word, str):
        return ""
    import difflib  # only on the way to an error

    near = difflib.get_close_matches(word.lower(), list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def printable(text: str) -> str:
    """Escape what a terminal would obey, and surrogates, which no encoding has."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def plural(count: int, what: str) -> str:
    """Give a count of something."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _three_digits(value: float) -> str:
    # .3g of what rounds to 1,000 is 1e+03.
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
