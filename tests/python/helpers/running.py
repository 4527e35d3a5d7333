"""Running a program under ``eventprof run`` and without."""

from __future__ import annotations

import functools
import os
import re
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

import children

LINE = re.compile(r"^eventprof: [\d,]+ events? in .*\n", re.MULTILINE)


# A program can see the environment by which others are recorded: test_families.py.
RUN = [sys.executable, "-m", "eventprof", "run", "--no-follow-exec", "-o", "out-%p.epr"]


def environment(**more):
    env = {
        **os.environ,
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "COLUMNS": "100",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        # To import those takes a second each time.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        **more,
    }
    for name in ("PYTHONSTARTUP", "PYTHONWARNINGS", "FORCE_COLOR", "EVENTPROF"):
        env.pop(name, None)
    return env


def execute(command, cwd, **options):
    return children.run(*command, status=None, cwd=cwd, environment=environment(), **options)


def write(files, folder):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


def both(folder, *arguments, stdin=""):
    """Run a program without and with a recorder; give both results, ours without its one line."""
    plain = execute([sys.executable, *arguments], folder, stdin=stdin)
    recorded = execute([*RUN, *arguments], folder, stdin=stdin)
    lines = LINE.findall(recorded.stderr)
    recorded.stderr = LINE.sub("", recorded.stderr)
    return plain, recorded, lines


def same(plain, recorded):
    assert recorded.stderr == plain.stderr
    assert recorded.stdout == plain.stdout
    assert recorded.returncode == plain.returncode


@dataclass
class Case:
    arguments: list[str]
    files: dict[str, str] = field(default_factory=dict)
    stdin: str = ""
    #: What differs from run to run.
    varies: str = ""
    status: int = 0
    line: bool = True


def script(text, *arguments, **options):
    return Case(["main.py", *arguments], {"main.py": text}, **options)


def run(folder, *arguments, **options):
    return execute([sys.executable, "-m", "eventprof", "run", *arguments], folder, **options)


def alone(test):
    """Run a test in a new interpreter: no test before it has left threads or memory there."""
    module = Path(test.__code__.co_filename).stem

    @functools.wraps(test)
    def run(**fixtures):
        given = {name: str(each) for name, each in fixtures.items()}
        paths = {name for name, each in fixtures.items() if isinstance(each, os.PathLike)}
        code = f"""
            import pathlib
            import {module} as tests
            given = {given!r}
            given |= {{name: pathlib.Path(given[name]) for name in {sorted(paths)!r}}}
            tests.{test.__name__}.__wrapped__(**given)
        """
        children.program(code, environment=environment())

    return run
