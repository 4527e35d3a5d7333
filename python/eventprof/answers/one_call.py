"""One call as rows: what it called, in order, each beside its function's median."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.quantities import parse_duration
from .branches import unknown_name
from .own import find_own

if TYPE_CHECKING:
    from ..trace import Trace


def find_call(trace: Trace, asked: Mapping[str, Any]) -> int:
    """Find the call that the options name.

    Parameters
    ----------
    trace : Trace
        The trace to look in.
    asked : mapping
        ``call``: a row of `calls`; ``slowest``: the name of a function, of own code if there is one
        of that name; or ``span``.

    Returns
    -------
    int
        Its row in `calls`.

    Raises
    ------
    ValueError
        There is no such call.
    """
    count = len(trace.calls)
    if "call" in asked:
        row = int(asked["call"])
        if not 0 <= row < count:
            raise ValueError(f"call: there are calls 0 to {count - 1:,}, not {row:,}")
        return row
    is_span = "span" in asked
    name = str(asked["span"] if is_span else asked["slowest"])
    rows = trace._core.functions()
    wanted = []
    for number, (known, module, _, _, kind) in enumerate(rows):
        last = (known or "").rpartition(".")[2]
        fits = name in (known, f"{module}.{known}", last)
        if fits and (kind == "user") == is_span:
            wanted.append(number)
    function = trace._core.calls("function")
    calls = np.flatnonzero(np.isin(function, wanted))
    # A library may have a function of the same name, and that one may be slower.
    own = np.flatnonzero(find_own(rows, trace._own_patterns))
    of_own = calls[np.isin(function[calls], own)]
    calls = of_own if len(of_own) else calls
    if not len(calls):
        what = "span" if is_span else "call of a function"
        texts = [row[0] for row in rows if row[0] and (row[4] == "user") == is_span]
        if is_span and wanted:
            raise ValueError(
                f"no span {name!r} has a tree: each overlaps others of its thread, as those of "
                "tasks do. eventprof requests --request ID has the functions of one request, "
                "trace.where(LABEL=VALUE) those of one label"
            )
        raise unknown_name(name, texts, what)
    return int(calls[np.argmax(trace._core.calls("duration")[calls])])


def call_rows(trace: Trace, call: int, limit: int) -> tuple[list[dict[str, Any]], int, int]:
    """Return one call, and what it called, as rows for a program.

    Parameters
    ----------
    trace : Trace
        The trace that has the call.
    call : int
        Row of `calls`.
    limit : int
        The most rows below the call; the shortest are left out.

    Returns
    -------
    (list of dict, int, int)
        The call itself, then its children in order: calls of one function from one line that follow
        each other are one row. Then how many rows were left out, and their time in ns.
    """
    core = trace._core.calls
    function, duration, line = core("function"), core("duration"), core("caller_line")
    functions = trace._core.functions()
    medians: dict[int, int] = {}

    def row_of(calls: list[int], depth: int) -> dict[str, Any]:
        first = calls[0]
        callee = int(function[first])
        if callee not in medians:
            medians[callee] = int(np.median(duration[function == callee]))
        known = functions[callee] if callee >= 0 else (None,) * 5
        return {
            "handle": f"c-{first}", "depth": depth, "name": known[0], "module": known[1],
            "file": known[2], "line": known[3],
            "caller_line": int(line[first]) if line[first] > 0 else None,
            "calls": len(calls), "at": int(core("start")[first]),
            "total": int(duration[calls].sum()), "median": medians[callee],
            "allocated": int(core("allocated")[calls].sum()),
        }  # fmt: skip

    runs: list[list[int]] = []
    for row in np.flatnonzero(core("parent") == call).tolist():
        last = runs[-1][-1] if runs else -1
        if runs and function[last] == function[row] and line[last] == line[row]:
            runs[-1].append(row)
        else:
            runs.append([row])
    heavy = sorted(range(len(runs)), key=lambda run: -int(duration[runs[run]].sum()))
    rest = sum(int(duration[runs[run]].sum()) for run in heavy[limit:])
    rows = [row_of(runs[run], 1) for run in sorted(heavy[:limit])]
    return [row_of([call], 0), *rows], len(heavy[limit:]), rest


def open_rows(trace: Trace, moment: int | str) -> list[dict[str, Any]]:
    """Return the calls that were open at a time, thread by thread, as rows for a program."""
    time = parse_duration("at", moment)
    if time > trace.duration:
        raise ValueError(f"at must be from 0 to {trace.duration:,} ns, not {time:,}")
    calls = trace._core.calls
    start, duration = calls("start"), calls("duration")
    function, thread, line = calls("function"), calls("thread"), calls("caller_line")
    rows = np.flatnonzero((start <= time) & (start + duration > time))
    functions, threads = trace._core.functions(), trace._thread_rows
    found = []
    for each_thread in np.unique(thread[rows]).tolist():
        for depth, row in enumerate(rows[thread[rows] == each_thread].tolist()):
            known = functions[function[row]] if function[row] >= 0 else (None,) * 5
            found.append({
                "handle": f"c-{row}", "depth": depth, "name": known[0], "module": known[1],
                "file": known[2], "line": known[3],
                "caller_line": int(line[row]) if line[row] > 0 else None,
                "calls": 1, "at": int(start[row]), "total": int(duration[row]), "median": None,
                "allocated": int(calls("allocated")[row]),
                "thread": threads[each_thread][0] or f"thread {each_thread}",
            })  # fmt: skip
    return found
