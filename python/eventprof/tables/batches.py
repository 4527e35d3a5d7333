"""Rows of large tables in batches: in memory for a batch, the open calls and the live blocks.

Events of a file are read in batches, before there are columns (`read_events`). Of columns, which
may lie in files (array.h of the core), tables have some rows at a time (`TablesOfRows`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from .column import Column
from .descriptions import Strings, described
from .event_rows import parts_of_column
from .kinds import NUMBERS
from .labels import of_calls
from .tables import allocations_table, calls_table, events_table

if TYPE_CHECKING:
    from ..trace.recorded import Recorded
    from .column import Array
    from .table import Table

_ALL_TIMES = np.iinfo(np.int64)


class _Batch:
    """What `events_table` asks of a trace, of some of its events."""

    def __init__(self, trace: Recorded, columns: dict[str, Array]) -> None:
        self._trace = trace
        self._columns = columns
        self._facts = {**trace._facts, "events": len(columns["row"])}

    @property
    def _core(self) -> _Batch:  # no attribute: a circle would keep batches until a collection
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trace, name)

    def events(self, name: str, first: int = 0, count: int | None = None) -> Array:
        """Return a column, or some rows of it."""
        values = self._columns[name]
        return values if count is None else values[first : first + count]


class _Rows:
    """What the functions of tables ask of a trace, of some rows of a table."""

    def __init__(self, tables: TablesOfRows, first: int, count: int) -> None:
        self._trace = tables.trace
        self._tables = tables
        self._first, self._count = first, count
        self._facts = {**self._trace._facts, "events": count}

    @property
    def _core(self) -> _Rows:  # no attribute: a circle would keep the rows until a collection
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trace, name)

    def _strings_of(self, table: str, column: str) -> Strings:
        return self._tables.strings_of(table, column)

    @property
    def _labels_of_calls(self) -> Array:
        return of_calls(cast("Recorded", self))

    def _load(self, load: Callable[..., Array], name: str, first: int, count: int | None) -> Array:
        left = max(self._count - first, 0)
        return load(name, self._first + first, left if count is None else min(count, left))

    def events(self, name: str, first: int = 0, count: int | None = None) -> Array:
        """Return a column of `Trace.events`, or some rows of it."""
        return self._load(self._trace._core.events, name, first, count)

    def calls(self, name: str, first: int = 0, count: int | None = None) -> Array:
        """Return a column of `Trace.calls`, or some rows of it."""
        return self._load(self._trace._core.calls, name, first, count)

    def allocations(self, name: str, first: int = 0, count: int | None = None) -> Array:
        """Return a column of `Trace.allocations`, or some rows of it."""
        return self._load(self._trace._core.allocations, name, first, count)


class TablesOfRows:
    """Tables of some rows of `Trace.events`, `Trace.calls` or `Trace.allocations`.

    Parameters
    ----------
    trace : Recorded
        The recording.
    """

    #: The tables that it knows.
    MADE: ClassVar = {
        "events": events_table,
        "calls": calls_table,
        "allocations": allocations_table,
    }

    def __init__(self, trace: Recorded) -> None:
        self.trace = trace
        self._strings: dict[tuple[str, str], Strings] = {}

    def __call__(self, name: str, first: int, count: int) -> Table:
        """Return a table of `count` rows; text columns have the words of the whole table."""
        rows = _Rows(self, first, count)
        table: Table = self.MADE[name](cast("Recorded", rows))
        return table

    def strings_of(self, table: str, column: str) -> Strings:
        """Return the texts of a column whose values are ids."""
        load = getattr(self.trace._core, table)

        return self._strings.setdefault(
            (table, column), Strings(lambda: parts_of_column(load, column))
        )


def joined(parts: Sequence[Table]) -> Table:
    """Return a table of the rows of several parts of one table."""
    from .table import Table

    def column(name: str) -> Column:
        each = [part._column(name) for part in parts]
        first = each[0]

        def nulls() -> Array:
            return np.concatenate([part.nulls() for part in each])

        return Column(
            name,
            lambda: np.concatenate([part.values() for part in each]),
            first.dtype,
            null=nulls if callable(first.null) else first.null,
            words=first.words,
            unit=first.unit,
            doc=first.doc,
            hexadecimal=first.hexadecimal,
        )

    names = parts[0].columns
    return Table(parts[0].name, [column(name) for name in names], sum(map(len, parts)))


def in_batches(trace: Recorded) -> bool:
    """Whether `read_events` can read its events: it is of a file, and has no columns yet."""
    return trace._again is not None and not trace._core.has_columns()


def read_events(
    trace: Recorded,
    take: Callable[[Table, Array], bool],
    *,
    start: int | None = None,
    end: int | None = None,
    kinds: int | None = None,
    functions: Array | None = None,
    threads: Array | None = None,
) -> None:
    """Read a recording once more, and give its events away in batches.

    Parameters
    ----------
    trace : Recorded
        The recording (`in_batches`), of which the functions are known.
    take : callable
        Called with each batch, a part of `Trace.events`, and the numbers of its rows there; returns
        whether it wants more.
    start, end : int, optional
        Only events from the one time on and before the other, in ns.
    kinds : int, optional
        Only events of these kinds, a bit each.
    functions, threads : array of bool, optional
        Only events of these rows of `functions` and `threads`.
    """
    known = [column.name for column in described("events") if column.name not in ("event", "name")]
    every = (1 << 128) - 1 if kinds is None else kinds

    def give(columns: dict[str, Array]) -> bool:
        batch = cast("Recorded", _Batch(trace, columns))
        return take(events_table(batch), columns["row"])

    # The file is opened a second time: what reads it is locked meanwhile.
    assert trace._again is not None
    trace._again().rows(
        _ALL_TIMES.min if start is None else start,
        _ALL_TIMES.max if end is None else end,
        every,
        None if functions is None else functions.astype(np.uint8).tobytes(),
        None if threads is None else threads.astype(np.uint8).tobytes(),
        (*known, "kind", *(["word"] if trace._facts["kinds"] >> NUMBERS["FLOW"] & 1 else [])),
        give,
    )
