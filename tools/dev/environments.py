"""Virtual environments in build/, with their packages and with eventprof as it is now.

Stamp files say what was installed last time, so that a second start does nothing.
"""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from dev import shell
from dev.packages import Packages
from dev.pythons import Python, is_tested
from dev.shell import Command

# No bytecode ahead: it took 80 s for the 9,400 modules of an environment, and few are imported.
PIP = ("-m", "pip", "install", "-q", "--progress-bar", "off", "--no-compile")
#: The files and folders from which the package is built.
SOURCES = ("meson.build", "meson.options", "pyproject.toml", "README.rst", "eventprof", "python")
TESTS = shell.ROOT / "tests" / "python"


def requirements(project: dict[str, dict], sets: tuple[str, ...]) -> str:  # type: ignore[type-arg]
    """Return lines for pip.

    Parameters
    ----------
    project : dict
        What pyproject.toml says.
    sets : tuple of str
        Each is ``run``, an extra, or a dependency group.
    """
    groups = project["dependency-groups"] | project["project"]["optional-dependencies"]
    groups["run"] = project["project"]["dependencies"]

    def lines(name: str) -> Iterator[str]:
        for line in groups[name]:
            # Extras of this project are spelled out: pip would look for eventprof elsewhere. What
            # such a line holds for (its marker) holds for each line of the extra.
            if own := re.fullmatch(r"eventprof\[([^]]*)\](\s*;.*)?", line):
                for extra in own[1].split(","):
                    yield from (inner + (own[2] or "") for inner in lines(extra.strip()))
            else:
                yield line

    return "\n".join(sorted({line for name in sets for line in lines(name)}))


#: Where a package is not imported by the name that it is installed by.
IMPORTED_AS = {"ipython": "IPython", "opentelemetry-sdk": "opentelemetry"}
#: What pytest needs for any test here: pyproject.toml has their settings.
ALWAYS = ("pytest", "pytest-timeout")


def folders_for_every() -> list[Path]:
    """Return the folders of tests that run on every CPython."""
    with open(TESTS / "folders.toml", "rb") as file:
        return [TESTS / name for name in tomllib.load(file)["every"]]


def texts_of(files: Iterable[Path], tests: Path) -> str:
    """Return the text of test files, and of the modules in folders of `tests` that they import.

    Without that of the conftest.py for all: it names packages that tests leave something of behind.
    """
    known: dict[Path, str] = {}
    modules = {path.stem: path for path in tests.glob("*/*.py") if path.stem != "conftest"}
    waiting = [tests / "conftest.py"]
    for file in files:
        waiting += [*file.rglob("*.py")] if file.is_dir() else [file, file.with_name("conftest.py")]
    while waiting:
        path = waiting.pop()
        if path not in known:
            known[path] = shell.read(path)
            names = re.findall(r"^\s*(?:import|from) (\w+)", known[path], re.MULTILINE)
            waiting += [modules[name] for name in names if name in modules]
    known.pop(tests / "conftest.py")
    return "\n".join(known.values())


def needed_by(lines: str, text: str) -> str:
    """Return those lines for pip whose package a text names: as a word, or in a call of to_NAME().

    A test that only calls to_pandas() or to_arrow() imports neither package itself.
    """

    def is_needed(line: str) -> bool:
        package = re.split(r"[\[<>=;! ]", line)[0].lower()
        name = IMPORTED_AS.get(package, package.replace("-", "_"))
        converts = f"to_{name.removeprefix('py')}"
        return package in ALWAYS or re.search(rf"\b({name}|{converts})\b", text) is not None

    return "\n".join(filter(is_needed, lines.splitlines()))


def pip_for_each(pip: Command, wanted: str, name: str) -> None:
    """Run a command of pip for all lines, or, if that fails, for each; name those that fail."""
    if shell.run([*pip, "-r", "/dev/stdin"], text=wanted + "\n", silent=True) == 0:
        return
    for line in wanted.splitlines():
        if shell.run([*pip, line], null=True, silent=True) != 0:
            shell.note(f"no wheel for {name}: {line}")


def install_wheels(python: Python, wanted: str) -> None:
    """Install for an interpreter that not all packages have wheels for yet.

    Older versions are taken that have some, and what has none is left out, which skips its tests.
    What building and running need must be there.
    """
    pip_for_each(python.within("python", *PIP, "--only-binary", ":all:"), wanted, python.full)
    if shell.run(python.within("python", "-c", "import mesonpy, numpy, pytest")) != 0:
        shell.die(f"{python.full}: what the tests need cannot be installed")


