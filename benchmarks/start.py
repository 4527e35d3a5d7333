"""What do the import, a start with its stop, and the first event cost?"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from typing import Any

import measure
from child import ask

IMPORTS = {
    "nothing": "pass",
    "numpy": "import numpy",
    "numpy, eventprof": "import numpy, eventprof",
    "numpy, eventprof.record": "import numpy, eventprof; eventprof.record",
    "viztracer": "import viztracer",
    "memray": "import memray",
}


def _import_seconds(statement: str) -> float | None:
    """CPU time of the import alone, in a new interpreter."""
    code = f"import time; b = time.process_time(); {statement}; print(time.process_time() - b)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return float(done.stdout) if done.returncode == 0 else None


def _program() -> None:
    pass


def child(repeats: int) -> dict[str, Any]:
    import tools

    result = {}
    for kinds in ("calls", "allocations", "calls+allocations"):
        seconds, first_call = [], []
        for _ in range(repeats):
            window = tools.recorder(kinds)
            begin = time.process_time()
            window.start()
            window.stop()
            seconds.append(time.process_time() - begin)
            with tools.recorder(kinds):
                # The log is met again, the code instrumented anew.
                begin = time.perf_counter()
                _program()
                first_call.append(time.perf_counter() - begin)
        result[kinds] = {
            "first": seconds[0],
            "min": min(seconds),
            "median": statistics.median(seconds),
            "first_call": statistics.median(first_call),
            "first_call_ever": first_call[0],
        }
    return result


def run(options: argparse.Namespace) -> dict[str, Any]:
    rounds = options.rounds or (7 if options.quick else 21)
    imports: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, statement in IMPORTS.items():
            seconds = _import_seconds(statement)
            if seconds is not None:
                imports.setdefault(name, []).append(seconds)
    return {
        "import_seconds": {
            name: {"min": min(values), "median": statistics.median(values)}
            for name, values in imports.items()
        },
        "start_stop_seconds": ask("start", repeats=50),
    }


def show(result: dict[str, Any]) -> str:
    imports = [
        [name, f"{row['min'] * 1e3:.1f}", f"{row['median'] * 1e3:.1f}"]
        for name, row in result["import_seconds"].items()
    ]
    starts = [
        [
            name,
            *(
                f"{row[key] * 1e6:.1f}"
                for key in ("min", "median", "first", "first_call", "first_call_ever")
            ),
        ]
        for name, row in result["start_stop_seconds"].items()
    ]
    return "\n\n".join(
        [
            measure.table(["import, ms of CPU time", "min", "median"], imports),
            measure.table(
                [
                    "start + stop, us",
                    "min",
                    "median",
                    "first",
                    "a first call, median",
                    "the very first",
                ],
                starts,
            ),
        ]
    )
