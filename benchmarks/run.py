"""The benchmarks of eventprof: `./dev bench [OPTION...]`.

Each question is a file with run(options) -> result and show(result) -> text. Ratios come from one
interleaved run; absolute times are extra information. A run ends with the goals (goals.py), and is
kept as JSON in build/bench/; --publish puts such runs into doc/ (publish.py).
"""

from __future__ import annotations

import argparse
import collections
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

import goals
import publish

HERE = Path(__file__).resolve().parent
QUESTIONS = (
    "hooks",
    "programs",
    "allocating",
    "retrieve",
    "files",
    "script",
    "start",
    "memory",
    "scale",
    "wasted",
)
PACKAGES = (
    "eventprof",
    "numpy",
    "pandas",
    "polars",
    "pyarrow",
    "pyperformance",
    "viztracer",
    "memray",
    "yappi",
    "cpyquickhelper",
)


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
    """Show ratios that are in both runs and differ by more than 2 %."""
    before, after = _flat(old["results"]), _flat(new["results"])
    lines = [
        f"{before[key]:8.3f} -> {after[key]:8.3f}  {after[key] / before[key]:6.3f}x  {key}"
        for key in after
        if key.endswith((" / min", "per_second / raw", "per_second / all"))
        and before.get(key)
        and abs(after[key] / before[key] - 1) > 0.02
    ]
    return "\n".join(lines) or "no difference above 2 %"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="./dev bench", description=(__doc__ or "").splitlines()[0]
    )
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
    parser.add_argument("--huge", action="store_true", help="retrieve: 10^8 events, too (16 GB)")
    parser.add_argument(
        "--json", type=Path, metavar="OUT", help="where the figures go (build/bench/X.Y.json)"
    )
    parser.add_argument("--compare", type=Path, metavar="OLD", help="an earlier --json")
    parser.add_argument(
        "--publish",
        type=Path,
        nargs="+",
        metavar="RUN",
        help="measure nothing: write these runs' tables and plots to doc/",
    )
    options = parser.parse_args()
    options.progress = lambda text: print(f"  {text}", file=sys.stderr, flush=True)
    if options.publish:
        publish.publish([json.loads(path.read_text()) for path in options.publish])
        return
    measure_all(options)


def measure_all(options: argparse.Namespace) -> None:
    report: dict[str, Any] = {"about": describe(), "results": {}, "failed": {}, "text": {}}
    about, results = report["about"], report["results"]
    about["quick"] = options.quick
    about["rounds"] = options.rounds
    python = about["versions"]["python"]
    out = options.json or HERE.parent / "build" / "bench" / f"{python.rsplit('.', 1)[0]}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    print(
        f"eventprof benchmarks: CPython {python}, {about['processor']}, "
        f"{about['processors']} processors, load {about['load_before'][0]:.1f}"
    )
    for name in options.only or QUESTIONS:
        question = importlib.import_module(name)
        begin = os.times().elapsed
        try:
            results[name] = question.run(options)
        except (subprocess.CalledProcessError, SystemExit) as problem:
            # The other questions are worth their answers all the same.
            report["failed"][name] = str(problem)
            print(f"\n{name} failed: {problem}", flush=True)
            continue
        about.setdefault("seconds", {})[name] = os.times().elapsed - begin
        text = report["text"][name] = question.show(results[name])
        print(f"\n{text}", flush=True)
        out.write_text(json.dumps(report, indent=1) + "\n")
    about["load_after"] = os.getloadavg()
    # Our own load is one.
    about["loaded"] = max(about["load_before"][0], about["load_after"][0] - 1) > 0.5
    found = goals.rows(results, python)
    report["goals"] = [row._asdict() for row in found]
    out.write_text(json.dumps(report, indent=1) + "\n")
    # Of a part of the questions: the goals that it says something about.
    shown = [row for row in found if not options.only or row.verdict != "-"]
    if shown:
        print(f"\n{goals.show(shown)}")
    verdicts = collections.Counter(row["verdict"].split(":")[0] for row in report["goals"])
    print(
        f"{verdicts['ok']} reached, {verdicts['missed']} missed, {verdicts['-']} not measured"
        + (" (on a loaded machine)" if about["loaded"] else "")
    )
    print(f"kept in {out}")
    if options.compare:
        old = json.loads(options.compare.read_text())
        print(f"\nagainst {options.compare}\n{compare(report, old)}")
    if report["failed"]:
        raise SystemExit(f"failed: {', '.join(report['failed'])}")


if __name__ == "__main__":
    main()
