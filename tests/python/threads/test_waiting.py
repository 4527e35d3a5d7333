"""Who held the interpreter's lock, and who waited for it."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import raw

import eventprof


def spin(until):
    count = 0
    while time.perf_counter() < until:
        count += len("text")
    return count


@pytest.mark.thorough
@pytest.mark.skipif(not raw.HAS_GIL, reason="without the lock nobody waits for it")
def test_a_call_waits_while_other_threads_hold_the_lock():
    until = time.perf_counter() + 1.0
    threads = [threading.Thread(target=spin, args=(until,), name=f"spin {n}") for n in range(2)]
    with eventprof.record(memory=False) as rec:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    trace = rec.trace

    # A tenure: a run of one thread's events. How much lies between tenures is the machine's affair.
    when, who = trace.events["time"], trace.events["thread"]
    first = np.flatnonzero(np.diff(who, prepend=-1))
    last = np.append(first[1:], len(who)) - 1
    wanted = 0
    spins = np.flatnonzero(trace.calls["name"] == "spin")
    for thread, begin, length in zip(
        *(trace.calls[name][spins].tolist() for name in ("thread", "start", "duration")),
        strict=True,
    ):
        others = (who[first] != thread) & (when[first] >= begin) & (when[last] <= begin + length)
        wanted += int((when[last] - when[first])[others].sum())
    tree = trace._tree
    names = [row[0] for row in tree.functions]
    node = [n for n in range(1, tree.count) if tree.function[n] == names.index("spin")]
    assert len(spins) == 2
    assert sum(int(tree.nodes["waited"][n]) for n in node) == wanted > 0
    assert int(trace.calls["waited"][spins].sum()) == wanted
    assert int(trace.functions["waited"][names.index("spin")]) == wanted
    assert len(trace.gil) == len(first) > 2


def share_of_waiting():
    """Return the part of each of two CPU-bound threads' time in which it waited for the lock."""

    def work(until):
        count = 0
        while time.thread_time() < until:  # as much of the processor for both
            count += len("text")

    threads = [threading.Thread(target=work, args=(0.5,), name=f"worker {n}") for n in range(2)]
    with eventprof.record(memory=False, on_full="grow") as rec:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    calls = rec.trace.calls
    rows = np.flatnonzero([name.endswith(".work") for name in calls["name"]])
    assert len(rows) == 2
    function = int(calls["function"][rows[0]])
    functions = rec.trace.functions
    assert int(functions["waited"][function]) == int(calls["waited"][rows].sum())
    assert int(functions["total"][function]) == int(calls["duration"][rows].sum())
    return (calls["waited"][rows] / calls["duration"][rows]).tolist()


@pytest.mark.thorough
@pytest.mark.skipif(not raw.HAS_GIL, reason="without the lock nobody waits for it")
def test_of_two_busy_threads_each_waits_half_of_its_time():
    tries = []
    for _ in range(5):  # another program on the machine takes its share of both
        tries.append(share_of_waiting())
        if all(abs(share - 0.5) <= 0.05 for share in tries[-1]):
            return
    pytest.fail(f"the parts of their time that two threads waited: {tries}")


def test_one_thread_waits_for_nobody():
    with eventprof.record(threads="current") as rec:
        sum(len(str(n)) for n in range(100))

    assert not rec.trace.tree["waited"].any() or not raw.HAS_GIL
    if raw.HAS_GIL:
        assert len(rec.trace.gil) == 1


def test_free_threaded_recordings_say_that_there_is_no_lock(monkeypatch):
    with eventprof.record() as rec:
        len("text")
    monkeypatch.setitem(rec.trace._recorder_metadata, "gil", False)

    assert len(rec.trace.gil) == 0
    assert "no such lock" in rec.trace.gil.name
    for table in (rec.trace.tree, rec.trace.functions, rec.trace.calls):
        assert np.ma.getmaskarray(table["waited"]).all()
