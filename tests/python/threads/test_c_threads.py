"""Threads that Python did not start: by pthread_create, with the GIL and without."""

from __future__ import annotations

import ctypes
import os
import shutil
import threading
import time
from collections import Counter

import children
import pytest
import raw
from children import child

from eventprof import _core

pytestmark = pytest.mark.usefixtures("restored")

SIZE = 12347

libc = ctypes.CDLL(None)
libc.pthread_create.argtypes = [ctypes.c_void_p] * 4
libc.pthread_join.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
libc.pthread_key_create.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
libc.pthread_key_delete.argtypes = [ctypes.c_uint]
libc.pthread_setspecific.argtypes = [ctypes.c_uint, ctypes.c_void_p]
# Without the GIL, as C code that knows nothing of Python would.
python = ctypes.CDLL(None)
python.PyMem_RawMalloc.argtypes = [ctypes.c_size_t]
python.PyMem_RawMalloc.restype = ctypes.c_void_p
python.PyMem_RawFree.argtypes = [ctypes.c_void_p]

#: A routine of a C thread; ctypes enters by PyGILState_Ensure, and leaves.
Routine = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


def address_of(function) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value


def start(routine: int, argument: int = 0) -> int:
    """Begins a C thread at an address."""
    thread = ctypes.c_void_p()
    assert libc.pthread_create(ctypes.byref(thread), None, routine, argument) == 0
    return thread.value


def join(thread: int) -> int:
    """What the routine returned."""
    result = ctypes.c_void_p()
    assert libc.pthread_join(thread, ctypes.byref(result)) == 0
    return result.value or 0


def run(function) -> None:
    routine = Routine(function)
    join(start(address_of(routine)))


def leaf(n):
    return n


def leaves(rows) -> Counter:
    return Counter(row.thread for row in rows if row.word == "call" and row.name == "leaf")


# ---- With the GIL --------------------------------------------------------------------------------


def test_c_threads_are_seen_by_monitoring_and_their_blocks_by_all(backend):
    def work(unused):
        for i in range(10):
            leaf(i)
        blocks.append(bytearray(SIZE))
        return 0

    blocks: list = []
    with raw.recorder(raw.ALL, backend=backend) as rec:
        for _ in range(3):
            run(work)
        blocks.clear()

    rows = raw.rows(rec)
    # The hook of sys.setprofile is a thread's own, and nobody sets it on these.
    assert sorted(leaves(rows).values()) == ([10] * 3 if backend == "monitoring" else [])
    made = [row for row in rows if row.size == SIZE + raw.BYTEARRAY_MORE and row.word == "malloc"]
    assert len(made) == 3
    assert len({row.thread for row in made} - {0}) == 3
    freed = [row for row in rows if row.word == "free" and row.address in {r.address for r in made}]
    assert len(freed) == 3
    assert {row.thread for row in freed} == {0}


def test_a_c_thread_that_comes_again_and_again_is_one_thread(backend):
    """Each entry makes a thread state, and each exit drops it."""
    states = []

    def work(unused):
        states.append(threading.get_native_id())
        leaf(1)
        again = Routine(lambda unused: leaf(2))
        # Out of Python, as another library would be called, and in again: nested, then anew.
        again(None)
        return 0

    routine = Routine(work)
    both = Routine(lambda unused: routine(None) or routine(None) or 0)
    with raw.recorder(raw.ALL, backend=backend) as rec:
        join(start(address_of(both)))

    trace = raw.capture(rec)
    assert len(set(states)) == 1
    assert [thread[1] for thread in trace.threads()].count(states[0]) == 1
    if backend == "monitoring":
        assert sorted(leaves(raw.rows(trace)).values()) == [4]


def test_a_c_thread_that_runs_before_and_after(backend):
    """It waits in a call as the recording begins, and in another as that ends."""
    inbox, answers = threading.Semaphore(0), threading.Semaphore(0)

    def turn(n):
        answers.release()
        inbox.acquire()
        return leaf(n)

    def work(unused):
        for n in range(3):
            turn(n)
        answers.release()
        return 0

    routine = Routine(work)
    thread = start(address_of(routine))
    try:
        answers.acquire()
        with raw.recorder(raw.CALLS, backend=backend) as rec:
            inbox.release()
            answers.acquire()
    finally:
        inbox.release(2)
        join(thread)

    rows = [row for row in raw.rows(rec) if row.thread != 0 and row.sort == "python"]
    ours = [
        (row.word, row.name.rpartition(".")[2])
        for row in rows
        if row.name.rpartition(".")[2] in ("turn", "leaf", "work")
    ]
    # On every backend: at the start it was there, as any other thread.
    assert ours == [("call", "leaf"), ("return", "leaf"), ("return", "turn"), ("call", "turn")]
    assert all(row.call >= 0 for row in rows)


