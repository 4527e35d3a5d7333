"""How much slower do loops become that mostly allocate and free?"""

from __future__ import annotations

import argparse
from typing import Any

import programs
import tools
import workloads

WANTED = ("bare", "empty allocations", "allocations", "tracemalloc", "memray", "memray, python")


def run(options: argparse.Namespace) -> dict[str, Any]:
    known = tools.own() | ({} if options.no_peers else tools.peers())
    wanted = [
        name
        for name in WANTED
        if name in known and (name == "bare" or not options.tools or name in options.tools)
    ]
    names = [
        name for name in workloads.ALLOCATIONS if not options.workload or name in options.workload
    ]
    every = {"tracemalloc": 2, "memray": 2, "memray, python": 2}
    return programs.run_group(options, "ALLOCATIONS", names, wanted, every)


show = programs.show
