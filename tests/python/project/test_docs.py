"""The pages of doc/ and the docstrings of the package: their examples give what they say.

Of a page these are run, in a directory of its own: what follows ``>>>``; blocks of the language
``python``, each a program (with a caption, a file of that name); and the lines of blocks of the
language ``console`` that begin with ``$``, whose output is compared if any is shown. A block with
``:class: not-run`` is left alone. Other blocks are only looked through for commands of
``eventprof``: their options must exist.
"""

from __future__ import annotations

import doctest
import functools
import importlib
import inspect
import io
import os
import re
import shlex
import subprocess
import sys
import textwrap
from contextlib import redirect_stderr
from pathlib import Path

import columns_page
import pytest
import raw

import eventprof
from eventprof import cli

ROOT = Path(__file__).resolve().parents[3]
DOC = ROOT / "doc"
PAGES = sorted(
    str(page.relative_to(DOC)) for page in DOC.rglob("*") if page.suffix in (".rst", ".md")
)
# What an example needs, by how it says so.
NEEDS = {
    "pandas": r"to_pandas\(|import pandas|EventProfiler\(|\.df\(",
    "polars": r"to_polars\(|import polars|\.pl\(",
    "pyarrow": r"to_arrow\(|import pyarrow",
    "duckdb": r"\.sql\(|import duckdb",
}
PACKAGE = Path(eventprof.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if re.search(r"^ *>>> ", path.read_text(encoding="utf-8"), re.MULTILINE)
)
# These show bytes of objects, whose header is longer without the GIL.
SHOW_SIZES = {"index.rst"}
USUAL_SIZES = sys.getsizeof(b"") == 33
# These show how long requests waited for the interpreter's lock.
SHOW_WAITED = {"requests.rst"}
TABLES = ("events", "calls", "allocations", "functions", "memory", "threads")
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
BLOCK = re.compile(
    r"^( *)\.\. code-block:: *(\w+)\n((?:\1    :.*\n)*)\n((?:\1    .*\n|\n)+)", re.MULTILINE
)


def read(page):
    return (DOC / page).read_text(encoding="utf-8") + "\n"


def need(text):
    for package, sign in NEEDS.items():
        if re.search(sign, text):
            pytest.importorskip(package)


@pytest.mark.thorough
@pytest.mark.parametrize("page", [page for page in PAGES if ">>> " in read(page)])
def test_the_examples_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if page in SHOW_SIZES and not USUAL_SIZES:
        pytest.skip("objects have another size on this interpreter")
    text = read(page)
    need(text)
    test = doctest.DocTestParser().get_doctest(
        text, {"__name__": "__main__"}, page, str(DOC / page), 0
    )
    printed: list[str] = []

    result = doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=printed.append)

    assert result.attempted == len(re.findall(r"^ *>>> ", text, re.MULTILINE))
    assert result.failed == 0, "".join(printed)


def examples_of_cached_properties(module):
    """Find what doctest does not find before Python 3.13."""
    names = {"eventprof": eventprof}
    for kind in vars(module).values():
        if isinstance(kind, type) and kind.__module__ == module.__name__:
            for name, value in vars(kind).items():
                if isinstance(value, functools.cached_property):
                    yield doctest.DocTestParser().get_doctest(
                        inspect.getdoc(value) or "", dict(names), name, module.__file__, 0
                    )


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_docstrings_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    need(Path(module.__file__).read_text(encoding="utf-8"))
    finder = doctest.DocTestFinder(recurse=True)
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    printed: list[str] = []

    found = finder.find(module, name, extraglobs={"eventprof": eventprof})
    if sys.version_info < (3, 13):
        found += examples_of_cached_properties(module)
    for test in found:
        runner.run(test, out=printed.append)

    assert runner.summarize(verbose=False).attempted > 0
    assert runner.summarize(verbose=False).failed == 0, "".join(printed)


# ---- Blocks --------------------------------------------------------------------------------------


def blocks(text):
    """Yield (language, caption, lines) of each block that is run."""
    for _, language, options, body in BLOCK.findall(text):
        if language in ("console", "python") and ":class: not-run" not in options:
            caption = re.search(r":caption: (\S+)", options)
            yield language, caption and caption[1], textwrap.dedent(body).strip("\n").split("\n")


def commands(lines):
    """Split the lines of a console into (command, its output)."""
    found: list[tuple[list[str], list[str]]] = []
    for line in lines:
        if line.startswith("$ "):
            found.append(([line[2:]], []))
        elif line.startswith("> ") and not found[-1][1]:
            found[-1][0].append(line[2:])
        else:
            found[-1][1].append(line)
    return [("\n".join(command), "\n".join(output)) for command, output in found]


@pytest.fixture
def shell(tmp_path):
    """Runs a command in an empty directory, where python and eventprof are the tested ones."""
    programs, home = tmp_path / "bin", tmp_path / "home"
    programs.mkdir()
    home.mkdir()
    for name, arguments in (("python", ""), ("eventprof", "-m eventprof")):
        script = programs / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments} "$@"\n')
        script.chmod(0o755)
    environment = {
        # With these set, pytest's summary repeats whole messages: no page shows that.
        **{name: value for name, value in os.environ.items() if name not in ("CI", "BUILD_NUMBER")},
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": ":".join(filter(None, sys.path)),
        "COLUMNS": "80",
        # Without the other plugins: to import those takes a second each time.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_ADDOPTS": "-p eventprof",
    }

    def run(command):
        return subprocess.run(
            ["bash", "-c", command],
            cwd=home,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
        )

    run.home = home
    return run


