"""Creates the files that eventprof writes, by one rule: what exists stays.

A file that exists is replaced only if the caller passes ``force=True`` (``-f`` of a verb). A file
appears under its name when it is complete, and only its owner may read it. If writing fails, an
existing file is unchanged and no part of the new one is left. Log files follow the same rule;
store/file.c makes them.

This module imports neither NumPy nor the tables, because `eventprof run` uses it at the end of
programs.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: A file system without hard links.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV)
#: Only their owner may read recordings and what is made of them: they have names, paths, and
#: arguments of the command line.
PRIVATE = 0o600
PRIVATE_FOLDER = 0o700
#: The first bytes of a log file and of an archive.
_MAGICS = (b"EVPLOG\x1a\n", b"EVPARCH\n")


class NewFile(NamedTuple):
    """A file that is being written.

    Attributes
    ----------
    path : str
        Its temporary name, or the name of a device.
    descriptor : int
        Open for writing; `create` closes it.
    """

    path: str
    descriptor: int


def check(path: str | os.PathLike[str], force: bool = False) -> os.stat_result | None:
    """Raise the error that `create` would raise at once: call this before a long computation.

    Parameters
    ----------
    path : str or path-like
        The file to write.
    force : bool
        Whether an existing file may be replaced.

    Returns
    -------
    os.stat_result or None
        What is known of an existing file; None if there is none.

    Raises
    ------
    TypeError
        `path` is not a path.
    FileExistsError
        The file exists, and `force` is false. Pipes and character devices, such as a terminal, are
        written to and stay what they are.
    OSError
        It is a folder, or there is no folder to write it into.
    """
    target = os.fspath(path)
    if not isinstance(target, str):
        raise TypeError(f"path must be str or path-like, not {path!r}")
    try:
        facts = os.stat(target)
    except FileNotFoundError:
        folder = os.path.dirname(os.path.realpath(target))
        if not os.path.isdir(folder):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), target) from None
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), target) from None
        return None
    if stat.S_ISDIR(facts.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
    is_stream = stat.S_ISCHR(facts.st_mode) or stat.S_ISFIFO(facts.st_mode)
    if not force and not is_stream:
        raise _exists(target)
    return facts


def _exists(target: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, "exists already; force=True replaces it", target)


@contextlib.contextmanager
def create(
    path: str | os.PathLike[str], force: bool = False, rights: int = PRIVATE
) -> Iterator[NewFile]:
    """Create a file, which gets its name when the ``with`` block ends without an exception.

    Parameters
    ----------
    path : str or path-like
        The file to write. A symbolic link stays a link.
    force : bool
        Replace an existing file, whose access rights the new one has.
    rights : int
        The access rights of a file that did not exist, before the umask.

    Yields
    ------
    NewFile
        An empty file.

    Raises
    ------
    TypeError
        `path` is not a path.
    FileExistsError
        The file exists, or appeared while it was written, and `force` is false.
    OSError
        The system refused, for instance with PermissionError; no part of the file is left.
    """
    facts = check(path, force)
    target = os.fspath(path)
    if facts is not None and not stat.S_ISREG(facts.st_mode):
        fd = os.open(target, os.O_WRONLY | os.O_CLOEXEC)
        with _errors_of(target, target), _closing(fd):
            yield NewFile(target, fd)
        return
    real = os.path.realpath(target)
    # Not the name and a suffix, which the file system may find too long.
    name = f".eventprof-{os.getpid()}-{os.urandom(4).hex()}.part"
    beside = os.path.join(os.path.dirname(real), name)
    with _errors_of(target, beside):
        fd = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, rights)
        try:
            mode = stat.S_IMODE((facts or os.fstat(fd)).st_mode)
            with _closing(fd):
                yield NewFile(beside, fd)
            os.chmod(beside, mode)  # by name: a library may have made the file anew
            if force:
                os.replace(beside, real)
            else:
                _name(beside, real, target)
        finally:
            with contextlib.suppress(FileNotFoundError):  # it has its final name
                os.unlink(beside)


def put(
    path: str | os.PathLike[str],
    parts: Iterable[bytes],
    force: bool = False,
    rights: int = PRIVATE,
) -> int:
    """Create a file from its parts, and return its size in bytes; errors are those of `create`."""
    with create(path, force, rights) as new, open(new.descriptor, "wb", closefd=False) as file:
        return sum(file.write(part) for part in parts)


def is_recording(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a log file or an archive of eventprof, by its first bytes."""
    try:
        with open(path, "rb") as file:
            return file.read(8) in _MAGICS
    except OSError:
        return False


@contextlib.contextmanager
def _closing(fd: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(fd)


@contextlib.contextmanager
def _errors_of(target: str, beside: str) -> Iterator[None]:
    """Let errors name the file that the user knows, and say what to do if the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, beside, target):
            raise
        text = error.strerror
        if error.errno in _NO_ROOM:
            text = (
                f"{os.strerror(error.errno)}; nothing was written: make room, or name a file on "
                "another disk"
            )
        if error.filename == target and text == error.strerror:
            raise
        raise OSError(error.errno, text, target) from None


def _name(beside: str, real: str, target: str) -> None:
    """Move a file to its name, unless another file got that name meanwhile."""
    try:
        os.link(beside, real)
    except FileExistsError:
        raise _exists(target) from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        try:
            os.close(os.open(real, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))
        except FileExistsError:
            raise _exists(target) from None
        try:
            os.replace(beside, real)
        except BaseException:
            os.unlink(real)  # the empty file that held the name
            raise
