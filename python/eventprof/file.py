"""Opening what was recorded into a file."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable
from typing import Any, Literal, overload

from . import _core, log_file
from .following import Follower
from .trace import Trace

#: First bytes of a file, and what reads it; takes the descriptor over.
_OPENERS: tuple[tuple[bytes, Callable[[int, str], Trace]], ...] = (
    (log_file.MAGIC, log_file.open_log),
)


@overload
def open(path: str | os.PathLike[str], *, follow: Literal[False] = False) -> Trace: ...
@overload
def open(path: str | os.PathLike[str], *, follow: Literal[True]) -> Follower: ...
def open(path: str | os.PathLike[str], *, follow: bool = False) -> Trace | Follower:
    """Open a recording.

    Parameters
    ----------
    path : str or os.PathLike
        What ``record(output=...)`` or ``eventprof run`` wrote, whatever ended the program, or
        while it still runs.
    follow : bool
        Give an iterator of the events as they come, instead of all until now.

    Returns
    -------
    Trace or Follower
        The events are read when they are first asked for.

    Raises
    ------
    OSError
        The file cannot be read.
    FormatError
        It is not a recording, is damaged where nothing can be had, or was made by a later
        eventprof; the message names the file and the place.

    Examples
    --------
    >>> with eventprof.record(output="program.epr") as rec:
    ...     sorted("text")
    ['e', 't', 't', 'x']
    >>> eventprof.open("program.epr")
    <eventprof.Trace: ... events of 1 thread in ...>
    """
    name = os.fspath(path)
    if follow:
        return Follower(lambda: _open(name))
    return _open(name)


def _open(path: str) -> Trace:
    with builtins.open(path, "rb") as file:
        head = file.read(8)
    for magic, opener in _OPENERS:
        if head == magic:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            with naming(path):
                return opener(descriptor, path)
    what = "it is empty" if not head else f"it begins with {head!r}"
    raise _core.FormatError(
        f"{path}: not a recording of eventprof ({what}); "
        "'eventprof run' and record(output=...) write such files"
    )


class naming:
    """Puts the file's name into a FormatError that is raised inside."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, _core.FormatError) and self._path not in str(error):
            error.args = (f"{self._path}: {error}", *error.args[1:])
