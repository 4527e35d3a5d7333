"""Writes traces to archives; output.py has the rule for existing files and for errors.

It imports neither NumPy nor the tables, because `eventprof run` uses it at the end of programs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from .. import _core
from ..base import output


def save(
    core: _core.Trace,
    recorder_metadata: dict[str, Any],
    path: str | os.PathLike[str],
    force: bool = False,
    beside: Callable[[], None] | None = None,
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
    beside : callable, optional
        Writes what belongs to the archive; it is called when the archive is complete. If it raises,
        there is no archive.

    Raises
    ------
    FileExistsError
        The file exists, and `force` was not given.
    ValueError
        The name is that of another format.
    OSError
        The system refused, for instance with PermissionError; no file is left behind.
    """
    check(path, force)
    core.survey()  # without it, the metadata of a merged trace make columns

    def put(fd: int) -> None:
        core.save(fd, _pack(recorder_metadata))
        if beside is not None:
            beside()

    write(put, path, force)


def write(
    put: Callable[[int], None],
    path: str | os.PathLike[str],
    force: bool = False,
) -> None:
    """Write an archive that `put` writes to a file descriptor; the rest is as of `save`."""
    check(path, force)
    with output.create(path, force) as new:
        put(new.descriptor)


def to_bytes(core: _core.Trace, recorder_metadata: dict[str, Any]) -> bytes:
    """Return the archive that `save` would write."""
    import tempfile

    core.survey()
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
    from . import by_extension

    word = by_extension(target)
    if word is not None:
        raise ValueError(
            f"{target}: this is the name of a file for {word}, and save() writes an archive; name "
            "it .epr, or export it ('eventprof export', Trace.export())"
        )


def check(path: str | os.PathLike[str], force: bool = False) -> None:
    """Raise the error that `write` would raise at once: call this before a long computation."""
    target = os.fspath(path)
    if isinstance(target, str):
        _check_name(target)
    output.check(path, force)


# JSON has no tuples; the recorder's metadata have no lists: file.py reads them so.
def _pack(metadata: dict[str, Any]) -> bytes:
    import json

    # ASCII: arguments of a program may hold surrogates, which UTF-8 cannot.
    return json.dumps(metadata, default=str, separators=(",", ":")).encode("ascii")
