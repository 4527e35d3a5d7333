"""Allocations: tracemalloc agrees on what lives and where it was made; calls leave no trace."""

from __future__ import annotations

import functools
import gc
import sys
import tracemalloc
from collections import Counter

import footprint
import numpy as np
import pytest
import raw
from histogram import allocation_histogram

import eventprof

ALLOCATING = {"malloc", "calloc", "realloc"}
FREEING = {"free", "realloc_free"}


@pytest.fixture(autouse=True)
def no_automatic_collection():
    gc.collect()
    gc.disable()
    yield
    tracemalloc.stop()
    gc.enable()


# ---- Live bytes and blocks --------------------------------------------------------------------------------


class Node:
    def __init__(self, n):
        self.n = n
        self.children = [Node(n - 1) for _ in range(2)] if n else ()


KEPT: list = []


def work():
    KEPT.append(Node(6))
    KEPT.append([bytes(i) for i in range(900)])
    KEPT.append(bytearray(100_000))
    KEPT[-1].extend(b"x" * 200_000)
    KEPT.append({i: str(i) for i in range(500)})
    KEPT.append("text".join(map(str, range(300))))
    numbers = []
    for i in range(2000):
        numbers.append(i * 12347)
        if i % 3 == 0:
            numbers.pop()
    del KEPT[2:4]
    footprint.exceptions(20)
    list(footprint.numbers(50))


def lives(events, since, until, domains):
    """Bytes born after row `since` that live at row `until`."""
    live: dict[int, int] = {}
    for row in events[since:until]:
        if row.domain not in domains:
            continue
        if row.word in ALLOCATING:
            live[row.address] = row.size
        elif row.word in FREEING:
            live.pop(row.address, None)
    return sum(live.values())


def rows_of(events, name):
    return [i for i, row in enumerate(events) if row.word == "c_call" and row.name == name]


