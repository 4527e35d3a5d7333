"""Start what the variable EVENTPROF asks for: eventprof.pth calls this at the start of Python.

A sub-interpreter processes .pth files at its start as well. eventprof records the main interpreter,
and cannot be imported into others, so nothing happens there. Outside of the package, because its
import is what fails.
"""

from __future__ import annotations


def _is_main_interpreter() -> bool:
    try:
        from _thread import _is_main_interpreter as is_main  # type: ignore[attr-defined]  # 3.13
    except ImportError:
        try:
            import _xxsubinterpreters as interpreters  # type: ignore[import-not-found]
        except ImportError:  # PyPy has no sub-interpreters
            return True
        return bool(interpreters.get_current() == interpreters.get_main())
    return bool(is_main())


def start() -> None:
    """Start to record or to count in the main interpreter, as the environment asks."""
    if _is_main_interpreter():
        from eventprof.cli import environment

        environment.start()
