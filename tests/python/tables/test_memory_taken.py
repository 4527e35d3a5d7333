"""Tables of large traces tell before they take much memory."""

from __future__ import annotations

import warnings

import pytest

import eventprof
from eventprof.tables import memory_taken

pytestmark = pytest.mark.newest

CALLS = 12_347


@pytest.fixture
def trace(monkeypatch):
    """A trace with calls, events and blocks; 1,000 bytes are worth a look at the system."""
    monkeypatch.setattr(memory_taken, "LEAST_BYTES", 1000)
    kept = []
    with eventprof.record() as rec:
        for _ in range(CALLS):
            kept.append(bytearray(77))
    return rec.trace


def available(monkeypatch, count, *, files=True):
    monkeypatch.setattr(memory_taken, "available_memory", lambda: count)
    monkeypatch.setattr(memory_taken._core, "columns_have_files", lambda: files)


def told(use):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        use()
    return [str(each.message) for each in found]


@pytest.mark.parametrize("name", ["events", "calls", "allocations"])
def test_a_table_that_would_take_too_much_says_so_once(trace, monkeypatch, name):
    available(monkeypatch, 50_000)

    (text,) = told(lambda: getattr(trace, name)["name"])
    again = told(lambda: [getattr(trace, name)[column] for column in getattr(trace, name).columns])

    assert text.startswith(f"trace.{name} has {len(getattr(trace, name)):,} rows: what is asked ")
    assert "of 48.8 KiB that are available" in text
    assert f"--table {name}" in text
    assert again == []


def test_the_warning_names_the_line_of_the_user(trace, monkeypatch):
    available(monkeypatch, 50_000)

    with pytest.warns(RuntimeWarning, match="trace.calls") as found:
        trace.calls["name"]

    assert found[0].filename == __file__


def test_numbers_in_files_take_no_memory_and_without_files_they_do(trace, monkeypatch):
    rows = len(trace.calls)
    numbers = [c.name for c in trace.calls._columns.values() if c.words is None and not c.nullable]
    del trace.calls
    assert "duration" in numbers

    available(monkeypatch, 8 * rows, files=True)
    assert told(lambda: [trace.calls[name] for name in numbers]) == []
    del trace.calls
    available(monkeypatch, 8 * rows, files=False)
    assert len(told(lambda: [trace.calls[name] for name in numbers])) == 1


def test_what_was_taken_counts_as_it_was_available_before(trace, monkeypatch):
    rows = len(trace.calls)
    calls = trace.calls
    # Two texts: 8 bytes a row as objects. The second would be more than half.
    first = rows * 8
    available(monkeypatch, 3 * first)
    assert told(lambda: calls["name"]) == []
    available(monkeypatch, 2 * first)  # of the 3 there were

    assert len(told(lambda: calls["file"])) == 1


def test_to_numpy_takes_a_row_of_all_columns(trace, monkeypatch):
    part = trace.calls[["start", "duration", "thread"]]
    size = len(part) * part.to_numpy().dtype.itemsize
    available(monkeypatch, size)

    assert len(told(part.to_numpy)) == 1


@pytest.mark.parametrize("use", [
    lambda trace: trace.functions["name"],
    lambda trace: str(trace),
    lambda trace: trace.export("x.csv", "csv", table="calls"),
])  # fmt: skip
def test_what_takes_little_says_nothing(trace, monkeypatch, tmp_path, use):
    monkeypatch.chdir(tmp_path)
    available(monkeypatch, 50_000)
    (text,) = told(lambda: (trace.calls["name"],))  # it would be told

    del trace.calls
    available(monkeypatch, 400_000)
    assert "trace.calls" in text
    assert told(lambda: use(trace)) == []
