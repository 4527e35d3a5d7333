"""replay.py makes what the tables have, of programs of every sort, and sees a number that is wrong."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest
import raw
import replay

import eventprof

pytestmark = pytest.mark.version

# replay.py knows of waits what events under the interpreter's lock say.
NEEDS_LOCK = pytest.mark.skipif(not raw.HAS_GIL, reason="no thread waits for an interpreter's lock")


class Changed:
    """The core of a trace, one number of one column of which is another one."""

    def __init__(self, core, table, column):
        self._core, self._table, self._column = core, table, column

    def __getattr__(self, name):
        if name != self._table:
            return getattr(self._core, name)
        return self._changed

    def _changed(self, column):
        values = getattr(self._core, self._table)(column)
        if column != self._column:
            return values
        values = np.array(values)
        values[len(values) // 2] += 1
        return values


class Boom(Exception):
    pass


def leaf(n):
    return bytes(n)


def deep(n):
    return leaf(1000) if n == 0 else deep(n - 1)


def numbers(count):
    for n in range(count):
        kept = leaf(n)
        yield len(kept)


def raises():
    kept = leaf(500)
    raise Boom(kept)


def program():
    grown = []
    for n in range(200):
        grown.append(str(n))
    sorted(grown, key=len)
    deep(20)
    list(numbers(5))
    abandoned = numbers(3)
    next(abandoned)
    abandoned.close()
    try:
        raises()
    except Boom:
        pass
    return grown


def recorded(path, **options):
    """A recording of program() by three threads and this one, from a file."""
    with eventprof.record(output=path, **options):
        threads = [threading.Thread(target=program) for _ in range(3)]
        for thread in threads:
            thread.start()
        kept = program()
        for thread in threads:
            thread.join()
    assert len(kept) == 200
    return eventprof.open(path)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"c_calls": False},
        {"calls": False, "c_calls": False},
        {"memory": False},
        {"waits": sys.platform == "linux"},
        {"exclude": ["*leaf"], "max_depth": 6},
        {"buffer": "1 MiB", "on_full": "stop"},
    ],
    ids=repr,
)
def test_tables_are_those_of_the_events(tmp_path, options):
    found = replay.differences(recorded(tmp_path / "a.epr", **options))

    assert found.lines == []
    assert found.compared > 1000


def test_tables_of_a_ring_are_those_of_the_events_that_are_left():
    with eventprof.record(buffer="1 MiB", on_full="overwrite") as rec:
        for _ in range(100):
            kept = program()
        kept += program()
    assert rec.trace.loss

    assert replay.differences(rec.trace).lines == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("calls", "duration"), ("calls", "self"), ("calls", "parent"), ("calls", "caller_line"),
        pytest.param("calls", "waited", marks=NEEDS_LOCK), ("calls", "allocated"),
        ("calls", "freed_self"), ("allocations", "size"), ("allocations", "end"),
        ("allocations", "freed_in"), ("allocations", "flags"),
    ],
)  # fmt: skip
def test_one_number_that_is_wrong_is_seen(tmp_path, table, column):
    trace = recorded(tmp_path / "a.epr")
    made = replay.Replay(trace)
    trace._core = Changed(trace._core, table, column)

    lines = replay.differences(trace, made).lines

    assert [line for line in lines if line.startswith(f"{table}.{column}: 1 of ")], lines


def test_one_event_that_is_missing_is_seen(tmp_path):
    """A replay without the last return: times, functions, the tree and own lines differ."""
    trace = recorded(tmp_path / "a.epr")
    kinds = trace._core.events("kind")
    last = int(np.flatnonzero(kinds == replay.KIND["RETURN"])[-1])
    rows = list(replay._rows(trace._core))
    del rows[last]
    before, replay._rows = replay._rows, lambda core: iter(rows)
    try:
        made = replay.Replay(trace)
    finally:
        replay._rows = before

    lines = replay.differences(trace, made).lines

    tables = {line.split(" ")[0].partition(".")[0].rstrip(",:") for line in lines}
    assert {"calls", "functions", "nodes", "own"} <= tables, lines
