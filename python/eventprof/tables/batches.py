"""Rows of large tables in batches: in memory for a batch, the open calls and the live blocks.

Events of a file are read in batches, before there are columns (`read_events`). Of columns, which
may lie in files (array.h of the core), tables have some rows at a time (`TablesOfRows`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from .. import _core
from .column import Column
from .descriptions import Strings, described
from .event_rows import parts_of_column
from .kinds import NUMBERS, WORDS
from .labels import of_calls
from .processes import text_column
from .table import Table
from .tables import allocations_table, calls_table, events_table, threads_table

if TYPE_CHECKING:
    from ..trace.recorded import Recorded
    from .column import Array

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


class Unread:
    """What tables of events ask of a trace of which no event was read.

    Functions are known as they come: `functions` has the rows that events mentioned so far, with
    the row numbers that they have in `Trace.functions`.

    Parameters
    ----------
    trace : Recorded
        The recording.
    glance : dict
        What the core knows of it.
    """

    def __init__(self, trace: Recorded, glance: _core._Glance) -> None:
        kinds = glance["kinds"]
        # Whether an event of a kind is there, nobody knows yet.
        may_be = {number: 1 for number in WORDS if kinds >> number & 1}
        self._trace = trace
        self._facts = {"kinds": kinds, "duration_ns": glance["duration_ns"], "events": 0}
        no_loss: dict[int, int] = {}
        self._thread_rows = [(*row[:4], may_be, no_loss) for row in glance["threads"]]
        self._texts: dict[str, list[str | None]] = {"name": [], "module": [], "file": []}
        #: The core appends to it.
        self.new_functions: list[tuple[int, str | None, str | None, str | None]] = []
        self._functions: Table | None = None
        #: Parts of the file that could not be read, as far as was found.
        self.damage = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trace, name)

    def _title(self, name: str) -> str:
        return name

    @property
    def duration(self) -> int:
        """As of the trace."""
        return self._facts["duration_ns"]

    @property
    def events(self) -> Table:
        """No event, with the columns of `Trace.events`."""
        return events_table(cast("Recorded", _Batch(cast("Recorded", self), {"row": _NO_ROWS})))

    @cached_property
    def threads(self) -> Table:
        """As of the trace, but counts and times are not known."""
        return threads_table(cast("Recorded", self))

    @property
    def functions(self) -> Table:
        """The name, module and file of functions; of a row that no event mentioned yet, None."""
        if self._functions is None or self.new_functions:
            for row, *texts in self.new_functions:
                for column, text in zip(self._texts.values(), texts, strict=True):
                    column.extend([None] * (row + 1 - len(column)))
                    column[row] = text
            self.new_functions.clear()
            columns = [text_column(name, tuple(each), "") for name, each in self._texts.items()]
            self._functions = Table("functions", columns, len(self._texts["name"]))
        return self._functions


_NO_ROWS = np.empty(0, np.int64)


def unread(trace: Recorded) -> Unread | None:
    """Return what is known of a recording before its events are read.

    None: they must be read first. Something is missing of it, or filters are left to do, or it is
    of several processes, or of another tool.
    """
    if trace._again is None or trace._late is not None or trace._known.get("processes"):
        return None
    glance = trace._core.glance()
    return None if glance is None else Unread(trace, glance)


def in_batches(trace: Recorded) -> bool:
    """Whether `read_events` can read its events: it is of a file, and has no columns yet."""
    return trace._again is not None and not trace._core.has_columns()


def read_events(
    trace: Recorded | Unread,
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
    trace : Recorded or Unread
        The recording (`in_batches`), of which the functions are known; or that of `unread`, of
        which they become known.
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
        batch = cast("Recorded", _Batch(cast("Recorded", trace), columns))
        return take(events_table(batch), columns["row"])

    # The file is opened a second time: what reads it is locked meanwhile.
    assert trace._again is not None
    core = trace._again()
    core.rows(
        _ALL_TIMES.min if start is None else start,
        _ALL_TIMES.max if end is None else end,
        every,
        None if functions is None else functions.astype(np.uint8).tobytes(),
        None if threads is None else threads.astype(np.uint8).tobytes(),
        (*known, "kind", *(["word"] if trace._facts["kinds"] >> NUMBERS["FLOW"] & 1 else [])),
        give,
        trace.new_functions if isinstance(trace, Unread) else None,
    )
    if isinstance(trace, Unread):
        trace.damage = core.file_damage()
