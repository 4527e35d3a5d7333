"""The tables of what was recorded: events, calls, allocations, functions, lines, threads.

columns.def of the core lists them: name, where the values are, type, which are null, unit and
meaning. The numbers come from the extension, which computes them step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np

from .. import _core
from .column import Array, Column, Null, Words, code_type
from .descriptions import Description, Loader, described, number, strings
from .event_rows import event_kinds
from .kinds import CALL_FLAGS, CALL_WORDS, DOMAINS, WORDS
from .processes import Processes, text_column
from .table import Compensate, Table

if TYPE_CHECKING:
    from .labels import LabelSets
    from .trace import Trace


class Tables(Processes):
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
        return Table(
            self._title("events"),
            self._with_process(self._described("events", self._core.events)),
            self._facts["events"],
        )

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
            exception, 16 its end was not seen, 32 recursive. The duration of a call with 1 or 2
            is that within the window, a lower bound; a call with 16 ends with the call around it,
            an upper bound. The bits' names are in `CALL_FLAGS` of eventprof.trace. ``waited``
            int64, ns: the part of the duration in which another thread had the interpreter's lock,
            a lower bound. ``allocated`` and ``freed`` int64, bytes, and ``blocks`` (allocated)
            int32, with the calls inside; ``allocated_self``, ``freed_self`` and ``blocks_self`` in
            the call itself. ``task`` text: the name of the asyncio task that the call was part of,
            as it was when the task's slice began; null outside of tasks.
        """
        load = self._core.calls
        columns = self._described("calls", load)
        columns += self._label_columns(columns, lambda: self._labels_of_calls)
        return Table(
            self._title("calls"),
            self._with_process(columns),
            len(load("parent")),
            self._compensate_calls,
        )

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
        return Table(
            self._title("allocations"),
            self._with_process(self._described("allocations", load)),
            len(load("previous")),
        )

    @cached_property
    def _label_sets(self) -> LabelSets:
        from .labels import LabelSets

        return LabelSets(self)

    @cached_property
    def _labels_of_calls(self) -> Array:
        """Give the row of the sets of labels that each call began with; -1: none."""
        core = self._core
        rows = self._label_sets.of(core.calls("thread"), core.calls("start"))
        rows[core.calls("flags") & CALL_FLAGS["open_at_start"] != 0] = -1  # nobody knows
        return rows

    def _label_columns(self, beside: list[Column], rows: Callable[[], Array]) -> list[Column]:
        return self._label_sets.columns([column.name for column in beside], rows)

    def _described(self, table: str, load: Loader) -> list[Column]:
        """Give the columns of a table as columns.def describes them."""
        made: dict[str, Column] = {}
        for of in described(table):
            made[of.name] = self._described_column(of, load, made)
        return list(made.values())

    def _described_column(
        self, of: Description, load: Loader, before: Mapping[str, Column]
    ) -> Column:
        if of.reading == "event":
            return self._kind_column(of.name, lambda _: event_kinds(self), of.meaning)
        if of.reading == "call":
            return self._kind_column(of.name, load, of.meaning, CALL_WORDS)
        if of.reading == "domain":
            return _domain_column(load, of.meaning)
        if of.reading == "string" and of.name in ("name", "file"):
            return self._text_of_function(of.name, before["function"], of.meaning)
        if of.reading == "string":
            return strings(of, load)
        return number(of, load, self._recorded)

    @property
    def _recorded(self) -> set[str]:
        """Of lines and memory, what was recorded; and "lock", if the interpreter had one."""
        words = {WORDS[kind] for kind in WORDS if self._facts["kinds"] >> kind & 1}
        recorded = {"lines"} if "line" in words else set()
        if not words.isdisjoint(("malloc", "calloc", "realloc")):
            recorded.add("memory")
        if self._has_lock:
            recorded.add("lock")
        return recorded

    def _text_of_function(self, name: str, function: Column, doc: str) -> Column:
        texts = self.functions._column(name)
        return Column(
            name,
            lambda: _map(texts.values(), function.values()),
            words=texts.words,
            doc=doc,
        )

    def _kind_column(
        self, name: str, load: Loader, doc: str, words: Mapping[int, str] = WORDS
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
            outermost), ``self`` with it innermost; ``waited`` and ``waited_self``, the parts of
            both in which another thread had the interpreter's lock, a lower bound; ``mean``
            (float64), ``min``, ``max``, ``p50``, ``p95``, ``p99`` of one call or slice, null where
            none was recorded from start to end. Memory, int64 bytes: ``allocated``, ``freed``,
            ``net``; ``blocks`` allocated; of what was allocated: ``live`` at the end, ``churn``
            (freed again), ``temporary`` (freed in the call that made it, or before the thread's
            next allocation), ``at_peak`` (alive at the trace's peak): with all that the function
            called, of recursive calls the outermost; each with ``_self`` after its name: of the
            function alone.

        Notes
        -----
        A block counts for the function of the innermost open call, so a builtin has what it
        allocated itself; without recorded calls, for the Python function that was executing. A
        file is read once for them, and once more for ``p50``, ``p95`` and ``p99``, chunk by chunk;
        these three are then off by less than 1 %. Of a trace whose events are in memory they are
        exact.
        """
        rows = self._core.functions()
        names, modules, files, lines, kinds = zip(*rows, strict=True) if rows else ((),) * 5
        line_values = np.array([-1 if line is None else line for line in lines], dtype=np.int32)

        texts = {"name": names, "module": modules, "file": files, "kind": kinds}

        def load(name: str) -> Array:
            return line_values if name == "line" else self._function_figure(name)[: len(rows)]

        return Table(
            self._title("functions"),
            [
                text_column(of.name, texts[of.name], of.meaning, null=cast("Null", of.null))
                if of.name in texts
                else number(of, load, self._recorded)
                for of in described("functions")
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
        load = self._core.lines
        return Table(self._title("lines"), self._described("lines", load), len(load("line")))

    def _function_figure(self, name: str) -> Array:
        """Give a column of `functions`, and behind its rows one for what belongs to no function."""
        sums = self._function_figures
        return sums[name] if name in sums else self._percentiles[name]

    @cached_property
    def _percentiles(self) -> dict[str, Array]:
        """Percentiles of functions, without columns if there are none yet."""
        if self._core.has_columns():
            return self._core.function_stats()
        from ..answers.tree import Tree

        found = Tree(cast("Trace", self), lengths=True).percentiles(50, 95, 99)
        return {f"p{percent}": values for percent, values in found.items()}

    @cached_property
    def _function_figures(self) -> dict[str, Array]:
        """The figures of functions from one pass over the recording: all but percentiles."""
        sums = self._functions_of_tree()
        return self._core.function_stats() if sums is None else sums

    def _functions_of_tree(self) -> dict[str, Array] | None:
        """Sum up the tree; None if it folded small nodes, whose functions only the columns show."""
        tree = cast("Trace", self)._tree
        return None if tree.facts["folded"] else tree.by_function()

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
        values = {
            "native_id": np.array(native_ids, dtype=np.int64),
            "first": np.where(silent, -1, np.array(firsts, dtype=np.int64)),
            "last": np.where(silent, -1, np.array(lasts, dtype=np.int64)),
            "recorded": recorded_sums,
            "lost": np.array([sum(counts.values()) for counts in lost], dtype=np.int64),
        }
        return Table(
            "threads",
            [
                text_column(of.name, names, of.meaning)
                if of.reading == "string"
                else number(of, values.__getitem__)
                for of in described("threads")
            ]
            + self._process_of(lambda: np.arange(len(rows), dtype=np.int32)),
            len(rows),
        )


def _domain_column(load: Loader, doc: str) -> Column:
    return Column("domain", lambda: load("domain"), words=Words(lambda: DOMAINS), doc=doc)


def _map(codes: Array, rows: Array) -> Array:
    """Give codes[rows], and -1 for row -1."""
    return _core.gather(np.append(codes, codes.dtype.type(-1)), rows)
