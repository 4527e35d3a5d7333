"""The part of a trace that is exported: the chosen calls, their times, bytes and names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import _core
from .._words import printable
from ..answers.functions import matching, no_match
from ..answers.own import find_own
from ..tables import event_rows
from ..tables.batches import TablesOfRows, in_batches, joined, read_events
from ..tables.loss import loss_of_others
from ..tables.processes import is_thread, process_of_threads
from ..tables.waits import rows_of_waits

if TYPE_CHECKING:
    from ..tables.column import Array
    from ..tables.table import Table
    from ..trace import Trace

#: Rows that are written at a time. The memory that an export needs is a multiple of it.
AT_A_TIME = 1 << 16

_NO_MODULES = (None, "builtins")
_BLOCK_BITS = sum(
    1 << row[0] for row in _core.kind_table() if row[7] == "block" and row[6] != "neither"
)


def utf8(text: str) -> bytes:
    """Encode a name; surrogates, which UTF-8 cannot hold, become backslash escapes."""
    return text.encode("utf-8", "backslashreplace")


def json_text(text: str) -> str:
    """Return a JSON string. What is not printable is escaped.

    Other letters are not: trace_processor before version 55 does not read escapes in names. Where
    a text ends with a backslash, it takes the quote after it for a part of the text.
    """
    text = utf8(text).decode()
    found = json.dumps(text, ensure_ascii=not text.isprintable())
    return found if text[-1:] != "\\" else f'{found[:-3]}\\u005c"'


def parts_of_rows(count: int) -> Iterator[slice]:
    """Yield slices of all rows, `AT_A_TIME`."""
    return event_rows.parts_of_rows(count, AT_A_TIME)


def full_name(name: str | None, module: str | None) -> str:
    """Return a function's name with its module, as the report shows it."""
    known = name or "(no name)"
    if module in _NO_MODULES or (module == "__main__" and known != "<module>"):
        return known
    return f"{module}.{known}"


