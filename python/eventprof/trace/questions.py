"""Questions that a trace answers: about an instant, an interval, a function, the peak, what leaks.

Every answer is made of tables. Where events were lost that could change it, the table's name says
so, and the answer's own words do.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from .._optional import require
from .._words import did_you_mean, printable
from .table import Array, Table

if TYPE_CHECKING:
    from .trace import Trace

#: A function: its row in `functions`, its name (qualified, or with its module), or itself.
Function: TypeAlias = "int | str | Callable[..., Any]"
By: TypeAlias = Literal["function", "site", "stack"]

_ALL_DOMAINS = 31
_UNITS = {
    "bytes": "bytes", "allocated": "bytes", "freed": "bytes", "net": "bytes", "total": "ns",
    "self": "ns", "start": "ns", "open_for": "ns", "total_before": "ns", "total_after": "ns",
    "total_change": "ns", "self_before": "ns", "self_after": "ns", "self_change": "ns",
    "allocated_before": "bytes", "allocated_after": "bytes", "allocated_change": "bytes",
}  # fmt: skip


@dataclass(frozen=True, repr=False)
class Instant:
    """What was going on at one instant.

    Attributes
    ----------
    time : int
        The instant, in ns since the window's start.
    open : Table
        The open calls of every thread, outermost first: thread, depth, function, name, start,
        open_for (ns so far), caller_line.
    live : Table
        What was alive, by function, the most first: function, name, module, bytes, blocks.
    live_bytes, live_blocks : int
        The sums. Blocks older than the window are not in them.
    loss : str
        What is missing and may falsify the answer, in words; empty: nothing.
    """

    time: int
    open: Table
    live: Table
    live_bytes: int
    live_blocks: int
    loss: str = ""

    def __repr__(self) -> str:
        return (
            f"<at {self.time:,} ns: {len(self.open):,} calls open, {self.live_bytes:,} bytes in "
            f"{self.live_blocks:,} blocks alive{self.loss}>\n{self.open!r}\n{self.live!r}"
        )


@dataclass(frozen=True, repr=False)
class Interval:
    """What happened between two instants.

    Attributes
    ----------
    start, end : int
        The instants, in ns since the window's start; the end is not in it.
    events : Table
        The rows of `Trace.events` in it.
    calls : Table
        The rows of `Trace.calls` that were open at some time in it; their times are not cut.
    allocations : Table
        The rows of `Trace.allocations` that were made in it.
    functions : Table
        By function, the most self time first: function, name, module, calls (begun in it), self
        (ns in it), allocated (bytes in it), blocks.
    allocated, freed : int
        Bytes.
    loss : str
        What is missing and may falsify the answer, in words; empty: nothing.
    """

    start: int
    end: int
    events: Table
    calls: Table
    allocations: Table
    functions: Table
    allocated: int
    freed: int
    loss: str = ""

    def __repr__(self) -> str:
        return (
            f"<{self.start:,} to {self.end:,} ns: {len(self.events):,} events, "
            f"{self.allocated:,} bytes allocated, {self.freed:,} freed{self.loss}>\n"
            f"{self.functions!r}"
        )


@dataclass(frozen=True, repr=False)
class Within:
    """What happened while a function was open.

    Attributes
    ----------
    function : int
        Its row in `Trace.functions`.
    name : str
        Its qualified name.
    calls : Table
        Its rows of `Trace.calls`.
    below : Table
        By function, itself included, the most self time first: function, name, module, calls, self
        (ns while it was open), allocated (bytes), freed, blocks.
    total : int
        How long it was open, in ns; of recursive calls the outermost.
    loss : str
        What is missing and may falsify the answer, in words; empty: nothing.
    """

    function: int
    name: str
    calls: Table
    below: Table
    total: int
    loss: str = ""

    def __repr__(self) -> str:
        name = printable(self.name)
        head = f"during {name}: {len(self.calls):,} calls, {self.total:,} ns{self.loss}"
        return f"<{head}>\n{self.below!r}"


@dataclass(frozen=True, repr=False)
class Peak:
    """The first instant at which the most bytes were alive.

    Attributes
    ----------
    time : int or None
        In ns since the window's start; None: nothing was ever alive.
    bytes, blocks : int
        What was alive then, of what was allocated in the window.
    by_function, by_site, by_stack : Table
        Whose it was, the most first.
    loss : str
        What is missing and may falsify the answer, in words; empty: nothing.
    """

    time: int | None
    bytes: int
    blocks: int
    by_function: Table
    by_site: Table
    by_stack: Table
    loss: str = ""

    def __repr__(self) -> str:
        if self.time is None:
            return f"<no peak: nothing was allocated{self.loss}>"
        return (
            f"<peak at {self.time:,} ns: {self.bytes:,} bytes in {self.blocks:,} blocks"
            f"{self.loss}>\n"
            f"{self.by_site!r}"
        )


def _table(trace: Trace, name: str, columns: dict[str, Any]) -> Table:
    """Make an answer; with loss, its name carries that word."""
    return Table.from_columns(trace._title(name), columns, units=_UNITS)


def _check_by(by: object) -> None:
    if not isinstance(by, str):
        raise TypeError(f"by must be 'site', 'function' or 'stack', not {by!r}")


def _masked(values: Array, unknown: Array) -> Array:
    return np.ma.MaskedArray(values, mask=unknown)


def _rows(values: Array) -> Array:
    """Mark -1 as unknown."""
    return _masked(values, values < 0)


def _texts(trace: Trace, column: str, functions: Array) -> list[str | None]:
    words = trace.functions[column]
    return [None if row < 0 else words[row] for row in functions.tolist()]


def _by_function(trace: Trace, functions: Array) -> dict[str, Any]:
    return {
        "function": _rows(functions),
        "name": _texts(trace, "name", functions),
        "module": _texts(trace, "module", functions),
    }


def _sum_by(keys: Array, weights: Array, count: int) -> Array:
    """Sum int64 weights by key; key -1 is dropped. Exact, unlike bincount's floats."""
    sums = np.zeros(count, dtype=np.int64)
    known = keys >= 0
    np.add.at(sums, keys[known], weights[known])
    return sums


