"""How fast do events come back as columns and as dataframes, and in how much memory?"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any

import measure
from child import ask

RAW = ("time", "kind", "thread", "id", "address", "size")
COLUMNS = (
    "time",
    "kind",
    "thread",
    "function",
    "line",
    "address",
    "size",
    "domain",
    "depth",
    "caller",
    "caller_line",
)


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _best(run: Callable[[], object], repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        begin = time.process_time()
        run()
        seconds.append(time.process_time() - begin)
    return min(seconds)


def _load(count: int) -> Callable[[], None]:
    """A program of calls and allocations with about `count` events."""

    def leaf(n: int) -> object:
        return [n, len("x")]

    def run() -> None:
        for i in range(count // 8):
            leaf(i)

    return run


def _drop_in(count: int) -> dict[str, float]:
    try:
        from eventprof import EventProfiler  # type: ignore[attr-defined]
    except ImportError:
        return {}
    profiler = EventProfiler(size=1_000_000)
    profiler.start()
    _load(count)()
    profiler.stop()
    begin = time.process_time()
    raw = profiler.retrieve_raw_results(empty_cache=False)
    middle = time.process_time()
    frame = profiler.retrieve_results(empty_cache=False)
    end = time.process_time()
    return {
        "raw_rows_per_second": len(raw) / (middle - begin),
        "dataframe_rows_per_second": len(frame) / (end - middle),
    }


def child(count: int, kinds: str, repeats: int) -> dict[str, Any]:
    import tools

    if kinds == "drop-in":
        return _drop_in(count)
    window = tools.recorder(kinds, limit_bytes=4 << 30)
    with window:
        _load(count)()
    before = _peak_bytes()
    events = int(window._capture().facts()["events"])

    def columns(names: tuple[str, ...]) -> Callable[[], object]:
        def run() -> object:
            trace = window._capture()
            return [trace.events(name) for name in names]

        return run

    seconds = {"raw": _best(columns(RAW), repeats), "all": _best(columns(COLUMNS), repeats)}
    return {
        "events": events,
        "seconds": seconds,
        "rows_per_second": {name: events / value for name, value in seconds.items()},
        "peak_bytes_per_event": (_peak_bytes() - before) / events,
    }


def run(options: argparse.Namespace) -> dict[str, Any]:
    counts = [10**5, 10**6] if options.quick else [10**5, 10**6, 10**7]
    result: dict[str, Any] = {}
    for kinds in ("calls", "allocations", "calls+allocations", "drop-in"):
        for count in counts:
            repeats = max(2, min(20, 2 * 10**7 // count))
            row = ask("retrieve", count=count, kinds=kinds, repeats=repeats)
            if row:
                result[f"{kinds} {count:.0e}"] = row
                options.progress(f"{kinds} {count:.0e}: done")
    return result


def show(result: dict[str, Any]) -> str:
    rows, frames = [], []
    for name, row in result.items():
        if "events" in row:
            speed = row["rows_per_second"]
            rows.append(
                [
                    name,
                    str(row["events"]),
                    f"{speed['raw'] / 1e6:.0f}",
                    f"{speed['all'] / 1e6:.0f}",
                    f"{row['peak_bytes_per_event']:.0f}",
                ]
            )
        else:
            frames.append(
                [
                    name,
                    f"{row['raw_rows_per_second'] / 1e6:.1f}",
                    f"{row['dataframe_rows_per_second'] / 1e6:.1f}",
                ]
            )
    parts = [
        measure.table(
            [
                "columns, M events/s of CPU time",
                "events",
                "six as decoded",
                "all eleven",
                "peak bytes/event",
            ],
            rows,
        )
    ]
    if frames:
        parts.append(measure.table(["EventProfiler, M rows/s", "raw array", "dataframe"], frames))
    return "\n\n".join(parts)
