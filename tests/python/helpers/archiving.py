"""Recordings that are saved, and comparing them with what is opened."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path

import pytest

import eventprof

DATA = Path(__file__).parents[2] / "data"


TABLES = ("events", "calls", "allocations", "functions", "memory", "threads", "resident")


def recorded(run, **options):
    with eventprof.record(**options) as rec:
        run()
    return rec.trace


def work(rounds=20):
    return [bytearray(12347) for _ in range(rounds)] + sorted(range(rounds), key=lambda x: -x)


def open_or_skip(path):
    """Open a file that was kept; libzstd may be absent where the extension was built."""
    try:
        return eventprof.open(path)
    except eventprof.UnsupportedError as error:
        assert "which this build of eventprof lacks" in str(error)
        pytest.skip(str(error))


def digest(trace):
    """Of all tables."""
    all_of_it = hashlib.sha256()
    for name in TABLES:
        all_of_it.update(repr(getattr(trace, name).to_arrow().to_pydict()).encode())
    return all_of_it.hexdigest()


def assert_same_table(a, b):
    assert a.columns == b.columns
    assert len(a) == len(b)
    ours, theirs = a.to_arrow(), b.to_arrow()
    for name in a.columns:
        x, y = ours.column(name), theirs.column(name)
        assert x.type == y.type
        assert x.equals(y), (a, name)


def assert_same(a, b):
    for name in TABLES:
        assert_same_table(getattr(a, name), getattr(b, name))
    assert a.metadata == b.metadata
    assert a.duration == b.duration
    assert a.pairing == b.pairing
    assert (a.loss.by_kind, a.loss.by_thread, a.loss.reason) == (
        b.loss.by_kind, b.loss.by_thread, b.loss.reason,
    )  # fmt: skip
    assert repr(a) == repr(b)
    assert str(a) == str(b)


def assert_same_answers(a, b):
    for time in (0, a.duration // 3, a.duration):
        assert repr(a.at(time)) == repr(b.at(time))
    assert repr(a.between(a.duration // 4, a.duration // 2)) == repr(
        b.between(a.duration // 4, a.duration // 2)
    )
    assert repr(a.peak()) == repr(b.peak())
    for by in ("site", "function", "stack"):
        assert_same_table(a.leaks(by), b.leaks(by))
        assert_same_table(a.temporary(by), b.temporary(by))
    for function in range(min(5, len(a.functions))):
        assert_same_table(a.callers(function), b.callers(function))
        assert_same_table(a.callees(function), b.callees(function))
        assert repr(a.during(function)) == repr(b.during(function))
    assert_same_table(a.memory_bins(17), b.memory_bins(17))
    assert_same_table(a.memory_of("obj"), b.memory_of("obj"))
    assert_same_table(a.diff(b), b.diff(a))


def saved_and_opened(trace, tmp_path):
    path = tmp_path / "trace.epr"
    trace.save(path, force=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return eventprof.open(path)
