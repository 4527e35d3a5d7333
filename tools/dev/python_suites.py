"""pytest on each interpreter: CPythons some at a time, then PyPy, then once more what failed.

The first CPython begins before the other stages of ``./dev test``, most of which keep one core
busy.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from dev import pythons, shell
from dev.environments import PIP
from dev.pythons import Python
from dev.results import PytestCount, Results, count_outcomes, processor_seconds
from dev.sanitize import pytest_command

#: How often it is looked whether a CPython is done.
POLL_SECONDS = 0.05


@dataclass
class PythonSuites:
    """Runs pytest, and keeps what came of it by the interpreter's name.

    Parameters
    ----------
    werror, quick : bool
        As of ``./dev test``.
    arguments : list of str
        Of pytest.
    files : bool
        Whether the arguments name the test files that are to run, and no others.
    """

    werror: bool
    quick: bool
    arguments: list[str]
    files: bool = False
    path: str = field(default_factory=lambda: os.environ["PATH"])  # without any environment of ours
    counts: dict[str, PytestCount] = field(default_factory=dict)
    seconds: dict[str, int] = field(default_factory=dict)
    #: Of a processor, for each CPython.
    processor: dict[str, float] = field(default_factory=dict)
    again: list[Python] = field(default_factory=list)
    flaky: list[str] = field(
        default_factory=list
    )  # failed in the first round, passed in the second
    #: The CPythons that are to come. The first has the tests marked newest, too: the longest begins
    #: first.
    waiting: list[Python] = field(default_factory=list)
    running: dict[subprocess.Popen[bytes], tuple[Python, float]] = field(default_factory=dict)
    newest: str = field(init=False)

    def __post_init__(self) -> None:
        """Note which one has the tests that do not depend on the interpreter."""
        self.newest = self.waiting[0].name if self.waiting else ""

    def job(self, python: Python, turn: int) -> list[str]:
        """Return the command that runs pytest on a CPython."""
        runner = " ".join(python.runner)
        is_beside = pythons.minor(python.name) != python.name
        others = "beside" if is_beside else "no-newest"
        whole = "all" if python.name == self.newest else others
        part = "files" if self.files else "quick" if self.quick else whole
        words = [python.name, runner, str(self.werror).lower(), part, str(turn)]
        return [str(shell.ROOT / "dev"), "python-job", *words, *self.arguments]

    def count(self, python: Python, status: int, turn: int) -> None:
        """Count a round: what passed in the second is taken from the failures of the first.

        Parameters
        ----------
        python : Python
            On which.
        status : int
            The exit code of the round.
        turn : int
            1 or 2.
        """
        reports = [shell.BUILD / f"pytest-{python.name}-{each}.xml" for each in range(1, turn + 1)]
        counted = count_outcomes(reports)
        # The second round crashed: what the first one found stands.
        if turn == 2 and (counted is None or sum(counted[0]) == 0):
            return
        found, flaky = counted or (PytestCount(0, 0, 0), [])
        self.flaky += [f"{name} ({python.full})" for name in flaky]
        if turn == 1 and status == 1 and found.failed:
            self.again.append(python)
        # A crash, a failed build, or nothing that ran: not run again.
        if turn == 1 and status != 0 and not found.failed:
            found = found._replace(failed=1)
        self.counts[python.name] = found

    def start(self, python: Python) -> None:
        """Start pytest on a CPython; what it prints goes to a file."""
        shell.remove(*(shell.BUILD / f"pytest-{python.name}-{turn}.xml" for turn in (1, 2)))
        began = time.time()
        with open(self.log(python), "wb") as log:
            process = subprocess.Popen(
                self.job(python, 1),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PATH": self.path},
                # Of its own, to be ended whole.
                process_group=0,
            )
        self.running[process] = (python, began)

    def log(self, python: Python) -> Path:
        """Return the file that has what pytest printed."""
        return shell.BUILD / f"test-{python.name}.log"

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        """Show what pytest printed on a CPython, and count it."""
        python, began = self.running.pop(process)
        shell.say(f"== CPython {python.full}")
        with open(self.log(python), "rb") as text:
            shutil.copyfileobj(text, sys.stdout.buffer)
        sys.stdout.flush()
        # It may have ended long before: during another stage.
        self.seconds[python.name] = int(os.stat(self.log(python)).st_mtime - began)
        self.count(python, process.returncode, 1)

    def has_ended(self, process: subprocess.Popen[bytes]) -> bool:
        """Return whether a job has ended; the call that finds it so notes its processor time."""
        if process.returncode is None:
            before = processor_seconds()
            if process.poll() is not None:
                # Nothing else is waited for in between.
                self.processor[self.running[process][0].name] = processor_seconds() - before
        return process.returncode is not None

    def keep_busy(self, jobs: int) -> None:
        """Start pytest on the next CPythons, so that this many run, without waiting for any."""
        running = sum(not self.has_ended(process) for process in self.running)
        for python in self.waiting[: max(jobs - running, 0)]:
            self.waiting.remove(python)
            self.start(python)

    def run(self, jobs: int) -> None:
        """Run pytest on all CPythons, some at a time; what each prints is shown when it ends."""
        shell.say(f"== pytest, {jobs} at a time")
        self.keep_busy(jobs)
        while self.running:
            # Whichever ends first: waiting for the oldest would leave a core without work.
            while not (ended := list(filter(self.has_ended, self.running))):
                time.sleep(POLL_SECONDS)
            self.keep_busy(jobs)
            self.finish(ended[0])

    # ---- PyPy ----------------------------------------------------------------------------------

    def run_pypy(self, given: Python | None) -> bool:
        """Run tests/pypy with the package as pip builds it; whether there is a PyPy.

        Parameters
        ----------
        given : Python, optional
            That of --with; otherwise one is looked for.
        """
        began = time.monotonic()
        path = None if given is not None else pythons.find_pypy()
        if given is None and path is None:
            shell.say("== PyPy: none of Python 3.11 here")
            return False
        python = given or Python("pypy", 0, "PyPy", True, True, path or "")
        print_version = (
            'import sys; print(sys.version.split("[")[1].split("]")[0].split(" with")[0])'
        )
        version = shell.output([*python.command, "-I", "-S", "-c", print_version])[1].strip()
        shell.say(f"== pytest, on {version}")
        shell.remove(shell.BUILD / "pytest_cache-pypy")
        shell.remove(*(shell.BUILD / f"pytest-pypy-{turn}.xml" for turn in (1, 2)))
        python = Python("pypy", 0, "PyPy", True, True, python.path, python.runner)
        status = self.make_pypy(python) or self.pypy_round(python, 1)
        self.seconds["pypy"] = int(time.monotonic() - began)
        self.count(python, status, 1)
        return True

    def make_pypy(self, python: Python) -> int:
        """Have PyPy's environment, with the package; give the exit code of what failed."""
        made = python.venv / "made"
        if shell.read(made) != f"{python.path}\n":
            shell.remove(python.venv)
            if status := shell.run(
                [*python.command, "-m", "venv", python.venv], null=True, joined=True
            ):
                return status
            made.write_text(f"{python.path}\n", encoding="utf-8")
        for wanted in (
            ["pytest>=8", "pytest-timeout>=2.3"],
            ["--force-reinstall", "--no-deps", str(shell.ROOT)],
        ):
            if status := shell.run(python.within("python", *PIP, *wanted), null=True, joined=True):
                return status
        return 0

    def pypy_round(self, python: Python, turn: int) -> int:
        """Run tests/pypy, all or what failed; give pytest's exit code."""
        failed = ["--last-failed", "--last-failed-no-failures", "none"] if turn == 2 else []
        report = f"--junitxml={shell.BUILD}/pytest-pypy-{turn}.xml"
        command = [
            *pytest_command("pypy"),
            report,
            "-q",
            *failed,
            *self.arguments,
            f"{shell.ROOT}/tests/pypy",
        ]
        status = shell.run(python.within(*command), null=True, joined=True)
        # -k may have left none.
        return 0 if status == 5 else status

    # ---- Afterwards ----------------------------------------------------------------------------

    def run_again(self) -> None:
        """Run once more what failed, one interpreter at a time, while nothing else does."""
        for python in self.again:
            shell.say(f"== once more, alone, on {python.full}: what failed")
            shell.remove(shell.BUILD / f"pytest-{python.name}-2.xml")
            if python.name == "pypy":
                self.pypy_round(python, 2)
            else:
                environment = {"PATH": self.path}
                shell.run(self.job(python, 2), null=True, joined=True, environment=environment)
            self.count(python, 1, 2)

    def report(self, found: Results, chosen: list[Python]) -> None:
        """Report what came of each interpreter, and add it up."""
        found.flaky += self.flaky
        full = {python.name: python.full for python in chosen} | {"pypy": "PyPy"}
        for name, text in full.items():
            if name not in self.counts:
                continue
            count = self.counts[name]
            found.passed += count.passed
            found.failed += count.failed
            found.skipped += count.skipped
            found.python_tests += count.passed + count.failed
            shell.say(
                f"  {text}: {count.passed} passed, {count.failed} failed, {count.skipped} skipped,"
                f" {self.seconds[name]} s"
                + (f" ({self.processor[name]:.0f})" if name in self.processor else "")
            )


@contextlib.contextmanager
def ended_with_us(processes: Iterable[subprocess.Popen[bytes]]) -> Iterator[None]:
    """End the groups of these processes where ./dev is ended."""

    def end(number: int, frame: FrameType | None) -> None:
        for process in list(processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        raise SystemExit(130)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in before.items():
        # What a shell starts in the background ignores SIGINT.
        if handler is not signal.SIG_IGN:
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
