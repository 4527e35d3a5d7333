"""Are the counts of a package's tests the same in each run: alone, in workers, in random order?

    python benchmarks/steady.py FOLDER [--runs 100] [--minutes M] [--ways alone,workers,random]
                                       [--examples N] [-- OPTIONS]

FOLDER has the sources of a package with a folder `tests`, such as those of attrs or jinja2, whose
tests the environment can run; pytest-xdist and pytest-randomly must be there for their ways.
OPTIONS are pytest's. The counts are written once, and compared by so many runs of each way, in
turns, or by those that M minutes have room for. The script prints the tests whose counts were not
as written, and those that are said to drift, with the reason; it ends with 1 if a count was another
one. With N, Hypothesis gives so few examples to its tests, which are not counted but take most of
the time of attrs' suite.
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
import time
from pathlib import Path
from typing import Any

WAYS = {
    "alone": ["-p", "no:randomly"],
    "workers": ["-p", "no:randomly", "-n", "2"],
    "random": ["-p", "randomly"],
}
_ALWAYS = ["-q", "-p", "no:cacheprovider", "-p", "no:memray", "-p", "no:benchmark"]
#: A plugin. Tests take the settings when their module is imported, after the configuration.
_FEW = """
from hypothesis import settings


def pytest_sessionstart():
    settings.register_profile("few", parent=settings(), max_examples={})
    settings.load_profile("few")
"""
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
    # Without .pyc files, each run would compile the tests anew.
    left_out = ("PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE")
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        env={key: value for key, value in os.environ.items() if key not in left_out},
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
    parser.add_argument("--minutes", type=float, default=10**6)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--examples", type=int)
    given, more = parser.parse_known_args()
    more = [each for each in more if each != "--"]
    end = time.monotonic() + 60 * given.minutes
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, given.folder.resolve().name)
        shutil.copytree(given.folder, folder, ignore=shutil.ignore_patterns("__pycache__"))
        if given.examples:
            (folder / "few_examples.py").write_text(_FEW.format(given.examples))
            more += ["-p", "few_examples"]
        written = run(folder, [*WAYS["alone"], "--eventprof-update", *more])
        print(f"Python {sys.version.split()[0]}, {folder.name}: {_states(written)}", flush=True)
        ways = {way: _Way(way, [*WAYS[way], *more]) for way in given.ways.split(",")}
        for _ in range(given.runs):
            for way in ways.values():
                if time.monotonic() < end:
                    way.compare(folder, written)
        for way in ways.values():
            way.show()
        print("said to drift when the counts were written:")
        for name, each in written.items():
            if each["state"] == "drifts":
                print(f"  {name}\n    {each['why']}")
    return int(any(way.differing for way in ways.values()))


class _Way:
    """The runs of one way."""

    def __init__(self, name: str, arguments: list[str]) -> None:
        self.differing = 0
        self._name = name
        self._arguments = arguments
        self._runs = 0
        self._states: collections.Counter[str] = collections.Counter()

    def compare(self, folder: Path, written: Found) -> None:
        """Run once, and print each count that is not as written."""
        found = run(folder, self._arguments)
        known = {name for name, each in written.items() if each["state"] == "written"}
        wrong = {
            name: found.get(name, {"state": "did not run", "why": ""})
            for name in known
            if found.get(name, {}).get("state") != "equal"
        }
        self._runs += 1
        self.differing += bool(wrong)
        for name, each in wrong.items():
            head = f"  {self._name}, run {self._runs}: {name}"
            print(f"{head}: {each['state']}: {each['why']}", flush=True)
        self._states[_states(found)] += 1

    def show(self) -> None:
        """Print how many runs were as written."""
        print(f"{self._name}: {self._runs - self.differing} of {self._runs} runs as written")
        for states, times in self._states.most_common():
            print(f"  {times} times: {states}")


def _states(found: Found) -> str:
    states = collections.Counter(each["state"] for each in found.values())
    return ", ".join(f"{number} {state}" for state, number in states.most_common())


if __name__ == "__main__":
    sys.exit(main())
