"""What does the drop-in's own log_event cost, for each `impl`? (The time that profiling wastes.)"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

import measure
from child import ask

IMPLEMENTATIONS = ("python", "pybind11", "c")


def child(calls: int, rounds: int) -> dict[str, Any]:
    from eventprof import EventProfilerDebug

    classes: dict[str, Any] = {"eventprof": EventProfilerDebug}
    try:
        from cpyquickhelper.profiling import EventProfilerDebug as AncestorDebug

        classes["cpyquickhelper"] = AncestorDebug
    except ImportError:
        pass
    frame = sys._getframe()
    nanoseconds: dict[str, list[float]] = {}
    for _ in range(rounds):
        for owner, debug in classes.items():
            for impl in IMPLEMENTATIONS:
                profiler = debug(size=4 * calls, impl=impl)
                profiler.start()
                begin = time.process_time_ns()
                for _ in range(calls):
                    profiler.log_event(frame, "call", None)
                taken = time.process_time_ns() - begin
                profiler.stop()
                nanoseconds.setdefault(f"{owner}, impl={impl!r}", []).append(taken / calls)
    return {
        name: {"min": min(values), "median": statistics.median(values)}
        for name, values in nanoseconds.items()
    }


def run(options: argparse.Namespace) -> dict[str, Any]:
    rounds = options.rounds or (5 if options.quick else 21)
    result: dict[str, Any] = ask("wasted", calls=20_000, rounds=rounds)
    return result


def show(result: dict[str, Any]) -> str:
    rows = [[name, f"{row['min']:.0f}", f"{row['median']:.0f}"] for name, row in result.items()]
    return measure.table(["log_event, ns of CPU time", "min", "median"], rows)
