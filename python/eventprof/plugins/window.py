"""One run of a test function, recorded under steady conditions."""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from ..recording.record import record
from .limits import Wanted

if TYPE_CHECKING:
    from ..recording.recorder import Recorder
    from ..trace import Trace


#: 3.12.1 begins with 375 frozen objects, other releases with none. A program has 10,000 and more.
_FROZEN_AT_START = 1000


class Window:
    """Records a function while it runs.

    Parameters
    ----------
    wanted : Wanted
        The settings of the test.
    records : bool
        Whether events are recorded; if not, only the time is taken.
    steady : bool
        Whether to fix what makes counts drift: the collector, random numbers, caches.

    Attributes
    ----------
    trace : Trace or None
        The trace of the function's last call.
    time : int
        The duration of that call, in ns.
    problem : str
        Why there is no trace; empty if there is one.
    """

    def __init__(self, wanted: Wanted, records: bool, steady: bool) -> None:
        self.trace: Trace | None = None
        self.time = 0
        self.problem = "the test function was not called" if records else ""
        self._wanted = wanted
        self._records = records
        self._steady = steady
        self._recorder: Recorder | None = None
        self._collects = True
        self._freezes = False
        self._random: list[tuple[random.Random, Any]] = []
        self._tracer: Any = None
        self._began = 0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls another function and records it."""
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def run_async(*args: Any, **kwargs: Any) -> Any:
                __tracebackhide__ = True
                self._open()
                try:
                    return await function(*args, **kwargs)
                finally:
                    self._close()

            return run_async

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            self._open()
            try:
                return function(*args, **kwargs)
            finally:
                self._close()

        return run

    def _open(self) -> None:
        self._collects = gc.isenabled()
        if self._records:
            wanted = self._wanted
            try:
                self._recorder = record(
                    buffer=wanted.buffer,
                    include=wanted.include,
                    threads=cast(Any, wanted.threads),
                )
                self._recorder._warns = False  # the summary says what was lost
                if self._steady:
                    self._hold()
                self._recorder.start()
            except Exception as error:
                self._recorder, self.problem = None, say(error)
        self._began = time.perf_counter_ns()

    def _hold(self) -> None:
        """Hold still what would make counts drift: the collector, random numbers, caches."""
        if self._wanted.gc != "on":
            # Older objects are frozen, because a collection of them would take longer than most
            # tests. The collection also empties the interpreter's free lists.
            # Not if the program has frozen some, because unfreeze() takes all.
            self._freezes = gc.get_freeze_count() < _FROZEN_AT_START
            if self._freezes:
                gc.freeze()
            _collect()
        if self._wanted.gc == "off":
            gc.disable()
        self._random = [(each, each.getstate()) for each in _generators()]
        for each, _ in self._random:
            each.seed(0)
        _clear_caches()
        if self._wanted.warmup and (tracer := sys.gettrace()) is not None:
            # Of coverage or a debugger, which has seen the first run. The interpreter allocates
            # for it. Calls that it sees begin here, it sees end in _restore().
            self._tracer = tracer
            sys.settrace(None)

    def _close(self) -> None:
        self.time = time.perf_counter_ns() - self._began
        try:
            self._take()
        finally:
            self._restore()

    def _take(self) -> None:
        """End the recording."""
        if self._recorder is not None:
            try:
                if self._steady and self._wanted.gc != "on":
                    _collect()  # otherwise garbage and free lists would count as live
                    _clear_caches()
                self._recorder.stop()
                self.trace, self.problem = self._recorder.trace, ""
            except Exception as error:
                self.problem = say(error)
            self._recorder = None

    def _restore(self) -> None:
        """Make everything as it was before the run."""
        tracer, self._tracer = self._tracer, None
        for each, state in self._random:
            each.setstate(state)
        self._random.clear()
        if self._freezes:
            gc.unfreeze()
            self._freezes = False
        if self._collects:
            gc.enable()
        if tracer is not None:
            sys.settrace(tracer)


#: Clears the interpreter's own caches. That of the attributes of types keeps names alive.
_clear_caches: Callable[[], object] = getattr(
    sys, "_clear_internal_caches", getattr(sys, "_clear_type_cache", lambda: None)
)


_found: tuple[int, list[random.Random]] = (0, [])


def _generators() -> list[random.Random]:
    """Return the generators of random numbers in globals of modules: that of `random`, Trio's.

    A search takes milliseconds, so there is a new one only if modules came or went.
    """
    global _found
    modules = hash(tuple(map(id, list(sys.modules.values()))))
    if _found[0] != modules:
        found = {
            id(value): value
            for module in list(sys.modules.values())
            for value in list(getattr(module, "__dict__", {}).values())
            if type(value) is random.Random
        }
        _found = modules, list(found.values())
    return _found[1]


def _collect() -> None:
    """Run the collector without the callbacks of other libraries, such as Hypothesis."""
    callbacks = gc.callbacks[:]
    gc.callbacks.clear()
    try:
        gc.collect()
    finally:
        gc.callbacks[:] = callbacks


def say(error: Exception) -> str:
    """Return the message for an error of the plugin."""
    return f"eventprof: {type(error).__name__}: {error}"


#: The first instance of a class has room for so many attributes, each further one for one less,
#: until there is room for those that are known and one more.
_FIRST_ATTRIBUTES = 30


def settle_classes(trace: Trace) -> None:
    """Make the first instances of the classes that a run made instances of.

    Otherwise their size would depend on the tests that ran before: up to 300 bytes each. No code of
    the classes is run.

    Parameters
    ----------
    trace : Trace
        The recording of the run. On 3.11, which reports no calls of types, only classes with an
        ``__init__`` of their own are found.
    """
    for name, module, _, _, kind in trace._tree.functions:
        path = str(name) if kind == "type" else str(name).removesuffix(".__init__")
        if kind == "type" or path != name:
            # An error: object does not make its instances, or the class is abstract.
            with contextlib.suppress(Exception):
                found: Any = sys.modules[str(module)]
                for part in path.split("."):
                    found = found.__dict__[part]
                if isinstance(found, type) and not hasattr(found, "__del__"):
                    for _ in range(_FIRST_ATTRIBUTES):
                        object.__new__(found)


@contextlib.contextmanager
def steady_caches() -> Iterator[None]:
    """Empty caches of the standard library, so that earlier tests have no effect on the counts.

    The cache of `linecache` is restored afterwards, because tracebacks need it.
    """
    lines: dict[str, Any] = {}
    kept: dict[str, Any] = {}
    with contextlib.suppress(Exception):  # the counts may drift then, and the test runs
        _empty_caches()
        lines = getattr(sys.modules.get("linecache"), "cache", {})
        kept = dict(lines)
        lines.clear()
    try:
        yield
    finally:
        for name, value in kept.items():
            lines.setdefault(name, value)


def _empty_caches() -> None:
    for module, name in (
        ("re", "purge"),
        ("struct", "_clearcache"),
        ("fnmatch", "_compile_pattern.cache_clear"),
        ("urllib.parse", "clear_cache"),
        ("_strptime", "_regex_cache.clear"),
    ):
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        if callable(found):
            with contextlib.suppress(Exception):
                found()
    for clear in getattr(sys.modules.get("typing"), "_cleanups", ()):
        with contextlib.suppress(Exception):
            clear()