class Texts:
    """Distinct texts as bytes, as the extension's render_rows() wants them."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        self.offsets = np.zeros(len(texts) + 1, np.int64)
        np.cumsum([len(text) for text in texts], out=self.offsets[1:])
        self.bytes = b"".join(texts)

    def part(self, codes: Array) -> tuple[str, Any, Any, bytes]:
        """Return the part of a row that is one of the texts. The code -1 writes nothing."""
        return "text", np.ascontiguousarray(codes, np.int32), self.offsets, self.bytes


def number(values: Array) -> tuple[str, Any]:
    """Return the part of a row that is a whole number."""
    return "int", np.ascontiguousarray(values, np.int64)


def microseconds(values: Array) -> tuple[str, Any]:
    """Return the part of a row that is a time: ns as microseconds with three decimals."""
    return "us", np.ascontiguousarray(values, np.int64)


class Steps:
    """Begins (row) and ends (~row) of the calls of a thread, properly nested.

    They are made when they are written: all of them take as much memory as two columns of calls.

    Parameters
    ----------
    parent : array of int32
        The call around each call; -1: none.
    rows : array of int32 or None
        The thread's calls; None: all calls.
    count : int
        The number of the thread's calls.
    """

    def __init__(self, parent: Array, rows: Array | None, count: int) -> None:
        self._parent = parent
        self._rows = rows
        self._count = count

    def __len__(self) -> int:
        return 2 * self._count

    def parts(self) -> Iterator[Array]:
        """Yield the steps as arrays of int32."""
        begin, top = 0, -1
        while True:
            steps, begin, top = _core.nest_calls(self._parent, self._rows, begin, top, AT_A_TIME)
            if not steps:
                return
            yield np.frombuffer(steps, np.int32)
            _core.give_back()


class _Choice(NamedTuple):
    """The calls that filters chose.

    Attributes
    ----------
    rows : array of int
        Of `Trace.calls`.
    near : array of int32
        Of each call of the trace the nearest chosen one: itself or around it; -1: none.
    parent, start, duration : array
        Of each chosen call.
    """

    rows: Array
    near: Array
    parent: Array
    start: Array
    duration: Array


class View:
    """The chosen calls of a trace and the data that belongs to them.

    Parameters
    ----------
    trace : Trace
        The trace.
    threads : sequence of str, optional
        Names, globs or native ids of threads. None: all threads.
    between : (int, int), optional
        Begin and end in ns. Calls are cut off there.
    functions : sequence of str, optional
        Globs like those of include=. Calls of these functions and the calls inside are chosen.
    own : bool
        Leave out the standard library and installed packages. Their time and memory count for the
        function that called them.
    progress : callable, optional
        Called with the rows that are done and the number of all rows.

    Attributes
    ----------
    chosen : bool
        Whether there is a filter.
    """

    def __init__(
        self,
        trace: Trace,
        *,
        threads: Sequence[str] | None = None,
        between: tuple[int, int] | None = None,
        functions: Sequence[str] | None = None,
        own: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.trace = trace
        self.between = between
        self.progress = progress
        self._threads = threads
        self._globs = functions
        self._own = own
        self._told = 0
        self._known_rows: dict[str, Array] = {}
        self.chosen = bool(threads or between or functions or own)

    @cached_property
    def _choice(self) -> _Choice:
        """Find the chosen rows and cut their times; all arrays lie where the trace's columns do."""
        load = self.trace._core.calls
        parent: Array = np.ascontiguousarray(load("parent"), np.int32)
        keep = self._keep(parent)
        near = _core.number_marked_calls(parent, keep)
        rows = _numbers_of(keep)
        start = _picked(load("start"), rows)
        duration = _picked(load("duration"), rows)
        above = _core.new_column(len(rows), "int32")
        for part in parts_of_rows(len(rows)):
            around = parent[rows[part]]
            above[part] = np.where(around < 0, -1, near[np.maximum(around, 0)])
            if self.between is not None:
                end = np.minimum(start[part] + duration[part], self.between[1])
                start[part] = np.maximum(start[part], self.between[0])
                duration[part] = end - start[part]
        return _Choice(rows, near, above, start, duration)

    @property
    def rows(self) -> Array | None:
        """The chosen rows of `Trace.calls`; None: all."""
        return self._choice.rows if self.chosen else None

    # Without filters these are the trace's own columns and need no memory. They are made when first
    # used: formats that only need the tree do not use them.

    @cached_property
    def start(self) -> Array:
        """When each call began, in ns."""
        if self.chosen:
            return self._choice.start
        return np.ascontiguousarray(self.trace._core.calls("start"))

    @cached_property
    def duration(self) -> Array:
        """How long each call took, in ns."""
        if self.chosen:
            return self._choice.duration
        return np.ascontiguousarray(self.trace._core.calls("duration"))

    @cached_property
    def parent(self) -> Array:
        """The chosen call around each call; -1: none."""
        if self.chosen:
            return self._choice.parent
        return np.ascontiguousarray(self.trace._core.calls("parent"), np.int32)

    @cached_property
    def thread(self) -> Array:
        """The thread of each call, a row of `Trace.threads`."""
        return np.ascontiguousarray(self.take("thread"), np.int32)

    @cached_property
    def function(self) -> Array:
        """The function of each call, a row of `Trace.functions`; -1: unknown."""
        return np.ascontiguousarray(self.take("function"), np.int32)

    def __len__(self) -> int:
        return len(self.start)

    def take(self, column: str) -> Array:
        """Return a column of the chosen calls."""
        values: Array = self.trace._core.calls(column)
        return values if self.rows is None else _picked(values, self.rows)

    @property
    def line(self) -> Array:
        """The line of each call; -1: unknown."""
        return self.take("caller_line")

    @cached_property
    def sites(self) -> tuple[Array, list[tuple[int, int]]]:
        """The call site of each call, a number from 1 (0: unknown); function and line by site."""
        code, distinct = intern([self.take("caller"), self.line], overwrite=True)
        places = list(zip(*(column.tolist() for column in distinct), strict=True))
        # The number 0 is for unknown sites. The other sites keep their order.
        numbers = np.zeros(len(places), np.int32)
        chosen = [begin for begin, place in enumerate(places) if min(place) >= 0]
        numbers[chosen] = np.arange(1, len(chosen) + 1)
        for begin in range(0, len(code), AT_A_TIME):
            code[begin : begin + AT_A_TIME] = numbers[code[begin : begin + AT_A_TIME]]
            _core.give_back()
        return code, [places[begin] for begin in chosen]

    def blocks(self) -> Iterator[slice]:
        """Yield slices of the rows, and report the progress."""
        for rows in parts_of_rows(len(self)):
            if self.progress is not None:
                self.progress(rows.start, len(self))
            yield rows

    # ---- Filters ---------------------------------------------------------------------------------

    def _keep(self, parent: Array) -> Array:
        """Return a byte for each call of the trace: 1 if it is chosen."""
        load = self.trace._core.calls
        of_thread = self.thread_mask if self._threads else None
        wanted = self._inside_wanted(parent, load("function")) if self._globs else None
        own = self._own_functions if self._own else None
        start, duration, function, thread = map(load, ("start", "duration", "function", "thread"))
        keep = _core.new_column(len(parent), "uint8")
        for part in parts_of_rows(len(parent)):
            chosen = np.ones(part.stop - part.start, bool)
            if wanted is not None:
                chosen &= wanted[part].astype(bool)
            if of_thread is not None:
                chosen &= of_thread[thread[part]]
            if self.between is not None:
                low, high = self.between
                begin = start[part]
                chosen &= (begin < high) & ((begin + duration[part] > low) | (begin >= low))
            if own is not None:
                chosen &= own[function[part]]
            keep[part] = chosen
        return keep

    def _inside_wanted(self, parent: Array, function: Array) -> Array:
        """Return a byte for each call: 1 if a wanted function is called, or was around it."""
        assert self._globs is not None
        wanted = np.append(_matching(self.trace, self._globs), False)
        marks = _core.new_column(len(parent), "uint8")
        for part in parts_of_rows(len(parent)):
            marks[part] = wanted[function[part]]
        _core.mark_inner_calls(parent, marks)
        return marks

    def keep_nodes(self, function: Array, parent: Array, thread: Array) -> Array:
        """Return a mask of the nodes of a tree that are chosen, as calls are; not by time.

        Parameters
        ----------
        function, parent, thread : array of int
            Of each node, as of calls. Parents come before their children.
        """
        keep = self.thread_mask[thread] if self._threads else np.ones(len(function), bool)
        if self._globs:
            keep = keep & self._inside_wanted(parent, function).astype(bool)
        if self._own:
            keep = keep & self._own_functions[function]
        return keep

    @cached_property
    def _own_functions(self) -> Array:
        found: Array = find_own(self.trace._core.functions(), self.trace._own_patterns)
        return found

    @cached_property
    def thread_mask(self) -> Array:
        """A mask of the chosen rows of `Trace.threads`.

        Raises
        ------
        ValueError
            No thread matches.
        """
        table = self.trace.threads
        if not self._threads:
            return np.ones(len(table), bool)
        found = [
            any(is_thread(wanted, name, native_id) for wanted in self._threads)
            for name, native_id in zip(table["name"], table["native_id"].tolist(), strict=True)
        ]
        if not any(found):
            names = ", ".join(f"{t.name or '(no name)'} ({t.native_id})" for t in table)
            raise ValueError(f"thread: there is no such thread; there are {names}")
        return np.array(found, bool)

    def times(self, times: Array) -> Array:
        """Return a mask of the times inside the chosen interval."""
        if self.between is None:
            return np.ones(len(times), bool)
        return (times >= self.between[0]) & (times < self.between[1])

    # ---- Bytes -----------------------------------------------------------------------------------

    @cached_property
    def has_memory(self) -> bool:
        """Whether allocations were recorded."""
        kinds = self.trace._facts["kinds"]
        return bool(kinds & _BLOCK_BITS)

    @cached_property
    def memory(self) -> tuple[Array, Array, Array]:
        """Bytes allocated, bytes freed, blocks allocated by each call without inner calls."""
        if self.between is None:
            load = self.trace._core.calls
            names = ("allocated_self", "freed_self", "blocks_self")
            if not self.chosen:
                return load(names[0]), load(names[1]), load(names[2])
            return tuple(self._sum(load(name)) for name in names)  # type: ignore[return-value]
        size = self._of_blocks("size")
        one = self._of_blocks("size", lambda size: np.ones(len(size), np.int64))
        born = self._of_blocks("start", self.times)
        died = self._of_blocks("end", self.times)
        return (
            self.by_call("allocations", "call", size, born),
            self.by_call("allocations", "freed_in", size, died),
            self.by_call("allocations", "call", one, born),
        )

    def _of_blocks(
        self, column: str, change: Callable[[Array], Array] = lambda size: np.maximum(size, 0)
    ) -> Callable[[slice], Array]:
        """Return what gives a figure of some blocks, made of a column of `Trace.allocations`."""
        values = self.trace._core.allocations(column)
        return lambda rows: change(values[rows])

    def by_call(
        self,
        table: str,
        column: str,
        weights: Callable[[slice], Array],
        counts: Callable[[slice], Array] | None = None,
    ) -> Array:
        """Sum int64 weights of rows of a table by chosen call.

        Parameters
        ----------
        table : {'calls', 'allocations'}
            The table.
        column : str
            Its column with rows of `Trace.calls`; empty: its rows are these. -1 is left out.
        weights, counts : callable
            Give of some rows the weights, and which of them count; without, all.
        """
        load = getattr(self.trace._core, table)
        calls = load(column) if column else None
        length = len(load("parent" if table == "calls" else "previous"))
        sums = _core.new_column(len(self), "int64")
        for part in parts_of_rows(len(self)):
            sums[part] = 0
        for rows in parts_of_rows(length):
            call = np.arange(rows.start, rows.stop) if calls is None else calls[rows]
            known = call >= 0 if counts is None else (call >= 0) & counts(rows)
            call, weight = call[known], weights(rows)[known]
            if self.chosen:
                call = self._choice.near[call]
                known = call >= 0
                call, weight = call[known], weight[known]
            np.add.at(sums, call, weight)
        return sums

    def _sum(self, per_call: Array) -> Array:
        return self.by_call("calls", "", lambda rows: per_call[rows].astype(np.int64))

    @cached_property
    def living(self) -> tuple[Array, Array]:
        """Bytes allocated by each call without its inner calls: alive at the end; at the peak."""
        size = self._of_blocks("size")
        lives = self._of_blocks("end", lambda end: end < 0)
        born = self._of_blocks("start", self.times)
        return (
            self.by_call("allocations", "call", size, lambda rows: lives(rows) & born(rows)),
            self.by_call(
                "allocations", "call", size, lambda rows: self._at_peak(rows) & born(rows)
            ),
        )

    def _at_peak(self, rows: slice) -> Array:
        """Return a mask of some blocks: those that were alive at the peak."""
        load = self.trace._core.allocations
        mask: Array = (load("birth")[rows] < self._peak_moment) & (
            load("death")[rows] >= self._peak_moment
        )
        return mask

    @cached_property
    def _peak_moment(self) -> int:
        return int(self.trace._core.peak(31)[3])

    # ---- Names -----------------------------------------------------------------------------------

    @cached_property
    def names(self) -> list[str]:
        """The full name of each function. The last one is for an unknown function."""
        table = self.trace.functions
        return [
            *(full_name(*both) for both in zip(table["name"], table["module"], strict=True)),
            "(unknown)",
        ]

    @cached_property
    def files(self) -> list[str | None]:
        """The file of each function. The last one is None, for an unknown function."""
        return [*self.trace.functions["file"], None]

    @cached_property
    def first_lines(self) -> list[int | None]:
        """The first line of each function. The last one is None, for an unknown function."""
        return [*self.trace.functions._column("line").items(), None]

    @cached_property
    def thread_names(self) -> list[str]:
        """A name for each thread. Threads without a name get one from their id."""
        table = self.trace.threads
        return [
            name or (f"thread {native_id}" if native_id else "(unknown thread)")
            for name, native_id in zip(
                table["name"], table._column("native_id").items(), strict=True
            )
        ]

    @cached_property
    def thread_ids(self) -> list[int]:
        """A different number for each thread; the system's id where it is known."""
        found: list[int] = []
        used = set()
        for row, given in enumerate(self.trace.threads._column("native_id").items()):
            number = given or 1
            while number in used:
                number = row + 1 if number != row + 1 else number + (1 << 22)
            used.add(number)
            found.append(number)
        return found

    @cached_property
    def process(self) -> int:
        """The process id; 1 if it is not known."""
        return int(self.trace.metadata.get("pid") or 1)

    @cached_property
    def processes(self) -> list[tuple[int, str]]:
        """The id of each process, and what it is called, or its command.

        The ids differ, also if two hosts gave out one.
        """
        rows = self.trace._recorder_metadata.get("processes") or ()
        if len(rows) < 2:
            return [(self.process, self.title)]
        found: dict[int, str] = {}
        for row in rows:
            number = int(row["pid"] or 0) or 2
            while number in found:
                number += 1 << 22
            command = " ".join(map(str, row["command"])) or "python"
            found[number] = printable(row.get("worker") or command)
        return list(found.items())

    def pid_of(self, thread: int | None) -> int:
        """Return the process id of a thread; None, or a thread that is none: that of the trace."""
        if thread is None or thread < 0:
            return self.whole_process
        return self.pids[thread]

    @cached_property
    def whole_process(self) -> int:
        """The process id of what is of all processes: of several, an id that none of them has."""
        if len(self.processes) == 1:
            return self.process
        used = {pid for pid, _ in self.processes}
        return next(pid for pid in range(1, len(used) + 2) if pid not in used)

    @cached_property
    def pids(self) -> list[int]:
        """The process id of each thread."""
        processes = self.processes
        if len(processes) == 1:
            return [self.process] * len(self.trace._thread_rows)
        return [processes[row][0] for row in process_of_threads(self.trace).tolist()]

    @cached_property
    def title(self) -> str:
        """The program's command, in one line."""
        arguments = self.trace.metadata.get("argv") or ()
        return printable(" ".join(map(str, arguments)) or "python")

    @property
    def loss(self) -> str | None:
        """A description of lost events; None: no event was lost."""
        own = [repr(self.trace.loss)[1:-1]] if self.trace.loss else []
        return ", ".join([*own, *loss_of_others(self.trace)]) or None

    # ---- Order -----------------------------------------------------------------------------------

    @cached_property
    def steps(self) -> list[Steps]:
        """Begins and ends of the calls of each thread."""
        threads = len(self.trace.threads)
        if threads == 1:
            return [Steps(self.parent, None, len(self))]
        rows, first = _core.calls_by_thread(self.thread, threads)
        rows_of = np.frombuffer(rows, np.int32)
        bounds = np.frombuffer(first, np.int64).tolist()
        return [Steps(self.parent, rows_of[a:b], b - a) for a, b in pairwise(bounds)]

    def tell(self, steps: int) -> None:
        """Report the progress, before so many begins and ends are written."""
        if self.progress is not None:
            self.progress(self._told, 2 * len(self))
            self._told += steps

    def parts_of(self, steps: Steps, *, tell: bool = False) -> Iterator[tuple[Array, Array]]:
        """Yield parts of the steps of a thread with their times. Times never decrease.

        Parameters
        ----------
        steps : Steps
            One of `steps`.
        tell : bool
            Report the progress over all threads.
        """
        last = 0
        for part in steps.parts():
            if tell:
                self.tell(len(part))
            ends = part < 0
            call = np.where(ends, ~part, part)
            times = self.start[call] + np.where(ends, self.duration[call], 0)
            times = np.maximum.accumulate(np.maximum(times, last))
            last = int(times[-1])
            yield part, times

    @property
    def depth(self) -> Array:
        """The number of chosen calls around each call."""
        if not self.chosen:
            return self.take("depth")
        return _core.depths_of_calls(self.parent)

    def own_times(self) -> Array:
        """Return the duration of each call without the chosen calls inside."""
        if not self.chosen:
            own: Array = self.trace._core.calls("self")
            return own
        return self._without_inner(self.duration)

    def _without_inner(self, inclusive: Array) -> Array:
        """Return a figure of each call without that of the chosen calls inside, 0 at least."""
        own = _core.new_column(len(self), "int64")
        for part in parts_of_rows(len(self)):
            own[part] = inclusive[part]
        for part in parts_of_rows(len(self)):
            parent = self.parent[part]
            inner = parent >= 0
            np.subtract.at(own, parent[inner], inclusive[part][inner].astype(np.int64))
        for part in parts_of_rows(len(self)):
            own[part] = np.maximum(own[part], 0)
        return own

    @cached_property
    def has_waited(self) -> bool:
        """Whether waits are known: by their events, or as another thread could have the lock."""
        return self.trace._has_waits or (self.trace.has_lock and len(self.trace._thread_rows) > 1)

    def own_waited(self) -> Array:
        """Return the part of each own time in which its thread waited."""
        if not self.between:
            return self._without_inner(self.take("waited"))
        by_events = self.trace._has_waits
        return self._without_inner(
            self._waited_between() if by_events else self._others_held_between()
        )

    def _waited_between(self) -> Array:
        """Return how long the thread of each call waited within it, as it was cut."""
        waits = rows_of_waits(self.trace)
        begin = waits["start"]
        of_thread = TimesOfGroups(begin, begin + waits["duration"], waits["thread"])
        whole, whole_duration = self.take("waited"), self.take("duration")
        waited = _core.new_column(len(self), "int64")
        for part in parts_of_rows(len(self)):
            start, duration = self.start[part], self.duration[part]
            cut = of_thread.during(start, start + duration, self.thread[part])
            is_cut = duration < whole_duration[part]
            waited[part] = np.where(is_cut, np.minimum(cut, duration), whole[part])
        return waited

    def _others_held_between(self) -> Array:
        """Return how long other threads had the lock within each call, as it was cut."""
        found = self.trace._core.tenures()
        begin, end, thread = found["start"], found["end"], found["thread"]
        process_of = process_of_threads(self.trace)
        of_process, of_thread = (
            TimesOfGroups(begin, end, process_of[thread]),
            TimesOfGroups(begin, end, thread),
        )
        waited = _core.new_column(len(self), "int64")
        for part in parts_of_rows(len(self)):
            start, own = self.start[part], self.thread[part]
            stop = start + self.duration[part]
            waited[part] = of_process.during(start, stop, process_of[own])
            waited[part] -= of_thread.during(start, stop, own)
        return waited

    def parts_of_table(
        self, name: str, rows: int, *, before: int = 0, total: int | None = None
    ) -> Iterator[Table]:
        """Yield parts of the chosen rows of a table, and report the progress.

        Parameters
        ----------
        name : str
            The table.
        rows : int
            Rows of a part.
        before, total : int
            Rows of the tables before it, and of all tables; without, the table is the only one.
        """
        length = self.length(name)
        for first in range(0, length, rows):
            if self.progress is not None:
                self.progress(before + first, length if total is None else total)
            yield self.part_of_table(name, first, min(rows, length - first))
            _core.give_back()

    def length(self, name: str) -> int:
        """Return the number of the chosen rows of a table."""
        rows = self._rows_of(name)
        return len(getattr(self.trace, name)) if rows is None else len(rows)

    def part_of_table(self, name: str, first: int, count: int) -> Table:
        """Return some of the chosen rows of a table, in memory for these."""
        rows = self._rows_of(name)
        if name not in TablesOfRows.MADE:
            return self.table(name)[first : first + count]
        if rows is None:
            return self._tables_of_rows(name, first, count)
        rows = rows[first : first + count]
        parts = [self._tables_of_rows(name, 0, 0)] if not len(rows) else []
        done = 0
        while done < len(rows):
            begin = int(rows[done])
            after = int(np.searchsorted(rows, begin + AT_A_TIME))
            part = self._tables_of_rows(name, begin, int(rows[after - 1]) + 1 - begin)
            parts.append(part[rows[done:after] - begin])
            done = after
        return parts[0] if len(parts) == 1 else joined(parts)

    @cached_property
    def _tables_of_rows(self) -> TablesOfRows:
        return TablesOfRows(self.trace)

    def each_part(self, name: str, rows: int, take: Callable[[Table], object]) -> None:
        """Call a function with the chosen rows of a table, in parts, and report the progress.

        Parameters
        ----------
        name : str
            The table.
        rows : int
            Rows of a part, about.
        take : callable
            Called with each part; not, if there are no rows.
        """
        if name != "events" or not in_batches(self.trace):
            for part in self.parts_of_table(name, rows):
                take(part)
            return
        start, end = self.between or (None, None)
        total = self.trace._facts["events"]

        def give(batch: Table, numbers: Array) -> bool:
            if self.progress is not None:
                self.progress(int(numbers[0]), total)
            take(batch)
            return True

        read_events(
            self.trace,
            give,
            start=start,
            end=end,
            functions=self._wanted if self._globs or self._own else None,
            threads=self.thread_mask if self._threads else None,
        )

    @cached_property
    def _wanted(self) -> Array:
        """A mask of the chosen functions."""
        wanted = np.ones(len(self.trace.functions), bool)
        if self._globs:
            wanted &= _matching(self.trace, self._globs)
        if self._own:
            wanted &= self._own_functions[:-1]
        return wanted

    def table(self, name: str) -> Table:
        """Return the chosen rows of a small table of the trace."""
        found: Table = getattr(self.trace, name)
        rows = self._rows_of(name)
        return found if rows is None else found[rows]

    def _rows_of(self, name: str) -> Array | None:
        """Return the chosen rows of a table; None: all."""
        if self.rows is None or name == "calls":
            return self.rows
        if name not in self._known_rows:
            self._known_rows[name] = self._find_rows(name)
        return self._known_rows[name]

    def _find_rows(self, name: str) -> Array:
        found: Table = getattr(self.trace, name)
        if name not in TablesOfRows.MADE:
            return np.flatnonzero(self._mask(found))
        marks = _core.new_column(len(found), "uint8")
        for rows in parts_of_rows(len(found)):
            part = self._tables_of_rows(name, rows.start, rows.stop - rows.start)
            marks[rows] = self._mask(part)
        return _numbers_of(marks)

    def _mask(self, found: Table) -> Array:
        """Return a mask of the chosen rows of a table, or of a part of it; not of calls."""
        mask = np.ones(len(found), bool)
        if self._threads and "thread" in found:
            mask &= self.thread_mask[found["thread"]]
        if self.between is not None and ("time" in found or "start" in found):
            mask &= self.times(np.asarray(found["time" if "time" in found else "start"]))
        if (self._globs or self._own) and "function" in found:
            mask &= np.append(self._wanted, False)[np.ma.filled(found["function"], -1)]
        return mask


