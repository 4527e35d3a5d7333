"""Who waited for whom, as text."""

from __future__ import annotations

import shutil
import sys
from typing import IO, TYPE_CHECKING

from .._words import show_ns
from ..answers.waiting import FOR, Place, Waits, by_place
from ..base.text import clean, short_path
from .tree import percent

if TYPE_CHECKING:
    from ..trace import Trace

#: What a thread does that waits.
DOING = {
    "gil": "waiting for the GIL",
    "lock": "waiting for a lock",
    "sleep": "asleep",
    "io": "in I/O",
    "process": "waiting for a process",
    "processor": "without a processor",
    "other": "waiting for something that is not known",
}


def where(place: Place) -> str:
    """Return a place as text."""
    file = "" if place.file is None else short_path(place.file)
    at = f" ({file}:{place.line})" if file and place.line is not None else ""
    return f"{place.name or 'code of no recorded function'}{at}"


def _held(waits: Waits) -> list[str]:
    lines = []
    of_wakers = sum(time for _, time in waits.wakers)
    if waits.wakers:
        shown = [f"{name} ({show_ns(time)})" for name, time in waits.wakers[:3]]
        more = f" and {len(waits.wakers) - 3} more" if len(waits.wakers) > 3 else ""
        lines.append(f"let go on by {', '.join(shown)}{more}")
    for place, time in waits.meanwhile[:2]:
        if 20 * time >= of_wakers:
            part = percent(time / of_wakers, 1).strip()
            lines.append(f"which in {part} of that time was {DOING[place.kind]} in {where(place)}")
    return lines


def lines_of(trace: Trace, limit: int, width: int, *, plain: bool) -> list[str]:
    """Return the text of ``eventprof waits``: a block of lines for each place."""
    found = by_place(trace)
    if not found:
        return ["no thread waited" if trace._has_waits else MISSING]
    shown = found[: limit or None]
    whole = sum(one.total for one in found)
    times = [show_ns(one.total) for one in shown]
    widest = max(map(len, times))
    lines = [f"waited {show_ns(whole)} in all, of {len(trace.threads)} threads"]
    for one, time in zip(shown, times, strict=True):
        often = f"{one.times:,} times, the longest {show_ns(one.longest)}"
        lines.append(
            f"{time.rjust(widest)}  {percent(one.total / whole, 1)}  for {FOR[one.place.kind]} in "
            f"{where(one.place)}, {'once' if one.times == 1 else often}"
        )
        about = [f"by {', '.join(one.threads[:3])}", *_held(one)]
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
    "waits were not recorded: record with waits=True, or run eventprof run --waits; without them "
    "the report tells what follows from events alone"
)
