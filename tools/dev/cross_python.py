"""pytest of ./dev cross: the wheel of a platform, in an interpreter of it.

That of musl is compiled here (musl.py) and runs natively. That of another processor is Debian's, in
a folder (debian.py), and qemu-user runs it: tests take 20 times as long, and a part is chosen.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from dev import debian, environments, musl, pythons, shell, wheel
from dev.environments import TESTS
from dev.pythons import Python
from dev.results import Results, count_outcomes
from dev.sanitize import pytest_command
from dev.targets import Target

#: Whose Debian: it has the CPython that musl.py compiles, too.
SUITE = "trixie"


@dataclass(frozen=True)
class Chosen:
    """What pytest runs on a platform, and what it does not run, by the reason."""

    #: Tags of wheels that its interpreter takes.
    tags: tuple[str, ...]
    #: Folders and files of tests/python.
    files: tuple[str, ...]
    #: What is said of all others.
    others: str
    #: Files and tests among the chosen, by what the platform lacks.
    lacks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    #: Packages that have no wheel for it, or an old one: tests that need one are skipped.
    without: tuple[str, ...] = ()


PROGRAM = """#!{python}
import sys
from eventprof.cli import main
sys.exit(main())
"""
#: Of the tests that an emulator would take hours for, those that ask the processor or the system.
CHOSEN = {
    "x86_64-musl": Chosen(
        tags=("musllinux_1_2_x86_64", "musllinux_1_1_x86_64"),
        files=(
            *("threads", "recording", "memory", "log_file", "hooks", "inside", "processes"),
            *("other_tools", "families", "system", "archive", "answers/test_verify.py"),
        ),
        others="they ask nothing of the C library; of many cases, a fourth runs",
        options=("-m", "not slow", "--share=0/4"),
        # Of DuckDB there is 1.3.2, in which a result ends with its connection.
        without=("duckdb", "gevent", "viztracer"),
        lacks={
            "musl has no second name for malloc(), which the test's library calls": (
                "processes/test_failing.py",
            ),
            "CPython 3.13.5 crashes at exit beside daemon threads, also without a recorder": (
                "processes/test_exit.py::test_daemon_threads_that_run_through_the_exit",
                "processes/test_exit.py::test_thread_killed_at_exit_inside_its_own_block",
            ),
            "the interpreter has no OpenSSL, which dask and gunicorn import": (
                "families/test_families.py::test_gunicorn",
                "families/test_workers.py::test_a_dataset_has_the_names",
            ),
            "the interpreter has no SQLite": (
                *("hooks/test_filters.py", "other_tools/test_neighbours.py"),
            ),
        },
    ),
    "aarch64": Chosen(
        tags=("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"),
        files=(
            *(f"threads/test_{name}.py" for name in ("waits", "threads", "tasks", "greenlets")),
            *("recording/test_record.py", "answers/test_verify.py", "log_file/test_log_file.py"),
            *("hooks/test_oracles_calls.py", "memory/test_oracles_memory.py"),
            *("memory/test_native.py", "archive/test_format_examples.py"),
        ),
        others="qemu-user takes 20 times as long as the processor; of many cases, a fourth runs",
        # To rewrite asserts takes the emulator ten minutes.
        options=("-m", "not slow and not thorough", "--share=0/4", "--assert=plain"),
    ),
}


def has_python(target: Target) -> bool:
    """Whether pytest can run on a platform."""
    return target.name in CHOSEN


def interpreter(target: Target) -> Python:
    """Return an interpreter of a platform, which is made if it is not there."""
    if target.is_static:
        return musl.ensure(target)
    return replace(debian.python_of(SUITE, target.debian, shell.ROOT), name=target.name)


# ---- What is installed -------------------------------------------------------------------------


def install(target: Target, python: Python, files: list[Path]) -> Path | None:
    """Make the environment of a platform, with the wheel for it; None if there is no wheel.

    An interpreter of this machine of the same X.Y installs: that of musl has no OpenSSL, and in an
    emulator pip takes minutes. What has no wheel for the platform is left out.
    """
    version = pythons.minor(python.full)
    if wheel.main(["--target", target.name, "--python", version]) != 0:
        return None
    (made,) = (shell.BUILD / f"wheels-{target.name}").glob("*.whl")
    shell.remove(python.venv)
    shell.must([*python.command, "-m", "venv", "--without-pip", python.venv])
    with open(shell.ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)
    lines = environments.requirements(project, ("run", "test"))
    wanted = environments.needed_by(lines, environments.texts_of(files, TESTS))
    wanted += "\n" + environments.requirements(project, ("run",))
    without = CHOSEN[target.name].without
    wanted = "\n".join(line for line in wanted.splitlines() if not line.startswith(without))
    host = pythons.find().choose(version)
    pip = [*host.runner, str(wheel.ensure_builder(host) / "bin" / "python"), *environments.PIP]
    # Bytecode is the same for each platform, and takes an emulator long.
    pip += ["--compile", "--only-binary", ":all:", "--python-version", version]
    pip += [part for tag in CHOSEN[target.name].tags for part in ("--platform", tag)]
    pip += ["--target", str(python.venv / "lib" / f"python{version}" / "site-packages")]
    shell.must([*pip, "--no-deps", str(made)])
    environments.pip_for_each([*pip, "--upgrade"], wanted, target.name)
    # pip makes programs of a package in the folder of an environment alone.
    program = python.venv / "bin" / "eventprof"
    program.write_text(PROGRAM.format(python=python.venv / "bin" / "python"), encoding="utf-8")
    program.chmod(0o755)
    return made


# ---- What is run -------------------------------------------------------------------------------


def left_out(chosen: Chosen) -> Iterator[str]:
    """Yield the arguments of pytest that leave out what a platform lacks."""
    folder = TESTS.relative_to(shell.ROOT)
    for names in chosen.lacks.values():
        for name in names:
            if "::" in name:
                yield f"--deselect={folder}/{name}"
            else:
                yield f"--ignore={TESTS / name}"


def show_left_out(chosen: Chosen) -> None:
    """Print what is not run, and why."""
    shell.say(f"  --    of tests/python only {' '.join(chosen.files)}: {chosen.others}")
    for reason, names in chosen.lacks.items():
        for name in names:
            shell.say(f"  --    {name} not run: {reason}")
    if chosen.without:
        shell.say(f"  --    tests of {', '.join(chosen.without)} skipped: no wheel, or an old one")


def run(found: Results, target: Target) -> None:
    """Run the chosen tests on a platform, and once more, alone, what failed."""
    chosen = CHOSEN[target.name]
    files = [TESTS / name for name in chosen.files]
    python = interpreter(target)
    shell.say(f"== {target.name}: pytest, on CPython {python.full}")
    if install(target, python, files) is None:
        found.failed += 1
        return
    reports = [shell.BUILD / f"pytest-{target.name}-{turn}.xml" for turn in (1, 2)]
    shell.remove(*reports, shell.BUILD / f"pytest_cache-{target.name}")
    away = shell.anew(shell.BUILD / f"away-{target.name}")
    command = [*pytest_command(target.name), "-q", *chosen.options, *left_out(chosen)]
    again = ["--last-failed", "--last-failed-no-failures", "none"]
    for report, more in zip(reports, ([], again), strict=True):
        words = [*command, f"--junitxml={report}", *more, *map(str, files)]
        if shell.run(python.within(*words), null=True, folder=away) in (0, 5):
            break
    written = [report for report in reports if report.exists()]
    counted = count_outcomes(written) if written else None
    show_left_out(chosen)
    if counted is None:
        found.cannot("  FAIL  pytest did not write what came of it")
        return
    count, flaky = counted
    found.passed += count.passed
    found.failed += count.failed
    found.skipped += count.skipped
    found.python_tests += count.passed + count.failed
    found.flaky += [f"{name} ({target.name})" for name in flaky]
    shell.say(f"  {count.passed} passed, {count.failed} failed, {count.skipped} skipped")