def _matching(trace: Trace, globs: Sequence[str]) -> Array:
    """Return a mask of the functions that globs match.

    Raises
    ------
    ValueError
        No function matches.
    """
    found = matching(trace, globs)
    if not found.any():
        raise ValueError(f"functions: {no_match(trace, globs)}")
    return found


def _numbers_of(marks: Array) -> Array:
    """Return the numbers of marked rows, int64."""
    count = sum(int(np.count_nonzero(marks[part])) for part in parts_of_rows(len(marks)))
    rows, done = _core.new_column(count, "int64"), 0
    for part in parts_of_rows(len(marks)):
        found = np.flatnonzero(marks[part])
        rows[done : done + len(found)] = found + part.start
        done += len(found)
    return rows


def _picked(values: Array, rows: Array) -> Array:
    """Return the values of some rows."""
    found = _core.new_column(len(rows), str(values.dtype))
    for part in parts_of_rows(len(rows)):
        found[part] = values[rows[part]]
    return found


class TimesOfGroups:
    """How much of the times of a group lies within calls: of tenures, or of waits.

    Parameters
    ----------
    begin, end, group : array of int
        Of each time. A call is compared with those of its group. What overlaps counts twice.
    """

    def __init__(self, begin: Array, end: Array, group: Array) -> None:
        self._edges = []
        for edge in (begin, end):
            edges = edge[np.lexsort((edge, group))]
            self._edges.append((edges, np.concatenate([[0], np.cumsum(edges)])))
        self._bounds = np.concatenate([[0], np.cumsum(np.bincount(group))]).tolist()

    def during(self, start: Array, stop: Array, group: Array) -> Array:
        """Return the time for some calls; each is looked at once, however many groups there are."""
        found = np.zeros(len(group), np.int64)
        # NumPy sorts 16 bits by radix.
        few = group.max(initial=0) < 1 << 16
        rows = np.argsort(group.astype(np.uint16) if few else group, kind="stable")
        present, first = np.unique(group[rows], return_index=True)
        parts = pairwise(np.append(first, len(rows)).tolist())
        for each, part in zip(present.tolist(), parts, strict=True):
            if each + 1 >= len(self._bounds):
                continue  # it is above all groups that have times
            low, high = self._bounds[each : each + 2]
            if low == high:
                continue
            row = rows[slice(*part)]
            for sign, times in ((1, stop[row]), (-1, start[row])):
                # Until a time: what has passed since each begin before it, less since each end. The
                # sums may wrap around; their difference does not.
                for of_edge, (edges, sums) in zip((sign, -sign), self._edges, strict=True):
                    count = np.searchsorted(edges[low:high], times, side="right")
                    found[row] += of_edge * (count * times - (sums[low + count] - sums[low]))
        return found


