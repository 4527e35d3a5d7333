"""Threads that record at the same time. The tests run on every build; they matter on builds without a GIL."""

from __future__ import annotations

import _thread
import gc
import sys
import threading
import time

import children
import numpy as np
import pytest
import raw

import eventprof

THREADS = 8
ROUNDS = 3000
WITHOUT_GIL = pytest.mark.skipif(raw.HAS_GIL, reason="this interpreter has a GIL")


def leaf(number):
    return number


def root(rounds):
    for number in range(rounds):
        leaf(number)
        len("")


def spin(calls, done):
    for number in range(calls):
        leaf(number)
    done.release()


def wait_until(condition):
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def together(work, count=THREADS):
    """Run work(i) on threads that all begin when the last one is there."""
    barrier = threading.Barrier(count)
    errors = []

    def run(i):
        barrier.wait(120)
        try:
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


@WITHOUT_GIL
def test_importing_leaves_the_gil_off():
    code = """
import sys, warnings
warnings.simplefilter("error")
import numpy
before = sys._is_gil_enabled()
import eventprof
with eventprof.record() as rec: len("")
rec.trace.events["name"]
print(before, sys._is_gil_enabled())
"""
    done = children.program(code)

    assert (done.stdout, done.stderr) == ("False False\n", "")


@WITHOUT_GIL
def test_the_profile_hook_is_refused_with_a_remedy():
    with pytest.raises(eventprof.UnsupportedError, match="needs the GIL.*monitoring.*gil=1"):
        eventprof.record(backend="profile")


@pytest.mark.thorough
@pytest.mark.parametrize("limit", [1, 5 << 20, 64 << 20])
@pytest.mark.parametrize(
    "policy", [raw.OVERWRITE, raw.STOP, raw.GROW], ids=["ring", "stop", "grow"]
)
def test_every_call_of_eight_threads_is_recorded_or_counted(policy, limit):
    rec = raw.recorder(raw.bits("CALL", "RETURN"), limit=limit, on_full=policy)
    before = _thread._count()
    done = [_thread.allocate_lock() for _ in range(THREADS)]
    gc.collect()  # finalizers of earlier tests' garbage would be calls, too
    gc.disable()
    try:
        with rec:
            for lock in done:
                lock.acquire()
                _thread.start_new_thread(spin, (30_011, lock))  # half a MiB of records each
            for lock in done:
                assert lock.acquire(timeout=900)
    finally:
        gc.enable()

    trace = raw.capture(rec)
    kept, lost = raw.recorded(trace), raw.lost(trace)
    # spin's last return may come after the window: it is then neither.
    assert kept["CALL"] + lost["CALL"] == THREADS * 30_012
    assert 0 <= THREADS * 30_012 - kept["RETURN"] - lost["RETURN"] <= THREADS
    assert trace.facts()["events"] == kept.total()
    assert not trace.facts()["damaged_chunks"]
    wait_until(lambda: _thread._count() <= before)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_depth": 0},
        {"min_duration": "1 s"},
        {"exclude": ["*leaf"]},
        {"include": ["*leaf"], "memory": False},
        {"calls": False, "c_calls": False},
        {"buffer": "1 MiB", "on_full": "stop"},
    ],
    ids=str,
)
def test_recorders_that_come_and_go_take_nothing_from_one_that_stays(options):
    ended = []

    def work(_):
        try:
            for _ in range(10):
                root(1000)
        finally:
            ended.append(1)

    def come_and_go(_):
        # Each round stops all threads a dozen times, and waits until each has had a processor: on a busy
        # machine a tenth of a second.
        rounds = 0
        while rounds < 20 or (len(ended) < THREADS and rounds < 60):
            with eventprof.record(**options) as short:
                leaf(0)
            if rounds % 5 == 0:
                short.trace.events
            rounds += 1

    with eventprof.record(memory=False, on_full="grow") as whole:
        together(lambda i: work(i) if i < THREADS else come_and_go(i), THREADS + 1)

    functions = whole.trace.functions
    calls = dict(zip(functions["name"].tolist(), functions["calls"].tolist(), strict=True))
    assert calls["leaf"] - calls["root"] * 1000 >= 20
    assert calls["root"] == THREADS * 10
    assert whole.trace.loss.total == 0
    assert not whole.displaced


