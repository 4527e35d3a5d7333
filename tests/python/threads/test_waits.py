"""Waits: what the C library's functions say, and who let whom go on."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import io
import json
import os
import queue
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import children
import numpy as np
import pytest
import raw

import eventprof
from eventprof.answers.tree import Tree
from eventprof.answers.waiting import by_place
from eventprof.show.own_lines import sections
from eventprof.tables import waits

pytestmark = [
    pytest.mark.version,
    pytest.mark.skipif(sys.platform != "linux", reason="the functions are those of Linux"),
]

MS = 1_000_000

# time.sleep() sleeps to a time that it takes before it calls the C library: a thread that loses its
# processor between the two sleeps for less. So no test here says how long a sleep must have been;
# the counter at the end of this file does.


def recorded(**options):
    return eventprof.record(**{"waits": True, "memory": False, "on_full": "grow", **options})


def of_threads(*targets, names=None):
    """The trace of threads that begin one after the other, and have ended."""
    names = names or [target.__name__ for target in targets]
    threads = [
        threading.Thread(target=target, name=name)
        for target, name in zip(targets, names, strict=True)
    ]
    with recorded() as rec:
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    return rec.trace


def of_kind(trace, kind, line=None):
    table = trace.waits
    keep = table["kind"] == kind
    if line is not None:
        keep &= np.ma.filled(table["caller_line"], -1) == line
    return table[np.flatnonzero(keep)]


def the_one(table):
    assert len(table) == 1
    return {name: table[name][0] for name in table.columns}


def until_asleep(native_id):
    """Return when a thread of this process has been asleep for 50 ms, however slow it was before.

    Meanwhile the caller sleeps, so that the thread does not wait for the interpreter's lock.
    """
    in_a_row = 0
    while in_a_row < 10:
        time.sleep(0.005)
        state = Path(f"/proc/self/task/{native_id}/stat").read_text().rpartition(")")[2].split()[0]
        in_a_row = in_a_row + 1 if state == "S" else 0


def test_a_sleep_is_one_wait_where_it_was_called():
    def nap():
        time.sleep(0.02)

    with recorded() as rec:
        nap()

    row = the_one(of_kind(rec.trace, "sleep"))
    assert row["name"].endswith("nap")
    assert row["caller_line"] == nap.__code__.co_firstlineno + 1
    assert row["duration"] > 5 * MS
    assert rec.trace.verify()
    functions = rec.trace.functions
    waited = dict(zip(functions["name"], functions["waited"].tolist(), strict=True))
    assert waited[row["name"]] >= row["duration"]  # it may have waited for a processor, too


def test_a_lock_names_who_gave_it_back():
    lock, taken, waits_now = threading.Lock(), threading.Event(), queue.SimpleQueue()

    def owner():
        with lock:
            taken.set()
            until_asleep(waits_now.get())

    def victim():
        taken.wait()
        waits_now.put(threading.get_native_id())
        with lock:
            pass

    trace = of_threads(owner, victim)

    names = trace.threads["name"]
    rows = of_kind(trace, "lock", victim.__code__.co_firstlineno + 3)
    # Without a GIL it may have lost its processor between its spin for the lock and its wait.
    row = the_one(rows[np.flatnonzero(~np.ma.getmaskarray(rows["waker"]))])
    assert row["duration"] > 5 * MS
    assert names[row["thread"]] == "victim"
    assert names[row["waker"]] == "owner"
    assert trace.verify()


def test_what_was_waited_for_is_known_of_branches_and_functions():
    lock = threading.Lock()

    def owner():
        with lock:
            time.sleep(0.1)
            until_taken.wait(5)

    until_taken = threading.Event()

    def needs():
        time.sleep(0.02)
        until_taken.set()
        with lock:
            inner()

    def inner():
        time.sleep(0.03)

    trace = of_threads(owner, needs)

    tree, functions, table = trace.tree, trace.functions, trace.waits
    row_of = {name: row for row, name in enumerate(functions["name"])}
    for word in ("gil", "lock", "sleep", "io"):
        whole = int(table["duration"][table["kind"] == word].sum())
        # Parts of a wait for the interpreter's lock are joined in the table.
        assert tree[f"waited_{word}"][0] == pytest.approx(whole, abs=5 * MS)
    for name, kind in ((needs, "lock"), (needs, "sleep"), (inner, "sleep"), (owner, "sleep")):
        waited = functions[f"waited_{kind}"][row_of[name.__qualname__]]
        assert waited > 10 * MS, (name, kind)
    assert functions["waited_lock"][row_of[inner.__qualname__]] < MS
    nodes = np.flatnonzero(tree["name"] == needs.__qualname__)
    assert tree["waited_lock"][nodes].sum() > 10 * MS
    by_kind = sum(tree[f"waited_{word}"][nodes].sum() for word in trace._tree.waits)
    assert by_kind == pytest.approx(tree["waited"][nodes].sum(), abs=MS)
    without = eventprof.record(memory=False)
    with without as rec:
        time.sleep(0.001)
    assert np.ma.getmaskarray(rec.trace.functions["waited_sleep"]).all()
    assert np.ma.getmaskarray(rec.trace.tree["waited_sleep"]).all()


def test_what_is_free_makes_no_wait():
    lock, box = threading.Lock(), queue.SimpleQueue()

    with recorded() as rec:
        for number in range(1000):
            with lock:
                box.put(number)
            box.get()

    assert not len(of_kind(rec.trace, "lock"))


def test_two_that_compute_wait_for_the_interpreters_lock():
    if not raw.HAS_GIL:
        pytest.skip("this interpreter has no lock")

    def compute():
        end = time.process_time() + 0.2
        while time.process_time() < end:
            sum(range(100))

    waits = of_kind(of_threads(compute, compute), "gil")

    assert waits["duration"].sum() > 50 * MS
    # A wait of 20 ms is four calls of the C library's function, and one row.
    assert len(waits) < 2 * waits["duration"].sum() / (4 * MS)


@pytest.mark.skipif(not raw.HAS_GIL, reason="there is no such lock")
def test_nobody_has_the_interpreters_lock_while_it_waits():
    lock = threading.Lock()

    def work():
        for _ in range(20):
            with lock:
                sum(range(10_000))
                time.sleep(0.001)
            sum(len(str(n)) for n in range(2_000))

    trace = of_threads(work, work, work)

    gil, table = trace.gil, trace.waits
    begin, end, thread = gil["start"], gil["end"], gil["thread"]
    assert (begin[1:] >= end[:-1]).all()
    assert (begin <= end).all()
    waits_for_none = np.flatnonzero((table["kind"] != "processor") & (table["kind"] != "other"))
    assert len(waits_for_none) > 60
    for row in waits_for_none.tolist():
        start = table["start"][row]
        stop = start + table["duration"][row]
        own = thread == table["thread"][row]
        # The time stamps of an end of a wait and of the wait itself are taken one after the other.
        held = np.minimum(end[own], stop) - np.maximum(begin[own], start)
        assert held.max(initial=0) < MS / 10


def test_a_wait_that_goes_on_at_the_end_lasts_to_the_end():
    event = threading.Event()
    thread = threading.Thread(target=event.wait)
    with recorded() as rec:
        thread.start()
        until_asleep(thread.native_id)
    event.set()
    thread.join()

    locks = of_kind(rec.trace, "lock")
    row = the_one(locks[np.flatnonzero(locks["flags"] & 2)])
    assert row["start"] + row["duration"] == rec.trace.duration
    assert row["duration"] > 5 * MS


def test_sockets_and_processes():
    left, right = socket.socketpair()

    reader = threading.get_native_id()

    def answer():
        until_asleep(reader)
        right.send(b"x")

    thread = threading.Thread(target=answer)
    with recorded() as rec:
        thread.start()
        left.recv(1)
        thread.join()
        subprocess.run([sys.executable, "-S", "-c", "import time; time.sleep(0.05)"], check=True)
    left.close()
    right.close()

    assert of_kind(rec.trace, "io")["duration"].max() > 5 * MS
    assert of_kind(rec.trace, "process")["duration"].max() > 5 * MS


def recorded_turns():
    """Three threads that take turns to sleep under a lock."""
    lock, begin = threading.Lock(), threading.Barrier(3)

    def turns():
        begin.wait()  # for a lock, too
        for _ in range(5):
            with lock:
                time.sleep(0.01)

    return of_threads(turns, turns, turns)


def test_what_was_waited_for_is_named(tmp_path):
    def reads(file):
        os.read(file, 1)

    def gets(peer):
        peer.recv(1)

    ends, sockets = os.pipe(), socket.socketpair()
    threads = [
        threading.Thread(target=reads, args=(ends[0],)),
        threading.Thread(target=gets, args=(sockets[0],)),
    ]
    lock = threading.Lock()
    with recorded() as rec:
        for each in threads:
            each.start()
        for each in threads:
            until_asleep(each.native_id)
        os.write(ends[1], b"x")
        sockets[1].send(b"x")
        for each in threads:
            each.join()
        lock.acquire()
        threading.Timer(0.05, lock.release).start()
        lock.acquire()
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.1)"])
        child.wait()
    inodes = os.fstat(ends[0]).st_ino, sockets[0].fileno() and os.fstat(sockets[0].fileno()).st_ino
    for end in (*ends, *sockets):
        os.close(end) if isinstance(end, int) else end.close()

    table = rec.trace.waits
    found = {
        ((name or "").rpartition(".")[2], thing): number
        for name, thing, number in zip(
            table["name"], table["object"], table["object_id"].filled(0).tolist(), strict=True
        )
        if thing
    }
    assert found["reads", "pipe"] == inodes[0]
    assert found["gets", "socket"] == inodes[1]
    assert child.pid in [number for (_, thing), number in found.items() if thing == "process"]
    ours = [number for (name, thing), number in found.items() if name.startswith("test_what_was")]
    assert any(ours)
    writes = rec.trace.events["event"] == "pipe_write"
    assert np.count_nonzero(writes & (rec.trace.events["name"] == "io")) >= 1


@pytest.mark.skipif(sys.version_info < (3, 14), reason="the lock is not in its object")
def test_a_lock_is_known_by_its_address():
    def takes(lock):
        with lock:
            pass

    locks = [threading.Lock() for _ in range(3)]
    threads = [threading.Thread(target=takes, args=(lock,)) for lock in locks for _ in range(2)]
    with recorded() as rec:
        for lock in locks:
            lock.acquire()
        for each in threads:
            each.start()
        for each in threads:
            until_asleep(each.native_id)
        for lock in locks:
            lock.release()
        for each in threads:
            each.join()

    table = rec.trace.waits
    taken = [(name or "").endswith("takes") for name in table["name"]]
    taken = np.array(taken) & (table["kind"] == "lock")
    assert set(table["object"][taken]) == {"lock"}
    found = Counter(number << 3 for number in table["object_id"][taken].tolist())
    for lock in locks:
        inside = [at for at in found if id(lock) < at < id(lock) + sys.getsizeof(lock) + 16]
        assert len(inside) == 1
    assert len(found) == len(locks)


@pytest.mark.skipif(raw.HAS_GIL, reason="with a GIL there are no critical sections")
def test_an_object_that_another_thread_uses():
    def copies():
        for _ in range(10):
            shared.copy()

    def appends():
        while copier.is_alive():
            shared.append(1)
            time.sleep(0.001)

    shared = list(range(2_000_000))
    copier, appender = (threading.Thread(target=each) for each in (copies, appends))
    with recorded() as rec:
        for each in (copier, appender):
            each.start()
        for each in (copier, appender):
            each.join()

    table = rec.trace.waits
    waited = np.array([(name or "").endswith("appends") for name in table["name"]])
    waited &= table["kind"] == "critical"
    assert np.count_nonzero(waited)
    assert {number << 3 for number in table["object_id"][waited].tolist()} == {id(shared)}
    assert set(table["object"][waited]) == {"object"}
    assert set(table["type"][waited]) == {"list"}
    names = rec.trace.threads["name"]
    wakers = Counter(names[row] for row in table["waker"][waited].compressed())
    assert wakers.most_common(1)[0][0].endswith("(copies)")
    sums = rec.trace._tree.waits
    assert sums["critical"] == table["duration"][table["kind"] == "critical"].sum()
    place = next(each.place for each in by_place(rec.trace) if each.place.kind == "critical")
    assert place.what.endswith("(of type list)")


@pytest.mark.skipif(raw.HAS_GIL, reason="with a GIL no thread stops the others")
def test_all_threads_stop_for_the_garbage_collector():
    def computes():
        while collector.is_alive():
            sum(range(50))

    def collects():
        for _ in range(10):
            gc.collect()

    kept = [[number] for number in range(300_000)]
    collector = threading.Thread(target=collects)
    other = threading.Thread(target=computes)
    with recorded() as rec:
        for each in (collector, other):
            each.start()
        for each in (collector, other):
            each.join()
    assert kept

    table, names = rec.trace.waits, rec.trace.threads["name"]
    by = {
        names[row]: np.count_nonzero((table["thread"] == row) & (table["kind"] == "world"))
        for row in range(len(names))
    }
    stopped = next(count for name, count in by.items() if name.endswith("(computes)"))
    assert stopped >= 10
    rows = (table["kind"] == "world") & (table["duration"] > MS / 2)
    wakers = Counter(names[row] for row in table["waker"][rows].compressed())
    assert wakers.most_common(1)[0][0].endswith("(collects)")


def test_the_owner_of_a_lock_is_told_with_what_it_did():
    lock = threading.Lock()
    has_it = threading.Event()

    def owner():
        with lock:
            has_it.set()
            time.sleep(0.2)

    def needs():
        has_it.wait()
        with lock:
            pass

    row = the_one(of_kind(of_threads(owner, needs), "lock", needs.__code__.co_firstlineno + 2))

    assert row["meanwhile"] == "sleep"
    assert row["meanwhile_name"].endswith("owner")
    assert row["meanwhile_line"] == owner.__code__.co_firstlineno + 3
    assert row["own_line"] == row["caller_line"]


def test_processes_that_were_waited_for_are_named(tmp_path):
    program = tmp_path / "pool.py"
    program.write_text(
        "import multiprocessing, os, time\n"
        "def work(n):\n"
        "    time.sleep(0.1)\n"
        "    return n\n"
        "def put(queue):\n"
        "    time.sleep(0.2)\n"
        "    queue.put(1)\n"
        "if __name__ == '__main__':\n"
        "    fork = multiprocessing.get_context('fork')\n"
        "    with fork.Pool(1) as pool:\n"
        "        pool.map(work, range(3))\n"
        "    queue = fork.SimpleQueue()\n"
        "    putter = fork.Process(target=put, args=(queue,), name='putter')\n"
        "    putter.start()\n"
        "    queue.get()\n"
        "    putter.join()\n"
        "    sleeper = fork.Process(target=time.sleep, args=(0.2,), name='sleeper')\n"
        "    sleeper.start()\n"
        "    sleeper.join()\n",
        "utf-8",
    )
    folder = tmp_path / "pool.epd"
    children.eventprof("run", "-o", folder, program)
    trace = eventprof.open(folder)
    threads = trace.threads["name"]
    by_line = {}
    for each in by_place(trace):
        if each.is_own and each.place.file == str(program) and each.wakers:
            by_line.setdefault(each.place.line, each)

    # The thread of the pool that hands on results had waited for the worker, which slept.
    assert "sleeper" in by_line[19].wakers[0][0]
    assert by_line[19].place.kind == "process"
    assert "putter" in by_line[15].wakers[0][0]
    assert by_line[15].place.kind == "io"
    assert by_line[15].meanwhile[0][0][0:1] == ("sleep",)
    assert by_line[15].meanwhile[0][0].line == 6
    table = trace.waits
    reads = (table["object"] == "pipe") & (table["meanwhile"] == "sleep")
    wakers = {threads[row] for row in table["waker"][reads].compressed().tolist()}
    assert any("ForkPoolWorker-1" in name for name in wakers)
    out = children.eventprof("waits", folder).stdout
    assert "sleeper MainThread" in out


def test_working_time_is_not_time_of_waits():
    """A thread that loses its processor between a reading of the clock and the event has two times.

    So of several runs one is right.
    """
    for _ in range(6):
        trace = recorded_turns()
        tree = trace._tree
        by_kind = {kind: int(of_kind(trace, kind)["duration"].sum()) for kind in tree.waits}
        if by_kind == pytest.approx(tree.waits, abs=MS):
            break
    assert tree.waits["sleep"] > 50 * MS
    assert tree.waits["lock"] > 50 * MS
    # Threads also wait before their first call and after their last one.
    in_calls = int(tree.own("waited_self").sum())
    assert tree.waits["sleep"] + tree.waits["lock"] <= in_calls <= sum(tree.waits.values())
    assert by_kind == pytest.approx(tree.waits, abs=MS)
    assert len(trace.waits)
    # By the rows of calls, of a trace whose columns are there: the same.
    calls = trace.calls
    outer = np.flatnonzero(np.ma.filled(calls["parent"], -1) < 0)
    assert int(calls["waited"][outer].sum()) == in_calls


def test_recordings_of_before_and_after_give_the_functions_back():
    done = children.program(
        "import eventprof, time, threading\n"
        "def lock_often():\n"
        "    while going:\n"
        "        with lock: time.sleep(0)\n"
        "lock, going = threading.Lock(), True\n"
        "threads = [threading.Thread(target=lock_often) for _ in range(2)]\n"
        "for each in threads: each.start()\n"
        "for _ in range(300):\n"
        "    with eventprof.record(waits=True, memory=False): pass\n"
        "going = False\n"
        "for each in threads: each.join()\n"
        "begun = time.monotonic(); time.sleep(0.01)\n"
        "print('slept', time.monotonic() - begun >= 0.01)\n"
    )

    assert done.stdout == "slept True\n"


def waited_between(trace, name, begin_ns, end_ns):
    """How long a thread waited between two times of CLOCK_MONOTONIC."""
    table = trace.waits[trace.waits["thread"] == trace.threads["name"].tolist().index(name)]
    start = table["start"] + trace.metadata["start_monotonic_ns"]
    end = start + table["duration"]
    return np.maximum(np.minimum(end, end_ns) - np.maximum(start, begin_ns), 0).sum()


def recorded_digests():
    """Threads in C code, without the interpreter's lock; more than there are processors.

    Returns: the trace, and of each thread the begin and the end, and how long it ran meanwhile.
    """
    data, ran = bytes(20_000_000), {}

    def digest():
        time.sleep(0.002)  # before it waits, a thread looks at its processor time
        begin, ran_before = time.monotonic_ns(), time.thread_time_ns()
        for _ in range(3):
            hashlib.sha256(data).digest()
        processor, end = time.thread_time_ns() - ran_before, time.monotonic_ns()
        time.sleep(0.002)
        ran[threading.current_thread().name] = begin, end, processor

    return of_threads(*[digest] * 8, names=[f"t{number}" for number in range(8)]), ran


def test_work_is_what_the_processor_did():
    """The next look reports a processor that was lost before the measure began, but after a look.

    So of several runs one is right.
    """
    for _ in range(6):
        trace, ran = recorded_digests()
        work = [
            end - begin - int(waited_between(trace, name, begin, end))
            for name, (begin, end, _) in ran.items()
        ]
        right = [pytest.approx(processor, rel=0.02, abs=3 * MS) for _, _, processor in ran.values()]
        if work == right:
            break
    assert work == right
    assert len(of_kind(trace, "processor"))  # no machine has eight free processors for this
    assert trace.verify()


def test_what_waits_by_other_means_waits_for_something_not_known():
    libc = ctypes.CDLL(None)

    def pause():
        libc.usleep(300_000)  # by a pointer from dlsym()

    with recorded() as rec:
        pause()
        time.sleep(0.001)

    rows = of_kind(rec.trace, "other")
    # Before it had a processor again, it waited for that one.
    assert rows["duration"].sum() >= 30 * MS
    calls = rec.trace.calls
    names = calls["name"].tolist()
    row = next(number for number, name in enumerate(names) if name.endswith("pause"))
    assert calls["waited"][row] > 150 * MS


def call_around(trace, row):
    """By the table of calls: the innermost call of the thread in which a wait ended."""
    calls, waits = trace.calls, trace.waits
    end = waits["start"][row] + waits["duration"][row]
    around = (calls["thread"] == waits["thread"][row]) & (calls["start"] <= end)
    around &= end <= calls["start"] + calls["duration"]
    rows = np.flatnonzero(around)
    return int(rows[np.argmax(calls["depth"][rows])]) if len(rows) else None


def test_the_call_in_which_it_waited():
    lock = threading.Lock()

    def holds(n):
        with lock:
            time.sleep(0.002)
        return (holds(n - 1),) if n else ()

    def pauses():
        for _ in range(3):
            time.sleep(0.001)
            yield

    def work():
        holds(2)
        for _ in pauses():
            holds(0)

    def outer():
        begun.start()  # the calls around it are open at the start
        for each in threads:
            each.start()
        work()
        for each in threads:
            each.join()
        begun.stop()

    begun, threads = recorded(), [threading.Thread(target=work) for _ in range(3)]
    outer()

    trace = begun.trace
    call, kinds = trace.waits["call"], trace.waits["kind"]
    shown = [row for row in range(len(call)) if kinds[row] in ("lock", "sleep")]
    assert len(shown) >= 4 * 9
    for row in shown:
        assert (None if call[row] is np.ma.masked else call[row]) == call_around(trace, row)
    slept = trace.waits[np.flatnonzero(kinds == "sleep")]["call"]
    assert {trace.calls["name"][row] for row in slept} == {"sleep"}


def test_a_call_never_waited_longer_than_it_took():
    """A look at the processor time tells of calls that are over and of some that had not begun."""

    def inner():
        hashlib.sha256(data).digest()

    def outer():
        for _ in range(20):
            inner()

    data = bytes(4_000_000)
    trace = of_threads(*[outer] * 6)

    calls, tree = trace.calls, Tree(trace)
    waited = calls["waited"]
    assert (waited >= 0).all()
    assert (waited <= calls["duration"]).all()
    assert waited[calls["depth"] == 0].sum() == tree.nodes["waited"][0]
    by_function = trace.functions["waited_self"].sum()
    assert by_function == tree.own("waited_self").sum()


def test_the_verb_says_what_the_owner_did(tmp_path):
    (tmp_path / "program.py").write_text(
        "import threading, time\n"
        "LOCK = threading.Lock()\n"
        "def owner():\n"
        # Most of the run, also where the start of it is slow; longer than a spin for the lock.
        "    for _ in range(8):\n"
        "        with LOCK:\n"
        "            time.sleep(0.25)\n"
        "        time.sleep(0.005)\n"
        "def victim():\n"
        "    while threads[0].is_alive():\n"
        "        with LOCK:\n"
        "            pass\n"
        "        time.sleep(0.001)\n"
        "threads = [threading.Thread(target=f, name=f.__name__) for f in (owner, victim)]\n"
        "for each in threads: each.start()\n"
        "for each in threads: each.join()\n"
    )
    children.eventprof("run", "--waits", "-o", "w.epr", "program.py", cwd=tmp_path)

    text = children.eventprof("waits", "w.epr", cwd=tmp_path).stdout

    assert "for a lock in victim (program.py:10)" in text
    assert "let go on by owner" in text
    assert "was asleep in owner (program.py:6)" in text
    found = children.eventprof("analyze", "w.epr", cwd=tmp_path).stdout
    assert "for a lock" in found
    assert "owner had it, and in" in found
    assert "program.py:6  owner" in found
    report = children.eventprof("report", "--short", "w.epr", cwd=tmp_path).stdout
    assert "for locks" in report
    assert "s at program.py:10, while owner was asleep at program.py:6" in report
    assert "asleep" in report


def test_what_does_not_fit_into_a_line_of_the_report_is_in_the_next_one():
    lock, taken = threading.Lock(), threading.Event()

    def owner():
        with lock:
            taken.set()
            time.sleep(0.3)

    def victim():
        taken.wait()
        with lock:
            pass

    trace = of_threads(owner, victim, names=["the owner " * 6, "victim"])

    lines = sections(trace)
    at = next(n for n, line in enumerate(lines) if line.startswith("longest for a lock"))
    assert lines[at].endswith(",")
    assert "was asleep at" in lines[at + 1]
    assert lines[at + 1].endswith(f"test_waits.py:{owner.__code__.co_firstlineno + 3}")


def test_a_wait_in_a_library_is_told_of_the_own_line_that_called_it():
    begun = eventprof.record(waits=True, on_full="grow")
    box = queue.Queue()

    def take():
        return box.get()

    def outer():
        begun.start()  # the calls around it are open at the start
        thread.start()
        take()
        begun.stop()

    thread = threading.Thread(target=lambda: [time.sleep(0.2), box.put(1)], name="giver")
    outer()
    thread.join()

    found = [each for each in by_place(begun.trace) if each.place.kind == "lock"]
    one = next(each for each in found if str(each.place.name).endswith("take"))
    assert one.place.line == take.__code__.co_firstlineno + 1
    assert one.is_own and not one.is_lock_of_own
    assert one.through.name == "Condition.wait"
    assert one.total > 5 * MS
    assert [name for name, _ in one.wakers] == ["giver"]
    assert one.meanwhile[0][0].kind == "sleep"
    # The thread's start is waited for in a line of outer(), whose call no event of the window begins.
    start = [each for each in found if str(each.place.name).endswith("outer")]
    assert {each.place.line for each in start} <= {outer.__code__.co_firstlineno + 2}


def test_the_verb_follows_a_chain_of_threads(tmp_path):
    (tmp_path / "program.py").write_text(
        "import threading, time\n"
        "A, B = threading.Lock(), threading.Lock()\n"
        "has_b, has_a = threading.Event(), threading.Event()\n"
        "def last():\n"
        "    with B:\n"
        "        has_b.set()\n"
        "        time.sleep(0.6)\n"
        "def middle():\n"
        "    has_b.wait()\n"
        "    with A:\n"
        "        has_a.set()\n"
        "        with B:\n"
        "            pass\n"
        "def first():\n"
        "    has_a.wait()\n"
        "    with A:\n"
        "        pass\n"
        "threads = [threading.Thread(target=f, name=f.__name__) for f in (last, middle, first)]\n"
        "for each in threads: each.start()\n"
        "for each in threads: each.join()\n"
    )
    children.eventprof("run", "-o", "w.epr", "program.py", cwd=tmp_path)

    lines = children.eventprof("waits", "w.epr", "--limit", "0", cwd=tmp_path).stdout.splitlines()

    at = next(n for n, line in enumerate(lines) if "for a lock in first (program.py:16)" in line)
    block = " ".join(line.strip() for line in lines[at : at + 5])
    assert "let go on by middle" in block
    assert "was waiting for a lock in middle (program.py:12)" in block
    assert "until last let it go on, which was asleep in last (program.py:7)" in block


def test_a_wait_for_what_no_version_knows_is_for_something_else(tmp_path):
    path = tmp_path / "later.epr"
    with recorded(output=path):
        time.sleep(0.01)
    before = eventprof.open(path)
    row = the_one(of_kind(before, "sleep"))
    data = path.read_bytes()
    sleep = eventprof._core.WAIT_WORDS.index("sleep")
    word, later = (struct.pack("<Q", row["duration"] << 4 | what) for what in (sleep, 15))
    assert data.count(word) == 1
    path.write_bytes(data.replace(word, later))

    trace = eventprof.open(path)

    # Under load it may have waited for something else, too.
    wanted = of_kind(before, "other")["duration"].sum() + row["duration"]
    assert of_kind(trace, "other")["duration"].sum() == wanted
    assert trace._tree.waits["other"] == wanted
    out = io.StringIO()
    trace.show_waits(file=out)
    assert "for something that is not known" in out.getvalue()


def test_a_recording_without_waits_says_how_to_have_them(tmp_path):
    path = tmp_path / "without.epr"
    with eventprof.record(output=path):
        pass

    done = children.eventprof("waits", path, status=1)

    assert "waits were not recorded: record with waits=True" in done.stderr
    assert not len(eventprof.open(path).waits)


# ---- A preloaded library counts the same ---------------------------------------------------------

COUNTER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <signal.h>
#include <time.h>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

static _Atomic long long sums_ns[5];

static long long
now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* Calls shorter than `least_ns` do not count. */
#define COUNTED_FROM(least_ns, kind, type, name, parameters, arguments) \
    type name parameters                                              \
    {                                                                 \
        static type (*next) parameters;                               \
        if (next == NULL) {                                           \
            next = (type(*) parameters)dlsym(RTLD_NEXT, #name);       \
        }                                                             \
        long long from_ns = now_ns();                                 \
        type result = next arguments;                                 \
        long long ns = now_ns() - from_ns;                            \
        sigset_t blocked;                                             \
        pthread_sigmask(SIG_BLOCK, NULL, &blocked);                   \
        if (!sigismember(&blocked, SIGUSR1)) { /* not eventprof's */  \
            atomic_fetch_add(&sums_ns[kind], ns >= least_ns ? ns : 0); \
        }                                                             \
        return result;                                                \
    }
#define COUNTED(kind, name, parameters, arguments) \
    COUNTED_FROM(0, kind, int, name, parameters, arguments)

COUNTED(0, pthread_cond_timedwait,
        (pthread_cond_t *a, pthread_mutex_t *b, const struct timespec *c), (a, b, c))
COUNTED(0, pthread_cond_wait, (pthread_cond_t *a, pthread_mutex_t *b), (a, b))
COUNTED(1, sem_wait, (sem_t *a), (a))
COUNTED(1, sem_clockwait, (sem_t *a, clockid_t b, const struct timespec *c), (a, b, c))
/* Without a GIL a thread spins for a lock before it waits; short parts are no events. */
int
sched_yield(void)
{
    static int (*next)(void);
    if (next == NULL) {
        next = (int(*)(void))dlsym(RTLD_NEXT, "sched_yield");
    }
    long long from_ns = now_ns();
    int result = next();
    long long ns = now_ns() - from_ns;
    atomic_fetch_add(&sums_ns[1], ns >= 20000 ? ns : 0);
    return result;
}
COUNTED(2, clock_nanosleep,
        (clockid_t a, int b, const struct timespec *c, struct timespec *d), (a, b, c, d))

COUNTED(3, poll, (struct pollfd *a, nfds_t b, int c), (a, b, c))
COUNTED_FROM(20000, 3, ssize_t, read, (int a, void *b, size_t c), (a, b, c))
COUNTED_FROM(20000, 3, ssize_t, write, (int a, const void *b, size_t c), (a, b, c))
COUNTED(4, waitpid, (pid_t a, int *b, int c), (a, b, c))

long long
counted_ns(int kind)
{
    return sums_ns[kind];
}
"""

