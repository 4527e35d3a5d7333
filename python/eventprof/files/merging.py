"""Several traces on one time line."""

from __future__ import annotations

import os
from collections.abc import Iterable
from statistics import median
from typing import Any

from .. import _core
from .._words import plural, show_ns
from ..tables.facts import has_lock, has_waits
from ..trace import Trace
from . import family

#: How well the clocks agree since one boot of a machine: REALTIME may have been adjusted a little.
_SAME_BOOT_NS = 1_000_000_000


def merge(traces: Iterable[Trace]) -> Trace:
    """Put several traces on one time line: those of a program's processes, or of several hosts.

    Parameters
    ----------
    traces : iterable of Trace
        At least one. They stay as they are.

    Returns
    -------
    Trace
        Time 0 is the earliest start. Traces of one boot of a machine are aligned by
        CLOCK_MONOTONIC, machines by CLOCK_REALTIME, so only as well as these agree;
        ``metadata["clocks"]`` says which it was. The name of a thread has the process id in front,
        and what a pool or a server calls the process; functions of the same text are one. The upper
        16 bits of an address are the number of the trace, because the same address in two processes
        is not the same block. Live memory and `Trace.resident` are sums. `Trace.processes` has a
        row for each process, and `Trace.events`, `Trace.calls`, `Trace.allocations` and
        `Trace.threads` have a column ``process``. Each
        process has its own interpreter's lock: ``waited`` counts the tenures of the call's own
        process, and is null if one of the processes had no lock.
        The traces are read when the whole is first asked for events: side by side, in order of
        time. Until then do not close or change their files.
        ``metadata["merged"]`` holds the metadata of each trace. A call that was open at the end of
        one trace ends there, not at the end of the last.

    Raises
    ------
    TypeError, ValueError
        An item is not a trace, or there is no item.
    """
    parts = list(traces)
    for part in parts:
        if not isinstance(part, Trace):
            raise TypeError(f"merge() takes traces, not {part!r}")
    if not parts:
        raise ValueError("merge() takes one trace at least")
    every = [part._early_metadata for part in parts]
    starts, clocks = align(every)
    first = min(starts)
    core = _core.merge(
        [
            (
                part._core,
                start - first,
                int(metadata.get("pid") or 0),
                _plain(metadata.get("worker")),
            )
            for part, start, metadata in zip(parts, starts, every, strict=True)
        ]
    )
    earliest = every[starts.index(first)]
    merged = Trace(
        core,
        {
            **{key: earliest.get(key) for key in _KEPT if key in earliest},
            "displaced": tuple(sorted({word for m in every for word in m.get("displaced") or ()})),
            "clocks": clocks,
            "merged": every,
            **_waiting(every),
        },
    )
    offsets = [start - first for start in starts]
    merged._late = lambda: {
        "merged": [part.metadata for part in parts],
        "processes": _processes(parts, offsets),
    }
    return merged


def _plain(text: object) -> str:
    """Return a text, of any file, as C can have it."""
    return str(text or "").replace("\0", "").encode("utf-8", "replace").decode()


_KEPT = (
    "clock",
    "backend",
    "options",
    "eventprof",
    "python",
    "platform",
    "hostname",
    "pid",
    "argv",
)


def align(every: list[dict[str, Any]]) -> tuple[list[int], str]:
    """Put the starts of traces on a clock that they have in common.

    Parameters
    ----------
    every : list of dict
        The metadata of each.

    Returns
    -------
    starts : list of int
        Nanoseconds on that clock. clocks : str
        Which clock it is, and what is known of its error.
    """
    boots: dict[Any, list[int]] = {}
    for row, metadata in enumerate(every):
        known = metadata.get("boot")
        boots.setdefault(known or ("host", metadata.get("hostname")), []).append(row)
    # REALTIME minus MONOTONIC: the same for all traces of a boot, but for what was adjusted.
    apart = [metadata["start_ns"] - metadata["start_monotonic_ns"] for metadata in every]
    starts, adjusted = [0] * len(every), 0
    for key, rows in boots.items():
        of_boot = [apart[row] for row in rows]
        spread = max(of_boot) - min(of_boot)
        if isinstance(key, tuple) and spread >= _SAME_BOOT_NS:  # perhaps of several boots
            middle: int | None = None
        else:
            middle = int(median(of_boot))
            adjusted = max(adjusted, spread)
        for row in rows:
            metadata = every[row]
            starts[row] = (
                metadata["start_ns"] if middle is None else metadata["start_monotonic_ns"] + middle
            )
    if len(boots) == 1 and middle is not None:
        text = "one machine: aligned by CLOCK_MONOTONIC, without error"
        if adjusted >= _SAME_BOOT_NS:
            text += f"; its clock of the day was set by {show_ns(adjusted)} meanwhile"
        return starts, text
    return starts, (
        f"{plural(len(boots), 'machine')}, or boots of one: aligned by the clock of the day "
        f"(CLOCK_REALTIME), as exact as these clocks agree; within a boot they were adjusted by up "
        f"to {show_ns(adjusted)} meanwhile"
    )


def _waiting(every: list[dict[str, Any]]) -> dict[str, Any]:
    """Report what tells how long threads waited: recorded waits, or whose lock there is."""
    waits = {"waits": any(map(has_waits, every))}
    if len(every) == 1:
        return {**waits, **{key: every[0][key] for key in ("gil", "locks") if key in every[0]}}
    return {
        **waits,
        "gil": False,
        **({"locks": "process"} if all(map(has_lock, every)) else {}),
    }


def _processes(parts: list[Trace], offsets: list[int]) -> list[dict[str, Any]]:
    """Describe the processes of traces, in their order; times are on the common time line, in ns.

    ``parent`` is a row, ``threads`` the number of threads, which follow one another.
    """
    found: list[dict[str, Any]] = []
    for part, offset in zip(parts, offsets, strict=True):
        before = part._recorder_metadata.get("processes")
        if before:  # it was merged itself
            for each in before:
                moved = {key: each[key] + offset for key in ("start", "end")}
                found.append({**each, **moved})
        else:
            found.append({**_process(part), "start": offset, "end": offset + part.duration})
    for each, parent in zip(found, family.find_parents(found), strict=True):
        each["parent"] = parent
    return found


def _process(part: Trace) -> dict[str, Any]:
    metadata, file = part.metadata, part.file or {}
    path = file.get("path")
    return {
        "pid": int(metadata.get("pid") or 0),
        "host": metadata.get("hostname"),
        "boot": metadata.get("boot"),
        "ancestors": family.ancestors_of(file.get("parent_pid"), metadata.get("ancestors")),
        "command": tuple(map(str, metadata.get("argv") or ())),
        "start_ns": metadata["start_ns"],
        "start_monotonic_ns": metadata["start_monotonic_ns"],
        "state": family.state_of(file),
        "events": part._facts["events"],
        "lost": part.loss.total,
        "threads": len(part._thread_rows),
        "file": None if path is None else os.path.basename(path),
        "labels": metadata.get("labels"),
        "worker": metadata.get("worker"),
    }
