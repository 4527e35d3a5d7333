"""The data of NumPy's arrays: domain numpy, on every thread, in every context, beside others' handlers."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import sys
import textwrap
import threading

import children
import numpy as np
import pytest
from numpy._core import _multiarray_umath

import eventprof

pytestmark = [pytest.mark.version, pytest.mark.usefixtures("restored")]

COUNT = 12347  # of int64


class Handler(ctypes.Structure):
    """PyDataMem_Handler."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


_address_in = ctypes.pythonapi.PyCapsule_GetPointer
_address_in.restype = ctypes.c_void_p
_address_in.argtypes = [ctypes.py_object, ctypes.c_char_p]
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_API = (ctypes.c_void_p * 307).from_address(_address_in(_multiarray_umath._ARRAY_API, None))


def set_handler(capsule):
    """Call PyDataMem_SetHandler() as an extension does: through NumPy's table."""
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(_API[304])(capsule)


def get_handler():
    return ctypes.PYFUNCTYPE(ctypes.py_object)(_API[305])()


def default_handler():
    capsule = ctypes.cast(_API[306], ctypes.POINTER(ctypes.py_object)).contents.value
    return Handler.from_address(_address_in(capsule, b"mem_handler"))


def state():
    """What NumPy has of handlers, as far as anybody could exchange it."""
    handler = default_handler()
    functions = [getattr(handler, name) for name in ("malloc", "calloc", "realloc", "free")]
    return handler.context, functions, _API[304], _address_in(get_handler(), b"mem_handler")


@pytest.fixture(autouse=True)
def _as_before():
    before = state()
    yield
    assert state() == before


MALLOC = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
CALLOC = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
REALLOC = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
FREE = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class Counting:
    """Somebody's handler: it counts, and asks the C library."""

    def __init__(self, name="counting"):
        libc = ctypes.CDLL(None)
        for function in (libc.malloc, libc.calloc, libc.realloc):
            function.restype = ctypes.c_void_p
        libc.free.argtypes = [ctypes.c_void_p]
        self.made, self.freed = [], []

        def malloc(_, size):
            self.made.append(size)
            return libc.malloc(ctypes.c_size_t(size))

        def calloc(_, count, size):
            self.made.append(count * size)
            return libc.calloc(ctypes.c_size_t(count), ctypes.c_size_t(size))

        def realloc(_, block, size):
            self.made.append(size)
            return libc.realloc(ctypes.c_void_p(block), ctypes.c_size_t(size))

        def free(_, block, size):
            self.freed.append(size)
            libc.free(block)

        self._kept = MALLOC(malloc), CALLOC(calloc), REALLOC(realloc), FREE(free)
        addresses = [ctypes.cast(each, ctypes.c_void_p).value for each in self._kept]
        self._handler = Handler(name.encode(), 1, None, *addresses)
        self.capsule = _new_capsule(ctypes.addressof(self._handler), b"mem_handler", None)

    def __enter__(self):
        self._before = set_handler(self.capsule)
        return self

    def __exit__(self, *_):
        set_handler(self._before)


def recorded(**options):
    return eventprof.record(calls=False, c_calls=False, **options)


def arrays_of(trace):
    blocks = trace.allocations
    return blocks[blocks["domain"] == "numpy"]


def sizes_of(trace):
    return arrays_of(trace)["size"].tolist()


# ---- Bytes ---------------------------------------------------------------------------------------


def test_bytes_are_the_nbytes_of_the_arrays():
    with recorded() as rec:
        made = [
            np.empty(COUNT),
            np.zeros((3, 5, 7), dtype=np.int16),
            np.arange(11),
            np.array([[1, 2], [3, 4]], dtype=np.uint8),
        ]
        made.append(made[0][::2].copy())

    assert sizes_of(rec.trace) == [each.nbytes for each in made]
    assert arrays_of(rec.trace)["address"].tolist() == [
        each.__array_interface__["data"][0] for each in made
    ]


