"""What does a whole run of a script cost, end to end, from the command line: wall time, file, peak
memory?"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import measure

# A call of a Python function each, in about 60 ns.
CALLS = {"1 M calls": 10**6, "0.1 s": 1_500_000, "1 s": 15_000_000, "10 s": 150_000_000}
# VizTracer needs some 6 s, memray 2, for each million calls.
MOST_CALLS = {"viztracer": 1_500_000, "memray": 15_000_000, "eventprof run --archive": 15_000_000}

SCRIPT = """
def leaf(n):
    return n

def work(count):
    for i in range(count):
        leaf(i)

work({calls})
"""


def commands(directory: Path) -> dict[str, list[str]]:
    """The command of each tool, in front of the script; {out} is its output file."""
    out = directory / "out"
    found = {
        "python": [],
        "cProfile": ["-m", "cProfile", "-o", f"{out}.prof"],
        "eventprof run": ["-m", "eventprof", "run", "-o", f"{out}.epr"],
        # What cProfile records.
        "eventprof run --no-memory": [
            *("-m", "eventprof", "run", "--no-memory", "-o", f"{out}.epr"),
        ],
        "eventprof run --archive": ["-m", "eventprof", "run", "--archive", "-o", f"{out}.epr"],
        "viztracer": ["-m", "viztracer", "--tracer_entries", "10000000", "-o", f"{out}.json"],
        "memray": ["-m", "memray", "run", "--quiet", "-o", f"{out}.bin"],
    }
    return {name: [sys.executable, *command] for name, command in found.items()}


def available(name: str, command: list[str]) -> bool:
    if name in ("python", "cProfile"):
        return True
    asked = [*command[:4], "--help"] if "run" in command else [*command[:3], "--help"]
    return subprocess.run(asked, capture_output=True).returncode == 0


def sample(command: list[str], directory: Path) -> dict[str, float]:
    for file in directory.glob("out.*"):
        file.unlink()
    begin = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=directory
    ) as process:
        assert process.stderr is not None
        message = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} fails:\n{message.decode(errors='replace')[-2000:]}")
    return {
        "seconds": seconds,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_bytes": usage.ru_maxrss * 1024,
        "file_bytes": sum(file.stat().st_size for file in directory.glob("out.*")),
    }


def run(options: argparse.Namespace) -> dict[str, Any]:
    sizes = ["1 M calls", "0.1 s"] if options.quick else list(CALLS)
    rounds = options.rounds or (3 if options.quick else 7)
    result: dict[str, Any] = {"missing": [], "rows": {}}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        known = commands(directory)
        if options.no_peers:
            known = {tool: known[tool] for tool in known if tool not in ("viztracer", "memray")}
        result["missing"] = [tool for tool in known if not available(tool, known[tool])]
        for size in sizes:
            script = directory / "script.py"
            script.write_text(SCRIPT.format(calls=CALLS[size]))
            wanted = [
                tool
                for tool in known
                if tool not in result["missing"] and CALLS[size] <= MOST_CALLS.get(tool, 10**9)
            ]
            samples: dict[str, list[dict[str, float]]] = {tool: [] for tool in wanted}
            for number in range(rounds if size != "10 s" else min(rounds, 2)):
                for tool in wanted if number % 2 == 0 else wanted[::-1]:
                    samples[tool].append(sample([*known[tool], str(script)], directory))
            result["rows"][size] = rows = {}
            for tool in wanted:
                seconds: measure.Samples = {
                    each: [row["seconds"] for row in samples[each]] for each in wanted
                }
                rows[tool] = {
                    "seconds": measure.minimum(seconds, tool),
                    "factor": measure.ratio(seconds, tool, "python"),
                    "cpu_seconds": min(row["cpu_seconds"] for row in samples[tool]),
                    "peak_bytes": max(row["peak_bytes"] for row in samples[tool]),
                    "file_bytes": samples[tool][-1]["file_bytes"],
                }
            options.progress(f"{size}: done")
    return result


def show(result: dict[str, Any]) -> str:
    rows = [
        [
            f"{size}: {tool}",
            f"{row['seconds']:.3f}",
            f"{row['factor']['median']:.2f}",
            f"{row['factor']['lower']:.2f}-{row['factor']['upper']:.2f}",
            f"{row['cpu_seconds']:.3f}",
            f"{row['file_bytes'] / 2**20:.2f}",
            f"{row['peak_bytes'] / 2**20:.0f}",
        ]
        for size, tools_measured in result["rows"].items()
        for tool, row in tools_measured.items()
    ]
    head = ["a script, end to end", "s, min", "ratio", "quartiles", "CPU s", "file MiB", "peak MiB"]
    text = measure.table(head, rows)
    for tool in result["missing"]:
        text += f"\n{tool}: not in this version, or not installed"
    return text
