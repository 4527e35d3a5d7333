"""The tables of what was recorded: events, calls, allocations, functions, lines, threads.

A column is a row in one of the lists below: a name, how it is loaded, its type, which values are
null, its unit, its meaning. The numbers come from the extension, which computes them step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from .. import _core
from .column import Array, Column, Null, Words, code_type, encode
from .event_rows import event_kinds
from .facts import Facts
from .kinds import ALLOCATION_FLAGS, CALL_FLAGS, CALL_WORDS, DOMAINS, WORDS
from .table import Compensate, Table

#: Gives a column of the extension by its name.
_Loader: TypeAlias = Callable[[str], Array]


class Tables(Facts):
    """A trace's tables; each column is computed when first asked for."""

    @cached_property
    def events(self) -> Table:
        """Every recorded event, in order of time; events of one thread in their own order.

        Returns
        -------
        Table
            ``time`` int64, ns since the window's start. ``event`` text: call, return, yield,
            resume, throw, unwind, c_call, c_return, c_exception, malloc, calloc, realloc,
            realloc_free, realloc_failed, free. ``thread`` int32, row of `threads`. ``function``
            int32, row of `functions`: the callee's, of an allocator event the one that was
            executing; ``name`` text, its qualified name. ``line`` int32: of call events the
            function's first, of allocator events the one that was executing. ``address`` uint64,
            ``size`` int64, bytes, ``domain`` text: of allocator events. ``depth`` int32: how many
            calls enclose the event. ``caller`` int32, row of `functions`, and ``caller_line``
            int32, the line of the call: of call events and of the ends of calls; of a mark and the
            like, where it was made. ``value`` float64: a counter's value, the objects that a run of
            the collector freed, a flow's id, the offset in bytes where a branch or jump went.
            ``offset`` int32, bytes: of lines, instructions, exceptions, branches and jumps, the
            instruction's in its function; ``opcode`` text: of instructions, its name as ``dis`` has
            it. All from ``function`` on are null where unknown.

            Of an exception's events (raise, reraise, handled, stop_iteration) ``function`` and
            ``name`` are the exception's type, ``caller`` the function that it happened in, and
            ``line`` and ``caller_line`` the line.

        Notes
        -----
        Source: every enabled hook. Events that found no room are in `loss`.
        """
        load = self._core.events
        function, name = self._function_columns(load)
        return Table(
            "events",
            [
                _number(load, "time", np.int64, "never", "ns", "since the window's start"),
                self._kind_column("event", lambda _: event_kinds(self), "what happened"),
                _number(load, "thread", np.int32, "never", "", "row of threads"),
                function,
                name,
                _number(load, "line", np.int32, "negative", "",
                        "of call events the function's first, else the one that was executing"),
                _number(load, "address", np.uint64, "zero", "", "of the block", True),
                _number(load, "size", np.int64, "negative", "bytes", "of the block"),
                _domain_column(load),
                _number(load, "depth", np.int32, "negative", "", "how many calls enclose it"),
                _number(load, "caller", np.int32, "negative", "", "row of functions"),
                _number(load, "caller_line", np.int32, "negative", "", "where it was called"),
                _number(load, "value", np.float64, "nan", "", "of counters and the like"),
                _number(load, "offset", np.int32, "negative", "bytes", "of the instruction"),
                self._opcode_column(),
            ],
            self._facts["events"],
        )  # fmt: skip

    @cached_property
    def calls(self) -> Table:
        """Every call, in order of start; parents before their children.

        Returns
        -------
        Table
            ``start``, ``duration`` and ``self`` (without the calls inside) int64, ns. ``thread``
            int32, row of `threads`. ``function`` int32, row of `functions`, its ``name`` and
            ``file`` text and ``line`` int32, the first. ``kind`` text, how it began: call, resume,
            throw or c_call; or what else it is: span, gc or hpy. A generator has a row for each of
            its runs. ``depth`` int32. ``parent`` int32, row of this table, null for outermost
            calls. ``caller`` int32 and ``caller_line`` int32. ``flags`` uint8, a sum of: 1 open
            when the window began, 2 open when it ended, 4 ended by a yield, 8 ended by an
            exception, 16 its end was not seen, 32 recursive. The duration of a call with 1, 2 or 16
            is that within the window, a lower bound. The bits' names are in `CALL_FLAGS` of
            eventprof.trace. ``allocated`` and ``freed`` int64, bytes, and ``blocks`` (allocated)
            int32, in the call itself; ``allocated_below``, ``freed_below`` and ``blocks_below``
            with the calls inside. ``task`` text: the name of the asyncio task that it was part of,
            as it was when the task's slice began; null outside of tasks.
        """
        load = self._core.calls
        function, name = self._function_columns(load)
        return Table(
            self._title("calls"),
            [
                _number(load, "start", np.int64, "never", "ns", "since the window's start"),
                _number(load, "duration", np.int64, "never", "ns", "from start to end"),
                Column("self", lambda: load("self_time"), np.int64, unit="ns",
                       doc="without the calls inside", formerly="self_time"),
                _number(load, "thread", np.int32, "never", "", "row of threads"),
                function,
                name,
                self._text_of_function("file", function, "the function's source file"),
                Column("line", lambda: _map(self.functions._column("line").values(),
                                            function.values()),
                       np.int32, null="negative", doc="the function's first"),
                self._kind_column("kind", load, "how it began", CALL_WORDS),
                _number(load, "depth", np.int32, "never", "", "how many calls enclose it"),
                _number(load, "parent", np.int32, "negative", "", "row of calls"),
                _number(load, "caller", np.int32, "negative", "", "row of functions"),
                _number(load, "caller_line", np.int32, "negative", "", "where it was called"),
                _number(load, "flags", np.uint8, "never", "", _bits(CALL_FLAGS)),
                *self._call_memory_columns(False),
                *self._call_memory_columns(True),
                self._task_column(),
            ],
            len(load("parent")),
            self._compensate_calls,
        )  # fmt: skip

    @cached_property
    def allocations(self) -> Table:
        """Every block that was allocated in the window, in order of birth.

        Returns
        -------
        Table
            ``address`` uint64; ``size`` int64, bytes; ``domain`` text; ``thread`` int32, row of
            `threads`. ``start`` and ``end`` int64, ns since the window's start; the end is null for
            a block that lives on. ``call`` int32, row of `calls`: the innermost one open at birth.
            ``function`` int32, row of `functions`, ``name`` text and ``line`` int32: what was
            executing. ``freed_in`` int32, row of `calls`; ``free_thread`` int32. ``previous``
            int32, row of this table: the block that a realloc turned into this one. ``flags``
            uint8, a sum of: 1 mended (its free was logged late), 2 its free was not recorded, 4 a
            realloc of it failed, 8 ended by a realloc, 16 freed before its thread's next
            allocation, 32 freed by the call that made it; their names are in `ALLOCATION_FLAGS` of
            eventprof.trace.
        """
        load = self._core.allocations
        function, name = self._function_columns(load)
        return Table(
            self._title("allocations"),
            [
                _number(load, "address", np.uint64, "never", "", "of the block", True),
                _number(load, "size", np.int64, "negative", "bytes", "asked for"),
                _domain_column(load),
                _number(load, "thread", np.int32, "never", "", "row of threads"),
                _number(load, "start", np.int64, "never", "ns", "since the window's start"),
                _number(load, "end", np.int64, "negative", "ns", "null: it lives on"),
                _number(load, "call", np.int32, "negative", "", "row of calls: open at its birth"),
                function,
                name,
                _number(load, "line", np.int32, "negative", "", "that was executing"),
                _number(load, "freed_in", np.int32, "negative", "", "row of calls"),
                _number(load, "free_thread", np.int32, "negative", "", "row of threads"),
                _number(load, "previous", np.int32, "negative", "",
                        "row of allocations: what a realloc turned into this one"),
                _number(load, "flags", np.uint8, "never", "", _bits(ALLOCATION_FLAGS)),
            ],
            len(load("previous")),
        )  # fmt: skip

    def _function_columns(self, load: _Loader) -> tuple[Column, Column]:
        """Give the columns function, and name, which is made of it."""
        function = _number(load, "function", np.int32, "negative", "", "row of functions")
        return function, self._text_of_function("name", function, "the function's qualified name")

    def _text_of_function(self, name: str, function: Column, doc: str) -> Column:
        texts = self.functions._column(name)
        return Column(
            name,
            lambda: _map(texts.values(), function.values()),
            words=texts.words,
            doc=doc,
        )

    def _opcode_column(self) -> Column:
        def words() -> tuple[str, ...]:
            return tuple(_core.text(number) or "" for number in self._opcode_codes[1].tolist())

        return Column(
            "opcode", lambda: self._opcode_codes[0], words=Words(words), doc="of instructions"
        )

    @cached_property
    def _opcode_codes(self) -> tuple[Array, Array]:
        """The opcodes of events as rows, -1: none, of an array of their texts' numbers."""
        numbers = self._core.events("opcode") + 1
        known = np.flatnonzero(np.bincount(numbers, minlength=1)[1:])
        codes = np.full(len(numbers) if not len(known) else int(known[-1]) + 2, -1, np.int32)
        codes[known + 1] = np.arange(len(known))
        return codes[numbers], known

    def _task_column(self) -> Column:
        def words() -> tuple[str, ...]:
            return tuple(_core.text(number) or "" for number in self._task_codes[1].tolist())

        return Column(
            "task",
            lambda: self._task_codes[0],
            words=Words(words),
            doc="name of the asyncio task that it is part of",
        )

    @cached_property
    def _task_codes(self) -> tuple[Array, Array]:
        """The tasks of calls as rows, -1: none, of an array of their texts' numbers."""
        numbers = self._core.calls("task")
        known = np.unique(numbers)
        known = known[known >= 0]
        return np.where(numbers < 0, -1, np.searchsorted(known, numbers)), known

    def _kind_column(
        self, name: str, load: _Loader, doc: str, words: Mapping[int, str] = WORDS
    ) -> Column:
        texts = tuple(dict.fromkeys(words.values()))
        code = np.full(max(words) + 2, -1, dtype=code_type(len(texts)))
        for kind, word in words.items():
            code[kind] = texts.index(word)
        return Column(
            name,
            lambda: _core.gather(code, load("kind")),
            null="never",
            words=Words(lambda: texts),
            doc=doc,
        )

    @cached_property
    def functions(self) -> Table:
        """Every function that an event or an open call mentions.

        Returns
        -------
        Table
            ``name`` text, the qualified name; ``module`` text; ``file`` text; ``line`` int32, its
            first; ``kind`` text: python, c, type (a class that was called, or whose objects came
            and went) or object (another callable, named after its type); or what is no function:
            user (a mark, span, counter or flow), gc, audit, hpy. Null where unknown.

            Counts, int64: ``calls`` begun in the window; ``resumes``, slices of generators begun by
            a resume or throw; ``recursive``, of both those begun while the function was open on
            the thread. Times, int64 ns: ``total`` with the function open (of recursive calls the
            outermost), ``self`` with it innermost; ``mean`` (float64), ``min``, ``max``, ``p50``,
            ``p95``, ``p99`` of one call or slice, null where none was recorded from start to end;
            the percentiles are exact. Memory, int64 bytes: ``allocated``, ``freed`` by it, ``net``;
            ``blocks`` allocated; of what it allocated: ``live`` at the end, ``churn`` (freed
            again), ``temporary`` (freed in the call that made it, or before the thread's next
            allocation), ``at_peak`` (alive at the trace's peak).

        Notes
        -----
        A block counts for the function of the innermost open call, so a builtin has what it
        allocated itself; without recorded calls, for the Python function that was executing.
        """
        rows = self._core.functions()
        names, modules, files, lines, kinds = zip(*rows, strict=True) if rows else ((),) * 5
        line_values = np.array([-1 if line is None else line for line in lines], dtype=np.int32)

        def statistic(
            name: str, unit: str, doc: str, *, may_lack: bool = False, formerly: str = ""
        ) -> Column:
            return Column(
                name,
                lambda: self._function_stats[formerly or name][: len(rows)],
                np.float64 if name == "mean" else np.int64,
                null="negative" if may_lack else "never",
                unit=unit,
                doc=doc,
                formerly=formerly,
            )

        return Table(
            self._title("functions"),
            [
                _text("name", names, "qualified name"),
                _text("module", modules, "where it was defined"),
                _text("file", files, "source file"),
                Column("line", lambda: line_values, np.int32, null="negative", doc="its first"),
                _text("kind", kinds, "python, c, type, object, user, gc, audit", null="never"),
                statistic("calls", "", "begun in the window"),
                statistic("resumes", "", "slices begun by resume or throw"),
                statistic("recursive", "", "of both, with the function open already"),
                statistic("total", "ns", "with the function open"),
                statistic("self", "ns", "with the function innermost"),
                statistic("mean", "ns", "of a call", may_lack=True),
                statistic("min", "ns", "of a call", may_lack=True),
                statistic("max", "ns", "of a call", may_lack=True),
                statistic("p50", "ns", "of a call", may_lack=True),
                statistic("p95", "ns", "of a call", may_lack=True),
                statistic("p99", "ns", "of a call", may_lack=True),
                statistic("allocated", "bytes", "by it"),
                statistic("freed", "bytes", "by it"),
                statistic("net", "bytes", "allocated less freed"),
                statistic("blocks", "", "allocated"),
                statistic("live", "bytes", "of allocated: at the end", formerly="alive"),
                statistic("churn", "bytes", "of allocated: freed again"),
                statistic("temporary", "bytes", "of churn: at once"),
                statistic("at_peak", "bytes", "of allocated: at the peak", formerly="peak_live"),
            ],
            len(rows),
            self._compensate_functions,
        )

    def _compensate_calls(self, compensate: Compensate) -> Table:
        from .compensation import calls

        return calls(self, self.calls, compensate)

    def _compensate_functions(self, compensate: Compensate) -> Table:
        from .compensation import functions

        return functions(self, self.functions, compensate)

    @cached_property
    def lines(self) -> Table:
        """Every line that began to run, or allocated: what line_profiler and tracemalloc tell.

        Returns
        -------
        Table
            In order of function and line. ``function`` int32, row of `functions`; ``name`` and
            ``file`` text; ``line`` int32. ``hits`` int64, how often it began; ``total`` int64, ns,
            from there until the next line of the same call began, or the call ended or yielded:
            with all that the line called; ``self`` int64, ns, without the calls that were
            recorded. ``allocated`` int64, bytes, and ``blocks`` int64: while the line was
            executing; what functions that are not in Python allocate is of the line that called
            them. The first three numbers are null unless lines were recorded
            (``record(lines=True)``), the last two unless memory was.

        Notes
        -----
        Of a recursive function's line that is open several times on a thread the outermost counts,
        so that no line takes longer than its thread. The last line of a call that was still open
        takes until the window's end. Without recorded calls (``calls=False``) a line takes until
        its thread's next line, in whichever function, and ``self`` is the same. A realloc
        counts as an allocation of the new block.

        Examples
        --------
        >>> def squares(count):
        ...     total = []
        ...     for number in range(count):
        ...         total.append(number * number)
        >>> with eventprof.record(lines=True, memory=False) as rec:
        ...     squares(3)
        >>> lines = rec.trace.lines
        >>> lines[lines["name"] == "squares"][["name", "line", "hits"]]
        lines: 3 rows, 3 columns
           name     line  hits
        0  squares     2     1
        1  squares     3     4
        2  squares     4     3
        """
        functions, lines, hits, time, self_time, allocated, blocks = self._core.lines()
        recorded = {WORDS[kind] for kind in WORDS if self._facts["kinds"] >> kind & 1}
        began = "line" in recorded
        allocates = not recorded.isdisjoint(("malloc", "calloc", "realloc"))
        function = Column(
            "function", lambda: functions, np.int32, null="negative", doc="row of functions"
        )

        def number(
            name: str, values: Array, known: bool, unit: str, doc: str, formerly: str = ""
        ) -> Column:
            mask = np.full(len(values), not known)
            return Column(name, lambda: values, np.int64, null=lambda: mask, unit=unit, doc=doc,
                          formerly=formerly)  # fmt: skip

        return Table(
            self._title("lines"),
            [
                function,
                self._text_of_function("name", function, "the function's qualified name"),
                self._text_of_function("file", function, "its source file"),
                Column("line", lambda: lines, np.int32, doc="in the file"),
                number("hits", hits, began, "", "how often it began"),
                number(
                    "total", time, began, "ns", "until the call's next line, or its end", "time"
                ),
                number(
                    "self", self_time, began, "ns", "without recorded calls inside", "self_time"
                ),
                number("allocated", allocated, allocates, "bytes", "while it was executing"),
                number("blocks", blocks, allocates, "", "allocated"),
            ],
            len(functions),
        )

    @cached_property
    def _function_stats(self) -> dict[str, Array]:
        return self._core.function_stats()

    def _call_memory_columns(self, below: bool) -> list[Column]:
        def column(name: str, at: int, dtype: Any, unit: str) -> Column:
            return Column(
                name + "_below" if below else name,
                lambda: self._call_memory(below)[at],
                dtype,
                unit=unit,
                doc="with the calls inside" if below else "in the call itself",
            )

        return [
            column("allocated", 0, np.int64, "bytes"),
            column("freed", 1, np.int64, "bytes"),
            column("blocks", 2, np.int32, ""),
        ]

    def _call_memory(self, below: bool) -> tuple[Array, Array, Array]:
        known = self.__dict__.setdefault("_call_memory_known", {})
        if below not in known:
            known[below] = self._core.call_memory(below)
        memory: tuple[Array, Array, Array] = known[below]
        return memory

    @cached_property
    def threads(self) -> Table:
        """Every thread that has events, lost some, or was in a call as the window began.

        Returns
        -------
        Table
            ``name`` text, null if it never had one; ``native_id`` int64, the system's; ``first``
            and ``last`` int64, ns since the window's start, of its recorded events, null if there
            are none; ``recorded`` and ``lost`` int64, events.
        """
        rows = self._thread_rows
        names, native_ids, firsts, lasts, recorded, lost = (
            zip(*rows, strict=True) if rows else ((),) * 6
        )
        recorded_sums = np.array([sum(counts.values()) for counts in recorded], dtype=np.int64)
        silent = recorded_sums == 0

        def number(name: str, values: Any, null: Null, unit: str, doc: str) -> Column:
            array = np.array(values, dtype=np.int64)
            return Column(name, lambda: array, np.int64, null=null, unit=unit, doc=doc)

        return Table(
            "threads",
            [
                _text("name", names, "as threading knows it"),
                number("native_id", native_ids, "zero", "", "the system's"),
                number("first", firsts, lambda: silent, "ns", "its first event"),
                number("last", lasts, lambda: silent, "ns", "its last event"),
                number("recorded", recorded_sums, "never", "events", "in this trace"),
                number("lost", [sum(c.values()) for c in lost], "never", "events", "without room"),
            ],
            len(rows),
        )


def _number(
    load: _Loader,
    name: str,
    dtype: Any,
    null: Null,
    unit: str,
    doc: str,
    hexadecimal: bool = False,
) -> Column:
    """Give a column that the extension has by the same name."""
    return Column(
        name,
        lambda: load(name),
        dtype,
        null=null,
        unit=unit,
        doc=doc,
        hexadecimal=hexadecimal,
    )


def _bits(flags: Mapping[str, int]) -> str:
    return ", ".join(f"{bit} {name}" for name, bit in flags.items())


def _domain_column(load: _Loader) -> Column:
    return Column(
        "domain",
        lambda: load("domain"),
        words=Words(lambda: DOMAINS),
        doc="which allocator",
    )


def _text(name: str, texts: tuple[str | None, ...], doc: str, *, null: Null = "negative") -> Column:
    codes, words = encode(texts)
    return Column(name, lambda: codes, null=null, words=words, doc=doc)


def _map(codes: Array, rows: Array) -> Array:
    """Give codes[rows], and -1 for row -1."""
    return _core.gather(np.append(codes, codes.dtype.type(-1)), rows)