@pytest.mark.thorough
@pytest.mark.parametrize("page", [page for page in PAGES if any(blocks(read(page)))])
def test_the_programs_and_commands_of_a_page_give_what_they_say(page, shell):
    if page in SHOW_WAITED and not raw.HAS_GIL:
        pytest.skip("without the interpreter's lock no request waits for it")
    need(read(page))
    check = doctest.OutputChecker().check_output

    for language, caption, lines in blocks(read(page)):
        if language == "python":
            name = caption or "example.py"
            (shell.home / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
            todo = [] if caption else [(f"python {name}", "")]
        else:
            todo = commands(lines)
        for command, shown in todo:
            done = shell(command)
            if shown:
                assert check(shown + "\n", done.stdout, OPTIONS), f"$ {command}\n{done.stdout}"
            else:
                assert done.returncode == 0, f"$ {command}\n{done.stdout}"


@pytest.mark.thorough
def test_what_one_types_in_place_of_other_tools_works(shell):
    text = read("coming-from.rst")
    for _, name, lines in blocks(text):
        if name:
            (shell.home / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        else:
            assert all(shell(command).returncode == 0 for command, _ in commands(lines))
    typed = re.findall(r"``((?:EVENTPROF=1 )?(?:eventprof|python) [^`]+)``", text)

    failed = []
    for command in typed:
        done = shell(f"BROWSER=true {command}")
        if done.returncode:
            failed.append(f"$ {command}\n{done.stdout}")

    assert len(typed) > 30
    assert not failed, "\n".join(failed)


def shown_commands(text):
    """Yield the words of each command of eventprof that stands on a line of its own."""
    for line in re.findall(r"^ +(?:\$ )?(?:[A-Z_]+=\S+ )*(eventprof [a-z].*)$", text, re.MULTILINE):
        words = shlex.split(line, comments=True)
        if words[1] in cli.VERBS and "VERB" not in words:
            ends = [number for number, word in enumerate(words) if re.match(r"[<>|;&]", word)]
            yield words[1 : ends[0] if ends else None]


def test_the_commands_that_a_page_shows_exist():
    commands = (each for page in ("../README.rst", *PAGES) for each in shown_commands(read(page)))
    for verb, *rest in commands:
        module = cli.load(verb)
        parser = cli.make_parser(verb, module)
        errors = io.StringIO()
        try:
            with redirect_stderr(errors):
                extra = parser.parse_known_args(
                    module.split(parser, rest)[0] if verb == "run" else rest
                )[1]
        except SystemExit:
            extra = [errors.getvalue()]

        assert extra == [], f"eventprof {verb} {shlex.join(rest)}"


def test_a_title_stands_on_a_line_of_its_own():
    for page in ("../README.rst", *PAGES):
        assert re.findall(r"^\w.* [-=~]{6,}$", read(page), re.MULTILINE) == [], page


def test_a_page_refers_to_others_by_their_names():
    # A link to a file of the source leads nowhere in what is built of it.
    link = re.compile(r"<[^<>: ]+\.rst>`|^\.\. _.*: \S+\.rst$", re.MULTILINE)
    for page in PAGES:
        assert link.findall(read(page)) == [], page


def test_every_public_name_is_in_the_reference():
    documented = set(re.findall(r"^\.\. auto\w+:: ([\w.]+)$", read("api.rst"), re.MULTILINE))

    assert set(eventprof.__all__) - documented == set()


def sections(text):
    """The text under each title, by title."""
    parts = re.split(r"^(.+)\n[-=]{3,}\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def documented(text):
    """{column: (type, unit, null)} of the first table in a section."""
    lines = text.splitlines()
    borders = [i for i, line in enumerate(lines) if re.fullmatch(r"(=+ +)+=+", line)]
    starts = [match.start() for match in re.finditer("=+", lines[borders[0]])]
    found = {}
    for line in lines[borders[1] + 1 : borders[2]]:
        cells = [line[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)]
        if cells[0]:  # else the line before goes on
            found[cells[0]] = tuple(cells[1:4])
    return found


@pytest.mark.parametrize("page", columns_page.PAGES)
def test_tables_of_columns_are_those_of_columns_def(page):
    text = read(page)

    assert columns_page.written(page, text) == text, "python tools/pages/columns_page.py mends it"


@pytest.mark.parametrize("name", TABLES)
def test_every_column_is_documented_as_it_is(name):
    with eventprof.record() as rec:
        pass
    table = getattr(rec.trace, name)

    columns = documented(sections(read("tables.rst"))[name])

    assert list(columns) == list(table.columns)
    for row in table.describe():
        kind, unit, null = columns[row.column]
        assert (kind, unit) == (row.type, row.unit or "--")
        assert (null != "--") == row.nullable, row.column
