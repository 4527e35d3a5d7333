"""Exports that are made in parts: rows of SQLite, begins and ends, and the memory that they need."""

from __future__ import annotations

import contextlib
import sqlite3
import tracemalloc

import exported
import numpy as np
import pytest
from amounts import pairs
from exporting import require

import eventprof
from eventprof import _core
from eventprof.export import _lists, _rows, _view, sqlite
from eventprof.tables import TABLES, event_rows
from eventprof.tables.column import Column, encode
from eventprof.tables.table import Table

# ---- SQLite --------------------------------------------------------------------------------------


def test_every_width_of_a_value(tmp_path):
    edges = [s * (1 << k) + d for k in range(63) for s in (1, -1) for d in (-1, 0, 1)]
    numbers = np.array([0, 1, -1, (1 << 63) - 1, -(1 << 63), *edges], np.int64)
    count = len(numbers)
    reals = np.resize([0.0, -1.5, np.nan, np.inf, 5e-324], count)
    words = ["", "é", "x" * 51, "x" * 57, "x" * 58, 'quote"', None]
    codes, texts = encode([words[n % len(words)] for n in range(count)])
    columns = [
        Column("number", lambda: numbers, np.int64),
        Column("known", lambda: numbers, np.int64, null="negative"),
        Column("address", lambda: numbers.view(np.uint64), np.uint64),
        Column("flag", lambda: numbers > 0, bool),
        Column("small", lambda: numbers.astype(np.int8), np.int8),
        Column("real", lambda: reals, np.float64, null="nan"),
        Column("word", lambda: codes, words=texts),
    ]
    table = Table("made", columns, count)
    rows = np.arange(count) * 5 + 130
    path = tmp_path / "x.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as base:
        sqlite._insert(base, "made", table, iter([sqlite.with_rows(table, rows)]))
        found = base.execute("select * from made").fetchall()
    assert found == [
        (row, n, None if n < 0 else n, n, int(n > 0), small, None if x != x else x, words[number % 7])
        for number, (row, n, small, x) in enumerate(
            zip(rows.tolist(), numbers.tolist(), numbers.astype(np.int8).tolist(), reals.tolist(),
                strict=True)
        )
    ]  # fmt: skip


def test_rows_that_are_longer_than_a_page(tmp_path):
    def fill(builder):
        thread = builder.thread(0, "only", 71)
        function = builder.function("long" * 3000, "m", "f.py", 3)
        for number in range(5):
            thread.begin(2 * number, function)
            thread.end(2 * number + 1)

    trace = exported.made(fill)
    trace.export(tmp_path / "x.sqlite")

    with contextlib.closing(sqlite3.connect(tmp_path / "x.sqlite")) as base:
        calls, events = (
            base.execute(f"select * from {name}").fetchall() for name in ("calls", "events")
        )
    assert [len(calls), len(events)] == [5, 10]
    assert all("long" * 3000 in row for row in calls)


# ---- Begins and ends -----------------------------------------------------------------------------

PARENTS = np.array([-1, 0, 1, 0, -1], np.int32)


def nested(rows, room):
    found, place, top = [], 0, -1
    while True:
        steps, place, top = _core.nest_calls(PARENTS, rows, place, top, room)
        assert len(steps) <= 4 * room
        if not steps:
            return found
        found += np.frombuffer(steps, np.int32).tolist()


@pytest.mark.parametrize("room", [1, 2, 3, 100])
def test_parts_of_begins_and_ends_are_the_whole(room):
    assert nested(None, room) == [0, 1, 2, ~2, ~1, 3, ~3, ~0, 4, ~4]
    assert nested(np.array([4], np.int32), room) == [4, ~4]
    assert nested(np.array([], np.int32), room) == []


@pytest.mark.parametrize(
    ("rows", "place", "top"),
    [
        (np.array([1], np.int32), 0, -1),  # its parent is not open
        (np.array([0, 2, 1], np.int32), 0, -1),
        (np.array([5], np.int32), 0, -1),
        (np.array([-1], np.int32), 0, -1),
        (None, 6, -1),
        (None, -1, -1),
        (None, 0, 5),
        (None, 0, -2),
    ],
)
def test_what_is_not_nested_is_refused(rows, place, top):
    with pytest.raises(ValueError, match="nest_calls"):
        _core.nest_calls(PARENTS, rows, place, top, 100)


