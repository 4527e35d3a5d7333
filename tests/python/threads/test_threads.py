"""Threads: every event once, on its thread, kept or counted as lost."""

from __future__ import annotations

import _thread
import contextvars
import gc
import os
import queue
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import raw

from eventprof import _core

pytestmark = pytest.mark.usefixtures("restored")


def leaf(n):
    return n


def spin(calls, done):
    for i in range(calls):
        leaf(i)
    done.release()


def wait_for_threads(count):
    while _thread._count() > count:
        time.sleep(0.001)


def run_threads(calls, threads=4):
    """Each thread makes calls + 1 Python calls, and as many returns."""
    before = _thread._count()
    locks = []
    for _ in range(threads):
        locks.append(_thread.allocate_lock())
        locks[-1].acquire()
    for lock in locks:
        _thread.start_new_thread(spin, (calls, lock))
    for lock in locks:
        lock.acquire()
    while _thread._count() > before:
        time.sleep(0.001)


# ---- Recorded + lost == emitted -------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("limit", [1, 2 << 20, 5 << 20, 64 << 20])
@pytest.mark.parametrize(
    "on_full", [raw.OVERWRITE, raw.STOP, raw.GROW], ids=["overwrite", "stop", "grow"]
)
def test_every_event_is_recorded_or_lost(on_full, limit, backend):
    calls = 100_003  # 1.6 MB of records a thread
    kinds = raw.bits("CALL", "RETURN")
    rec = raw.recorder(kinds, limit=limit, on_full=on_full, backend=backend)
    run_threads(10)
    gc.collect()  # finalizers of earlier tests' garbage would be calls, too
    gc.disable()
    try:
        with rec:
            run_threads(calls)
    finally:
        gc.enable()

    trace = raw.capture(rec)
    emitted = 4 * (calls + 1) + 1
    kept, lost = raw.recorded(trace), raw.lost(trace)
    assert kept["CALL"] + lost["CALL"] == emitted
    assert kept["RETURN"] + lost["RETURN"] == emitted
    assert trace.facts()["events"] == kept.total()
    if on_full == raw.GROW or limit == 64 << 20:
        assert not lost
    elif limit < 5 << 20:
        assert lost.total() > 0
        # One chunk a live thread at least, and some.
        assert kept.total() * 8 <= max(limit, 4 << 20) + (5 << 20)


@pytest.mark.thorough
@pytest.mark.parametrize("limit", [1, 3 << 20])
@pytest.mark.parametrize("on_full", [raw.OVERWRITE, raw.STOP], ids=["overwrite", "stop"])
def test_a_ring_and_a_growing_recorder_count_the_same_of_each_thread(on_full, limit, backend):
    whole = raw.recorder(raw.ALL, on_full=raw.GROW, backend=backend)
    ring = raw.recorder(raw.ALL, on_full=on_full, limit=limit, backend=backend)

    tasks = []

    def work(done):
        tasks.append(threading.get_native_id())
        for i in range(6000):
            leaf(i)
            str(i * 1000).split("0")
            [bytearray(j) for j in range(3)]
        done.release()

    with whole, ring:
        before = _thread._count()
        locks = [_thread.allocate_lock() for _ in range(4)]
        for lock in locks:
            lock.acquire()
            _thread.start_new_thread(work, (lock,))
        for lock in locks:
            lock.acquire()
        wait_for_threads(before)
        # A thread is no longer counted while it still gives back its state: the recorders, which stop
        # one after the other, would see different ends of it.
        while any(os.path.exists(f"/proc/self/task/{task}") for task in tasks):
            time.sleep(0.001)

    def totals(rec):
        out = {}
        for _, native_id, _, _, kept, lost in raw.capture(rec).threads():
            total = Counter(kept)
            total.update(lost)
            out[native_id] = total
        return out

    expected, got = totals(whole), totals(ring)
    # Others have events where the starts and stops of the two lie apart: the main one, and the one that
    # watches how long a test takes, which begins with it.
    assert len(expected) >= 5
    assert {task: got[task] for task in tasks} == {task: expected[task] for task in tasks}


def test_the_window_that_remains_of_a_ring_knows_its_callers(backend):
    rec = raw.recorder(raw.bits("CALL", "RETURN"), limit=1, on_full=raw.OVERWRITE, backend=backend)

    def outer():
        middle()

    def middle():
        for i in range(400_000):
            leaf(i)

    with rec:
        outer()

    trace = raw.capture(rec)
    assert raw.lost(trace)["CALL"] > 100_000
    events = raw.rows(trace)
    assert all(row.caller.endswith("middle") for row in events if row.name == "leaf")
    assert {row.depth for row in events if row.name == "leaf"} == {events[-1].depth + 2}
    ends = [row.name.rpartition(".")[2] for row in events[-2:]]
    assert ends == ["middle", "outer"]


# ---- Which threads -------------------------------------------------------------------------------------------


def named():
    return leaf(1)