def ensure_venv(
    python: Python, sets: tuple[str, ...], venv: Path | None = None, files: Iterable[Path] = ()
) -> Path:
    """Return an environment that has these sets: that of the interpreter, or another folder.

    Of the last set only what test files need, if there are any; all that is there already stays.
    """
    venv = venv or python.venv
    made = f"{python.full} {python.path}\n"
    shell.BUILD.mkdir(parents=True, exist_ok=True)
    if shell.read(venv / "made") != made:
        shell.note(f"making {venv.relative_to(shell.ROOT)} with {python.path} ({python.full})")
        shell.remove(venv)
        if venv == python.venv:
            # What was built with another interpreter.
            shell.remove(shell.BUILD / python.name)
        shell.must([*python.command, "-m", "venv", venv])
        (venv / "made").write_text(made, encoding="utf-8")
    with open(shell.ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)
    wanted = requirements(project, sets)
    stamp = venv / f"installed-{'-'.join(sets)}"
    if files and shell.read(stamp) != wanted + "\n":
        some = needed_by(requirements(project, sets[-1:]), texts_of(files, TESTS))
        wanted = f"{requirements(project, sets[:-1])}\n{some}"
        stamp = venv / "installed-for-files"
    if shell.read(stamp) != wanted + "\n":
        shell.note(f"installing into {venv.relative_to(shell.ROOT)}: {' '.join(sets)}")
        if is_tested(python.name) or venv != python.venv:
            shell.must([venv / "bin" / "python", *PIP, "-r", "/dev/stdin"], text=wanted + "\n")
        else:
            install_wheels(python, wanted)
        stamp.write_text(wanted + "\n", encoding="utf-8")
    return venv


def fingerprint(root: Path, sources: tuple[str, ...] = SOURCES) -> str:
    """Return a text that changes when a file of the package does: its name, size or time."""
    lines = []
    for source in sources:
        top = root / source
        folders = os.walk(top) if top.is_dir() else [(str(root), [], [source])]
        for folder, below, names in folders:
            below[:] = [name for name in below if name != "__pycache__"]
            for name in names:
                path = os.path.join(folder, name)
                about = os.stat(path, follow_symlinks=False)
                lines.append(f"{os.path.relpath(path, root)} {about.st_size} {about.st_mtime_ns}\n")
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()


def ensure_package(python: Python, options: tuple[str, ...]) -> None:
    """Build and install the package from the present sources; only changed files are compiled."""
    stamp = python.venv / "package"
    # If no options are asked for, a package that was built with any options is used.
    now = " ".join((fingerprint(shell.ROOT), *options))
    if shell.read(stamp).startswith(now):
        return
    # With debug information, for gdb and perf; otherwise as a wheel is built.
    settings = [f"--config-settings=setup-args={option}" for option in ("-Ddebug=true", *options)]
    shell.note(f"building for {python.full}")
    shell.remove(stamp)
    folder = f"--config-settings=build-dir={shell.BUILD / python.name}"
    once = ("--compile", "--no-build-isolation", "--no-deps", "--force-reinstall")
    shell.must(python.within("python", *PIP, *once, folder, *settings, shell.ROOT))
    stamp.write_text(now + "\n", encoding="utf-8")


def ensure(python: Python, sets: str, *options: str, files: Iterable[Path] = ()) -> None:
    """Make the environment and the package, if they are not up to date; one process at a time.

    Parameters
    ----------
    python : Python
        For which one.
    sets : str
        Words: see requirements().
    *options : str
        Of meson, for the package.
    files : iterable of Path
        Test files, if only what they need is to be installed.
    """
    with shell.locked(python.name):
        ensure_venv(python, tuple(sets.split()), files=files)
        ensure_package(python, options)


def set_up(python: Python, sets: str, packages: Packages | None = None) -> None:
    """Make sure that compiler, environment and package are there; most verbs begin with this."""
    packages = packages or Packages()
    # The compiler is checked only if something will be built, so that a second start is quick.
    if not shell.read(python.venv / "package").startswith(fingerprint(shell.ROOT)):
        packages.need_compiler()
        packages.wish_codecs()
    packages.need_python(python)
    packages.install()
    ensure(python, sets)