ORDERS = {
    "tracemalloc around": ("T+", "R+", "work", "R-", "T-"),
    "recorder around": ("R+", "T+", "work", "T-", "R-"),
    "tracemalloc first to go": ("T+", "R+", "work", "T-", "R-"),
    "recorder first to go": ("R+", "T+", "work", "R-", "T-"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("frames", [1, 5])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("backend", raw.BACKENDS)
def test_live_bytes_between_two_instants_equal_tracemallocs(backend, order, frames):
    rec = raw.recorder(raw.ALL, backend=backend)
    get = tracemalloc.get_traced_memory
    before = raw.allocators()
    KEPT.clear()
    readings = []
    for step in ORDERS[order]:
        if step == "T+":
            tracemalloc.start(frames)
        elif step == "R+":
            rec.start()
            tracemalloc.clear_traces()
        elif step == "T-":
            tracemalloc.stop()
        elif step == "R-":
            rec.stop()
        else:
            work()  # what the hook mechanism makes for new code is not in our data
            KEPT.clear()
            readings.append(get()[0])
            work()
            readings.append(get()[0])

    events = raw.rows(rec)

    starts = rows_of(events, "start") or rows_of(events, "clear_traces")
    since = starts[-1]
    first, second = rows_of(events, "get_traced_memory")
    # tracemalloc above our hook asks it for the memory of its own tables, from the domain raw.
    domains = ("raw", "mem", "obj") if order.startswith("tracemalloc") else ("mem", "obj")
    ours = [lives(events, since, time, domains) for time in (first, second)]
    assert ours[1] - ours[0] == readings[1] - readings[0] > 100_000
    rec.start()
    rec.stop()
    assert raw.allocators() == before


# ---- Lines ----------------------------------------------------------------------------------------------------


class Slots:
    __slots__ = ("x",)


class Plain:
    pass


class Made(Plain):
    def __new__(cls):
        return super().__new__(cls)

    def __init__(self):
        self.data = bytearray(77)


class Subscript:
    def __getitem__(self, key):
        return bytearray(key)

    def __add__(self, other):
        x = bytearray(other)
        return x


def in_generator(n):
    for i in range(n):
        yield bytearray(i + 50)
        x = [bytearray(51), Slots()]
        yield from x


def in_closure():
    def inner(n):
        return lambda: bytearray(n)

    return inner(60)


def places():
    """Objects, each followed at once by the question where it was made."""
    yield bytearray(50)
    yield Slots()
    yield Plain()
    yield Made()
    yield Made().data
    yield (bytearray(52))
    yield Subscript()[53]
    yield Subscript() + 54
    yield from in_generator(3)
    yield in_closure()()
    yield "x" * 55
    yield f"{56!r:>80}"
    yield 2**400
    yield {1, 2, 3}
    yield frozenset([1, 2])
    yield [bytearray(i) for i in (57, 58)][1]
    yield {i: bytearray(59) for i in range(1)}[0]
    yield next(map(bytearray, [61]))
    yield list(map(lambda n: bytearray(n), [62]))[0]
    yield sorted([1], key=bytearray) and bytearray(63)
    yield eval("bytearray(\n\n64)")
    names: dict = {}
    exec("\n\nx = bytearray(65)\ny = bytearray(\n 66)", names)
    yield names["x"]
    yield names["y"]
    yield type("Type", (), {})
    yield lambda: 1
    yield (i for i in range(3))
    yield np.zeros(333)
    yield memoryview(b"abc")
    yield complex(1, 2.5) * 2
    yield b"".join([b"a" * 30, b"b"])
    yield "%s" % ("y" * 70,)
    yield str(10**60)
    try:
        raise ValueError("z")
    except ValueError as error:
        yield error
    yield footprint.Slotted(1)
    yield footprint.Point(1, 2).moved(3)
    yield from (bytearray(n) for n in (67, 68))
    # Beyond line 65,535 and offset 256.
    exec("\n" * 70_000 + "x = 0\n" + "x += 1\n" * 300 + "x = bytearray(69)", names)
    yield names["x"]


@pytest.mark.thorough
@pytest.mark.parametrize("order", ["tracemalloc below", "tracemalloc above"])
@pytest.mark.parametrize("kinds", ["memory", "memory+calls"])
@pytest.mark.parametrize("backend", raw.BACKENDS)
def test_line_of_an_allocation_is_tracemallocs(backend, order, kinds):
    rec = raw.recorder(raw.MEMORY | (raw.CALLS if kinds == "memory+calls" else 0), backend=backend)
    where = tracemalloc.get_object_traceback
    asked = []
    steps = [lambda: tracemalloc.start(1), rec.start]
    for step in steps if order == "tracemalloc below" else reversed(steps):
        step()
    for made in places():
        traceback = where(made)
        if traceback is not None:  # a constant, older than all this
            asked.append((id(made), traceback[0], type(made).__name__))
        KEPT.append(made)
    rec.stop()
    KEPT.clear()

    events = raw.rows(rec)

    # From behind: nothing that was asked about was freed, so the last block there is it.
    latest: dict[int, raw.Row] = {}
    for row in events:
        if row.word in ALLOCATING:
            latest[row.address] = row
    matched = 0
    for address, frame, what in asked:
        # Before the object: the collector's header, and a dictionary's place.
        rows = [
            latest[start]
            for start in (address - 32, address - 16, address)
            if start in latest and start + latest[start].size > address
        ]
        if not rows:
            continue  # from a free list: born before
        assert (rows[-1].line, rows[-1].file) == (frame.lineno, frame.filename), (what, rows)
        matched += 1
    assert matched > 0.7 * len(asked)


def keep_all_sorts(kept):
    for i in range(300):
        kept.append(Slots())
        kept.append(bytearray(i + 1))
        kept.append("x" * (i + 50))
        kept.append(10 ** (i + 50))
        kept.append({i, i + 1})
        kept.extend(Slots() for _ in range(3))
        kept.append(Subscript()[i + 5])


@pytest.mark.parametrize("backend", raw.BACKENDS)
def test_live_blocks_by_line_equal_tracemallocs(backend):
    rec = raw.recorder(raw.ALL, backend=backend)
    kept: list = [None] * 5000  # so that it does not grow
    kept.clear()
    tracemalloc.start(1)
    rec.start()
    keep_all_sorts(kept)  # what the hook mechanism makes for new code is not in our data
    kept.clear()
    tracemalloc.clear_traces()

    keep_all_sorts(kept)
    traces = tracemalloc._get_traces()

    tracemalloc.stop()
    rec.stop()
    events = raw.rows(rec)
    theirs = Counter(
        (size, *frames[0]) for _, size, frames, *_ in traces if frames[0][0] == __file__
    )
    live: dict[int, raw.Row] = {}
    for row in events[rows_of(events, "clear_traces")[0] : rows_of(events, "_get_traces")[0]]:
        if row.word in ALLOCATING:
            live[row.address] = row
        elif row.word in FREEING:
            live.pop(row.address, None)
    ours = Counter((row.size, row.file, row.line) for row in live.values() if row.file == __file__)
    assert ours == theirs
    assert ours.total() > 2500


# ---- Own footprint ------------------------------------------------------------------------------------------------


def deep(n):
    return deep(n - 1) if n else None


@pytest.mark.thorough
@pytest.mark.parametrize("backend", raw.BACKENDS)
def test_frames_of_a_deep_recursion_are_not_the_programs(backend):
    """What the hook makes lies in several arenas then, and alike."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(40_000)
    try:
        alone, together = (
            allocation_histogram(kinds, backend, lambda: deep(25_000)) for kinds in (0, raw.CALLS)
        )
    finally:
        sys.setrecursionlimit(limit)

    difference = (alone - together) + (together - alone)
    # 3.12 and 3.13 make two small blocks more every 700 calls or so; of what is not known.
    assert difference.total() <= 200, difference


@functools.cache
def histogram_without_calls(backend):
    """Return the histogram of the program, which is the same each time."""
    without, again = (allocation_histogram(0, backend) for _ in range(2))
    assert (without - again) + (again - without) == Counter()
    return without


@pytest.mark.thorough
@pytest.mark.parametrize("kinds", [raw.PYTHON, raw.CALLS], ids=["python", "python+c"])
@pytest.mark.parametrize("backend", raw.BACKENDS)
def test_calls_leave_no_allocations_of_their_own(backend, kinds):
    without = histogram_without_calls(backend)

    together = allocation_histogram(kinds, backend)

    extra, missing = together - without, without - together
    assert without.total() > 150_000
    allowed = 10
    if raw.CLOSE_UNWINDS and sys.version_info >= (3, 13):
        # 1,500 generators are closed: three blocks each, and their frees, that are only made while
        # somebody looks. Not ours to hide: the program runs through its generators then.
        allowed += 1500 * 6 + 2
    assert extra.total() + missing.total() <= allowed, (extra, missing)


@pytest.mark.thorough
@pytest.mark.skipif(
    not raw.HAS_GIL and sys.version_info < (3, 14),
    reason="3.13 without the GIL keeps classes and functions for good once a thread was started",
)
def test_classes_that_die_leave_nothing_behind(backend):
    """Names of types hold their weak references, whose blocks are the program's."""

    def make(count):
        for i in range(count):
            cls = type(f"Mortal{i}", (), {})
            cls()
            del cls
            gc.collect()

    make(3)
    with eventprof.record(backend=backend) as rec:
        make(50)
    blocks = rec.trace.allocations

    kept = blocks[np.ma.getmaskarray(blocks["end"])]
    assert len(kept) < 25, str(kept)