def test_recordings_begin_and_end_while_c_threads_enter_and_leave(backend):
    go = True

    def work(unused):
        leaf(1)
        bytearray(SIZE)
        return 0

    routine = Routine(work)
    address = address_of(routine)

    def spin():
        while go:
            join(start(address))

    threads = [threading.Thread(target=spin) for _ in range(3)]
    for thread in threads:
        thread.start()
    recorders = [raw.recorder(raw.ALL, backend=backend) for _ in range(20)]
    try:
        for rec in recorders:
            with rec:
                join(start(address))
    finally:
        go = False
        for thread in threads:
            thread.join()

    for rec in recorders:
        trace = raw.capture(rec)
        assert trace.facts()["damaged_chunks"] == 0
        assert not raw.lost(trace)
        assert SIZE + raw.BYTEARRAY_MORE in {row.size for row in raw.rows(trace)}


# ---- Without it ----------------------------------------------------------------------------------


def test_blocks_of_threads_that_never_had_a_thread_state():
    """A thread that does nothing but PyMem_RawMalloc, and one that frees what it made."""
    malloc, free = address_of(python.PyMem_RawMalloc), address_of(python.PyMem_RawFree)

    with raw.recorder(raw.MEMORY) as rec:
        makers = [start(malloc, SIZE + i) for i in range(8)]
        blocks = [join(thread) for thread in makers]
        for thread in [start(free, block) for block in blocks]:
            join(thread)

    trace = raw.capture(rec)
    ours = [row for row in raw.rows(trace) if row.address in blocks and row.domain == "raw"]
    made = {row.size: row for row in ours if SIZE <= row.size < SIZE + 8 and row.word == "malloc"}
    assert sorted(made) == list(range(SIZE, SIZE + 8))
    for row in made.values():
        # What they executed is not Python's: nothing is invented.
        assert (row.name, row.line) == (None, -1)
        (end,) = [
            r for r in ours if r.word == "free" and r.address == row.address and r.time >= row.time
        ]
        assert end.thread != row.thread
    assert len({row.thread for row in made.values()} - {0}) == 8
    assert {name for name, *_ in trace.threads()[1:]} == {None}


def test_many_threads_without_the_gil_at_once_while_recorders_come_and_go():
    """recorded + lost == emitted, of threads that wait for no lock of the interpreter's."""
    malloc, free = address_of(python.PyMem_RawMalloc), address_of(python.PyMem_RawFree)
    whole = raw.recorder(raw.bits("MALLOC_RAW", "FREE_RAW"))
    with whole:
        for _ in range(50):
            with raw.recorder(raw.MEMORY):
                threads = [start(malloc, SIZE) for _ in range(8)]
                blocks = [join(thread) for thread in threads]
            for thread in [start(free, block) for block in blocks]:
                join(thread)

    rows = raw.rows(whole)
    live: set[int] = set()
    births = deaths = 0
    for row in rows:
        if row.word == "malloc" and row.size == SIZE:
            live.add(row.address)
            births += 1
        elif row.word == "free" and row.address in live:
            live.remove(row.address)
            deaths += 1
    assert (births, deaths) == (400, 400)


# ---- At a thread's end ---------------------------------------------------------------------------


def test_destructors_of_a_thread_that_free_and_allocate():
    """pthread_key destructors run when Python's thread state is gone, ours in their midst."""
    keys = [ctypes.c_uint() for _ in range(2)]
    destructors = [python.PyMem_RawFree, python.PyMem_RawMalloc]
    for key, destructor in zip(keys, destructors, strict=True):
        assert libc.pthread_key_create(ctypes.byref(key), address_of(destructor)) == 0
    blocks, tasks = [], []

    def work(unused=None):
        tasks.append(threading.get_native_id())
        blocks.append(python.PyMem_RawMalloc(SIZE))
        libc.pthread_setspecific(keys[0], blocks[-1])
        libc.pthread_setspecific(keys[1], SIZE + 1)
        return 0

    try:
        with raw.recorder(raw.MEMORY) as rec:
            for _ in range(3):
                run(work)
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            # That is over before its destructors are.
            wait_until(lambda: not any(os.path.exists(f"/proc/self/task/{task}") for task in tasks))
    finally:
        for key in keys:
            libc.pthread_key_delete(key)

    rows = raw.rows(rec)
    made = [row for row in rows if row.size == SIZE and row.word == "malloc"]
    late = [row for row in rows if row.size == SIZE + 1 and row.word == "malloc"]
    assert (len(made), len(late)) == (4, 4)
    for row in made:
        assert any(
            r.word == "free" and r.address == row.address and r.thread == row.thread for r in rows
        )
    assert {row.thread for row in late} == {row.thread for row in made}
    for row in late:
        python.PyMem_RawFree(row.address)