def test_a_view_has_no_bytes_of_its_own():
    whole = np.arange(COUNT)
    with recorded() as rec:
        views = [whole[5:], whole.reshape(1, -1), whole.view(np.uint8)]

    assert views[0].base is whole
    assert sizes_of(rec.trace) == []


def test_each_block_says_the_line_and_when_it_ended():
    with recorded() as rec:
        kept = np.empty(COUNT)
        gone = np.empty(3 * COUNT)
        del gone
    blocks = arrays_of(rec.trace)

    first = test_each_block_says_the_line_and_when_it_ended.__code__.co_firstlineno
    assert blocks["line"].tolist() == [first + 2, first + 3]
    assert rec.trace.memory_of(["numpy"])["live"].tolist()[-1] == kept.nbytes


def test_a_resize_is_a_realloc():
    with recorded() as rec:
        array = np.zeros(COUNT)
        array.resize(2 * COUNT, refcheck=False)
    events = rec.trace.events
    numpy_events = events[events["domain"] == "numpy"]

    assert numpy_events["event"].tolist() == ["calloc", "realloc_free", "realloc"]
    assert numpy_events["size"].tolist() == [8 * COUNT, 8 * COUNT, 16 * COUNT]


def test_small_arrays_of_numpys_own_cache_are_seen():
    for _ in range(20):
        np.empty(3)  # the cache has some now
    with recorded() as rec:
        for _ in range(20):
            np.empty(3)

    assert sizes_of(rec.trace) == [24] * 20


def test_no_block_is_in_two_domains():
    with recorded() as rec:
        arrays = [np.empty(1 << n) for n in range(18)]
    blocks = rec.trace.allocations

    addresses = [each.__array_interface__["data"][0] for each in arrays]
    domains = [
        domain
        for address, domain in zip(
            blocks["address"].tolist(), blocks["domain"].tolist(), strict=True
        )
        if address in addresses
    ]
    assert domains == ["numpy"] * len(arrays)


def test_arrays_from_before_and_after():
    old = np.empty(COUNT)
    with recorded() as rec:
        del old
        kept = np.empty(3 * COUNT)
    later = np.empty(5 * COUNT)
    del kept, later
    events = rec.trace.events
    numpy_events = events[events["domain"] == "numpy"]

    assert numpy_events["event"].tolist() == ["free", "malloc"]
    assert sizes_of(rec.trace) == [8 * 3 * COUNT]


def test_off_is_off():
    with recorded(numpy=False) as rec:
        np.empty(COUNT)

    assert "numpy" not in rec.trace.allocations["domain"].tolist()
    assert "numpy" not in rec.options.domains


@pytest.mark.parametrize("memory", [False, ["obj"]])
def test_auto_goes_with_all_of_the_memory(memory):
    assert "numpy" not in eventprof.record(memory=memory).options.domains
    assert "numpy" in eventprof.record().options.domains


def test_arrays_alone():
    with recorded(memory=False, numpy=True) as rec:
        made = np.empty(COUNT)

    assert rec.trace.allocations["domain"].tolist() == ["numpy"]
    assert rec.trace.allocations["size"].tolist() == [made.nbytes]


@pytest.mark.parametrize("value", ["yes", None, 3])
def test_a_wrong_value_is_refused(value):
    with pytest.raises((TypeError, ValueError), match="numpy must be 'auto', True or False"):
        eventprof.record(numpy=value)


# ---- Threads and contexts ------------------------------------------------------------------------


def test_threads_from_before_and_later():
    go, made, done = threading.Event(), threading.Event(), []

    def work(count):
        go.wait(60)
        done.append(np.empty(count).nbytes)
        made.set()

    early = threading.Thread(target=work, args=(COUNT,))
    early.start()
    with recorded() as rec:
        go.set()
        made.wait(60)
        late = threading.Thread(target=work, args=(3 * COUNT,))
        late.start()
        late.join()
        early.join()

    assert sorted(sizes_of(rec.trace)) == sorted(done) == [8 * COUNT, 24 * COUNT]
    assert len(set(arrays_of(rec.trace)["thread"].tolist())) == 2


