"""One call as text: what it called, in order, each beside its function's median."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._words import plural, show_bytes, show_ns
from ..answers.one_call import call_rows, open_rows
from ..base.quantities import parse_duration

if TYPE_CHECKING:
    from ..trace import Trace


def show_call(trace: Trace, call: int, limit: int, width: int, plain: bool) -> list[str]:
    """Lay out one call and its children, in order."""
    calls = trace._core.calls
    (top, *children), left_out, rest = call_rows(trace, call, limit)
    of_same = int(np.count_nonzero(calls("function") == calls("function")[call]))

    def name(row: dict[str, Any]) -> str:
        if row["name"] is None:
            return "(no name)" if row["module"] or row["file"] else "(unknown)"
        return str(row["name"])

    lines = [
        f"call {call}: {name(top)}, {show_ns(top['total'])} from {show_ns(top['at'])} on; "
        f"of {plural(of_same, 'call')} the median is {show_ns(top['median'])}",
    ]
    rows = [("at", "time", "median", "times", "allocated", "")]
    for row in children:
        expected = row["median"] * row["calls"]
        ratio = f"{row['total'] / expected:.1f} x" if expected else "-"
        number = row["handle"].removeprefix("c-")
        many = f" ({row['calls']:,} calls)" if row["calls"] > 1 else f" (call {number})"
        where = f"line {row['caller_line']}: " if row["caller_line"] is not None else ""
        rows.append((
            show_ns(row["at"] - top["at"]), show_ns(row["total"]), show_ns(expected), ratio,
            show_bytes(row["allocated"]), f"{where}{name(row)}{many}",
        ))  # fmt: skip
    if left_out:
        rows.append(("", show_ns(rest), "", "", "", f"{left_out:,} more"))
    own = top["total"] - rest - sum(row["total"] for row in children)
    rows.append(("", show_ns(max(own, 0)), "", "", "", "in itself, outside of these calls"))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for cells in rows:
        numbers = "  ".join(c.rjust(w) for c, w in zip(cells[:5], widths, strict=True))
        text = f"{numbers}  {cells[5]}".rstrip()
        lines.append(text if len(text) <= width else text[: width - 1] + ("~" if plain else "…"))
    return lines


def open_at(trace: Trace, moment: int | str, width: int) -> list[str]:
    """Lay out the calls that were open at a time, thread by thread."""
    time = parse_duration("at", moment)
    lines, last = [f"at {show_ns(time)}:"], None
    for row in open_rows(trace, moment):
        if row["depth"] == 0 or row["thread"] != last:
            last = row["thread"]
            lines.append(f"  {last}")
        where = f", called in line {row['caller_line']}" if row["caller_line"] is not None else ""
        since = show_ns(time - row["at"])
        text = f"    {row['name'] or '(unknown)'} since {since}, {show_ns(row['total'])} in all"
        lines.append(f"{text}{where}  (call {row['handle'].removeprefix('c-')})"[:width])
    if len(lines) == 1:
        lines.append("  no call was open")
    return lines
