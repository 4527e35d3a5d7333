"""What a recorder yields: a trace and its tables.

A column is a row in one of the lists below: a name, how it is loaded, its type, which values are
null, its unit, its meaning. The numbers come from the extension, which computes them step by step.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np

from . import _core
from ._words import did_you_mean, plural, show_ns
from .answers import Answers
from .points import Points, event_kinds
from .questions import Questions
from .tables import Array, Column, Compensate, Null, Table, Words, code_type, encode

if TYPE_CHECKING:
    from .verification import Verification

#: Gives a column of the extension by its name.
_Loader: TypeAlias = Callable[[str], Array]

_KINDS = tuple(_core.kind_table())
#: What the event column says, by kind.
WORDS = {kind: word for kind, _, word, *_ in _KINDS}
#: How calls of the tree are called that are none of the interpreter's.
_CALL_WORDS = WORDS | {
    kind: group
    for kind, _, _, _, family, _, pairing, group in _KINDS
    if family == "call" and pairing == "opens" and group not in ("python", "c")
}
_DOMAINS = ("raw", "mem", "obj", "numpy", "libc")

#: Bits of the flags column of calls: pair.h's ep_call_flag.
CALL_FLAGS = {
    "open_at_start": 1, "open_at_end": 2, "yielded": 4, "raised": 8, "end_unseen": 16,
    "recursive": 32,
}  # fmt: skip
#: Bits of the flags column of allocations: pair.h's ep_block_flag.
ALLOCATION_FLAGS = {
    "mended": 1, "free_lost": 2, "revived": 4, "moved": 8, "brief": 16, "local": 32,
}  # fmt: skip


class Loss:
    """How many events found no room: true if there were any.

    Attributes
    ----------
    total : int
        All of them.
    by_kind : dict of str to int
        By the word of the ``event`` column.
    by_thread : dict of int to int
        By the row in ``threads``.
    reason : {None, 'overwritten', 'limit', 'memory', 'disk', 'small_disk', 'cut', 'damaged'}
        The oldest were overwritten, or recording ended: at the buffer's limit, or for want of
        memory or of room for the file. Or the file that they were in is damaged.
    """

    __slots__ = ("by_kind", "by_thread", "reason", "total")

    def __init__(self, by_kind: dict[str, int], by_thread: dict[int, int], full: str | None):
        self.by_kind = by_kind
        self.by_thread = by_thread
        self.total = sum(by_thread.values())
        self.reason = full if full is not None else "overwritten" if self.total else None

    def __bool__(self) -> bool:
        return self.total > 0

    def __repr__(self) -> str:
        if not self:
            return "<no events lost>"
        kinds = ", ".join(f"{count:,} {word}" for word, count in self.by_kind.items())
        why = {
            "overwritten": "the oldest were overwritten",
            "limit": "the buffer was full",
            "memory": "there was no memory",
            "disk": "the file found no more room on its disk",
            "small_disk": "the disk was full before the buffer, and the oldest were overwritten",
            "cut": "the file was cut off while it was written",
            "damaged": "the file is damaged",
        }
        return (
            f"<{plural(self.total, 'event')} lost on {plural(len(self.by_thread), 'thread')}, "
            f"{why[str(self.reason)]}: {kinds}>"
        )


class Trace(Points, Questions, Answers):
    """What one window recorded, as tables; each column is computed when first asked for.

    Made by `Recorder.trace` and `Recorder.snapshot`.

    Parameters
    ----------
    core : _core.Trace
        The extension's half.
    metadata : mapping
        What the recorder knows of the run.
    file : callable, optional
        Gives what is known of the file that it was read from.

    Examples
    --------
    >>> with eventprof.record(memory=False) as rec:
    ...     len("some text")
    9
    >>> rec.trace.events[["event", "name"]]
    events: 2 rows, 2 columns
       event     name
    0  c_call    len
    1  c_return  len
    """

    def __init__(
        self,
        core: _core.Trace,
        metadata: Mapping[str, Any],
        file: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        self._core = core
        self._recorder_metadata = dict(metadata)
        self._file = file
        #: What others may do with the file that it was read from, and so with one that is saved.
        self._rights = 0o666

    # ---- Facts -----------------------------------------------------------------------------------

    @cached_property
    def _facts(self) -> _core._Facts:
        return self._core.facts()

    @property
    def duration(self) -> int:
        """How long the window was, in ns; to where the buffer was full, if it ended there."""
        return self._facts["duration_ns"]

    @cached_property
    def loss(self) -> Loss:
        """The events that found no room.

        Returns
        -------
        Loss
            Counts by kind and by thread; false if nothing was lost. Together with the rows of
            `events` they are all that happened.
        """
        by_kind: dict[str, int] = {}
        by_thread = {}
        for row, (*_, lost) in enumerate(self._thread_rows):
            for kind, count in lost.items():
                by_kind[WORDS[kind]] = by_kind.get(WORDS[kind], 0) + count
            if lost:
                by_thread[row] = sum(lost.values())
        full = self._facts["full"]
        if full is None and self._file is not None and self._facts["damaged_chunks"]:
            full = "damaged"
        if not by_thread and full in ("damaged", "small_disk"):
            full = None
        return Loss(by_kind, by_thread, full)

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """What is known of the run.

        Returns
        -------
        dict
            ``start_ns`` and ``start_monotonic_ns``, the window's start on CLOCK_REALTIME and
            CLOCK_MONOTONIC; ``duration_ns``; ``clock``, ``clock_frequency_hz``; ``eventprof``,
            ``python``, ``platform``, ``hostname``, ``pid``, ``argv``; ``backend``, ``options``,
            ``displaced`` of the recorder; ``damaged_chunks``, parts that could not be read;
            ``filtered``, what was left out, see `filtered`; ``overhead``, what an event cost, if it
            was measured, see `eventprof.overhead`.
        """
        facts = self._facts
        known = {k: v for k, v in self._recorder_metadata.items() if k != "runtime_events"}
        return {
            "start_ns": facts["start_realtime_ns"],
            "start_monotonic_ns": facts["start_monotonic_ns"],
            "duration_ns": facts["duration_ns"],
            "clock_frequency_hz": facts["clock_frequency_hz"],
            "damaged_chunks": facts["damaged_chunks"],
            "filtered": self.filtered,
            **known,
        }

    @property
    def file(self) -> dict[str, Any] | None:
        """What is known of the file that the trace was opened from.

        Returns
        -------
        dict or None
            None: it was recorded in this process. ``path``, ``format`` (log or archive),
            ``version`` (of the format), ``bytes``; ``unfinished``, whether the program ended, or
            still runs, without having stopped the recorder; ``live``, whether more may come;
            ``missing``, what could not be read, in words (the first few), and ``missing_count``.
            More, by format.
        """
        if self._file is None:
            return None
        self._core.facts()  # it is known once the events are read
        return self._file()

    @property
    def filtered(self) -> dict[str, int | None]:
        """What include, exclude, max_depth and min_duration left out.

        Returns
        -------
        dict of str to int or None
            ``functions``, whose calls were switched off, or not recorded at all, by include and
            exclude; ``events``, calls and ends that these two left out: None, not known, if there
            are such functions, because what is switched off is not counted; ``deep_calls``, by
            max_depth; ``short_calls``, by min_duration. Calls made inside of deep calls that were
            not recorded are deep, too, and counted.
        """
        facts = self._facts
        return {
            "functions": facts["functions_off"],
            "events": None if facts["functions_off"] else facts["filtered"],
            "deep_calls": facts["deep_calls"],
            "short_calls": facts["short_calls"],
        }

    @property
    def pairing(self) -> dict[str, int]:
        """What could not be paired, and what was mended.

        Returns
        -------
        dict of str to int
            ``calls_misplaced``, calls of Python functions that lie in calls which did not make
            them, because the thread went over to another stack: greenlets (0 where calls were left
            out or lost); ``unmatched_ends``, ends of calls that began before the window or were
            lost;
            ``ends_unseen``, calls whose own end was not reported; ``frees_of_older_blocks``, that
            were allocated before the window; ``frees_of_lost_blocks``, that may have been, or their
            allocation was lost; ``frees_lost``, blocks whose address was given out again unfreed;
            ``swaps_mended``, events of two threads that the clock had in the wrong order.
        """
        return self._core.pairing()

    def verify(self, *, all: bool = False, limit: int = 100) -> Verification:
        """Replay the trace, and say what is wrong with it first.

        Parameters
        ----------
        all : bool
            Give not only the first finding.
        limit : int
            The most of them; all are counted.

        Returns
        -------
        Verification
            True if nothing is wrong.

        Raises
        ------
        ValueError
            `limit` is less than 1.

        Notes
        -----
        Looked at: times in order, known kinds, threads, functions and places; every end against the
        innermost open call of its thread; every free and malloc against what lives at the address;
        counts against rows. What the trace cannot know is no reason to blame it, and is counted in
        ``excused``. Some 50 M events a second; other threads go on meanwhile. Asked before the
        tables are, it looks at the records of the log as well.

        Examples
        --------
        >>> with eventprof.record() as rec:
        ...     sorted("text")
        ['e', 't', 't', 'x']
        >>> rec.trace.verify().ok
        True
        """
        from .verification import verify

        if limit < 1:
            raise ValueError(f"limit: at least one finding, not {limit}")
        return verify(self, all, limit)

    # ---- Tables ----------------------------------------------------------------------------------

    def _title(self, name: str) -> str:
        """Give a table's name; of a trace with loss, which may falsify it, with that word."""
        missing = []
        if self.loss:
            are = "event is" if self.loss.total == 1 else "events are"
            missing.append(f"{self.loss.total:,} {are} missing")
        damaged = self._facts["damaged_chunks"]
        if damaged:
            missing.append(f"{plural(damaged, 'part')} could not be read")
        return f"{name} (with loss: {', '.join(missing)})" if missing else name

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
            ``start``, ``duration`` and ``self_time`` (without the calls inside) int64, ns.
            ``thread`` int32, row of `threads`. ``function`` int32, row of `functions`, and ``name``
            text. ``kind`` text, how it began: call, resume, throw or c_call; or what else it is:
            span, gc or hpy. A generator has a row for each of its runs. ``depth`` int32.
            ``parent`` int32, row of this table, null for outermost calls. ``caller``
            int32 and ``caller_line`` int32. ``flags`` uint8, a sum of: 1 open when the window
            began, 2 open when it ended, 4 ended by a yield, 8 ended by an exception, 16 its end
            was not seen, 32 recursive. The duration of a call with 1, 2 or 16 is that within the
            window, a lower bound. The bits' names are in `CALL_FLAGS` of eventprof.trace.
            ``allocated`` and ``freed`` int64, bytes, and ``blocks`` (allocated) int32, in the call
            itself; ``allocated_below``, ``freed_below`` and ``blocks_below`` with the calls
            inside. ``task`` text: the name of the asyncio task that it was part of, as it was when
            the task's slice began; null outside of tasks.
        """
        load = self._core.calls
        function, name = self._function_columns(load)
        return Table(
            self._title("calls"),
            [
                _number(load, "start", np.int64, "never", "ns", "since the window's start"),
                _number(load, "duration", np.int64, "never", "ns", "from start to end"),
                _number(load, "self_time", np.int64, "never", "ns", "without the calls inside"),
                _number(load, "thread", np.int32, "never", "", "row of threads"),
                function,
                name,
                self._kind_column("kind", load, "how it began", _CALL_WORDS),
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
            ``blocks`` allocated; of what it allocated: ``alive`` at the end, ``churn`` (freed
            again), ``temporary`` (freed in the call that made it, or before the thread's next
            allocation), ``peak_live`` (alive at the trace's peak).

        Notes
        -----
        A block counts for the function of the innermost open call, so a builtin has what it
        allocated itself; without recorded calls, for the Python function that was executing.
        """
        rows = self._core.functions()
        names, modules, files, lines, kinds = zip(*rows, strict=True) if rows else ((),) * 5
        line_values = np.array([-1 if line is None else line for line in lines], dtype=np.int32)

        def statistic(name: str, unit: str, doc: str, *, may_lack: bool = False) -> Column:
            return Column(
                name,
                lambda: self._function_stats[name][: len(rows)],
                np.float64 if name == "mean" else np.int64,
                null="negative" if may_lack else "never",
                unit=unit,
                doc=doc,
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
                statistic("alive", "bytes", "of allocated: at the end"),
                statistic("churn", "bytes", "of allocated: freed again"),
                statistic("temporary", "bytes", "of churn: at once"),
                statistic("peak_live", "bytes", "of allocated: at the peak"),
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
            ``file`` text; ``line`` int32. ``hits`` int64, how often it began; ``time`` int64, ns,
            from there until the next line of the same call began, or the call ended or yielded:
            with all that the line called; ``self_time`` int64, ns, without the calls that were
            recorded. ``allocated`` int64, bytes, and ``blocks`` int64: while the line was
            executing; what functions that are not in Python allocate is of the line that called
            them. The first three numbers are null unless lines were recorded
            (``record(lines=True)``), the last two unless memory was.

        Notes
        -----
        Of a recursive function's line that is open several times on a thread the outermost counts,
        so that no line takes longer than its thread. The last line of a call that was still open
        takes until the window's end. Without recorded calls (``calls=False``) a line takes until
        its thread's next line, in whichever function, and ``self_time`` is the same. A realloc
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

        def number(name: str, values: Array, known: bool, unit: str, doc: str) -> Column:
            mask = np.full(len(values), not known)
            return Column(name, lambda: values, np.int64, null=lambda: mask, unit=unit, doc=doc)

        return Table(
            self._title("lines"),
            [
                function,
                self._text_of_function("name", function, "the function's qualified name"),
                self._text_of_function("file", function, "its source file"),
                Column("line", lambda: lines, np.int32, doc="in the file"),
                number("hits", hits, began, "", "how often it began"),
                number("time", time, began, "ns", "until the call's next line, or its end"),
                number("self_time", self_time, began, "ns", "without recorded calls inside"),
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
    def memory(self) -> Table:
        """Live memory after every change; blocks older than the window are not in it.

        Returns
        -------
        Table
            ``time`` int64, ns; ``live`` int64, bytes; ``blocks`` int64. See `memory_of` for one
            domain, and `memory_bins` for plots.
        """
        return self.memory_of()

    def _domain_bits(self, domains: Iterable[str] | str | None) -> int:
        if domains is None:
            return (1 << len(_DOMAINS)) - 1
        bits = 0
        for domain in [domains] if isinstance(domains, str) else domains:
            if domain not in _DOMAINS:
                raise ValueError(
                    f"domains: {domain!r} is none of {', '.join(_DOMAINS)}"
                    f"{did_you_mean(domain, _DOMAINS)}"
                )
            bits |= 1 << _DOMAINS.index(domain)
        if bits == 0:
            raise ValueError(f"domains: at least one of {', '.join(_DOMAINS)}")
        return bits

    def memory_of(self, domains: Iterable[str] | str | None = None) -> Table:
        """Give live memory of some domains after every change.

        Parameters
        ----------
        domains : str or iterable of str, optional
            Of raw, mem, obj, numpy, libc; all without.

        Returns
        -------
        Table
            As `memory`.

        Raises
        ------
        ValueError
            There is no such domain.
        """
        time, live, blocks = self._core.curve(self._domain_bits(domains))
        return Table.from_columns(
            self._title("memory"),
            {"time": time, "live": live, "blocks": blocks},
            units={"time": "ns", "live": "bytes"},
        )

    @cached_property
    def resident(self) -> Table:
        """The process's resident set, sampled at both ends and whenever a chunk of the log began.

        Returns
        -------
        Table
            ``time`` int64, ns; ``bytes`` int64. Empty where the system does not say (not Linux).
        """
        time, resident = self._core.resident()
        return Table.from_columns(
            "resident", {"time": time, "bytes": resident}, units={"time": "ns", "bytes": "bytes"}
        )

    @cached_property
    def runtime(self) -> Table:
        """What PyPy's compiler and garbage collector told, in a trace that was saved there.

        Returns
        -------
        Table
            ``time`` int64, ns since the window's start; ``event`` text: jit_compile, jit_abort,
            jit_trace_too_long, gc_minor, gc_collect_step, gc_collect; ``thread`` int32, row of
            `threads`; ``name``, ``module``, ``file`` text and ``line`` int32 of the function that
            was compiled; ``details`` text, the rest as JSON; and a column for each of these details
            that is a number or text. Null where unknown. Without rows for what CPython recorded.
        """
        from .runtime import table

        return table(self._recorder_metadata.get("runtime_events"))

    def memory_bins(self, count: int, domains: Iterable[str] | str | None = None) -> Table:
        """Give live memory in bins of equal length, for plots.

        Parameters
        ----------
        count : int
            Of bins.
        domains : str or iterable of str, optional
            As in `memory_of`.

        Returns
        -------
        Table
            ``time`` int64, ns, of the bin's start; ``min``, ``max``, ``last`` int64, bytes;
            ``blocks`` int64, at its end.

        Raises
        ------
        ValueError
            There is no such domain, or no bin.
        """
        if count < 1:
            raise ValueError(f"count: at least one bin, not {count}")
        low, high, last, blocks = self._core.bins(self._domain_bits(domains), count)
        start = np.array([self.duration * k // count for k in range(count)], dtype=np.int64)
        return Table.from_columns(
            self._title("memory in bins"),
            {"time": start, "min": low, "max": high, "last": last, "blocks": blocks},
            units={"time": "ns", "min": "bytes", "max": "bytes", "last": "bytes"},
        )

    @cached_property
    def _thread_rows(
        self,
    ) -> list[tuple[str | None, int, int, int, dict[int, int], dict[int, int]]]:
        return self._core.threads()

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

    # ---- Files -----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], force: bool = False) -> None:
        """Write the trace to a file, which `eventprof.open` reads: about 1 byte an event.

        Parameters
        ----------
        path : str or path-like
            Where to; ``.epr`` is the usual suffix.
        force : bool
            Replace what is there.

        Raises
        ------
        FileExistsError
            There is something already, and `force` was not given.
        ValueError
            The name says another format, as ``.json`` does: `export` writes those.
        OSError
            The system refused: the disk is full, there is no such directory. Nothing is left
            behind then, and what was there before is as it was.

        Notes
        -----
        Of a trace that was opened from a file the new one gives nobody more rights than that does.
        The file appears when it is whole, in one step. Some 50 M events a second, and other threads
        go on meanwhile.
        """
        from .saving import save

        save(self._core, self._recorder_metadata, path, force, self._rights)

    def __reduce__(self) -> tuple[Callable[..., Trace], tuple[Any, ...]]:
        """Put an archive of the trace into a pickle: about 1 byte an event."""
        from . import saving

        archive = saving.to_bytes(self._core, self._recorder_metadata)
        return _of_archive, (archive, self._recorder_metadata, self.file)

    def export(
        self,
        path: str | os.PathLike[str] | IO[bytes],
        format: str | None = None,
        *,
        table: str | None = None,
        weight: str | None = None,
        threads: Sequence[str] | str | None = None,
        between: tuple[int, int] | None = None,
        functions: Sequence[str] | str | None = None,
        own: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[str]:
        """Write the trace as a file that another tool reads.

        Parameters
        ----------
        path : str, path-like or binary file
            Where to. A file that is there is replaced, whole or not at all. A name that ends with
            ``.gz`` is compressed.
        format : str, optional
            perfetto, chrome, firefox, speedscope, collapsed, callgrind, pprof, pstats, csv, jsonl,
            parquet, arrow, sqlite, duckdb or otlp; without, what the file's name ends with says
            which.
        table : str, optional
            Of csv, jsonl, parquet and arrow: which table; calls without.
        weight : str, optional
            Of collapsed: self (ns), calls, allocated, blocks, at_peak or live; self without.
        threads : str or sequence of str, optional
            Only threads of these names, which may be globs, or native ids.
        between : (int, int), optional
            Only what happened from the one time to the other, in ns since the window's start; calls
            are cut there.
        functions : str or sequence of str, optional
            Only calls of functions that these globs match, as those of ``include=``, and the calls
            inside.
        own : bool
            Leave out the standard library and what is installed: their time and memory count for
            the function that called them.
        progress : callable, optional
            Is called now and then with how many calls are written, and how many there are.

        Returns
        -------
        list of str
            What the format could not carry.

        Raises
        ------
        ValueError
            There is no such format, table, thread or function; or the format cannot do what was
            asked.
        ModuleNotFoundError
            The format needs a package that is not installed.
        OSError
            The system refused. Nothing is left behind then, and what was there is as it was.

        Examples
        --------
        >>> with eventprof.record(memory=False) as rec:
        ...     sorted("text")
        ['e', 't', 't', 'x']
        >>> rec.trace.export("sorted.json")
        []
        >>> rec.trace.export("sorted.csv", table="functions")
        []
        """
        from .export import export

        return export(
            self,
            path,
            format,
            table=table,
            weight=weight,
            threads=threads,
            between=between,
            functions=functions,
            own=own,
            progress=progress,
        )

    # ---- For people ------------------------------------------------------------------------------

    def show(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        title: str | None = None,
        grain: int = 1,
        force: bool = False,
    ) -> str:
        """Show the trace as a page: every call on a timeline, over who held the memory.

        Parameters
        ----------
        path : str or path-like, optional
            Where the page goes; nothing is opened then. Without, it is written to a temporary
            folder and opened in the browser.
        title : str, optional
            What stands above it; without, the program's name.
        grain : int
            Times are rounded down to multiples of so many ns, which makes a smaller page.
        force : bool
            Replace what is at `path`.

        Returns
        -------
        str
            The path of the page: one HTML file that needs no server and no network.

        Raises
        ------
        FileExistsError
            There is something at `path` already, and `force` was not given.
        ValueError
            The grain is less than 1.
        OSError
            The system refused: the disk is full, there is no such directory. Nothing is left
            behind then.
        """
        from .viewer import open_page, write

        if grain < 1:
            raise ValueError(f"grain: at least 1 ns, not {grain}")
        if path is None:
            return open_page(self, title=title, grain=grain)
        write(self, path, title=title, grain=grain, force=force)
        return os.fspath(path)

    def __repr__(self) -> str:
        lost = f", {self.loss.total:,} lost" if self.loss else ""
        damaged = self._facts["damaged_chunks"]
        damaged_text = f", {plural(damaged, 'part')} damaged" if damaged else ""
        off = self._facts["functions_off"]
        off_text = f", {plural(off, 'function')} switched off" if off else ""
        return (
            f"<eventprof.Trace: {plural(self._facts['events'], 'event')} of "
            f"{plural(len(self._thread_rows), 'thread')} in {show_ns(self.duration)}{lost}"
            f"{damaged_text}{off_text}>"
        )

    def __str__(self) -> str:
        from .report import text

        return text(self)

    def report(
        self, file: IO[str] | None = None, width: int | None = None, limit: int = 15
    ) -> None:
        """Print a page that says where the time and the memory went.

        Parameters
        ----------
        file : text file, optional
            Where to; standard output without.
        width : int, optional
            In columns; without, the terminal's, or 80. At least 40.
        limit : int
            How many functions the table of times shows; the other tables show half as many.

        Raises
        ------
        TypeError, ValueError
            A number is none, or too small; nothing was printed.
        """
        from .report import report

        report(self, file, width, limit)


def _of_archive(archive: bytes, metadata: dict[str, Any], file: dict[str, Any] | None) -> Trace:
    """Make a trace of what `Trace.__reduce__` gave."""
    from . import saving

    core = saving.from_bytes(archive)
    return Trace(core, metadata, None if file is None else lambda: file)


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
        words=Words(lambda: _DOMAINS),
        doc="which allocator",
    )


def _text(name: str, texts: tuple[str | None, ...], doc: str, *, null: Null = "negative") -> Column:
    codes, words = encode(texts)
    return Column(name, lambda: codes, null=null, words=words, doc=doc)


def _map(codes: Array, rows: Array) -> Array:
    """Give codes[rows], and -1 for row -1."""
    return _core.gather(np.append(codes, codes.dtype.type(-1)), rows)
