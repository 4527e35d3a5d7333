"""The tables of what the program said of itself: marks, spans, counters, flows; audit events."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from .column import Array, Column, Words
from .event_rows import (
    LOOSE,
    calls_of_kind,
    event_table,
    event_words,
    label_columns,
    name_column,
    number,
    rows_of_kind,
    values_of,
)
from .table import Table

if TYPE_CHECKING:
    from ..trace.recorded import Recorded

_PHASES = ("begin", "step", "end")
_OPEN_AT_START, _OPEN_AT_END = 1, 2


def marks_table(trace: Recorded) -> Table:
    """Make `Trace.marks`."""
    return event_table(trace, "marks", rows_of_kind(trace, "MARK"))


def counters_table(trace: Recorded) -> Table:
    """Make `Trace.counters`."""
    rows = rows_of_kind(trace, "COUNTER")
    return event_table(
        trace, "counters", rows, {"value": event_words(trace, rows).view(np.float64)}
    )


def flows_table(trace: Recorded) -> Table:
    """Make `Trace.flows`."""
    rows = rows_of_kind(trace, "FLOW")
    words = event_words(trace, rows)
    rows, words = rows[words & 3 != LOOSE], words[words & 3 != LOOSE]
    phases = Column(
        "phase",
        lambda: (words & 3).astype(np.int8),
        null="never",
        words=Words(lambda: _PHASES),
        doc="its first, a further or its last station",
    )
    return event_table(trace, "flows", rows, {"id": (words >> 2).astype(np.int64)}, [phases])


def audit_table(trace: Recorded) -> Table:
    """Make `Trace.audit`."""
    return event_table(trace, "audit", rows_of_kind(trace, "AUDIT"))


_SPAN_COLUMNS = ("start", "duration", "thread", "function", "caller", "caller_line", "flags")


def spans_table(trace: Recorded) -> Table:
    """Make `Trace.spans`."""
    rows = calls_of_kind(trace, "SPAN_BEGIN")
    nested = {name: values_of(trace._core.calls, name, rows) for name in _SPAN_COLUMNS}
    nested["flags"] = nested["flags"] & ~np.uint8(32)  # recursive: of functions
    nested["call"] = rows.astype(np.int32)
    parts = [nested, _loose_spans(trace), _unmatched_ends(trace)]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in nested}
    order = np.argsort(columns["start"], kind="stable")
    columns = {name: values[order] for name, values in columns.items()}
    of_table = [
        number("start", columns["start"], "ns", "since the window's start"),
        number("duration", columns["duration"], "ns", "from start to end"),
        number("thread", columns["thread"], "", "row of threads"),
        name_column(trace, columns["function"]),
        number("call", columns["call"], "", "row of calls", "negative"),
        number("caller", columns["caller"], "", "row of functions", "negative"),
        number("caller_line", columns["caller_line"], "", "where it began", "negative"),
        number("flags", columns["flags"], "", "as of calls"),
    ]
    of_table += label_columns(
        trace, of_table, lambda: trace._label_sets.rows_of(columns["thread"], columns["start"])
    )
    return Table(trace._title("spans"), of_table, len(order))


def _span_columns(found: list[tuple[int, ...]]) -> dict[str, Array]:
    """Turn tuples of _SPAN_COLUMNS into arrays."""
    kinds = (np.int64, np.int64, np.int32, np.int32, np.int32, np.int32, np.uint8)
    columns = zip(*found, strict=True) if found else ((),) * len(_SPAN_COLUMNS)
    made = {
        name: np.array(values, dtype=kind)
        for name, values, kind in zip(_SPAN_COLUMNS, columns, kinds, strict=True)
    }
    made["call"] = np.full(len(found), -1, np.int32)
    return made


def _loose_spans(trace: Recorded) -> dict[str, Array]:
    """Pair the ends of spans that need not nest: the last begin of a name and span with an end."""
    rows = rows_of_kind(trace, "FLOW")
    words = event_words(trace, rows)
    rows, words = rows[words & 3 == LOOSE], words[words & 3 == LOOSE]
    load = partial(values_of, trace._core.events, rows=rows)
    columns = [load(name).tolist() if len(rows) else [] for name in
               ("time", "thread", "function", "caller", "caller_line")]  # fmt: skip
    begun: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    found: list[tuple[int, ...]] = []
    for word, time, thread, function, caller, line in zip(words.tolist(), *columns, strict=True):
        is_end, span = word >> 2 & 1, word >> 3
        stack = begun.setdefault((function, span), [])
        if not is_end:
            stack.append((time, thread, caller, line))
        elif stack:
            start, *rest = stack.pop()
            found.append((start, time - start, rest[0], function, *rest[1:], 0))
        else:
            found.append((0, time, thread, function, -1, -1, _OPEN_AT_START))
    for (function, _), stack in begun.items():
        for start, thread, caller, line in stack:
            rest_of_window = trace.duration - start
            found.append((start, rest_of_window, thread, function, caller, line, _OPEN_AT_END))
    return _span_columns(found)


def _unmatched_ends(trace: Recorded) -> dict[str, Array]:
    """Return the spans of which only the end was recorded."""
    rows = rows_of_kind(trace, "SPAN_END")
    load = trace._core.events
    if len(rows):
        rows = rows[values_of(load, "call", rows) < 0]
    if not len(rows):
        return _span_columns([])
    names = ("time", "thread", "function")
    ends = zip(*(values_of(load, name, rows).tolist() for name in names), strict=True)
    return _span_columns([(0, time, thread, f, -1, -1, _OPEN_AT_START) for time, thread, f in ends])
