"""record(): checks its arguments, and makes the recorder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from .. import _core
from ..base.arguments import (
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
from ..base.arguments import labels as checked_labels
from ..base.quantities import LEAST_BUFFER, automatic_buffer, parse_duration, parse_size
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
from .recorder import Recorder, makes_recorders

#: Whether record() imports the tables and NumPy. The command line delays that: the program that it
#: runs may not need them, and must find the process as python leaves it.
load_tables = True


@makes_recorders
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
    waits: bool = False,
    hpy: bool = False,
    archive: bool = False,
    labels: Mapping[str, object] | None = None,
) -> Recorder:
    """Make a recorder: a context manager, a decorator, or something to start and stop.

    As a decorator without arguments it needs no parentheses: ``@eventprof.record``.

    Most programs need none of the arguments, or one of `output`, `memory`, `include` and `buffer`.

    Parameters
    ----------
    calls : bool
        Record calls of Python functions and how they end.
    c_calls : bool
        Record calls of functions that are not written in Python.
    memory : bool or iterable of {'raw', 'mem', 'obj'}
        Record allocations by Python's allocators: all, or only the given domains.
    numpy : {'auto', True, False}
        Record the data of NumPy's arrays, as domain ``numpy``, on every NumPy 2. With 'auto' that
        is done together with all three domains of `memory`, and begins when the program loads
        NumPy.
    native : bool
        Record blocks of C libraries, as domain ``libc``: of malloc and related functions, and pages
        of mmap. It works on Linux, and needs a library that is loaded before Python, as ``eventprof
        run --native`` does.
    lines : bool
        Record each line that begins to run, for `Trace.lines`.
    instructions : bool
        Record each bytecode instruction that runs: 10 to 50 times as many events as calls.
    exceptions : bool
        Record where an exception is raised, in each function that it passes through, and where an
        iteration ends by StopIteration; with monitoring also where it is raised again or handled.
    branches : bool
        Record branches and jumps, and where they go; needs monitoring.
    events : iterable of str, optional
        Record exactly these events, instead of those that the flags say; only the hooks that they
        need are installed: call, return, yield, resume, throw, unwind, c_call, c_return,
        c_exception; malloc, calloc, realloc, realloc_free, realloc_failed, free, whose domains
        `memory` still chooses (with `numpy` and `native`); line, instruction, raise, reraise,
        handled, stop_iteration, branch, jump; span_begin, span_end, mark, counter, flow; gc_start,
        gc_stop, gc_collected; create, destroy; audit, of which `audit` still chooses; hpy_call,
        hpy_return. Marks are recorded only if they are named. A flag that contradicts is an error.
    buffer : int or str
        The largest size of the recording in bytes, or as text such as ``"64 MiB"`` or ``"1.5 GB"``;
        at least 1 MiB, rounded up to whole MiB. A call event takes 8 bytes, an allocation 16.
        ``"auto"`` is an eighth of the memory that was available when the process first asked, at
        least 64 MiB.
    on_full : {'overwrite', 'stop', 'grow'}
        What happens when the buffer is full: the oldest events are lost, new events are lost, or
        `buffer` is not a limit.
    threads : {'all', 'current'}
        Every thread, or only the one that starts it.
    include, exclude : iterable of str
        Globs for the functions whose calls are recorded. Each is matched against the module, the
        file, the qualified name, and module and qualified name with a dot between; a glob with a
        '/' only against the file. Two words are not globs: ``"stdlib"`` is the standard library
        with builtins, ``"site-packages"`` all installed packages. A function that matches both is
        excluded. A C function is filtered together with its caller. Allocator events are never
        left out. With monitoring, code that is left out is switched off in the interpreter: it
        costs nothing after its first call.
    max_depth : int, optional
        Leave out calls that are nested deeper. The depth counts the calls that `include` and
        `exclude` keep, from the call that was open on each thread when the recording began: with 0,
        only calls made directly from there are recorded.
    min_duration : int or str
        Leave out calls that took less time: nanoseconds, or text such as ``"10 us"``. Calls that
        are open at the end stay.
    backend : {'auto', 'monitoring', 'profile', 'trace'}
        The hook for calls and for events inside of functions; monitoring needs Python 3.12. profile
        sees only calls. trace sees no branches and jumps, and of exceptions only where they are
        raised; a trace function that is set already continues to run. On 3.11, without calls of C
        functions, 'auto' also installs a frame evaluator, which halves the cost.
    clock : {'auto', 'counter', 'monotonic'}
        The processor's counter, or CLOCK_MONOTONIC, which is slower.
    output : str or os.PathLike, optional
        Record into this file. Its pages are the buffer, so that `eventprof.open` can read all
        events however the program ends. In the name, ``%p`` stands for the process id, ``%h`` for
        the host's name, ``%u`` for a number if the name is used, ``%%`` for a ``%``. A forked child
        has its own file; if there is no ``%p``, its process id is put before the suffix. A name
        that ends with ``.epd`` is a folder, in which each process has a file.
    force : bool
        Replace `output` if it exists.
    overhead : bool
        First measure what an event costs, as `eventprof.overhead` does: some 50 ms, once for each
        process and choice of options. The result is in the trace's metadata, and tables can be
        corrected by it. Without this flag it is there if it was measured before.
    marks : bool
        Record the program's own events: `mark`, `span`, `counter`, `flow` and `label`.
    gc : bool
        Record runs of the garbage collector, by a function in ``gc.callbacks``.
    refs : bool
        Record objects that are created and destroyed, with their types. Needs Python 3.13.
    audit : bool or iterable of str
        Record audit events, without their arguments: those that match one of these globs, such as
        ``["open", "socket.*"]``, or all. The hook for them cannot be removed from the process; it
        does nothing while nothing records.
    waits : bool
        Record when threads stop and go on, what they wait for - the interpreter's lock, another
        lock, a time, I/O, a process - and which thread let them go on, for `Trace.waits`. Works on
        Linux: the functions of the C library that wait are replaced where the interpreter and its
        modules import them. A start and a stop take 0.1 ms more. ``eventprof run`` does it by
        default.
    hpy : bool
        Record the calls that HPy's trace mode sees: of HPy's functions, by extension modules that
        are loaded with ``HPY=trace``. Needs the package hpy.
    archive : bool
        Pack the file of `output` while the program runs: 1 to 2 bytes an event instead of 8 to 16,
        without loss, on a thread of low priority. `buffer` limits the packed bytes. With ``on_full
        'overwrite'`` the file is packed when the recorder stops. A packed file is not an archive,
        which `Trace.save` makes.
    labels : mapping, optional
        What this recording is of, as ``{"release": "A", "host": "eu-1"}``: names and texts, which
        are in ``metadata["labels"]``, in reports, and in `Trace.processes` and datasets. (The
        labels of `eventprof.label` are of parts of a recording.)

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
        This interpreter lacks the backend or the reference tracer, the backend cannot see the
        events, NumPy or HPy is not installed, or the library for `native` was not loaded.
    StateError
        `overhead` is given while a recorder runs.

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
    # In a signal handler NumPy may be half loaded; then the first trace loads the tables.
    if load_tables and not _numpy_is_loading():
        from .. import trace  # noqa: F401 - now, so that no window sees it
    backend_word = choice("backend", backend, BACKENDS)
    inside = {
        "lines": lines,
        "instructions": instructions,
        "exceptions": exceptions,
        "branches": branches,
    }
    if flag("archive", archive) and output is None:
        raise ValueError("archive=True packs the file of output: pass output, too")
    beside = {"marks": marks, "gc": gc, "refs": refs, "waits": waits, "hpy": hpy}
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
        automatic_buffer() if buffer == "auto" else parse_size("buffer", buffer, LEAST_BUFFER),
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
        archive=archive,
        labels=checked_labels("labels", labels),
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
            "the JIT of this interpreter is on: together with sys.monitoring, from which calls are "
            "recorded, it may corrupt local variables (CPython issue gh-156319, open); set "
            "PYTHON_JIT=0, or record with calls=False, c_calls=False",
            RuntimeWarning,
            stacklevel=3,  # where the caller of record() is
        )
    if options.overhead:
        from . import costs

        costs.overhead(**measured_as(options))
    return Recorder(options)


def _numpy_is_loading() -> bool:
    """Whether NumPy is being imported, for instance when a signal handler calls record()."""
    loaded = sys.modules.get("numpy")
    return bool(getattr(getattr(loaded, "__spec__", None), "_initializing", False))


def _import_hpy() -> None:
    """Import the modules that are hooked, before a window could record the import."""
    try:
        import hpy.universal  # noqa: F401
    except ImportError as error:
        raise _core.UnsupportedError(
            "hpy=True, or hpy_call and hpy_return in events, needs the package hpy, which does not "
            f"load ({error}): install eventprof[hpy]"
        ) from error
