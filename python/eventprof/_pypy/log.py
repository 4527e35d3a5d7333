"""The hook, the logs that it writes, and windows on them.

An event is three entries at one place of three lists that are made once a thread: the clock's
ticks and the kind in one number, the code object or builtin, and the position of the frame. No
object is made for it, nothing is looked up, and no frame or argument is kept: names, lines and
pairs are made of it when somebody asks. Lists of int are arrays of machine words in PyPy. Full
ones are copied into a chunk: lists of 4096 entries that stay in the processor's cache were 1.0 to
1.7 times as fast as a large ring.
"""

from __future__ import annotations

import atexit
import dis
import os
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

OVERWRITE, STOP, GROW = range(3)  # as ON_FULL of arguments.py

#: The folder of eventprof's code; __init__.py sets it.
own_directory = "\0"
#: Names of threads by native id.
thread_names: dict[int, str] = {}
#: What a pool calls this process.
worker: str | None = None

Hook = Callable[..., Any]


# ---- The clock -----------------------------------------------------------------------------------


class Clock(NamedTuple):
    """A function that gives ticks, and their unit."""

    name: str
    read: Callable[[], int]


class Anchor(NamedTuple):
    """One moment on all clocks."""

    ticks: int
    monotonic_ns: int
    realtime_ns: int
    boottime_ns: int


def _counter() -> Callable[[], int] | None:
    """Return a function that reads the processor's counter, if it is reliable: 8 ns, not 40."""
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
    """Return the clock that was asked for."""
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
    """Read all clocks at one moment: the fastest of a few tries."""
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
    """Events of a thread, copied out of its full lists."""

    log: ThreadLog
    words: list[int]
    objects: list[Any]
    places: list[int]


