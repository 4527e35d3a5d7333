"""The source of a program with time and bytes by line: for the page and for the heat map.

If lines were recorded, the time of a line is that of `Trace.lines`. If not, it is the time of the
calls that the line made; what the line computes without a call is missing.

A line of own code has the bytes that are charged to it (`Trace.own`), with those that libraries
allocated for it, as in the live memory by own line; other lines have those of themselves.
"""

from __future__ import annotations

import fnmatch
import linecache
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from ..answers.own import find_own
from ..tables.column import Array
from ..tables.tables import recorded

if TYPE_CHECKING:
    from ..trace import Trace

#: The most files that a page shows: own code first, then by time and bytes.
MOST_FILES = 200
_LARGEST = 4_000_000  # bytes of a file whose text is put into a page

#: Names of files that may hold passwords or keys: a page is handed on, and never has their text.
_SECRET = (".env", ".env.*", "*.pem", "*key*", "*secret*", "*password*", "*credential*")

#: The figures of a line.
FIGURES = ("hits", "total", "self", "calls", "allocated", "blocks")


def find_source(trace: Trace) -> list[dict[str, Any]]:
    """Return the files of a trace with their text, and what each line cost.

    Parameters
    ----------
    trace : Trace
        The trace to look at.

    Returns
    -------
    list of dict
        One for each file: own code first, then by time and bytes. ``file``, ``own``, ``text`` (null
        if the file is not found), ``lines`` (their numbers, ascending) and a list for each of
        `FIGURES` that was recorded.
    """
    functions = trace._core.functions()
    files = [row[2] for row in functions]
    own = find_own(functions, trace._own_patterns)
    names = list(dict.fromkeys(file for file in files if file))
    number = {name: n for n, name in enumerate(names)}
    file_of = np.array([number.get(file or "", -1) for file in files] + [-1], dtype=np.int64)
    sums = _sums(trace, file_of, own)
    found: list[dict[str, Any]] = []
    for n, name in enumerate(names):
        lines = sums.get(n)
        if not lines:
            continue
        order = sorted(lines)
        known = [what for what in FIGURES if any(what in lines[line] for line in order)]
        found.append(
            {
                "file": name,
                "own": bool(own[:-1][file_of[:-1] == n].any()),
                "lines": order,
                **{what: [lines[line].get(what, 0) for line in order] for what in known},
            }
        )
    found.sort(key=_rank)
    for each in found[:MOST_FILES]:
        each["text"] = _text(each["file"])
    return found[:MOST_FILES]


def _rank(file: dict[str, Any]) -> tuple[bool, int, int]:
    return not file["own"], -sum(file.get("total", ())), -sum(file.get("allocated", ()))


def _sums(trace: Trace, file_of: Array, own: Array) -> dict[int, dict[int, dict[str, int]]]:
    """Return the figures of each line of each file."""
    tree = trace._tree
    has_lines = "lines" in recorded(trace)
    sums: dict[int, dict[int, dict[str, int]]] = {}

    def add(file: Array, line: Array, what: str, values: Array) -> None:
        known = np.flatnonzero((file >= 0) & (line > 0))
        for function, caller_line, value in zip(
            file[known].tolist(), line[known].tolist(), values[known].tolist(), strict=True
        ):
            figures = sums.setdefault(function, {}).setdefault(caller_line, {})
            figures[what] = figures.get(what, 0) + value

    if has_lines:
        table = trace.lines
        file = file_of[np.ma.getdata(table["function"]).astype(np.int64)]
        for what in ("hits", "total", "self"):
            add(file, np.ma.getdata(table["line"]), what, np.ma.filled(table[what], 0))
    function, line, allocated, blocks = tree.by_place("allocated")
    file = np.where(own[function], -1, file_of[function])
    add(file, line, "allocated", allocated)
    add(file, line, "blocks", blocks)
    charges = trace.own
    function = np.ma.filled(charges["function"], -1).astype(np.int64)
    for what in ("allocated", "blocks"):
        values = np.ma.filled(charges[what], 0)
        line = np.where(values > 0, np.ma.filled(charges["line"], 0), 0)
        add(file_of[function], line, what, values)
    caller, caller_line = tree.caller.astype(np.int64), tree.line.astype(np.int64)
    file = np.where(caller >= 0, file_of[np.maximum(caller, -1)], -1)
    add(file, caller_line, "calls", tree.own("calls"))
    if has_lines:
        return sums
    # A line that made several calls of one stack is counted once: by the outermost of them.
    known = np.flatnonzero((file >= 0) & (caller_line > 0))
    key = np.full(tree.count, -1, dtype=np.int32)
    _, key[known] = np.unique(file[known] * (1 << 32) + caller_line[known], return_inverse=True)
    outermost = tree.outermost(key)
    add(np.where(outermost, file, -1), caller_line, "total", tree.below("total"))
    return sums


def _text(path: str) -> list[str] | None:
    """Return the lines of a file; None if it is not there, is no text, or may hold secrets."""
    name = os.path.basename(path).lower()
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in _SECRET):
        return None
    try:
        if os.path.exists(path):
            # The path may be anything that the program gave, such as a device without an end.
            known = os.path.isfile(path) and os.path.getsize(path) <= _LARGEST
        else:
            known = path in linecache.cache
        lines = linecache.getlines(path) if known else []
    except ValueError:
        return None
    return [line.rstrip("\r\n") for line in lines] or None
