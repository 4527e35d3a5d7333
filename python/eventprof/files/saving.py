"""Writes traces to files: handles errors of the system, and never leaves an incomplete file.

It imports neither NumPy nor the tables, because `eventprof run` uses it at the end of programs.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from typing import Any

from .. import _core

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: A file system without hard links.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV)


def save(
    core: _core.Trace,
    recorder_metadata: dict[str, Any],
    path: str | os.PathLike[str],
    force: bool = False,
    rights: int = 0o666,
) -> None:
    """Write a trace to a file; see `Trace.save`.

    Parameters
    ----------
    core : _core.Trace
        What to save.
    recorder_metadata : dict
        Facts about the run.
    path : str or path-like
        The file; ``.epr`` is the usual suffix.
    force : bool
        Replace an existing file.
    rights : int
        The largest set of access rights: an archive must not be more public than its recording.

    Raises
    ------
    FileExistsError
        The file exists, and `force` was not given.
    ValueError
        The name is that of another format.
    OSError
        The system refused, for instance with PermissionError; no file is left behind.
    """
    write(lambda fd: core.save(fd, _pack(recorder_metadata)), path, force, rights)


def write(
    put: Callable[[int], None],
    path: str | os.PathLike[str],
    force: bool = False,
    rights: int = 0o666,
) -> None:
    """Write an archive that `put` writes to a file descriptor; the rest is as of `save`."""
    target = os.fspath(path)
    if not isinstance(target, str):
        raise TypeError(f"path must be str or path-like, not {path!r}")
    facts = check(target, force)
    try:
        if facts is not None and not stat.S_ISREG(facts.st_mode):
            _write_device(put, target)
        else:
            _write(put, target, facts, force, rights)
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


def to_bytes(core: _core.Trace, recorder_metadata: dict[str, Any]) -> bytes:
    """Give the archive that `save` would write."""
    import tempfile

    with tempfile.TemporaryFile() as file:
        core.save(file.fileno(), _pack(recorder_metadata))
        file.seek(0)
        return file.read()


def from_bytes(archive: bytes) -> _core.Trace:
    """Read what `to_bytes` gave.

    Raises
    ------
    FormatError
        It is damaged.
    """
    import tempfile

    with tempfile.TemporaryFile() as file:
        file.write(archive)
        file.flush()
        return _core.open_archive(file.fileno(), "an archive in a pickle")[0]


def _check_name(target: str) -> None:
    """Refuse a name of another format: a file x.json must hold JSON."""
    if target.endswith(".epr"):
        return
    from ..export import by_extension

    word = by_extension(target)
    if word is not None:
        raise ValueError(
            f"{target}: this is the name of a file for {word}, and save() writes an archive; name "
            "it .epr, or export it ('eventprof export', Trace.export())"
        )


def check(target: str, force: bool) -> os.stat_result | None:
    """Raise what `write` would raise at once; give what is known of an existing file."""
    _check_name(target)
    try:
        facts = os.stat(target)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(facts.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
    if not force:
        raise _exists(target)
    return facts


def _exists(target: str) -> FileExistsError:
    text = f"{os.strerror(errno.EEXIST)}; force=True replaces it"
    return FileExistsError(errno.EEXIST, text, target)


def _write_device(put: Callable[[int], None], target: str) -> None:
    """Write to something that is not a regular file, and must not be replaced by one."""
    fd = os.open(target, os.O_WRONLY | os.O_CLOEXEC)
    try:
        put(fd)
    finally:
        os.close(fd)


def _write(
    put: Callable[[int], None],
    target: str,
    facts: os.stat_result | None,
    force: bool,
    rights: int,
) -> None:
    """Write a temporary file, then rename it: the target is never incomplete."""
    target = os.path.realpath(target)  # a link stays a link
    beside = f"{target}.{os.getpid()}-{os.urandom(4).hex()}.tmp"
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, rights)
    try:
        try:
            if facts is not None:
                os.fchmod(fd, stat.S_IMODE(facts.st_mode) & rights)
            put(fd)
        finally:
            os.close(fd)
        if force:
            os.replace(beside, target)
        else:
            _name(beside, target)
    finally:
        with contextlib.suppress(FileNotFoundError):  # the file has its name now
            os.unlink(beside)


def _name(beside: str, target: str) -> None:
    """Give a file its name, unless another file got that name meanwhile."""
    try:
        os.link(beside, target)
    except FileExistsError:
        raise _exists(target) from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        os.replace(beside, target)


# JSON has no tuples; the recorder's metadata have no lists: file.py reads them so.
def _pack(metadata: dict[str, Any]) -> bytes:
    import json

    # ASCII: arguments of a program may hold surrogates, which UTF-8 cannot.
    return json.dumps(metadata, default=str, separators=(",", ":")).encode("ascii")
