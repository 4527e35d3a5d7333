"""What passed and failed: read from the reports of meson and pytest, and added up."""

from __future__ import annotations

import contextlib
import json
import re
import resource
import time
import xml.etree.ElementTree as tree
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from dev import shell
from dev.shell import Command

STARTED = time.monotonic()


def elapsed() -> int:
    """Return the whole seconds since ./dev was started."""
    return int(time.monotonic() - STARTED)


def processor_seconds() -> float:
    """Return the processor time of all processes that were started from here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@dataclass
class Results:
    """What one run of ./dev found."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    #: Tests and C suites that failed, ran once more, and passed. They are among the passed, too.
    flaky: list[str] = field(default_factory=list)
    #: Tests; checks are counted as neither.
    c_tests: int = 0
    python_tests: int = 0
    #: The seconds of each stage, and those of a processor in brackets, as text.
    times: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Note how long a stage took, and the processor time of what ended in it."""
        began, used = elapsed(), processor_seconds()
        yield
        self.times.append(f"{name} {elapsed() - began} ({processor_seconds() - used:.0f})")

    def check(
        self,
        name: str,
        what: Command | Callable[[], tuple[int, str]],
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        """Count a program, or a function that gives an exit code and what to show."""
        status, text = (
            what()
            if callable(what)
            else shell.output(what, joined=True, environment=environment, folder=folder)
        )
        if status == 0:
            shell.say(f"  ok    {name}")
            self.passed += 1
            return
        shell.say(f"  FAIL  {name}")
        for line in text.rstrip("\n").split("\n"):
            shell.say(f"        {line}")
        self.failed += 1

    def cannot(self, text: str) -> None:
        """Count what cannot be compiled, and show why."""
        shell.say(text.rstrip("\n"))
        self.failed += 1

    def count_c(self, log: Path, again: Path | None = None) -> None:
        """Add up what the programs of a run of ``meson test`` reported."""
        try:
            suites = read_suites(log)
        except (OSError, ValueError):
            passed, failed = 0, 1
        else:
            try:
                second = read_suites(again) if again is not None else {}
            except OSError:
                second = {}
            passed, failed, flaky = count_suites(suites, second)
            self.flaky += flaky
        shell.say(f"  {passed} passed, {failed} failed")
        self.passed += passed
        self.failed += failed
        self.c_tests += passed + failed


# ---- meson test --------------------------------------------------------------------------------

Suites = dict[str, dict[str, Any]]


def read_suites(log: Path) -> Suites:
    """Return what meson wrote of each suite."""
    with open(log, encoding="utf-8") as lines:
        return {suite["name"]: suite for suite in map(json.loads, lines)}


def count_suites(first: Suites, second: Suites) -> tuple[int, int, list[str]]:
    """Count the tests that passed and failed; name suites that failed, then passed."""
    passed = failed = 0
    flaky = []
    for name, suite in (first | second).items():
        if name in second and suite["result"] == "OK":
            flaky.append(name)
        ran = bad = 0
        counts = r"Checks: (\d+), Failures: (\d+), Errors: (\d+)"
        for checks, failures, errors in re.findall(counts, suite.get("stdout", "")):
            ran += int(checks)
            bad += int(failures) + int(errors)
        if suite["result"] != "OK" and not bad:
            bad += 1
            ran += 1
        passed += ran - bad
        failed += bad
    return passed, failed, flaky


def with_failed_assertions(suites: Suites) -> list[str]:
    """Name the suites whose assertions failed.

    Suites that crashed, timed out, or have a report of a sanitizer are not among them: these have
    no count of failures, or errors in the count.
    """
    names = []
    for suite in suites.values():
        counts = re.findall(r"Failures: (\d+), Errors: (\d+)", suite.get("stdout", ""))
        if suite["result"] == "FAIL" and counts and all(errors == "0" for _, errors in counts):
            names.append(suite["name"].rpartition(":")[2].strip())
    return names


# ---- pytest ------------------------------------------------------------------------------------

PASSED, SKIPPED, FAILED = range(3)


class PytestCount(NamedTuple):
    """How many tests of one interpreter passed, failed and were skipped."""

    passed: int
    failed: int
    skipped: int


def join_reports(parts: list[Path], to: Path) -> None:
    """Make one report of several; none if one of them is not there, or is not whole."""
    joined = tree.Element("testsuites")
    try:
        for part in parts:
            joined.extend(tree.parse(part).getroot())
    except (OSError, tree.ParseError):
        return
    tree.ElementTree(joined).write(to)


def outcomes(report: Path) -> dict[str, int]:
    """Return for each test the worst of its outcomes: those of its set-up and tear-down, too."""
    found: dict[str, int] = {}
    for case in tree.parse(report).iter("testcase"):
        name = case.get("classname", "") + "::" + case.get("name", "")
        kinds = {child.tag for child in case}
        outcome = (
            FAILED if kinds & {"failure", "error"} else SKIPPED if "skipped" in kinds else PASSED
        )
        found[name] = max(found.get(name, PASSED), outcome)
    return found


def count_outcomes(reports: list[Path]) -> tuple[PytestCount, list[str]] | None:
    """Count one round, or two; name what failed in the first and passed in the second.

    Returns
    -------
    tuple or None
        The counts and the names. None if a report is not there, or is not whole.
    """
    try:
        first, *rest = map(outcomes, reports)
    except (OSError, tree.ParseError):
        return None
    second = rest[0] if rest else {}
    flaky = [
        name for name, outcome in first.items() if outcome == FAILED and second.get(name) == PASSED
    ]
    passed, skipped, failed = (
        list(first.values()).count(each) for each in (PASSED, SKIPPED, FAILED)
    )
    return PytestCount(passed + len(flaky), failed - len(flaky), skipped), flaky
