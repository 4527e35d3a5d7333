"""The recorder: it starts, stops, and gives the trace.

The extension starts and stops, so that a window begins and ends inside of one C function. Code of
this package is never recorded.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    cast,
    overload,
)

from .. import _core
from .._words import EventsLostWarning, known_elsewhere, without_elsewhere
from ..base import areas
from ..base.arguments import ON_FULL
from ..base.quantities import parse_duration
from .decorate import AsyncContext, decorate, decorates, outermost
from .events import BESIDE, DEFAULT_EVENTS
from .options import (
    Options,
    ancestors,
    describe_run,
    encode_metadata,
    path_patterns,
    uses_areas,
)

if TYPE_CHECKING:
    from ..trace import Trace

_P = ParamSpec("_P")
_Q = ParamSpec("_Q")
_R = TypeVar("_R", covariant=True)
_O = ParamSpec("_O")
_Made = TypeVar("_Made", covariant=True)
_Owner = TypeVar("_Owner")

_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

if TYPE_CHECKING:

    class Recorded(Protocol[_P, _R]):
        """A decorated function: it is called as before, and has its recorder as an attribute."""

        recorder: Recorder

        def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
            """Call the function, recorded."""

        @overload
        def __get__(self, instance: None, owner: type) -> Self: ...
        @overload
        def __get__(
            self: Recorded[Concatenate[_Owner, _Q], _R], instance: _Owner, owner: type
        ) -> Callable[_Q, _R]: ...

    class MakesRecorders(Protocol[_O, _Made]):
        """`record`: it makes a recorder, or decorates a function itself."""

        __kwdefaults__: dict[str, Any]

        @overload
        def __call__(self, function: Callable[_P, _R], /) -> Recorded[_P, _R]: ...
        @overload
        def __call__(self, *args: _O.args, **options: _O.kwargs) -> _Made: ...


def makes_recorders(make: Callable[_O, _Made]) -> MakesRecorders[_O, _Made]:
    """Let `record` decorate a function without parentheses."""
    return cast("MakesRecorders[_O, _Made]", decorates(make))


class Recorder(_core.Recorder, AsyncContext):
    """Records the events between its start and its stop; made by `record`.

    Use it in a ``with`` or ``async with`` statement, as a decorator, or call `start` and `stop`. A
    recorder that is started again drops what it recorded before. Several recorders may run at once.

    Parameters
    ----------
    options : Options
        From `record`, which checks them.

    Attributes
    ----------
    state : {'new', 'running', 'stopped'}
        Its state.
    backend : {None, 'monitoring', 'profile', 'trace'}
        The hook for calls, and for events inside of functions, in the last window.
    clock : {None, 'counter', 'monotonic'}
        The clock of the last window.
    output : str or None
        Path of the last window's log file.
    displaced : tuple of str
        Sources whose hook another tool took over during the window, for good or for a while: events
        in that time are missing. ``alloc`` while the window is open: another tool's allocator hooks
        are on top of eventprof's, and nothing is missing unless that tool removes both.
    """

    options: Options
    _trace: Trace | None
    _trace_window: int
    _warns = True  # of lost events, at the stop

    def __new__(cls, options: Options) -> Self:
        """Make a recorder that is not started."""
        if uses_areas(options):
            areas.tell()
        file: dict[str, Any] = {}
        if options.output is not None:
            own, child = path_patterns(options.output)
            file = {
                "output": own,
                "child_output": child,
                "metadata": _core.call_beside(encode_metadata, options),
                "replace": options.force,
                "packs": options.archive,
            }
            name_threads()
            cls._name_worker()
        self = super().__new__(
            cls,
            kinds=options.kinds,
            limit_bytes=options.limit_bytes,
            on_full=ON_FULL.index(options.on_full),
            backend=options.backend,
            clock=options.clock,
            current_thread=options.threads == "current",
            include=options.include,
            exclude=options.exclude,
            max_depth=-1 if options.max_depth is None else options.max_depth,
            min_duration_ns=options.min_duration,
            audit=() if options.audit == ("*",) else options.audit,
            **file,
        )
        self.options = options
        self._trace = None
        self._trace_window = 0
        return self

    @property
    def trace(self) -> Trace:
        """The trace of the last window.

        Returns
        -------
        Trace
            The same each time, until the recorder is started again.

        Raises
        ------
        StateError
            The recorder is running: stop it, or call `snapshot`. Or the recorder was never started.
        """
        if self.state == "running":
            raise _core.StateError("this recorder is running: stop it first, or use snapshot()")
        if self.state == "new":
            raise _core.StateError("this recorder was never started, so there is no trace")
        if self._trace is None or self._trace_window != self._windows:
            self._trace_window = self._windows
            self._trace = self._make_trace()
        return self._trace

    def snapshot(self, *, last: int | str | None = None) -> Trace:
        """Return a trace of the events so far; the recording goes on.

        Parameters
        ----------
        last : int or str, optional
            Only the end of the recording, of this length: nanoseconds, or text such as ``"10 s"``.
            If the buffer was full, the trace is shorter: it begins after the last event that was
            overwritten, so that no event is missing from it. Calls that were open when it begins
            are rows that began before it.

        Returns
        -------
        Trace
            A new trace each time; for a stopped recorder, its `trace`, unless `last` is given.

        Raises
        ------
        StateError
            The recorder was never started.
        TypeError, ValueError
            `last` is no duration.
        """
        if last is not None:
            last_ns = parse_duration("last", last)
            if self.state == "new":
                raise _core.StateError("this recorder was never started, so there is no trace")
            return self._make_trace(last_ns)
        return self._make_trace() if self.state == "running" else self.trace

    @property
    def stats(self) -> dict[str, int | None]:
        """The memory that recording uses, in bytes and in counts.

        Returns
        -------
        dict of str to int or None
            Of this recorder: ``chunks`` of records that it keeps and ``chunk_bytes``, in memory or
            in its file; ``list_bytes``, its lists of them and of threads; ``file_bytes``, what its
            file takes on the disk, None without. Of the process, for all recorders:
            ``all_chunks``, ``free_chunks`` among them, ready to be used, and
            ``all_chunk_bytes``; ``threads`` that ever recorded, ``logs`` of living ones and
            ``log_bytes``; ``names``, ``sites`` and ``name_bytes``, with their texts, which are
            never given back.

        Notes
        -----
        A chunk has 4 KiB to 1 MiB of address space; only parts that were written, or will be soon,
        take memory. Chunks that recorders share are counted for each.
        """
        chunks, chunk_bytes, file_bytes_held, list_bytes = self._held()
        engine = _core.engine_stats()
        file_bytes = None
        if self.output is not None:
            try:
                file_bytes = os.stat(self.output).st_blocks * 512
            except OSError:  # removed or renamed meanwhile
                file_bytes = file_bytes_held
        return {
            "chunks": chunks,
            "chunk_bytes": chunk_bytes,
            "list_bytes": list_bytes,
            "file_bytes": file_bytes,
            "all_chunks": engine["chunks_mapped"],
            "free_chunks": engine["chunks_free"],
            "all_chunk_bytes": engine["bytes_mapped"],
            "threads": engine["threads"],
            "logs": engine["logs"],
            "log_bytes": engine["log_bytes"],
            "names": engine["names"],
            "sites": engine["sites"],
            "name_bytes": engine["names_bytes"],
        }

    def _make_trace(self, last_ns: int = -1) -> Trace:
        # The capture first: running recorders may record the following code.
        core = self._capture(last_ns)
        trace_class = _trace_class()
        return trace_class(core, _core.call_beside(self._metadata))

    def _warn_of_loss(self, lost: int, reason: str | None) -> None:
        """Warn of events that found no room; called at the end of each window that lost some."""
        if self._warns:
            # Where the program stopped it: neither here, nor in the wrapper of a decorator.
            level, frame = 1, sys._getframe()
            while frame.f_back is not None and frame.f_code.co_filename.startswith(_FOLDER):
                level, frame = level + 1, frame.f_back
            warnings.warn(say_loss(lost, self.options, reason), EventsLostWarning, stacklevel=level)

    @staticmethod
    def _name_worker() -> None:
        """Pass to the extension what multiprocessing calls this process, if it does not know it."""
        module = sys.modules.get("multiprocessing.process")
        if getattr(module, "_parent_process", None) is not None:
            name = getattr(getattr(module, "_current_process", None), "_name", None)
            if isinstance(name, str):
                _core.name_worker(name)

    def _metadata(self) -> dict[str, Any]:
        name_threads()
        self._name_worker()
        worker = _core.worker()
        return {
            **({} if worker is None else {"worker": worker}),
            "clock": self.clock,
            "backend": self.backend,
            "displaced": self.displaced,
            "pid": os.getpid(),
            **({} if self.output is None else {"ancestors": ancestors()}),
            **describe_run(self.options),
        }

    def __call__(self, function: Callable[_P, _R]) -> Recorded[_P, _R]:
        """Record every run of a function: the decorator.

        Parameters
        ----------
        function : callable
            A function, or a coroutine function, generator function or asynchronous generator
            function, which are recorded from their first step to their end.

        Returns
        -------
        callable
            The wrapped function. Its ``recorder`` is this recorder, whose trace is of the last run.
            A run inside of another run, or at the same time on another thread, is part of the same
            window.

        Raises
        ------
        TypeError
            It is a class, or cannot be called.
        """
        wrapped = decorate("recorder", self, lambda: outermost(self), function)
        return cast("Recorded[_P, _R]", wrapped)

    def __dir__(self) -> list[str]:
        return without_elsewhere(type(self), super().__dir__())

    def __repr__(self) -> str:
        options = self.options
        words = options.events
        if set(BESIDE["marks"]) <= set(words) and words != BESIDE["marks"]:  # as ever
            words = tuple(word for word in words if word not in BESIDE["marks"])
        is_all = set(options.events) == set(DEFAULT_EVENTS)
        events = "all events" if is_all else " ".join(words)
        domains = f" ({' '.join(options.domains)})" if options.domains else ""
        displaced = f", displaced: {' '.join(self.displaced)}" if self.displaced else ""
        return (
            f"<eventprof.Recorder: {self.state}; {events}{domains}; "
            f"{options.limit_bytes / 2**20:,.6g} MiB, {options.on_full}{displaced}>"
        )


known_elsewhere(
    Recorder,
    "a recorder",
    {
        "enable": "rec.start(), which begins a new recording",
        "disable": "rec.stop(); the recording is rec.trace",
        "save": "rec.trace.save(path)",
        "dump_stats": "rec.trace.save(path), or rec.trace.export(path, 'pstats')",
        "print_stats": "rec.trace.report()",
        "report": "rec.trace.report()",
        "print": "rec.trace.report()",
        "show": "rec.trace.show()",
        "view": "rec.trace.show()",
        "open_in_browser": "rec.trace.show()",
        "output_text": "rec.trace.report(file=...)",
        "export": "rec.trace.export(path, format)",
        "events": "rec.trace.events",
        "calls": "rec.trace.calls",
        "functions": "rec.trace.functions",
    },
)


#: Why recording ended early, or what happened to the file.
_CAUSES = {
    "memory": "no memory was left",
    "disk": "the disk of the file was full",
    "small_disk": "the disk of the file was full before the buffer was",
    "family": "the files of all processes had reached their limit",
    "cut": "another program cut the file off while it was written",
}


def say_loss(lost: int, options: Options, reason: str | None) -> str:
    """Report that events found no room, and what to do."""
    events = "1 event" if lost == 1 else f"{lost:,} events"
    if reason in _CAUSES:
        return f"{events} found no room, as {_CAUSES[reason]}: the numbers are too small"
    kept = (
        "the oldest were dropped" if options.on_full == "overwrite" else "the newest were dropped"
    )
    return (
        f"{events} found no room in {-(-options.limit_bytes // 2**20):,} MiB ({kept}): the "
        "numbers are too small; record with a larger buffer=, with on_full='grow', or fewer events "
        "(include=, memory=False)"
    )


def _trace_class() -> type[Trace]:
    # An import statement runs code of importlib, which recorders would record.
    loaded = sys.modules.get("eventprof.trace")
    if loaded is None:
        from .. import trace

        return trace.Trace
    kind: type[Trace] = loaded.Trace
    return kind


def name_threads() -> None:
    """Pass to the extension the names of living threads that it does not know yet."""
    _core.name_thread(os.getpid(), "MainThread")  # on Linux, that is its native id
    # Not threading.enumerate(): that is Python code of the standard library, and would be recorded.
    active = getattr(sys.modules.get("threading"), "_active", {})
    for thread in list(active.values()):
        native_id = getattr(thread, "_native_id", None)
        name = getattr(thread, "_name", None)
        if isinstance(native_id, int) and isinstance(name, str):
            _core.name_thread(native_id, name)
