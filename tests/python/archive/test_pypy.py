"""What PyPy writes, opened here. Without PyPy, the tests that need it are skipped.

PyPy's own tests are in tests/pypy. EVENTPROF_PYPY names an interpreter.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache
from glob import glob
from pathlib import Path

import children
import numpy as np
import pytest
from read_archive import read

import eventprof
from eventprof import _core
from eventprof.tables.runtime import table as runtime_table

SOURCES = Path(__file__).resolve().parents[3] / "python"

PROGRAM = """
import json, sys, threading
sys.path.insert(0, sys.argv[1])
import eventprof
from eventprof._pypy import core, runtime

def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)

def steps(n):
    for step in range(n):
        yield step

def raising():
    raise ValueError

def work():
    fib(12)
    sum([abs(step) for step in steps(5)])
    try:
        raising()
    except ValueError:
        pass
    try:
        [].index(1)
    except ValueError:
        pass
    unfinished = steps(2)
    next(unfinished)

with eventprof.record() as rec:
    work()
    thread = threading.Thread(target=fib, args=(5,), name="a thread")
    thread.start()
    thread.join()
    runtime._on_trace_too_long("pypyjit", (fib.__code__, 0, False))
trace = rec.trace
trace.save(sys.argv[2])
told = {
    "kinds": core.kind_table(),
    "stats": trace.stats,
    "tables": {
        name: {column: list(getattr(trace, name)[column]) for column in getattr(trace, name).columns}
        for name in ("events", "calls", "functions", "threads", "jit", "gc")
    },
}
with open(sys.argv[3], "w") as file:
    json.dump(told, file)
"""


@cache
def find_pypy() -> str | None:
    candidates = [os.environ.get("EVENTPROF_PYPY"), shutil.which("pypy3.11"), shutil.which("pypy3")]
    pyenv = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    candidates += sorted(glob(f"{pyenv}/versions/pypy3.11*/bin/pypy3"), reverse=True)
    code = "import sys; print(sys.implementation.name, sys.version_info >= (3, 11))"
    for candidate in filter(None, candidates):
        try:
            done = children.run(candidate, "-c", code, status=None)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.stdout.split() == ["pypy", "True"]:
            return str(candidate)
    return None


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The archive, and what PyPy says that its tables are."""
    pypy = find_pypy()
    if pypy is None:
        pytest.skip("no PyPy of Python 3.11 here (EVENTPROF_PYPY, pypy3 on PATH, pyenv)")
    directory = tmp_path_factory.mktemp("pypy")
    archive, tables, program = (directory / name for name in ("x.epr", "x.json", "x.py"))
    program.write_text(PROGRAM)
    children.run(pypy, program, SOURCES, archive, tables)
    return archive, json.loads(tables.read_text())


def values(table, column):
    array = table[column]
    return [None if item is np.ma.masked else item for item in array.tolist()]


def test_the_tables_are_those_that_pypy_has(written):
    archive, answer = written

    trace = eventprof.open(archive)

    events = answer["tables"]["events"]
    rows = [i for i, word in enumerate(events["event"]) if not word.startswith(("jit_", "gc_"))]
    for column in ("time", "event", "thread", "name", "line", "depth", "caller_line"):
        assert values(trace.events, column) == [events[column][i] for i in rows], column
    for column in ("start", "duration", "self", "thread", "name", "file", "line", "kind", "depth", "parent",
                   "caller_line", "flags"):  # fmt: skip
        assert values(trace.calls, column) == answer["tables"]["calls"][column], column
    functions = answer["tables"]["functions"]
    key = {name: row for row, name in enumerate(functions["name"]) if functions["calls"][row]}
    seen = 0
    for row in trace.functions:
        if row.calls and list(trace.functions["name"]).count(row.name) == 1:
            seen += 1
            for column in ("module", "file", "line", "kind", "calls", "resumes", "recursive", "total",
                           "self", "mean", "min", "max", "p50", "p95", "p99"):  # fmt: skip
                assert getattr(row, column) == functions[column][key[row.name]], (row, column)
    assert seen >= 5
    for column in ("name", "native_id", "first", "last", "recorded", "lost"):
        assert values(trace.threads, column) == answer["tables"]["threads"][column], column
    assert trace.metadata["python"].startswith("pypy 3.11")
    assert not trace.loss and trace.file["missing"] == []


def test_what_compiler_and_collector_told_is_in_the_table_runtime(written):
    archive, answer = written

    table = eventprof.open(archive).runtime

    jit, gc = answer["tables"]["jit"], answer["tables"]["gc"]
    assert len(table) == len(jit["time"]) + len(gc["time"]) >= 1
    of_jit = np.array([word.startswith("jit_") for word in table["event"]])
    for column in ("time", "event", "name", "line", "loop", "asmlen", "type", "jitdriver"):
        if column in table:
            assert values(table[of_jit], column) == jit[column], column
    last = table[of_jit][-1]
    assert (last.event, last.name) == ("jit_trace_too_long", "fib")
    assert json.loads(last.details)["jitdriver"] == "pypyjit"


def test_saved_again_nothing_is_lost(written, tmp_path):
    archive, _ = written
    trace = eventprof.open(archive)

    trace.save(tmp_path / "again.epr")
    again = eventprof.open(tmp_path / "again.epr")

    assert list(map(tuple, again.runtime)) == list(map(tuple, trace.runtime))
    assert list(map(tuple, again.events)) == list(map(tuple, trace.events))
    assert "runtime_events" not in again.metadata


def test_the_file_is_as_the_specification_says(written):
    archive, _ = written

    known = read(archive)

    assert len(known["events"]) == len(eventprof.open(archive).events)
    assert known["metadata"]["runtime_events"]["columns"] == [
        "time", "event", "thread", "name", "module", "file", "line", "details",
    ]  # fmt: skip


def test_kinds_are_numbered_as_in_the_event_table(written):
    _, answer = written

    # PyPy's table lacks the last field, the meaning.
    here = [row[:-1] for row in _core.kind_table()[: len(answer["kinds"])]]
    assert [tuple(row[:-1]) for row in answer["kinds"]] == here


def test_a_trace_of_cpython_has_an_empty_table_runtime():
    with eventprof.record(memory=False) as rec:
        len("")

    assert len(rec.trace.runtime) == 0
    assert rec.trace.runtime.columns[:3] == ("time", "event", "thread")


@pytest.mark.parametrize(
    "found",
    [
        None, 7, {}, {"rows": 7}, {"rows": [7, [], [1, 2, 3, 4, 5, 6, 7, 8]]},
        {"rows": [["x", "gc_minor", 0, None, None, None, None, {}]]},
    ],
)  # fmt: skip
def test_rows_of_a_damaged_file_are_left_out(found):
    assert len(runtime_table(found)) == 0


def test_numbers_that_do_not_fit_are_unknown():
    row = [5, "gc_minor", 0, None, None, None, 1 << 40, {"count": 1 << 70, "odd": [1], "time": 3}]

    table = runtime_table({"rows": [row]})

    assert tuple(values(table, c)[0] for c in ("time", "line", "count")) == (5, None, None)
    assert "odd" not in table and json.loads(table["details"][0])["odd"] == [1]
