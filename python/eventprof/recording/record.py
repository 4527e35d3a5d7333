"""record(): checks what it is asked for, and makes the recorder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any, Literal

from .. import _core
from .arguments import (
    BACKENDS,
    CLOCKS,
    ON_FULL,
    THREADS,
    Backend,
    Clock,
    Domain,
    OnFull,
    Threads,
    choice,
    depth,
    flag,
    is_bool,
    output_path,
    patterns,
)
from .events import (
    BESIDE,
    CODE_KINDS,
    Asked,
    audit_patterns,
    chosen_kinds,
    domains_of_memory,
    need_ends,
    need_numpy,
    need_support,
    numpy_choice,
    words_of_kinds,
)
from .options import Options, has_gil, has_jit, measured_as
from .quantities import automatic_buffer, parse_duration, parse_size
from .recorder import Recorder

#: Whether record() loads what traces are made of, and NumPy. The command line puts that off:
#: the program that it runs may never need it, and is to find the process as python leaves it.
load_tables = True


def record(
    *,
    calls: bool = True,
    c_calls: bool = True,
    memory: bool | Iterable[Domain] = True,
    numpy: bool | Literal["auto"] = "auto",
    native: bool = False,
    lines: bool = False,
    instructions: bool = False,
    exceptions: bool = False,
    branches: bool = False,
    events: Iterable[str] | None = None,
    buffer: int | str = "auto",
    on_full: OnFull = "overwrite",
    threads: Threads = "all",
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    max_depth: int | None = None,
    min_duration: int | str = 0,
    backend: Backend = "auto",
    clock: Clock = "auto",
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
    overhead: bool = False,
    marks: bool = True,
    gc: bool = False,
    refs: bool = False,
    audit: bool | Iterable[str] = (),
    hpy: bool = False,
) -> Recorder:
    """Make a recorder: a context manager, a decorator, or something to start and stop.

    Parameters
    ----------
    calls : bool
        Record calls of Python functions and how they end.
    c_calls : bool
        Record calls of functions that are not in Python.
    memory : bool or iterable of {'raw', 'mem', 'obj'}
        Record what Python's allocators give out and take back; of these domains only.
    numpy : {'auto', True, False}
        Record the data of NumPy's arrays, as domain ``numpy``, on every NumPy 2. With 'auto' that
        is done together with all three domains of `memory`, and begins when the program loads
        NumPy.
    native : bool
        Record what C libraries allocate, as domain ``libc``: by malloc and its relatives, and
        pages by mmap. Needs a library that is loaded before Python, as ``eventprof run --native``
        does; of Linux.
    lines : bool
        Record each line that begins to run, for `Trace.lines`.
    instructions : bool
        Record each instruction of the interpreter's that runs: 10 to 50 times as many events as
        calls.
    exceptions : bool
        Record where an exception is raised, in each function that it passes through; and, with
        monitoring, where it is raised again and handled; and where an iteration ended by one.
    branches : bool
        Record which way branches and jumps went; needs monitoring.
    events : iterable of str, optional
        Exactly these events, in place of what the flags for them say, and no more is asked of the
        interpreter: call, return, yield, resume, throw, unwind, c_call, c_return, c_exception;
        malloc, calloc, realloc, realloc_free, realloc_failed, free, whose domains `memory` still
        chooses (with `numpy` and `native`); line, instruction, raise, reraise, handled,
        stop_iteration, branch, jump; span_begin, span_end, mark, counter, flow; gc_start, gc_stop,
        gc_collected; create, destroy; audit, of which `audit` still chooses; hpy_call, hpy_return.
        Marks are among them only if they are named. A flag that says something else is an error.
    buffer : int or str
        Bytes that the recording may take, or text as ``"64 MiB"`` or ``"1.5 GB"``; rounded up to
        whole MiB. A call event takes 8 bytes, an allocation 16. With ``"auto"`` an eighth of the
        memory that was available when the process first asked, 64 MiB at least.
    on_full : {'overwrite', 'stop', 'grow'}
        What happens then: the oldest events go, the new ones go, or `buffer` is no limit.
    threads : {'all', 'current'}
        Every thread, or only the one that starts it.
    include, exclude : iterable of str
        Globs that say which functions' calls are recorded; each is matched against the module, the
        file, the qualified name, and module and qualified name with a dot between; one with a '/'
        against the file only. Two words are no globs: ``"stdlib"`` is all of the standard library,
        builtins included, ``"site-packages"`` all installed packages. `exclude` wins. A function
        that is not in Python goes with its caller. Allocator events are all kept. With
        monitoring, code that is left out is switched off in the interpreter: after its first call
        it costs nothing.
    max_depth : int, optional
        Leave out calls nested deeper than this. Counted, of the calls that `include` and `exclude`
        keep, from where each thread was when the recording began: with 0, what is called from
        there, and nothing below.
    min_duration : int or str
        Leave out calls that took less: nanoseconds, or text as ``"10 us"``. What was still running
        at the end stays.
    backend : {'auto', 'monitoring', 'profile', 'trace'}
        Which hook calls come from, and what happens inside of functions; monitoring needs Python
        3.12. profile sees calls only. trace sees no branches and jumps, and of exceptions only
        where they are raised; a trace function that is there already goes on beside it. On 3.11
        'auto' evaluates frames beside the profile hook where no calls of C functions are asked
        for, at half the cost.
    clock : {'auto', 'counter', 'monotonic'}
        The processor's counter, or CLOCK_MONOTONIC, which is slower.
    output : str or os.PathLike, optional
        Record into this file: its pages are the buffer itself, so that whatever ends the program,
        `eventprof.open` reads all that it did. In the name, ``%p`` is the process's number, ``%h``
        the host's name, ``%%`` a ``%``. A forked child has a file of its own; where there is no
        ``%p`` its number is put before the suffix.
    force : bool
        Replace `output` if it is there already.
    overhead : bool
        Measure first what an event costs, as `eventprof.overhead` does: once a process and choice
        of options, some 50 ms. It is in the trace's metadata then, and tables can be corrected
        for it. Otherwise it is there if it was measured before.
    marks : bool
        Record what the program says of itself: `mark`, `span`, `counter` and `flow`. A program that
        does not call these has no such events.
    gc : bool
        Record runs of the garbage collector, by a function in ``gc.callbacks``.
    refs : bool
        Record objects that are created and destroyed, with their types. Needs Python 3.13.
    audit : bool or iterable of str
        Record audit events, without their arguments: those that match one of these globs, as
        ``["open", "socket.*"]``, or all. The hook for them, one a process, cannot be removed; it is
        idle when nothing records.
    hpy : bool
        Record the calls that HPy's trace mode sees: of HPy's functions, by extension modules that
        are loaded with ``HPY=trace``. Needs the package hpy.

    Returns
    -------
    Recorder
        Not started yet.

    Raises
    ------
    TypeError, ValueError
        An argument is not what it should be; nothing was changed.
    MemoryError
        `buffer` is more than the machine has.
    UnsupportedError
        This interpreter has no such backend, or the backend cannot see such events, or there is
        no reference tracer; NumPy or HPy is not there; the library for `native` was not loaded.
    StateError
        `overhead` was asked for while a recorder runs.

    See Also
    --------
    open : reads the file of `output`.

    Examples
    --------
    >>> with eventprof.record() as rec:
    ...     sorted([3, 1, 2])
    [1, 2, 3]
    >>> functions = rec.trace.functions
    >>> functions[functions["calls"] > 0][["name", "module", "calls"]]
    functions: 1 row, 3 columns
       name    module    calls
    0  sorted  builtins      1
    """
    # In a signal's handler NumPy may be half loaded; then the first trace loads the tables.
    if load_tables and not _is_loading("numpy"):
        from .. import trace  # noqa: F401 - now, so that no window sees it
    backend_word = choice("backend", backend, BACKENDS)
    inside = {
        "lines": lines,
        "instructions": instructions,
        "exceptions": exceptions,
        "branches": branches,
    }
    beside = {"marks": marks, "gc": gc, "refs": refs, "hpy": hpy}
    asked = Asked()
    asked.calls, asked.c_calls = flag("calls", calls), flag("c_calls", c_calls)
    asked.memory, asked.domains = memory, domains_of_memory(memory)
    asked.numpy, asked.native = numpy_choice(numpy), flag("native", native)
    asked.inside = {name: flag(name, value) for name, value in inside.items()}
    asked.beside = {name: flag(name, value) for name, value in beside.items()}
    asked.beside["audit"], asked.audit = audit_patterns(audit), audit
    kinds = chosen_kinds(events, asked, backend_word)
    flags: dict[str, Any] = {
        name: not set(BESIDE[name]).isdisjoint(words_of_kinds(kinds)) for name in beside
    }
    flags["audit"] = asked.beside["audit"] or (("*",) if "audit" in words_of_kinds(kinds) else ())
    options = Options(
        kinds,
        automatic_buffer() if buffer == "auto" else parse_size("buffer", buffer),
        choice("on_full", on_full, ON_FULL),
        choice("threads", threads, THREADS),
        backend_word,
        choice("clock", clock, CLOCKS),
        patterns("include", include),
        patterns("exclude", exclude),
        depth(max_depth),
        parse_duration("min_duration", min_duration),
        None if output is None else output_path(output),
        flag("force", force),
        flag("overhead", overhead),
        **flags,
    )
    if options.refs and sys.version_info < (3, 13):
        raise _core.UnsupportedError(
            "refs=True, or create and destroy in events, needs Python 3.13 "
            "(PyRefTracer_SetTracer); this is "
            f"{sys.version_info.major}.{sys.version_info.minor}"
        )
    if options.hpy:
        _import_hpy()
    need_ends(kinds, options.max_depth, options.min_duration)
    if is_bool(numpy) and numpy:
        need_numpy()
    if is_bool(native) and native:
        from . import native as preloaded

        preloaded.require()
    if options.backend == "monitoring" and sys.version_info < (3, 12):
        raise _core.UnsupportedError(
            "backend='monitoring' needs Python 3.12 (sys.monitoring); this is "
            f"{sys.version_info.major}.{sys.version_info.minor}, which has 'profile' and 'trace'"
        )
    if options.backend in ("profile", "trace") and not has_gil():
        raise _core.UnsupportedError(
            f"backend={options.backend!r} needs the GIL, which is off here: without it the "
            f"interpreter cannot change other threads' {options.backend} functions while they run; "
            "use backend='monitoring', or start Python with -X gil=1"
        )
    need_support(kinds, options.backend)
    if "instruction" in options.events:
        import opcode

        _core.set_opcode_names(tuple(opcode.opname[:256]))
    if kinds & CODE_KINDS and has_jit():
        import warnings

        warnings.warn(
            "the JIT of this interpreter is on: together with sys.monitoring, which calls are "
            "recorded by, it may corrupt local variables (CPython issue gh-156319, open); set "
            "PYTHON_JIT=0, or record with calls=False, c_calls=False",
            RuntimeWarning,
            stacklevel=2,
        )
    if options.overhead:
        from . import costs

        costs.overhead(**measured_as(options))
    return Recorder(options)


def _is_loading(module: str) -> bool:
    """Whether a module is being imported: by code below, where a signal's handler calls us."""
    loaded = sys.modules.get(module)
    return bool(getattr(getattr(loaded, "__spec__", None), "_initializing", False))


def _import_hpy() -> None:
    """Load what is hooked: now, so that no window sees it."""
    try:
        import hpy.universal  # noqa: F401
    except ImportError as error:
        raise _core.UnsupportedError(
            "hpy=True, or hpy_call and hpy_return in events, needs the package hpy, which does not "
            f"load ({error}): install eventprof[hpy]"
        ) from error
