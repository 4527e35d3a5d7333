"""What does the plugin of pytest cost, beside those of memray and pytest-benchmark?

    python benchmarks/testing.py [--tests 100] [--repeats 5]

A suite of small tests is run with each plugin in turns. The table has the least processor time of a
run, as a ratio to the bare suite of the same round, and what a test costs more. It takes some
minutes; pytest-memray and pytest-benchmark must be in the environment. By its defaults
pytest-benchmark repeats a test for a second, which is its purpose: it is measured once, with three
tests.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SUITE = """
import json, pytest

def parse(lines):
    return [json.loads(line) for line in lines]

def work(n):
    rows = parse('{{"name": "row", "values": [1.5, 2.5]}}' for _ in range(n))
    return sum(len(row["values"]) for row in rows)

{mark}
@pytest.mark.parametrize("n", range({tests}))
def test_work({fixture}n):
    assert {call} == 200
"""
#: Name: the mark, the fixture, the call, options of pytest.
WAYS: dict[str, tuple[str, str, str, list[str]]] = {
    "bare, without eventprof's plugin": ("", "", "work(100)", ["-p", "no:eventprof"]),
    "eventprof, off": ("", "", "work(100)", []),
    "eventprof, a limit": ("@pytest.mark.eventprof(max_calls=10**6)", "", "work(100)", []),
    "eventprof, a limit, warmup=0": (
        "@pytest.mark.eventprof(max_calls=10**6, warmup=0)", "", "work(100)", [],
    ),
    "eventprof, --eventprof": ("", "", "work(100)", ["--eventprof"]),
    "pytest-memray, --memray": ("", "", "work(100)", ["-p", "memray", "--memray"]),
    "pytest-memray, a limit": (
        "@pytest.mark.limit_memory('1 GB')", "", "work(100)", ["-p", "memray"],
    ),
    "pytest-benchmark, five rounds": (
        "", "benchmark, ", "benchmark(work, 100)",
        ["-p", "benchmark", "--benchmark-max-time=1e-6", "--benchmark-min-time=1e-6"],
    ),
    "pytest-benchmark, --benchmark-disable": (
        "", "benchmark, ", "benchmark(work, 100)", ["-p", "benchmark", "--benchmark-disable"],
    ),
}  # fmt: skip
_DEFAULTS = ("", "benchmark, ", "benchmark(work, 100)", ["-p", "benchmark"])
_FEW = 3
_PLUGINS = {"memray": "pytest_memray.plugin", "benchmark": "pytest_benchmark.plugin"}


def seconds(way: tuple[str, str, str, list[str]], tests: int) -> float | None:
    """Return the processor time of a run; None where the plugin is not there."""
    mark, fixture, call, given = way
    options = [_PLUGINS.get(each, each) for each in given]
    with tempfile.TemporaryDirectory() as folder:
        text = SUITE.format(mark=mark, fixture=fixture, call=call, tests=tests)
        Path(folder, "test_it.py").write_text(text)
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        if "no:eventprof" not in options:
            options = ["-p", "eventprof.plugins.pytest_entry", *options]
        before = os.times()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
        )
        after = os.times()
    if done.returncode != 0:
        print(done.stdout[-500:], done.stderr[-500:], file=sys.stderr)
        return None
    return (
        after.children_user
        + after.children_system
        - before.children_user
        - (before.children_system)
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tests", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(options.repeats):
        for name, way in WAYS.items():
            taken = seconds(way, options.tests)
            if taken is not None:
                found[name].append(taken)
    bare = min(next(iter(found.values())))
    print(f"{bare:.2f} s: {options.tests} tests alone")
    for name, times in found.items():
        if times:
            each = (min(times) - bare) / options.tests * 1e3
            print(f"{min(times) / bare:6.2f}  {each:7.2f} ms a test  {name}", flush=True)
        else:
            print(f"     -                     {name}")
    few = seconds(next(iter(WAYS.values())), _FEW), seconds(_DEFAULTS, _FEW)
    if few[0] is not None and few[1] is not None:
        each = (few[1] - few[0]) / _FEW * 1e3
        print(f"        {each:7.2f} ms a test  pytest-benchmark, its defaults")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
