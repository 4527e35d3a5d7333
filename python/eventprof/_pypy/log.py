"""The hook, the logs that it writes, and what a window of them is.

An event is three entries at one place of three lists that are made once a thread: the clock's ticks
and the kind in one number, the code object or builtin, and the position of the frame. No object is
made for it, nothing is looked up, and no frame or argument is kept: names, lines and pairs are made
of it when somebody asks. Full lists are copied into a chunk, which is cheaper than lists that are
new to the processor's cache: measured 1.0 to 1.7 times as fast.
"""

from __future__ import annotations

import dis
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from types import CodeType, FrameType, MethodType
from typing import Any, NamedTuple

from . import runtime

#: Events of a chunk.
CHUNK = 4096
#: Three entries of 8 bytes.
EVENT_BYTES = 24

CALL, RETURN, YIELD, RESUME, THROW, UNWIND, C_CALL, C_RETURN, C_EXCEPTION = range(1, 10)
KIND_BITS = 4
KIND_MASK = (1 << KIND_BITS) - 1
#: co_flags of what can be resumed: generators, coroutines, asynchronous generators.
RESUMABLE = 0x20 | 0x80 | 0x200

OVERWRITE, STOP, GROW = range(3)  # as ON_FULL of recorder.py

#: Where our own code is; __init__ tells it.
own_directory = "\0"
#: By native id.
thread_names: dict[int, str] = {}

Hook = Callable[[FrameType, str, Any], Any]


# ---- The clock -----------------------------------------------------------------------------------


class Clock(NamedTuple):
    """What gives ticks, and what they are."""

    name: str
    read: Callable[[], int]


class Anchor(NamedTuple):
    """One moment on all clocks."""

    ticks: int
    monotonic_ns: int
    realtime_ns: int
    boottime_ns: int


def _counter() -> Callable[[], int] | None:
    """Give what reads the processor's counter, if that can be relied on: 8 ns instead of 40."""
    try:
        import __pypy__

        if __pypy__.debug_get_timestamp_unit() != "tsc":
            return None
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            flags = next((line for line in file if line.startswith("flags")), "").split()
    except (ImportError, AttributeError, OSError):
        return None
    if "constant_tsc" not in flags or "nonstop_tsc" not in flags:
        return None
    read: Callable[[], int] = __pypy__.debug_read_timestamp
    return read


def clock(wanted: str) -> Clock:
    """Give the clock that was asked for."""
    read = _counter() if wanted != "monotonic" else None
    if read is not None:
        return Clock("counter", read)
    if wanted == "counter":
        from .core import missing

        missing(
            "clock='counter'",
            "this processor has no counter that runs at one speed always, or this system does "
            "not say so",
            "clock='auto' takes CLOCK_MONOTONIC then",
        )
    return Clock("monotonic", time.monotonic_ns)


