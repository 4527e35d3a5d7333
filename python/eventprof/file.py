"""Traces in files: saving, and opening whatever eventprof wrote.

The bytes are the extension's business. Here are paths, what the system says of them, and that a
file is whole or not there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import warnings
from collections.abc import Callable
from typing import Any, Literal, overload

from . import _core, areas
from .following import Follower
from .trace import Trace

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: A file system without hard links.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV)


def save(trace: Trace, path: str | os.PathLike[str], force: bool = False) -> None:
    """Write a trace to a file; see `Trace.save`.

    Parameters
    ----------
    trace : Trace
        What to save.
    path : str or path-like
        Where to; ``.epr`` is the usual suffix.
    force : bool
        Replace what is there.

    Raises
    ------
    FileExistsError
        There is something already, and `force` was not given.
    OSError
        The system refused, as by IsADirectoryError or PermissionError; nothing is left behind.
    """
    target = os.fspath(path)
    if not isinstance(target, str):
        raise TypeError(f"path must be str or path-like, not {path!r}")
    try:
        facts = os.stat(target)
    except FileNotFoundError:
        facts = None
    if facts is not None:
        if stat.S_ISDIR(facts.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
        if not force:
            raise _exists(target)
    metadata = _pack(trace._recorder_metadata)
    try:
        if facts is not None and not stat.S_ISREG(facts.st_mode):
            _write_device(trace._core, metadata, target)
        else:
            _write(trace._core, metadata, target, facts, force)
    except OSError as error:
        if error.errno in _NO_ROOM:
            text = (
                f"{os.strerror(error.errno)}; the trace is still there: make room, or save it "
                "on another disk"
            )
            raise OSError(error.errno, text, target) from None
        if error.errno is not None and error.filename != target:
            raise OSError(error.errno, error.strerror, target) from None
        raise


def _exists(target: str) -> FileExistsError:
    text = f"{os.strerror(errno.EEXIST)}; force=True replaces it"
    return FileExistsError(errno.EEXIST, text, target)


def _write_device(core: _core.Trace, metadata: bytes, target: str) -> None:
    """Write to what is no regular file, and must not be replaced by one."""
    fd = os.open(target, os.O_WRONLY | os.O_CLOEXEC)
    try:
        core.save(fd, metadata)
    finally:
        os.close(fd)


def _write(
    core: _core.Trace, metadata: bytes, target: str, facts: os.stat_result | None, force: bool
) -> None:
    """Write beside the target, then give it its name: nobody sees half a file."""
    target = os.path.realpath(target)  # a link stays one
    beside = f"{target}.{os.getpid()}-{os.urandom(4).hex()}.tmp"
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        try:
            if facts is not None:
                os.fchmod(fd, stat.S_IMODE(facts.st_mode))
            core.save(fd, metadata)
        finally:
            os.close(fd)
        if force:
            os.replace(beside, target)
        else:
            _name(beside, target)
    finally:
        with contextlib.suppress(FileNotFoundError):  # it has its name
            os.unlink(beside)


def _name(beside: str, target: str) -> None:
    """Give a file its name, unless somebody else took that meanwhile."""
    try:
        os.link(beside, target)
    except FileExistsError:
        raise _exists(target) from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        os.replace(beside, target)


# ---- Metadata: JSON, which has no tuples; the recorder's have no lists ---------------------------


def _pack(metadata: dict[str, Any]) -> bytes:
    import json

    # ASCII: arguments of a program may hold surrogates, which UTF-8 cannot.
    return json.dumps(metadata, default=str, separators=(",", ":")).encode("ascii")


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_tuples, value))
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return value


def _unpack(metadata: bytes | None) -> dict[str, Any]:
    import json

    try:
        found = _tuples(json.loads(metadata or b"{}"))
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


# ---- Opening -------------------------------------------------------------------------------------


@overload
def open(path: str | os.PathLike[str], *, follow: Literal[False] = False) -> Trace: ...
@overload
def open(path: str | os.PathLike[str], *, follow: Literal[True]) -> Follower: ...
def open(path: str | os.PathLike[str], *, follow: bool = False) -> Trace | Follower:
    """Open a recording: one that was saved, or the log that a program writes.

    Parameters
    ----------
    path : str or path-like
        What `Trace.save`, ``record(output=...)`` or ``eventprof run`` wrote; a log whatever ended
        its program, or while that still runs.
    follow : bool
        Give an iterator of the events as they come, instead of all until now.

    Returns
    -------
    Trace or Follower
        With the tables of the one that was recorded. Its events are read when they are first
        needed; the file may be renamed or removed meanwhile, and not changed.

    Raises
    ------
    FormatError
        It is no such file, or so damaged that nothing of it can be read. What is damaged in part
        may show only when the events are read.
    UnsupportedError
        A newer eventprof wrote it, or with a compression that this one was built without.
    OSError
        The system refused, as by FileNotFoundError, IsADirectoryError or PermissionError.

    Warns
    -----
    RuntimeWarning
        Part of an archive is missing or damaged: the trace has what is left. Of a log,
        `Trace.file` says so.

    Examples
    --------
    >>> with eventprof.record(memory=False) as rec:
    ...     len("some text")
    9
    >>> rec.trace.save("some.epr", force=True)
    >>> eventprof.open("some.epr").events["event"].tolist()
    ['c_call', 'c_return']
    >>> with eventprof.record(output="program.epr") as rec:
    ...     sorted("text")
    ['e', 't', 't', 'x']
    >>> eventprof.open("program.epr")
    <eventprof.Trace: ... events of 1 thread in ...>
    """
    source = os.fspath(path)
    if follow:
        return Follower(lambda: _open(source))
    return _open(source)


def _open(source: str) -> Trace:
    # A pipe that nobody writes to is no reason to wait.
    fd = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), source)
        if not stat.S_ISREG(mode):
            raise _core.FormatError(f"{source}: it is no regular file; copy it to one first")
        begin = os.pread(fd, 8, 0)
        for magic, opener in _OPENERS.items():
            if begin and magic.startswith(begin[: len(magic)]):
                return opener(fd, source)
    finally:
        os.close(fd)
    what = "it is empty" if not begin else f"it is no file of eventprof's (it begins {begin!r})"
    raise _core.FormatError(
        f"{source}: {what}, offset 0; open what Trace.save() or 'eventprof run' wrote"
    )


def _open_archive(fd: int, path: str) -> Trace:
    core, metadata, info = _core.open_archive(fd, path)
    if info["damaged"]:
        warnings.warn(
            f"{path}: {info['damage']}; up to {info['events']:,} of its "
            f"{info['events_written']:,} events can be read",
            RuntimeWarning,
            stacklevel=4,
        )
    facts = {
        "path": path,
        "live": False,
        "missing": [info["damage"]] if info["damaged"] else [],
        "missing_count": info["damaged"],
        **info,
    }
    return Trace(core, _unpack(metadata), lambda: facts)


def _open_log(fd: int, path: str) -> Trace:
    core, metadata, pid = _core.open_log(os.dup(fd), path)
    known = _unpack(metadata)
    options = known.get("options")
    options = options if isinstance(options, dict) else {}
    areas.tell_of_file(known.get("areas"))
    depth, duration = options.get("max_depth"), options.get("min_duration")
    core.filter(
        _words(options.get("include")),
        _words(options.get("exclude")),
        depth if isinstance(depth, int) else -1,
        duration if isinstance(duration, int) else 0,
    )
    facts = core.file_facts()
    return Trace(
        core,
        {
            "clock": facts["clock"],
            "backend": facts["calls_from"] or None,
            "displaced": tuple(facts["displaced"].split()),
            "pid": pid,
            **known,
        },
        lambda: {"path": path, **core.file_facts()},
    )


def _words(value: object) -> tuple[str, ...]:
    return tuple(w for w in value if isinstance(w, str)) if isinstance(value, tuple) else ()


#: What opens a file, by how that begins; given the descriptor, which is closed afterwards, and the
#: path.
_OPENERS: dict[bytes, Callable[[int, str], Trace]] = {
    b"EVPARCH": _open_archive,
    b"EVPLOG\x1a\n": _open_log,
}
