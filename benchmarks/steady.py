"""Are the counts of a package's tests the same in each run: alone, in workers, in random order?

    python benchmarks/steady.py FOLDER [--runs 100] [--ways alone,workers,random] [-- OPTIONS]

FOLDER has the sources of a package with a folder `tests`, such as those of attrs or jinja2, whose
tests the environment can run; pytest-xdist and pytest-randomly must be there for their ways.
OPTIONS are pytest's. The counts are written once, and compared by so many runs of each way. The
script prints the tests whose counts were not as written, and those that are said to drift, with the
reason; it ends with 1 if a count was another one.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

WAYS = {
    "alone": ["-p", "no:randomly"],
    "workers": ["-p", "no:randomly", "-n", "2"],
    "random": ["-p", "randomly"],
}
_ALWAYS = ["-q", "-p", "no:cacheprovider", "-p", "no:memray", "-p", "no:benchmark"]
#: What each run ends with: name of the test, and what is said of it.
Found = dict[str, dict[str, Any]]


def run(folder: Path, arguments: list[str]) -> Found:
    """Run the suite once; give what was counted."""
    written = folder / "found.json"
    written.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", *_ALWAYS, "--eventprof-counts",
               f"--eventprof-json={written}", *arguments]  # fmt: skip
    # A background job of a shell ignores SIGINT. Its children inherit that, and what a suite calls
    # depends on it: asyncio and Trio install a handler only where it is not ignored.
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        env={key: value for key, value in os.environ.items() if key != "PYTHONHASHSEED"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        tests: Found = json.loads(written.read_text())["tests"]
    except OSError:
        sys.exit(f"{done.stdout[-2000:]}{done.stderr[-2000:]}\npytest counted nothing")
    for name, each in tests.items():
        if each["state"] == "changed":
            _, _, text = done.stdout.partition(f" {name.rpartition('::')[2]} __")
            each["why"] = "\n".join(text.splitlines()[1:9])
    return tests


def main() -> int:
    """Compare, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--ways", default=",".join(WAYS))
    given, more = parser.parse_known_args()
    more = [each for each in more if each != "--"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, given.folder.resolve().name)
        shutil.copytree(given.folder, folder, ignore=shutil.ignore_patterns("__pycache__"))
        written = run(folder, [*WAYS["alone"], "--eventprof-update", *more])
        print(f"Python {sys.version.split()[0]}, {folder.name}: {_states(written)}")
        wrong = 0
        for way in given.ways.split(","):
            differing = _compare(folder, [*WAYS[way], *more], way, given.runs, written)
            wrong += differing
            print(f"{way}: {given.runs - differing} of {given.runs} runs as written", flush=True)
        print("said to drift when the counts were written:")
        for name, each in written.items():
            if each["state"] == "drifts":
                print(f"  {name}\n    {each['why']}")
    return int(wrong > 0)


def _compare(folder: Path, arguments: list[str], way: str, runs: int, written: Found) -> int:
    """Run some times; give how many of them had a count that is not as written."""
    differing = 0
    known = {name for name, each in written.items() if each["state"] == "written"}
    others: collections.Counter[str] = collections.Counter()
    for number in range(runs):
        found = run(folder, arguments)
        wrong = {
            name: found.get(name, {"state": "did not run", "why": ""})
            for name in known
            if found.get(name, {}).get("state") != "equal"
        }
        differing += bool(wrong)
        for name, each in wrong.items():
            print(f"  {way}, run {number + 1}: {name}: {each['state']}: {each['why']}", flush=True)
        others[_states(found)] += 1
    for states, times in others.most_common():
        print(f"  {times} times: {states}")
    return differing


def _states(found: Found) -> str:
    states = collections.Counter(each["state"] for each in found.values())
    return ", ".join(f"{number} {state}" for state, number in states.most_common())


if __name__ == "__main__":
    sys.exit(main())
