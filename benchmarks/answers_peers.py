"""One program under eventprof, memray and VizTracer, and what an answer takes.

Seconds are of the processor, of a process for each command: starting Python is part of them. A
ratio is over the line of eventprof that answers the same question. memray has only memory,
VizTracer only calls; eventprof's file has both.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import measure

PROGRAM = """
import ast, io, json, pathlib, sysconfig, tokenize

kept = []
for path in sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:40]:
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        list(tokenize.generate_tokens(io.StringIO(text).readline))
        names = [type(node).__name__ for node in ast.walk(ast.parse(text))]
    except (SyntaxError, tokenize.TokenError):
        continue
    kept.append(json.loads(json.dumps(names)))
"""

# `memray tree` waits for keys on a terminal; this is what it does before.
MEMRAY_TREE = """
import memray
from memray.reporters.tree import TreeReporter
reader = memray.FileReader("job.bin")
TreeReporter.from_snapshot(
    reader.get_high_watermark_allocation_records(merge_threads=True),
    native_traces=False, biggest_allocs=200)
"""
# VizTracer has a page, and no summary: this adds its times by function.
VIZTRACER_SUMMARY = """
import collections, json
sums = collections.Counter()
for event in json.load(open("job.json"))["traceEvents"]:
    if event["ph"] == "X":
        sums[event["name"]] += event["dur"]
print(sums.most_common(20))
"""


@dataclass(frozen=True)
class Command:
    """A command, and the question that it answers."""

    tool: str
    question: str
    arguments: tuple[str, ...]


def module(*arguments: str) -> tuple[str, ...]:
    """Return the arguments of Python for the module of a tool."""
    return ("-m", *arguments)


FLAME_GRAPH = ("eventprof", "flamegraph", "-f", "-o", "e.html", "job.epr")
MEMRAY_FLAME_GRAPH = ("memray", "flamegraph", "-f", "-o", "m.html", "job.bin")
VIZTRACER = ("viztracer", "--quiet", "--tracer_entries", "20000000", "-o", "job.json", "job.py")
MEMRAY = ("memray", "run", "-q", "--trace-python-allocators", "-o", "job.bin", "job.py")
RECORDING = (
    Command("eventprof", "record", module("eventprof", "run", "-o", "job.epr", "job.py")),
    Command("memray", "record", module(*MEMRAY)),
    Command("viztracer", "record", module(*VIZTRACER)),
)
ANSWERS = (
    Command("eventprof", "summary", module("eventprof", "report", "--short", "job.epr")),
    Command("memray", "summary", module("memray", "stats", "job.bin")),
    Command("viztracer", "summary", ("-c", VIZTRACER_SUMMARY)),
    Command("eventprof", "tree", module("eventprof", "tree", "job.epr")),
    Command("memray", "tree", ("-c", MEMRAY_TREE)),
    Command("eventprof", "flamegraph", module(*FLAME_GRAPH)),
    Command("memray", "flamegraph", module(*MEMRAY_FLAME_GRAPH)),
)
FILES = {"eventprof": "job.epr", "memray": "job.bin", "viztracer": "job.json"}


def run(folder: Path, command: Command) -> tuple[float, float]:
    """Return seconds of the processor and the MiB that the process held at most."""
    with (folder / "said").open("w+") as output:
        child = subprocess.Popen(
            [sys.executable, *command.arguments], cwd=folder, stdin=subprocess.DEVNULL,
            stdout=output, stderr=output,
        )  # fmt: skip
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            output.seek(0)
            raise SystemExit(f"{' '.join(command.arguments)}: {output.read()}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def table(rounds: int) -> str:
    """Record, ask, and lay out the minima."""
    rows = []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "job.py").write_text(PROGRAM, encoding="utf-8")
        commands = [
            command
            for command in (*RECORDING, *ANSWERS)
            if importlib.util.find_spec(command.tool) is not None
        ]
        for command in (tool for tool in commands if tool in RECORDING):
            (folder / FILES[command.tool]).unlink(missing_ok=True)
            run(folder, command)
        results = {command: (float("inf"), 0.0) for command in commands if command in ANSWERS}
        for _ in range(rounds):
            for command, (best, most) in results.items():
                seconds, mib = run(folder, command)
                results[command] = min(best, seconds), max(most, mib)
        ours = {
            tool.question: result for tool, result in results.items() if tool.tool == "eventprof"
        }
        for command, (seconds, mib) in results.items():
            size = (folder / FILES[command.tool]).stat().st_size / 2**20
            base_seconds, base_mib = ours[command.question]
            rows.append([
                f"{command.question}, {command.tool}", f"{size:.0f}", f"{seconds:.2f}",
                f"{seconds / base_seconds:.1f}x", f"{mib:.0f}", f"{mib / base_mib:.1f}x",
            ])  # fmt: skip
    return measure.table(["answer", "file, MiB", "seconds", "ratio", "peak, MiB", "ratio"], rows)
