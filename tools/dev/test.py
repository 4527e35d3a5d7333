"""``./dev test``: lint, pages, tests in C, and pytest on each interpreter that is found here."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from dev import environments, fetching, pythons, shell
from dev.c_tests import Suites
from dev.docs import check_pages
from dev.fuzz import fuzz
from dev.lint import lint
from dev.packages import Packages
from dev.python_job import LONG
from dev.python_suites import PythonSuites, ended_with_us
from dev.pythons import Python, Pythons
from dev.results import Results, elapsed, processor_seconds

FUZZ_SECONDS = 4


@dataclass
class Options:
    """What the command line asks for."""

    asked: list[str] = field(default_factory=list)
    runners: list[str] = field(default_factory=list)
    pytest: list[str] = field(default_factory=list)
    jobs: int = 2
    all: bool = False
    quick: bool = False
    valgrind: bool = False
    #: -k: only some tests of pytest.
    some: bool = False
    #: Test files are named: they alone run, on the newest CPython unless others are asked for.
    files: bool = False
    #: Suites in C that are named.
    suites: list[str] = field(default_factory=list)
    werror: bool = True
    #: The parts.
    lint: bool = True
    pages: bool = True
    c: bool = True
    python: bool = True

    @property
    def full(self) -> bool:
        """Whether nothing is left out by --quick, -k, or names of files."""
        return not self.quick and not self.some

    @property
    def counts_instructions(self) -> bool:
        """Whether the hot paths are counted."""
        return self.full


def add_file(options: Options, word: str) -> None:
    """Note a test file that is to run: one of pytest, or a suite in C."""
    name, _, inside = word.partition("::")
    path = Path(name).resolve()
    if not path.exists():
        shell.misuse(f"test: {name}: no such file")
    options.lint = options.pages = False
    options.some = True
    if path.parent == shell.ROOT / "tests" / "c" and path.suffix == ".c":
        options.suites.append(path.stem.removeprefix("test_"))
    elif path.is_relative_to(environments.TESTS) and (path.is_dir() or path.suffix == ".py"):
        options.files = True
        options.pytest.append(f"{path}::{inside}" if inside else str(path))
    else:
        shell.misuse(f"test: {name}: a file of tests/python or tests/c is meant")
    options.c, options.python = bool(options.suites), options.files


def parse(arguments: list[str]) -> Options:
    """Read the arguments of the verb."""
    options = Options()
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--python":
            options.asked.append(rest.pop(0) if rest else shell.misuse("--python: which one?"))
        elif word == "-k":
            options.pytest += ["-k", rest.pop(0) if rest else shell.misuse("-k: which ones?")]
            options.c = options.lint = options.pages = False
            options.some = True
        elif word == "--jobs":
            if not rest or re.fullmatch(r"[1-9][0-9]*", rest[0]) is None:
                shell.misuse("--jobs: how many?")
            options.jobs = int(rest.pop(0))
        elif word == "--long":
            os.environ[LONG] = "1"
        elif word == "--quick":
            options.quick = True
            options.lint = options.pages = False
        elif word == "--c-only":
            options.python = options.lint = options.pages = False
        elif word == "--py-only":
            options.c = options.lint = options.pages = False
        elif word == "--no-lint":
            options.lint = options.werror = False
        elif word == "--valgrind":
            options.valgrind = True
        elif word == "--all":
            options.all = True
        elif word == "--with":
            options.runners.append(rest.pop(0) if rest else shell.misuse("--with: NAME=COMMAND"))
        elif word == "--":
            options.pytest += rest
            break
        elif word.startswith("-"):
            shell.misuse(f"test: {word}?")
        else:
            add_file(options, word)
    return options


# ---- Which interpreters ------------------------------------------------------------------------


@dataclass
class Choice:
    """The interpreters of one run."""

    versions: list[str] = field(default_factory=list)
    #: Releases beside the newest of their X.Y: tested if they are usable.
    beside: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    pypy: bool = False


def choose(here: Pythons, options: Options) -> Choice:
    """Choose those that are asked for, or all that are here; with --quick, the newest."""
    choice = Choice()
    if options.asked:
        for name in options.asked:
            if name == "pypy":
                choice.pypy = True
            elif here.named(name) in here:
                choice.versions.append(here.named(name))
            else:
                choice.absent.append(name)
        if choice.absent:
            shell.die(f"no CPython {' '.join(choice.absent)} {pythons.NOT_FOUND}")
    else:
        wanted = pythons.TESTED + pythons.ALSO
        choice.versions = [name for name in wanted if name in here]
        one = options.quick or options.files or bool(options.suites)
        choice.pypy = not one
        if not one:
            choice.absent = [name for name in wanted if name not in here]
            choice.beside = [name for version in wanted for name in here.beside(version)]
        for line in options.runners:
            name = line.partition("=")[0]
            if name != "pypy" and name not in choice.versions:
                choice.versions.append(name)
        if one or not choice.versions:
            newest = here.newest()
            choice.versions = [] if newest is None else [newest]
    if not choice.versions and not choice.pypy:
        shell.die(f"no CPython of 3.11 or later {pythons.NOT_FOUND}")
    return choice


def choose_host(here: Pythons, versions: list[str]) -> Python:
    """Choose whose environment has the meson that everything is built with.

    That of the newest of TESTED, else of the newest here.
    """
    tested = [name for name in versions if pythons.is_tested(name)]
    name = max(tested, key=lambda name: pythons.by_version(here[name].full), default=here.newest())
    if name is None:
        shell.die("a CPython of this machine that is not free-threaded is needed, too")
    return here[name]


def prepare(options: Options) -> tuple[Choice, Pythons, Python]:
    """Find the interpreters, and install the packages that are missing."""
    runners = options.runners
    if options.all:
        fetching.fetch(line.partition("=")[0] for line in runners)
    here = pythons.find()
    for line in runners:
        # One that is here needs no runner. The line is checked all the same: without that, a wrong
        # line would begin the whole test on a machine that has such a Python.
        name, _ = pythons.name_and_command(line)
        if name not in here:
            here.add_runner(line)
    choice = choose(here, options)
    host = choose_host(here, choice.versions)

    packages = Packages()
    packages.need_compiler()
    packages.wish_codecs()
    packages.wish_for("ccache", "ccache")
    for name in [*choice.versions, host.name]:
        packages.need_python(here[name])
    for name in choice.beside:
        packages.wish_python(here[name])
    if options.c:
        packages.need_check()
    if options.valgrind and not shell.has("valgrind"):
        packages.need += ["valgrind", "libc6-dbg"]
    if options.lint:
        packages.wish_for("clang", "clang")
    if options.counts_instructions:
        packages.wish_for("valgrind", "valgrind")
    if not options.quick and options.c and not options.suites:
        packages.wish_fuzzer()
    if options.python:
        packages.wish_browser()
        packages.wish_for("node", "nodejs")
    packages.install()

    for name in choice.beside:
        python = here[name]
        if python.lacking:
            python = here.found[name] = pythons.asked_again(python)
        if python.lacking:
            choice.absent.append(f"{name} (without {' '.join(python.lacking)})")
        else:
            choice.versions.append(name)
    return choice, here, host


# ---- The stages --------------------------------------------------------------------------------


def count_instructions(found: Results, host: Python, options: Options) -> None:
    """See that the hot paths need no more instructions than they did.

    benchmarks/guard.py counts them: those of the core, and of the extension on the newest CPython.
    """
    shell.say("== instructions of the hot paths")
    if not shell.has("valgrind"):
        shell.say("  --    not counted: no valgrind here")
        return
    only: list[str] = []
    if not options.python:
        only = ["--only", "core"]
    if not options.c:
        only = ["--only", "extension"]
    if options.python:
        environments.ensure(host, "build run", f"-Dwerror={str(options.werror).lower()}")
    command = [str(host.venv / "bin" / "python"), "benchmarks/guard.py", *only]
    found.check("no path grew by more than 3 %", command)


def run_stages(
    found: Results, options: Options, choice: Choice, here: Pythons, host: Python
) -> PythonSuites:
    """Run all that is asked for, each stage with its time.

    pytest begins at once: the stages before it leave a core without work for most of their time.
    """

    def c_suites() -> None:
        suites_in_c = Suites(found, host, werror=options.werror)
        if options.suites:
            suites_in_c.chosen(*options.suites)
        else:
            suites_in_c.run(options.quick, options.valgrind)

    stages: dict[str, tuple[bool, Callable[[], None]]] = {
        "lint": (options.lint, lambda: lint(found, host)),
        "pages": (options.pages, lambda: check_pages(found, host, werror=options.werror)),
        "C tests": (options.c, c_suites),
        "instructions": (
            options.counts_instructions,
            lambda: count_instructions(found, host, options),
        ),
        "fuzzers": (
            options.c and not options.quick and not options.suites,
            lambda: fuzz(found, host, FUZZ_SECONDS, werror=options.werror),
        ),
    }
    chosen = sorted(choice.versions if options.python else [], key=lambda name: name != host.name)
    suites = PythonSuites(
        options.werror,
        options.quick,
        options.pytest,
        options.files,
        waiting=[here[name] for name in chosen],
    )
    # From here on, meson is that of the host. The jobs of pytest have their own.
    shell.put_first(host.venv / "bin")
    with ended_with_us(suites.running):
        for name, (is_asked, run) in stages.items():
            if is_asked:
                suites.keep_busy(options.jobs - 1)
                with found.stage(name):
                    run()
        if chosen:
            with found.stage("pytest"):
                suites.run(options.jobs)
    if options.python and choice.pypy:
        with found.stage("PyPy"):
            if not suites.run_pypy(here.found.get("pypy")):
                choice.absent.append("pypy")
    if suites.again:
        with found.stage("failed tests again"):
            suites.run_again()
    return suites


def main(arguments: list[str]) -> int:
    """Run the verb."""
    options = parse(arguments)
    options.runners += filter(None, os.environ.get("EVENTPROF_TEST_WITH", "").split("\n"))
    choice, here, host = prepare(options)
    with shell.locked(host.name):
        # The job of pytest has what it needs for files installed itself.
        if options.c or not options.files:
            environments.ensure_venv(host, ("build", "run"))
        # Here, because later stages may not install anything beside the tests that use it.
        if options.pages:
            environments.ensure_venv(host, ("build", "run", "docs"))
            if options.python and host.name in choice.versions:
                environments.ensure_venv(host, ("build", "run", "test"))
    found = Results()
    suites = run_stages(found, options, choice, here, host)

    shell.say("== result")
    if options.python:
        suites.report(found, [here[name] for name in choice.versions])
        shell.say(f"  absent: {' '.join(choice.absent) or 'none'}")
    whole = f"in all {elapsed()} ({processor_seconds():.0f})"
    shell.say(f"  seconds (of a processor): {', '.join(found.times)}, {whole}")
    shell.say(f"  C tests: {found.c_tests}, Python tests: {found.python_tests}")
    if (options.c and not found.c_tests) or (options.python and not found.python_tests):
        shell.note("a part ran no test")
        found.failed += 1
    for name in found.flaky:
        shell.say(f"  flaky: {name}")
    others = {"skipped": found.skipped, "flaky": len(found.flaky)}
    more = "".join(f", {count} {word}" for word, count in others.items() if count)
    shell.say(f"{found.passed} passed, {found.failed} failed{more}")
    # A test that may fail without a cause hides the faults that it is for.
    return int(found.failed > 0 or (options.full and bool(found.flaky)))
