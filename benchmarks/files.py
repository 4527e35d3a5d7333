"""How fast is a recording saved and opened, and how many bytes does an event take? Beside the files
of other tools, of the same program."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measure
from child import ask
from retrieve import load

KINDS = ("calls", "allocations", "calls+allocations")


def _timed(run: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.process_time()
    result = run()
    return time.process_time() - begin, result


def _own(kinds: str, program: Callable[[], None], path: Path) -> dict[str, Any]:
    import eventprof

    flags = {"calls": "calls" in kinds, "memory": "allocations" in kinds}
    flags["c_calls"] = flags["calls"]
    with eventprof.record(buffer="4 GiB", on_full="grow", **flags) as recorder:
        program()
    trace: Any = recorder.trace
    if not hasattr(trace, "save"):
        return {"missing": "trace.save() is not in this version"}
    save, _ = _timed(lambda: trace.save(str(path)))
    size = path.stat().st_size
    opener = getattr(eventprof, "open", None)
    opened, again = _timed(lambda: opener(str(path))) if opener else (None, None)
    first, _ = _timed(lambda: again.events["time"]) if again is not None else (None, None)
    return {
        "events": len(trace.events),
        "bytes": size,
        "save_seconds": save,
        "open_seconds": opened,
        "first_column_seconds": first,
    }


def _viztracer(program: Callable[[], None], path: Path) -> dict[str, Any]:
    from viztracer import VizTracer

    tracer = VizTracer(verbose=0, tracer_entries=4_000_000, output_file=str(path))
    tracer.start()
    program()
    tracer.stop()
    seconds, _ = _timed(tracer.save)
    return {"bytes": path.stat().st_size, "save_seconds": seconds}


def _memray(program: Callable[[], None], path: Path) -> dict[str, Any]:
    import memray

    with memray.Tracker(str(path), trace_python_allocators=True):
        program()
    return {"bytes": path.stat().st_size, "save_seconds": None}


def _c_profile(program: Callable[[], None], path: Path) -> dict[str, Any]:
    import cProfile

    profiler = cProfile.Profile()
    profiler.enable()
    program()
    profiler.disable()
    seconds, _ = _timed(lambda: profiler.dump_stats(str(path)))
    return {"bytes": path.stat().st_size, "save_seconds": seconds}


def child(tool: str, count: int) -> dict[str, Any]:
    import tools

    program = load(count)
    program()
    others = {"VizTracer": _viztracer, "memray, python": _memray, "cProfile": _c_profile}
    suffix = ".json" if tool == "VizTracer" else ".epr"
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / f"run{suffix}"
        if tool in others:
            result = others[tool](program, path)
            kinds = "allocations" if tool.startswith("memray") else "calls"
            result["events"] = tools.count_events(kinds, program)
        else:
            result = _own(tool, program, path)
    if "bytes" in result:
        result["bytes_per_event"] = result["bytes"] / result["events"]
    return result


def run(options: argparse.Namespace) -> dict[str, Any]:
    import tools

    count = 10**6 if options.quick else 4 * 10**6
    known = tools.peers()
    wanted = [*(f"eventprof, {kinds}" for kinds in KINDS)]
    if not options.no_peers:
        wanted += [name for name in ("VizTracer", "memray, python", "cProfile") if name in known]
    result = {}
    for name in wanted:
        result[name] = ask("files", tool=name.removeprefix("eventprof, "), count=count)
        options.progress(f"{name}: done")
    return result


def show(result: dict[str, Any]) -> str:
    def per_event(row: dict[str, Any], key: str) -> str:
        seconds = row.get(key)
        return "-" if seconds is None else f"{seconds / row['events'] * 1e9:.0f}"

    rows = [
        [name, row["missing"]]
        if "missing" in row
        else [
            name,
            str(row["events"]),
            f"{row['bytes_per_event']:.2f}",
            per_event(row, "save_seconds"),
            per_event(row, "open_seconds"),
        ]
        for name, row in result.items()
    ]
    head = ["files", "events", "bytes/event", "save, ns/event", "open, ns/event"]
    return measure.table(head, [row + [""] * (len(head) - len(row)) for row in rows])
