"""The library that must be loaded before Python, so that blocks of C libraries can be recorded.

The system's loader loads it if ``LD_PRELOAD`` names it. ``eventprof run --native`` starts itself
again with this variable, and then removes it from the environment, because programs that the
recorded program starts must not have the library.
"""

from __future__ import annotations

import os
import sys

from .. import _core

#: The variable that names the library for the loader.
PRELOAD = "LD_PRELOAD"
#: The value of ``LD_PRELOAD`` before `run` started itself again, after a ``=``; empty: none.
_BEFORE = "EVENTPROF_PRELOADED"


def library() -> str:
    """Return the path of the library.

    Returns
    -------
    str
        For ``LD_PRELOAD``.

    Raises
    ------
    UnsupportedError
        The library was not built, because this system cannot preload it.
    """
    path = os.path.join(os.path.dirname(os.path.abspath(_core.__file__)), "_shim.so")
    if not os.path.exists(path):
        raise _core.UnsupportedError(
            f"native=True needs Linux with glibc: {path}, which records blocks of C libraries, is "
            f"not there on {sys.platform}; record without it"
        )
    return path


def require() -> None:
    """Check that the library was loaded before Python.

    Raises
    ------
    UnsupportedError
        It was not loaded; the message says how to load it.
    """
    if not _core.native_available():
        raise _core.UnsupportedError(
            "native=True needs a library that is loaded before Python: start the program by "
            f"'eventprof run --native', or with {PRELOAD}={library()} in its environment"
        )


def run_preloaded() -> None:
    """Start this process again with the library; returns if the library is loaded already.

    Raises
    ------
    UnsupportedError
        The library does not exist, or the loader does not load it.
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
            f"program that is linked statically or has more rights than its user: "
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
    """Restore ``LD_PRELOAD``, so that programs started from here do not have the library."""
    if before:
        os.environ[PRELOAD] = before[1:]
    else:
        os.environ.pop(PRELOAD, None)


def enter_environment() -> None:
    """Let programs that this process starts be preloaded with it."""
    now = os.environ.get(PRELOAD)
    if library() not in (now or "").split(":"):
        os.environ[PRELOAD] = library() if not now else f"{library()}:{now}"
