"""Runs of the garbage collector, against gc.callbacks in Python."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections import Counter

import pytest
import raw

import eventprof

pytestmark = pytest.mark.usefixtures("restored")

SIZE = 12347


@pytest.fixture(autouse=True)
def _only_when_asked():
    """The collector runs when a test says so."""
    gc.collect()
    gc.disable()
    before = list(gc.callbacks)
    yield
    gc.enable()
    assert gc.callbacks == before


class Cycle:
    def __init__(self):
        self.own = self
        self.block = bytearray(SIZE)


@contextlib.contextmanager
def witness():
    """[(phase, generation, collected, uncollectable, native id of the thread)]."""
    seen: list = []

    def callback(phase, info):
        seen.append(
            (phase, info["generation"], info["collected"], info["uncollectable"],
             threading.get_native_id())
        )  # fmt: skip

    gc.callbacks.append(callback)
    try:
        yield seen
    finally:
        gc.callbacks.remove(callback)


def garbage(cycles):
    for _ in range(cycles):
        Cycle()


def runs(trace):
    """As the witness's, of the ends."""
    table = trace.gc
    native = trace.threads["native_id"]
    return [
        ("stop", row.generation, row.collected, row.uncollectable, int(native[row.thread]))
        for row in table
    ]


@pytest.mark.thorough
def test_runs_are_those_that_callbacks_see(backend, tmp_path):
    def on_thread():
        garbage(3)
        gc.collect(1)

    log = tmp_path / "log.epr"
    with (
        witness() as seen,
        eventprof.record(gc=True, backend=backend) as rec,
        eventprof.record(gc=True, calls=False, memory=False, c_calls=False, output=log) as other,
    ):
        for generation in (0, 1, 2, 2):
            garbage(5)
            gc.collect(generation)
        thread = threading.Thread(target=on_thread)
        thread.start()
        thread.join()
        gc.collect()
    stops = [each for each in seen if each[0] == "stop"]
    assert [each[0] for each in seen] == ["start", "stop"] * 6
    rec.trace.save(tmp_path / "saved.epr")
    traces = [rec.trace, other.trace, eventprof.open(log), eventprof.open(tmp_path / "saved.epr")]
    for trace in traces:
        assert runs(trace) == stops
        assert (trace.gc["flags"] == 0).all() and (trace.gc["duration"] > 0).all()
        words = Counter(trace.events["event"].tolist())
        assert words["gc_start"] == words["gc_stop"] == words["gc_collected"] == 6
        values = trace.events["value"][trace.events["event"] == "gc_collected"]
        assert values.tolist() == [each[2] for each in stops]
        calls = trace.calls[trace.gc["call"]]
        assert set(calls["kind"].tolist()) == {"gc"}
        assert calls["name"].tolist() == [f"gc generation {each[1]}" for each in stops]
    names = rec.trace.functions["name"]
    callers = [names[row].rpartition(".")[2] for row in rec.trace.gc["caller"]]
    assert callers.count("on_thread") == 1
    assert rec.displaced == other.displaced == ()


def test_runs_know_the_bytes():
    cycles = 20
    with eventprof.record(gc=True) as rec:
        garbage(cycles)
        gc.collect()
        gc.collect()
    first, second = rec.trace.gc
    assert first.live_before >= cycles * SIZE > first.live_after >= 0
    assert first.freed >= cycles * SIZE > second.freed
    if raw.HAS_GIL:  # without, the collector allocates, too
        assert second.live_before - second.live_after == pytest.approx(second.freed, abs=SIZE)
    time, live = rec.trace.memory["time"], rec.trace.memory["live"]
    inside = (time >= first.start) & (time <= first.start + first.duration)
    assert first.live_after == live[inside][-1]
    with eventprof.record(gc=True, memory=False) as rec:
        gc.collect()
    (row,) = rec.trace.gc
    assert (row.freed, row.live_before, row.live_after) == (None, None, None)


def test_what_finalizers_do_lies_in_the_run():
    class Loud:
        def __init__(self):
            self.own = self

        def __del__(self):
            eventprof.mark("finalized")

    with eventprof.record(gc=True, memory=False) as rec:
        Loud()
        gc.collect()
    trace = rec.trace
    (row,) = trace.gc
    (time,) = trace.marks["time"]
    assert row.start <= time <= row.start + row.duration
    calls = trace.calls
    finalizer = calls["name"].tolist().index(f"{Loud.__qualname__}.__del__")
    assert calls["parent"][finalizer] == row.call
    assert trace.pairing["calls_misplaced"] == 0


def test_only_who_asked_has_them():
    with eventprof.record(memory=False) as plain:
        with eventprof.record(gc=True, memory=False) as asked:
            gc.collect()
        count = len(raw.gc_callbacks())
        gc.collect()
    assert len(asked.trace.gc) == 1 and len(plain.trace.gc) == 0
    assert "gc" not in plain.trace.calls["kind"]
    assert len(gc.callbacks) == count


def test_nothing_is_left_in_the_list_and_nobody_elses_is_taken():
    with witness() as seen:
        before = list(gc.callbacks)
        with eventprof.record(gc=True):
            assert len(raw.gc_callbacks()) == len(before) + 1
        assert gc.callbacks == before
        gc.collect()
        assert len(seen) == 2


@pytest.mark.thorough
def test_a_program_that_empties_the_list_displaces_it():
    before = list(gc.callbacks)
    rec = eventprof.record(gc=True, memory=False)
    with rec:
        gc.collect()
        gc.callbacks.clear()
        gc.collect()
    assert rec.displaced == ("gc",)
    assert len(rec.trace.gc) == 1
    assert "gc" in rec.trace.metadata["displaced"]
    with rec:  # it is put in again
        gc.collect()
    assert rec.displaced == () and len(rec.trace.gc) == 1
    gc.callbacks[:] = before


def test_a_list_that_the_program_put_back_with_ours_in_it_is_cleaned():
    before = list(gc.callbacks)
    with eventprof.record(gc=True, memory=False) as rec:
        gc.callbacks[:] = [*gc.callbacks, *gc.callbacks]
        gc.collect()
    left = [each for each in gc.callbacks if each not in before]
    assert left == []
    gc.callbacks[:] = before
    assert rec.displaced == ()


def test_a_window_that_begins_and_ends_in_a_run():
    rec = eventprof.record(gc=True, memory=False)

    class Starts:
        def __init__(self, what):
            self.own = self
            self.what = what

        def __del__(self):
            self.what()

    Starts(rec.start)
    gc.collect()
    Starts(rec.stop)
    gc.collect()
    flags = rec.trace.gc["flags"].tolist()
    assert flags == [2] and rec.trace.pairing["unmatched_ends"] == 1


def test_the_callback_is_harmless_when_the_program_calls_it():
    with eventprof.record(gc=True, memory=False) as rec:
        (callback,) = [each for each in gc.callbacks if "eventprof" in repr(each) or
                       getattr(each, "__name__", "") == "gc_callback"]  # fmt: skip
        for arguments in ((), (1,), ("start",), ("start", None), (None, {}), ("", {})):
            assert callback(*arguments) is None
        callback("stop", {"generation": "x", "collected": 10**30, "uncollectable": -1})
    assert len(rec.trace.gc) <= 1
    assert callback("start", {"generation": 1}) is None


def test_arguments():
    with pytest.raises(TypeError, match="gc must be True or False"):
        eventprof.record(gc=2)
    assert len(eventprof.record(calls=False, c_calls=False, memory=False, gc=True).options) > 0