def test_parents_outside_of_the_table_are_refused():
    for parent in (1, 7, -2):
        with pytest.raises(ValueError, match="not a forest"):
            _core.nest_calls(np.array([-1, parent], np.int32), None, 0, -1, 100)


def test_calls_by_thread():
    rows, first = _core.calls_by_thread(np.array([1, 0, 1, 3], np.int32), 4)
    assert np.frombuffer(rows, np.int32).tolist() == [1, 0, 2, 3]
    assert np.frombuffer(first, np.int64).tolist() == [0, 1, 3, 3, 4]
    for thread in (-1, 2):
        with pytest.raises(ValueError, match="no such thread"):
            _core.calls_by_thread(np.array([thread], np.int32), 2)


# ---- Stacks --------------------------------------------------------------------------------------


def of_int32(*values):
    return np.array(values, np.int32)


def test_stacks_come_in_parts():
    deep = 3000
    parent, code = np.arange(-1, deep - 1, dtype=np.int32), np.zeros(deep, np.int32)
    weight, offsets = np.arange(deep), np.array([0, 2])
    parts, row = [], 0
    while row < deep:
        part, row = _core.collapsed_stacks(parent, weight, code, offsets, b"ab", row)
        parts.append(part)

    assert len(parts) > 5
    expected = (f"{';'.join(['ab'] * (node + 1))} {node}\n" for node in range(1, deep))
    assert b"".join(parts) == "".join(expected).encode()


def test_stacks_without_values_are_no_bytes():
    parent, code, offsets, none = of_int32(-1), of_int32(0), np.array([0, 2]), np.zeros(1, np.int64)

    assert _core.collapsed_stacks(parent, none, code, offsets, b"ab", 0) == (b"", 1)
    found = _core.pprof_samples(parent, code, code, none, 1, code, offsets, b"ab", 0)
    assert found == (b"", 1)


def test_direct_and_indirect_recursion():
    # a a b a a b
    parent, key = of_int32(-1, 0, 1, 2, 3, 4), of_int32(7, 7, 8, 7, 7, 8)
    first = np.array([1, 0, 1, 0, 0, 0], np.uint8)

    outer, through = (np.frombuffer(x, np.int32) for x in _core.recursion(parent, key, first))
    assert outer.tolist() == [0, 0, 2, 3, 3, 5]
    assert through.tolist() == [-1, -1, -1, 2, 2, 3]


@pytest.mark.parametrize(
    ("parent", "code", "offsets"),
    [((0,), (0,), (0, 2)), ((-2,), (0,), (0, 2)), ((-1,), (1,), (0, 2)), ((-1,), (-2,), (0, 2)),
     ((-1,), (0,), (0, 3)), ((-1,), (0,), (1, 2)), ((-1,), (0, 0), (0, 2)), ((-1,), (0,), ())],
)  # fmt: skip
def test_damaged_stacks_are_refused(parent, code, offsets):
    parent, code, offsets = of_int32(*parent), of_int32(*code), np.array(offsets, np.int64)
    one = np.ones(1, np.int64)

    with pytest.raises(ValueError, match="stacks: "):
        _core.collapsed_stacks(parent, one, code, offsets, b"ab", 0)
    with pytest.raises(ValueError, match="stacks: "):
        _core.pprof_samples(parent, parent, parent, one, 1, code, offsets, b"ab", 0)


def events_of(step, function, offsets=(0, 1, 2), last=0):
    one = np.ones(1, np.int64)
    return _core.speedscope_events(
        of_int32(step), one, one, of_int32(function), np.array(offsets), b"OC", last
    )


def test_times_of_events_never_decrease():
    assert events_of(0, 0) == (b"O1},\n", 1)
    assert events_of(~0, -1) == (b"C2},\n", 2)
    late = (1 << 63) - 1
    assert events_of(~0, 0, last=late) == (b"C%d},\n" % late, late)
    assert [events_of(0, 0, last=10**k)[0] for k in range(19)] == [
        b"O%d},\n" % 10**k for k in range(19)
    ]


def test_damaged_events_are_refused():
    for step, function in ((1, 0), (~1, 0), (0, 1)):
        with pytest.raises(IndexError, match="a step is no call"):
            events_of(step, function)
    for wrong in ({"offsets": (0, 1, 3)}, {"offsets": (0,)}, {"last": -1}):
        with pytest.raises(ValueError):
            events_of(0, 0, **wrong)