class ThreadLog:
    """The events of one thread in one window.

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
        # Threads that end before the window does are known no more then.
        thread = getattr(sys.modules.get("threading"), "_active", {}).get(self.ident)
        self.name: str | None = getattr(thread, "_name", None)
        self.next = 0
        self.end = CHUNK
        self.words = [0] * CHUNK
        self.objects: list[Any] = [None] * CHUNK
        self.places = [0] * CHUNK
        self.sealed = 0
        self.lost: dict[int, int] = {}
        #: What was open when the recorded part begins, outermost first.
        self.open: list[Open] = []
        self.raised = False  # whether the event before that was the end of a call by an exception
        self.previous = previous
        self.removed = False
        own = _hook(self, session)
        self.hook: Hook = own if previous is None else _both(own, self, previous)
        vars(self.hook)[_MARK] = self

    def roll(self) -> int:
        """Make room: give the place of the next event, or -1 if no more events are kept."""
        session = self.session
        if not session.running:
            # It was stopped, maybe on a thread that cannot take the hook of this one away.
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


#: The attribute that marks our hooks; it is None in the first hook of a new thread.
_MARK = "_eventprof_log"


def _log_of(hook: Any) -> ThreadLog | None:
    found: ThreadLog | None = getattr(hook, _MARK, None)
    return found


def _is_ours(hook: Any) -> bool:
    return hasattr(hook, _MARK)


def _hook(log: ThreadLog, session: Session) -> Hook:
    words, objects, places, now = log.words, log.objects, log.places, session.clock.read

    # Keep the hook short: with a condition or two more, recording a recursive program took 2.5
    # times as long, because the compiler's traces of the hook and the program became too long.
    def hook(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            kind = CALL
            what: Any = frame.f_code
        elif event == "return":
            kind, what = RETURN, frame.f_code
        else:
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
        # Last: another thread that reads meanwhile must not take the entry of an earlier round for
        # this one.
        log.next = place + 1

    if session.want_calls and session.want_c_calls:
        return hook
    if session.want_calls:
        python = ("call", "return")

        def calls_alone(frame: FrameType, event: str, arg: Any) -> None:
            if event in python:
                hook(frame, event, arg)

        return calls_alone
    builtins = ("c_call", "c_return", "c_exception")

    def c_calls_alone(frame: FrameType, event: str, arg: Any) -> None:
        # If calls are not recorded, only the frame shows which builtins our own code calls.
        if event in builtins and not code_of(frame.f_code).level:
            hook(frame, event, arg)

    return c_calls_alone


def _both(own: Hook, log: ThreadLog, previous: Hook) -> Hook:
    """Return a hook that also calls the hook that was there before."""
    other = _log_of(previous)

    def hook(frame: FrameType, event: str, arg: Any) -> None:
        if log.end:
            own(frame, event, arg)
        if other is None or other.end:
            previous(frame, event, arg)

    return hook


def _alive(hook: Hook | None) -> Hook | None:
    """Return the hook to restore: one of ours only if its recorder still runs."""
    while (log := _log_of(hook)) is not None and not log.session.running:
        hook = log.previous
    return hook


# ---- What an entry means -------------------------------------------------------------------------

_RETURNS = frozenset(dis.opmap[name] for name in ("RETURN_VALUE",))
_YIELDS = frozenset(dis.opmap[name] for name in ("YIELD_VALUE",))
_DELEGATES = frozenset(dis.opmap[name] for name in ("YIELD_FROM",) if name in dis.opmap)


#: Whether a call is shown. PASSED: it is not, but the calls that it makes are (our code that runs a
#: decorated function or a program). HIDDEN: neither it nor the calls inside of it.
SHOWN, PASSED, HIDDEN = range(3)
#: Our files that run the user's code.
_PASSING = (os.path.join("recording", "decorate.py"), os.path.join("cli", "launch.py"))


class Code:
    """Facts of a code object, looked up once."""

    __slots__ = ("level", "lines", "operations")

    def __init__(self, code: CodeType) -> None:
        self.level = SHOWN
        if code.co_filename.startswith(own_directory):
            passing = code.co_filename[len(own_directory) :] in _PASSING
            self.level = PASSED if passing else HIDDEN
        self.operations = code.co_code
        self.lines: list[tuple[int, int, int | None]] | None = None


_codes: dict[int, tuple[CodeType, Code]] = {}


def code_of(what: CodeType) -> Code:
    """Return the facts of a code object."""
    found = _codes.get(id(what))
    if found is None or found[0] is not what:
        found = _codes[id(what)] = what, Code(what)
    return found[1]


class Open(NamedTuple):
    """An open call."""

    kind: int
    what: Any
    level: int


class Stack:
    """The open calls of a thread, which decide what each entry of its log means.

    Parameters
    ----------
    calls : list of Open
        Open at the begin, outermost first; changed by `step`.
    """

    def __init__(self, calls: list[Open]) -> None:
        self.calls = calls
        self.raised = False  # whether the last event was the end of a call by an exception
        self.depth = -1  # where the call is or was that the last event opened or closed

    def open(self, kind: int, what: Any) -> int:
        """Push a call; give whether it is shown."""
        level = self.calls[-1].level if self.calls else SHOWN
        if kind == C_CALL:
            pass  # as its caller: what exec() runs is the program
        else:
            own = code_of(what).level
            level = own if own else HIDDEN if level == HIDDEN else SHOWN
        self.depth = len(self.calls)
        self.calls.append(Open(kind, what, level))
        return level

    def step(self, kind: int, what: Any, place: int) -> int:
        """Take an event; give its true kind, or 0 if eventprof's own code caused it."""
        if kind == CALL and place >= 0:  # where it was suspended
            kind = RESUME
        if kind in (CALL, RESUME, C_CALL):
            self.raised = False
            return 0 if self.open(kind, what) else kind
        if kind == RETURN:
            operations = code_of(what).operations
            operation = operations[place] if 0 <= place < len(operations) else -1
            if operation in _YIELDS or (operation in _DELEGATES and not self.raised):
                # An exception that passes through a delegation is told in the same way: just
                # before it, the call inside ended by it.
                kind = YIELD
            elif operation not in _RETURNS:
                kind = UNWIND
        self.raised = kind in (UNWIND, C_EXCEPTION)
        level = self._close(what)
        return 0 if level else kind

    def _close(self, what: Any) -> int:
        """End the innermost call of this, and the calls above it; give whether it was shown."""
        calls = self.calls
        for depth in range(len(calls) - 1, -1, -1):
            if calls[depth].what is what:
                level = calls[depth].level
                del calls[depth:]
                self.depth = depth
                return level
        self.depth = -1
        # One that began before the window, as sys.setprofile() did.
        if isinstance(what, CodeType):
            return code_of(what).level
        return HIDDEN if calls and calls[-1].level else SHOWN


# ---- A window ------------------------------------------------------------------------------------


