"""A recording and its tables: the first half of `Trace`, which only asks other modules."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from ..answers.table import gil_table, own_table, tree_table
from ..answers.tasks import tasks_table
from ..answers.tree import Tree
from ..answers.verification import find_pairing
from ..answers.waiting import waits_table
from ..tables import (
    collector,
    labels,
    memory,
    objects,
    processes,
    requests,
    runtime,
    tables,
    user_events,
)
from ..tables.column import Array
from ..tables.facts import Facts
from ..tables.labels import LabelSets
from ..tables.memory_taken import watched
from ..tables.table import Table
from .memory_table import MemoryTable


class Recorded(Facts):
    """What was recorded, as tables; each column is computed when first asked for."""

    _own_patterns: tuple[str, ...] | None = None

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
        return watched("events", tables.events_table(self))

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
        return watched("calls", tables.calls_table(self))

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
        return watched("allocations", tables.allocations_table(self))

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
            a resume or throw; ``recursive``, calls and resumes that began while it was open on
            the thread. Times, int64 ns: ``total`` with the function open (of recursive calls the
            outermost), ``self`` with it innermost; ``waited`` and ``waited_self``, the parts of
            both in which another thread had the interpreter's lock, a lower bound, or, with
            recorded waits, in which the thread waited; then also ``waited_gil``, ``waited_lock``,
            ``waited_sleep``, ... by the kinds of `waits`; ``mean``
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
        file is read once for them, and once more for ``p50``, ``p95`` and ``p99``, chunk by chunk.
        These three are counted in bins: below 128 ns they are exact, above off by less than 1 %.
        """
        return tables.functions_table(self)

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
        return tables.lines_table(self)

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
        return tables.threads_table(self)

    @cached_property
    def processes(self) -> Table:
        """Every process of the trace: several, if it was merged, or opened from a folder.

        Returns
        -------
        Table
            ``pid`` int64; ``parent`` int32, row of this table, null if the parent is not in the
            trace; ``name`` text, the program and its arguments, and ``host`` text, null where
            unknown. ``start`` and ``end`` int64, ns since the trace's start, of its recording;
            ``state`` text: ended, running, or unfinished (killed, or ended by ``os._exit`` or
            ``os.exec*``). ``events`` and ``lost`` int64; ``file`` text, null if there is none.

        Notes
        -----
        `events`, `calls`, `allocations` and `threads` of a merged trace have a column ``process``
        int32, row of this table.
        """
        return processes.processes_table(self)

    @cached_property
    def memory(self) -> MemoryTable:
        """Live memory after every change; blocks older than the window are not in it.

        Returns
        -------
        Table
            ``time`` int64, ns; ``live`` int64, bytes; ``blocks`` int64. See `memory_of` for one
            domain, and `memory_bins` for plots; ``memory.plot()`` draws it by matplotlib.
        """
        return self.memory_of()

    def memory_of(self, domains: Iterable[str] | str | None = None) -> MemoryTable:
        """Return live memory of some domains after every change.

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
        return MemoryTable(*memory.live_columns(self, domains))

    def memory_bins(self, count: int, domains: Iterable[str] | str | None = None) -> Table:
        """Return live memory in bins of equal length, for plots.

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
        return memory.memory_bins(self, count, domains)

    @cached_property
    def resident(self) -> Table:
        """The process's resident set over time, sampled every 10 ms while memory is recorded.

        Returns
        -------
        Table
            ``time`` int64, ns; ``bytes`` int64; ``recorder`` int64, how many of these bytes are
            the recorder's own: its log (of a file, the part of the file that is in memory), its
            tables of names and threads. Null where that is unknown: in logs before version 2.2,
            archives before 1.4, and where one of them was merged. Empty where the system does not
            say (not Linux).

        Notes
        -----
        A thread of the recorder's own samples it, the program's threads do not wait; of windows
        longer than eleven minutes the samples thin out. Further samples are taken at both ends and
        whenever a chunk of the log began: these are all where no memory is recorded. A chunk counts
        whole from its beginning, so ``recorder`` is too large by what is still free in the chunks
        of the threads: at most 1 MiB of each, and little of a thread that does little.
        """
        return memory.resident_table(self)

    @cached_property
    def tree(self) -> Table:
        """The calling-context tree: calls, time and bytes by path of calls.

        Returns
        -------
        Table
            Row 0 is the root, the sum of all threads; parents come before their children. ``node``
            and ``parent`` int32, rows of this table; ``depth`` int32. ``function`` int32, row of
            `functions`; ``name``, ``file`` text and ``line`` int32, its first line;
            ``caller_file`` text and ``caller_line`` int32: where it was called. ``calls`` and
            ``resumes`` int64, begun in the window; ``raised``, those that an exception ended.
            ``total``, ``self``, ``waited``, ``waited_self`` int64, ns. The last two are the parts
            of the first two in which another thread had the interpreter's lock; they are null for
            an interpreter without a lock. With recorded waits they are the parts in which the
            thread waited, and ``waited_gil``, ``waited_gil_self``, ``waited_lock``, ... tell what
            for, by the kinds of `waits`; else these are null. ``longest`` and ``shortest`` int64,
            ns, of calls whose begin and end were recorded. ``allocated``, ``blocks``, ``live`` (at
            the end), ``at_peak`` and ``temporary`` int64, of the node and all nodes below it; a
            name that ends with ``_self`` is of the node alone. ``freed_self``: bytes that the node
            freed, whichever node allocated them.

        Notes
        -----
        A node is a function, its caller and the line of the call, below its parent; all threads
        share the tree. A file is read chunk by chunk, without making its columns. Above a million
        nodes the smallest become one child "other" of the node above them.
        """
        return tree_table(self, self._tree)

    @cached_property
    def gil(self) -> Table:
        """Which thread held the interpreter's lock when, as far as is recorded.

        Returns
        -------
        Table
            One row for each tenure, a maximal run of events of one thread: ``thread`` int32, row
            of `threads`; ``start`` and ``end`` int64, ns; ``events`` int64. Between two tenures the
            holder is not known. Where waits were recorded, a tenure begins when the thread's wait
            for the lock ended, and ends when the thread began to wait for anything but a processor.
            An interpreter without such a lock has no rows.
        """
        return gil_table(self)

    @property
    def own(self) -> Table:
        """What each line of own code cost, with all that libraries did for it.

        Returns
        -------
        Table
            One row for each own line, the most time first: ``function`` int32, row of `functions`;
            ``name``, ``file`` text; ``line`` int32, null for the time that a function took outside
            of its calls; ``calls`` int64, made in the line; ``total`` int64, ns, in what the line
            called; ``self`` int64, ns, the time charged to this line, without the time charged to
            other own lines; ``waited`` int64, ns, the part of ``self`` that waited for the
            interpreter's lock; ``allocated``, ``blocks``, ``live`` and ``at_peak`` int64, charged
            to the line.

        Notes
        -----
        The time and memory of the standard library and of installed packages are charged to the
        nearest own line that called them. `set_own` says what own code is; by default it is what
        lies neither in the standard library nor in site-packages.
        """
        return own_table(self, self._tree, self._own_patterns)

    @property
    def marks(self) -> Table:
        """Every `eventprof.mark`.

        Returns
        -------
        Table
            ``time`` int64, ns since the window's start. ``thread`` int32, row of `threads`.
            ``name`` text. ``caller`` int32, row of `functions`, and ``caller_line`` int32: where it
            was made; null where unknown.
        """
        return user_events.marks_table(self)

    @property
    def counters(self) -> Table:
        """Every `eventprof.counter`.

        Returns
        -------
        Table
            As `marks`, and ``value`` float64.
        """
        return user_events.counters_table(self)

    @property
    def flows(self) -> Table:
        """Every station of every `eventprof.flow`.

        Returns
        -------
        Table
            As `marks`, and ``id`` int64, the same at all stations of one flow, and ``phase`` text:
            begin, step or end.
        """
        return user_events.flows_table(self)

    @property
    def spans(self) -> Table:
        """Every `eventprof.span`, in order of start.

        Returns
        -------
        Table
            ``start`` and ``duration`` int64, ns. ``thread`` int32, row of `threads`. ``name`` text.
            ``call`` int32, its row in `calls`; null for one that need not nest in the calls around
            it: in a generator or coroutine, or entered by an ExitStack. ``caller`` int32, row of
            `functions`, and ``caller_line`` int32: where it began. ``flags`` uint8, as in `calls`:
            1 it began before the window, or its begin was lost; 2 open when the window ended; 16
            its end was not seen. The duration is a bound then. Each name that `eventprof.label`
            gave is one more column of text; `marks`, `counters` and `flows` have these, too.
        """
        return user_events.spans_table(self)

    @property
    def audit(self) -> Table:
        """Every audit event that was asked for, of ``record(audit=...)``.

        Returns
        -------
        Table
            As `marks`. Arguments of events are not kept.
        """
        return user_events.audit_table(self)

    @property
    def labels(self) -> Table:
        """Every value of every `eventprof.label`, and what was done with it.

        Returns
        -------
        Table
            ``name`` and ``value`` text; ``spans`` and ``calls`` int64, that began with it; ``self``
            int64, ns, in these calls; ``allocated`` int64, bytes, by them. In the order in which
            the labels came.
        """
        return labels.labels_table(self)

    @property
    def waits(self) -> Table:
        """Every time that a thread stopped, of ``record(waits=True)``, in order of start.

        Returns
        -------
        Table
            ``start`` and ``duration`` int64, ns. ``thread`` int32, row of `threads`. ``kind`` text:
            gil (the interpreter's lock), lock (another lock, a condition, a queue, the end of a
            thread), sleep, io (a file, a pipe, a socket), process (its end), processor (others had
            them all), greenlet (others of its thread ran), critical (another thread uses an
            object) or world (all threads are stopped), both without a GIL, or other (not known).
            ``object`` text: lock, process, file, pipe, socket, terminal, events (what watches
            others), device or object, and ``object_id`` uint64: its inode, the number of the
            process, or the address / 8 of a lock or object; null where unknown. ``type`` text: the
            object's; null where unknown. ``waker`` int32, row of `threads`: the thread that let it
            go on; null where unknown.
            ``name`` and ``file`` text, ``caller_line`` int32 and ``caller`` int32, row of
            `functions`: where it waited; null in code of no recorded function. ``own_caller``
            and ``own_line`` int32: the innermost own line that waited, or called what waited.
            ``flags`` uint8: 2 it went on when the window ended. ``call`` int32, row of `calls`: the
            innermost call in which it waited; null outside of all. ``meanwhile`` text: what the
            waker did in most of that time, a word of ``kind`` or work; ``meanwhile_name`` text and
            ``meanwhile_line`` int32: its own line that waited.

        Notes
        -----
        Of processes recorded together, the waker at a pipe is the thread that wrote to it, and
        that at the end of a process is its first thread. A lock of Python 3.13 and later has no
        address, as it is not the system's.

        A lock that is free is taken without a wait, and makes no row. A read or a write of less
        than 20 us is none either. Rows of processor and other are what was neither work nor
        another wait since a thread's last look at its processor time, 10 ms before as a rule: they
        end at the look, and may have been earlier than ``start`` says.
        """
        return waits_table(self)

    @property
    def tasks(self) -> Table:
        """Every time that a task of asyncio did not run, in order of start.

        Returns
        -------
        Table
            ``task`` int32, its number in this table, ``task_name`` text, its last name. ``start``
            int64, ns: its step ended; ``ready``: what it awaited was over, so that it could go on;
            ``end``: its next step began; ``queued``: from ready to end, in the queue of its loop;
            ``unseen``: so long before ``ready``, at most, it could have gone on already, but the
            loop ran other work and did not look at its files. ``kind`` text: start (it was made,
            and its first step follows), sleep, socket (or pipe), lock, queue, task, executor (the
            work of another thread), process or other. ``name`` and ``file`` text, ``line`` int32:
            the own line that awaits, of a start the one that made the task; ``through`` text: what
            awaits there, if it is of a library. ``by_task`` int32, ``by_thread`` int32, row of
            `threads`, ``by`` text and ``by_line`` int32: who made it ready. ``thread`` int32, row
            of `threads`: of its loop. ``function`` and ``by_function`` int32, rows of `functions`:
            of ``name`` and of ``by``. What is unknown is null; ``end`` is, where the window ended
            before.

        Notes
        -----
        Recorded with calls. ``ready`` and what follows from it are known of loops that are written
        in Python; of others, such as uvloop's, they are null. A row needs the calls of asyncio, so
        none may be left out by a filter.
        """
        return tasks_table(self)

    @property
    def requests(self) -> Table:
        """Every `eventprof.request`, and every request that a middleware saw, in order of start.

        Returns
        -------
        Table
            ``request`` text: the value of its label ``request``. ``method``, ``route``, ``path``,
            ``status`` and ``error`` text: its labels; null where it has none. ``start`` and
            ``total`` int64, ns. ``busy`` int64, ns: how long its calls were open, on any thread; in
            the rest of the time it waited as a task. ``waited`` int64, ns: the part of busy in
            which another thread had the interpreter's lock. ``calls`` int64. ``allocated`` int64,
            bytes, by its calls. ``most_in`` text: the function with the most self time among its
            calls, and ``most_self`` int64, ns: that time. ``span`` int32, row of `spans`, and
            ``flags`` uint8 as there.

        Notes
        -----
        Calls belong to the request in whose context they began: also in tasks that it made, in
        ``asyncio.to_thread`` and in ``contextvars.copy_context().run``. Of a request in another one
        they belong to the inner one. Where no calls are recorded, only ``total`` is known.
        """
        return requests.requests_table(self)

    @property
    def gc(self) -> Table:
        """Every run of the garbage collector, of ``record(gc=True)``.

        Returns
        -------
        Table
            ``start`` and ``duration`` int64, ns. ``thread`` int32, row of `threads`.
            ``generation`` int32. ``collected`` and ``uncollectable`` int64, objects; null where the
            end was not recorded. ``freed`` int64, bytes that the thread freed in the run;
            ``live_before`` and ``live_after`` int64, bytes, of blocks made in the window: null
            where memory was not recorded. ``call`` int32, row of `calls`. ``caller`` int32, row of
            `functions`, and ``caller_line`` int32: where it was triggered. ``flags`` uint8, as in
            `calls`.
        """
        return collector.gc_table(self)

    @property
    def objects(self) -> Table:
        """Objects by type, as ``record(refs=True)`` records them on Python 3.13 and later.

        Returns
        -------
        Table
            One row a type, the most created first: ``name`` and ``module`` text; int64 ``created``
            in the window; ``destroyed`` in the window, of them ``older`` ones, created before it;
            ``churn``, created and destroyed in it; ``unseen``, whose end was not reported, although
            their address was given out again; ``live``, created in it and alive at its end, as far
            as is known.

        Notes
        -----
        The interpreter does not report all objects: see the page on objects.
        """
        return objects.objects_table(self)

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
        return runtime.table(self._recorder_metadata.get("runtime_events"))

    @property
    def pairing(self) -> dict[str, int]:
        """Counts of events that could not be paired, and of corrections.

        Returns
        -------
        dict of str to int
            ``calls_misplaced``: calls of Python functions that lie in calls which did not make
            them, because the thread switched to another greenlet unseen (0 if calls were left out
            or lost). ``unmatched_ends``: ends of calls whose begin was before the window or was
            lost. ``ends_unseen``: calls whose end was not reported. ``frees_of_older_blocks``:
            frees of blocks from before the window. ``frees_of_lost_blocks``: frees of blocks that
            are older or whose allocation was lost. ``frees_lost``: blocks whose address was given
            out again without a free. ``swaps_mended``: events of two threads whose clocks had them
            in the wrong order.

        Notes
        -----
        Of a file they come from one pass. Only if some call may be misplaced, columns of all calls
        and blocks are made.
        """
        return find_pairing(self)

    # ---- What several tables are made of ---------------------------------------------------------

    @cached_property
    def _tree(self) -> Tree:
        """The tree of calls, from one pass over the recording."""
        return Tree(self)

    @cached_property
    def _thread_tree(self) -> Tree:
        """The tree of calls, with a node for each thread, and without a limit."""
        return Tree(self, by_thread=True)

    @cached_property
    def _function_figures(self) -> dict[str, Array]:
        """The figures of functions: all but percentiles."""
        return self._tree.by_function()

    @cached_property
    def _percentiles(self) -> dict[str, Array]:
        """The percentiles of functions."""
        return Tree(self, lengths=True).by_function()

    @cached_property
    def _label_sets(self) -> LabelSets:
        """The sets of labels, and which of them a thread had when."""
        return LabelSets(self)

    @cached_property
    def _labels_of_calls(self) -> Array:
        """The row of the sets of labels that each call began with; -1: none."""
        return labels.of_calls(self)
