"""The flight recorder: it keeps a program's last seconds, and writes them when something happens.

A ring of events is always there (`Recorder`, ``on_full="overwrite"``). A trigger costs the program
a queue's put; a thread of this module takes the snapshot and writes it.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
import queue
import re
import signal as signals
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast

from .. import _core
from .._words import did_you_mean
from ..base import output
from ..base.arguments import choice, flag, is_bool
from ..base.quantities import LEAST_BUFFER, parse_duration, parse_size
from ..export.saving import save
from .decorate import AsyncContext, decorate
from .record import record

if TYPE_CHECKING:
    from ..trace import Trace

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Errors = type[BaseException] | tuple[type[BaseException], ...]

#: How often the helper thread looks at the resident set.
_POLL_S = 0.25
#: How long the end of the program waits for files that are being written.
_LAST_WAIT_S = 30.0
_CHOICES = ("last", "worst")
#: A shorter file holds next to nothing: most likely somebody meant seconds.
_LEAST_AGE_NS = 1_000_000


@dataclass(frozen=True)
class Written:
    """A file that a flight recorder wrote.

    Attributes
    ----------
    path : str
        The file, an archive: `eventprof.open` and every verb of ``eventprof`` read it.
    trigger : str
        The name of what asked for it: of a watch, or ``signal``, ``memory``, ``uncaught``,
        ``call``.
    reason : str
        What happened, in words.
    value : float
        How bad it was: ns that a watch took, bytes of the resident set; otherwise 0. It decides
        which files are the worst.
    covers_ns : int
        How much time the file holds. Less than ``min_age`` if the buffer was too small for it, or
        the recorder began later.
    size_bytes : int
        The file's size.
    """

    path: str
    trigger: str
    reason: str
    value: float
    covers_ns: int
    size_bytes: int


@dataclass(frozen=True)
class _Request:
    trigger: str
    reason: str
    value: float = 0.0


def checked_limits(
    function: str, longer_than: int | str | None, raises: _Errors
) -> tuple[int | None, tuple[type[BaseException], ...]]:
    """Check what a watch looks for; give ns, and types of exceptions."""
    kinds = raises if isinstance(raises, tuple) else (raises,)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TypeError(f"raises takes types of exceptions, not {kind!r}")
    if longer_than is None and not kinds:
        raise ValueError(f"{function} needs longer_than= or raises=")
    return None if longer_than is None else parse_duration("longer_than", longer_than), kinds


#: What the helper thread gets: a request; a lock to release when all earlier requests are done; or
#: None, which ends the thread.
_Queue = queue.SimpleQueue["_Request | _thread.LockType | None"]


class Watch:
    """A context manager and decorator that asks for a file; made by `FlightRecorder.watch`."""

    __slots__ = ("_began_ns", "_flight", "_longer_than_ns", "_name", "_raises", "_span")

    def __init__(
        self,
        flight: FlightRecorder,
        name: str,
        longer_than_ns: int | None,
        raises: tuple[type[BaseException], ...],
    ) -> None:
        self._flight, self._name = flight, name
        self._longer_than_ns, self._raises = longer_than_ns, raises
        self._span = _core.wrapped_span(name, False)
        self._began_ns = 0

    def __enter__(self) -> Self:
        self._span.__enter__()
        self._began_ns = time.monotonic_ns()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        took_ns = time.monotonic_ns() - self._began_ns
        self._span.__exit__(kind, error, traceback)
        self._flight._took(self._name, took_ns, kind, self._longer_than_ns, self._raises)

    def __call__(self, function: _Function) -> _Function:
        """Watch each run of a function, a coroutine function or a generator function."""
        return decorate("watch", self, self._again, function)

    def _again(self) -> Watch:
        return Watch(self._flight, self._name, self._longer_than_ns, self._raises)


class FlightRecorder(AsyncContext):
    """Keeps the last events of a program in memory and writes them when asked.

    Made by `flight_recorder`. Use it in a ``with`` or ``async with`` statement, or call `start` and
    `stop`.

    Attributes
    ----------
    recorder : Recorder
        The recorder that runs.
    written : tuple of Written
        The files that it wrote and keeps, the oldest first.
    skipped : int
        Triggers for which nothing was written: too soon after the last file, or not among the
        worst.
    errors : tuple of str
        What prevented files that were asked for, such as a full disk; the last ten.
    """

    def __init__(
        self,
        buffer: int | str,
        min_age: int | str,
        folder: str | os.PathLike[str],
        keep: int,
        which: Literal["last", "worst"],
        pause: int | str,
        memory_above: int | str | None,
        signal: int | None,
        uncaught: bool,
        on_written: Callable[[Written], object] | None,
        options: dict[str, Any],
    ) -> None:
        self._min_age_ns = parse_duration("min_age", min_age)
        if self._min_age_ns < _LEAST_AGE_NS:
            raise ValueError(
                f"min_age must be 1 ms or more, not {min_age!r}: a number without a unit is ns; "
                "write it as '10 s'"
            )
        self._pause_ns = parse_duration("pause", pause)
        if is_bool(keep) or not isinstance(keep, int):
            raise TypeError(f"keep must be a whole number, not {keep!r}")
        if keep < 1:
            raise ValueError(f"keep must be 1 or more, not {keep}")
        self._keep, self._which = keep, choice("which", which, _CHOICES)
        if not isinstance(folder, (str, bytes, os.PathLike)):
            raise TypeError(f"folder must be a path, not {folder!r}")
        self._folder = os.path.abspath(os.fsdecode(folder))
        self._memory_above = (
            None if memory_above is None else parse_size("memory_above", memory_above, LEAST_BUFFER)
        )
        self._signal = None if signal is None else _signal_of(signal)
        self._uncaught, self._on_written = flag("uncaught", uncaught), on_written
        if on_written is not None and not callable(on_written):
            raise TypeError(f"on_written must be a function, not {on_written!r}")
        for name in ("output", "on_full", "force"):
            if name in options:
                raise TypeError(
                    f"a flight recorder has no {name}=: it overwrites the oldest events"
                )
        known = {**(record.__kwdefaults__ or {}), **(flight_recorder.__kwdefaults__ or {})}
        for name in options:
            if name not in known:
                raise TypeError(
                    f"flight_recorder() has no argument {name!r}{did_you_mean(name, known)}"
                )
        self.recorder = record(buffer=buffer, on_full="overwrite", **options)
        self.recorder._warns = False  # a flight recorder loses the oldest events on purpose
        self._requests: _Queue = queue.SimpleQueue()
        self._ended: _thread.LockType | None = None
        self._files: list[Written] = []
        self._last_ns: dict[str, int] = {}
        self._is_above = False
        self._number = 0
        self._before: dict[str, Any] = {}
        self.skipped = 0
        self._errors: list[str] = []

    # ---- Start and stop ----------------------------------------------------------------------

    def start(self) -> None:
        """Begin to record.

        Raises
        ------
        StateError
            It runs already, or ``signal`` was given and this is not the main thread.
        OSError
            No handler can be installed for ``signal``.
        """
        if self._signal is not None and threading.current_thread() is not threading.main_thread():
            raise _core.StateError(
                "a handler of a signal can only be installed by the main thread: start there, or "
                "leave out signal="
            )
        self.recorder.start()
        self._begin_thread()
        _running.add(self)
        if self._signal is not None:
            try:
                self._before["signal"] = signals.signal(self._signal, self._on_signal)
            except BaseException:
                self.stop()
                raise
        if self._uncaught:
            self._before["excepthook"], sys.excepthook = sys.excepthook, self._on_uncaught
            self._before["threads"] = threading.excepthook
            threading.excepthook = self._on_uncaught_in_thread

    def stop(self) -> None:
        """End the recording, after the files that were asked for are written.

        Raises
        ------
        StateError
            It does not run.
        """
        self.recorder.stop()
        _running.discard(self)
        self._end_thread()
        if "signal" in self._before and signals.getsignal(self._signal or 0) == self._on_signal:
            with contextlib.suppress(ValueError):  # not the main thread
                signals.signal(cast(int, self._signal), self._before["signal"])
        if sys.excepthook == self._on_uncaught:
            sys.excepthook = self._before["excepthook"]
        if threading.excepthook == self._on_uncaught_in_thread:
            threading.excepthook = self._before["threads"]
        self._before.clear()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.recorder.state == "running":
            self.stop()

    # ---- Asking ------------------------------------------------------------------------------

    def snapshot(self) -> Trace:
        """Return a trace of what a file would hold now; the recording goes on."""
        return self.recorder.snapshot(last=self._min_age_ns)

    def write_to(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the last events to a file, now; the recording goes on.

        Parameters
        ----------
        path : str or path-like
            The file, an archive; ``.epr`` is the usual suffix.
        force : bool
            Replace an existing file.

        Raises
        ------
        StateError
            It was never started.
        OSError
            The file exists, or the system refused; no file is left behind.
        """
        self._write(_Request("call", "write_to() was called"), os.fspath(path), force)

    def trigger(self, reason: str = "trigger() was called") -> None:
        """Ask for a file, and go on at once; the helper thread writes it into the folder."""
        self._ask(_Request("call", str(reason)))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all files that were asked for so far are written.

        Parameters
        ----------
        timeout : float, optional
            At most so many seconds.

        Returns
        -------
        bool
            False if it took longer.

        Raises
        ------
        TypeError, ValueError
            `timeout` is no number, or below 0.
        """
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"timeout must be 0 or more seconds, not {timeout!r}")
        if self._ended is None:
            return True
        done = _thread.allocate_lock()
        done.acquire()
        self._requests.put(done)
        return done.acquire(timeout=-1 if timeout is None else timeout)

    def watch(
        self,
        name: str,
        *,
        longer_than: int | str | None = None,
        raises: _Errors = (),
    ) -> Watch:
        """Ask for a file whenever a part of the program is slow or fails.

        Parameters
        ----------
        name : str
            Of the part; it is recorded as a span of this name.
        longer_than : int or str, optional
            The longest time that is right: nanoseconds, or text such as ``"500 ms"``.
        raises : type or tuple of types
            Exceptions that leave the part.

        Returns
        -------
        Watch
            A context manager, for one use, and a decorator.

        Raises
        ------
        TypeError, ValueError
            An argument is not what it should be, or neither limit is given.
        """
        limit, kinds = checked_limits("watch()", longer_than, raises)
        return Watch(self, name, limit, kinds)

    # ---- Files -------------------------------------------------------------------------------

    @property
    def written(self) -> tuple[Written, ...]:
        """The files that it wrote into its folder and keeps."""
        return tuple(self._files)

    @property
    def errors(self) -> tuple[str, ...]:
        """What prevented files that were asked for."""
        return tuple(self._errors)

    def __repr__(self) -> str:
        files = "file" if len(self._files) == 1 else "files"
        return (
            f"<eventprof.FlightRecorder: {self.recorder.state}; the last "
            f"{self._min_age_ns / 1e9:,.6g} s in {self.recorder.options.limit_bytes / 2**20:,.6g} "
            f"MiB; {len(self._files)} {files} in {self._folder}>"
        )

    # ---- The helper thread -------------------------------------------------------------------

    def _ask(self, request: _Request) -> None:
        if self._ended is not None:
            _core.mark(f"flight recorder: {request.trigger}")
            self._requests.put(request)  # reentrant: a signal handler may come in between

    def _took(
        self,
        name: str,
        took_ns: int,
        kind: type[BaseException] | None,
        longer_than_ns: int | None,
        raises: tuple[type[BaseException], ...],
        which: str = "",
    ) -> None:
        """Ask for a file if a part of the program was too slow or failed."""
        if kind is not None and raises and issubclass(kind, raises):
            # A trigger of its own: otherwise files about slow parts would use up the retention, and
            # no failure would be written.
            trigger = f"{name}: {kind.__name__}"
            self._ask(_Request(trigger, f"{name} raised {kind.__name__}{which}", took_ns))
        elif longer_than_ns is not None and took_ns > longer_than_ns:
            self._ask(_Request(name, f"{name} took {took_ns / 1e6:,.6g} ms{which}", took_ns))

    def _begin_thread(self) -> None:
        self._ended = _thread.allocate_lock()
        self._ended.acquire()
        task = (_serve, weakref.ref(self), self._requests, self._ended)
        _thread.start_new_thread(_core.call_beside, task)

    def _end_thread(self) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            self._requests.put(None)
            ended.acquire(timeout=_LAST_WAIT_S)

    def _after_fork(self) -> None:
        """In a forked child, which has no helper thread and no files of its own."""
        self._requests = queue.SimpleQueue()
        self._files.clear()
        self._begin_thread()

    def _answer(self, request: _Request) -> None:
        """Answer a request: write a file, unless it is too soon or not bad enough."""
        now_ns = time.monotonic_ns()
        last_ns = self._last_ns.get(request.trigger)
        same = [file for file in self._files if file.trigger == request.trigger]
        is_full = len(same) >= self._keep
        smallest = min(same, key=lambda file: file.value) if same else None
        if last_ns is not None and now_ns - last_ns < self._pause_ns:
            self.skipped += 1
            return
        if self._which == "worst" and is_full and smallest and request.value <= smallest.value:
            self.skipped += 1
            return
        self._last_ns[request.trigger] = now_ns
        self._number += 1
        word = (
            re.sub(r"[^\w.-]+", "-", request.trigger, flags=re.ASCII).strip("-.")[:40] or "trigger"
        )
        moment = time.strftime("%Y%m%dT%H%M%S")
        name = f"flight-{os.getpid()}-{moment}-{self._number}-{word}.epr"
        try:
            os.makedirs(self._folder, output.PRIVATE_FOLDER, exist_ok=True)
            written = self._write(request, os.path.join(self._folder, name), False)
        except Exception as error:  # of the system, mostly; the program must not see it
            self._fail(request, error)
            return
        self._files.append(written)
        if is_full:
            gone = smallest if self._which == "worst" and smallest else same[0]
            self._files.remove(gone)
            with contextlib.suppress(OSError):
                os.unlink(gone.path)
        if self._on_written is not None:
            try:
                self._on_written(written)
            except Exception as error:
                self._fail(request, error)

    def _fail(self, request: _Request, error: Exception) -> None:
        import logging

        text = f"{request.reason}, but no file was written: {type(error).__name__}: {error}"
        self._errors[:] = [*self._errors, text][-10:]
        logging.getLogger("eventprof").warning("flight recorder: %s", text)

    def _write(self, request: _Request, path: str, force: bool) -> Written:
        core = self.recorder._capture(self._min_age_ns)
        covers_ns = core.facts()["duration_ns"]
        metadata = {
            **self.recorder._metadata(),
            "flight": {
                "trigger": request.trigger,
                "reason": request.reason,
                "min_age_ns": self._min_age_ns,
            },
        }
        save(core, metadata, path, force)
        return Written(
            os.path.abspath(path),
            request.trigger,
            request.reason,
            request.value,
            covers_ns,
            os.path.getsize(path),
        )

    def _look_at_memory(self) -> None:
        """Ask for a file when the resident set comes above its limit."""
        limit = self._memory_above
        if limit is None:
            return
        held = _core.resident_bytes()
        if held > limit and not self._is_above:
            reason = f"the resident set is {held / 2**20:,.6g} MiB"
            self._answer(_Request("memory", reason, held))
        self._is_above = held > limit

    # ---- Triggers ----------------------------------------------------------------------------

    def _on_signal(self, number: int, frame: Any) -> None:
        self._ask(_Request("signal", f"signal {signals.Signals(number).name} came"))
        before = self._before.get("signal")
        if callable(before):
            before(number, frame)

    def _on_uncaught(self, kind: Any, error: Any, traceback: Any) -> None:
        self._ask(_Request("uncaught", f"an uncaught {kind.__name__} ended the program"))
        self._before["excepthook"](kind, error, traceback)

    def _on_uncaught_in_thread(self, args: Any) -> None:
        if args.exc_type is not SystemExit:
            name = getattr(args.thread, "name", "a thread")
            reason = f"an uncaught {args.exc_type.__name__} ended {name}"
            self._ask(_Request("uncaught", reason))
        self._before["threads"](args)


def _serve(
    flight: weakref.ref[FlightRecorder],
    requests: _Queue,
    ended: _thread.LockType,
) -> None:
    """Run the helper thread, until the recorder stops or is gone."""
    own_id = _thread.get_native_id()
    _helpers.append(own_id)
    _core.name_thread(own_id, "eventprof flight recorder")
    try:
        while True:
            try:
                request = requests.get(timeout=_POLL_S)
            except queue.Empty:
                owner = flight()
                # A process ends with its last thread, which must not be this one: in a child that
                # was forked from a thread, and where the main thread ended first, nobody stops it.
                if owner is None or not _core.program_lives(tuple(_helpers)):
                    return
                owner._look_at_memory()
                del owner
                continue
            owner = flight()
            if request is None or owner is None:
                return
            if isinstance(request, _Request):
                owner._answer(request)
            else:
                request.release()
            del owner
    finally:
        _helpers.remove(own_id)
        _forget_this_thread()
        ended.release()


def _forget_this_thread() -> None:
    """Remove what `threading` made of this thread when something asked for the current one.

    `logging` does. Up to 3.12 it would stay in ``threading.enumerate()`` for good.
    """
    active = getattr(threading, "_active", {})
    number = _thread.get_ident()
    if type(active.get(number)).__name__ == "_DummyThread":
        active.pop(number, None)


def _signal_of(number: int) -> signals.Signals:
    if is_bool(number) or not isinstance(number, int):
        raise TypeError(f"signal must be a signal, such as signal.SIGUSR2, not {number!r}")
    try:
        return signals.Signals(number)
    except ValueError:
        raise ValueError(
            f"signal must be a signal, such as signal.SIGUSR2, not {number!r}"
        ) from None


#: Those that run: at the program's end they write what was asked for.
_running: weakref.WeakSet[FlightRecorder] = weakref.WeakSet()


#: The kernel's ids of the helper threads that run.
_helpers: list[int] = []


def _at_exit() -> None:
    for flight in list(_running):
        with contextlib.suppress(_core.StateError):
            flight.stop()


def _in_child() -> None:
    _helpers.clear()
    for flight in list(_running):
        flight._after_fork()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_in_child)


def flight_recorder(
    buffer: int | str = "64 MiB",
    min_age: int | str = "10 s",
    *,
    folder: str | os.PathLike[str] = ".",
    keep: int = 5,
    which: Literal["last", "worst"] = "last",
    pause: int | str = "10 s",
    memory_above: int | str | None = None,
    signal: int | None = None,
    uncaught: bool = False,
    on_written: Callable[[Written], object] | None = None,
    **options: Any,
) -> FlightRecorder:
    """Make a recorder that keeps the last seconds and writes them when something happens.

    Parameters
    ----------
    buffer : int or str
        The most memory that it takes for events, as for `record`.
    min_age : int or str
        How much time a file holds: nanoseconds, or text such as ``"10 s"``. It holds less if the
        buffer is too small for the events of that time.
    folder : str or path-like
        Where files are written that triggers ask for; it is made if it is not there.
    keep : int
        So many files of each trigger stay; others that it wrote are removed.
    which : {'last', 'worst'}
        Which files stay: those of the last time, or those with the longest time or most memory.
    pause : int or str
        At least so much time between two files of one trigger; others are counted in ``skipped``.
    memory_above : int or str, optional
        Write a file when the resident set of the process comes above so many bytes. It is looked
        at four times a second.
    signal : int, optional
        Write a file when this signal comes, such as ``signal.SIGUSR2``. A handler that was there
        before is called, too.
    uncaught : bool
        Write a file when an exception ends the program or a thread.
    on_written : callable, optional
        It gets each ``Written``, on the helper thread: to send the file away.
    **options
        Of `record`: what is recorded, and with which filters.

    Returns
    -------
    FlightRecorder
        Not started yet.

    Raises
    ------
    TypeError, ValueError, MemoryError, UnsupportedError
        As `record`.

    Examples
    --------
    >>> flight = eventprof.flight_recorder("16 MiB", "5 s", memory=False)
    >>> with flight, flight.watch("sorting", longer_than="2 s"):
    ...     sorted("text")
    ['e', 't', 't', 'x']
    >>> flight.written
    ()
    """
    return FlightRecorder(
        buffer, min_age, folder, keep, which, pause, memory_above, signal, uncaught, on_written,
        options,
    )  # fmt: skip
