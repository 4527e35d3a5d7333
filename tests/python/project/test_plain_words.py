"""Phrases that a reader cannot understand do not come back into pages, messages and comments."""

import functools
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[3]
SUFFIXES = (".c", ".h", ".def", ".py", ".js", ".rst", ".md")
FOLDERS = (
    "benchmarks",
    "doc",
    "eventprof",
    "python",
    "tests/c",
    "tests/pypy",
    "tests/python",
    "tools",
)
TEXTS = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))]
TEXTS = [
    path for path in TEXTS if path.suffix in SUFFIXES and path.name != pathlib.Path(__file__).name
]
TEXTS.append(ROOT / "README.rst")
# What was written once, and what to write.
PHRASES = {
    r"none of the (interpreter|program)'s": "name the thing: 'rows that are not interpreter calls'",
    r"errs by (a|one|two|these)\b": "say what a reader sees: 'may still report the two records'",
    r"taken for open": "say what happens: 'is reported as having an open call'",
    r"belongs? to no recorded": "'whose begin was not recorded'",
    r"what they made of it": "name the fields",
    r"befell|befalls": "'happened to', or name the cause",
    r"no regular file": "'not a regular file'",
    r"not to be had\b": "'is not available'",
    r"the comfort\b": "name what it adds",
    r"out of the ordinary": "'unusual', or name the cases",
}


@functools.cache
def words_of(path: pathlib.Path) -> str:
    """Return the text with its lines joined, without the marks that comments begin with."""
    text = path.read_text(encoding="utf-8")
    return re.sub(r"\s*\n\s*(?:\*(?!/)|#|//)?\s*", " ", text)


@pytest.mark.parametrize("phrase", PHRASES)
def test_a_phrase_that_nobody_understands_is_not_used(phrase):
    found = [
        f"{path.relative_to(ROOT)}: {match[0]!r}"
        for path in TEXTS
        for match in re.finditer(phrase, words_of(path), re.IGNORECASE)
    ]

    assert not found, f"{PHRASES[phrase]}:\n" + "\n".join(found)