def test_each_thread_has_its_own_rows_and_its_name(backend):
    rec = raw.recorder(raw.CALLS, backend=backend)

    with rec:
        threads = [threading.Thread(target=named, name=f"worker {i}") for i in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    trace = raw.capture(rec)
    names = [thread[0] for thread in trace.threads()]
    per_thread = Counter(
        names[row.thread] for row in raw.rows(trace) if row.word == "call" and row.name == "named"
    )
    assert per_thread == {f"worker {i}": 1 for i in range(20)}


@pytest.mark.thorough
def test_200_threads_at_once(backend):
    rec = raw.recorder(raw.ALL, backend=backend)
    barrier = threading.Barrier(201)

    def work(n):
        barrier.wait()
        for _ in range(10):
            leaf(n)

    with rec:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(200)]
        for thread in threads:
            thread.start()
        barrier.wait()
        for thread in threads:
            thread.join()

    calls = Counter(
        row.thread for row in raw.rows(rec) if row.word == "call" and row.name == "leaf"
    )
    assert len(calls) == 200
    assert set(calls.values()) == {10}


def test_500_threads_one_after_the_other_share_chunks(backend):
    rec = raw.recorder(raw.CALLS, backend=backend)

    with rec:
        for i in range(500):
            thread = threading.Thread(target=leaf, args=(i,))
            thread.start()
            thread.join()

    assert _core.engine_stats()["bytes_mapped"] < 40 << 20
    assert sum(row.word == "call" and row.name == "leaf" for row in raw.rows(rec)) == 500


def test_threads_that_run_already(backend):
    inbox: queue.SimpleQueue = queue.SimpleQueue()
    answers: queue.SimpleQueue = queue.SimpleQueue()

    def serve():
        while loop():
            pass

    def loop():
        answers.put("in the loop")
        got = inbox.get()
        answers.put(leaf(got))
        return got

    thread = threading.Thread(target=serve, name="server")
    thread.start()
    answers.get()
    inbox.put(1)
    answers.get()
    answers.get()

    rec = raw.recorder(raw.CALLS, backend=backend)
    with rec:
        inbox.put(2)
        answers.get()
        answers.get()
        inbox.put(0)
        answers.get()
        thread.join()

    trace = raw.capture(rec)
    (server,) = [i for i, t in enumerate(trace.threads()) if t[0] == "server"]
    events = [row for row in raw.rows(trace) if row.thread == server and row.sort == "python"]
    short = [(row.word, row.name.rpartition(".")[2]) for row in events]
    # It stood in loop(), which was open.
    assert short[:8] == [
        ("call", "leaf"),
        ("return", "leaf"),
        ("return", "loop"),
        ("call", "loop"),
        ("call", "leaf"),
        ("return", "leaf"),
        ("return", "loop"),
        ("return", "serve"),
    ]
    assert all(row.call >= 0 for row in events)
    assert events[0].caller.endswith("loop")


def test_only_the_current_thread(backend):
    rec = raw.recorder(raw.ALL, backend=backend, current_thread=True)

    with rec:
        leaf(0)
        run_threads(100)

    events = raw.rows(rec)
    assert {row.thread for row in events} == {0}
    assert sum(row.word == "call" and row.name == "leaf" for row in events) == 1


@pytest.mark.thorough
def test_pool(backend):
    with raw.recorder(raw.ALL, backend=backend) as rec, ThreadPoolExecutor(4) as pool:
        assert list(pool.map(leaf, range(1000))) == list(range(1000))

    assert sum(row.word == "call" and row.name == "leaf" for row in raw.rows(rec)) == 1000


def test_generator_that_goes_on_in_other_threads(backend):
    def numbers():
        while True:
            yield leaf(1)

    generator = numbers()

    with raw.recorder(raw.CALLS, backend=backend) as rec:
        for _ in range(5):
            thread = threading.Thread(target=next, args=(generator,))
            thread.start()
            thread.join()
        next(generator)

    events = [row for row in raw.rows(rec) if row.sort == "python" and row.name.endswith("numbers")]
    assert [row.word for row in events] == ["call", "yield"] + ["resume", "yield"] * 5
    assert len({row.thread for row in events}) == 6
    assert all(row.call >= 0 for row in events)


def test_threads_started_in_threads_in_finalizers_and_callbacks(backend):
    threads = []

    def start(*args):
        thread = threading.Thread(target=leaf, args=(1,))
        thread.start()
        threads.append(thread)

    class Finalized:
        def __del__(self):
            start()

    with raw.recorder(raw.ALL, backend=backend) as rec:
        starter = threading.Thread(target=start)
        starter.start()
        starter.join()
        Finalized()
        gc.callbacks.append(start)
        gc.collect()
        gc.callbacks.remove(start)
        contextvars.copy_context().run(start)
        for thread in threads:
            thread.join()

    assert sum(row.word == "call" and row.name == "leaf" for row in raw.rows(rec)) == len(threads)
    assert len(threads) >= 4


@pytest.mark.thorough
def test_start_and_stop_while_threads_run(backend):
    go = True

    def work():
        while go:
            leaf(1)
            [bytearray(i) for i in range(5)]
            time.sleep(0)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    recorders = [raw.recorder(raw.ALL, backend=backend) for _ in range(20)]
    try:
        for rec in recorders:
            with rec:
                time.sleep(0.001)
    finally:
        go = False
        for thread in threads:
            thread.join()

    for rec in recorders:
        trace = raw.capture(rec)
        assert not raw.lost(trace)
        events = [row for row in raw.rows(trace) if row.name == "leaf" and row.word == "call"]
        assert all(row.caller.endswith("work") for row in events)


