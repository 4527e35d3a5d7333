"""``./dev python-job NAME RUNNER WERROR QUICK ROUND PYTEST-ARG...``: pytest on one CPython.

``./dev test`` starts it as a process of its own. Round 2: only what failed in round 1.
"""

from __future__ import annotations

from dev import environments, pythons, shell
from dev.sanitize import pytest_command

#: What runs for longer hangs.
LIMIT_SECONDS = 5400


def main(arguments: list[str]) -> int:
    """Run the verb; its exit code is pytest's."""
    name, runner, werror, quick, turn, *rest = arguments
    given = f"{name}={runner}"
    python = pythons.Pythons().add_runner(given) if runner else pythons.find()[name]
    if quick == "1":
        rest = ["-m", "not slow", *rest]
    if turn == "2":
        rest = ["--last-failed", "--last-failed-no-failures", "none", *rest]
    else:
        # What failed in an earlier run of ./dev is not to be run again after this one.
        shell.remove(shell.BUILD / f"pytest_cache-{name}")
    environments.ensure(python, "build run test", f"-Dwerror={werror}")
    # From elsewhere: here, eventprof/ could be taken for the package.
    away = shell.anew(shell.BUILD / f"away-{name}")
    # What hangs in C hears no Python handler of a signal: an abort has faulthandler show every
    # thread.
    limit = ["timeout", "--foreground", "--signal=ABRT", str(LIMIT_SECONDS)]
    report = f"--junitxml={shell.BUILD}/pytest-{name}-{turn}.xml"
    command = [*limit, *pytest_command(name), report, "-q", *rest, f"{shell.ROOT}/tests/python"]
    status = shell.run(python.within(*command), null=True, folder=away)
    return status if status >= 0 else 128 - status
