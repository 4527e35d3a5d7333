"""Who called a function, and what it called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..tables.by_function import (
    Function,
    answer_table,
    by_function,
    find_function,
    row_numbers,
    sum_by,
)
from ..tables.table import Table

if TYPE_CHECKING:
    from ..trace.recorded import Recorded


def callers(trace: Recorded, function: Function) -> Table:
    """Answer `Trace.callers`."""
    return _edges(trace, "callers", function, "function", "caller")


def callees(trace: Recorded, function: Function) -> Table:
    """Answer `Trace.callees`."""
    return _edges(trace, "callees", function, "caller", "function")


def _edges(trace: Recorded, title: str, function: Function, side: str, other: str) -> Table:
    """Add up the calls in which a function is on one side, by the other side and the line."""
    row = find_function(trace, function)
    core = trace._core
    calls = np.flatnonzero(core.calls(side) == row)
    keys = np.stack([core.calls(other)[calls], core.calls("caller_line")[calls]])
    found, group = np.unique(keys, axis=1, return_inverse=True)
    group = group.reshape(-1)
    count = found.shape[1]
    times = np.bincount(group, minlength=count)
    total = sum_by(group, core.calls("duration")[calls], count)
    own = sum_by(group, core.calls("self")[calls], count)
    order = np.argsort(-total, kind="stable")
    return answer_table(
        trace,
        f"{title} of {trace.functions['name'][row]}",
        {
            **by_function(trace, found[0][order]),
            "line": row_numbers(found[1][order]),
            "calls": times[order],
            "total": total[order],
            "self": own[order],
        },
    )
