"""How fast do events come back as columns, calls and dataframes, and in how much memory? Time and
peak memory are to grow as the events do."""

from __future__ import annotations

import argparse
import contextlib
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
PAIRED = {"calls": "parent", "allocations": "end"}
TABLES = ("events", "calls", "allocations", "functions", "memory")
# The goal's ten.
FRAME_COLUMNS = (
    "time",
    "event",
    "thread",
    "function",
    "name",
    "line",
    "address",
    "size",
    "domain",
    "depth",
)
KINDS = ("calls", "allocations", "calls+allocations")


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _best(run: Callable[[], object], repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        begin = time.process_time()
        run()
        seconds.append(time.process_time() - begin)
    return min(seconds)


def load(count: int) -> Callable[[], None]:
    """Return a program of calls and allocations with about `count` events."""

    def leaf(n: int) -> object:
        return [n, len("x")]

    def run() -> None:
        for i in range(count // 8):
            leaf(i)

    return run


# ---- In a child ----------------------------------------------------------------------------------


# Of a row: five columns of int64, five of categories with codes of one byte.
FRAME_BYTES = 5 * 8 + 5


def _touch(rows: int) -> None:
    """Write to fresh memory of a dataframe's size, which is the least that making one can cost."""
    import numpy as np

    columns = [np.empty(rows, np.int64) for _ in range(FRAME_BYTES // 8)]
    for column in columns:
        column.fill(1)


def _drop_in(count: int, repeats: int) -> dict[str, Any]:
    import pandas  # noqa: F401  # not in the first frame's time

    from eventprof import EventProfiler

    first = []
    for _ in range(min(repeats, 3)):
        profiler = EventProfiler(size=1_000_000)
        profiler.start()
        load(count)()
        profiler.stop()
        begin = time.process_time()
        rows = len(profiler.retrieve_results(empty_cache=False))
        first.append(time.process_time() - begin)
    return {
        "dataframe_rows_per_second": rows / min(first),
        "dataframe_again_rows_per_second": rows
        / _best(lambda: profiler.retrieve_results(empty_cache=False), 3),
        "raw_rows_per_second": rows
        / _best(lambda: profiler.retrieve_raw_results(empty_cache=False), 3),
        "touch_rows_per_second": rows / _best(lambda: _touch(rows), 3),
    }


def _columns(window: Any, count: int, kinds: str, repeats: int) -> dict[str, Any]:
    before = _peak_bytes()
    events = int(window._capture().facts()["events"])

    def columns(names: tuple[str, ...]) -> Callable[[], object]:
        def run() -> object:
            trace = window._capture()
            return [trace.events(name) for name in names]

        return run

    seconds = {"raw": _best(columns(RAW), repeats), "all": _best(columns(COLUMNS), repeats)}
    for table, column in PAIRED.items():
        if table in kinds:
            trace = window._capture()
            trace.events("time")  # decoded
            begin = time.process_time()
            getattr(trace, table)(column)
            seconds[f"pair {table}"] = time.process_time() - begin
    trace = window._capture()
    trace.events("time")
    begin = time.process_time()
    trace.tree(0, True, True)
    seconds["statistics"] = time.process_time() - begin
    return {
        "events": events,
        "seconds": seconds,
        "rows_per_second": {name: events / value for name, value in seconds.items()},
        "peak_bytes_per_event": (_peak_bytes() - before) / events,
    }


def _tables(trace: Any) -> dict[str, Any]:
    """Every table to each of the others' forms: the first time, that computes it, and again."""
    result: dict[str, Any] = {}
    for name in TABLES:
        table = getattr(trace, name)
        row: dict[str, Any] = {"rows": len(table)}
        for form in ("pandas", "polars", "arrow"):
            with contextlib.suppress(ImportError):
                convert = getattr(table, f"to_{form}")
                begin = time.process_time()
                convert()
                middle = time.process_time()
                convert()
                row[form] = {
                    "first_seconds": middle - begin,
                    "again_seconds": time.process_time() - middle,
                }
        result[name] = row
    ten = trace.events[list(FRAME_COLUMNS)]
    ten.to_pandas()
    result["events, 10 columns"] = {
        "rows": len(ten),
        "pandas": {"again_seconds": _best(ten.to_pandas, 5)},
    }
    return result


def child(count: int, kinds: str, repeats: int) -> dict[str, Any]:
    if kinds == "drop-in":
        return _drop_in(count, repeats)
    if kinds == "tables":
        import pandas  # noqa: F401  # not in the first conversion's time

        import eventprof

        with eventprof.record(buffer="8 GiB", on_full="grow") as recorder:
            load(count)()
        before = _peak_bytes()
        tables = _tables(recorder.trace)
        events = len(recorder.trace.events)
        return {
            "events": events,
            "tables": tables,
            "peak_bytes_per_event": (_peak_bytes() - before) / events,
        }
    import tools

    window = tools.recorder(kinds, limit_bytes=8 << 30)
    with window:
        load(count)()
    return _columns(window, count, kinds, repeats)


# ---- All -----------------------------------------------------------------------------------------


def _counts(options: argparse.Namespace) -> list[int]:
    counts = [10**5, 10**6] if options.quick else [10**4, 10**5, 10**6, 10**7]
    return [*counts, 10**8] if options.huge else counts


def run(options: argparse.Namespace) -> dict[str, Any]:
    result: dict[str, Any] = {"columns": {}, "tables": {}, "drop-in": {}}
    for count in _counts(options):
        repeats = max(2, min(20, 2 * 10**7 // count))
        for kinds in KINDS:
            row = ask("retrieve", count=count, kinds=kinds, repeats=repeats)
            result["columns"][f"{kinds} {count:.0e}"] = row
        result["tables"][f"{count:.0e}"] = ask(
            "retrieve", count=count, kinds="tables", repeats=repeats
        )
        if count <= 10**7:
            result["drop-in"][f"{count:.0e}"] = ask(
                "retrieve", count=count, kinds="drop-in", repeats=repeats
            )
        options.progress(f"{count:.0e} events: done")
    return result


def show(result: dict[str, Any]) -> str:
    kinds_of_time = ("raw", "all", "pair calls", "pair allocations", "statistics")
    rows = [
        [
            name,
            str(row["events"]),
            *(
                f"{row['rows_per_second'][kind] / 1e6:.0f}" if kind in row["seconds"] else "-"
                for kind in kinds_of_time
            ),
            f"{row['peak_bytes_per_event']:.0f}",
        ]
        for name, row in result["columns"].items()
    ]
    head = ["columns, M events/s", "events", "decoded", "all", "calls", "blocks", "statistics"]
    parts = [measure.table([*head, "peak bytes/event"], rows)]
    rows = []
    for count, measured in result["tables"].items():
        for name, row in measured["tables"].items():
            cells = []
            for form in ("pandas", "polars", "arrow"):
                times = row.get(form, {})
                cells += [
                    f"{times[key] * 1e3:.1f}" if key in times else "-"
                    for key in ("first_seconds", "again_seconds")
                ]
            rows.append([f"{count}: {name}", str(row["rows"]), *cells])
        rows.append(
            [f"{count}: peak bytes/event, all of it", f"{measured['peak_bytes_per_event']:.0f}"]
            + [""] * 6
        )
    head = [
        "tables, ms of CPU time",
        "rows",
        "pandas",
        "again",
        "Polars",
        "again",
        "Arrow",
        "again",
    ]
    parts.append(measure.table(head, rows))
    rows = [
        [
            name,
            *(
                f"{row[key] / 1e6:.1f}"
                for key in (
                    "dataframe_rows_per_second",
                    "dataframe_again_rows_per_second",
                    "raw_rows_per_second",
                    "touch_rows_per_second",
                )
            ),
        ]
        for name, row in result["drop-in"].items()
    ]
    head = ["EventProfiler, M rows/s", "dataframe", "again", "raw array", "touch"]
    parts.append(measure.table(head, rows))
    return "\n\n".join(parts)
