"""The trace of a recorder on PyPy, and its tables, without NumPy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import IO, Any, cast

from ..tables import TABLES
from ..tables.facts import Facts, in_one_line
from ..tables.kinds import CALL_FLAGS, WORDS
from ..tables.loss import Loss
from . import decode, runtime
from .core import missing
from .tables import Column, Table


def _opt(values: list[int]) -> list[int | None]:
    return [None if value < 0 else value for value in values]


class _Core:
    """What `Facts` asks of the extension's part of a trace."""

    def __init__(self, data: decode.Data) -> None:
        self._data = data

    @cached_property
    def pairs(self) -> decode.Calls:
        """The calls."""
        return decode.pair(self._data)

    def facts(self) -> dict[str, Any]:
        """Return the facts that do not depend on the calls."""
        data = self._data
        return {
            "duration_ns": data.duration,
            "start_monotonic_ns": data.start.monotonic_ns,
            "start_realtime_ns": data.start.realtime_ns,
            "clock_frequency_hz": data.frequency_hz,
            "full": data.full,
            "damaged_chunks": data.damaged,
            "filtered": data.filtered,
            "functions_off": 0,
            "deep_calls": 0,
            "short_calls": 0,
            "kinds": data.kinds_asked,
            "events": len(data.times) + len(data.notes),
        }

    def threads(self) -> list[tuple[Any, ...]]:
        """Return name, native id, first and last time, counts of recorded and lost of each."""
        return [
            (one.name, one.native_id, one.first, one.last, one.recorded, one.lost)
            for one in self._data.threads
        ]

    def pairing(self) -> dict[str, int]:
        """Return what could not be paired."""
        calls = self.pairs
        return {"unmatched_ends": calls.unmatched_ends, "ends_unseen": calls.ends_unseen}


