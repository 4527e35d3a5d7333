"""The tests in C: how meson builds them and how they are run.

Needs the meson of an environment on PATH.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dev import packages, results, shell
from dev.pythons import Python
from dev.results import Results

#: How the tests in C are built: the core alone, with all that looks closely.
CORE = (
    "-Dpython=false",
    "-Dtests=enabled",
    "-Dchecks=true",
    "-Dfault_points=true",
    "-Db_ndebug=false",
)
LOOSE = ("-Db_lundef=false", "-Ddebug=true", "-Doptimization=1")


def configure(
    folder: Path, python: Python, options: tuple[str, ...], compiler: str
) -> tuple[int, str]:
    """Have a folder set up with just these options; give the exit code and what meson printed."""
    stamp = folder / "configured"
    version = shell.output(["meson", "--version"])[1].strip()
    wanted = f"{python.full} {shutil.which('meson')} {version} {compiler} {' '.join(options)}\n"
    if (folder / "build.ninja").is_file() and shell.read(stamp) == wanted:
        return 0, ""
    shell.remove(folder)
    command = ["meson", "setup", str(folder), *options]
    status, text = shell.output(
        command, joined=True, environment={"CC": compiler} if compiler else None
    )
    if status == 0:
        stamp.write_text(wanted, encoding="utf-8")
    return status, text


def compile_in(
    folder: Path,
    python: Python,
    options: tuple[str, ...],
    compiler: str | None = None,
    targets: Iterable[str] = (),
) -> tuple[int, str]:
    """Set a folder up and compile it; give the exit code and what was printed.

    Parameters
    ----------
    folder : Path
        The build folder.
    python : Python
        Whose meson it is: another one begins anew.
    options : tuple of str
        Of meson.
    compiler : str, optional
        Instead of $CC.
    targets : iterable of str, optional
        Of ninja; all, if there are none.
    """
    compiler = os.environ.get("CC", "") if compiler is None else compiler
    status, text = configure(folder, python, options, compiler)
    if status == 0:
        # Not "meson compile", which looks for a target before meson.build is read again.
        status, more = shell.output(["ninja", "-C", folder, *targets], joined=True)
        text += more
    return status, text


def check_syntax(
    folder: Path, python: Python, options: tuple[str, ...], compiler: str
) -> tuple[int, str]:
    """Have a compiler look at each file; give the exit code and its warnings."""
    status, text = configure(folder, python, options, compiler)
    if status == 0:
        # The list of files is meson's, which ninja runs again where meson.build is newer.
        status, text = shell.output(["ninja", "-C", folder, "build.ninja"], joined=True)
    if status != 0:
        return status, text
    database = json.loads((folder / "compile_commands.json").read_text(encoding="utf-8"))

    def look(entry: dict[str, str]) -> tuple[int, str]:
        command = [*shlex.split(entry["command"]), "-fsyntax-only"]
        return shell.output(command, joined=True, folder=Path(entry["directory"]))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(look, database))
    return max(status for status, _ in found), "".join(text for _, text in found)


class Suites:
    """The suites in C, as one build has them.

    Parameters
    ----------
    found : Results
        Where they are counted.
    python : Python
        Whose environment has meson.
    werror : bool
        Whether a warning of the compiler is an error.
    """

    def __init__(self, found: Results, python: Python, *, werror: bool = True) -> None:
        self.found = found
        self.python = python
        self.werror = f"-Dwerror={str(werror).lower()}"

    def run(self, quick: bool, valgrind: bool) -> None:
        """Run all suites that a test of ./dev has.

        What fails as it is fails under the sanitizers, too: so they run once, as they are only with
        --quick, for valgrind, or where the compiler has no sanitizers.
        """
        sanitizers = not quick and packages.runs(
            EMPTY, "sanitizers-work", "-fsanitize=address,undefined"
        )
        if valgrind or not sanitizers:
            self.plain(quick)
        if valgrind:
            self.with_valgrind()
        if sanitizers:
            self.sanitized()
        if not quick:
            self.races("log", "log_taken_back", "gate", "names", "sums", "folds")

    def build(self, folder: Path, *options: str, names: Iterable[str] = ()) -> bool:
        """Compile these suites, or all; what cannot be is a failure."""
        targets = [f"test_{name}" for name in names]
        status, text = compile_in(folder, self.python, options, targets=targets)
        if status != 0:
            self.found.cannot(text)
        return status == 0

    def plain(self, quick: bool) -> None:
        """Run the suites as they are; quick: with less of what takes long."""
        shell.say("== C tests, plain")
        if self.build(shell.BUILD / "core", self.werror, *CORE):
            self.run_twice(shell.BUILD / "core", **({"EVENTPROF_TEST_QUICK": "1"} if quick else {}))

    def chosen(self, *names: str) -> None:
        """Run these suites, under the address and undefined-behaviour sanitizers."""
        shell.say("== C tests, address and undefined-behaviour sanitizers")
        folder = shell.BUILD / "core-sanitized"
        options = (self.werror, "-Db_sanitize=address,undefined", *LOOSE, *CORE)
        if self.build(folder, *options, names=names):
            self.run_once(folder, "address", *names)

    def sanitized(self) -> None:
        """Run the suites under the address and undefined-behaviour sanitizers."""
        shell.say("== C tests, address and undefined-behaviour sanitizers")
        folder = shell.BUILD / "core-sanitized"
        if self.build(folder, self.werror, "-Db_sanitize=address,undefined", *LOOSE, *CORE):
            self.run_twice(folder, "address")

    def races(self, *names: str) -> None:
        """Run these suites, or all, under the thread sanitizer."""
        shell.say("== C tests, thread sanitizer")
        if not packages.runs(EMPTY, "races-work", "-fsanitize=thread"):
            shell.say("  --    not run: the compiler has none")
            return
        folder = shell.BUILD / "core-races"
        if self.build(folder, *CORE, "-Db_sanitize=thread", *LOOSE, names=names):
            self.run_once(folder, "thread", *names)

    def with_valgrind(self) -> None:
        """Run the plain build's suites under valgrind."""
        shell.say("== C tests, valgrind")
        self.run_once(shell.BUILD / "core", "valgrind")

    def run_once(self, folder: Path, setup: str, *names: str) -> None:
        """Run suites with a set-up of meson.build, and count them."""
        log = folder / "meson-logs" / f"testlog-{setup}.json"
        shell.remove(log)
        shell.run(["meson", *test(folder), "--setup", setup, *names], null=True)
        self.found.count_c(log)

    def run_twice(
        self, folder: Path, setup: str | None = None, *options: str, **environment: str
    ) -> Path:
        """Run all suites, and once more, one at a time, those whose assertions failed.

        Options are those of ``meson test``. Returns: the report of the first run.
        """
        ending = f"-{setup}.json" if setup else ".json"
        log, again = (folder / "meson-logs" / (name + ending) for name in ("testlog", "again"))
        shell.remove(log, again)
        command = ["meson", *test(folder), *(["--setup", setup] if setup else []), *options]
        if shell.run(command, null=True, environment=environment) != 0:
            try:
                names = results.with_failed_assertions(results.read_suites(log))
            except (OSError, ValueError):
                names = []
            if names:
                shell.run(
                    [*command, "--num-processes", "1", "--logbase", "again", *names],
                    null=True,
                    environment=environment,
                )
        self.found.count_c(log, again)
        return log


EMPTY = "int main(void) { return 0; }\n"


def test(folder: Path) -> list[str]:
    """Return the arguments of meson that run what is compiled."""
    return ["test", "-C", str(folder), "--no-rebuild", "--print-errorlogs"]
