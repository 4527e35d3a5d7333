"""``./dev test --all``: fetches the interpreters that are missing.

uv's builds (into build/pythons), then packages, then what pyenv compiles. Nothing that fails here
fails the tests: what is absent is named at the end.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterable
from pathlib import Path

from dev import pythons, shell
from dev.packages import Packages
from dev.shell import Command


def logged(log: Path, command: Command, limit: float | None = None) -> bool:
    """Run a program, with what it prints at the end of a log; whether it succeeded."""
    try:
        with open(log, "ab") as file:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=limit,
            )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def from_packages(name: str) -> bool:
    """Fetch one with the system's packages; whether it is here now."""
    if not shell.has("apt-get"):
        return False
    search = ["apt-cache", "-q", "search", "--names-only", f"^python{name}-venv$"]
    if not shell.output(search)[1]:
        return False
    with contextlib.suppress(SystemExit):
        Packages(need=[f"python{name}-dev", f"python{name}-venv"]).install()
    return shell.has(f"python{name}")


def fetch(given: Iterable[str]) -> None:
    """Fetch the interpreters that are missing, except those that --with names."""
    here = pythons.find()
    given = set(given)
    lacking = [
        name for name in pythons.TESTED + pythons.ALSO if name not in here and name not in given
    ]
    if "pypy" not in given and pythons.find_pypy() is None:
        lacking.append("pypy3.11")
    if not lacking:
        return
    shell.BUILD.mkdir(parents=True, exist_ok=True)
    shell.note(f"fetching {' '.join(lacking)} (log: build/fetch.log)")
    log = shell.BUILD / "fetch.log"
    log.write_bytes(b"")
    venv = shell.BUILD / "venv-uv"
    uv: Path = venv / "bin" / "uv"
    base = here.newest()
    if base is not None and not uv.exists() and logged(log, [here[base].path, "-m", "venv", venv]):
        logged(log, [venv / "bin" / "python", "-m", "pip", "install", "-q", "uv"])
    for name in lacking:
        folder = shell.BUILD / "pythons"
        install: list[str | Path] = [
            uv,
            "python",
            "install",
            "--no-bin",
            "--install-dir",
            folder,
            name,
        ]
        if uv.exists() and logged(log, install, 600):
            continue
        if from_packages(name):
            continue
        if shell.has("pyenv") and logged(log, ["pyenv", "install", "-s", name], 3600):
            continue
        shell.note(
            f"{name} cannot be had here: not from uv, the system's packages, or pyenv; see --with"
        )