def intern(columns: list[Array], *, overwrite: bool = False) -> tuple[Array, list[Array]]:
    """Assign a number to each distinct row of int32 columns, in little memory.

    Parameters
    ----------
    columns : list of array of int32
        The columns.
    overwrite : bool
        The numbers may be written over the last column, if the array is no column of the trace.

    Returns
    -------
    array of int32, list of arrays of int32
        The number of each row; the columns by number.
    """
    if len(columns) > 2:
        first, distinct = intern(columns[:-1])
        code, (of_first, last) = intern([first, columns[-1]])
        return code, [*(column[of_first] for column in distinct), last]
    known: dict[int, int] = {}
    last = columns[-1]
    code = last if overwrite and last.flags.writeable else _core.new_column(len(last), "int32")
    for begin in range(0, len(code), AT_A_TIME):
        rows = slice(begin, begin + AT_A_TIME)
        key = columns[0][rows].astype(np.int64)
        if len(columns) == 2:
            key = key << 32 | (columns[1][rows].astype(np.int64) & 0xFFFFFFFF)
        keys, inverse = np.unique(key, return_inverse=True)
        numbers = [known.setdefault(each, len(known)) for each in keys.tolist()]
        code[rows] = np.array(numbers, np.int32)[inverse.reshape(-1)]
        _core.give_back()
    found = np.array(list(known), np.int64)
    if len(columns) == 1:
        return code, [found.astype(np.int32)]
    return code, [(found >> 32).astype(np.int32), found.astype(np.uint32).view(np.int32)]