def find_function(trace: Trace, function: Function) -> int:
    """Give the row of a function.

    Raises
    ------
    ValueError
        No function, or several, are meant; says which there are.
    """
    table = trace.functions
    if isinstance(function, (int, np.integer)) and not isinstance(function, bool):
        if 0 <= function < len(table):
            return int(function)
        raise ValueError(f"function: {function} is no row of functions; it has {len(table)}")
    names, modules = table["name"], table["module"]
    if isinstance(function, str):
        rows = [
            row
            for row, (name, module) in enumerate(zip(names, modules, strict=True))
            if function in (name, f"{module}.{name}")
        ]
        what = repr(function)
    else:
        code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
        what = getattr(function, "__qualname__", repr(function))
        if code is not None:
            key = (code.co_qualname, code.co_filename, code.co_firstlineno)
            places = zip(names, table["file"], np.ma.filled(table["line"], -1), strict=True)
        else:
            key = (getattr(function, "__qualname__", None), None, -1)
            places = zip(names, [None] * len(table), [-1] * len(table), strict=True)
        rows = [row for row, place in enumerate(places) if place == key]
    if len(rows) == 1:
        return rows[0]
    if not rows:
        hint = did_you_mean(what.strip("'"), [name for name in names if name is not None])
        raise ValueError(f"function: {what} does not occur in this trace{hint}")
    found = ", ".join(f"{row}: {modules[row]}.{names[row]}" for row in rows[:8])
    raise ValueError(f"function: {what} may mean several; give its row or its module ({found})")