def test_snapshots_while_threads_run_are_whole():
    rec = eventprof.record(max_depth=3, on_full="grow")
    traces = []

    def work(i):
        if i < THREADS:
            root(ROUNDS)
        else:
            traces.extend(rec.snapshot() for _ in range(5))

    with rec:
        together(work, THREADS + 1)

    for trace in [*traces, rec.trace]:
        calls = trace.calls
        assert len(trace.events) >= len(calls)
        assert (calls["start"] >= 0).all()
        assert not trace.metadata["damaged_chunks"]


def test_one_recorder_started_and_stopped_by_all():
    rec = eventprof.record()
    outcomes = []

    def work(_):
        for _ in range(40):
            for step in (rec.start, rec.stop):
                try:
                    step()
                    outcomes.append(None)
                except eventprof.StateError:
                    outcomes.append("refused")
            leaf(0)

    together(work)

    assert len(outcomes) == THREADS * 80
    if rec.state == "running":
        rec.stop()
    assert rec.trace.loss.total == 0


def test_a_decorated_function_runs_on_all_threads():
    recorder = eventprof.record(memory=False)

    @recorder
    def decorated():
        return leaf(5)

    results = []
    together(lambda _: results.extend(decorated() for _ in range(50)))

    assert results == [5] * (THREADS * 50)
    assert recorder.state == "stopped"


def test_blocks_of_eight_threads_are_all_there_and_all_freed():
    def work(_):
        for _ in range(300):
            blocks = [bytearray(12347) for _ in range(5)]
            del blocks

    with eventprof.record(calls=False, c_calls=False, on_full="grow") as rec:
        together(work)

    blocks = rec.trace.allocations
    # 3.15 keeps them in a bytes object, with its header.
    chosen = blocks[(blocks["size"] >= 12347) & (blocks["size"] < 12400)]
    assert len(chosen) == THREADS * 300 * 5
    assert not np.ma.getmaskarray(chosen["end"]).any()
    assert len(set(chosen["thread"].tolist())) == THREADS


@pytest.mark.thorough
def test_ints_of_offsets_of_eight_threads_are_kept_out():
    """3.13t: each thread's first blocks lie alike, in segments of their own. In the table of blocks that are kept out,
    one thread's replaced another's, whose free was then that of a block that had been freed before."""
    scope = {}
    exec("def length(x):\n" + "    a = x\n" * 400 + "    return len(x)", scope)
    length = scope["length"]

    def work(i):
        kept = []
        for number in range(20_000):  # each int lies elsewhere
            kept.append(float(number))
            if len(kept) > 40 + i:
                kept.clear()
            length(kept)

    with eventprof.record(on_full="grow") as rec:
        together(work)

    found = rec.trace.verify()
    assert found, found
    assert "freed_twice" not in found.excused


def test_functions_made_on_all_threads_have_their_names():
    def work(i):
        for k in range(60):
            scope = {"__name__": f"module_{i}"}
            exec(f"class C_{i}_{k}: pass\ndef f_{i}_{k}(): return C_{i}_{k}()", scope)
            scope[f"f_{i}_{k}"]()

    with eventprof.record(memory=False, on_full="grow") as rec:
        together(work)

    functions = rec.trace.functions
    seen = set(zip(functions["name"].tolist(), functions["module"].tolist(), strict=True))
    for i in range(THREADS):
        for k in range(60):
            assert {(f"f_{i}_{k}", f"module_{i}"), (f"C_{i}_{k}", f"module_{i}")} <= seen


@pytest.mark.skipif(sys.version_info < (3, 14), reason="3.14 brought the JIT")
@pytest.mark.parametrize("on", [False, True])
def test_the_jit_is_warned_of(on):
    code = """
import sys, warnings, eventprof
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    eventprof.record()
    eventprof.record(calls=False, c_calls=False)
print(sys._jit.is_enabled(), [(w.category.__name__, "gh-156319" in str(w.message)) for w in seen])
"""
    done = children.program(code, PYTHON_JIT=str(int(on)))

    if on and done.stdout.startswith("False"):
        pytest.skip("built without the JIT")
    expected = [("RuntimeWarning", True)] if on else []
    assert (done.stdout, done.stderr) == (f"{on} {expected}\n", "")
