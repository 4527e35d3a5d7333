"""``./dev sanitize [PYTEST-ARG...]``: C tests under the thread sanitizer, pytest under the others.

With --with NAME=CMD first: the tests of threads, under a CPython that itself has the thread
sanitizer.
"""

from __future__ import annotations

import re
from pathlib import Path

from dev import environments, packages, pythons, shell
from dev.c_tests import Suites, compile_in
from dev.packages import Packages
from dev.pythons import Python
from dev.results import Results

#: Tests that are left out: those that start programs in a clean environment, where no sanitizer is
#: loaded, and those of groff, which has a fault itself.
LEFT_OUT = (
    "processes/test_failing.py",
    "project/test_demo.py",
    "verbs/test_cli.py::test_the_manual_page_is_clean_roff",
)
OF_THREADS = (
    *(f"threads/test_{name}.py" for name in ("free_threading", "threads", "c_threads", "tasks")),
    "recording/test_record.py",
)
#: Leaks of the interpreter are not reported, too large requests of a program get NULL, and crashes
#: that tests cause are not reported.
ADDRESS = "detect_leaks=0:abort_on_error=1:handle_segv=0:allocator_may_return_null=1"


def pytest_command(name: str) -> list[str]:
    """Return pytest with the settings of the checkout, and a cache by this name."""
    root = shell.ROOT
    cache = f"cache_dir={shell.BUILD}/pytest_cache-{name}"
    return [
        "python",
        "-m",
        "pytest",
        "-c",
        f"{root}/pyproject.toml",
        "--rootdir",
        str(root),
        "-o",
        cache,
    ]


def left_out() -> list[str]:
    """Return the arguments of pytest that leave LEFT_OUT out: it takes paths as it prints them."""
    folder = environments.TESTS.relative_to(shell.ROOT)
    return [part for name in LEFT_OUT for part in ("--deselect", f"{folder}/{name}")]


def count_reports(text: str) -> tuple[int, int]:
    """Return how many reports of the thread sanitizer have a frame of ours, and how many there are.

    A report: from its WARNING to its SUMMARY, with the sources' paths in it.
    """
    found = reports = 0
    ours = False
    for line in text.splitlines():
        if line.startswith("WARNING: ThreadSanitizer"):
            reports += 1
            ours = False
        if re.search(r"(eventprof|python/src)/([a-z_]+/)?[a-z_]+\.[ch]:[0-9]", line):
            ours = True
        if line.startswith("SUMMARY: ThreadSanitizer"):
            found += ours
    return found, reports


def races_of(python: Python, arguments: list[str]) -> int:
    """Run the tests of threads where CPython and the extension have the thread sanitizer.

    Reports in which no frame is ours are the interpreter's own, and only counted.
    """
    thread = (
        "-Dbuildtype=debugoptimized",
        "-Dchecks=true",
        "-Db_sanitize=thread",
        "-Db_lundef=false",
    )
    environments.ensure(python, "build run test", *thread)
    log = shell.anew(shell.BUILD / "tsan")
    away = shell.BUILD / f"away-{python.name}"
    away.mkdir(parents=True, exist_ok=True)
    shell.say(f"== pytest, thread sanitizer, on {python.full}")
    options = f"log_path={log}/report:exitcode=0:history_size=4:report_signal_unsafe=0"
    files = [f"{environments.TESTS}/{name}" for name in OF_THREADS]
    status = shell.run(
        python.within(*pytest_command(python.name), "-q", "--timeout", "3000", *arguments, *files),
        null=True,
        environment={"TSAN_OPTIONS": options},
        folder=away,
    )
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in log.glob("report.*")]
    ours, reports = count_reports("\n".join(texts))
    others = reports - ours
    shell.say(
        f"  {ours} reports with a frame of ours, {others} of the interpreter alone (build/tsan)"
    )
    return int(status != 0 or ours > 0)


def install_sanitized(python: Python) -> Path:
    """Build the extension under the sanitizers; give the folder that it is in."""
    folder = shell.BUILD / "sanitized"
    site = folder / "package"
    options = (
        "-Dtests=disabled",
        "-Dwerror=true",
        "-Dbuildtype=debugoptimized",
        "-Dchecks=true",
        "-Db_sanitize=address,undefined",
        "-Db_lundef=false",
        f"--prefix={site}",
        f"--python.purelibdir={site}",
        f"--python.platlibdir={site}",
    )
    status, text = compile_in(folder, python, options)
    if status != 0:
        shell.complain(text)
        raise SystemExit(status)
    shell.must(["meson", "install", "-q", "-C", folder, "--tags", "python-runtime,runtime"])
    return site


def main(arguments: list[str]) -> int:
    """Run the verb."""
    wanted = Packages()
    if arguments[:1] == ["--with"]:
        if len(arguments) < 2:
            shell.misuse("--with: NAME=COMMAND")
        found_here = pythons.find()
        wanted.need_compiler()
        wanted.install()
        return races_of(found_here.add_runner(arguments[1]), arguments[2:])
    python, arguments = pythons.take_python(arguments)
    wanted.need_check()
    environments.set_up(python, "build run test", wanted)
    shell.put_first(python.venv / "bin")
    found = Results()
    Suites(found, python).races()
    shell.say("== pytest, address and undefined-behaviour sanitizers")
    site = install_sanitized(python)
    # The interpreter is not built with them, so they are loaded before it.
    libraries = [
        shell.output([*packages.compiler(), f"-print-file-name=lib{name}.so"])[1].strip()
        for name in ("asan", "ubsan")
    ]
    away = shell.BUILD / "away-sanitized"
    away.mkdir(parents=True, exist_ok=True)
    status = shell.run(
        [
            python.venv / "bin" / "python",
            *pytest_command("sanitized")[1:],
            *("-q", "-m", "not slow", *left_out(), *arguments, str(environments.TESTS)),
        ],
        null=True,
        environment={
            "LD_PRELOAD": " ".join(libraries),
            "PYTHONPATH": str(site),
            "ASAN_OPTIONS": ADDRESS,
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        },
        folder=away,
    )
    return int(status != 0 or found.failed > 0)
