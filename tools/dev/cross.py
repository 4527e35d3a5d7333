"""``./dev cross [NAME...]``: compile for other platforms, and run there what this machine can run.

For each platform of targets.py the core, its tests and the fuzzers are compiled and linked. They
run natively, by qemu-user, or not at all. Where there is an interpreter of the platform, pytest
runs in it: cross_python.py. With ``--free-threaded`` the extension is compiled and linked as for an
interpreter without a GIL, against the headers of one that has it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from dev import c_tests, cross_python, debian, pythons, results, shell, targets, wheel
from dev.fuzz import FUZZERS
from dev.packages import Packages
from dev.pythons import Python
from dev.results import Results
from dev.targets import Target

#: What -Wthread-safety says of tests is not meant: they have the engine for themselves.
CORE = (*c_tests.CORE, "-Dwerror=true", "-Dzstd=enabled", "-Dc_args=-Wno-thread-safety-analysis")
#: Without shared libraries, of which zlib would be one.
STATIC = ("-Dzlib=disabled", "-Dc_link_args=-static")
#: The fuzzers, without libFuzzer. What C does not define ends the program.
FUZZ = (
    "-Dpython=false",
    "-Dtests=disabled",
    "-Dfuzzing=replay",
    "-Dchecks=true",
    "-Dzstd=enabled",
    "-Dc_args=-fsanitize=undefined -fsanitize-trap=undefined -Wno-thread-safety-analysis",
)
FUZZ_SECONDS = 60
EXTENSION = ("-Dpython=true", "-Dtests=disabled", "-Dwerror=true", "-Dc_args=-DPy_GIL_DISABLED=1")
#: Its libraries are those that tests of another processor are run with.
SUITE = "trixie"
#: Tests and whole suites that are left out in an emulator, by what it lacks.
EMULATOR_LACKS: dict[str, tuple[str, ...]] = {
    "the emulator has a thread of its own, which the system lists as one of the program": (
        "other_threads_are_those_that_are_not_named",
        "a_main_thread_that_ended_is_no_other_thread",
    ),
    "qemu 7.2 does not wipe memory in a forked child, by which the child knows what it is": (
        "a_bare_child_does_not_wait_for_a_thread_that_has_the_lock",
        "a_bare_child_does_not_wait_for_a_thread_that_has_the_lock_of_names",
    ),
    "in qemu 7.2 a process cannot adopt the children of a killed one": ("faults",),
}


@dataclass
class Options:
    """What the command line asks for."""

    targets: list[Target] = field(default_factory=list)
    #: Interpreters, as `./dev wheel` names them, whose headers the extension is compiled with.
    free_threaded: bool = False
    #: The parts: the suites in C with the fuzzers, and pytest.
    c: bool = True
    python: bool = True
    wheel: wheel.Options = field(default_factory=wheel.Options)


def parse(arguments: list[str]) -> Options:
    """Read the arguments of the verb."""
    options = Options()
    rest, of_wheel = list(arguments), []
    while rest:
        word = rest.pop(0)
        if word in ("--python", "--with"):
            of_wheel += [word, *rest[:1]]
            del rest[:1]
        elif word == "--free-threaded":
            options.free_threaded = True
        elif word == "--c-only":
            options.python = False
        elif word == "--py-only":
            options.c = False
        else:
            options.targets.append(targets.choose(word))
    options.wheel = wheel.parse(of_wheel)
    if not options.targets and not options.free_threaded:
        options.targets = [each for each in targets.TARGETS.values() if not each.is_native]
    return options


def wrapper_of(target: Target) -> list[str] | None:
    """Return what runs a program of a platform here; None: nothing does."""
    if target.is_here:
        return []
    if target.system != "linux":
        return None
    emulator = f"qemu-{target.cpu}-static"
    if not shell.has(emulator):
        wanted = Packages()
        wanted.wish_for(emulator, "qemu-user-static")
        wanted.install()
    if not shell.has(emulator):
        return None
    if target.is_static:
        return [emulator]
    return [emulator, "-L", str(debian.ensure(SUITE, f"{SUITE}-{target.debian}", target.debian))]


def compile_core(found: Results, target: Target, python: Python, tools: Path) -> None:
    """Compile and link the core and its tests for a platform, and run them if that is possible."""
    targets.prepare(target, tools)
    targets.add_check(target)
    wrapper = wrapper_of(target)
    folder = shell.BUILD / "cross" / target.name
    options = (*CORE, *(STATIC if target.is_static else ()))
    options += (f"--cross-file={targets.cross_file(target, wrapper)}",)
    status, text = c_tests.compile_in(folder, python, options, "")
    found.check(f"{target.name}: the core and its tests compile and link", lambda: (status, text))
    if status != 0:
        return
    if wrapper is None:
        shell.say(f"  --    {target.name}: this machine cannot run its programs")
        return
    left_out = [name for names in EMULATOR_LACKS.values() for name in names] if wrapper else []
    log = c_tests.Suites(found, python).run_twice(
        folder,
        None,
        # An emulator is ten times as slow.
        "--timeout-multiplier=10",
        EP_TESTS_LEFT_OUT=" ".join(left_out),
    )
    if left_out and log.exists():
        show_left_out(found, results.read_suites(log))
    replay_fuzzers(found, target, python, wrapper)


def replay_fuzzers(found: Results, target: Target, python: Python, wrapper: list[str]) -> None:
    """Run the fuzzers over their corpora, and for a while over changes of these."""
    folder = shell.BUILD / "cross" / f"{target.name}-fuzz"
    options = (*FUZZ, *(STATIC if target.is_static else ()))
    options += (f"--cross-file={targets.cross_file(target, wrapper)}",)
    status, text = c_tests.compile_in(folder, python, options, "")
    if status != 0:
        found.cannot(text)
        return
    for name in FUZZERS:
        program = folder / "tests" / "fuzz" / f"fuzz_{name}"
        command: list[str | Path] = [*wrapper, program, str(FUZZ_SECONDS)]
        command += [f"tests/fuzz/corpus/{name}", folder / f"{name}-input"]
        found.check(f"{target.name}: fuzzer of {name}", command)


def show_left_out(found: Results, suites: results.Suites) -> None:
    """Print what was not run in an emulator, and why. A name that no suite has is a failure."""
    printed = "\n".join(suite.get("stdout", "") for suite in suites.values())
    known = set(re.findall(r"^left out: (\w+)$", printed, re.MULTILINE))
    for reason, names in EMULATOR_LACKS.items():
        for name in names:
            if name in known:
                shell.say(f"  --    {name} not run: {reason}")
            else:
                found.cannot(f"  FAIL  no test or suite is called {name} (tools/dev/cross.py)")


def without_gil(python: Python) -> tuple[int, str]:
    """Compile and link the extension with the headers that an interpreter without a GIL has."""
    venv = wheel.ensure_builder(python)
    folder = shell.BUILD / "cross" / f"{python.name}t"
    shell.remove(folder)
    change = 'PATH=$1/bin:$PATH; export PATH; shift; meson setup "$@" && meson compile -C "$1"'
    command: list[str | Path] = ["sh", "-c", change, "sh", venv, folder, shell.ROOT, *EXTENSION]
    return shell.output([*python.runner, *command], joined=True)


def main(arguments: list[str]) -> int:
    """Run the verb."""
    options = parse(arguments)
    wanted = Packages()
    wanted.need_compiler()
    wanted.wish_codecs()
    wanted.install()
    host = wheel.host_of(pythons.find())
    tools = wheel.ensure_tools(host)
    shell.put_first(tools / "bin")
    found = Results()
    for target in options.targets:
        if options.c:
            shell.say(f"== {target.name}")
            compile_core(found, target, host, tools)
        if options.python and cross_python.has_python(target):
            cross_python.run(found, target)
        elif options.python:
            shell.say(f"  --    {target.name}: pytest not run: no interpreter of it here")
    if options.free_threaded:
        shell.say("== without a GIL")
        for python in wheel.choose(options.wheel):
            if pythons.by_version(pythons.minor(python.name)) >= pythons.by_version("3.13"):
                name = f"{python.full}: the extension compiles and links with Py_GIL_DISABLED"
                found.check(name, lambda python=python: without_gil(python))  # type: ignore[misc]
    for name in found.flaky:
        shell.say(f"  flaky: {name}")
    shell.say(f"{found.passed} passed, {found.failed} failed")
    return int(found.failed > 0)
