"""``./dev python-job NAME RUNNER WERROR PART ROUND PYTEST-ARG...``: pytest on one CPython.

``./dev test`` starts it as a process of its own. Part: all; no-newest, without what runs on the
newest CPython alone; beside, also without what runs on one release of each X.Y; quick, without what
is slow; or files, only those that are among the arguments, with what they need. Of all and quick,
two processes of pytest have half of the files each. Round 2: only what failed in round 1.

Those without what runs on the newest alone have a third of the cases of a test that has many, each
X.Y another third; with ``./dev test --long``, all.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dev import environments, pythons, shell
from dev.environments import TESTS
from dev.pythons import Python
from dev.results import join_reports
from dev.sanitize import pytest_command
from dev.shell import Command

#: What runs for longer hangs.
LIMIT_SECONDS = 5400
#: The parts of which two processes of pytest have half of the files each, with their tests.
HALVED: dict[str, list[str]] = {"all": [], "quick": ["-m", "not slow and not thorough"]}
#: The tests that run, by part.
CHOSEN = {"no-newest": "not newest", "beside": "not newest and not version"}
NOTHING_RAN = 5  # pytest's exit code
#: Set by ``./dev test --long``; tests/python/helpers/amounts.py asks for it, too.
LONG = "EVENTPROF_TEST_LONG"
SHARES = 3  # of the cases of a test that has many


def share(python: Python) -> int:
    """Return which share of the cases an interpreter has: a second release of one X.Y, another."""
    version = pythons.minor(python.name)
    return (int(version.split(".")[1].rstrip("t")) + (version != python.name)) % SHARES


def halves() -> list[list[Path]]:
    """Return the test files in two lists that take about as long."""
    files = sorted(TESTS.rglob("test_*.py"), key=lambda path: path.stat().st_size)
    return [files[0::2], files[1::2]]


def pytest_on(python: Python, name: str, turn: str, rest: list[str]) -> Command:
    """Return the command that runs pytest, with a cache and a report by this name."""
    # What hangs in C hears no Python handler of a signal: an abort has faulthandler show every
    # thread.
    limit = ["timeout", "--foreground", "--signal=ABRT", str(LIMIT_SECONDS)]
    report = f"--junitxml={shell.BUILD}/pytest-{name}-{turn}.xml"
    return python.within(*limit, *pytest_command(name), report, "-q", *rest)


def run_halves(python: Python, turn: str, rest: list[str]) -> int:
    """Run both halves, in round 2 one after the other; give the worse exit code."""

    def run(half: int) -> tuple[int, str]:
        files = [str(path) for path in halves()[half]]
        command = pytest_on(python, f"{python.name}-{half}", turn, [*rest, *files])
        away = shell.anew(shell.BUILD / f"away-{python.name}-{half}")
        return shell.output(command, joined=True, folder=away)

    with ThreadPoolExecutor(2 if turn == "1" else 1) as pool:
        ended = list(pool.map(run, range(2)))
    for _, text in ended:
        shell.say(text.rstrip("\n"))
    parts = [shell.BUILD / f"pytest-{python.name}-{half}-{turn}.xml" for half in range(2)]
    join_reports(parts, shell.BUILD / f"pytest-{python.name}-{turn}.xml")
    shell.remove(*parts)
    ran = [status for status, _ in ended if status != NOTHING_RAN]
    return next((status for status in ran if status != 0), 0 if ran else NOTHING_RAN)


def main(arguments: list[str]) -> int:
    """Run the verb; its exit code is pytest's."""
    name, runner, werror, part, turn, *rest = arguments
    given = f"{name}={runner}"
    python = pythons.Pythons().add_runner(given) if runner else pythons.find()[name]
    if turn == "2":
        rest = ["--last-failed", "--last-failed-no-failures", "none", *rest]
    else:
        # What failed in an earlier run of ./dev is not to be run again after this one.
        shell.remove(*(shell.BUILD / f"pytest_cache-{name}{half}" for half in ("", "-0", "-1")))
    files: list[Path] = []
    if part == "files":
        files = [path for path in (Path(word.partition("::")[0]) for word in rest) if path.exists()]
    elif part in CHOSEN:
        files = environments.folders_for_every()
    options = [] if part == "files" else [f"-Dwerror={werror}"]
    environments.ensure(python, "build run test", *options, files=files)
    if part in CHOSEN:
        rest = ["-m", CHOSEN[part], *rest]
        if not os.environ.get(LONG):
            rest = [f"--share={share(python)}/{SHARES}", *rest]
    if part in HALVED:
        status = run_halves(python, turn, [*HALVED[part], *rest])
    else:
        # From elsewhere: here, eventprof/ could be taken for the package.
        away = shell.anew(shell.BUILD / f"away-{name}")
        where = [] if part == "files" else files
        command = pytest_on(python, name, turn, [*rest, *map(str, where)])
        status = shell.run(command, null=True, folder=away)
    return status if status >= 0 else 128 - status
