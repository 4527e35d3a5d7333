"""Finds the interpreters of this machine, names them, and chooses one for a verb.

Of each X.Y the newest release has that name; the others have the names of their releases, as
3.11.2.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from dev import shell
from dev.shell import Command

TESTED = ("3.11", "3.12", "3.13")
#: Tested if they are installed.
ALSO = ("3.14", "3.15", "3.13t", "3.14t", "3.15t")

#: Prints a line for a CPython of 3.11 or later: X.Y (a free-threaded one: X.Yt), its full version
#: as a number and as text (3.13.5, 3.13.5t), 1 if it has its headers, 1 if it can make virtual
#: environments, its path. No line for any other, nor for debug builds, which are not what a user
#: runs under that number.
PROBE = """
import sys
if sys.implementation.name == "cpython" and sys.version_info >= (3, 11):
    import os, sysconfig
    if not hasattr(sys, "gettotalrefcount"):
        try:
            import ensurepip, venv
            venvs = 1
        except ImportError:
            venvs = 0
        headers = os.path.exists(os.path.join(sysconfig.get_config_var("INCLUDEPY"), "Python.h"))
        free = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
        version, text = "%d.%d" % sys.version_info[:2] + free, sys.version.split()[0] + free
        # Resolved, so that the same interpreter has one name however it was found.
        path = os.path.realpath(sys._base_executable)
        print(version, sys.hexversion, text, int(headers), venvs, path, sep="\\t")
"""
#: Prints the release of an interpreter.
SHOW = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
IS_PYPY = "import sys; sys.exit(sys.implementation.name != 'pypy' or sys.version_info < (3, 11))"
NOT_FOUND = "found (looked on PATH and in pyenv)"


@dataclass(frozen=True)
class Python:
    """An interpreter, by the name that the command line gives it."""

    name: str
    number: int  # sys.hexversion; 0 of one that a runner runs
    full: str
    headers: bool
    venvs: bool
    path: str  # for people, and to see whether an environment is that of another one
    #: From --with: the command that runs a program with this interpreter as `python`; else empty.
    runner: tuple[str, ...] = ()

    @property
    def command(self) -> list[str]:
        """What starts it."""
        return [*self.runner, "python"] if self.runner else [self.path]

    @property
    def venv(self) -> Path:
        """The environment of this interpreter."""
        return shell.BUILD / f"venv-{self.name}"

    @property
    def lacking(self) -> list[str]:
        """Debian's packages without which it cannot build, or make an environment."""
        version = minor(self.name)
        return [f"python{version}-dev"] * (not self.headers) + [f"python{version}-venv"] * (
            not self.venvs
        )

    def within(self, *command: str | Path) -> Command:
        """Return a command with its environment first on PATH, wherever that is."""
        change = 'PATH=$1/bin:$PATH; export PATH; shift; exec "$@"'
        return [*self.runner, "sh", "-c", change, "sh", self.venv, *command]


def minor(name: str) -> str:
    """Return the X.Y of a name: 3.11 of 3.11 and of 3.11.2, and 3.13t of 3.13.5t."""
    parts = re.fullmatch(r"([0-9]+\.[0-9]+)(\.[^t]*)?(t?)", name)
    return name if parts is None else parts[1] + parts[3]


def is_tested(name: str) -> bool:
    """Whether it is one of TESTED, for which all packages have wheels."""
    return minor(name) in TESTED


def by_version(text: str) -> list[tuple[int, str]]:
    """Return a key that sorts 3.9 before 3.11."""
    return [
        (int(part), "") if part.isdigit() else (-1, part) for part in re.findall(r"\d+|\D+", text)
    ]


def probe(command: str) -> Python | None:
    """Ask a program what it is; None if it is no CPython of 3.11 or later."""
    fields = shell.output([command, "-I", "-S", "-c", PROBE])[1].rstrip("\n").split("\t")
    if len(fields) != 6:
        return None
    name, number, full, headers, venvs, path = fields
    return Python(name, int(number), full, headers == "1", venvs == "1", path)


def on_path(names: Iterable[str]) -> Iterator[str]:
    """Yield each program of these names on PATH."""
    for name in names:
        for folder in os.environ["PATH"].split(os.pathsep):
            path = os.path.join(folder or ".", name)
            # A shim of pyenv is slow, and may have no interpreter behind it.
            if os.path.isfile(path) and os.access(path, os.X_OK) and "/shims/" not in path:
                yield path


def pyenv_versions() -> Path:
    """Return the folder of pyenv's interpreters."""
    return Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"


