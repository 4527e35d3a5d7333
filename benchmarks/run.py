"""The benchmarks of eventprof: `./dev bench [OPTION...]`.

Each question is a file with run(options) -> result and show(result) -> text: hooks, programs,
retrieve, start. Ratios come from one interleaved run; absolute times are extra information.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
QUESTIONS = ("hooks", "programs", "retrieve", "start")
PACKAGES = ("eventprof", "numpy", "pandas", "pyperformance", "viztracer", "memray", "yappi")


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(HERE), *arguments], capture_output=True, text=True)
    return done.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )


def describe() -> dict[str, Any]:
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": platform.machine(),
        "processor": _processor(),
        "processors": os.cpu_count(),
        "system": platform.platform(),
        "versions": _versions(),
        "commit": _git("rev-parse", "--short", "HEAD"),
        "modified": _git("status", "--porcelain") != "",
        "load_before": os.getloadavg(),
    }


def _flat(tree: Any, path: str = "") -> dict[str, float]:
    if isinstance(tree, dict):
        return {
            key: value
            for name, branch in tree.items()
            for key, value in _flat(branch, f"{path} / {name}" if path else name).items()
        }
    return {path: float(tree)} if isinstance(tree, int | float) else {}


def compare(new: dict[str, Any], old: dict[str, Any]) -> str:
    """Ratios that both runs have, where they differ by more than 2 %."""
    before, after = _flat(old["results"]), _flat(new["results"])
    lines = [
        f"{before[key]:8.3f} -> {after[key]:8.3f}  {after[key] / before[key]:6.3f}x  {key}"
        for key in after
        if key.endswith(("min", "per_second / raw", "per_second / all"))
        and before.get(key)
        and abs(after[key] / before[key] - 1) > 0.02
    ]
    return "\n".join(lines) or "no difference above 2 %"


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer programs, rounds and events")
    parser.add_argument(
        "--only",
        action="append",
        choices=QUESTIONS,
        metavar="NAME",
        help=f"one question: {', '.join(QUESTIONS)} (again and again)",
    )
    parser.add_argument(
        "--workload",
        action="append",
        metavar="NAME",
        help="of hooks and programs: only this one (again and again)",
    )
    parser.add_argument(
        "--tools",
        action="append",
        metavar="NAME",
        help="of hooks and programs: only this recorder, next to the bare program",
    )
    parser.add_argument("--no-peers", action="store_true", help="eventprof and empty hooks alone")
    parser.add_argument("--rounds", type=int, help="how often each configuration is run")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write all figures there")
    parser.add_argument("--compare", type=Path, metavar="OLD", help="an earlier --json")
    options = parser.parse_args()
    options.progress = lambda text: print(f"  {text}", file=sys.stderr, flush=True)

    report: dict[str, Any] = {"about": describe(), "results": {}}
    about = report["about"]
    print(
        f"eventprof benchmarks: CPython {about['versions']['python']}, {about['processor']}, "
        f"{about['processors']} processors, load {about['load_before'][0]:.1f}"
    )
    for name in options.only or QUESTIONS:
        question = importlib.import_module(name)
        result = report["results"][name] = question.run(options)
        print(f"\n{question.show(result)}", flush=True)
    about["load_after"] = os.getloadavg()
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    if options.compare:
        old = json.loads(options.compare.read_text())
        print(f"\nagainst {options.compare}\n{compare(report, old)}")


if __name__ == "__main__":
    main()
