"""Rows of `events` and `calls` of one kind: what tables of marks, spans, objects are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from .column import Array, Column
from .kinds import NUMBERS
from .table import Table

if TYPE_CHECKING:
    from ..trace.recorded import Recorded
    from .facts import Facts

LOOSE = 3  # the phase of a flow that is an end of a span: source_marks.c


#: Rows of a column that are looked through at a time.
AT_A_TIME = 1 << 18


def parts_of_rows(count: int, at_a_time: int = AT_A_TIME) -> Iterator[slice]:
    """Yield slices of all rows, for columns that may lie in files."""
    for first in range(0, count, at_a_time):
        yield slice(first, min(first + at_a_time, count))
        _core.give_back()


def parts_of_columns(load: Callable[..., Array], *names: str) -> Iterator[tuple[int, list[Array]]]:
    """Yield the first row of each part of a table, and these columns of it.

    `load` is a method of the core's trace.
    """
    first, part = 0, [load(name, 0, AT_A_TIME) for name in names]
    while len(part[0]):
        yield first, part
        _core.give_back()
        first += len(part[0])
        part = [load(name, first, AT_A_TIME) for name in names]


def parts_of_column(load: Callable[..., Array], column: str) -> Iterator[Array]:
    """Yield a column in parts."""
    return (values for _, (values,) in parts_of_columns(load, column))


def _of_kind(trace: Facts, load: Callable[..., Array], kind: str) -> Array:
    number = NUMBERS[kind]
    found = [np.empty(0, np.intp)]
    if not trace._core.facts()["kinds"] >> number & 1:
        return found[0]
    for first, (values,) in parts_of_columns(load, "kind"):
        found.append(first + np.flatnonzero(values == number))
    return np.concatenate(found)


def values_of(load: Callable[..., Array], column: str, rows: Array) -> Array:
    """Return a column's values of some rows, which are sorted."""
    found = []
    for first, (values,) in parts_of_columns(load, column):
        begin, end = np.searchsorted(rows, (first, first + len(values)))
        found.append(values[rows[begin:end] - first])
    return np.concatenate(found) if found else load(column, 0, 0)


def event_codes(trace: Facts, code: Array) -> Array:
    """Return the code of each event's kind.

    Parameters
    ----------
    trace : Facts
        The trace.
    code : array
        By kind.

    Notes
    -----
    Spans that need not nest are recorded as flows: their events have the code of a span's. The
    flows are found part by part, as the column of all kinds may lie in a file.
    """
    load = trace._core.events
    codes: Array = _core.gather(code, load("kind"))
    flow = NUMBERS["FLOW"]
    if not any(flow in recorded for *_, recorded, _lost in trace._thread_rows):
        return codes
    begin_and_end = code[[NUMBERS["SPAN_BEGIN"], NUMBERS["SPAN_END"]]]
    for rows in parts_of_rows(len(codes), AT_A_TIME // 4):  # words are larger than kinds
        count = rows.stop - rows.start
        flows = np.flatnonzero(load("kind", rows.start, count) == flow)
        if len(flows):
            words = load("word", rows.start, count)[flows]
            loose = words & 3 == LOOSE
            codes[rows.start + flows[loose]] = begin_and_end[words[loose] >> 2 & 1]
    return codes


def rows_of_kind(trace: Facts, kind: str) -> Array:
    """Return the rows of events of a kind."""
    return _of_kind(trace, trace._core.events, kind)


def event_words(trace: Facts, rows: Array) -> Array:
    """Return the values of some events as they were recorded, uint64."""
    if not len(rows):
        return np.empty(0, np.uint64)  # the column of all events takes time
    return values_of(trace._core.events, "word", rows)


def name_column(trace: Recorded, functions: Array) -> Column:
    """Return the name column of events, from their rows of `functions`."""
    return text_of_functions(trace, "name", "name", lambda: functions, "what it is called")


def text_of_functions(
    trace: Recorded, name: str, column: str, rows: Callable[[], Array], doc: str
) -> Column:
    """Return a column with a text of functions, by their rows; -1: null."""
    texts = trace.functions._column(column)
    codes = np.append(texts.values(), texts.values().dtype.type(-1))
    return Column(name, lambda: codes[rows()], words=texts.words, doc=doc)


def number(name: str, values: Array, unit: str = "", doc: str = "", null: Any = "never") -> Column:
    """Return a column of numbers that are there already."""
    return Column(name, lambda: values, values.dtype, null=null, unit=unit, doc=doc)


def label_columns(
    trace: Recorded, beside: Iterable[Column], rows: Callable[[], Array]
) -> list[Column]:
    """Return a column for each label; rows: the row of the sets of labels of each row."""
    return trace._label_sets.columns([column.name for column in beside], rows)


def event_table(
    trace: Recorded,
    title: str,
    rows: Array,
    numbers: dict[str, Array] | None = None,
    others: Iterable[Column] = (),
) -> Table:
    """Return time, thread, name, more, and where it was made, of rows of events."""

    def load(column: str) -> Array:
        if not len(rows):
            # The column of all events takes time.
            return np.empty(0, np.int64 if column == "time" else np.int32)
        return values_of(trace._core.events, column, rows)

    columns = [
        number("time", load("time"), "ns", "since the window's start"),
        number("thread", load("thread"), "", "row of threads"),
        name_column(trace, load("function")),
        *(number(name, values) for name, values in (numbers or {}).items()),
        *others,
        number("caller", load("caller"), "", "row of functions", "negative"),
        number("caller_line", load("caller_line"), "", "where it was made", "negative"),
    ]
    columns += label_columns(
        trace, columns, lambda: trace._label_sets.rows_of(load("thread"), load("time"))
    )
    return Table(trace._title(title), columns, len(rows))


def calls_of_kind(trace: Facts, kind: str) -> Array:
    """Return the rows of calls of a kind."""
    return _of_kind(trace, trace._core.calls, kind)
