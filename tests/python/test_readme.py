"""README.rst: its examples run, and print what it says they print."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import eventprof

README = Path(__file__).parents[2] / "README.rst"
OUTPUT_OF = (3, 13)


def blocks(language):
    """Give the code blocks of one language."""
    text = README.read_text(encoding="utf-8")
    found = re.findall(rf"^\.\. code-block:: {language}\n\n((?:    .*\n|\n)+)", text, re.MULTILINE)
    return [textwrap.dedent(block).strip("\n") for block in found]


def shape(output):
    """Leave what does not depend on the machine: words, and which lines there are."""
    return [re.sub(r"[-\d,.\s]+(ms|us|s)?\b|\s+$", " ", line) for line in output.splitlines()]


EXAMPLES = list(zip(blocks("python"), blocks("text"), strict=True))


def test_there_are_examples():
    assert len(EXAMPLES) == 2


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_prints_what_is_said(number, tmp_path):
    pytest.importorskip("pandas")
    code, said = EXAMPLES[number]
    script = tmp_path / f"example{number + 1 if number else ''}.py"
    script.write_text(code, encoding="utf-8")

    done = subprocess.run(
        [sys.executable, script],
        env={"PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
    )

    assert (done.returncode, done.stderr) == (0, "")
    if sys.version_info[:2] == OUTPUT_OF:
        assert shape(done.stdout) == shape(said)
    else:
        assert done.stdout.split()[0] == said.split()[0]


def test_the_calls_of_record_in_the_text_are_right():
    calls = re.findall(
        r"^    (eventprof\.record\(.*?\))(?:\s+#.*)?$", README.read_text(), re.MULTILINE
    )

    assert len(calls) == 6
    for call in calls:
        assert eval(call, {"eventprof": eventprof}).state == "new"
