"""Opens files that eventprof wrote. The extension reads the bytes; saving.py saves."""

from __future__ import annotations

import errno
import fnmatch
import os
import stat
import warnings
from collections.abc import Callable
from typing import Any, Literal, overload

from .. import _core
from ..base import areas
from ..base.arguments import SUFFIX
from ..tables.processes import tell_processes
from ..trace import Trace
from . import family
from .following import Follower


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
def open(
    path: str | os.PathLike[str],
    *,
    follow: Literal[False] = False,
    process: int | str | None = None,
) -> Trace: ...
@overload
def open(
    path: str | os.PathLike[str], *, follow: Literal[True], process: int | str | None = None
) -> Follower: ...
def open(
    path: str | os.PathLike[str], *, follow: bool = False, process: int | str | None = None
) -> Trace | Follower:
    """Open a recording: one that was saved, or the log that a program writes.

    Parameters
    ----------
    path : str or path-like
        A file of `Trace.save`, ``record(output=...)`` or ``eventprof run``; a log file also after a
        crash, or while its program runs. Or a file of another tool: Chrome trace JSON (of VizTracer
        and others), Perfetto's protobuf, speedscope's JSON, collapsed stacks, files of pstats (of
        cProfile), of memray, of pyinstrument, of the Firefox Profiler, and of Python 3.15's
        profiling.sampling. Or a folder, as
        ``eventprof run`` makes it of a program with children: its recordings as one, see `merge`.
    follow : bool
        Give an iterator of the events as they come, instead of all events until now.
    process : int or str, optional
        Of a folder, only this process: its id, or a glob of its file's name.

    Returns
    -------
    Trace or Follower
        It has the same tables as the recorder's own trace. Its events are read when they are first
        needed; until then the file may be renamed or removed, but not changed.

    Raises
    ------
    FormatError
        The file has another format, or is so damaged that nothing of it can be read. Damage of a
        part may be found only when the events are read.
    ModuleNotFoundError
        The file can only be read by the library of its tool, which is not installed.
    UnsupportedError
        A newer eventprof wrote the file, or it is compressed in a way that this build cannot read.
    OSError
        The system refused, for instance with FileNotFoundError or PermissionError.
    ValueError
        `process` is given, and no recording of the folder is of that process, or it is a file.

    Warns
    -----
    RuntimeWarning
        A part of an archive is missing or damaged: the trace has the rest. For a log file,
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
        return Follower(lambda: _open_any(source, process))
    trace = _open_any(source, process)
    trace._again = lambda: _open_any(source, process)._core
    return trace


def _open_any(source: str, process: int | str | None) -> Trace:
    if os.path.isdir(source):
        return _open_family(source, process)
    if process is not None:
        raise ValueError(f"process= is for a folder of recordings, and {source} is a file")
    return _open(source)


def _open(source: str) -> Trace:
    # Opening a pipe without a writer must not wait.
    fd = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), source)
        if not stat.S_ISREG(mode):
            raise _core.FormatError(f"{source}: it is not a regular file; copy it to one first")
        begin = os.pread(fd, 8, 0)
        for magic, opener in _OPENERS.items():
            if begin and magic.startswith(begin[: len(magic)]):
                return opener(fd, source)
        if begin:
            from ..importing import read

            found = read(fd, source)
            if found is not None:
                return found
    finally:
        os.close(fd)
    what = "it is empty" if not begin else f"its format is unknown (it begins {begin!r})"
    raise _core.FormatError(
        f"{source}: {what}, offset 0; open what Trace.save() or 'eventprof run' wrote, or "
        "another tool as Chrome trace JSON, Perfetto, speedscope, collapsed, pstats, memray, "
        "pyinstrument or a Firefox profile"
    )


# ---- Families ------------------------------------------------------------------------------------


def _open_family(folder: str, process: int | str | None) -> Trace:
    """Open a folder of recordings as one trace; what cannot be read is said, and left out."""
    there = family.paths(folder)
    if not there and not folder.rstrip("/").endswith(SUFFIX):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), folder)
    listed, note = family.read_manifest(folder)
    missing, notes = family.gone(listed or (), there)
    if note is not None:
        notes.append(note)
    parts = _members(there, missing, notes)
    if not parts:
        why = f": {missing[0]}" if missing else ""
        raise _core.FormatError(
            f"{folder}: no recording of this folder can be read{why}, offset 0; a recording is "
            "HOST-PID.epr, which the process makes"
        )
    if process is not None:
        parts = [part for part in parts if _is_process(part, process)]
        if not parts:
            raise ValueError(f"{folder}: it has no recording of process {process}")
    return _as_one(folder, parts, missing, notes)


def _members(there: list[str], missing: list[str], notes: list[str]) -> list[Trace]:
    """Open the recordings; add what cannot be read to `missing`, and copies to `notes`."""
    parts: list[Trace] = []
    most = _open_files_at_most()
    for path in there:
        name = os.path.basename(path)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # its file says it, too
                part = _open(path)
                part._core.probe()  # a file of which nothing can be read is found here
                if len(parts) >= most:
                    _ = part._core.events("time")  # its file is not needed any more
        except (_core.Error, OSError, MemoryError) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            missing.append(f"{name}: left out, it cannot be read: {why.removeprefix(f'{path}: ')}")
            continue
        again = next((each for each in parts if _is_copy(part, each)), None)
        if again is None:
            parts.append(part)
            continue
        kept = max(again, part, key=_count)
        left = part if kept is again else again
        parts[parts.index(again)] = kept
        notes.append(
            f"{_name(left)}: left out, it is of the same process as {_name(kept)}, which has at "
            "least as many events"
        )
    # By start, as the order of names says nothing.
    return sorted(parts, key=lambda part: part._core.start()[0])


def _open_files_at_most() -> int:
    """Return how many files may be open side by side; the events of more are read into memory."""
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return 1 << 20
    try:
        used = len(os.listdir("/proc/self/fd"))
    except OSError:
        used = 64
    return max(limit - used - _FILES_SPARED, 0)


#: Descriptors that are left to the program that opens a folder.
_FILES_SPARED = 64


def _count(part: Trace) -> int:
    part._core.tenures()  # a pass that needs little memory
    return part._facts["events"]


def _name(part: Trace) -> str:
    known = part._file() if part._file is not None else {}
    return os.path.basename(str(known.get("path", "?")))


def _is_copy(one: Trace, other: Trace) -> bool:
    keys = ("pid", "hostname", "boot", "start_ns", "start_monotonic_ns")
    early, theirs = one._early_metadata, other._early_metadata
    return all(early.get(key) == theirs.get(key) for key in keys)


def _is_process(part: Trace, process: int | str) -> bool:
    if isinstance(process, int):
        return part._known.get("pid") == process
    return fnmatch.fnmatchcase(_name(part), process)


def _as_one(folder: str, parts: list[Trace], missing: list[str], notes: list[str]) -> Trace:
    from .merging import merge

    merged = merge(parts)
    merged._file = _Facts(folder, parts, missing, notes)
    return merged


class _Facts:
    """What is known of the files of a folder, after their events were read."""

    def __init__(
        self, folder: str, parts: list[Trace], missing: list[str], notes: list[str]
    ) -> None:
        self._folder, self._parts = folder, parts
        self._missing, self._notes = missing, notes
        self._facts: dict[str, Any] | None = None

    def __call__(self) -> dict[str, Any]:
        if self._facts is None:
            self._facts = self._sum_up([(_name(part), part.file or {}) for part in self._parts])
            self._parts = []
        return self._facts

    def _sum_up(self, parts: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
        every = [file for _, file in parts]
        missing = [*self._missing]
        missing += [f"{name}: {text}" for name, file in parts for text in file.get("missing", ())]
        return {
            "path": self._folder,
            "format": "family",
            "version": (family.FORMAT, 0),
            "bytes": sum(file.get("bytes", 0) for file in every),
            "live": any(file.get("live") for file in every),
            "unfinished": any(file.get("unfinished") for file in every),
            "children_lost": sum(file.get("children_lost") or 0 for file in every),
            "children_error": next(filter(None, (f.get("children_error") for f in every)), None),
            "missing": missing,
            "missing_count": len(missing),
            "notes": self._notes,
        }


# ---- Formats -------------------------------------------------------------------------------------


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
    known = _unpack(metadata)
    tell_processes(core, known)
    return Trace(core, known, lambda: facts)


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
        () if options.get("audit") == ("*",) else _words(options.get("audit")),
    )
    facts = core.file_facts()
    return Trace(
        core,
        {
            "clock": facts["clock"],
            "backend": facts["calls_from"] or None,
            "displaced": tuple(facts["displaced"].split()),
            **known,
            "pid": pid,
            **({"worker": facts["worker"]} if facts["worker"] else {}),
            "ancestors": family.ancestors_of(facts["parent_pid"], known.get("ancestors")),
        },
        lambda: {"path": path, **core.file_facts()},
    )


def _words(value: object) -> tuple[str, ...]:
    return tuple(w for w in value if isinstance(w, str)) if isinstance(value, tuple) else ()


#: Functions that open a file, by its first bytes. They are given the descriptor, which is closed #:
#: afterwards, and the path.
_OPENERS: dict[bytes, Callable[[int, str], Trace]] = {
    b"EVPARCH": _open_archive,
    b"EVPLOG\x1a\n": _open_log,
}