def test_recursion_without_a_first_node_is_refused():
    with pytest.raises(ValueError, match="first in no stack"):
        _core.recursion(of_int32(-1), of_int32(1), b"\0")


# ---- Memory --------------------------------------------------------------------------------------

#: Bytes that each format may need for a call, beyond the trace: at most three columns of int32; DuckDB
#: takes the tables of answers (tree, own, gil) whole, which are in its file, too.
BYTES = {"perfetto": 9, "chrome": 9, "firefox": 13, "speedscope": 2, "csv": 2,
         "jsonl": 2, "sqlite": 6, "duckdb": 24}  # fmt: skip


def calls_of(count):
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    with eventprof.record(memory=False, buffer="256 MiB") as rec:
        for _ in range(count):
            fib(17)
    return rec.trace


@pytest.fixture(scope="module")
def short_and_long():
    return calls_of(2), calls_of(6)  # of 5,167 calls each


@pytest.mark.thorough
@pytest.mark.parametrize("word", BYTES)
def test_memory_grows_by_a_few_bytes_for_a_call(short_and_long, tmp_path, monkeypatch, word):
    """Of what Python and NumPy allocate. What parts need is the same in both traces."""
    require(word)
    for module in (_view, _lists, _rows, sqlite, event_rows):
        monkeypatch.setattr(module, "AT_A_TIME", 1 << 12)
    peaks = []
    for trace in short_and_long:
        for name in TABLES:
            for column in getattr(trace, name)._columns.values():
                column.values()
        trace.export(
            tmp_path / f"warm.{word}", word, force=True
        )  # what is made once belongs to the trace
        tracemalloc.start()
        try:
            trace.export(tmp_path / f"x.{word}", word, force=True)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()

    short, long = short_and_long
    each = (peaks[1] - peaks[0]) / (len(long.calls) - len(short.calls))
    assert each < BYTES[word], peaks


@pytest.fixture(scope="module")
def longer():
    """Traces of more than 2 MiB of int32, so that the core makes the columns."""
    return calls_of(110), calls_of(160)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("what", "word"), pairs(["functions", "between", "threads"], ["csv", "chrome"])
)
def test_filters_make_no_arrays_of_all_calls(longer, tmp_path, word, what):
    """Of what Python and NumPy allocate; columns of the core may lie in files."""
    peaks = []
    for trace in longer:
        options = {
            "functions": ["*fib"],
            "between": (1, trace.duration - 1),
            "threads": [trace.threads["name"][0]],
        }
        _ = trace.calls, trace.functions
        tracemalloc.start()
        try:
            trace.export(tmp_path / "x", word, force=True, **{what: options[what]})
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()

    short, long = longer
    # A byte or two for each call: whether it is chosen.
    assert (peaks[1] - peaks[0]) / (len(long.calls) - len(short.calls)) < 4, peaks


PARENTS_OF_TWO_TREES = of_int32(-1, 0, 1, 1, -1, 4)


def test_chosen_calls_are_numbered_and_others_have_the_number_around_them():
    marks = np.array([0, 1, 0, 1, 0, 0], np.uint8)
    assert _core.number_marked_calls(PARENTS_OF_TWO_TREES, marks).tolist() == [-1, 0, 0, 1, -1, -1]
    _core.mark_inner_calls(PARENTS_OF_TWO_TREES, marks)
    assert marks.tolist() == [0, 1, 1, 1, 0, 0]
    assert _core.depths_of_calls(PARENTS_OF_TWO_TREES).tolist() == [0, 1, 2, 2, 0, 1]


def test_calls_before_the_call_around_them_are_refused():
    for parents in (of_int32(1, -1), of_int32(0), of_int32(-1, 7)):
        marks = np.zeros(len(parents), np.uint8)
        for use in (_core.mark_inner_calls, _core.number_marked_calls):
            with pytest.raises(ValueError, match="before the call around it"):
                use(parents, marks)
        with pytest.raises(ValueError, match="before the call around it"):
            _core.depths_of_calls(parents)
    with pytest.raises(ValueError, match="a byte for each"):
        _core.number_marked_calls(PARENTS_OF_TWO_TREES, b"\0")
