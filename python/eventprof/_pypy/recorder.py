"""record() on PyPy: the same arguments, and those of the compiler and of the garbage collector."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Self, cast

from ..base import arguments
from ..base.quantities import LEAST_BUFFER, parse_size
from ..recording.events import OF_C_CALLS, OF_CALLS, numpy_choice
from ..recording.options import Options, describe_run
from ..recording.recorder import Recorder as SharedRecorder
from ..recording.recorder import makes_recorders
from ..tables.kinds import WORDS
from . import decode
from .core import missing
from .core import worker as name_of_worker
from .trace import Trace

_HOOKS = "its C interface has no hooks of the allocator, of monitoring or of references"
_KINDS = {word: kind for kind, word in WORDS.items()}


@makes_recorders
def record(
    *,
    calls: bool = True,
    c_calls: bool = True,
    memory: bool | Iterable[str] = False,
    numpy: bool | str = "auto",
    native: bool = False,
    events: Iterable[str] | None = None,
    buffer: int | str = "256 MiB",
    on_full: arguments.OnFull = "overwrite",
    threads: arguments.Threads = "all",
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    max_depth: int | None = None,
    min_duration: int | str = 0,
    backend: arguments.Backend = "auto",
    clock: arguments.Clock = "auto",
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
    jit: bool = True,
    gc: bool = True,
    operations: bool = False,
) -> Recorder:
    """Make a recorder: a context manager, a decorator, or something to start and stop.

    Parameters
    ----------
    calls : bool
        Record calls of Python functions and how they end.
    c_calls : bool
        Record calls of functions that are not in Python.
    memory : bool
        Not on PyPy.
    numpy, native : bool
        Not on PyPy; ``numpy="auto"`` is off.
    events : iterable of str, optional
        Exactly these, in place of what `calls` and `c_calls` say: call, return, yield, resume,
        unwind, c_call, c_return, c_exception.
    buffer : int or str
        Bytes that the recording may take, or text as ``"64 MiB"``. An event takes 24 bytes.
    on_full : {'overwrite', 'stop', 'grow'}
        What happens then: the oldest events go, the new ones go, or `buffer` is no limit.
    threads : {'all', 'current'}
        This thread and those that threading starts meanwhile, or only the one that starts it.
    include, exclude, max_depth, min_duration
        Not on PyPy.
    backend : {'auto', 'profile'}
        Which hook calls come from: sys.setprofile.
    clock : {'auto', 'counter', 'monotonic'}
        The processor's counter, or CLOCK_MONOTONIC, which is slower.
    output, force
        Not on PyPy: save the trace.
    jit : bool
        Record what the compiler does.
    gc : bool
        Record what the garbage collector does.
    operations : bool
        Keep the operations of loops, bridges and aborted traces as text: kilobytes each.

    Returns
    -------
    Recorder
        Not started yet.

    Raises
    ------
    TypeError, ValueError
        An argument is not what it should be; nothing was changed.
    UnsupportedError
        PyPy cannot have this.
    """
    _refuse(memory, numpy, native, events, include, exclude, max_depth, min_duration, output)
    with_calls = arguments.flag("calls", calls)
    with_c_calls = arguments.flag("c_calls", c_calls)
    flags = {"jit": jit, "gc": gc, "operations": operations}
    flags = {name: arguments.flag(name, value) for name, value in flags.items()}
    arguments.flag("force", force)
    words = (
        *(OF_CALLS if with_calls else ()),
        *(OF_C_CALLS if with_c_calls else ()),
    )
    if events is not None:
        words = tuple(arguments.choices("events", events, tuple(_KINDS)))
    kinds = sum(1 << _KINDS[word] for word in words)
    if not kinds and not flags["jit"] and not flags["gc"]:
        raise ValueError("nothing to record: one of calls, c_calls, jit and gc must be on")
    if backend == "monitoring":
        missing("backend='monitoring'", "it is Python 3.11, which has no sys.monitoring",
                "backend='auto' takes sys.setprofile")  # fmt: skip
    options = Options(
        kinds,
        parse_size("buffer", buffer, LEAST_BUFFER),
        arguments.choice("on_full", on_full, arguments.ON_FULL),
        arguments.choice("threads", threads, arguments.THREADS),
        arguments.choice("backend", backend, arguments.BACKENDS),
        arguments.choice("clock", clock, arguments.CLOCKS),
        (),
        (),
        marks=False,
    )
    return Recorder(options, flags)


def _refuse(
    memory: object,
    numpy: object,
    native: object,
    events: object,
    include: object,
    exclude: object,
    max_depth: object,
    min_duration: object,
    output: object,
) -> None:
    """Refuse arguments that PyPy does not support."""
    elsewhere = "record the program with CPython"
    if memory is not False and memory != ():
        missing(f"memory={memory!r}", _HOOKS, f"trace.gc tells of collections; or {elsewhere}")
    if numpy_choice(numpy):
        missing("numpy=True", "its arrays are asked for by the C core", elsewhere)
    if arguments.flag("native", native):
        missing("native=True", "the hooks of such a library are in the C core", elsewhere)
    if not isinstance(events, str) and isinstance(events, Iterable):
        allocator = {"malloc", "calloc", "realloc", "realloc_free", "realloc_failed", "free"}
        found = [word for word in events if isinstance(word, str) and word in allocator]
        if found:
            missing(f"events={found!r}", _HOOKS, elsewhere)
    if output is not None:
        missing(
            f"output={output!r}",
            "the pages of such a file are written by the C core",
            "use rec.trace.save(path), or 'eventprof run -o path'",
        )
    filters = {"include": include, "exclude": exclude, "max_depth": max_depth,
               "min_duration": min_duration}  # fmt: skip
    for name, value in filters.items():
        if value is not None and value != 0 and (not hasattr(value, "__len__") or len(value)):
            missing(f"{name}={value!r}", "filters are in the hooks of the C core",
                    "select rows of the tables")  # fmt: skip


class Recorder(SharedRecorder):
    """Records what happens between its start and its stop; made by `record`.

    Use it in a ``with`` statement, as a decorator, or call `start` and `stop`. Started again, it
    gives up what it recorded before. Several may run at once.

    Parameters
    ----------
    options : Options
        From `record`, which checks them.
    flags : dict of str to bool
        jit, gc and operations.

    Attributes
    ----------
    state : {'new', 'running', 'stopped'}
        Where it is.
    backend : {None, 'profile'}
        Where the calls of the last window came from.
    clock : {None, 'counter', 'monotonic'}
        The clock of the last window.
    displaced : tuple of str
        Hooks that another tool took over during the window: what came later is missing. It is
        ``profile`` as well if the interpreter took the hook away, as it does when an exception
        comes out of it: a RecursionError where the stack is full, or what a signal handler raised.
    """

    def __new__(cls, options: Options, flags: dict[str, bool] | None = None) -> Self:
        """Make a recorder that is not started."""
        self = super().__new__(cls, options)
        python = sum(1 << kind for kind in range(1, 7))
        self.flags = flags or {"jit": True, "gc": True, "operations": False}
        cast(Any, self)._options.update(
            want_calls=bool(options.kinds & python),
            want_c_calls=bool(options.kinds & ~python),
            **self.flags,
        )
        return self

    flags: dict[str, bool]

    def __init__(self, *_: object) -> None:
        pass

    def _make_trace(self, last_ns: int = -1) -> Any:
        if last_ns >= 0:
            missing(
                "snapshot(last=...)",
                "a snapshot has all events of the buffer",
                "leave last out, and select rows of the tables by time",
            )
        capture = cast(Any, self)._capture()
        data = decode.decode(capture, self.options.kinds)
        self._name_worker()
        worker = name_of_worker()
        metadata = {
            **({} if worker is None else {"worker": worker}),
            "clock": self.clock,
            "backend": self.backend,
            "displaced": self.displaced,
            "pid": os.getpid(),
            **describe_run(self.options),
        }
        metadata["options"].update(self.flags)
        return Trace(data, metadata, capture.stats)
