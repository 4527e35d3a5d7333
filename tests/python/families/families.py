"""Helpers for tests of programs with several processes."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import children

import eventprof

PTH = Path(__file__).parents[3] / "python" / "eventprof.pth"
RUN = ("-m", "eventprof", "run")


def environment(folder, **more):
    """The environment of a program for which eventprof.pth is processed, as if it were installed."""
    site = folder / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(PTH.read_text())
    env = {key: value for key, value in os.environ.items() if not key.startswith("EVENTPROF")}
    paths = [str(site), *filter(None, [env.get("PYTHONPATH")])]
    return env | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "0", **more}


def write(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))


def run(folder, *arguments, status=0, **more):
    """Run ``eventprof run`` there."""
    return children.run(
        sys.executable, *RUN, *arguments,
        status=status, cwd=folder, environment=environment(folder, **more),
    )  # fmt: skip


def calls_of(trace, name):
    """How often a function was called, by row of the process."""
    calls = trace.calls
    rows = calls[(calls["name"] == name) & (calls["kind"] == "call")]
    found = {}
    for process in rows["process"].tolist():
        found[process] = found.get(process, 0) + 1
    return found


def programs(trace):
    """The processes as (row, parent, command)."""
    processes = trace.processes
    return list(
        zip(range(len(processes)), processes["parent"].tolist(), processes["name"], strict=True)
    )


def open_one(folder):
    (path,) = folder.glob("*.epd")
    return eventprof.open(path)
