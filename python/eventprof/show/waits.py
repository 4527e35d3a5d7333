"""Who waited for whom, as text."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Protocol, TypeVar

from .._words import show_ns
from ..answers.waiting import WORDS, Place, Waits, by_place
from ..base.text import clean, short_path
from .tree import percent

if TYPE_CHECKING:
    from ..trace import Trace


def show_place(name: str | None, file: str | None, line: int | None) -> str:
    """Return a place as text."""
    if name is None:
        return "code of no recorded function"
    return f"{name} ({short_path(file)}:{line})" if file and line is not None else name


def where(place: Place) -> str:
    """Return the place of a wait as text."""
    return show_place(*place[1:4])


class _At(Protocol):
    """Waits at a place."""

    @property
    def total(self) -> int: ...
    @property
    def longest(self) -> int: ...
    @property
    def times(self) -> int: ...


_T = TypeVar("_T", bound=_At)


def often(one: _At) -> str:
    """Return how often something waited at a place, as text."""
    return "once" if one.times == 1 else f"{one.times:,} times, the longest {show_ns(one.longest)}"


def blocks(
    found: Sequence[_T], limit: int, sentence: Callable[[_T], str], about: Callable[[_T], list[str]]
) -> list[str]:
    """Return a block of lines for each place, the first of which are shown."""
    shown = found[: limit or None]
    whole = sum(one.total for one in found)
    times = [show_ns(one.total) for one in shown]
    widest = max(map(len, times))
    lines = []
    for one, time in zip(shown, times, strict=True):
        lines.append(f"{time.rjust(widest)}  {percent(one.total / whole, 1)}  {sentence(one)}")
        lines += [" " * (widest + 2) + line for line in about(one)]
    if len(found) > len(shown):
        rest = sum(one.total for one in found[len(shown) :])
        lines.append(f"and {len(found) - len(shown):,} more places, {show_ns(rest)}")
    return lines


def _chain(waits: Waits, places: Mapping[Place, Waits]) -> list[str]:
    """Return whom those waited for who let a thread go on, and so on: a line for each link."""
    lines: list[str] = []
    seen = {waits.place}
    while waits.meanwhile:
        place, time = waits.meanwhile[0]
        further = places[place]
        if place in seen or not further.wakers or 20 * time < sum(ns for _, ns in waits.wakers):
            break
        seen.add(place)
        lines.append(f"until {further.wakers[0][0]} let it go on")
        if further.meanwhile and further.meanwhile[0][0] not in seen:
            stop = further.meanwhile[0][0]
            lines[-1] += f", which was {WORDS[stop.kind].doing} in {where(stop)}"
        waits = further
    return lines


def _held(waits: Waits, places: Mapping[Place, Waits]) -> list[str]:
    lines = []
    of_wakers = sum(time for _, time in waits.wakers)
    if waits.wakers:
        shown = [f"{name} ({show_ns(time)})" for name, time in waits.wakers[:3]]
        more = f" and {len(waits.wakers) - 3} more" if len(waits.wakers) > 3 else ""
        lines.append(f"let go on by {', '.join(shown)}{more}")
    for number, (place, time) in enumerate(waits.meanwhile[:2]):
        if 20 * time >= of_wakers:
            part = percent(time / of_wakers, 1).strip()
            lines.append(
                f"which in {part} of that time was {WORDS[place.kind].doing} in {where(place)}"
            )
            lines += [f"  {link}" for link in _chain(waits, places)] if number == 0 else []
    return lines


def lines_of(trace: Trace, limit: int, width: int, *, plain: bool) -> list[str]:
    """Return the text of ``eventprof waits``: a block of lines for each place."""
    found = by_place(trace)
    if not found:
        return ["no thread waited" if trace._has_waits else MISSING]
    places = {one.place: one for one in reversed(found)}  # of several at a place the longest

    def sentence(one: Waits) -> str:
        through = "" if one.through is None else f"through {where(one.through)}, "
        at_once = f", up to {one.at_once} threads at once" if one.at_once > 1 else ""
        return f"for {one.place.what} in {where(one.place)}, {through}{often(one)}{at_once}"

    def about(one: Waits) -> list[str]:
        return [f"by {', '.join(one.threads[:3])}", *_held(one, places)]

    whole = sum(one.total for one in found)
    lines = [
        f"waited {show_ns(whole)} in all, of {len(trace.threads)} threads",
        *blocks(found, limit, sentence, about),
    ]
    return [clean(line, plain=plain)[:width] for line in lines]


def width_of(file: IO[str]) -> int:
    """Return the width of a terminal, or of lines in a file."""
    return shutil.get_terminal_size().columns if file.isatty() else 200


def show(trace: Trace, limit: int, file: IO[str] | None) -> None:
    """Print `lines_of`, as wide as the terminal."""
    file = sys.stdout if file is None else file
    print("\n".join(lines_of(trace, limit, width_of(file), plain=False)), file=file)


#: What to say of a recording without waits.
MISSING = (
    "waits were not recorded: record with waits=True, or by eventprof run, which has them with "
    "calls unless --no-waits is given; without them the report tells what follows from events alone"
)