class Questions:
    """The questions, as methods of a trace."""

    def _checked_time(self: Trace, name: str, time: int) -> int:  # type: ignore[misc]
        if isinstance(time, bool) or not isinstance(time, (int, np.integer)):
            raise TypeError(f"{name}: ns since the window's start, an int, not {time!r}")
        if not 0 <= time <= self.duration:
            raise ValueError(
                f"{name}: {time} ns is outside of the trace, which goes from 0 to {self.duration}"
            )
        return int(time)

    def _groups(  # type: ignore[misc]
        self: Trace, title: str, groups: tuple[Array, Array, Array], by: By
    ) -> Table:
        keys, sizes, blocks = groups
        columns: dict[str, Any]
        if by == "function":
            columns = _by_function(self, keys)
        elif by == "site":
            functions, _, lines = self._core.sites()
            rows = np.where(keys > 0, functions[keys], -1).astype(np.int32)
            line = np.where(keys > 0, lines[keys], -1).astype(np.int32)
            # Several instructions of one line are one line to people.
            (rows, line), group = np.unique(np.stack([rows, line]), axis=1, return_inverse=True)
            group = group.reshape(-1)
            sizes, blocks = (_sum_by(group, values, len(rows)) for values in (sizes, blocks))
            order = np.argsort(-sizes, kind="stable")
            rows, line, sizes, blocks = rows[order], line[order], sizes[order], blocks[order]
            columns = {
                **_by_function(self, rows),
                "file": _texts(self, "file", rows),
                "line": _rows(line),
            }
        else:
            columns = {"stack": [self._stack_text(int(key)) for key in keys]}
        columns |= {"bytes": sizes, "blocks": blocks}
        return _table(self, title, columns)

    def _stack_text(self: Trace, stack: int) -> str | None:  # type: ignore[misc]
        """Give the calls of a stack, outermost first, as ``a;b;c``."""
        parents, sites, _ = self._core.stacks()
        functions, _, _ = self._core.sites()
        names = self.functions["name"]
        parts = []
        while stack >= 0:
            row = functions[sites[stack]]
            parts.append(names[row] if row >= 0 and names[row] is not None else "?")
            stack = parents[stack]
        return ";".join(reversed(parts)) if parts else None

    def at(self: Trace, time: int) -> Instant:  # type: ignore[misc]
        """Say what was going on at an instant.

        Parameters
        ----------
        time : int
            In ns since the window's start.

        Returns
        -------
        Instant
            The open calls of each thread, and live memory by function.

        Raises
        ------
        TypeError, ValueError
            The time is no whole number, or lies outside of the trace.
        """
        time = self._checked_time("time", time)
        core = self._core
        start, duration = core.calls("start"), core.calls("duration")
        rows = np.flatnonzero((start <= time) & (time < start + duration))
        thread, depth = core.calls("thread")[rows], core.calls("depth")[rows]
        order = np.lexsort((depth, thread))
        rows, thread, depth = rows[order], thread[order], depth[order]
        function = core.calls("function")[rows]
        opened = _table(
            self,
            "open calls",
            {
                "thread": thread,
                "depth": depth,
                **_by_function(self, function),
                "start": start[rows],
                "open_for": time - start[rows],
                "caller_line": _rows(core.calls("caller_line")[rows]),
            },
        )
        groups = core.alive(core.moment(time), "function")
        live = self._groups("live memory", groups, "function")
        return Instant(
            time, opened, live, int(groups[1].sum()), int(groups[2].sum()), self._title("")
        )

    def between(self: Trace, start: int, end: int) -> Interval:  # type: ignore[misc]
        """Say what happened between two instants.

        Parameters
        ----------
        start, end : int
            In ns since the window's start; the end is not in it.

        Returns
        -------
        Interval
            Events, calls, allocations and sums by function.

        Raises
        ------
        TypeError, ValueError
            An instant is no whole number or lies outside of the trace, or the end before the start.
        """
        start, end = self._checked_time("start", start), self._checked_time("end", end)
        if end < start:
            raise ValueError(f"end: {end} ns is before the start, {start} ns")
        core = self._core
        first, last = np.searchsorted(core.events("time"), (start, end))
        began, duration = core.calls("start"), core.calls("duration")
        calls = np.flatnonzero((began < end) & (began + duration > start))
        born = core.allocations("start")
        blocks = np.flatnonzero((born >= start) & (born < end))
        died = core.allocations("end")
        dead = (died >= start) & (died < end) & (died >= 0)
        sizes = core.allocations("size")
        return Interval(
            start,
            end,
            self.events[first:last],
            self.calls[calls],
            self.allocations[blocks],
            self._function_sums(calls, blocks, start, end),
            int(sizes[blocks].sum()),
            int(sizes[dead].sum()),
            self._title(""),
        )

    def _function_sums(  # type: ignore[misc]
        self: Trace, calls: Array, blocks: Array, start: int, end: int
    ) -> Table:
        """Sum by function what calls did between two instants, and what blocks were made."""
        core = self._core
        began, duration = core.calls("start")[calls], core.calls("duration")[calls]
        inside = np.minimum(began + duration, end) - np.maximum(began, start)
        of_call = np.zeros(len(core.calls("start")), dtype=np.int64)
        of_call[calls] = inside
        parent = core.calls("parent")[calls]
        np.subtract.at(of_call, parent[parent >= 0], inside[parent >= 0])
        function = core.calls("function")[calls]
        count = len(self.functions)
        self_time = _sum_by(function, of_call[calls], count)
        ones = ((began >= start) & (began < end)).astype(np.int64)
        begun = _sum_by(function, ones, count)
        owner = self._block_functions()[blocks]
        allocated = _sum_by(owner, core.allocations("size")[blocks], count)
        made = _sum_by(owner, np.ones(len(blocks), dtype=np.int64), count)
        rows = np.flatnonzero((self_time != 0) | (begun != 0) | (made != 0))
        rows = rows[np.argsort(-self_time[rows], kind="stable")].astype(np.int32)
        return _table(
            self,
            "functions",
            {
                **_by_function(self, rows),
                "calls": begun[rows],
                "self": self_time[rows],
                "allocated": allocated[rows],
                "blocks": made[rows],
            },
        )

    def _block_functions(self: Trace) -> Array:  # type: ignore[misc]
        """Give the function that each block counts for: its call's, or without one its site's."""
        core = self._core
        call = core.allocations("call")
        by_call = core.calls("function")
        if len(by_call) == 0:
            return core.allocations("function")
        return np.where(call >= 0, by_call[call], core.allocations("function"))

    def during(self: Trace, function: Function) -> Within:  # type: ignore[misc]
        """Say what happened while a function was open.

        Parameters
        ----------
        function : int, str or callable
            Its row in `functions`, its qualified name (with or without its module), or itself.

        Returns
        -------
        Within
            Its calls, and sums by function of all that they called, itself included.

        Raises
        ------
        ValueError
            No function of the trace, or several, are meant.
        """
        row = find_function(self, function)
        core = self._core
        functions, parent, depth = (core.calls(c) for c in ("function", "parent", "depth"))
        mine = functions == row
        below = mine.copy()
        outermost = mine.copy()
        # Level by level: a call lies below if its parent does. Linear: each call is looked at once.
        order = np.argsort(depth, kind="stable")
        bounds = np.searchsorted(depth[order], np.arange(depth.max(initial=0) + 2))
        for first, last in itertools.pairwise(bounds[1:]):
            level = order[first:last]
            inside = below[parent[level]]
            outermost[level] &= ~inside
            below[level] |= inside
        duration = core.calls("duration")
        calls = np.flatnonzero(below)
        count = len(self.functions)
        own = functions[calls]
        self_time = _sum_by(own, core.calls("self_time")[calls], count)
        times = _sum_by(own, np.ones(len(calls), dtype=np.int64), count)
        allocated, freed, blocks = (
            _sum_by(own, column[calls].astype(np.int64), count)
            for column in core.call_memory(False)
        )
        rows = np.flatnonzero(times)
        rows = rows[np.argsort(-self_time[rows], kind="stable")].astype(np.int32)
        name = self.functions["name"][row]
        table = _table(
            self,
            f"during {name}",
            {
                **_by_function(self, rows),
                "calls": times[rows],
                "self": self_time[rows],
                "allocated": allocated[rows],
                "freed": freed[rows],
                "blocks": blocks[rows],
            },
        )
        total = int(duration[outermost].sum())
        return Within(row, name or "", self.calls[mine], table, total, self._title(""))

    def peak(self: Trace) -> Peak:  # type: ignore[misc]
        """Say when the most memory was alive, and whose it was.

        Returns
        -------
        Peak
            Of what was allocated in the window, in all recorded domains.
        """
        time, live, blocks, moment = self._core.peak(_ALL_DOMAINS)
        tables = {
            by: self._groups(f"alive at the peak, by {by}", self._core.alive(moment, by), by)
            for by in ("function", "site", "stack")
        }
        return Peak(
            time if time >= 0 else None, live, blocks, tables["function"], tables["site"],
            tables["stack"], self._title(""),
        )  # fmt: skip

    def leaks(self: Trace, by: By = "site") -> Table:  # type: ignore[misc]
        """Say what was allocated in the window and still alive at its end.

        Parameters
        ----------
        by : {'site', 'function', 'stack'}
            The line that allocated it; the function; the open calls.

        Returns
        -------
        Table
            The most bytes first: function, name, module, and by site file and line, or by stack the
            stack as ``outermost;...;innermost``; bytes, blocks.

        Raises
        ------
        TypeError, ValueError
            `by` is none of these.
        """
        _check_by(by)
        return self._groups(f"alive at the end, by {by}", self._core.alive(-1, by), by)

    def temporary(self: Trace, by: By = "site") -> Table:  # type: ignore[misc]
        """Say what lived briefly: freed in the call that made it, or before the next allocation.

        Parameters
        ----------
        by : {'site', 'function', 'stack'}
            As in `leaks`.

        Returns
        -------
        Table
            As `leaks`.

        Raises
        ------
        TypeError, ValueError
            `by` is none of these.
        """
        _check_by(by)
        return self._groups(f"temporary, by {by}", self._core.temporary(by), by)

    def callers(self: Trace, function: Function) -> Table:  # type: ignore[misc]
        """Say who called a function.

        Parameters
        ----------
        function : int, str or callable
            As in `during`.

        Returns
        -------
        Table
            By caller and line, the most time first: function, name, module, line (of the call),
            calls, total (ns in these calls), self. A caller that is not known is null.

        Raises
        ------
        ValueError
            No function of the trace, or several, are meant.
        """
        row = find_function(self, function)
        core = self._core
        calls = np.flatnonzero(core.calls("function") == row)
        keys = np.stack([core.calls("caller")[calls], core.calls("caller_line")[calls]])
        name = self.functions["name"][row]
        return self._edges(f"callers of {name}", calls, keys)

    def callees(self: Trace, function: Function) -> Table:  # type: ignore[misc]
        """Say what a function called.

        Parameters
        ----------
        function : int, str or callable
            As in `during`.

        Returns
        -------
        Table
            By callee and line, the most time first: function, name, module, line (of the call),
            calls, total (ns in these calls), self.

        Raises
        ------
        ValueError
            No function of the trace, or several, are meant.
        """
        row = find_function(self, function)
        core = self._core
        calls = np.flatnonzero(core.calls("caller") == row)
        keys = np.stack([core.calls("function")[calls], core.calls("caller_line")[calls]])
        name = self.functions["name"][row]
        return self._edges(f"callees of {name}", calls, keys)

    def _edges(self: Trace, title: str, calls: Array, keys: Array) -> Table:  # type: ignore[misc]
        found, group = np.unique(keys, axis=1, return_inverse=True)
        group = group.reshape(-1)
        count = found.shape[1]
        times = np.bincount(group, minlength=count)
        total = _sum_by(group, self._core.calls("duration")[calls], count)
        own = _sum_by(group, self._core.calls("self_time")[calls], count)
        order = np.argsort(-total, kind="stable")
        return _table(
            self,
            title,
            {
                **_by_function(self, found[0][order]),
                "line": _rows(found[1][order]),
                "calls": times[order],
                "total": total[order],
                "self": own[order],
            },
        )

    def diff(self: Trace, other: Trace) -> Table:  # type: ignore[misc]
        """Compare with another run of the same program.

        Parameters
        ----------
        other : Trace
            The later run.

        Returns
        -------
        Table
            By function (name, module and file: lines move), the largest change of self time first:
            name, module, file, status (both, new, gone), and of calls, total, self, allocated the
            values before (this trace) and after (the other) and the change. Null where there is
            no value.

        Raises
        ------
        ValueError
            The traces have different clocks: their times do not compare.
        """
        if not isinstance(other, Questions):
            raise TypeError(f"diff() takes another trace, not {other!r}")
        clocks = self.metadata.get("clock"), other.metadata.get("clock")
        if clocks[0] != clocks[1]:
            raise ValueError(
                f"other: its clock is {clocks[1]!r}, this trace's is {clocks[0]!r}; record both "
                "with the same clock="
            )
        before, after = _keyed_functions(self), _keyed_functions(other)
        keys = list(dict.fromkeys([*before, *after]))
        columns: dict[str, Any] = {
            "name": [key[0] for key in keys],
            "module": [key[1] for key in keys],
            "file": [key[2] for key in keys],
            "status": [
                "both" if k in before and k in after else "gone" if k in before else "new"
                for k in keys
            ],
        }
        for at, what in enumerate(_DIFFED):
            pair = []
            for side, values in (("before", before), ("after", after)):
                known = np.array([key in values for key in keys], dtype=bool)
                column = np.array([values[k][at] if k in values else 0 for k in keys], np.int64)
                columns[f"{what}_{side}"] = _masked(column, ~known)
                pair.append(column)
            columns[f"{what}_change"] = pair[1] - pair[0]
        table = _table(self if self.loss else other, "difference", columns)
        return table[np.argsort(-np.abs(columns["self_change"]), kind="stable")]

    def sql(self: Trace, query: str) -> Any:  # type: ignore[misc]
        """Ask in SQL.

        Parameters
        ----------
        query : str
            The tables are events, calls, allocations, functions, lines, memory, resident, threads,
            tree, own, gil,
            marks, spans, counters, flows, gc, audit, objects and runtime; their column ``row`` is
            what columns such as ``function``, ``parent`` and ``call`` refer to. Those that the
            query does not name are not computed.

        Returns
        -------
        duckdb.DuckDBPyRelation
            ``.df()``, ``.pl()``, ``.arrow()``, ``.fetchall()`` give the rows.

        Raises
        ------
        ModuleNotFoundError
            DuckDB is not installed.
        """
        duckdb = require("duckdb", "duckdb", "sql()")
        connection = duckdb.connect()
        words = set(re.findall(r"\w+", query.lower()))
        for name in _SQL_TABLES:
            if name in words:
                connection.register(name, getattr(self, name)._numbered())
        return connection.sql(query)


_SQL_TABLES = (
    "events", "calls", "allocations", "functions", "lines", "memory", "resident", "threads",
    "tree", "own", "gil",
    "marks", "spans", "counters", "flows", "gc", "audit", "objects", "runtime",
)  # fmt: skip
_DIFFED = ("calls", "total", "self", "allocated")


def _keyed_functions(trace: Trace) -> dict[tuple[Any, Any, Any], list[int]]:
    """Give calls, total, self and allocated by what stays the same from run to run."""
    table = trace.functions
    result: dict[tuple[Any, Any, Any], list[int]] = {}
    numbers = [np.ma.filled(table[what], 0).tolist() for what in _DIFFED]
    keys = zip(table["name"], table["module"], table["file"], strict=True)
    for key, *values in zip(keys, *numbers, strict=True):
        so_far = result.setdefault(key, [0] * len(_DIFFED))
        for at, value in enumerate(values):
            so_far[at] += value
    return result