def anchor(read: Callable[[], int]) -> Anchor:
    """Read all clocks at one moment: of a few tries the one that took the least time."""
    best = None
    for _ in range(5):
        before = read()
        monotonic = time.monotonic_ns()
        after = read()
        real = time.time_ns()
        boot = time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
        if best is None or after - before < best[0]:
            best = after - before, Anchor((before + after) // 2, monotonic, real, boot)
    assert best is not None
    return best[1]


# ---- The log of a thread -------------------------------------------------------------------------


class Chunk(NamedTuple):
    """A piece of a thread's log."""

    log: ThreadLog
    words: list[int]
    objects: list[Any]
    places: list[int]


class ThreadLog:
    """What one thread did in one window.

    Parameters
    ----------
    session : Session
        The window.
    previous : callable or None
        The profile function that was there before, which goes on working.
    """

    def __init__(self, session: Session, previous: Hook | None) -> None:
        self.session = session
        self.ident = threading.get_ident()
        self.native_id = threading.get_native_id()
        self.name: str | None = None
        self.next = 0
        self.end = CHUNK
        self.words = [0] * CHUNK
        self.objects: list[Any] = [None] * CHUNK
        self.places = [0] * CHUNK
        self.sealed = 0
        self.lost: dict[int, int] = {}
        #: What was open when the recorded part begins, outermost first: (kind, object).
        self.open: list[tuple[int, Any]] = []
        self.raised = False  # whether the event before that was the end of a call by an exception
        self.previous = previous
        self.removed = False
        own = _hook(self, session)
        self.hook: Hook = own if previous is None else _both(own, self, previous)
        vars(self.hook)[_MARK] = self

    def roll(self) -> int:
        """Make room: give the place of the next event, or -1 if there is to be none."""
        session = self.session
        if not session.running:
            # It was stopped, on a thread that cannot take the hook of this one away.
            if sys.getprofile() is self.hook:
                sys.setprofile(_alive(self.previous))
                self.removed = True
            return -1
        try:
            session.seal(self)
        except MemoryError:
            session.refuse(self)
        self.next = 0
        return 0


#: The attribute by which our hooks are known; of those that threads begin with it is None.
_MARK = "_eventprof_log"


def _log_of(hook: Any) -> ThreadLog | None:
    found: ThreadLog | None = getattr(hook, _MARK, None)
    return found


def _is_ours(hook: Any) -> bool:
    return hasattr(hook, _MARK)


def _hook(log: ThreadLog, session: Session) -> Hook:
    words, objects, places, now = log.words, log.objects, log.places, session.clock.read
    want_calls, want_c_calls = session.want_calls, session.want_c_calls

    def hook(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            if not want_calls:
                return
            kind, what = CALL, frame.f_code
            if what.co_flags & RESUMABLE and frame.f_lasti >= 0:
                kind = RESUME
        elif event == "return":
            if not want_calls:
                return
            # An exception gives None, too; the place tells more.
            kind, what = RETURN if arg is None else YIELD, frame.f_code
        else:
            if not want_c_calls:
                return
            # A bound method would keep its object alive.
            what = arg.__func__ if type(arg) is MethodType else arg
            kind = C_CALL if event == "c_call" else C_RETURN if event == "c_return" else C_EXCEPTION
        place = log.next
        if place >= log.end:
            place = log.roll()
            if place < 0:
                return
        objects[place] = what
        places[place] = frame.f_lasti
        words[place] = now() << KIND_BITS | kind
        # Last: whoever reads meanwhile must not take the entry of a round before for this one.
        log.next = place + 1

    return hook


def _both(own: Hook, log: ThreadLog, previous: Hook) -> Hook:
    """Give a hook that calls the one that was there before, too."""
    other = _log_of(previous)

    def hook(frame: FrameType, event: str, arg: Any) -> None:
        if log.end:
            own(frame, event, arg)
        if other is None or other.end:
            previous(frame, event, arg)

    return hook


def _alive(hook: Hook | None) -> Hook | None:
    """Give the hook that is to be put back: of our own only one whose recorder runs."""
    while (log := _log_of(hook)) is not None and not log.session.running:
        hook = log.previous
    return hook


# ---- What an entry means -------------------------------------------------------------------------

_RETURNS = frozenset(dis.opmap[name] for name in ("RETURN_VALUE",))
_YIELDS = frozenset(dis.opmap[name] for name in ("YIELD_VALUE",))
_DELEGATES = frozenset(dis.opmap[name] for name in ("YIELD_FROM",) if name in dis.opmap)


class Code:
    """What is looked up of a code object, once."""

    __slots__ = ("lines", "operations", "own")

    def __init__(self, code: CodeType) -> None:
        self.own = is_own(code)
        self.operations = code.co_code
        self.lines: list[tuple[int, int, int | None]] | None = None


_codes: dict[int, tuple[CodeType, Code]] = {}


def code_of(what: CodeType) -> Code:
    """Give what is known of a code object."""
    found = _codes.get(id(what))
    if found is None or found[0] is not what:
        found = _codes[id(what)] = what, Code(what)
    return found[1]


class Stack:
    """The open calls of a thread, and what each entry of its log means there.

    Parameters
    ----------
    calls : list of (kind, object)
        Open at the begin, outermost first; changed by `step`.
    """

    def __init__(self, calls: list[tuple[int, Any]]) -> None:
        self.calls = calls
        self.raised = False
        self.depth = -1  # where the call is or was that the last event opened or closed

    def step(self, kind: int, what: Any, place: int) -> int:
        """Take an event; give its true kind, or 0 if it is of our own code."""
        calls = self.calls
        if kind in (CALL, RESUME, C_CALL):
            own = code_of(what).own if kind != C_CALL else self._own_is_innermost()
            self.raised = False
            self.depth = len(calls)
            # Of a builtin that we called nothing is kept but that it was ours.
            calls.append((kind, OURS if own and kind == C_CALL else what))
            return 0 if own else kind
        if kind in (C_RETURN, C_EXCEPTION):
            if calls and calls[-1] == (C_CALL, OURS):
                calls.pop()
                return 0
            # One that began before the window, as sys.setprofile() did.
            own = self._own_is_innermost()
            self.depth = self._close(what)
            self.raised = kind == C_EXCEPTION
            return 0 if own else kind
        code = code_of(what)
        operation = code.operations[place] if 0 <= place < len(code.operations) else -1
        with_value = kind == YIELD
        if operation in _RETURNS:
            kind = RETURN
        elif operation in _YIELDS:
            kind = YIELD
        elif operation in _DELEGATES and (with_value or not self.raised):
            kind = YIELD
        else:
            kind = UNWIND
        self.depth = self._close(what)
        self.raised = kind == UNWIND
        return 0 if code.own else kind

    def _own_is_innermost(self) -> bool:
        return bool(self.calls) and (self.calls[-1][1] is OURS or is_own(self.calls[-1][1]))

    def _close(self, what: Any) -> int:
        calls = self.calls
        for depth in range(len(calls) - 1, -1, -1):
            if calls[depth][1] is what:
                del calls[depth:]
                return depth
        return -1


#: Stands for builtins that our own code called.
OURS = object()


# ---- A window ------------------------------------------------------------------------------------


class Capture(NamedTuple):
    """A copy of what was recorded until now."""

    logs: list[tuple[ThreadLog, list[Chunk], list[tuple[int, Any]], dict[int, int]]]
    start: Anchor
    end: Anchor
    full_ticks: int | None
    clock: Clock
    runtime: list[runtime.Happening]
    runtime_lost: int
    stats: runtime.Stats | None


class Session:
    """One window: its hooks, its logs and its limit.

    Parameters
    ----------
    clock : Clock
        Gives the times.
    want_calls, want_c_calls : bool
        What is recorded.
    limit_bytes, on_full : int
        How much, and what then.
    all_threads : bool
        Whether threads that start meanwhile are part of it.
    """

    def __init__(
        self,
        clock: Clock,
        want_calls: bool,
        want_c_calls: bool,
        limit_bytes: int,
        on_full: int,
        all_threads: bool,
    ) -> None:
        self.clock = clock
        self.want_calls = want_calls
        self.want_c_calls = want_c_calls
        self.on_full = on_full
        self.all_threads = all_threads
        self.limit_chunks = max(1, limit_bytes // (CHUNK * EVENT_BYTES))
        self.chunks: deque[Chunk] = deque()
        self.logs: list[ThreadLog] = []
        self.running = False
        self.displaced: list[str] = []
        self.full_ticks: int | None = None
        self.begin = self.finish = Anchor(0, 0, 0, 0)
        self.runtime: runtime.Listener | None = None
        self._starter: ThreadLog | None = None
        self._new_thread: Hook | None = None
        self._threads_before: Hook | None = None

    # ---- Start and stop --------------------------------------------------------------------------

    def start(self) -> None:
        """Install the hooks: of this thread, and of those to come."""
        wanted = self.want_calls or self.want_c_calls
        log = self._starter = ThreadLog(self, sys.getprofile()) if wanted else None
        if log is not None:
            self.logs.append(log)
            frame: FrameType | None = sys._getframe(1)
            while frame is not None and self.want_calls:
                log.open.append((CALL, frame.f_code))
                frame = frame.f_back
            log.open.reverse()
            # What is below us: the frame of this function comes on top, and returns first.
            log.open.append((CALL, Session.start.__code__))
            if self.all_threads:
                self._threads_before = threading.getprofile()
                self._new_thread = self._thread_hook(self._threads_before)
                threading.setprofile(self._new_thread)
        self.begin = anchor(self.clock.read)
        self.running = True
        if log is not None:
            sys.setprofile(log.hook)

    def stop(self) -> None:
        """Take the hooks away; one that another tool took over stays."""
        log = self._starter
        running, self.running = self.running, False
        if not running:
            from .core import StateError

            raise StateError("this recorder is not running; start it first")
        for one in self.logs:
            one.end = 0  # its hook sees it at the next event, records nothing more, and goes
        # Nothing of ours is recorded from here on.
        if log is not None and log.ident == threading.get_ident() and not log.removed:
            found = sys.getprofile()
            if found is log.hook:
                sys.setprofile(_alive(log.previous))
            elif not log.removed and _log_of(found) is None:
                self.displaced.append("profile")
        self.finish = anchor(self.clock.read)
        if self._new_thread is not None:
            if threading.getprofile() is self._new_thread:
                threading.setprofile(self._threads_before)
            elif not _is_ours(threading.getprofile()):
                self.displaced.append("threads")
        self._name_threads()

    def _thread_hook(self, before: Hook | None) -> Hook:
        """Give what threads begin with: it makes a log, and puts that one's hook in its place."""

        def hook(frame: FrameType, event: str, arg: Any) -> None:
            previous = before
            if previous is not None and _is_ours(previous):
                previous(frame, event, arg)  # a recorder that runs beside this one
                previous = sys.getprofile()
                previous = None if previous is hook else previous
            if not self.running:
                sys.setprofile(_alive(previous))
                return
            log = ThreadLog(self, previous)
            self.logs.append(log)
            sys.setprofile(log.hook)
            # Others had this event from `before` already.
            _hook(log, self)(frame, event, arg)

        vars(hook)[_MARK] = None
        return hook

    def _name_threads(self) -> None:
        active = getattr(sys.modules.get("threading"), "_active", {})
        names = {ident: getattr(one, "_name", None) for ident, one in list(active.items())}
        for log in self.logs:
            name = names.get(log.ident) or thread_names.get(log.native_id)
            log.name = name if isinstance(name, str) else log.name

    # ---- Chunks ----------------------------------------------------------------------------------

    def seal(self, log: ThreadLog) -> None:
        """Keep the full lists of a thread, if there is room; make room if that is asked for."""
        if self.full_ticks is not None:
            self.refuse(log)
            return
        if self.on_full != GROW and len(self.chunks) + len(self.logs) > self.limit_chunks:
            if self.on_full == STOP:
                self.full_ticks = log.words[0] >> KIND_BITS
                self.refuse(log)
                return
            try:
                self.overwrite(self.chunks.popleft())
            except IndexError:  # nothing but what threads write into
                self.overwrite(Chunk(log, log.words, log.objects, log.places))
                return
        log.sealed += 1
        self.chunks.append(Chunk(log, log.words[:], log.objects[:], log.places[:]))

    @staticmethod
    def refuse(log: ThreadLog) -> None:
        """Count what there is no room for."""
        log.sealed += 1
        stack = Stack([])
        for at in range(log.next):
            kind = stack.step(log.words[at] & KIND_MASK, log.objects[at], log.places[at])
            if kind:
                log.lost[kind] = log.lost.get(kind, 0) + 1

    @staticmethod
    def overwrite(chunk: Chunk) -> None:
        """Count a chunk's events as lost, and keep what is open after it."""
        log = chunk.log
        stack = Stack(log.open)
        stack.raised = log.raised
        for word, what, place in zip(chunk.words, chunk.objects, chunk.places, strict=True):
            kind = stack.step(word & KIND_MASK, what, place)
            if kind:
                log.lost[kind] = log.lost.get(kind, 0) + 1
        log.raised = stack.raised

    def count_recorded(self) -> int:
        """Give about how many events are kept."""
        return len(self.chunks) * CHUNK + sum(log.next for log in self.logs)

    def capture(self) -> Capture:
        """Copy what was recorded until now."""
        self._name_threads()
        copies = []
        for log in list(self.logs):
            for _ in range(1000):  # again, if the thread sealed a chunk meanwhile
                before, count = log.sealed, log.next
                opened, lost = list(log.open), dict(log.lost)
                chunks = [chunk for chunk in list(self.chunks) if chunk.log is log]
                tail = Chunk(log, log.words[:count], log.objects[:count], log.places[:count])
                if log.sealed == before and log.next >= count and lost == log.lost:
                    break
            copies.append((log, [*chunks, tail], opened, lost))
        end = self.finish if not self.running else anchor(self.clock.read)
        listener = self.runtime
        return Capture(
            copies,
            self.begin,
            end,
            self.full_ticks,
            self.clock,
            [] if listener is None else list(listener.happenings),
            0 if listener is None else listener.lost,
            None if listener is None else listener.stats(),
        )


def is_own(what: Any) -> bool:
    """Tell whether this is code of ours."""
    return isinstance(what, CodeType) and what.co_filename.startswith(own_directory)


NO_SESSION = Session(Clock("monotonic", time.monotonic_ns), False, False, 1, GROW, False)
