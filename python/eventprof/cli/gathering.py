"""The end of a recorded program that had child processes: its recordings become one folder."""

from __future__ import annotations

import contextlib
import os
import shlex
from typing import Any

from .._words import plural, printable, show_bytes, show_ns
from .summary import besides, shown

#: Events of the children are counted if all recordings have at most so many bytes: some 0.1 s.
#: `eventprof info` counts them at any later time.
_COUNTED_BYTES = 64 << 20
_LISTED = 12


def gather(folder: str, recorder: Any, *, keep: bool) -> list[str]:
    """Put the recordings of a family together when its first process ends.

    Parameters
    ----------
    folder : str
        Of the family.
    recorder : Recorder
        Of this process, stopped.
    keep : bool
        The user named this process's file: leave it under that name, too.

    Returns
    -------
    list of str
        Lines that name the processes, their files, events and losses, and what failed.
    """
    from ..files import family

    inside = family.take_in(folder, os.fspath(recorder.output), keep)
    found, failed = _describe(folder, inside, recorder)
    try:
        family.write_manifest(folder, found)
    except OSError as error:
        failed.append(f"no {family.MANIFEST}: {error.strerror}; the recordings are whole without")
    lines = [_summary(folder, recorder, found)]
    lines += [f"eventprof:   {_line(each)}" for each in found[:_LISTED]]
    if len(found) > _LISTED:
        lines.append(f"eventprof:   and {len(found) - _LISTED:,} more: eventprof info lists them")
    if any(each["state"] == "unfinished" for each in found):
        lines.append(
            "eventprof:   not stopped: killed, or ended by os._exit, as multiprocessing does; "
            "all that they recorded is here"
        )
    return lines + [f"eventprof: {printable(text)}" for text in failed]


def _describe(folder: str, inside: str, recorder: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """Report what the files of a family are; and why some cannot be read."""
    from .. import Error
    from ..files import family

    found, failed = [], []
    there = family.paths(folder)
    total = 0
    for path in there:
        with contextlib.suppress(OSError):
            total += os.path.getsize(path)
    for path in there:
        try:
            each = family.describe(path, _COUNTED_BYTES if total <= _COUNTED_BYTES else 0)
        except (Error, OSError, MemoryError) as error:
            failed.append(f"{os.path.basename(path)}: {error}")
            continue
        if path == inside:
            each["events"], each["lost"], _, duration = recorder._count()
            each["end_ns"] = each["start_ns"] + duration
        found.append(each)
    found.sort(key=lambda each: each["start_ns"])
    return found, failed


def _summary(folder: str, recorder: Any, found: list[dict[str, Any]]) -> str:
    duration = recorder._count()[3]
    processes = "1 process" if len(found) == 1 else f"{len(found):,} processes"
    if all(each["events"] is not None for each in found):
        text = f"{plural(sum(each['events'] for each in found), 'event')} of {processes}"
        lost = sum(each["lost"] for each in found)
        end = f"{lost:,} LOST (see --buffer)" if lost else "none lost"
    else:
        text = f"{show_bytes(sum(each['bytes'] for each in found))} of {processes}"
        end = "events are counted by eventprof info"
        lost = sum(each["lost"] or 0 for each in found)
        end += f", {lost:,} LOST of those counted (see --buffer)" if lost else ""
    running = sum(each["state"] == "running" and not _is_server(each) for each in found)
    runs = f", {running:,} still recorded" if running else ""
    return (
        f"eventprof: {text} in {show_ns(duration)}, {end}{runs}{besides(recorder)}; to look at "
        f"them: eventprof report {shown(folder)}"
    )


#: Code by which multiprocessing, and loky as it, start processes that serve the others.
_SERVERS = ("resource_tracker import main", "multiprocessing.forkserver import main")


def _is_server(each: dict[str, Any]) -> bool:
    """Return whether a process is Python's own, which ends after the last that uses it."""
    return any(code in str(word) for word in each["command"] for code in _SERVERS)


def _line(each: dict[str, Any]) -> str:
    """Report what one process recorded."""
    if each["events"] is None:
        text = show_bytes(each["bytes"])
    else:
        text = plural(each["events"], "event")
        text += f", {each['lost']:,} LOST" if each["lost"] else ""
    state = {"running": ", still runs", "unfinished": ", not stopped"}
    if _is_server(each):
        state["running"] = ", Python's own process, which ends by itself"
    command = shlex.join(map(str, each["command"]))
    command = command if len(command) <= 40 else f"{command[:37]}..."
    worker = f"{each['worker']}, " if each.get("worker") else ""
    return printable(f"{each['file']}: {text}{state.get(each['state'], '')}; {worker}{command}")
