"""``./dev lint [--fix]``: formats, types, rules of each language; no warning of gcc and clang."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dev import c_tests, environments, rooms, shell, viewer_checks
from dev.packages import Packages
from dev.pythons import Python, take_python
from dev.results import Results

PYTHON_FOLDERS = (
    "python/eventprof",
    "python/_eventprof_start.py",
    "tests/python",
    "tests/pypy",
    "tests/viewer",
    "tools",
    "benchmarks",
    "doc",
)
C_FOLDERS = ("eventprof", "python/src", "tests/c", "tests/fuzz", "benchmarks")
#: Lines should have at most 100 columns; 8 more are allowed if one line reads better.
COLUMNS = 108


def c_files(root: Path, *endings: str) -> list[str]:
    """Return the paths of the C files with one of these endings, from the root."""
    paths = (path for folder in C_FOLDERS for path in (root / folder).rglob("*"))
    return sorted(
        str(path.relative_to(root)) for path in paths if path.suffix in endings and path.is_file()
    )


def sources_listed(root: Path) -> tuple[int, str]:
    """Look for each C source in meson.build: one that is forgotten there is not compiled."""
    listed = (root / "meson.build").read_text(encoding="utf-8")
    absent = []
    for name in c_files(root, ".c"):
        if name.startswith("tests/c/test_"):
            name = name.removeprefix("tests/c/test_").removesuffix(".c")
        elif name.startswith(("tests/", "benchmarks/")):
            continue  # benchmarks build their own
        if f"'{name}'" not in listed:
            absent.append(f"not in meson.build: {name}\n")
    return int(bool(absent)), "".join(absent)


def lines_fit(root: Path, names: Iterable[str]) -> tuple[int, str]:
    """Look for lines that are too long."""
    long = [
        f"{name}:{number}:{line}\n"
        for name in names
        for number, line in enumerate((root / name).read_text(encoding="utf-8").split("\n"), 1)
        if len(line) > COLUMNS
    ]
    return int(bool(long)), "".join(long)


def lint(found: Results, python: Python, *, fix: bool = False) -> None:
    """Run all checks. Needs the environment of an interpreter, with the package in it."""
    tools = shell.BUILD / "venv-tools"
    with shell.locked("tools"):
        environments.ensure_venv(python, ("lint",), tools)
    ruff, mypy, clang_format, shellcheck = (
        str(tools / "bin" / name) for name in ("ruff", "mypy", "clang-format", "shellcheck")
    )
    c_all = c_files(shell.ROOT, ".c", ".h")
    folders = [folder for folder in PYTHON_FOLDERS if (shell.ROOT / folder).exists()]
    if fix:
        shell.run([ruff, "check", "-q", "--fix", *folders])
        shell.must([ruff, "format", "-q", *folders])
        shell.must([clang_format, "-i", *c_all])
    shell.say("== lint")
    found.check("ruff check", [ruff, "check", *folders])
    found.check("ruff format", [ruff, "format", "--check", *folders])
    found.check("mypy", [mypy, "--python-executable", str(python.venv / "bin" / "python")])
    found.check("clang-format", [clang_format, "--dry-run", "-Werror", *c_all])
    found.check(f"C lines of {COLUMNS} columns", lambda: lines_fit(shell.ROOT, c_all))
    found.check("shellcheck", [shellcheck, "dev", ".ci/run"])
    found.check("sources listed in meson.build", lambda: sources_listed(shell.ROOT))
    found.check("rooms of the package: no import upwards", lambda: rooms.check(shell.ROOT))
    viewer_checks.check(found, fix=fix)
    if shell.has("clang"):
        options = ("-Dwerror=true", "-Dtests=disabled")
        folder = shell.BUILD / "clang"
        found.check(
            "clang -Werror, -Wthread-safety",
            lambda: c_tests.check_syntax(folder, python, options, "clang"),
        )
    else:
        shell.say("  --    clang -Werror, -Wthread-safety: no clang here")


def main(arguments: list[str]) -> int:
    """Run the verb."""
    python, arguments = take_python(arguments)
    if arguments not in ([], ["--fix"]):
        shell.misuse(f"lint: {' '.join(arguments)}?")
    packages = Packages()
    packages.wish_for("clang", "clang")
    environments.set_up(python, "build run", packages)
    shell.put_first(python.venv / "bin")
    found = Results()
    lint(found, python, fix=bool(arguments))
    return int(found.failed > 0)