class Capture(NamedTuple):
    """A copy of the events so far."""

    logs: list[tuple[ThreadLog, list[Chunk], list[Open], dict[int, int]]]
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
        """Install the hooks on this thread, and on threads that start later."""
        global _watching
        if not _watching:
            _watching = True
            atexit.register(_at_exit)
        wanted = self.want_calls or self.want_c_calls
        log = self._starter = ThreadLog(self, sys.getprofile()) if wanted else None
        if log is not None:
            self.logs.append(log)
            log.open = self._open_calls()
            if self.all_threads:
                self._threads_before = threading.getprofile()
                self._new_thread = self._thread_hook(self._threads_before)
                threading.setprofile(self._new_thread)
        self.begin = anchor(self.clock.read)
        self.running = True
        _running.append(self)
        if log is not None:
            sys.setprofile(log.hook)

    def _open_calls(self, frame: FrameType | None = None) -> list[Open]:
        """Return the open calls of this thread, eventprof's own frames included."""
        codes: list[CodeType] = []
        frame = frame or sys._getframe(1)
        while frame is not None and self.want_calls:
            codes.append(frame.f_code)
            frame = frame.f_back
        stack = Stack([])
        for code in reversed(codes):
            stack.open(CALL, code)
        return stack.calls

    def forked(self) -> None:
        """Begin anew: this is a forked process, with one thread."""
        self.logs[:] = [log for log in self.logs if log.ident == threading.get_ident()]
        self.full_ticks = None
        self.begin = anchor(self.clock.read)
        if self.runtime is not None:
            self.runtime.forget()
        for log in self.logs:
            log.native_id = threading.get_native_id()
            log.raised = False
            # This function is recorded, too: the open calls are listed last, so only its end is.
            log.open = self._open_calls()
            log.next = 0
            log.lost.clear()
            # After that: until then, what this function calls could fill the log, and seal it.
            self.chunks.clear()

    def stop(self) -> None:
        """Remove the hooks; a hook that another tool took over stays."""
        log = self._starter
        running, self.running = self.running, False
        if not running:
            from .core import StateError

            raise StateError("this recorder is not running; start it first")
        for one in self.logs:
            one.end = 0  # the hook notices that at the next event, and removes itself
        # From here on none of our own code is recorded.
        _running.remove(self)
        if log is not None and log.ident == threading.get_ident() and not log.removed:
            found = sys.getprofile()
            if found is log.hook:
                sys.setprofile(_alive(log.previous))
            elif not log.removed and _log_of(found) is None and not (_ending and found is None):
                self.displaced.append("profile")
        self.finish = anchor(self.clock.read)
        if self._new_thread is not None:
            if threading.getprofile() is self._new_thread:
                threading.setprofile(self._threads_before)
            elif not _is_ours(threading.getprofile()):
                self.displaced.append("threads")
        self._name_threads()

    def _thread_hook(self, before: Hook | None) -> Hook:
        """Return the first hook of a new thread: it makes a log, and installs that log's hook."""

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
            log.open = self._open_calls(frame.f_back)
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
        """Keep the full lists of a thread if there is room; with on_full='overwrite', make room."""
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
        """Count the events that have no room."""
        log.sealed += 1
        stack = Stack([])
        for index in range(log.next):
            kind = stack.step(log.words[index] & KIND_MASK, log.objects[index], log.places[index])
            if kind:
                log.lost[kind] = log.lost.get(kind, 0) + 1

    @staticmethod
    def overwrite(chunk: Chunk) -> None:
        """Count a chunk's events as lost, and keep the calls that are open after it."""
        log = chunk.log
        stack = Stack(log.open)
        stack.raised = log.raised
        for word, what, place in zip(chunk.words, chunk.objects, chunk.places, strict=True):
            kind = stack.step(word & KIND_MASK, what, place)
            if kind:
                log.lost[kind] = log.lost.get(kind, 0) + 1
        log.raised = stack.raised

    def count_recorded(self) -> int:
        """Return the approximate number of kept events."""
        return len(self.chunks) * CHUNK + sum(log.next for log in self.logs)

    def capture(self) -> Capture:
        """Copy the events so far."""
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
            [] if listener is None else listener.happenings(),
            0 if listener is None else listener.lost,
            None if listener is None else listener.stats(),
        )


#: PyPy removes every profile function before it calls the functions of atexit.
_ending = False
_watching = False


def _at_exit() -> None:
    global _ending
    _ending = True


def _after_fork() -> None:
    """Begin anew in a forked child, without the parent's events and name."""
    global worker
    worker = None
    for session in list(_running):
        session.forked()


#: The open windows.
_running: list[Session] = []
os.register_at_fork(after_in_child=_after_fork)

NO_SESSION = Session(Clock("monotonic", time.monotonic_ns), False, False, 1, GROW, False)
