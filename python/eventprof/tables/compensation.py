"""Recorded without the recorder's share of their times; see `Table.compensated`.

A span holds all events that happened between its two, and half of what its own two cost: of a call
the part after its clock was read, of an end the part before. The other halves are in the call
around it. So with e for the cost of an event

    self time less   e (its own two halves) + e a direct child + e an allocator event in it
    duration less    the same of it and of all calls inside
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.sorts import SORTS
from .column import Array, Column
from .table import Compensate, Table

if TYPE_CHECKING:
    from ..trace.recorded import Recorded

_OPEN_AT_START, _NO_END, _RECURSIVE = 1, 2 | 16, 32


def costs_of(trace: Recorded, compensate: Compensate) -> dict[str, float]:
    """Return ns an event by sort.

    Raises
    ------
    TypeError
        It is neither True nor a mapping.
    ValueError
        The costs are unknown, or a value is not a cost.
    """
    if compensate is not True and not isinstance(compensate, Mapping):
        raise TypeError(
            "compensate must be True, False, or a mapping of ns an event by sort, as "
            f"eventprof.overhead() gives it, not {compensate!r}"
        )
    given = trace.metadata.get("overhead") if compensate is True else compensate
    if not isinstance(given, Mapping):
        raise ValueError(
            "the costs of this trace's events are unknown: record(overhead=True) measures them, or "
            "pass compensate=eventprof.overhead() of the same machine and interpreter"
        )
    costs = {}
    for sort in SORTS:
        value = given.get(sort, 0.0)
        if not isinstance(value, (int, float)) or not 0 <= value < 1e9:
            raise ValueError(f"overhead of {sort} must be ns of 0 or more, not {value!r}")
        costs[sort] = float(value)
    return costs


def shares(trace: Recorded, costs: Mapping[str, float]) -> tuple[Array, Array]:
    """Return the recorder's share of the duration and of the self time of each call, in ns.

    Parameters
    ----------
    trace : Recorded
        Whose calls.
    costs : mapping
        ns an event, by sort.

    Returns
    -------
    tuple of ndarray of float64
        By row of `Trace.calls`.
    """
    from .kinds import WORDS

    core = trace._core
    parent, depth, flags = core.calls("parent"), core.calls("depth"), core.calls("flags")
    count = len(parent)
    sorts = np.zeros(max(WORDS) + 1)
    for kind, word in WORDS.items():
        known = {"call": "call", "c_call": "c_call", "resume": "resume", "throw": "resume"}
        sorts[kind] = costs[known[word]] if word in known else 0.0
    halves = (flags & _OPEN_AT_START == 0).astype(np.int8) + (flags & _NO_END == 0)
    own = sorts[core.calls("kind")] * halves / 2
    inner = parent >= 0
    self_share = own + _sum_by(parent[inner], own[inner], count)
    # Allocator events, wherever they happened.
    of_event = np.zeros(max(WORDS) + 1)
    for kind, word in WORDS.items():
        if word.startswith("realloc"):
            of_event[kind] = costs["realloc"]
        elif word in ("malloc", "calloc", "free"):
            of_event[kind] = costs["malloc"]
    event_kind = core.events("kind")
    is_block = of_event[event_kind] > 0
    call = core.events("call")[is_block]
    inside = call >= 0
    self_share += _sum_by(call[inside], of_event[event_kind[is_block]][inside], count)

    share = self_share.copy()
    order = np.argsort(depth, kind="stable")
    levels = np.arange(int(depth.max()) + 2 if count else 0)
    bounds: Array = np.searchsorted(depth[order], levels)
    for level in range(len(bounds) - 2, 0, -1):  # the deepest first
        rows = order[bounds[level] : bounds[level + 1]]
        np.add.at(share, parent[rows], share[rows])
    return share, self_share


def _sum_by(rows: Array, values: Array, count: int) -> Array:
    return np.bincount(rows, weights=values, minlength=count).astype(np.float64)


def _less(values: Array, share: Array) -> Array:
    # NumPy up to 2.4 says Any of it.
    less: Array = np.maximum(0, np.rint(values - share)).astype(np.int64)
    return less


def calls(trace: Recorded, table: Table, compensate: Compensate) -> Table:
    """Return `Trace.calls` without the recorder's share."""
    share, self_share = shares(trace, costs_of(trace, compensate))
    return _with(
        table,
        {
            "duration": _less(table["duration"], share),
            "self": _less(table["self"], self_share),
        },
    )


def functions(trace: Recorded, table: Table, compensate: Compensate) -> Table:
    """Return `Trace.functions` without the recorder's share: from the calls, as it was made."""
    by_call = calls(trace, trace.calls, compensate)
    duration, self_time = by_call["duration"], by_call["self"]
    flags, row = trace._core.calls("flags"), trace._core.calls("function")
    count = len(table)
    known = row >= 0
    outermost = known & (flags & _RECURSIVE == 0)
    whole = np.flatnonzero(known & (flags & (_OPEN_AT_START | _NO_END) == 0))
    statistics = {
        "total": _sums(row[outermost], duration[outermost], count),
        "self": _sums(row[known], self_time[known], count),
        **_distributions(row[whole], duration[whole], count),
    }
    return _with(table, statistics)


def _sums(rows: Array, values: Array, count: int) -> Array:
    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, rows, values)
    return sums


def _distributions(rows: Array, values: Array, count: int) -> dict[str, Array]:
    """Return mean to p99 of each row's values; -1 where there are none."""
    order = np.lexsort((values, rows))
    ordered = values[order]
    first = np.searchsorted(rows[order], np.arange(count + 1))
    numbers = np.diff(first)
    some = numbers > 0
    begin, many = first[:-1][some], numbers[some]

    def spread(picked: Any, dtype: Any = np.int64) -> Array:
        result = np.full(count, -1, dtype=dtype)
        result[some] = picked
        return result

    sums = _sums(rows, values, count)
    found = {
        "mean": spread(sums[some] / many, np.float64),
        "min": spread(ordered[begin]),
        "max": spread(ordered[begin + many - 1]),
    }
    for percent in (50, 95, 99):
        length = _as_counted(ordered[begin + (many * percent + 99) // 100 - 1])
        found[f"p{percent}"] = spread(length)
        found[f"p{percent}"] = np.clip(found[f"p{percent}"], found["min"], found["max"])
    return found


def _as_counted(lengths: Array) -> Array:
    """Return the middle of the bin that the tree counts a length in; length_bin() has the bins."""
    shift = np.maximum(np.frexp(lengths.astype(np.float64))[1].astype(np.int64) - 7, 0)
    middle: Array = (lengths >> shift << shift) + ((1 << shift) - 1) // 2
    return middle


def _with(table: Table, replaced: Mapping[str, Array]) -> Table:
    def column(old: Column) -> Column:
        if old.name not in replaced:
            return old
        values = replaced[old.name]
        doc = f"{old.doc}; without the recorder's share"
        return Column(
            old.name,
            lambda: values,
            old.dtype,
            null=old.null,
            unit=old.unit,
            doc=doc,
        )

    columns = [column(table._column(name)) for name in table.columns]
    return Table(f"{table.name} without overhead", columns, len(table))