@pytest.mark.thorough
def test_recorders_on_several_threads_overlap(backend):
    def work():
        for _ in range(20):
            with raw.recorder(raw.ALL, backend=backend, current_thread=True) as rec:
                for i in range(50):
                    leaf(i)
            counts.append(sum(row.word == "call" and row.name == "leaf" for row in raw.rows(rec)))

    counts: list[int] = []
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert counts == [50] * 80


@pytest.mark.thorough
def test_snapshots_while_threads_write(backend):
    """A reader never sees half a record: addresses, sizes and names stay what they are."""
    go = True

    def work():
        while go:
            leaf(bytearray(12347))
            list(map(leaf, range(20)))

    threads = [threading.Thread(target=work) for _ in range(3)]
    with raw.recorder(raw.ALL, backend=backend, on_full=raw.OVERWRITE, limit=3 << 20) as rec:
        for thread in threads:
            thread.start()
        for _ in range(20):
            trace = raw.capture(rec)
            assert trace.facts()["damaged_chunks"] == 0
            kind, address = trace.events("kind"), trace.events("address")
            assert ((address == 0) == (kind <= raw.KIND["C_EXCEPTION"])).all()
            assert trace.events("function").max() < len(trace.functions())
            assert (trace.events("time")[1:] >= trace.events("time")[:-1]).all()
        go = False
        for thread in threads:
            thread.join()


def test_switch_interval_of_a_microsecond(backend):
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with raw.recorder(raw.ALL, backend=backend) as rec:
            run_threads(2000)
    finally:
        sys.setswitchinterval(interval)

    calls = Counter(
        row.thread for row in raw.rows(rec) if row.word == "call" and row.name == "leaf"
    )
    assert sorted(calls.values()) == [2000] * 4


def test_new_threads_have_the_hook_only_while_it_is_in(backend):
    seen = []

    def look():
        seen.append(sys.getprofile())

    with raw.recorder(raw.CALLS, backend=backend):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()

    assert (seen[0] is not None) == (backend == "profile")
    assert seen[1] is None


def test_a_thread_that_outlives_the_recording_is_left_without_hook(backend):
    lock = threading.Lock()
    lock.acquire()
    seen = []

    def work():
        with lock:
            seen.append(sys.getprofile())

    thread = threading.Thread(target=work)
    with raw.recorder(raw.CALLS, backend=backend):
        thread.start()
    lock.release()
    thread.join()

    assert seen == [None]


def test_errors_of_thread_starts_are_the_programs(backend):
    plain, recorded = [], []

    def attempts(out):
        for args in [(), (1, ()), (leaf,), (leaf, 1), (leaf, (), 1), (None, ())]:
            try:
                _thread.start_new_thread(*args)
            except Exception as error:
                out.append((type(error), str(error)))

    attempts(plain)
    with raw.recorder(raw.CALLS, backend=backend):
        attempts(recorded)

    assert recorded == plain


def test_uncaught_error_in_a_raw_thread_is_reported_as_ever(backend, monkeypatch):
    reports = []
    monkeypatch.setattr(
        sys,
        "unraisablehook",
        lambda report: reports.append((report.exc_type, report.err_msg, report.object)),
    )

    def fails(lock):
        lock.release()
        raise ValueError

    def once():
        count = _thread._count()
        lock = _thread.allocate_lock()
        lock.acquire()
        _thread.start_new_thread(fails, (lock,))
        lock.acquire()
        wait_for_threads(count)

    once()
    with raw.recorder(raw.CALLS, backend=backend):
        once()

    assert len(reports) == 2
    assert reports[0] == reports[1]


@pytest.mark.thorough
def test_a_window_beside_another_may_begin_at_any_instant_of_threads(backend):
    """Also between a function's first instruction and what the interpreter tells of it."""
    ends = 0
    go = True

    def many():
        for i in range(20):
            leaf(i)

    def generator():
        yield from range(20)

    def work():
        nonlocal ends
        while go:
            many()
            if sys.version_info >= (3, 12):  # 3.11 does not show whether a generator's was told
                list(generator())
            ends += 1

    def windows():
        for _ in range(40):
            with raw.recorder(raw.PYTHON, backend=backend) as rec:
                seen = ends
                deadline = time.monotonic() + 240
                while ends < seen + 2:
                    assert time.monotonic() < deadline
                    time.sleep(0.0001)
            counts, _, found, _ = raw.capture(rec).verify(1, *[False] * 5)
            if counts:
                yield found

    threads = [threading.Thread(target=work) for _ in range(2)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        with raw.recorder(raw.PYTHON, backend=backend, limit=1, on_full=raw.OVERWRITE):
            wrong = list(windows())
    finally:
        go = False
        sys.setswitchinterval(interval)
        for thread in threads:
            thread.join()

    assert wrong == []