class Trace(Facts):
    """What one window recorded, as tables; each is computed when first asked for.

    Made by `Recorder.trace`, `Recorder.snapshot` and `eventprof.open`.

    Parameters
    ----------
    data : Data
        Events in order of time.
    metadata : mapping
        What the recorder knows of the run.
    stats : runtime.Stats, optional
        What the compiler counted in the window.
    file : mapping, optional
        What is known of the file that it was read from.
    """

    def __init__(
        self,
        data: decode.Data,
        metadata: Mapping[str, Any],
        stats: runtime.Stats | None = None,
        file: Mapping[str, Any] | None = None,
    ) -> None:
        self._made = _Core(data)
        # In the place of the extension's part.
        super().__init__(
            cast(Any, self._made), metadata, None if file is None else lambda: {**file}
        )
        self._data = data
        self._stats = stats

    # ---- Facts -----------------------------------------------------------------------------------

    @cached_property
    def loss(self) -> Loss:
        """The events that found no room: by kind and by thread; false if there are none."""
        lost, of_interpreter = super().loss, self._data.notes_lost
        if not of_interpreter:
            return lost
        return Loss(lost.by_kind | {"jit or gc": of_interpreter}, lost.by_thread, lost.reason)

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """What is known of the run: as on CPython, and ``jit``, the compiler's counters."""
        return {"jit": None if self._stats is None else self._stats._asdict(), **super().metadata}

    @property
    def stats(self) -> runtime.Stats | None:
        """What the compiler counted in the window; null if it had traced nothing until its end."""
        return self._stats

    # ---- Tables ----------------------------------------------------------------------------------

    @property
    def _pairs(self) -> decode.Calls:
        return self._made.pairs

    def _names(self, functions: list[int]) -> list[str | None]:
        names = [one.name for one in self._data.functions]
        return [None if one < 0 else names[one] for one in functions]

    @cached_property
    def _merged(self) -> list[tuple[int, int]]:
        """Events and notes in order of time: (row of events, -1) or (-1, row of notes)."""
        times, notes = self._data.times, self._data.notes
        merged: list[tuple[int, int]] = []
        note = 0
        for row, time in enumerate(times):
            while note < len(notes) and notes[note].time < time:
                merged.append((-1, note))
                note += 1
            merged.append((row, -1))
        merged.extend((-1, rest) for rest in range(note, len(notes)))
        return merged

    @cached_property
    def events(self) -> Table:
        """Every recorded event, in order of time; events of one thread in their own order.

        Returns
        -------
        Table
            ``time`` int, ns since the window's start. ``event`` text: call, return, yield, resume,
            unwind, c_call, c_return, c_exception; jit_compile, jit_abort, jit_trace_too_long,
            gc_minor, gc_collect_step, gc_collect, whose details are in `jit` and `gc`. ``thread``,
            row of `threads`. ``function``, row of `functions`: the callee's, or the one that was
            compiled; ``name``, its qualified name; ``line``, its first, or where the compiled loop
            begins. ``depth``: how many calls enclose the event. ``caller``, row of `functions`, and
            ``caller_line``: of calls and their ends; the line is known where a builtin is called.
            Unknown is None.
        """
        data, merged = self._data, self._merged
        lines = [one.line for one in data.functions]

        def column(of_event: Any, of_note: Any) -> list[Any]:
            notes = data.notes
            return [of_event(row) if row >= 0 else of_note(notes[note]) for row, note in merged]

        def of_function(values: list[Any], function: int) -> Any:
            return None if function < 0 else values[function]

        def caller(values: list[int]) -> Any:
            def get(row: int) -> int | None:
                call = self._pairs.event_call[row]
                return None if call < 0 or values[call] < 0 else values[call]

            return get

        def depth(row: int) -> int | None:
            found = self._pairs.event_depth[row]
            return None if found < 0 else found

        names = [one.name for one in data.functions]
        return Table(
            "events",
            [
                Column("time", lambda: column(data.times.__getitem__, lambda n: n.time),
                       unit="ns", doc="since the window's start"),
                Column("event", lambda: column(lambda row: WORDS[data.kinds[row]],
                                               lambda n: n.event),
                       "text", doc="what happened"),
                Column("thread", lambda: column(data.threads_of.__getitem__, lambda n: n.thread),
                       doc="row of threads"),
                Column("function",
                       lambda: column(data.functions_of.__getitem__,
                                      lambda n: None if n.function < 0 else n.function),
                       nullable=True, doc="row of functions"),
                Column("name",
                       lambda: column(lambda row: of_function(names, data.functions_of[row]),
                                      lambda n: of_function(names, n.function)),
                       "text", nullable=True, doc="the function's qualified name"),
                Column("line",
                       lambda: column(lambda row: of_function(lines, data.functions_of[row]),
                                      lambda n: n.line),
                       nullable=True, doc="the function's first, or the compiled loop's"),
                Column("depth", lambda: column(depth, lambda n: None),
                       nullable=True, doc="how many calls enclose it"),
                Column("caller", lambda: column(caller(self._pairs.caller), lambda n: None),
                       nullable=True, doc="row of functions"),
                Column("caller_line",
                       lambda: column(caller(self._pairs.caller_line), lambda n: None),
                       nullable=True, doc="where it was called"),
            ],
            len(merged),
        )  # fmt: skip

    @cached_property
    def calls(self) -> Table:
        """Every call, in order of start; parents before their children.

        Returns
        -------
        Table
            ``start``, ``duration`` and ``self`` (without the calls inside), ns. ``thread``,
            row of `threads`. ``function``, row of `functions`; its ``name``, ``file`` and first
            ``line``. ``kind``, how it began: call, resume or c_call; a generator has a row for each
            of its runs. ``depth``; ``parent``, row of this table; ``caller``; ``caller_line``;
            ``flags``, a sum of: 1 open when the window began, 2 open when it ended, 4 ended by a
            yield, 8 ended by an exception, 16 its end was not seen, 32 recursive.
        """
        pairs, rows = self._pairs, self._data.functions
        # By thread they are in order; sorting keeps parents before children that began with them.
        order = sorted(range(len(pairs.start)), key=pairs.start.__getitem__)
        place = [0] * len(order)
        for row, call in enumerate(order):
            place[call] = row

        def pick(values: list[int]) -> list[Any]:
            return [values[call] for call in order]

        def parents() -> list[int | None]:
            found = pick(pairs.parent)
            return [None if parent < 0 else place[parent] for parent in found]

        return Table(
            self._title("calls"),
            [
                Column("start", lambda: pick(pairs.start), unit="ns",
                       doc="since the window's start"),
                Column("duration", lambda: pick(pairs.duration), unit="ns",
                       doc="from start to end"),
                Column("self", lambda: pick(pairs.self_time), unit="ns",
                       doc="without the calls inside"),
                Column("thread", lambda: pick(pairs.thread), doc="row of threads"),
                Column("function", lambda: pick(pairs.function), doc="row of functions"),
                Column("name", lambda: self._names(pick(pairs.function)), "text",
                       doc="the function's qualified name"),
                Column("file", lambda: [rows[one].file for one in pick(pairs.function)], "text",
                       nullable=True, doc="where the function was defined"),
                Column("line", lambda: [rows[one].line for one in pick(pairs.function)],
                       nullable=True, doc="the function's first"),
                Column("kind", lambda: [WORDS[kind] for kind in pick(pairs.kind)], "text",
                       doc="how it began"),
                Column("depth", lambda: pick(pairs.depth), doc="how many calls enclose it"),
                Column("parent", parents, nullable=True, doc="row of calls"),
                Column("caller", lambda: _opt(pick(pairs.caller)), nullable=True,
                       doc="row of functions"),
                Column("caller_line", lambda: _opt(pick(pairs.caller_line)), nullable=True,
                       doc="where it was called"),
                Column("flags", lambda: pick(pairs.flags),
                       doc=", ".join(f"{bit} {name}" for name, bit in CALL_FLAGS.items())),
            ],
            len(order),
        )  # fmt: skip

    @cached_property
    def functions(self) -> Table:
        """Every function that an event or an open call mentions.

        Returns
        -------
        Table
            ``name``, ``module``, ``file``, ``line`` (its first), ``kind`` (python, c or object);
            ``calls``, ``resumes``, ``recursive``; ``total``, ``self``, ``mean``, ``min``, ``max``,
            ``p50``, ``p95``, ``p99``, ns: as on CPython. There are no columns of memory.
        """
        rows = self._data.functions

        def stat(name: str, doc: str, unit: str = "", *, may_lack: bool = False) -> Column:
            kind = "float" if name == "mean" else "int"
            return Column(name, lambda: self._function_stats[name], kind, nullable=may_lack,
                          unit=unit, doc=doc)  # fmt: skip

        return Table(
            self._title("functions"),
            [
                Column("name", lambda: [one.name for one in rows], "text", nullable=True,
                       doc="qualified name"),
                Column("module", lambda: [one.module for one in rows], "text", nullable=True,
                       doc="where it was defined"),
                Column("file", lambda: [one.file for one in rows], "text", nullable=True,
                       doc="source file"),
                Column("line", lambda: [one.line for one in rows], nullable=True, doc="its first"),
                Column("kind", lambda: [one.kind for one in rows], "text",
                       doc="python, c, type or object"),
                stat("calls", "begun in the window"),
                stat("resumes", "slices begun by a resume"),
                stat("recursive", "calls and resumes that began while it was already running"),
                stat("total", "with the function open", "ns"),
                stat("self", "with the function innermost", "ns"),
                *(stat(name, "of a call", "ns", may_lack=True)
                  for name in ("mean", "min", "max", "p50", "p95", "p99")),
            ],
            len(rows),
        )  # fmt: skip

    @cached_property
    def _function_stats(self) -> dict[str, list[Any]]:
        return decode.statistics(self._data, self._pairs)

    @cached_property
    def threads(self) -> Table:
        """Every thread that was recorded: name, native_id, first, last (ns), recorded, lost."""
        rows = self._data.threads
        return Table(
            "threads",
            [
                Column("name", lambda: [one.name for one in rows], "text", nullable=True,
                       doc="as threading knows it"),
                Column("native_id", lambda: [one.native_id or None for one in rows],
                       nullable=True, doc="the system's"),
                Column("first", lambda: [one.first for one in rows], nullable=True, unit="ns",
                       doc="its first event"),
                Column("last", lambda: [one.last for one in rows], nullable=True, unit="ns",
                       doc="its last event"),
                Column("recorded", lambda: [sum(one.recorded.values()) for one in rows],
                       unit="events", doc="in this trace"),
                Column("lost", lambda: [sum(one.lost.values()) for one in rows], unit="events",
                       doc="without room"),
            ],
            len(rows),
        )  # fmt: skip

    # ---- What the interpreter told ---------------------------------------------------------------

    def _details(self, name: str, doc: str, kind: str, event: str, unit: str = "") -> Column:
        return Column(
            name,
            lambda: [n.details.get(name) for n in self._data.notes if n.event.startswith(event)],
            kind,
            nullable=True,
            unit=unit,
            doc=doc,
        )

    def _notes(self, name: str, prefix: str, more: list[Column]) -> Table:
        def column(get: Any) -> Any:
            return lambda: [get(n) for n in self._data.notes if n.event.startswith(prefix)]

        count = sum(n.event.startswith(prefix) for n in self._data.notes)
        first = [
            Column("time", column(lambda n: n.time), unit="ns", doc="since the window's start"),
            Column("event", column(lambda n: n.event), "text", doc="what happened"),
            Column("thread", column(lambda n: n.thread), doc="row of threads"),
        ]
        if prefix == "jit_":
            names = [one.name for one in self._data.functions]
            first += [
                Column("function", column(lambda n: None if n.function < 0 else n.function),
                       nullable=True, doc="row of functions"),
                Column("name", column(lambda n: None if n.function < 0 else names[n.function]),
                       "text", nullable=True, doc="the function's qualified name"),
                Column("line", column(lambda n: n.line), nullable=True,
                       doc="where the loop begins"),
            ]  # fmt: skip
        return Table(name, [*first, *more], count)

    @cached_property
    def jit(self) -> Table:
        """What the compiler did: a row for each loop and bridge, and for each trace given up.

        Returns
        -------
        Table
            ``time``, ns; ``event``: jit_compile, jit_abort or jit_trace_too_long; ``thread``;
            ``function``, ``name`` and ``line`` of the green key, null for bridges and for loops of
            the interpreter's own, whose key is the text ``greenkey``; ``instruction``, its offset
            there; ``jitdriver``; ``type``: loop, bridge or entry bridge; ``loop`` and ``bridge``,
            their numbers; ``asmaddr`` and ``asmlen``, where the machine code is and its bytes;
            ``reason`` of an abort; ``operations``, list of text, with ``record(operations=True)``.
        """
        details = self._details
        return self._notes(
            "jit",
            "jit_",
            [
                details("instruction", "offset in the function", "int", "jit_"),
                details("jitdriver", "which loop of the interpreter's", "text", "jit_"),
                details("greenkey", "of other loops", "text", "jit_"),
                details("type", "loop, bridge or entry bridge", "text", "jit_"),
                details("loop", "its number", "int", "jit_"),
                details("bridge", "its number", "int", "jit_"),
                details("asmaddr", "of the machine code", "int", "jit_"),
                details("asmlen", "of the machine code", "int", "jit_", "bytes"),
                details("reason", "of an abort", "text", "jit_"),
                details("operations", "as text", "object", "jit_"),
            ],
        )

    @cached_property
    def gc(self) -> Table:
        """What the garbage collector did.

        Returns
        -------
        Table
            ``time`` int, ns: when it was told, which is some time later, and may be of several
            (``count``) at once; ``event``: gc_minor, gc_collect_step or gc_collect; ``thread``;
            ``duration``, ``duration_min``, ``duration_max``, ns; and what the interpreter tells of
            each: bytes, arenas, states.
        """
        ns = ("duration", "duration_min", "duration_max")
        texts = ("oldstate", "newstate")
        names = dict.fromkeys(
            name for n in self._data.notes if n.event.startswith("gc_") for name in n.details
        )
        more = [
            self._details(name, "", "text" if name in texts else "int", "gc_",
                          "ns" if name in ns else "")
            for name in names
        ]  # fmt: skip
        return self._notes("gc", "gc_", more)

    # ---- What CPython alone has ------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if name in ("allocations", "memory", "memory_of", "memory_bins", "resident", "lines",
                    "objects", "peak", "leaks"):  # fmt: skip
            missing(
                f"trace.{name}",
                "its allocator cannot be hooked, so no allocation is recorded",
                "trace.gc has what its collector tells; record the program with CPython",
            )
        if name in ("at", "between", "diff", "export", "show", "callers", "callees", *TABLES):
            missing(
                f"trace.{name}",
                "that is made by the C core",
                "trace.save() it, and open the file with CPython",
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # ---- Files and people ------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], force: bool = False) -> None:
        """Write the trace to a file, which `eventprof.open` reads, also on CPython.

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
        OSError
            The system refused; nothing is left behind then.
        """
        from .archive import save

        save(self, path, force)

    def __repr__(self) -> str:
        return in_one_line(self)

    def __str__(self) -> str:
        from .report import text

        return text(self)

    def report(
        self, file: IO[str] | None = None, width: int | None = None, limit: int = 15
    ) -> None:
        """Print a page: the functions that took the most time, and what compiler and gc did.

        Parameters
        ----------
        file : text file, optional
            Where to; standard output without.
        width : int, optional
            Not looked at: the page has 100 columns at most.
        limit : int
            How many functions.
        """
        from .report import text

        print(text(self, limit), file=file)
