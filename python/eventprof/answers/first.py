"""The short report: which own lines are slow, and which hold the peak."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .reserved import reserved_at_peak
from .table import own_lines
from .tree import Tree

if TYPE_CHECKING:
    from ..trace import Trace


_SLOW_LINES, _PEAK_LINES = 5, 4  # shown, at most


@dataclass(frozen=True)
class OwnLine:
    """A line of own code, with the time or the bytes that are charged to it."""

    function: int
    name: str | None
    file: str | None
    line: int | None  # None: the function's own time, outside of its calls
    value: int  # ns or bytes
    share: float  # of the whole, 0 to 1

    def as_dict(self) -> dict[str, Any]:
        """Return the line as a JSON object."""
        return {"handle": f"fn-{self.function}", "name": self.name, "file": self.file,
                "line": self.line, "value": self.value, "share": round(self.share, 4)}  # fmt: skip


@dataclass(frozen=True)
class Part:
    """What one measure of memory says for the peak; bytes is None if nothing recorded it."""

    name: str
    bytes: int | None
    covers: str

    def as_dict(self) -> dict[str, Any]:
        """Return the part as a JSON object."""
        return {"part": self.name, "bytes": self.bytes, "covers": self.covers}


def of_lines(
    tree: Tree, lines: dict[str, Any], values: Any, whole: int, count: int
) -> list[OwnLine]:
    """Return the own lines with the largest values, of `whole`; at most `count`."""
    rows = [
        row for row in np.argsort(-values, kind="stable").tolist() if lines["function"][row] >= 0
    ]
    found = []
    for row in rows[:count]:
        value, function, line = (
            int(values[row]),
            int(lines["function"][row]),
            int(lines["line"][row]),
        )
        if value > 0:
            name, _, file, _, _ = tree.functions[function]
            share = value / max(whole, 1)
            found.append(OwnLine(function, name, file, line if line > 0 else None, value, share))
    return found


def working_time(lines: dict[str, Any]) -> Any:
    """Return the ns that each of `own_lines` took without waiting, with libraries' for it."""
    return np.maximum(lines["self"] - lines["waited"] - lines["blocked"], 0)


def whole_of(tree: Tree, time: Any) -> int:
    """Return what shares of `working_time` are of.

    Where other programs have the processors, lines of short calls have more than there was in all:
    for how long each of these calls had no processor is not known, only their sum.
    """
    return max(tree.working, int(time.sum()))


def slow_lines(trace: Trace, tree: Tree) -> list[OwnLine]:
    """Find the own lines that took the most time, with the time that libraries spent for them."""
    lines = own_lines(tree, trace._own_patterns)
    time = working_time(lines)
    return of_lines(tree, lines, time, whole_of(tree, time), _SLOW_LINES)


def peak_lines(trace: Trace, tree: Tree) -> list[OwnLine]:
    """Find the own lines that hold the most bytes at the peak."""
    lines = own_lines(tree, trace._own_patterns)
    return of_lines(tree, lines, lines["at_peak"], int(tree.facts["peak"]), _PEAK_LINES)


def memory_parts(trace: Trace, tree: Tree) -> list[Part]:
    """Report what each measure of memory held at the peak, and what each covers."""
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
        parts.append(Part("C libraries", libc, "malloc and mmap: what was asked for"))
    else:
        parts.append(Part("C libraries", None, "record with --native, or native=True"))
    reserved = reserved_at_peak(trace, tree)
    if reserved:
        parts.append(Part("of these reserved", reserved, "never touched while the peak was held"))
    found = resident_at(trace, int(tree.facts["peak_time"]))
    if found is not None:
        resident, recorder = found
        parts.append(Part("resident set", resident, "the whole process then, sampled"))
        if recorder is not None:
            parts.append(Part("of it the recorder's", recorder, "its log and tables of names"))
        unseen = resident - peak - (recorder or 0)
        if unseen > 0:
            what = "the interpreter, code, blocks made before"
            parts.append(Part("of it not seen", unseen, what))
    return parts


def resident_at(trace: Trace, time: int) -> tuple[int, int | None] | None:
    """Return the resident set around a time, and the recorder's part of it, if that is known.

    Of the samples before and after, the larger counts.
    """
    when, held, recorder = trace._core.resident()
    if not len(when):
        return None
    sample = int(np.searchsorted(when, time))
    row = max(max(sample - 1, 0), min(sample, len(held) - 1), key=held.__getitem__)
    return int(held[row]), int(recorder[row]) or None


# ---- For programs --------------------------------------------------------------------------------


def report_rows(trace: Trace, limit: int) -> Iterator[dict[str, Any]]:
    """Yield the report's answers as JSON objects.

    Parameters
    ----------
    trace : Trace
        The trace to report.
    limit : int
        The most functions.

    Yields
    ------
    dict
        In this order, by ``section``: own lines that are ``slow`` (value in ns), own lines that
        hold the ``peak`` (value in bytes), parts of the ``memory`` at the peak, ``functions`` by
        self time.
    """
    tree = trace._tree
    for section, lines in (("slow", slow_lines(trace, tree)), ("peak", peak_lines(trace, tree))):
        for line in lines:
            yield {"section": section, **line.as_dict()}
    for part in memory_parts(trace, tree):
        yield {"section": "memory", **part.as_dict()}
    sums = tree.by_function()
    own = sums["self"][: len(tree.functions)]  # without the last row, which is of no function
    for row in np.argsort(-own, kind="stable")[:limit].tolist():
        name, module, file, line, _ = tree.functions[row]
        yield {
            "section": "functions", "handle": f"fn-{row}", "name": name, "module": module,
            "file": file, "line": line,
            **{key: int(sums[key][row]) for key in ("calls", "self", "total", "allocated",
                                                    "at_peak")},
        }  # fmt: skip
