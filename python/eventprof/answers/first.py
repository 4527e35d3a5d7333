"""What people ask first, in twenty lines: what is slow, where is the peak, in my code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._words import show_bytes, show_ns
from ..show.drawing import clean, short_path
from .show import headline, percent
from .table import own_lines
from .tree import Tree

if TYPE_CHECKING:
    from ..trace import Trace


@dataclass(frozen=True)
class OwnLine:
    """An own line, and what it is charged with."""

    function: int
    name: str | None
    file: str | None
    line: int | None  # None: of the function itself, beside its calls
    value: int
    share: float

    def as_dict(self) -> dict[str, Any]:
        """Give it as JSON has it."""
        return {"handle": f"fn-{self.function}", "name": self.name, "file": self.file,
                "line": self.line, "value": self.value, "share": round(self.share, 4)}  # fmt: skip


@dataclass(frozen=True)
class Part:
    """A part of the memory at the peak; bytes None: not seen."""

    name: str
    bytes: int | None
    covers: str

    def as_dict(self) -> dict[str, Any]:
        """Give it as JSON has it."""
        return {"part": self.name, "bytes": self.bytes, "covers": self.covers}


def _own_lines(
    tree: Tree, lines: dict[str, Any], values: Any, whole: int, count: int
) -> list[OwnLine]:
    rows = [at for at in np.argsort(-values, kind="stable").tolist() if lines["function"][at] >= 0]
    found = []
    for at in rows[:count]:
        value, function, line = int(values[at]), int(lines["function"][at]), int(lines["line"][at])
        if value > 0:
            name, _, file, _, _ = tree.functions[function]
            share = value / max(whole, 1)
            found.append(OwnLine(function, name, file, line if line > 0 else None, value, share))
    return found


def slow_lines(trace: Trace, tree: Tree, count: int = 5) -> list[OwnLine]:
    """Find the own lines that took the most time, with all that libraries did for them."""
    lines = own_lines(tree, trace._own_patterns)
    time = np.maximum(lines["self"] - lines["waited"] - lines["blocked"], 0)
    return _own_lines(tree, lines, time, tree.working, count)


def peak_lines(trace: Trace, tree: Tree, count: int = 4) -> list[OwnLine]:
    """Find the own lines that hold the most at the peak."""
    lines = own_lines(tree, trace._own_patterns)
    return _own_lines(tree, lines, lines["at_peak"], int(tree.facts["peak"]), count)


def memory_parts(trace: Trace, tree: Tree) -> list[Part]:
    """Say what each part held at the peak, what it covers, and what is not seen."""
    peak = int(tree.facts["peak"])
    if not peak:
        return []
    raw, mem, obj, numpy, libc = tree.domains_at_peak
    options = trace.metadata.get("options", {})
    domains = options.get("domains", ())
    parts = [Part("Python's allocators", raw + mem + obj, "objects, text, lists, dicts")]
    if numpy or "numpy" in domains:
        parts.append(Part("NumPy", numpy, "the data of arrays"))
    else:
        parts.append(Part("NumPy", None, "arrays' data, if there are any: record with numpy=True"))
    if libc or "libc" in domains:
        parts.append(Part("C libraries", libc, "malloc and mmap: asked for, not touched"))
    else:
        parts.append(Part("C libraries", None, "record with --native, or native=True"))
    resident = resident_at(trace, int(tree.facts["peak_time"]))
    if resident is not None:
        parts.append(Part("resident set", resident, "the whole process then, sampled"))
        if resident > peak:
            what = "the interpreter, code, and all that is older than the recording"
            parts.append(Part("of it not seen", resident - peak, what))
    return parts


# ---- As text -------------------------------------------------------------------------------------


def _laid_out(lines: Sequence[OwnLine], show: Any) -> list[str]:
    cells = []
    for one in lines:
        file = short_path(one.file or "?")
        place = file if one.line is None else f"{file}:{one.line}"
        what = f"in {one.name}" if one.line else f"{one.name} itself, beside its calls"
        cells.append((show(one.value), percent(one.share, 1), place, what))
    widths = [max(len(row[at]) for row in cells) for at in range(3)] if cells else []
    return [
        f"  {a.rjust(widths[0])}  {b}  {c.ljust(widths[2])}  {d}".rstrip() for a, b, c, d in cells
    ]


def _slow_text(trace: Trace, tree: Tree) -> list[str]:
    lines = slow_lines(trace, tree)
    if not lines:
        return []
    waited, blocked = int(tree.lock_waited.sum()), int(tree.blocked.sum())
    aside = [f"working time {show_ns(tree.working)}"]
    if waited:
        aside.append(f"waited for the interpreter's lock {show_ns(waited)}")
    if blocked:
        aside.append(f"blocked {show_ns(blocked)}")
    return [f"slow, by own line ({', '.join(aside)})", *_laid_out(lines, show_ns)]


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
    widths = [max(len(row[at]) for row in rows) for at in range(2)]
    said = ["memory at the peak, side by side"]
    return said + [f"  {a.ljust(widths[0])}  {b.rjust(widths[1])}  {c}" for a, b, c in rows]


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
    return [*_slow_text(trace, tree), *_peak_text(trace, tree), *_memory_text(trace, tree)]


def short_report(trace: Trace, width: int, *, plain: bool) -> list[str]:
    """Give the short report: the headline and `sections`, cut to the width."""
    lines = [headline(trace, trace._tree), *sections(trace)]
    return [clean(line, plain=plain)[:width] for line in lines]


# ---- For programs --------------------------------------------------------------------------------


def report_rows(trace: Trace, limit: int) -> Iterator[dict[str, Any]]:
    """Give the report's answers as JSON has them, the first questions first.

    Parameters
    ----------
    trace : Trace
        Whose.
    limit : int
        The most functions.

    Yields
    ------
    dict
        ``section`` says what it is: own lines that are ``slow`` (value in ns) or hold the ``peak``
        (value in bytes), parts of the ``memory`` then, ``functions`` by self time.
    """
    tree = trace._tree
    for section, lines in (("slow", slow_lines(trace, tree)), ("peak", peak_lines(trace, tree))):
        for line in lines:
            yield {"section": section, **line.as_dict()}
    for part in memory_parts(trace, tree):
        yield {"section": "memory", **part.as_dict()}
    sums = tree.by_function()
    own = sums["self"][: len(tree.functions)]  # the last row is that of no function
    for row in np.argsort(-own, kind="stable")[:limit].tolist():
        name, module, file, line, _ = tree.functions[row]
        yield {
            "section": "functions", "handle": f"fn-{row}", "name": name, "module": module,
            "file": file, "line": line,
            **{key: int(sums[key][row]) for key in ("calls", "self", "total", "allocated",
                                                    "at_peak")},
        }  # fmt: skip
