"""demo.py: what ./dev demo prints and writes."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

from eventprof import demo

pd = pytest.importorskip("pandas")


def run(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-X", f"pycache_prefix={folder}", "-m", "eventprof.demo", *arguments],
        cwd=folder,
        env={"PYTHONIOENCODING": "utf-8", "PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        encoding="utf-8",
        timeout=240,
    )


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    done = run(folder)
    assert done.returncode == 0, done.stderr
    return folder, done


def test_nothing_is_lost_and_the_file_has_every_event(shown):
    folder, done = shown

    count = int(re.search(r"([\d,]+) events, in order", done.stdout)[1].replace(",", ""))

    assert "lost: none" in done.stdout
    events = pd.read_pickle(folder / "eventprof-demo.pkl")
    assert len(events) == count > 100_000
    assert events.time.is_monotonic_increasing
    assert {"call", "return", "c_call", "malloc", "free"} <= set(events.event)


def test_the_line_that_opens_the_file_works(shown):
    folder, done = shown

    lines = re.findall(r">>> (.*)", done.stdout)

    subprocess.run([sys.executable, "-c", "\n".join(lines)], cwd=folder, check=True)


def test_it_fits_a_terminal_of_100_columns(shown):
    assert [line for line in shown[1].stdout.splitlines() if len(line) > 100] == []
    assert shown[1].stderr == ""


def test_the_functions_of_the_program_and_their_lines_are_shown(shown):
    text = shown[1].stdout

    assert re.search(r"digest +demo\.py:\d+", text)
    assert re.search(r"call +digest +(_WorkItem|WorkerContext)\.run, thread\.py:\d+", text)
    assert re.search(r"call +\. Path\.read_text +digest, demo\.py:\d+", text)
    assert all(f"worker_{i}" in text for i in range(3))


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", None])
def test_a_plain_terminal_gets_plain_characters(encoding):
    glyphs = demo._Glyphs(encoding)

    drawn = glyphs.bar(0.5, 8) + glyphs.curve(np.array([0, 1, 5, 9]))

    assert drawn.isascii()
    assert glyphs.bar(0.5, 8) == "####    "
    assert glyphs.curve(np.array([0, 9])) == " #"


@pytest.mark.parametrize("out", ["events.txt", "nowhere/events.pkl"])
def test_a_file_that_cannot_be_written_is_named_before_anything_runs(tmp_path, out):
    done = run(tmp_path, "--out", out)

    assert done.returncode == 2
    assert done.stdout == ""
    assert "--out" in done.stderr
