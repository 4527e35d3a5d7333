"""One call: what it called, in order, each beside the median of the same function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .._words import show_bytes, show_ns
from ..recording.quantities import parse_duration
from .show import unknown_name

if TYPE_CHECKING:
    from ..trace import Trace


def find_call(trace: Trace, asked: Mapping[str, Any]) -> int:
    """Find the call that is meant.

    Parameters
    ----------
    trace : Trace
        Whose.
    asked : mapping
        ``call``: a row of `calls`; ``slowest``: the name of a function; or ``span``.

    Returns
    -------
    int
        The row.

    Raises
    ------
    ValueError
        There is none.
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
    for at, (known, module, _, _, kind) in enumerate(rows):
        last = (known or "").rpartition(".")[2]
        fits = name in (known, f"{module}.{known}", last)
        if fits and (kind == "user") == is_span:
            wanted.append(at)
    calls = np.flatnonzero(np.isin(trace._core.calls("function"), wanted))
    if not len(calls):
        what = "span" if is_span else "call of a function"
        texts = [row[0] for row in rows if row[0] and (row[4] == "user") == is_span]
        raise unknown_name(name, texts, what)
    return int(calls[np.argmax(trace._core.calls("duration")[calls])])


def show_call(trace: Trace, call: int, limit: int, width: int, plain: bool) -> list[str]:
    """Lay out one call and its children, in order."""
    calls = trace._core.calls
    function, duration, start = calls("function"), calls("duration"), calls("start")
    memory = calls("allocated")
    names = [row[0] or "(no name)" for row in trace._core.functions()]
    line = calls("caller_line")

    def median(row: int) -> int:
        same = duration[function == function[row]]
        return int(np.median(same)) if len(same) else 0

    def name(row: int) -> str:
        return names[function[row]] if function[row] >= 0 else "(unknown)"

    of_same = int(np.count_nonzero(function == function[call]))
    usual = median(call)
    lines = [
        f"call {call}: {name(call)}, {show_ns(int(duration[call]))} "
        f"from {show_ns(int(start[call]))} on; of {of_same:,} calls the median is {show_ns(usual)}",
    ]
    children = np.flatnonzero(calls("parent") == call)
    own = int(duration[call]) - int(duration[children].sum())
    rows = [("at", "time", "median", "times", "allocated", "")]
    # Runs of calls of one function from one line are one row.
    runs: list[list[int]] = []
    for row in children.tolist():
        last = runs[-1][-1] if runs else -1
        if runs and function[last] == function[row] and line[last] == line[row]:
            runs[-1].append(row)
        else:
            runs.append([row])
    heavy = sorted(range(len(runs)), key=lambda at: -int(duration[runs[at]].sum()))[:limit]
    left_out = [at for at in range(len(runs)) if at not in set(heavy)]
    medians: dict[int, int] = {}
    for at in sorted(heavy):
        run = runs[at]
        first = run[0]
        key = int(function[first])
        if key not in medians:
            medians[key] = median(first)
        time = int(duration[run].sum())
        expected = medians[key] * len(run)
        ratio = f"{time / expected:.1f} x" if expected else "-"
        many = f" ({len(run):,} calls)" if len(run) > 1 else f" (call {first})"
        where = f"line {line[first]}: " if line[first] > 0 else ""
        rows.append((
            show_ns(int(start[first] - start[call])), show_ns(time), show_ns(expected), ratio,
            show_bytes(int(memory[run].sum())), f"{where}{name(first)}{many}",
        ))  # fmt: skip
    if left_out:
        rest = sum(int(duration[runs[at]].sum()) for at in left_out)
        rows.append(("", show_ns(rest), "", "", "", f"{len(left_out):,} more"))
    rows.append(("", show_ns(max(own, 0)), "", "", "", "in itself, outside of these calls"))
    widths = [max(len(row[at]) for row in rows) for at in range(5)]
    for cells in rows:
        numbers = "  ".join(c.rjust(w) for c, w in zip(cells[:5], widths, strict=True))
        text = f"{numbers}  {cells[5]}".rstrip()
        lines.append(text if len(text) <= width else text[: width - 1] + ("~" if plain else "…"))
    return lines


def open_at(trace: Trace, at: int | str, width: int) -> list[str]:
    """Lay out the calls that were open at a time, thread by thread."""
    time = parse_duration("at", at)
    if time > trace.duration:
        raise ValueError(f"at: from 0 to {trace.duration:,} ns, not {time:,}")
    calls = trace._core.calls
    start, duration = calls("start"), calls("duration")
    function, thread, line = calls("function"), calls("thread"), calls("caller_line")
    rows = np.flatnonzero((start <= time) & (start + duration > time))
    functions = trace._core.functions()
    threads = trace._thread_rows
    lines = [f"at {show_ns(time)}:"]
    for of in np.unique(thread[rows]).tolist():
        lines.append(f"  {threads[of][0] or f'thread {of}'}")
        for row in rows[thread[rows] == of].tolist():
            known = functions[function[row]][0] if function[row] >= 0 else None
            where = f", called in line {line[row]}" if line[row] > 0 else ""
            since = show_ns(time - int(start[row]))
            text = f"    {known or '(unknown)'} since {since}, {show_ns(int(duration[row]))} in all"
            lines.append(f"{text}{where}  (call {row})"[:width])
    if len(lines) == 1:
        lines.append("  no call was open")
    return lines
