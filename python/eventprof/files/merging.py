"""Several traces on one time line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import _core
from ..trace import Trace

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
        Time 0 is the earliest start. Traces of one machine are aligned by CLOCK_MONOTONIC, others
        by CLOCK_REALTIME, so only as well as these agree. The name of a thread has the process id
        in front; functions of the same text are one. The upper 16 bits of an address are the number
        of the trace, because the same address in two processes is not the same block. Live memory
        and `Trace.resident` are sums. ``metadata["merged"]`` holds the metadata of each trace.

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
    every = [part.metadata for part in parts]
    starts = _common_starts(every)
    first = min(starts)
    core = _core.merge(
        [
            (part._core, start - first, int(metadata.get("pid") or 0))
            for part, start, metadata in zip(parts, starts, every, strict=True)
        ]
    )
    earliest = every[starts.index(first)]
    merged = Trace(
        core,
        {
            **{key: earliest.get(key) for key in _KEPT if key in earliest},
            "displaced": tuple(sorted({word for m in every for word in m.get("displaced") or ()})),
            "merged": every,
        },
    )
    for part in parts:
        merged._rights &= part._rights
    return merged


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


def _common_starts(every: list[dict[str, Any]]) -> list[int]:
    """Give each trace's start on a clock that they have in common, in ns."""
    boots = [metadata["start_ns"] - metadata["start_monotonic_ns"] for metadata in every]
    hosts = {metadata.get("hostname") for metadata in every}
    if len(hosts) == 1 and max(boots) - min(boots) < _SAME_BOOT_NS:
        return [metadata["start_monotonic_ns"] for metadata in every]
    return [metadata["start_ns"] for metadata in every]
