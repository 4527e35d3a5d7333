"""What people ask first, in twenty lines: what is slow, where is the peak, in my code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._words import show_bytes, show_ns
from ..show.drawing import clean, short_path
from .show import headline, percent
from .table import own_lines
from .tree import Tree

if TYPE_CHECKING:
    from ..trace import Trace


def slow_lines(trace: Trace, tree: Tree, count: int = 5) -> list[str]:
    """Name the own lines that took the most time, with all that libraries did for them."""
    lines = own_lines(tree, trace._own_patterns)
    time = np.maximum(lines["self"] - lines["waited"] - lines["blocked"], 0)
    rows = [at for at in np.argsort(-time, kind="stable").tolist() if lines["function"][at] >= 0]
    rows = [at for at in rows[:count] if time[at] > 0]
    if not rows:
        return []
    waited, blocked = int(tree.lock_waited.sum()), int(tree.blocked.sum())
    aside = [f"working time {show_ns(tree.working)}"]
    if waited:
        aside.append(f"waited for the interpreter's lock {show_ns(waited)}")
    if blocked:
        aside.append(f"blocked {show_ns(blocked)}")
    said = [f"slow, by own line ({', '.join(aside)})"]
    said += _lines(tree, lines, rows, time, max(tree.working, 1), show_ns)
    return said


def peak_lines(trace: Trace, tree: Tree, count: int = 4) -> list[str]:
    """Name the own lines that hold the most at the peak."""
    peak = int(tree.facts["peak"])
    if not peak:
        return []
    lines = own_lines(tree, trace._own_patterns)
    held = lines["at_peak"]
    rows = [at for at in np.argsort(-held, kind="stable").tolist() if lines["function"][at] >= 0]
    rows = [at for at in rows[:count] if held[at] > 0]
    said = [f"the peak, {show_bytes(peak)} at {show_ns(tree.facts['peak_time'])}, by own line"]
    said += _lines(tree, lines, rows, held, peak, show_bytes)
    return said


def _lines(
    tree: Tree, lines: dict[str, Any], rows: Sequence[int], values: Any, whole: int, show: Any
) -> list[str]:
    cells = []
    for at in rows:
        function, line = int(lines["function"][at]), int(lines["line"][at])
        name, _, file, _, _ = tree.functions[function]
        place = f"{short_path(file or '?')}:{line}" if line > 0 else short_path(file or "?")
        what = f"in {name}" if line > 0 else f"{name} itself, beside its calls"
        share = percent(float(values[at]), whole)
        cells.append((show(int(values[at])), share, place, what))
    widths = [max(len(row[at]) for row in cells) for at in range(3)] if cells else []
    return [
        f"  {a.rjust(widths[0])}  {b}  {c.ljust(widths[2])}  {d}".rstrip() for a, b, c, d in cells
    ]


def memory_lines(trace: Trace, tree: Tree) -> list[str]:
    """Say what each part held at the peak, what it covers, and what is not seen."""
    peak = int(tree.facts["peak"])
    if not peak:
        return []
    raw, mem, obj, numpy, libc = tree.domains_at_peak
    python = raw + mem + obj
    options = trace.metadata.get("options", {})
    domains = options.get("domains", ())
    rows = [("Python's allocators", show_bytes(python), "objects, text, lists, dicts")]
    if numpy or "numpy" in domains:
        rows.append(("NumPy", show_bytes(numpy), "the data of arrays"))
    if libc or "libc" in domains:
        rows.append(("C libraries", show_bytes(libc), "malloc and mmap: asked for, not touched"))
    else:
        rows.append(("C libraries", "not seen", "record with --native, or native=True"))
    resident = resident_at(trace, int(tree.facts["peak_time"]))
    if resident is not None:
        rows.append(("resident set", show_bytes(resident), "the whole process then, sampled"))
        unseen = resident - peak
        if unseen > 0:
            what = "the interpreter, code, and all that is older than the recording"
            rows.append(("of it not seen", show_bytes(unseen), what))
    widths = [max(len(row[at]) for row in rows) for at in range(2)]
    said = ["memory at the peak, side by side"]
    said += [f"  {a.ljust(widths[0])}  {b.rjust(widths[1])}  {c}" for a, b, c in rows]
    return said


def resident_at(trace: Trace, time: int) -> int | None:
    """Give the resident set around a time: the larger of the samples before and after."""
    when, held = trace._core.resident()
    if not len(when):
        return None
    at = int(np.searchsorted(when, time))
    return int(max(held[max(at - 1, 0)], held[min(at, len(held) - 1)]))


def sections(trace: Trace) -> list[str]:
    """Give all of it, a line a row."""
    tree = trace._tree
    return [*slow_lines(trace, tree), *peak_lines(trace, tree), *memory_lines(trace, tree)]


def short_report(trace: Trace, width: int, *, plain: bool) -> list[str]:
    """Give the short report: the headline and `sections`, cut to the width."""
    lines = [headline(trace, trace._tree), *sections(trace)]
    return [clean(line, plain=plain)[:width] for line in lines]
