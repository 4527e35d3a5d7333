"""What an event of the C library's allocator costs: blocks made and freed in C, under the shim.

    python benchmarks/native.py [--rounds 15] [--blocks 200000] [--count]

Everything in turns, round by round; minima of the process's time. Nanoseconds an event over the
shim with an empty hook; `--count`: instructions, under callgrind.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import empty_hooks

SIZES = (1, 2)


def _preload() -> dict[str, str]:
    import eventprof

    folder = Path(eventprof.__file__).parent
    found = sorted(folder.glob("_shim*.so"))
    if not found:
        raise SystemExit(f"{folder} has no shim")
    return {**os.environ, "LD_PRELOAD": str(found[0])}


def _tools(hooks: Any) -> dict[str, Any]:
    import eventprof

    @contextlib.contextmanager
    def empty(clocked: bool) -> Any:
        hooks.native_start()
        hooks.set_clocked(clocked)
        try:
            yield
        finally:
            hooks.set_clocked(False)
            hooks.native_stop()

    quiet = {"calls": False, "c_calls": False, "memory": False}
    return {
        "idle": contextlib.nullcontext,
        "empty": lambda: empty(False),
        "clock": lambda: empty(True),
        "eventprof": lambda: eventprof.record(**quiet, native=True),
    }


def _child(given: argparse.Namespace) -> None:
    hooks = empty_hooks.load()
    best: dict[str, float] = {}
    parts = []
    for _ in range(given.rounds):
        for name, tool in _tools(hooks).items():
            with tool():
                hooks.native_blocks(1000)
                if given.count:
                    for size in SIZES:
                        parts.append(f"{name} {size}")
                        hooks.measure(parts[-1], hooks.native_blocks, size * 1000)
                    continue
                begin = time.process_time_ns()
                hooks.native_blocks(given.blocks)
                taken = (time.process_time_ns() - begin) / (2 * given.blocks)
            best[name] = min(taken, best.get(name, taken))
    for name, taken in best.items():
        print(f"{name:10} {taken - best['empty']:8.1f} ns an event over the empty hook")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--blocks", type=int, default=200_000)
    parser.add_argument("--count", action="store_true")
    parser.add_argument("--child", action="store_true")
    given = parser.parse_args()
    if given.child:
        _child(given)
        return
    command = [sys.executable, __file__, *sys.argv[1:], "--child"]
    if not given.count:
        sys.exit(subprocess.run(command, env=_preload()).returncode)
    import guard

    with tempfile.TemporaryDirectory() as folder:
        _, parts = guard.count([*command, "--rounds", "1"], Path(folder), _preload())
    each = {}
    for name in sorted({re.sub(r" \d$", "", part) for part in parts}):
        less, more = (parts[f"{name} {size}"] for size in SIZES)
        each[name] = (more - less) / (2 * 1000 * (SIZES[1] - SIZES[0]))
    for name, count in each.items():
        print(f"{name:10} {count - each['empty']:8.1f} instructions an event over the empty hook")


if __name__ == "__main__":
    main()
