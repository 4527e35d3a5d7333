"""A replacement for the extension `eventprof._core`, as far as the package needs it on PyPy.

PyPy offers C extensions no profile hook, no allocator hook and no reference tracer, so there is
no extension: `install` puts this module in its place.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, Literal, NoReturn, Self

from . import log, runtime
from .marks import counter, flow, label, mark, records_labels, span, wrapped_span  # noqa: F401 - the package takes them from here

try:
    from . import version  # type: ignore[attr-defined,unused-ignore]

    VERSION: str = version.VERSION
except ImportError:  # run from a checkout, which nothing was built in
    VERSION = "0+checkout"


class Error(Exception):
    """The base of all errors of eventprof."""


class StateError(Error, RuntimeError):
    """Another state is needed: for instance, only a running recorder can be stopped."""


class ToolInUseError(Error, RuntimeError):
    """Another tool uses the hook that is needed."""


class FormatError(Error, ValueError):
    """A file is damaged, or eventprof did not write it."""


class UnsupportedError(Error, RuntimeError):
    """The interpreter does not have what is needed."""


for _class in (Error, StateError, ToolInUseError, FormatError, UnsupportedError):
    _class.__module__ = "eventprof"

#: As the extension's kind_table(), the kinds that sys.setprofile can tell apart; without their
#: meanings, which a page has.
_KINDS: tuple[tuple[int, str, str, int, str, None, str, str, str], ...] = (
    (1, "CALL", "call", 1, "call", None, "opens", "python", ""),
    (2, "RETURN", "return", 2, "call", None, "closes", "python", ""),
    (3, "YIELD", "yield", 2, "call", None, "closes", "python", ""),
    (4, "RESUME", "resume", 1, "call", None, "opens", "python", ""),
    (5, "THROW", "throw", 1, "call", None, "opens", "python", ""),
    (6, "UNWIND", "unwind", 2, "call", None, "closes", "python", ""),
    (7, "C_CALL", "c_call", 3, "call", None, "opens", "c", ""),
    (8, "C_RETURN", "c_return", 4, "call", None, "closes", "c", ""),
    (9, "C_EXCEPTION", "c_exception", 6, "call", None, "closes", "c", ""),
)


def kind_table() -> list[tuple[int, str, str, int, str, str | None, str, str, str]]:
    """Return the kinds: number, name, word, legacy, form, domain, pairing, group, meaning."""
    return list(_KINDS)


def missing(what: str, cause: str, remedy: str) -> NoReturn:
    """Raise the error that says what PyPy does not have, why, and what to do."""
    raise UnsupportedError(f"{what} is not available on PyPy: {cause}; {remedy}")


def set_own_directory(directory: str) -> None:
    """Set the folder of eventprof's code, as code objects have it: that code is never recorded."""
    log.own_directory = directory


def name_thread(native_id: int, name: str) -> None:
    """Keep a thread's name."""
    log.thread_names[native_id] = name


def name_worker(name: str) -> None:
    """Keep what a pool calls this process, unless that is known."""
    log.worker = log.worker or name


def worker() -> str | None:
    """Return what a pool calls this process."""
    return log.worker


def add_area(word: str, folders: Any, modules: Any) -> None:
    """Take notice of the folders of "stdlib" and "site-packages"."""


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    missing(
        f"what needs eventprof._core.{name}",
        "its C interface has no hooks, so there is no C core",
        "save the trace and open it with CPython",
    )


class Recorder:
    """A recorder; the arguments are checked in recording/."""

    _session: log.Session

    def __new__(cls, **options: Any) -> Self:
        """Make a recorder that is not started."""
        self = super().__new__(cls)
        self._options = options
        self._window = 0
        self._session = log.NO_SESSION
        return self

    _options: dict[str, Any]
    _window: int

    @property
    def _windows(self) -> int:
        return self._window

    @property
    def state(self) -> Literal["new", "running", "stopped"]:
        """The state."""
        if self._window == 0:
            return "new"
        return "running" if self._session.running else "stopped"

    @property
    def backend(self) -> str | None:
        """The source of the calls of the last window."""
        asked = self._session.want_calls or self._session.want_c_calls
        return "profile" if self._window and asked else None

    @property
    def clock(self) -> str | None:
        """The clock of the last window."""
        return self._session.clock.name if self._window else None

    @property
    def output(self) -> str | None:
        """Path of the log file: none here."""
        return None

    @property
    def displaced(self) -> tuple[str, ...]:
        """Sources whose hook another tool took over during the window."""
        return tuple(self._session.displaced)

    def start(self) -> None:
        """Begin a window; a StateError if one is open already."""
        if self.state == "running":
            raise StateError("this recorder is running already; stop it first")
        options = self._options
        session = log.Session(
            clock=log.clock(options["clock"]),
            want_calls=options["want_calls"],
            want_c_calls=options["want_c_calls"],
            limit_bytes=options["limit_bytes"],
            on_full=options["on_full"],
            all_threads=not options["current_thread"],
        )
        runtime_options = {name: options[name] for name in ("jit", "gc", "operations")}
        session.runtime = runtime.Listener(
            session.clock.read,
            **runtime_options,
            calls=session.want_calls or session.want_c_calls,
        )
        self._session = session
        self._window += 1
        runtime.listen(session.runtime)
        try:
            session.start()
        except BaseException:
            runtime.leave(session.runtime)
            raise

    def stop(self) -> None:
        """End the window; a StateError if none is open."""
        session = self._session
        session.stop()
        if session.runtime is not None:
            session.displaced += runtime.leave(session.runtime)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> Literal[False]:
        if self._session.running:
            self.stop()
        return False

    def _capture(self) -> Any:
        return self._session.capture()

    def _count(self) -> tuple[int, int, str | None, int]:
        recorded = self._session.count_recorded()
        lost = sum(sum(one.lost.values()) for one in self._session.logs)
        full = None if self._session.full_ticks is None else "limit"
        return recorded, lost, full, 0


def install() -> None:
    """Put this module where the package looks for the extension."""
    module: ModuleType = sys.modules[__name__]
    package = __name__.partition(".")[0]
    sys.modules[f"{package}._core"] = module
    setattr(sys.modules[package], "_core", module)  # noqa: B010 - the package is no variable here