def candidates() -> Iterator[str]:
    """Yield what may be a CPython: of pyenv, fetched, and on PATH."""
    for folder, pattern in ((pyenv_versions(), "3.*"), (shell.BUILD / "pythons", "*")):
        yield from map(str, sorted(folder.glob(f"{pattern}/bin/python3")))
    names = ["python3", "python"]
    for number in range(11, 30):
        names += [f"python3.{number}", f"python3.{number}t"]
    yield from on_path(names)


@dataclass
class Pythons:
    """All interpreters that are here, by name."""

    found: dict[str, Python] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self.found

    def __getitem__(self, name: str) -> Python:
        return self.found[name]

    def keep(self, python: Python) -> None:
        """Add one: the newest release of an X.Y has that name, others that of their release."""
        newest = self.found.get(python.name)
        if newest is None or python.number > newest.number:
            self.found[python.name] = python
            if newest is not None:
                self.found[newest.full] = replace(newest, name=newest.full)
        elif python.number < newest.number:
            self.found.setdefault(python.full, replace(python, name=python.full))

    def named(self, name: str) -> str:
        """Return the name in `found`, which is 3.13 for 3.13.5 if that is the newest 3.13."""
        newest = self.found.get(minor(name))
        if name not in self.found and newest is not None and newest.full == name:
            return newest.name
        return name

    def beside(self, version: str) -> list[str]:
        """Return the releases of an X.Y beside the newest, oldest first."""
        others = [name for name in self.found if name != version and minor(name) == version]
        return sorted(others, key=by_version)

    def newest(self) -> str | None:
        """Return the newest that is tested, else the newest that is here."""
        for version in sorted(TESTED, key=by_version, reverse=True):
            if version in self.found:
                return version
        # Without the free-threaded: few packages have wheels for them.
        names = [name for name in self.found if "t" not in name and name != "pypy"]
        return max(names, key=by_version, default=None)

    def choose(self, wanted: str | None) -> Python:
        """Return the one that is asked for, or the newest."""
        version = self.named(wanted) if wanted else self.newest()
        if version is None:
            shell.die(f"no CPython of 3.11 or later {NOT_FOUND}")
        if version not in self.found:
            shell.die(f"no CPython {version} {NOT_FOUND}")
        return self.found[version]

    def add_runner(self, line: str) -> Python:
        """Add one of --with NAME=CMD."""
        name, command = name_and_command(line)
        command = command.removesuffix(" python")
        runner = tuple(command.split())
        print_version = "import sys; print(sys.version.split()[0])"
        status, full = shell.output([*runner, "python", "-I", "-S", "-c", print_version])
        if status != 0:
            shell.die(f"--with {name}: '{command} python' does not run")
        python = Python(
            name, 0, f"{full.strip()} ({name})", True, True, f"{command} python", runner
        )
        self.found[name] = python
        return python


def name_and_command(line: str) -> tuple[str, str]:
    """Split what --with says."""
    name, equals, command = line.partition("=")
    if not (name and equals and command):
        shell.misuse(f"--with {line}: NAME=COMMAND")
    if re.fullmatch(r"[A-Za-z0-9._-]+", name) is None:
        shell.misuse(f"--with {line}: a name as 3.14 or 3.14t, not '{name}'")
    return name, command


def find(among: Iterable[str] | None = None) -> Pythons:
    """Find the CPythons of this machine."""
    pythons = Pythons()
    seen = set()
    for candidate in candidates() if among is None else among:
        target = os.path.realpath(candidate)
        if target in seen or not os.access(target, os.X_OK):
            continue
        seen.add(target)
        # The candidate, not its target: in a virtual environment they are not the same.
        if (python := probe(candidate)) is not None:
            pythons.keep(python)
    return pythons


def asked_again(python: Python) -> Python:
    """Return one as it is now, after packages were installed."""
    now = probe(python.path)
    return python if now is None else replace(python, headers=now.headers, venvs=now.venvs)


def find_pypy() -> str | None:
    """Find the newest PyPy of Python 3.11 or later: on PATH, fetched, or in pyenv."""
    names = [os.environ.get("EVENTPROF_PYPY", ""), *on_path(("pypy3.11", "pypy3"))]
    names += map(str, sorted((shell.BUILD / "pythons").glob("pypy*/bin/pypy3")))
    names += sorted(
        map(str, pyenv_versions().glob("pypy3.*/bin/pypy3")), key=by_version, reverse=True
    )
    for name in names:
        if os.access(name, os.X_OK) and shell.output([name, "-I", "-S", "-c", IS_PYPY])[0] == 0:
            return name
    return None


def take_python(arguments: list[str]) -> tuple[Python, list[str]]:
    """Take --python X.Y off the front of a verb's arguments; give the interpreter and the rest."""
    wanted = None
    if arguments[:1] == ["--python"]:
        if len(arguments) < 2:
            shell.misuse("--python: which one?")
        wanted, arguments = arguments[1], arguments[2:]
    return find().choose(wanted), arguments
