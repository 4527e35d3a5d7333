"""README.rst: its example runs, and prints what it says."""

from __future__ import annotations

import os
import re
import shlex
import sys
import textwrap
from pathlib import Path

import children
import pytest

README = Path(__file__).parents[3] / "README.rst"
OUTPUT_OF = (3, 13)


def blocks(language):
    """Return the code blocks of one language."""
    text = README.read_text(encoding="utf-8")
    found = re.findall(rf"^\.\. code-block:: {language}\n\n((?:    .*\n|\n)+)", text, re.MULTILINE)
    return [textwrap.dedent(block).strip("\n") for block in found]


def test_the_program_of_the_command_line_gives_its_report(tmp_path):
    (program,) = blocks("python")
    (tmp_path / "orders.py").write_text(program + "\n", encoding="utf-8")
    (text,) = blocks("console")
    commands = re.findall(r"^\$ eventprof (.*)", text, flags=re.MULTILINE)
    expected = text.rpartition("$ eventprof")[2]

    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(filter(None, sys.path))}
    for command in commands:
        done = children.eventprof(*shlex.split(command), cwd=tmp_path, environment=environment)

    # It waits for a processor where the machine is busy.
    printed = [line for line in done.stdout.splitlines() if not line.startswith("outside of it:")]
    expected = expected.splitlines()[1:]
    assert re.match(
        r"[\d,]+ events in .* m?s, peak [\d.,]+ [KM]iB at .* m?s, nothing lost", printed[0]
    )

    def headings(lines):
        return [re.split(r"[(,]", line)[0] for line in lines[1:] if not line.startswith(" ")]

    assert expected.pop() == "..."  # what comes next is in doc/reading.rst
    assert headings(printed)[: len(headings(expected))] == headings(expected)
    if sys.version_info[:2] == OUTPUT_OF:
        assert "price itself, without its calls" in done.stdout
        holder = next(n for n, line in enumerate(expected) if line.startswith("the peak")) + 1
        assert printed[holder].split()[-3:] == expected[holder].split()[-3:]  # orders.py:6 in read


@pytest.mark.skipif(
    not (README.parent / "doc" / "benchmarks-results.rst").exists(),
    reason="an sdist: it has no results",
)
def test_figures_beside_others_are_those_of_the_benchmarks():
    text = README.read_text(encoding="utf-8")
    table = text[text.index("Beside others") : text.index("The times are those of")]
    results = (README.parent / "doc" / "benchmarks-results.rst").read_text(encoding="utf-8")
    figures = re.findall(r"\d+\.\d+", table)

    assert len(figures) >= 9
    assert not [each for each in figures if not re.search(rf"(?<![\d.]){each}(?![\d.])", results)]