PROGRAM = """
import ctypes, json, os, queue, random, select, sys, threading, time
import eventprof
count = ctypes.CDLL(None).counted_ns
count.restype = ctypes.c_longlong
def counted():
    return [count(kind) for kind in range(5)]
rng = random.Random(int(sys.argv[1]))
locks = [threading.Lock() for _ in range(3)]
# A thread that has just been started waits before it is a thread of Python: so few are.
wanted = queue.SimpleQueue()
def write():
    for pause, file in iter(wanted.get, None):
        time.sleep(pause)
        os.write(file, b"x")
writer = threading.Thread(target=write)
def work(seed):
    rng = random.Random(seed)
    for _ in range(15):
        act = rng.randrange(7)
        if act == 0:
            with locks[rng.randrange(3)]:
                time.sleep(rng.random() * 0.004)
        elif act == 1:
            time.sleep(rng.random() * 0.003)
        elif act == 2:
            end = time.monotonic() + rng.random() * 0.008
            while time.monotonic() < end: sum(range(50))
        elif act == 3:
            ends = os.pipe()
            wanted.put((rng.random() * 0.004, ends[1]))
            os.read(ends[0], 1)
            for end in ends: os.close(end)
        elif act == 4:
            select.poll().poll(1 + rng.random() * 3)
        elif act == 5 and not rng.randrange(3):
            os.waitpid(os.posix_spawnp("sleep", ["sleep", "0.005"], os.environ), 0)
        else:
            with locks[rng.randrange(3)]:
                sum(range(20000))
threads = [threading.Thread(target=work, args=(rng.random(),)) for _ in range(rng.randrange(2, 5))]
with eventprof.record(waits=True, memory=False, on_full="grow") as rec:
    before = counted()
    for each in [writer, *threads]: each.start()
    for each in threads: each.join()
    wanted.put(None)
    writer.join()
    after = counted()
waits = rec.trace._tree.waits
assert rec.trace.verify()
print(json.dumps([[b - a for a, b in zip(before, after)], [waits[k] for k in ("gil", "lock", "sleep", "io", "process")]]))
"""


