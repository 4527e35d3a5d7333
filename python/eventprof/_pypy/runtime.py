"""Events of the interpreter itself: its compiler (pypyjit) and its garbage collector (gc.hooks).

pypyjit has one hook of each sort and does not say who has it: while a recorder with ``jit=True``
runs, it is ours, and afterwards nobody's. The hooks of gc can be read: who was there before is
called first, and put back. None of ours raises into the program.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from types import CodeType
from typing import Any, NamedTuple, TypeAlias

#: The most events of a window that are kept; more are counted. With operations one may take kB.
LIMIT = 100_000

GC_STATES = ("SCANNING", "MARKING", "SWEEPING", "FINALIZING", "USERDEL")
_MINOR = ("count", "duration", "duration_min", "duration_max", "total_memory_used",
          "pinned_objects")  # fmt: skip
_STEP = ("count", "duration", "duration_min", "duration_max", "oldstate", "newstate")
_COLLECT = ("count", "num_major_collects", "arenas_count_before", "arenas_count_after",
            "arenas_bytes", "rawmalloc_bytes_before", "rawmalloc_bytes_after",
            "pinned_objects")  # fmt: skip


class Happening(NamedTuple):
    """One event of the interpreter.

    Parameters
    ----------
    ticks : int
        When.
    ident : int
        On which thread, as threading.get_ident() has it.
    event : str
        One of `EVENTS`.
    code : CodeType or None
        The function that it is about.
    line : int or None
        The line there.
    details : dict
        By name: numbers and text.
    """

    ticks: int
    ident: int
    event: str
    code: CodeType | None
    line: int | None
    details: dict[str, Any]


EVENTS = (
    "jit_compile",
    "jit_abort",
    "jit_trace_too_long",
    "gc_minor",
    "gc_collect_step",
    "gc_collect",
)


class Stats(NamedTuple):
    """The compiler's counters since the process began.

    Attributes
    ----------
    counters : dict of str to int
        As PYPYLOG=jit-summary names them: TRACING, BACKEND, OPS, TOTAL_COMPILED_LOOPS, ...
    counter_times : dict of str to float
        Seconds: of TRACING and of BACKEND.
    loop_run_times : dict of int to int
        How often each loop ran, by its number; empty unless the interpreter counts it.
    """

    counters: dict[str, int]
    counter_times: dict[str, float]
    loop_run_times: dict[int, int]


def stats_snapshot() -> Stats | None:
    """Return the compiler's counters.

    Returns
    -------
    Stats or None
        None: nothing was traced yet, or there is no compiler in this interpreter.
    """
    try:
        import pypyjit
    except ImportError:
        return None
    # Before the first trace there are no counters, and asking for them ends the process.
    if pypyjit.get_stats_asmmemmgr()[0] <= 0:
        return None
    found = pypyjit.get_stats_snapshot()
    return Stats(dict(found.counters), dict(found.counter_times), dict(found.loop_run_times))


# ---- Listeners -----------------------------------------------------------------------------------


class Listener:
    """The events that one window receives.

    Parameters
    ----------
    now : callable
        Gives ticks.
    jit, gc : bool
        Of which it wants to hear.
    operations : bool
        Whether the operations of loops and bridges are kept as text.
    calls : bool
        Whether its window has calls, so that the compiler meets a hook at each of them.
    """

    def __init__(
        self,
        now: Callable[[], int],
        jit: bool,
        gc: bool,
        operations: bool,
        calls: bool = False,
    ) -> None:
        self.now = now
        self.calls = calls
        self.jit = jit
        self.gc = gc
        self.operations = operations
        self._happenings: list[tuple[Any, ...]] = []
        self.lost = 0
        self._first: Stats | None = None
        self._last: Stats | None = None
        self._ended = False

    def begin(self) -> None:
        """Remember the counters."""
        self._first = stats_snapshot() if self.jit else None

    def end(self) -> None:
        """Remember the counters."""
        self._last = stats_snapshot() if self.jit else None
        self._ended = True

    def forget(self) -> None:
        """Begin anew: this is a forked process."""
        self._happenings.clear()
        self.lost = 0
        self.begin()

    def stats(self) -> Stats | None:
        """Return the counts of the window; None if there was nothing to count."""
        last = self._last if self._ended else stats_snapshot() if self.jit else None
        if last is None:
            return None
        first = self._first or Stats({}, {}, {})
        return Stats(
            {key: value - first.counters.get(key, 0) for key, value in last.counters.items()},
            {key: value - first.counter_times.get(key, 0.0)
             for key, value in last.counter_times.items()},
            {key: value - first.loop_run_times.get(key, 0)
             for key, value in last.loop_run_times.items()},
        )  # fmt: skip

    def take(self, event: str, code: CodeType | None, details: dict[str, Any]) -> None:
        """Keep one event."""
        if len(self._happenings) >= LIMIT:
            self.lost += 1
            return
        ticks, ident = self.now(), threading.get_ident()
        self._happenings.append((ticks, ident, event, code, details))

    def happenings(self) -> list[Happening]:
        """Return the events so far."""
        return [
            Happening(ticks, ident, event, code, _line(code, details), details)
            for ticks, ident, event, code, details in list(self._happenings)
        ]


#: Replaced, never changed: the hooks of other threads may be iterating over it.
_listeners: tuple[Listener, ...] = ()


def listen(listener: Listener) -> None:
    """Add a window to the listeners."""
    global _listeners
    listener.begin()
    _listeners = (*_listeners, listener)
    _install()


def leave(listener: Listener) -> list[str]:
    """Remove a window from the listeners; give the hooks that another tool took over meanwhile."""
    global _listeners
    _listeners = tuple(one for one in _listeners if one is not listener)
    listener.end()
    return _install()


# ---- The compiler --------------------------------------------------------------------------------

#: The compiler's hooks: None, not installed; else whether they report operations.
_jit_set: bool | None = None


def _install() -> list[str]:
    """Install the hooks that the listeners need, and no others."""
    global _jit_set
    jit = [one for one in _listeners if one.jit]
    wanted = any(one.operations for one in jit) if jit else None
    if wanted is not _jit_set:
        try:
            import pypyjit
        except ImportError:  # an interpreter without the compiler
            pass
        else:
            if wanted is None:
                pypyjit.set_compile_hook(None)
                pypyjit.set_abort_hook(None)
                pypyjit.set_trace_too_long_hook(None)
            else:
                pypyjit.set_compile_hook(_on_compile, operations=wanted)
                pypyjit.set_abort_hook(_on_abort)
                pypyjit.set_trace_too_long_hook(_on_trace_too_long)
        _jit_set = wanted
    _set_trace_limit(any(one.calls for one in _listeners))
    return _install_gc(any(one.gc for one in _listeners))


#: The most operations of a compiler's trace while calls are recorded: then a trace has, for each
#: call, the operations of the hook. With PyPy's own limit of 6000 the compiler would give up more
#: traces: richards took 2.2 times as long as with this limit, deltablue 5 times, raytrace 3 times.
#: Half of this limit, and three times as much, were not better for all programs, nor worse.
TRACE_LIMIT = 20_000
_traces_are_long = False


def _set_trace_limit(calls: bool) -> None:
    """Allow longer traces while calls are recorded; not if PyPy was started with --jit."""
    global _traces_are_long
    if calls is _traces_are_long or any(word.startswith("--jit") for word in sys.orig_argv):
        return
    try:
        import pypyjit
    except ImportError:
        return
    limit = TRACE_LIMIT if calls else pypyjit.defaults["trace_limit"]
    pypyjit.set_param(trace_limit=limit)
    _traces_are_long = calls


def _line(code: CodeType | None, details: dict[str, Any]) -> int | None:
    if code is None:
        return None
    offset = details["instruction"]
    for begin, end, line in code.co_lines():
        if begin <= offset < end and line is not None:
            return line
    return code.co_firstlineno


def _tell_jit(event: str, greenkey: Any, details: dict[str, Any], operations: Any = None) -> None:
    # Little is done here, and no loop: what the compiler would make of this it does not tell.
    code = None
    if isinstance(greenkey, tuple) and len(greenkey) > 1 and isinstance(greenkey[0], CodeType):
        code = greenkey[0]  # and the next instruction, and whether it is profiled
        details["instruction"] = int(greenkey[1])
    elif greenkey is not None:  # of another loop of the interpreter's
        details["greenkey"] = str(greenkey)
    text = None
    for listener in _listeners:
        if not listener.jit:
            continue
        own = dict(details)
        if listener.operations and operations is not None:
            if text is None:
                text = [str(one) for one in operations]
            own["operations"] = text
        listener.take(event, code, own)


def _on_compile(info: Any) -> None:
    try:
        kind = info.type
        details = {"jitdriver": info.jitdriver_name, "type": kind, "loop": info.loop_no}
        if kind == "bridge":
            details["bridge"] = info.bridge_no  # on what is no bridge, asking raises
        details["asmaddr"] = info.asmaddr
        details["asmlen"] = info.asmlen
        _tell_jit("jit_compile", info.greenkey, details, info.operations)
    except Exception:
        _failed()


def _on_abort(jitdriver: str, greenkey: Any, reason: str, operations: Any) -> None:
    try:
        details = {"jitdriver": jitdriver, "reason": reason}
        _tell_jit("jit_abort", greenkey, details, operations)
    except Exception:
        _failed()


def _on_trace_too_long(jitdriver: str, greenkey: Any) -> None:
    try:
        _tell_jit("jit_trace_too_long", greenkey, {"jitdriver": jitdriver})
    except Exception:
        _failed()


def _failed() -> None:
    """Count an event that a hook could not keep: a hook must not raise."""
    for listener in _listeners:
        listener.lost += 1


# ---- The garbage collector -----------------------------------------------------------------------

_GcHook: TypeAlias = Callable[[Any], Any]
_GC_HOOKS = ("on_gc_minor", "on_gc_collect_step", "on_gc_collect")
#: The hooks that were there before ours, by name; empty while ours are not installed.
_gc_before: dict[str, _GcHook | None] = {}


def _install_gc(wanted: bool) -> list[str]:
    hooks = getattr(gc, "hooks", None)
    displaced: list[str] = []
    if hooks is None or wanted is bool(_gc_before):
        return displaced
    ours = {"on_gc_minor": _on_minor, "on_gc_collect_step": _on_step, "on_gc_collect": _on_collect}
    for name in _GC_HOOKS:
        if wanted:
            _gc_before[name] = getattr(hooks, name)
            setattr(hooks, name, ours[name])
        elif getattr(hooks, name) is ours[name]:
            setattr(hooks, name, _gc_before.pop(name))
        else:  # somebody set another: it stays
            _gc_before.pop(name)
            displaced.append(f"gc.hooks.{name}")
    return displaced


def _tell_gc(event: str, hook: str, stats: Any, names: tuple[str, ...]) -> None:
    before = _gc_before.get(hook)
    if before is not None:
        before(stats)  # what it raises is reported as without us
    try:
        details = {name: getattr(stats, name) for name in names}
        for name in ("duration", "duration_min", "duration_max"):
            if name in details:  # seconds
                details[name] = round(details[name] * 1e9)
        for name in ("oldstate", "newstate"):
            if name in details:
                details[name] = GC_STATES[details[name]]
        if event == "gc_collect_step":
            details["major_is_done"] = bool(stats.major_is_done)
        for listener in _listeners:
            if listener.gc:
                listener.take(event, None, dict(details))
    except Exception:
        _failed()


def _on_minor(stats: Any) -> None:
    _tell_gc("gc_minor", "on_gc_minor", stats, _MINOR)


def _on_step(stats: Any) -> None:
    _tell_gc("gc_collect_step", "on_gc_collect_step", stats, _STEP)


def _on_collect(stats: Any) -> None:
    _tell_gc("gc_collect", "on_gc_collect", stats, _COLLECT)
