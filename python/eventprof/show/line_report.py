"""The lines of a trace as text: functions with their source, and what each line cost.

It has no colours.
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from .._words import printable

if TYPE_CHECKING:
    from ..tables.table import Table
    from ..trace import Trace

#: A run of more lines than this that did not run is left out.
_SILENT = 4

_HEADS = ("line", "hits", "time", "self", "%", "bytes", "blocks", "")


def write_lines(trace: Trace, file: IO[str], *, limit: int, functions: Any = None) -> int:
    """Print functions line by line, those first whose lines took the most time.

    If no line has a time, the functions that allocated the most bytes come first.

    Parameters
    ----------
    trace : Trace
        The trace to print.
    file : text file
        The file to print to.
    limit : int
        The most functions; 0: all.
    functions : array of bool, optional
        Which functions to print, by row of `Trace.functions`.

    Returns
    -------
    int
        How many functions were left out because of the limit.
    """
    lines = trace.lines
    if functions is not None:
        rows: Any = np.ma.getdata(lines["function"])
        lines = lines[np.flatnonzero(np.asarray(functions)[rows])]
    if not len(lines):
        print("no lines: record with lines=True (run: --lines), or with memory", file=file)
        return 0
    weight = _filled(lines, "self")
    if not weight.any():
        weight = _filled(lines, "allocated")
    rows = np.ma.getdata(lines["function"])
    totals = np.bincount(rows, weights=weight)
    present = np.unique(rows)
    order = present[np.argsort(-totals[present], kind="stable")]
    shown = order[:limit] if limit else order
    whole = float(weight.sum()) or 1.0
    for function in shown.tolist():
        _write_function(lines[rows == function], weight[rows == function], whole, file)
    return len(order) - len(shown)


def _filled(lines: Table, name: str) -> Any:
    return np.ma.filled(lines[name], 0)


def _write_function(lines: Table, weight: Any, whole: float, file: IO[str]) -> None:
    name, path = lines["name"][0], lines["file"][0]
    share = 100 * float(weight.sum()) / whole
    _print(f"{printable(name or '?')}  ({printable(path or '?')})  {share:.1f} %", file)
    cells = {
        int(row.line): [
            _number(row.hits),
            _time(row.total),
            _time(row.self),
            "" if not each else f"{100 * float(each) / whole:.1f}",
            _number(row.allocated),
            _number(row.blocks),
        ]
        for row, each in zip(lines, weight, strict=True)
    }
    table = [_HEADS, *_with_source(cells, path)]
    widths = [max(map(len, column)) for column in list(zip(*table, strict=True))[:-1]]
    for row in table:
        numbers = "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=False))
        _print(f"  {numbers}  {row[-1]}".rstrip(), file)
    print(file=file)


def _with_source(cells: dict[int, list[str]], path: str | None) -> Iterator[Sequence[str]]:
    """Yield the rows of a function's lines, and of lines between them that did not run, if few."""
    before = None
    for line in sorted(cells):
        gap = 0 if before is None else line - before - 1
        if gap > _SILENT:
            yield ("...", *[""] * 6, "")
        else:
            for silent in range(line - gap, line):
                yield (str(silent), *[""] * 6, _source(path, silent))
        yield (str(line), *cells[line], _source(path, line))
        before = line


def _source(path: str | None, line: int) -> str:
    try:
        # The path may be anything that the program gave, such as a device, or no path at all.
        if path is None or not (os.path.isfile(path) or path in linecache.cache):
            return ""
        return printable(linecache.getline(path, line).rstrip().expandtabs(4))
    except ValueError:
        return ""


def _print(text: str, file: IO[str]) -> None:
    """Print a line; characters that the file's encoding does not have are escaped."""
    encoding = getattr(file, "encoding", None) or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), file=file)


def _number(value: int | None) -> str:
    return "" if not value else f"{value:,}"


def _time(ns: int | None) -> str:
    from .._words import show_ns

    return "" if not ns else show_ns(ns)
