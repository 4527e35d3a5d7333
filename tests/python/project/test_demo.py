"""demo.py: what ./dev demo prints and writes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import children
import numpy as np
import pytest

import eventprof
from eventprof import demo


def run(folder, *arguments, start=("-m", "eventprof.demo"), path=sys.path):
    return children.run(
        sys.executable, "-B", *start, *arguments,
        status=None, cwd=folder,
        environment={"PYTHONIOENCODING": "utf-8", "PYTHONPATH": ":".join(filter(None, path))},
    )  # fmt: skip


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What it says and writes where pandas is not installed, of one run in place of five."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / "sitecustomize.py").write_text(
        "import sys\nsys.modules['pandas'] = None\nimport eventprof.demo\neventprof.demo._ROUNDS = 1\n"
    )
    done = run(folder, start=("-m", "eventprof", "demo"), path=[str(folder), *sys.path])
    assert done.returncode == 0, done.stderr
    return folder, done


def shown_count(done):
    return int(re.search(r"([\d,]+) events, in order", done.stdout)[1].replace(",", ""))


@pytest.mark.thorough
def test_nothing_is_lost_and_the_file_has_every_event(shown):
    folder, done = shown

    trace = eventprof.open(folder / "eventprof-demo.epr")

    assert "lost: none" in done.stdout
    assert len(trace.events) == shown_count(done) > 100_000
    assert (np.diff(trace.events["time"]) >= 0).all()
    assert {"call", "return", "c_call", "malloc", "free"} <= {*trace.events.categories("event")}
    assert (folder / "eventprof-demo.epr").stat().st_size < 40 << 20


@pytest.mark.thorough
def test_it_ends_with_a_command_that_looks_at_the_file(shown):
    folder, done = shown

    command = re.search(r"^  (.*) report eventprof-demo\.epr$", done.stdout, re.MULTILINE)[1]

    looked = subprocess.run(
        f"{command} report eventprof-demo.epr",
        shell=True,
        cwd=folder,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert looked.returncode == 0, looked.stderr
    assert "digest" in looked.stdout


@pytest.mark.thorough
def test_a_dataframe_has_every_event_too(tmp_path):
    pandas = pytest.importorskip("pandas")

    once = "from eventprof import demo; demo._ROUNDS = 1; demo.main()"
    done = run(tmp_path, "--out", "events.pkl", start=("-c", once))

    assert done.returncode == 0, done.stderr
    events = pandas.read_pickle(tmp_path / "events.pkl")
    assert len(events) == shown_count(done) > 100_000
    assert events.time.is_monotonic_increasing
    lines = re.findall(r">>> (.*)", done.stdout)
    children.program("\n".join(lines), cwd=tmp_path)


def test_live_memory_stays_where_nothing_happens():
    with eventprof.record(calls=False, c_calls=False) as rec:
        block = bytearray(8 << 20)
        time.sleep(0.2)  # without an event
        del block
    trace = rec.trace
    curves = []

    class Glyphs:
        def curve(self, values):
            curves.append(values)
            return ""

    demo._show_memory(trace, Glyphs())

    events = trace.events
    large = np.flatnonzero(np.ma.filled(events["size"], 0) >= 8 << 20)
    began, ended = (int(events["time"][row]) * len(curves[0]) // trace.duration for row in large)
    assert ended - began > 2
    assert curves[0][began + 1 : ended].min() >= 8 << 20


def test_it_fits_a_terminal_of_100_columns(shown):
    # Where the checkout is may take more than that.
    text = shown[1].stdout.replace(os.path.dirname(sys.executable), "bin")
    assert [line for line in text.splitlines() if len(line) > 100] == []
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


@pytest.mark.thorough
@pytest.mark.parametrize("out", ["events.txt", "nowhere/events.pkl", "nowhere/events.epr"])
def test_a_file_that_cannot_be_written_is_named_before_anything_runs(tmp_path, out):
    done = run(tmp_path, "--out", out)

    assert done.returncode == 2
    assert done.stdout == ""
    assert "--out" in done.stderr
