"""Who waited for whom, as text."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING

from .._words import show_ns
from ..answers.waiting import WORDS, Place, Waits, by_place
from ..base.text import clean, short_path
from .tree import percent

if TYPE_CHECKING:
    from ..trace import Trace


def where(place: Place) -> str:
    """Return a place as text."""
    file = "" if place.file is None else short_path(place.file)
    at = f" ({file}:{place.line})" if file and place.line is not None else ""
    return f"{place.name or 'code of no recorded function'}{at}"


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
    shown = found[: limit or None]
    places = {one.place: one for one in reversed(found)}  # of several at a place the longest
    whole = sum(one.total for one in found)
    times = [show_ns(one.total) for one in shown]
    widest = max(map(len, times))
    lines = [f"waited {show_ns(whole)} in all, of {len(trace.threads)} threads"]
    for one, time in zip(shown, times, strict=True):
        through = "" if one.through is None else f"through {where(one.through)}, "
        often = f"{one.times:,} times, the longest {show_ns(one.longest)}"
        often += f", up to {one.at_once} threads at once" if one.at_once > 1 else ""
        lines.append(
            f"{time.rjust(widest)}  {percent(one.total / whole, 1)}  "
            f"for {WORDS[one.place.kind].what} in {where(one.place)}, "
            f"{through}{'once' if one.times == 1 else often}"
        )
        about = [f"by {', '.join(one.threads[:3])}", *_held(one, places)]
        lines += [" " * (widest + 2) + line for line in about]
    if len(found) > len(shown):
        rest = sum(one.total for one in found[len(shown) :])
        lines.append(f"and {len(found) - len(shown):,} more places, {show_ns(rest)}")
    return [clean(line, plain=plain)[:width] for line in lines]


def show(trace: Trace, limit: int, file: IO[str] | None) -> None:
    """Print `lines_of`, as wide as the terminal."""
    file = sys.stdout if file is None else file
    width = shutil.get_terminal_size().columns if file.isatty() else 200
    print("\n".join(lines_of(trace, limit, width, plain=False)), file=file)


#: What to say of a recording without waits.
MISSING = (
    "waits were not recorded: record with waits=True, or by eventprof run, which has them with "
    "calls unless --no-waits is given; without them the report tells what follows from events alone"
)
