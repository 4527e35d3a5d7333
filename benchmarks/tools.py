"""The tools that are compared: context managers that switch a recorder on and off.

Tools that are not installed are left out."""

from __future__ import annotations

import cProfile
import importlib
import importlib.util
import os
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import empty_hooks

Tool = Callable[[], AbstractContextManager[Any]]

MONITORING = sys.version_info >= (3, 12)
CALL_EVENTS = (
    "PY_START",
    "PY_RESUME",
    "PY_THROW",
    "PY_RETURN",
    "PY_YIELD",
    "PY_UNWIND",
    "CALL",
    "C_RETURN",
    "C_RAISE",
)
PYTHON_CALL_EVENTS = CALL_EVENTS[:6]
LOG_BYTES = int(os.environ.get("EVENTPROF_BENCH_LOG_MIB", "64")) << 20

hooks = empty_hooks.load()

# ---- Empty hooks ---------------------------------------------------------------------------------


@contextmanager
def empty_profile() -> Iterator[None]:
    hooks.profile_start()
    try:
        yield
    finally:
        hooks.profile_stop()


@contextmanager
def _monitored(callback: Callable[[], object], names: tuple[str, ...]) -> Iterator[None]:
    # Not an id that a recorder would take first.
    tool, monitoring = 5, sys.monitoring  # type: ignore[attr-defined]
    monitoring.use_tool_id(tool, "benchmark")
    numbers = [getattr(monitoring.events, name) for name in names]
    for number in numbers:
        monitoring.register_callback(tool, number, callback())
    monitoring.set_events(tool, sum(numbers))
    try:
        yield
    finally:
        monitoring.set_events(tool, 0)
        for number in numbers:
            monitoring.register_callback(tool, number, None)
        monitoring.free_tool_id(tool)


def empty_monitoring() -> AbstractContextManager[None]:
    return _monitored(hooks.monitoring_callback, CALL_EVENTS)


def empty_monitoring_python_calls() -> AbstractContextManager[None]:
    return _monitored(hooks.monitoring_callback, PYTHON_CALL_EVENTS)


@contextmanager
def empty_allocators() -> Iterator[None]:
    hooks.allocators_start()
    try:
        yield
    finally:
        hooks.allocators_stop()


@contextmanager
def _traced(opcodes: bool) -> Iterator[None]:
    hooks.trace_start(opcodes)
    try:
        yield
    finally:
        hooks.trace_stop()


def empty_lines() -> AbstractContextManager[None]:
    return _monitored(hooks.monitoring_callback, ("LINE",)) if MONITORING else _traced(False)


def empty_instructions() -> AbstractContextManager[None]:
    return _monitored(hooks.monitoring_callback, ("INSTRUCTION",)) if MONITORING else _traced(True)


empty_calls = empty_monitoring if MONITORING else empty_profile


def clocked(tool: Tool) -> Tool:
    """A tool's hooks, which also read the processor's counter: the least that a recorder pays."""

    @contextmanager
    def with_clock() -> Iterator[None]:
        with tool():
            hooks.set_clocked(True)
            try:
                yield
            finally:
                hooks.set_clocked(False)

    return with_clock


def together(*tools: Tool) -> Tool:
    @contextmanager
    def both() -> Iterator[None]:
        with ExitStack() as stack:
            for tool in tools:
                stack.enter_context(tool())
            yield

    return both


# ---- eventprof -----------------------------------------------------------------------------------


def _kinds() -> dict[str, int]:
    from eventprof import _core

    bits = {"calls": 0, "python": 0, "allocations": 0, "lines": 0, "instructions": 0}
    for number, name, word, legacy, form, domain, *_ in _core.kind_table():
        bit = 1 << number
        if domain in ("raw", "mem", "obj"):
            bits["allocations"] |= bit
        elif form == "call" and legacy:  # the interpreter makes them
            bits["calls"] |= bit
            bits["python"] |= 0 if name.startswith("C_") else bit
        elif f"{word}s" in bits:
            bits[f"{word}s"] |= bit
    return bits


def recorder(
    kinds: str, backend: str = "auto", limit_bytes: int | None = None, on_full: int = 0
) -> Any:
    """A recorder that is not started; kinds: words of _kinds(), joined by +."""
    from eventprof import _core

    bits = _kinds()
    wanted = 0
    for word in kinds.split("+"):
        wanted |= bits[word]
    return _core.Recorder(
        kinds=wanted,
        limit_bytes=limit_bytes or LOG_BYTES,
        on_full=on_full,
        backend=backend,
        clock="auto",
        current_thread=False,
    )


def eventprof(kinds: str, backend: str = "auto") -> Tool:
    return lambda: recorder(kinds, backend)


def counter(domains: int) -> Tool:
    """A counter, without a log. domains: bits of those whose blocks are counted."""

    def make() -> AbstractContextManager[Any]:
        from eventprof import _core

        return _core.Counter(domains=domains)

    return make


def filtered() -> AbstractContextManager[Any]:
    """Calls, every function excluded."""
    from eventprof import record

    return record(memory=False, exclude=["*"])


# What becomes of the log's memory: `grow` writes each byte once, a small ring goes round and round.
def fresh_log() -> AbstractContextManager[Any]:
    return recorder("calls", limit_bytes=4 << 30, on_full=2)  # type: ignore[no-any-return]


def recycled_log() -> AbstractContextManager[Any]:
    return recorder("calls", limit_bytes=4 << 20)  # type: ignore[no-any-return]