def preloaded(folder, text):
    """A library, to be preloaded, of a text in C."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no compiler")
    source, library = folder / "preloaded.c", folder / "preloaded.so"
    source.write_text(text)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


@pytest.fixture(scope="module")
def counter(tmp_path_factory):
    return preloaded(tmp_path_factory.mktemp("counter"), COUNTER)


@pytest.mark.parametrize("seed", range(4))
def test_sums_are_those_of_a_preloaded_counter(counter, seed):
    """It is called by our replacements: the difference is what these take themselves.

    A thread that loses its processor between the two readings of the clock makes it larger: of
    several runs one is right.
    """
    for _ in range(5):
        done = children.program(PROGRAM, seed, LD_PRELOAD=str(counter))
        truth, ours = json.loads(done.stdout)
        right = [pytest.approx(time, rel=0.02, abs=MS) for time in truth]
        if ours == right:
            break
    assert ours == right


# ---- Without a GIL a thread spins before it waits ------------------------------------------------

SLOW_YIELD = r"""
#define _GNU_SOURCE
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

static _Thread_local int counts;
static _Atomic long long yielded_ns;
static _Atomic int yields;

void count_yields(void) { counts = 1; }
long long get_yielded_ns(void) { return yielded_ns; }
int get_yields(void) { return yields; }

