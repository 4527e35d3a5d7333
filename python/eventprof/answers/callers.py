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
from ..tables.column import Array
from ..tables.table import Table

if TYPE_CHECKING:
    from ..trace.recorded import Recorded


def callers(trace: Recorded, function: Function) -> Table:
    """Answer `Trace.callers`."""
    row = find_function(trace, function)
    core = trace._core
    calls = np.flatnonzero(core.calls("function") == row)
    keys = np.stack([core.calls("caller")[calls], core.calls("caller_line")[calls]])
    name = trace.functions["name"][row]
    return _edges(trace, f"callers of {name}", calls, keys)


def callees(trace: Recorded, function: Function) -> Table:
    """Answer `Trace.callees`."""
    row = find_function(trace, function)
    core = trace._core
    calls = np.flatnonzero(core.calls("caller") == row)
    keys = np.stack([core.calls("function")[calls], core.calls("caller_line")[calls]])
    name = trace.functions["name"][row]
    return _edges(trace, f"callees of {name}", calls, keys)


def _edges(trace: Recorded, title: str, calls: Array, keys: Array) -> Table:
    found, group = np.unique(keys, axis=1, return_inverse=True)
    group = group.reshape(-1)
    count = found.shape[1]
    times = np.bincount(group, minlength=count)
    total = sum_by(group, trace._core.calls("duration")[calls], count)
    own = sum_by(group, trace._core.calls("self")[calls], count)
    order = np.argsort(-total, kind="stable")
    return answer_table(
        trace,
        title,
        {
            **by_function(trace, found[0][order]),
            "line": row_numbers(found[1][order]),
            "calls": times[order],
            "total": total[order],
            "self": own[order],
        },
    )
