"""Does an event cost the same with many threads, functions and recorders, and deep in a stack?"""

from __future__ import annotations

import argparse
import sys
import sysconfig
from typing import Any

import hooks
import tools

DEPTHS = ["depth 1", "depth 100", "depth 5000"]
FUNCTIONS = ["50 functions", "1000 functions", "5000 functions"]
THREADS = ["1 thread", "2 threads", "4 threads"]
RECORDERS = ["calls", "calls, 2 recorders", "calls, 8 recorders"]


def run(options: argparse.Namespace) -> dict[str, Any]:
    rows: list[tuple[list[str] | None, list[str], str]] = [
        (DEPTHS, RECORDERS if not options.quick else ["calls"], "calls"),
        (FUNCTIONS, ["calls"], "calls"),
    ]
    if tools.MONITORING:  # the empty profile hook is the starting thread's alone
        rows.append((THREADS, ["calls"], "calls"))
    return {
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
        "workloads": hooks.run_groups(options, {"GROWING": rows}),
    }


def show(result: dict[str, Any]) -> str:
    return hooks.show(result["workloads"]).replace("events of one kind", "what grows", 1)
