"""Paths, messages to the user, running programs, and small helpers for files."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
#: The directory that ./dev was started in.
HERE = Path.cwd()

#: Variables that would change what an interpreter of ours imports, or how long that takes: pip
#: makes no bytecode ahead (environments.PIP), and without any, each of the thousand processes that
#: tests start would compile NumPy again, and pandas for two seconds.
FOREIGN = (
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONSAFEPATH",
    "VIRTUAL_ENV",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONPYCACHEPREFIX",
)
PIP = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PIP_ROOT_USER_ACTION": "ignore"}
#: The core is the same for each Python: with ccache, which meson finds, it is compiled once. Only
#: debug information has the folder of a build.
CCACHE = {"CCACHE_DIR": str(BUILD / "ccache"), "CCACHE_NOHASHDIR": "1", "CCACHE_MAXSIZE": "1G"}

Command = Sequence[str | Path]


def prepare() -> None:
    """Change to the checkout, and remove variables that would change what verbs do."""
    for stream in (sys.stdout, sys.stderr):
        # What programs print is handed on byte by byte, whatever the locale.
        stream.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
    for name in FOREIGN:
        os.environ.pop(name, None)
    os.environ.update(PIP | CCACHE)
    go(ROOT)


def go(folder: Path) -> None:
    """Make a folder the current one, here and in $PWD."""
    os.chdir(folder)
    os.environ["PWD"] = str(folder)


# ---- Messages ----------------------------------------------------------------------------------


def say(text: str) -> None:
    """Print a line. What programs print after it comes after it."""
    print(text, flush=True)


def complain(text: str) -> None:
    """Print a line on stderr."""
    print(text, file=sys.stderr, flush=True)


def note(text: str) -> None:
    """Print a line of ./dev itself on stderr."""
    complain(f"dev: {text}")


def die(text: str) -> NoReturn:
    """End with a message, and with the exit code of what could not be done."""
    note(text)
    raise SystemExit(1)


def misuse(text: str) -> NoReturn:
    """End with a line, and the exit code of wrong arguments."""
    note(f"{text} (./dev help lists verbs and options)")
    raise SystemExit(2)


def no_arguments(verb: str, arguments: list[str]) -> None:
    """Refuse arguments."""
    if arguments:
        misuse(f"{verb}: {arguments[0]}?")


def seconds(verb: str, text: str) -> int:
    """Return a number of seconds from the command line."""
    if re.fullmatch(r"[1-9][0-9]*", text) is None:
        misuse(f"{verb}: {text}?")
    return int(text)


# ---- Programs ----------------------------------------------------------------------------------


def run(
    command: Command,
    *,
    text: str | None = None,
    null: bool = False,
    quiet: bool = False,
    silent: bool = False,
    joined: bool = False,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> int:
    """Run a program and give its exit code, which is negative if a signal ended it.

    Parameters
    ----------
    command : sequence
        The program and its arguments.
    text : str, optional
        What it reads from stdin.
    null : bool
        Nothing to read from stdin.
    quiet, silent : bool
        Without its stdout; without stdout and stderr.
    joined : bool
        What it writes to stderr goes to stdout.
    environment : mapping, optional
        Variables that it has beside ours.
    folder : Path, optional
        Where it runs.
    """
    try:
        return subprocess.run(
            command,
            input=None if text is None else text.encode(),
            stdin=subprocess.DEVNULL if null else None,
            stdout=subprocess.DEVNULL if quiet or silent else None,
            stderr=subprocess.DEVNULL if silent else subprocess.STDOUT if joined else None,
            env=None if environment is None else {**os.environ, **environment},
            cwd=folder,
        ).returncode
    except OSError as error:
        if not silent:
            note(f"{command[0]}: {error.strerror}")
        return 127


def must(command: Command, **how: object) -> None:
    """Run a program; if it fails, ./dev ends with its exit code. `how` is as of run()."""
    status = run(command, **how)  # type: ignore[arg-type]
    if status != 0:
        raise subprocess.CalledProcessError(status, [str(part) for part in command])


def output(
    command: Command,
    *,
    joined: bool = False,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> tuple[int, str]:
    """Run a program without stdin; give its exit code and what it printed.

    Parameters
    ----------
    command : sequence
        The program and its arguments.
    joined : bool
        stdout and stderr, else stdout alone, and stderr is dropped.
    environment : mapping, optional
        Variables that it has beside ours.
    folder : Path, optional
        Where it runs.
    """
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if joined else subprocess.DEVNULL,
            env=None if environment is None else {**os.environ, **environment},
        )
    except OSError as error:
        return 127, f"{command[0]}: {error.strerror}\n"
    return done.returncode, done.stdout.decode(errors="surrogateescape")


def replace(command: Command) -> NoReturn:
    """Become another program, in the directory that ./dev was started in."""
    go(HERE)
    sys.stdout.flush()
    os.execv(command[0], [str(part) for part in command])


def has(name: str) -> bool:
    """Whether there is a program of this name on PATH."""
    return shutil.which(name) is not None


def put_first(folder: Path) -> None:
    """Let the programs of a folder be found before all others from here on."""
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"


# ---- Files -------------------------------------------------------------------------------------


def read(path: Path) -> str:
    """Return the text of a stamp, or '' if there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def remove(*paths: Path) -> None:
    """Remove files and folders, if they are there."""
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def anew(folder: Path) -> Path:
    """Make a folder that is empty."""
    remove(folder)
    folder.mkdir(parents=True)
    return folder


def extract(archive: Path, into: Path) -> Path:
    """Unpack a tar archive, and return the one folder that it has."""
    with tarfile.open(archive) as files:
        # Python 3.11.2, which is Debian 12's, has no filters.
        if hasattr(tarfile, "data_filter"):
            files.extractall(into, filter="data")
        else:
            files.extractall(into)
    (folder,) = into.iterdir()
    return folder


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold a lock of build/: one process at a time changes an environment."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with open(BUILD / f"lock-{name}", "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