/* As on a machine where others have the processors. */
int
sched_yield(void)
{
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    usleep(counts ? 2000 : 0);
    clock_gettime(CLOCK_MONOTONIC, &to);
    if (counts) {
        yielded_ns += (to.tv_sec - from.tv_sec) * 1000000000ll + to.tv_nsec - from.tv_nsec;
        yields++;
    }
    return 0;
}
"""

SPINS = """
import ctypes, json, os, threading, time
import numpy as np
import eventprof
library = ctypes.PyDLL(None)  # which goes on without a wait
library.get_yielded_ns.restype = ctypes.c_longlong
lock, taken = threading.Lock(), threading.Event()
def owner():
    with lock:
        taken.set()
        while library.get_yields() < 5:
            time.sleep(0.001)
def victim():
    taken.wait()
    library.count_yields()
    with lock:
        pass
    counted.append(library.get_yielded_ns())
    os.sched_yield()
counted = []
threads = [threading.Thread(target=each, name=each.__name__) for each in (owner, victim)]
with eventprof.record(waits=True, memory=False, on_full="grow") as rec:
    for each in threads: each.start()
    for each in threads: each.join()
table = rec.trace.waits
line = victim.__code__.co_firstlineno + 3
kinds = {
    at: [(kind, ns) for kind, ns, where in zip(table["kind"], table["duration"].tolist(), table["caller_line"])
         if where == at]
    for at in (line, line + 3)
}
assert rec.trace.verify()
print(json.dumps([counted[0], kinds[line], kinds[line + 3]]))
"""


@pytest.mark.skipif(raw.HAS_GIL, reason="with a GIL no thread spins for a lock")
def test_a_thread_that_spins_waits_for_the_lock(tmp_path):
    library = preloaded(tmp_path, SLOW_YIELD)

    done = children.program(SPINS, LD_PRELOAD=str(library))

    yielded_ns, rows, of_program = json.loads(done.stdout)
    assert yielded_ns >= 5 * 2 * MS
    assert sum(ns for kind, ns in rows if kind == "lock") >= yielded_ns
    assert "lock" not in [kind for kind, _ in of_program]


def test_a_spin_and_the_wait_after_it_are_one_row():
    gil, lock = (eventprof._core.WAIT_WORDS.index(word) for word in ("gil", "lock"))
    rows = [  # thread, kind, start, duration, call, line, spins, waker
        (0, lock, 0, 40_000, 3, 7, True, -1),
        (0, lock, 41_000, 30_000, 3, 7, True, -1),
        (0, lock, 71_500, 20_000, 3, 7, False, 1),
        (0, lock, 92_000, 20_000, 3, 7, False, 1),  # after a lock was taken: another wait
        (0, lock, 113_000, 25_000, 3, 7, True, -1),
        (0, lock, 139_000, 25_000, 3, 8, False, 1),
        (0, gil, 200_000, 5_000_000, 3, 8, False, -1),
        (0, gil, 5_201_000, 4_000_000, 3, 8, False, -1),
        (1, lock, 0, 30_000, 3, 7, True, -1),
        (1, lock, 130_001, 30_000, 3, 7, False, 0),
        (1, lock, 200_000, 30_000, 4, 7, True, -1),  # the lock was taken in the spin
        (1, lock, 231_000, 30_000, 5, 7, False, 0),  # in another call of the same function
    ]
    names = ("thread", "kind", "start", "duration", "around", "caller_line", "spins", "waker")
    columns = dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))
    columns |= {
        name: np.zeros(len(rows), np.int32) for name in ("caller", "flags", "object", "type")
    }

    joined = waits._joined(columns)

    assert "spins" not in joined
    starts = [0, 92_000, 113_000, 139_000, 200_000, 0, 130_001, 200_000, 231_000]
    assert joined["start"].tolist() == starts
    lengths = [91_500, 20_000, 25_000, 25_000, 9_001_000, 30_000, 30_000, 30_000, 30_000]
    assert joined["duration"].tolist() == lengths
    assert joined["waker"].tolist() == [1, 1, -1, 1, -1, -1, 0, -1, 0]
