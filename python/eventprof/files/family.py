"""The folder of a family: the recordings of a process and of its children, and a manifest.

``NAME.epd/`` has a file a process, ``HOST-PID.epr``, which only that process writes. Whatever ends
a process, its file is there, and says what it is: process, parent, host, start, whether it was
stopped. ``manifest.json`` repeats that for all files; the first process writes it at its end. It
tells later which files are gone. Nothing is locked, and no process waits for another.

This module imports neither NumPy nor the tables: `eventprof run` uses it at the end of programs.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Sequence
from typing import Any

from ..base import output
from ..base.arguments import MEMBER, SUFFIX

MANIFEST = "manifest.json"
#: Of the manifest.
FORMAT = 1


def folder_of(path: str) -> str:
    """Return the folder for the children of a process that records into a file.

    Parameters
    ----------
    path : str
        The file, or the folder itself.

    Returns
    -------
    str
        ``NAME.epd`` for ``NAME.epr``.
    """
    if path.endswith(SUFFIX):
        return path
    return path.removesuffix(".epr") + SUFFIX


def member_pattern(folder: str) -> str:
    """Return the pattern of the files in a folder; `folder` has no words with %."""
    return os.path.join(folder.replace("%", "%%"), MEMBER)


# ---- What is there -------------------------------------------------------------------------------


def paths(folder: str) -> list[str]:
    """Return the recordings of a family, by name.

    The first process moves its own file into the folder when it ends. If it was killed before, or
    still runs, the file is beside the folder, and is in the list, too.

    Raises
    ------
    OSError
        The folder cannot be read.
    """
    found = [
        os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".epr")
    ]
    plain = folder.rstrip("/")
    if not plain.endswith(SUFFIX):
        return found
    stem = plain.removesuffix(SUFFIX)
    for beside in (f"{stem}.epr", stem):
        if os.path.isfile(beside) and not any(_same(beside, each) for each in found):
            return [beside, *found]
    return found


def _same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def is_one(folder: str) -> bool:
    """Whether a process has a recording in a folder; the folder goes if it is empty."""
    try:
        if any(name.endswith(".epr") for name in os.listdir(folder)):
            return True
        os.rmdir(folder)
    except OSError:  # there is none, or it has files of the user
        pass
    return False


def read_manifest(folder: str) -> tuple[list[dict[str, Any]] | None, str | None]:
    """Read what the manifest says of the processes.

    Returns
    -------
    processes : list of dict or None
        None: there is no manifest that can be read.
    note : str or None
        What is wrong with it.
    """
    try:
        with open(os.path.join(folder, MANIFEST), encoding="utf-8") as file:
            known = json.load(file)
    except FileNotFoundError:
        return None, (
            f"there is no {MANIFEST} (the first process writes it at its end): files that are gone "
            "would not be noticed"
        )
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or "it is not JSON"
        return None, f"{MANIFEST} cannot be read ({why}); the files say what the processes are"
    version = known.get("format") if isinstance(known, dict) else None
    if isinstance(version, int) and version > FORMAT:
        return None, (
            f"{MANIFEST} has format {version}, this build reads {FORMAT}: upgrade eventprof; the "
            "files say what the processes are"
        )
    processes = known.get("processes") if isinstance(known, dict) else None
    if not isinstance(processes, list) or not all(
        isinstance(each, dict) and isinstance(each.get("file"), str) for each in processes
    ):
        return None, f"{MANIFEST} is damaged; the files say what the processes are"
    return processes, None


def gone(processes: Iterable[dict[str, Any]], there: Sequence[str]) -> tuple[list[str], list[str]]:
    """Report which files of the manifest are not there; and which it names twice."""
    names = {os.path.basename(path) for path in there}
    lines: list[str] = []
    twice: list[str] = []
    seen = set()
    for each in processes:
        name = each["file"]
        if name in seen:
            twice.append(f"{name}: {MANIFEST} names it twice; the file says which process it is")
        elif name not in names:
            events = each.get("events")
            lost = f", {events:,} events" if isinstance(events, int) else ""
            lines.append(f"{name}: the file is missing (process {each.get('pid', '?')}{lost})")
        seen.add(name)
    return lines, twice


# ---- What the processes are ----------------------------------------------------------------------


def find_parents(processes: Sequence[dict[str, Any]]) -> list[int | None]:
    """Find each process's parent among them.

    Parameters
    ----------
    processes : sequence of dict
        With ``pid``, ``ancestors`` (process ids, the parent's first), ``boot``,
        ``start_monotonic_ns`` and ``state``.

    Returns
    -------
    list of int or None
        Its number; None if it is not among them. Process ids are used again: of several processes
        with the parent's id it is the last that began before. A program that replaced itself by
        ``os.exec*`` has the process before as its parent.
    """
    by_pid: dict[tuple[Any, Any], list[int]] = {}
    for row, each in enumerate(processes):
        by_pid.setdefault((each.get("boot"), each["pid"]), []).append(row)

    def earlier(row: int, pid: int) -> int | None:
        process = processes[row]
        start = process["start_monotonic_ns"]
        rows = [
            other
            for other in by_pid.get((process.get("boot"), pid), ())
            if other != row and processes[other]["start_monotonic_ns"] <= start
        ]
        return max(rows, key=lambda other: processes[other]["start_monotonic_ns"], default=None)

    parents: list[int | None] = []
    for row, each in enumerate(processes):
        before = earlier(row, each["pid"])
        if before is not None and processes[before].get("state") == "unfinished":
            ancestors = each.get("ancestors") or (0,)
            theirs = processes[before].get("ancestors") or (0,)
            if ancestors[0] == theirs[0]:  # the same process, by exec
                parents.append(before)
                continue
        found = (earlier(row, pid) for pid in each.get("ancestors") or ())
        parents.append(next((parent for parent in found if parent is not None), None))
    return parents


def ancestors_of(parent_pid: Any, known: Any) -> tuple[int, ...]:
    """Return the ids of the parent and of those above it.

    Parameters
    ----------
    parent_pid : int or None
        Of the process that wrote the file.
    known : sequence of int or None
        What its metadata say. A forked child has a copy of its parent's metadata.
    """
    first = (parent_pid,) if isinstance(parent_pid, int) and parent_pid > 0 else ()
    rest = known if isinstance(known, (tuple, list)) else ()
    return tuple(dict.fromkeys((*first, *(pid for pid in rest if isinstance(pid, int)))))


# ---- Made by eventprof run -----------------------------------------------------------------------


def replaced(folder: str, force: bool) -> list[str]:
    """List the files of an earlier run, to be removed once the new run has begun.

    Returns
    -------
    list of str
        Their paths.

    Raises
    ------
    FileExistsError
        There are some, and `force` was not given.
    OSError
        It is not a folder.
    """
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    old = [name for name in names if name.endswith(".epr") or name == MANIFEST]
    if old and not force:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), folder)
    return [os.path.join(folder, name) for name in old]


def take_in(folder: str, path: str, keep: bool) -> str:
    """Move the first process's file into the folder.

    Parameters
    ----------
    folder, path : str
        Both exist.
    keep : bool
        Leave the file under its own name, too: the user chose that name. It is one file with two
        names and takes no more room.

    Returns
    -------
    str
        Its path in the folder; `path`, if the system refuses: `paths` finds it there, too.
    """
    if os.path.dirname(path) == folder:
        return path
    name = f"{os.uname().nodename}-{os.getpid()}"
    inside = os.path.join(folder, f"{name}.epr")
    number = 1
    while os.path.lexists(inside):
        number += 1
        inside = os.path.join(folder, f"{name}-{number}.epr")
    try:
        if keep:
            os.link(path, inside)
        else:
            os.rename(path, inside)
    except OSError:  # no hard links here, or no rights
        return path
    return inside


def describe(path: str, count_up_to: int = 0) -> dict[str, Any]:
    """Report what a file is, from its head.

    Parameters
    ----------
    path : str
        A log file.
    count_up_to : int
        Count its events if it has at most so many bytes.

    Returns
    -------
    dict
        As a row of the manifest. ``events``, ``lost`` and ``end_ns`` are None if not counted.

    Raises
    ------
    OSError, eventprof.Error
        It cannot be read, or is no log file.
    """
    from .. import _core

    core, metadata, pid = _core.open_log(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path)
    facts = core.file_facts()
    try:
        known = json.loads(metadata or b"{}")
    except (ValueError, RecursionError):
        known = {}
    known = known if isinstance(known, dict) else {}
    found = {
        "file": os.path.basename(path),
        "pid": pid,
        "host": known.get("hostname"),
        "boot": known.get("boot"),
        "ancestors": ancestors_of(facts.get("parent_pid"), known.get("ancestors")),
        "command": known.get("argv") or [],
        "worker": facts["worker"],
        "start_ns": facts["start_ns"],
        "start_monotonic_ns": facts["start_monotonic_ns"],
        "end_ns": None,
        "state": state_of(facts),
        "events": None,
        "lost": None,
        "bytes": facts["bytes"],
    }
    if facts["bytes"] <= count_up_to:
        counted = core.facts()
        found["events"] = counted["events"]
        found["lost"] = sum(sum(lost.values()) for *_, lost in core.threads())
        found["end_ns"] = facts["start_ns"] + counted["duration_ns"]
    return found


def state_of(file: dict[str, Any]) -> str:
    """Return the word for how a process stands, of the facts about its file."""
    if not file.get("unfinished"):
        return "ended"
    return "running" if file.get("live") else "unfinished"


def write_manifest(folder: str, processes: Sequence[dict[str, Any]]) -> None:
    """Write the manifest, whole or not at all.

    Raises
    ------
    OSError
        The system refused.
    """
    from .. import _core

    parents = find_parents(processes)
    rows = [
        {**each, "parent": None if parent is None else processes[parent]["file"]}
        for each, parent in zip(processes, parents, strict=True)
    ]
    document = {"format": FORMAT, "eventprof": _core.VERSION, "processes": rows}
    target = os.path.join(folder, MANIFEST)
    # ASCII: arguments may hold surrogates.
    text = json.dumps(document, indent=1, default=str).encode("ascii")
    # The folder had no manifest when the program began.
    output.put(target, [text], force=True)
