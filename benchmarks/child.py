"""One workload in a process of its own: what `python child.py NAME JSON` measures goes to stdout as
JSON. Keeps what tools leave behind in an interpreter away from other workloads."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def ask(what: str, **arguments: Any) -> Any:
    """Run it in a child process."""
    # NumPy's BLAS has threads that wait busily at first: in the process's CPU time.
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "1"}
    done = subprocess.run(
        [sys.executable, str(Path(__file__)), what, json.dumps(arguments)],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        env=environment,
    )
    return json.loads(done.stdout.splitlines()[-1])


def compare(
    group: str, name: str, tools: list[str], rounds: int, units: int, every: dict[str, int]
) -> dict[str, Any]:
    """Return samples of one workload under each tool, and the number of events of one unit."""
    import measure
    import tools as registry
    import workloads

    run = getattr(workloads, group)[name]()
    known = registry.own() | registry.variants() | registry.peers()
    run()
    samples = measure.interleave(
        {tool: lambda tool=tool: measure.sample(known[tool], run, units) for tool in tools},
        rounds,
        every,
    )
    counted: tuple[str, ...] = ("calls", "allocations", "calls+allocations")
    if group == "LINES":
        counted = ("lines", "instructions")
    events = {kinds: registry.count_events(kinds, run) for kinds in counted}
    return {"samples": samples, "events": events}


def main() -> None:
    what, arguments = sys.argv[1], json.loads(sys.argv[2])
    if what == "compare":
        result = compare(**arguments)
    else:
        result = importlib.import_module(what).child(**arguments)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