@contextmanager
def log_in_file() -> Iterator[None]:
    from eventprof import record

    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "run.epr")
        with record(memory=False, output=path):  # type: ignore[call-arg]
            yield


def has_output() -> bool:
    """Whether this version can record into a file."""
    import inspect

    from eventprof import record

    return "output" in inspect.signature(record).parameters


def several(count: int) -> Tool:
    """That many recorders at once."""
    return together(*[eventprof("calls")] * count)


def count_events(kinds: str, run: Callable[[], object], backend: str = "auto") -> int:
    """Events of one run, recorded or lost."""
    window = recorder(kinds, backend)
    with window:
        run()
    trace = window._capture()
    return int(trace.facts()["events"]) + sum(sum(row[5].values()) for row in trace.threads())


# ---- Others --------------------------------------------------------------------------------------


@contextmanager
def c_profile() -> Iterator[None]:
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        yield
    finally:
        profiler.disable()


@contextmanager
def trace_malloc() -> Iterator[None]:
    tracemalloc.start(1)
    try:
        yield
    finally:
        tracemalloc.stop()


@contextmanager
def viztracer() -> Iterator[None]:
    from viztracer import VizTracer

    tracer = VizTracer(verbose=0, tracer_entries=1_000_000)
    tracer.start()
    try:
        yield
    finally:
        tracer.stop()
        tracer.clear()


def memray(python_allocators: bool) -> Tool:
    @contextmanager
    def tool() -> Iterator[None]:
        import memray

        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "run.bin")
            with memray.Tracker(path, trace_python_allocators=python_allocators):
                yield

    return tool


@contextmanager
def yappi() -> Iterator[None]:
    import yappi as module

    module.set_clock_type("wall")
    module.start(builtins=True)
    try:
        yield
    finally:
        module.stop()
        module.clear_stats()


def _nothing(*arguments: object) -> None:
    pass


@contextmanager
def python_profile() -> Iterator[None]:
    sys.setprofile(_nothing)
    try:
        yield
    finally:
        sys.setprofile(None)


def python_monitoring() -> AbstractContextManager[None]:
    return _monitored(lambda: _nothing, CALL_EVENTS)


def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _has_ancestor() -> bool:
    """Its wheels end with 3.9; from source it installs, often without the C++ part."""
    try:
        importlib.import_module("cpyquickhelper.profiling")
    except ImportError:
        return False
    return True


def own() -> dict[str, Tool]:
    """Nothing, empty hooks, and eventprof."""
    found: dict[str, Tool] = {"bare": nullcontext, "empty calls": empty_calls}
    if MONITORING:
        found["empty profile"] = empty_profile
        found["empty python calls"] = empty_monitoring_python_calls
    found |= {
        "empty allocations": empty_allocators,
        # The order in which eventprof installs.
        "empty both": together(empty_allocators, empty_calls),
        "clock calls": clocked(empty_calls),
        "clock allocations": clocked(empty_allocators),
        "clock both": clocked(together(empty_allocators, empty_calls)),
        "calls": eventprof("calls"),
    }
    if MONITORING:
        found["calls, profile"] = eventprof("calls", "profile")
        found["python calls"] = eventprof("python")
    found |= {
        "allocations": eventprof("allocations"),
        "both": eventprof("calls+allocations"),
        "filtered": filtered,
        "counting": counter(0),
        "counting both": counter(7),
        "empty lines": empty_lines,
        "empty instructions": empty_instructions,
        "clock lines": clocked(empty_lines),
        "clock instructions": clocked(empty_instructions),
        "lines": eventprof("lines"),
        "instructions": eventprof("instructions"),
    }
    return found


def variants() -> dict[str, Tool]:
    """Of "calls": how much there is at once, and where the log lies."""
    found: dict[str, Tool] = {
        "calls, 2 recorders": several(2),
        "calls, 8 recorders": several(8),
        "calls, log fresh": fresh_log,
        "calls, log recycled": recycled_log,
    }
    if has_output():
        found["calls, log in a file"] = log_in_file
    return found


# Which empty hook a configuration of eventprof is held against.
EMPTY = {
    "calls": "empty calls",
    "calls, profile": "empty profile",
    "python calls": "empty python calls",
    "allocations": "empty allocations",
    "both": "empty both",
    "counting": "empty calls",
    "counting both": "empty both",
    "lines": "empty lines",
    "instructions": "empty instructions",
}


@contextmanager
def ancestor() -> Iterator[None]:
    from cpyquickhelper.profiling import EventProfiler

    # Its buffer throws when it is full.
    profiler = EventProfiler(size=10_000_000, impl="c")
    profiler.start()
    try:
        yield
    finally:
        profiler.stop()


def empty_of(tool: str) -> str:
    """The empty hook that a configuration, or a variant of "calls", is held against."""
    return EMPTY.get(tool, EMPTY["calls"])


def peers() -> dict[str, Tool]:
    found: dict[str, Tool] = {
        "cProfile": c_profile,
        "sys.setprofile(py)": python_profile,
        "tracemalloc": trace_malloc,
        "cProfile + tracemalloc": together(trace_malloc, c_profile),
    }
    if MONITORING:
        found["sys.monitoring(py)"] = python_monitoring
    if _has("viztracer"):
        found["VizTracer"] = viztracer
    if _has("yappi"):
        found["yappi"] = yappi
    if _has("memray"):
        found["memray"] = memray(False)
        found["memray, python"] = memray(True)
        found["cProfile + memray, python"] = together(memray(True), c_profile)
    if _has_ancestor():
        found["cpyquickhelper"] = ancestor
    return found