def test_tasks_and_contexts():
    async def task(count):
        first = np.empty(count)
        await asyncio.sleep(0)
        return first.nbytes + np.empty(count).nbytes

    async def main():
        return await asyncio.gather(task(COUNT), task(3 * COUNT))

    before = contextvars.copy_context()
    with recorded() as rec:
        asyncio.run(main())
        before.run(np.empty, 5 * COUNT)
        contextvars.Context().run(np.empty, 7 * COUNT)
    large = [size for size in sizes_of(rec.trace) if size >= 8 * COUNT]

    assert large == [8 * n * COUNT for n in (1, 3, 1, 3, 5, 7)]


def test_a_stop_in_the_middle_from_another_thread():
    recorder = recorded()
    recorder.start()
    kept = [np.empty(COUNT) for _ in range(5)]
    thread = threading.Thread(target=recorder.stop)
    thread.start()
    thread.join()
    more = [np.empty(3 * COUNT) for _ in range(5)]
    kept.clear()
    more.clear()

    assert sizes_of(recorder.trace) == [8 * COUNT] * 5


def test_two_recorders_overlap():
    first, second = recorded(), recorded(memory=False, numpy=True)
    first.start()
    a = np.empty(COUNT)
    second.start()
    b = np.empty(3 * COUNT)
    first.stop()
    c = np.empty(5 * COUNT)
    second.stop()

    assert sizes_of(first.trace) == [a.nbytes, b.nbytes]
    assert sizes_of(second.trace) == [b.nbytes, c.nbytes]


# ---- Handlers of others --------------------------------------------------------------------------


def test_a_handler_from_before_works_and_is_seen():
    with Counting() as other:
        with recorded() as rec:
            array = np.empty(COUNT)
            assert np._core.multiarray.get_handler_name(array) == "counting"
            name = np._core.multiarray.get_handler_name()
        del array

    assert name == "counting"
    assert other.made == sizes_of(rec.trace) == [8 * COUNT]
    assert other.freed == [8 * COUNT]


def test_a_handler_that_is_set_meanwhile_works_and_is_seen():
    with recorded() as rec, Counting() as other:
        inside = np.empty(COUNT)
        name = np._core.multiarray.get_handler_name(inside)
    outside = np.empty(3 * COUNT)
    del inside, outside

    assert name == "counting"
    assert other.made == sizes_of(rec.trace) == [8 * COUNT]
    assert other.freed == [8 * COUNT]


def test_an_array_has_its_handler_after_the_stop_and_in_the_next_recording():
    with Counting() as other:
        with recorded():
            array = np.empty(COUNT)
        assert np._core.multiarray.get_handler_name(array) == "counting"
        with recorded() as again:
            del array
    events = again.trace.events
    numpy_events = events[events["domain"] == "numpy"]

    assert other.freed == [8 * COUNT]
    assert numpy_events["event"].tolist() == ["free"]


def test_a_handler_in_a_task_is_of_that_task():
    other = Counting()

    async def with_it():
        with other:
            array = np.empty(COUNT)
            await asyncio.sleep(0)
            return array.nbytes + np.empty(3 * COUNT).nbytes

    async def without():
        array = np.empty(5 * COUNT)
        await asyncio.sleep(0)
        return array.nbytes

    async def main():
        return await asyncio.gather(with_it(), without())

    with recorded() as rec:
        asyncio.run(main())
    large = [size for size in sizes_of(rec.trace) if size >= 8 * COUNT]

    assert [size for size in other.made if size >= 8 * COUNT] == [8 * COUNT, 24 * COUNT]
    assert large == [8 * COUNT, 40 * COUNT, 24 * COUNT]


class Emptying(list):
    """Somewhere in a handler: what is appended ends the life of what the program has in a pile."""

    pile = ()

    def append(self, item):
        pile, self.pile = self.pile, ()
        if pile:
            pile.clear()
        super().append(item)


