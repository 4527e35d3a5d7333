"""Packages of the system, by Debian's names: what a verb needs or wishes for, installed at once.

What is missing on Debian and Ubuntu is installed by apt-get if that needs no password; else the one
command to type is printed. A wish that cannot be had is not asked for again: build/no-wishes.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from dev import shell
from dev.pythons import Python

FUZZER = """#include <stddef.h>
int LLVMFuzzerTestOneInput(const char *at, size_t bytes);
int LLVMFuzzerTestOneInput(const char *at, size_t bytes) { return at == NULL && bytes > 0; }
"""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "headless_shell")


#: What is lost without a package that was only wished for.
WITHOUT = {
    "libzstd-dev": "archives are compressed by zlib, which makes them larger, and archives that "
    "were compressed by Zstandard cannot be opened",
    "zlib1g-dev": "archives are not compressed if Zstandard is missing, too",
    "chromium": "the tests of the page in a browser are skipped",
}


# ---- The compiler ------------------------------------------------------------------------------


def compiler() -> list[str]:
    """Return the compiler, which may have arguments in $CC."""
    return os.environ.get("CC", "").split() or ["cc"]


def compiles(command: list[str], code: str, *arguments: str | Path) -> bool:
    """Whether a compiler takes some C."""
    return shell.run([*command, *arguments, "-xc", "-"], text=code, silent=True) == 0


def runs(code: str, work: str, *arguments: str) -> bool:
    """Whether what the compiler makes runs: it may have an option and lack the library."""
    program = shell.BUILD / work
    shell.BUILD.mkdir(parents=True, exist_ok=True)
    command = [*compiler(), *arguments, "-xc", "-", "-o", str(program)]
    return shell.run(command, text=code, silent=True) == 0 and shell.run([program]) == 0


def has_fuzzer() -> bool:
    """Whether clang has libFuzzer: its library is a package of its own."""
    shell.BUILD.mkdir(parents=True, exist_ok=True)
    command = [
        "clang",
        "-fsanitize=fuzzer,address",
        "-xc",
        "-",
        "-o",
        str(shell.BUILD / "fuzzer-work"),
    ]
    return shell.has("clang") and shell.run(command, text=FUZZER, silent=True) == 0


# ---- What a verb needs -------------------------------------------------------------------------


@dataclass
class Packages:
    """What is missing: without `need` a verb cannot be carried out, without `wish` it does less."""

    need: list[str] = field(default_factory=list)
    wish: list[str] = field(default_factory=list)

    @property
    def no_wishes(self) -> Path:
        """What says that some wishes cannot be had."""
        return shell.BUILD / "no-wishes"

    def need_compiler(self) -> None:
        """Look for a compiler with the headers of libc, which gcc's package does not require."""
        commands = [compiler(), ["cc"], ["gcc"], ["clang"]]
        if not any(
            compiles(command, "#include <stdlib.h>\n", "-fsyntax-only") for command in commands
        ):
            self.need += ["gcc", "libc6-dev"]

    def need_python(self, python: Python) -> None:
        """Ask for what a CPython of the system lacks to be built for, or to make a venv."""
        self.need += [package for package in python.lacking if package not in self.need]

    def need_check(self) -> None:
        """Look for Check, which the tests in C are written with."""
        if not shell.has("pkg-config"):
            self.need += ["pkg-config", "check"]
        elif shell.run(["pkg-config", "--exists", "check"]) != 0:
            self.need.append("check")

    def wish_for(self, program: str, package: str) -> None:
        """Wish for a program."""
        if not shell.has(program) and not self.no_wishes.exists():
            self.wish.append(package)

    def wish_codecs(self) -> None:
        """Wish for what an archive is compressed with; without them it is larger."""
        if self.no_wishes.exists():
            return
        for header, package in (("zstd", "libzstd-dev"), ("zlib", "zlib1g-dev")):
            if not compiles(compiler(), f"#include <{header}.h>\n", "-fsyntax-only"):
                self.wish.append(package)

    def wish_browser(self) -> None:
        """Wish for what the tests of the page drive."""
        if not any(map(shell.has, BROWSERS)):
            self.wish_for("chromium", "chromium")

    def wish_python(self, python: Python) -> None:
        """Wish for what a release beside the newest of its X.Y lacks."""
        if not self.no_wishes.exists():
            self.wish += python.lacking

    def wish_fuzzer(self) -> None:
        """Wish for clang with libFuzzer."""
        if self.no_wishes.exists() or has_fuzzer():
            return
        if shell.has("clang"):
            version = shell.output(["clang", "-dumpversion"])[1].strip()
            self.wish.append(f"libclang-rt-{version.partition('.')[0]}-dev")
        else:
            self.wish += ["clang", "libclang-rt-dev"]  # that of the clang which is installed now

    # ---- Installing ----------------------------------------------------------------------------

    def install(self) -> None:
        """Install what was needed and wished: once, so that it is one command to type."""
        if not self.need and not self.wish:
            return
        if not shell.has("apt-get"):
            if self.need:
                shell.die(f"missing here, by the names of Debian's packages: {' '.join(self.need)}")
            return
        sudo: list[str] = []
        if os.geteuid() != 0:
            sudo = ["sudo", "-n"]
            if shell.run([*sudo, "true"], silent=True) != 0:
                self.name_missing()
                return
        shell.BUILD.mkdir(parents=True, exist_ok=True)
        shell.note(
            f"installing with apt-get (log: build/apt.log): {' '.join(self.need + self.wish)}"
        )
        log = shell.BUILD / "apt.log"
        log.write_bytes(b"")
        # Third-party repositories may be out of reach; what counts is whether the install succeeds.
        apt_get(sudo, log, "update")
        if self.need and not apt_install(sudo, log, self.need):
            for line in log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:]:
                shell.complain(line)
            shell.die(f"apt-get cannot install: {' '.join(self.need)}")
        if self.wish and not apt_install(sudo, log, self.wish):
            # A package that is not available must not prevent the others.
            for package in self.wish if len(self.wish) > 1 else ():
                apt_install(sudo, log, [package])
            wishes = " ".join(self.wish)
            shell.note(f"apt-get cannot install all of these, and it goes on without: {wishes}")
            for line in errors_of(log.read_text(encoding="utf-8", errors="replace")):
                shell.complain(line)
            for package in self.wish:
                if package in WITHOUT:
                    shell.note(f"without {package}: {WITHOUT[package]}")
            self.no_wishes.touch()  # so that it is not tried again at each start

    def name_missing(self) -> None:
        """Report what to type where apt-get needs a password."""
        wishes = " ".join(self.wish)
        if not self.need:
            shell.note(f"not here, and not needed: {wishes} (sudo apt-get install {wishes})")
            return
        shell.note("packages are missing; type this once, then start again:")
        shell.say(to_type(self.need + self.wish, with_sudo=shell.has("sudo")))
        raise SystemExit(1)


def errors_of(log: str, most: int = 5) -> list[str]:
    """Return why apt-get failed: its last errors, or the last lines if it names none."""
    lines = [line for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E:", "Err:", "W:", "sudo:"))]
    return list(dict.fromkeys(errors or lines))[-most:]


def to_type(packages: list[str], *, with_sudo: bool) -> str:
    """Return the command that a user types to install packages."""
    command = f"apt-get update && apt-get install -y --no-install-recommends {' '.join(packages)}"
    return f"{'sudo sh' if with_sudo else 'su'} -c {shlex.quote(command)}"


def apt_get(sudo: list[str], log: Path, *arguments: str) -> bool:
    """Run apt-get, with what it prints at the end of the log."""
    with open(log, "ab") as file:
        done = subprocess.run(
            [*sudo, "apt-get", "-q", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        )
    return done.returncode == 0


def apt_install(sudo: list[str], log: Path, packages: list[str]) -> bool:
    """Install packages."""
    return apt_get(sudo, log, "install", "-y", "--no-install-recommends", *packages)
