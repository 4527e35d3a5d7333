"""The library that must be loaded before Python, so that what C libraries allocate can be recorded.

The system's loader does that for the program whose environment says ``LD_PRELOAD``. ``eventprof run
--native`` starts itself once more with it, and then takes it out of the environment again: programs
that the recorded one starts are not to have it.
"""

from __future__ import annotations

import os
import sys

from .. import _core

#: Names the shim to the loader.
PRELOAD = "LD_PRELOAD"
#: What ``LD_PRELOAD`` was before `run` began anew, behind a ``=``; empty: there was none.
_BEFORE = "EVENTPROF_PRELOADED"


def library() -> str:
    """Give the path of the library.

    Returns
    -------
    str
        For ``LD_PRELOAD``.

    Raises
    ------
    UnsupportedError
        It was not built: this system cannot preload it.
    """
    path = os.path.join(os.path.dirname(os.path.abspath(_core.__file__)), "_shim.so")
    if not os.path.exists(path):
        raise _core.UnsupportedError(
            f"native=True needs Linux: {path}, which would see what C libraries allocate, is not "
            f"there on {sys.platform}; record without it"
        )
    return path


def require() -> None:
    """Check that the library was loaded before Python.

    Raises
    ------
    UnsupportedError
        It was not; the message says how to do that.
    """
    if not _core.native_available():
        raise _core.UnsupportedError(
            "native=True needs a library that is loaded before Python: start the program by "
            f"'eventprof run --native', or with {PRELOAD}={library()} in its environment"
        )


def run_preloaded() -> None:
    """Begin this process anew with the library, unless it is there; returns if it is.

    Raises
    ------
    UnsupportedError
        There is no such library, or the loader does not load it.
    """
    before = os.environ.pop(_BEFORE, None)
    if _core.native_available():
        if before is not None:
            leave_environment(before)
        return
    if before is not None:
        leave_environment(before)
        raise _core.UnsupportedError(
            f"the system did not load {library()} before Python, which it does not do for a "
            f"program that is linked statically or has more rights than who starts it: "
            f"{sys.executable}"
        )
    now = os.environ.get(PRELOAD)
    environment = {
        **os.environ,
        PRELOAD: library() if not now else f"{library()}:{now}",
        _BEFORE: "" if now is None else f"={now}",
    }
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def leave_environment(before: str) -> None:
    """Put the variable back that named the library: programs started from here are without it."""
    if before:
        os.environ[PRELOAD] = before[1:]
    else:
        os.environ.pop(PRELOAD, None)


def enter_environment() -> None:
    """Let programs that this process starts be preloaded with it."""
    now = os.environ.get(PRELOAD)
    if library() not in (now or "").split(":"):
        os.environ[PRELOAD] = library() if not now else f"{library()}:{now}"