@pytest.mark.parametrize("meanwhile", [False, True])
@pytest.mark.parametrize("operation", ["made", "freed"])
def test_what_a_handler_in_python_frees_and_makes_is_the_programs(operation, meanwhile):
    other, emptying = Counting(), Emptying()
    setattr(other, operation, emptying)

    def program():
        array = np.empty(COUNT)
        emptying.pile = [[bytes(5333 + n % 5), [None] * 7] for n in range(200)]
        if operation == "made":
            array = np.empty(3 * COUNT)
        del array
        return [[bytes(5333 + n % 5), [None] * 7] for n in range(200)]

    with contextlib.ExitStack() as stack:
        if meanwhile:
            rec = stack.enter_context(recorded())
            stack.enter_context(other)
        else:
            stack.enter_context(other)
            rec = stack.enter_context(recorded())
        kept = program()
    blocks = rec.trace.allocations
    ended = blocks["end"]

    assert len(kept) == 200
    assert rec.trace.verify(), rec.trace.verify()
    size_of_bytes = sys.getsizeof(bytes(5333))  # the interpreter makes blocks of 333 bytes, too
    of_pile = [
        row
        for row, size in enumerate(blocks["size"].tolist())
        if size_of_bytes <= size <= size_of_bytes + 4
    ]
    assert len(of_pile) == 400
    assert sum(ended[row] is not np.ma.masked for row in of_pile) == 200


# ---- Files ---------------------------------------------------------------------------------------


def test_tables_and_files_have_the_domain(tmp_path):
    with recorded() as rec:
        array = np.empty(COUNT)
    rec.trace.save(tmp_path / "a.epr")
    read = eventprof.open(tmp_path / "a.epr")

    for trace in (rec.trace, read):
        assert sizes_of(trace) == [array.nbytes]
        assert trace.memory_of(["numpy"])["live"].max() == array.nbytes
        assert trace.verify().ok


LATE = """
    import json
    import numpy as np
    a = np.empty(12347)
    b = np.zeros(3)
"""


@pytest.mark.parametrize("options", [[], ["--no-calls", "--no-c-calls"]], ids=["all", "memory"])
def test_numpy_may_be_loaded_later(options, tmp_path):
    (tmp_path / "late.py").write_text(textwrap.dedent(LATE))
    children.eventprof("run", "-o", "out.epr", *options, "late.py", cwd=tmp_path)
    blocks = arrays_of(eventprof.open(tmp_path / "out.epr"))
    of_script = blocks[blocks["name"] == "<module>"]

    assert [size for size in of_script["size"].tolist() if size in (12347 * 8, 24)][-2:] == [
        12347 * 8,
        24,
    ]


# ---- A recorder that starts in the middle of the first import -------------------------------------

FIRST_IMPORT = """
import signal, sys, eventprof

recorders = []
busy = False

def handler(*_):
    global busy
    # Not while a recorder starts: that is refused. A flag, because SIG_IGN with a signal that is
    # pending makes the interpreter print that the signal was "ignored due to race condition".
    if not busy and len(recorders) < 10:
        busy = True
        recorder = eventprof.record()
        with recorder:
            sum(map(len, ["a"] * 5))
        recorders.append(recorder)
        busy = False

assert "numpy" not in sys.modules
signal.signal(signal.SIGPROF, handler)
signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)
import numpy
signal.setitimer(signal.ITIMER_PROF, 0)
handler()
assert int(numpy.arange(3).sum()) == 3
for recorder in recorders:
    assert recorder.trace.verify(), recorder.trace.verify()
    assert "sum" in set(recorder.trace.functions["name"])
print(len(recorders) > 0)
"""


def test_a_handler_records_while_numpy_is_imported_for_the_first_time():
    """Recorders ask whether NumPy's data can be hooked, and NumPy is half there."""
    done = children.program(FIRST_IMPORT, flags=["-P"])

    assert (done.stdout, done.stderr) == ("True\n", "")
