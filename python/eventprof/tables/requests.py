"""The table of requests: spans of `eventprof.request` and of middleware, with their labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .by_function import sum_by
from .column import Array
from .event_rows import parts_of_columns
from .table import Table

if TYPE_CHECKING:
    from ..trace.recorded import Recorded

#: As plugins/requests.py has it: the name of the spans, and of the label that each has for itself.
REQUEST = "request"


def requests_table(trace: Recorded) -> Table:
    """Make `Trace.requests`."""
    spans = trace.spans
    named = np.array([name == REQUEST for name in spans["name"]], bool)
    sets = trace._label_sets
    of_spans = sets.rows_of(spans["thread"], spans["start"])
    has = np.array([REQUEST in labels for labels in sets.values] + [False])
    rows = np.flatnonzero(named & has[of_spans])
    labels = [sets.values[row] for row in of_spans[rows].tolist()]
    ids = {label_set[REQUEST]: number for number, label_set in enumerate(labels)}
    numbers = [ids.get(label_set.get(REQUEST, ""), -1) for label_set in sets.values]
    of_set = np.array([*numbers, -1], np.int64)
    columns: dict[str, Any] = {REQUEST: [label_set[REQUEST] for label_set in labels]}
    for name in ("method", "route", "path", "status", "error"):
        # Of a streamed body the labels are told anew, with what was not known before.
        given = {
            label_set[REQUEST]: label_set[name]
            for label_set in (*reversed(sets.values), *labels)
            if REQUEST in label_set and name in label_set
        }
        columns[name] = [given.get(label_set[REQUEST]) for label_set in labels]
    columns["start"] = spans["start"][rows]
    columns["total"] = spans["duration"][rows]
    columns |= _sums(trace, of_set, len(rows))
    columns["span"] = rows.astype(np.int32)
    columns["flags"] = spans["flags"][rows]
    units = {"allocated": "bytes"} | dict.fromkeys(
        ("start", "total", "busy", "waited", "most_self"), "ns"
    )
    return Table.from_columns(trace._title("requests"), columns, units=units)


def _sums(trace: Recorded, of_set: Array, count: int) -> dict[str, Any]:
    """Sum up calls by request; of_set: the request of each set of labels, of none last; or -1."""
    core = trace._core
    has_lock = trace._knows_waited
    functions = len(trace.functions)
    busy, waited, calls, allocated = np.zeros((4, count), np.int64)
    keys = sums = np.empty(0, np.int64)
    read = ("parent", "duration", "function", "self", "allocated_self")
    of_labels = trace._labels_of_calls
    for first, (parent, duration, *others) in parts_of_columns(core.calls, *read) if count else ():
        request = of_set[of_labels[first : first + len(parent)]]
        above = np.where(parent < 0, -1, of_set[of_labels[np.maximum(parent, 0)]])
        outer = np.flatnonzero((request >= 0) & (above != request))
        busy += sum_by(request[outer], duration[outer], count)
        if has_lock:
            of_part = core.calls("waited", first, len(parent))
            waited += sum_by(request[outer], of_part[outer], count)
        chosen = np.flatnonzero(request >= 0)
        request, (function, self_ns, bytes_) = request[chosen], (each[chosen] for each in others)
        calls += sum_by(request, np.ones(len(chosen), np.int64), count)
        allocated += sum_by(request, bytes_.astype(np.int64), count)
        known = function >= 0  # a damaged file may not have the names of all
        keys, where = np.unique(
            np.concatenate([keys, (request * functions + function)[known]]), return_inverse=True
        )
        sums = sum_by(where.reshape(-1), np.concatenate([sums, self_ns[known]]), len(keys))
    most_in = np.full(count, -1, np.int64)
    most_self = np.zeros(count, np.int64)
    # The last of equal keys wins, which is the one with the most.
    order = np.argsort(sums, kind="stable")
    of_key = keys // max(functions, 1)
    most_in[of_key[order]] = (keys % max(functions, 1))[order]
    most_self[of_key[order]] = sums[order]
    names = trace.functions["name"]
    return {
        "busy": busy,
        "waited": np.ma.MaskedArray(waited, mask=np.full(count, not has_lock)),
        "calls": calls,
        "allocated": allocated,
        "most_in": [None if row < 0 else names[row] for row in most_in.tolist()],
        "most_self": most_self,
    }
