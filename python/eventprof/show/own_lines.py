"""The short report as text, in twenty lines: slow own lines, lines that hold the peak, memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .._words import plural, show_bytes, show_ns
from ..answers.first import OwnLine, memory_parts, peak_lines, slow_lines
from ..answers.spots import Spot
from ..answers.tree import Tree
from ..answers.waiting import WORDS, Place, by_place
from ..base.text import clean, short_path
from ..tables.facts import labels_shown
from .tree import headline, percent

if TYPE_CHECKING:
    from ..trace import Trace


#: Columns; of times that are no work four fit into them.
_WIDTH = 100
_IN_A_LINE = 4


def _at(one: OwnLine | Place) -> str:
    file = short_path(one.file or "?")
    return file if one.line is None else f"{file}:{one.line}"


def _what(one: OwnLine) -> str:
    return f"in {one.name}" if one.line else f"{one.name} itself, without its calls"


def _laid_out(lines: Sequence[OwnLine], show: Any) -> list[str]:
    cells = []
    for one in lines:
        cells.append((show(one.value), percent(one.share, 1), _at(one), _what(one)))
    widths = [max(len(row[column]) for row in cells) for column in range(3)] if cells else []
    return [
        f"  {a.rjust(widths[0])}  {b}  {c.ljust(widths[2])}  {d}".rstrip() for a, b, c, d in cells
    ]


def _lock_text(trace: Trace, tree: Tree) -> list[str]:
    """Return where own code waited longest for a lock, and where those stopped that had it."""
    if not tree.has_waits or 100 * tree.waits["lock"] < tree.working:
        return []
    found = next((each for each in by_place(trace) if each.is_lock_of_own), None)
    if found is None:
        return []
    text = f"longest for a lock: {show_ns(found.total)} at {_at(found.place)}"
    if not found.wakers:
        return [text]
    stops = next((place for place, _ in found.meanwhile if place != found.place), None)
    more = f"let go on by {found.wakers[0][0]}"
    if stops is not None:
        more = f"while {found.wakers[0][0]} was {WORDS[stops.kind].doing} at {_at(stops)}"
    one_line = f"{text}, {more}"
    return [one_line] if len(one_line) <= _WIDTH else [f"{text},", f"  {more}"]


def _slow_text(trace: Trace, tree: Tree) -> list[str]:
    lines = slow_lines(trace, tree)
    if not lines:
        return []
    heads = [f"slow, by own line (working time {show_ns(tree.working)})"]
    if tree.has_waits:
        others = [(tree.waits[word], words.sums) for word, words in WORDS.items()]
    else:
        others = [(int(tree.lock_waited.sum()), "waiting for the GIL or a lock (--waits: which)")]
    others.append((int(tree.blocked.sum()), "blocked"))
    parts = [f"{show_ns(time)} {what}" for time, what in others if 100 * time >= tree.working]
    for first in range(0, len(parts), _IN_A_LINE):
        more = "," if first + _IN_A_LINE < len(parts) else ""
        head = "outside of it: " if first == 0 else " " * len("outside of it: ")
        heads.append(f"{head}{', '.join(parts[first : first + _IN_A_LINE])}{more}")
    return [*heads, *_lock_text(trace, tree), *_laid_out(lines, show_ns)]


def _peak_text(trace: Trace, tree: Tree) -> list[str]:
    peak, time = int(tree.facts["peak"]), tree.facts["peak_time"]
    if not peak:
        return []
    head = f"the peak, {show_bytes(peak)} at {show_ns(time)}, by own line"
    return [head, *_laid_out(peak_lines(trace, tree), show_bytes)]


def _memory_text(trace: Trace, tree: Tree) -> list[str]:
    parts = memory_parts(trace, tree)
    if not parts:
        return []
    rows = [
        (part.name, "not seen" if part.bytes is None else show_bytes(part.bytes), part.covers)
        for part in parts
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    lines = ["memory at the peak, side by side"]
    return lines + [f"  {a.ljust(widths[0])}  {b.rjust(widths[1])}  {c}" for a, b, c in rows]


def sections(trace: Trace) -> list[str]:
    """Return the lines of the report's part "in own code"."""
    tree = trace._tree
    return [*_slow_text(trace, tree), *_peak_text(trace, tree), *_memory_text(trace, tree)]


def short_report(trace: Trace, width: int, *, plain: bool) -> list[str]:
    """Return the short report: the headline, labels if there are any, and `sections`."""
    labels = labels_shown(trace.metadata)
    lines = [
        headline(trace, trace._tree), *([f"labels  {labels}"] if labels else []), *sections(trace)
    ]  # fmt: skip
    return [clean(line, plain=plain)[:width] for line in lines]


#: What lines of spots show, and the head above them.
_SPOTS = {
    "time": (show_ns, "where the time goes, by own line"),
    "peak": (show_bytes, "where the peak goes, by own line"),
}


def _spot_text(spot: Spot) -> Iterator[str]:
    line, show = spot.line, _SPOTS[spot.sort][0]
    calls = f", {plural(spot.calls, 'call')}" if spot.calls else ""
    if spot.sort == "time" and spot.calls > 1:
        calls += f", {show_ns(line.value // spot.calls)} each"
    waits = f", beside {show_ns(spot.waited)} of waiting" if spot.waited else ""
    yield f"   {show(line.value)}, {line.share:.0%}  {_at(line)}  {_what(line)}{calls}{waits}"
    if spot.called:
        parts = [
            f"{one.name} {show(one.value)} ({plural(one.calls, 'call')})" for one in spot.called
        ]
        yield f"      through {', '.join(parts)}"


def spot_lines(spots: Sequence[Spot]) -> Iterator[str]:
    """Yield spots as lines of text: a head for each sort, and a line or two for each spot."""
    for sort, (_, head) in _SPOTS.items():
        chosen = [spot for spot in spots if spot.sort == sort]
        yield from [head] if chosen else []
        for spot in chosen:
            yield from _spot_text(spot)