ROUNDS = """
#include <pthread.h>
#include <stddef.h>
extern void *PyMem_RawMalloc(size_t);
extern void PyMem_RawFree(void *);
static pthread_key_t keys[2];
static void once(size_t size) { PyMem_RawFree(PyMem_RawMalloc(size)); }
/* A value that is set again is destroyed again: in each of the system's rounds, before all other
 * keys' destructors and after them. */
static void destroy0(void *value) { once(SIZE); pthread_setspecific(keys[0], value); }
static void destroy1(void *value) { once(SIZE); pthread_setspecific(keys[1], value); }
static void *work(void *first)
{
    if (first != NULL) once(SIZE);
    pthread_setspecific(keys[0], keys);
    pthread_setspecific(keys[1], keys);
    return NULL;
}
__attribute__((constructor)) static void before(void) { pthread_key_create(&keys[0], destroy0); }
void after(void) { pthread_key_create(&keys[1], destroy1); }
int threads(long count, long first)
{
    for (long i = 0; i < count; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, (void *)first) != 0) return -1;
        pthread_join(thread, NULL);
    }
    return 0;
}
"""


@pytest.mark.parametrize("first", [1, 0], ids=["known before", "first heard of at its end"])
def test_allocations_in_every_round_of_a_threads_end(first, tmp_path):
    """Recorded + lost == emitted, to the last round, where nobody gives a log back any more."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source, library = tmp_path / "rounds.c", tmp_path / "rounds.so"
    source.write_text(ROUNDS.replace("SIZE", str(SIZE)))
    children.run(compiler, "-shared", "-fPIC", "-o", library, source)
    count = 50
    status, output, errors = child(
        f"""
    from eventprof import _core
    rounds.after()
    rec = raw.recorder(raw.bits("MALLOC_RAW", "FREE_RAW"))
    rounds.threads(1, {first})
    with rec:
        assert rounds.threads({count}, {first}) == 0
    stats = _core.engine_stats()
    trace = raw.capture(rec)
    words = [row.word for row in raw.rows(trace) if row.size == {SIZE}]
    lost = raw.lost(trace)
    print(words.count("malloc"), words.count("free"), lost["MALLOC_RAW"], lost["FREE_RAW"])
    print(stats["logs"], stats["bytes_mapped"])
    """,
        "auto",
        # Before our extension makes its key: the destructors of one round run in order of the keys.
        before=f"import ctypes; rounds = ctypes.CDLL({str(library)!r})",
    )

    assert (status, errors) == (0, "")
    mallocs, frees, lost_mallocs, lost_frees, logs, chunk_bytes = map(int, output.split())
    emitted = count * (first + 2 * 4)  # PTHREAD_DESTRUCTOR_ITERATIONS
    assert (mallocs + lost_mallocs, frees + lost_frees) == (emitted, emitted)
    assert lost_mallocs == lost_frees <= count * 3
    assert logs <= 32
    assert chunk_bytes <= 40 << 20


def test_the_threads_of_a_burst_leave_no_logs(backend):
    """Short-lived ones, one after the other: what they held goes to the next."""
    import _thread

    def spin(done):
        leaf(1)
        done.release()

    def burst(count):
        for _ in range(count):
            alive = _thread._count()
            done = _thread.allocate_lock()
            done.acquire()
            _thread.start_new_thread(spin, (done,))
            done.acquire()
            wait_until(lambda alive=alive: _thread._count() <= alive)

    with raw.recorder(raw.CALLS, backend=backend, on_full=raw.OVERWRITE, limit=4 << 20) as rec:
        burst(100)
        first = _core.engine_stats()
        burst(1500)
        last = _core.engine_stats()

    assert last["bytes_mapped"] <= first["bytes_mapped"] + (4 << 20)
    assert last["logs"] <= first["logs"] + 4
    trace = raw.capture(rec)
    lost = raw.lost(trace)["CALL"]
    kept = Counter(row.name for row in raw.rows(trace) if row.word == "call")
    assert kept["leaf"] + lost >= 1600
    assert kept["leaf"] == 1600 or lost > 0


def wait_until(happened, seconds=60):
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.0001)
