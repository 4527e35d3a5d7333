"""The pages of doc/ and the docstrings of the package: their examples give what they say."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

import eventprof

DOC = Path(__file__).resolve().parents[2] / "doc"
PAGES = {
    "tables.rst": ("pandas", "polars", "pyarrow", "duckdb"),
    "questions.rst": ("pyarrow", "duckdb"),
}
MODULES = ("eventprof", "eventprof.file", "eventprof.tables", "eventprof.trace")
TABLES = ("events", "calls", "allocations", "functions", "memory", "threads")
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run(page):
    for package in PAGES[page]:
        pytest.importorskip(package)
    text = (DOC / page).read_text(encoding="utf-8")
    test = doctest.DocTestParser().get_doctest(
        text, {"__name__": "__main__"}, page, str(DOC / page), 0
    )
    said: list[str] = []

    result = doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=said.append)

    assert result.attempted > 10
    assert result.failed == 0, "".join(said)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_docstrings_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    finder = doctest.DocTestFinder(recurse=True)
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    said: list[str] = []

    for test in finder.find(module, name, extraglobs={"eventprof": eventprof}):
        runner.run(test, out=said.append)

    assert runner.summarize(verbose=False).attempted > 0
    assert runner.summarize(verbose=False).failed == 0, "".join(said)


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


@pytest.mark.parametrize("name", TABLES)
def test_every_column_is_documented_as_it_is(name):
    with eventprof.record() as rec:
        pass
    table = getattr(rec.trace, name)

    said = documented(sections((DOC / "tables.rst").read_text(encoding="utf-8"))[name])

    assert list(said) == list(table.columns)
    for row in table.describe():
        kind, unit, null = said[row.column]
        assert (kind, unit) == (row.type, row.unit or "-")
        assert (null != "-") == row.nullable, row.column
