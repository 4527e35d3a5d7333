"""A recorder that starts while a function is at its entry: in a signal handler, a finalizer that a collection runs, on
whatever thread. The interpreter may tell of that call before or after, and the call is there once."""

from __future__ import annotations

import ctypes
import functools
import gc
import signal
import sys

import pytest

import eventprof

pytestmark = pytest.mark.usefixtures("restored")

interrupt = ctypes.pythonapi.PyErr_SetInterruptEx  # returns 0


@pytest.fixture
def on_signal():
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda handler: signal.signal(signal.SIGUSR1, handler)
    signal.signal(signal.SIGUSR1, before)


def leaf():
    return None


def entered(_):
    leaf()


def interrupted():
    """The handler runs at the entry of entered()."""
    list(map(entered, map(interrupt, [signal.SIGUSR1])))
    leaf()


def deep(n):
    list(map(deep, [n - 1] if n > 1 else map(interrupt, [signal.SIGUSR1] if n else [])))
    leaf()


def deeper():
    deep(4)


def yields():
    yield 1
    leaf()
    yield 2


def resumed(kept=[]):  # noqa: B006
    generator = yields()
    kept[:] = [generator]  # until later: dropping it is one more slice of it
    next(generator)
    list(zip(map(interrupt, [signal.SIGUSR1]), generator, strict=False))
    leaf()


def short(name):
    return name.rpartition(".")[2]


def names(trace):
    return [short(name) for name in trace.calls["name"]]


def check(trace, name, count):
    assert trace.verify(), trace.verify()
    found = names(trace)
    assert found.count(name) == count
    # What the recorder found open is around what came then.
    calls, functions = trace.calls, [short(each) for each in trace.functions["name"]]
    for row, each in enumerate(found):
        if each == "leaf" and calls["parent"][row] >= 0:
            assert found[calls["parent"][row]] == functions[calls["caller"][row]]


OPTIONS = [{}, {"max_depth": 100}, {"c_calls": False}, {"memory": True}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize(
    ("program", "name", "count"),
    [(interrupted, "entered", 1), (deeper, "deep", 5), (resumed, "yields", 1)],
)
def test_a_handler_starts_one(backend, on_signal, program, name, count, beside, options):
    options = {"memory": False, **options}
    first = eventprof.record(backend=backend, **options)
    second = eventprof.record(**options)
    on_signal(lambda *_: second.start())

    if beside:
        first.start()
    program()
    leaf()
    second.stop()
    if beside:
        first.stop()
        assert first.trace.verify(), first.trace.verify()

    check(second.trace, name, count)


def test_a_handler_starts_some_and_is_itself_interrupted(backend, on_signal, tmp_path):
    first, second = (eventprof.record(memory=False, backend=backend) for _ in range(2))
    third = eventprof.record(memory=False, output=tmp_path / "third.epr")
    later = eventprof.record(memory=False)

    def handler(*_):
        on_signal(inner)
        second.start()
        list(map(entered, map(interrupt, [signal.SIGUSR1])))

    def inner(*_):
        on_signal(signal.SIG_IGN)
        third.start()
        later.start()
        leaf()

    on_signal(handler)
    with first:
        interrupted()
        leaf()
    for each in (second, third, later):
        each.stop()

    for each in (first, second, third, later):
        check(each.trace, "entered", 2)
    check(eventprof.open(tmp_path / "third.epr"), "entered", 2)


def test_a_finalizer_starts_one(backend):
    """From 3.12 on collections run at the entry of functions; before, where something is allocated."""
    first = eventprof.record(memory=False, backend=backend)
    second = eventprof.record(memory=False)

    started = []

    class Node:
        def __init__(self):
            self.me = self

        def __del__(self):
            if not started:
                started.append(self)
                second.start()

    def program():
        for _ in range(3000):
            Node()
            entered([])

    gc.collect()
    threshold = gc.get_threshold()
    gc.set_threshold(50)
    try:
        with first:
            program()
    finally:
        gc.set_threshold(*threshold)
    second.stop()

    check(second.trace, "program", 1)


# ---- A handler that raises -------------------------------------------------------------------------


class Raised(Exception):
    pass


def ends_at_entry():
    try:
        interrupted()
    except Raised:
        leaf()


def ends_at_entry_of_another(n=3):
    """Each but the innermost has its end."""
    again = [n - 1] if n > 1 else map(interrupt, [signal.SIGUSR1] if n else [])
    try:
        list(map(ends_at_entry_of_another, again))
    except Raised:
        leaf()


def ends_behind_a_yield():
    generator = yields()
    next(generator)
    try:
        list(zip(map(interrupt, [signal.SIGUSR1]), generator, strict=False))
    except Raised:
        leaf()


def is_thrown_into():
    """Unwinds from after a yield, too, and from the entry of one that has not begun."""
    for begun in (True, False):
        generator = yields()
        if begun:
            next(generator)
        try:
            generator.throw(Raised)
        except Raised:
            leaf()


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("c_calls", [False, True])
@pytest.mark.parametrize(
    "program", [ends_at_entry, ends_at_entry_of_another, ends_behind_a_yield, is_thrown_into]
)
def test_a_handler_raises(backend, on_signal, program, c_calls, memory):
    def handler(*_):
        raise Raised

    on_signal(handler)
    with eventprof.record(backend=backend, c_calls=c_calls, memory=memory) as rec:
        program()
        leaf()

    assert rec.trace.verify(), rec.trace.verify()
    calls, found = rec.trace.calls, names(rec.trace)
    assert found.count("leaf") == {ends_at_entry: 2, is_thrown_into: 3}.get(program, 2)
    last = len(found) - 1 - found[::-1].index("leaf")
    assert found[calls["parent"][last]] == "test_a_handler_raises"
    if program is is_thrown_into:
        assert rec.trace.events["event"].tolist().count("unwind") == 2


@pytest.mark.parametrize("c_calls", [False, True])
def test_a_handler_raises_where_the_recorder_starts(on_signal, c_calls):
    """The call that it interrupts is not one that the recorder found open."""
    rec = eventprof.record(c_calls=c_calls, memory=False)

    def handler(*_):
        rec.start()
        raise Raised

    on_signal(handler)
    ends_at_entry()
    leaf()
    rec.stop()

    assert rec.trace.verify(), rec.trace.verify()
    calls, found = rec.trace.calls, names(rec.trace)
    parents = [calls["parent"][row] for row, name in enumerate(found) if name == "leaf"]
    within = ["ends_at_entry", "test_a_handler_raises_where_the_recorder_starts"]
    # What was open when the recorder started is a row where the recorder knew so.
    assert [
        found[row] if row >= 0 else name for row, name in zip(parents, within, strict=True)
    ] == within


class Once:
    """A signal's number for C, and no signal's when it is asked for again."""

    def __init__(self):
        self.asked = 0

    @property
    def _as_parameter_(self):
        self.asked += 1
        return int(signal.SIGUSR1) if self.asked == 1 else 0


# Another one than pythonapi's: with arguments that are ignored.
interrupt_at_entry = ctypes.PyDLL(None).PyErr_SetInterruptEx
interrupt_at_entry.restype = None
interrupt_at_entry.argtypes = [ctypes.c_int, *[ctypes.py_object] * 3]


def recursive(n):
    try:
        if n:
            recursive(n - 1)
        else:
            leaf()
    except Raised:
        leaf()
        raise


def ends_behind_the_begin(n=3):
    """The trace function is called at the entry, and what it asks for is handled there."""
    try:
        if n:
            ends_behind_the_begin(n - 1)
        else:
            sys.settrace(functools.partial(interrupt_at_entry, Once()))
            recursive(0)
    except Raised:
        sys.settrace(None)
        leaf()


def test_a_handler_raises_behind_a_begin(on_signal):
    """3.11 handles what comes up while hooks are told of a begin: such a call is recorded, with its end."""

    def handler(*_):
        raise Raised

    on_signal(handler)
    with eventprof.record(memory=False) as rec:
        ends_behind_the_begin()
        leaf()

    assert rec.trace.verify(), rec.trace.verify()
    calls, found = rec.trace.calls, names(rec.trace)
    parents = [found[calls["parent"][row]] for row, name in enumerate(found) if name == "leaf"]
    # Later interpreters tell the trace function last, and handle the signal inside of the function.
    parents = [name for name in parents if name != "recursive"]
    assert parents == ["ends_behind_the_begin", "test_a_handler_raises_behind_a_begin"]
    assert rec.trace.pairing["unmatched_ends"] == 0
    if sys.version_info < (3, 12):
        assert found.count("recursive") == 1


def test_frame_objects_look_as_ever(backend):
    """A mark of the profile hook is in a field that the program reads as True, and False stays False."""
    seen = []

    def look():
        seen.append(sys._getframe().f_trace_lines)

    def slices():
        for _ in range(20):
            seen.append(sys._getframe().f_trace_lines)
            yield

    with eventprof.record(backend=backend, memory=False):
        look()
        quiet, loud = slices(), slices()
        quiet.gi_frame.f_trace_lines = False
        for _ in zip(quiet, loud, strict=True):
            seen += [quiet.gi_frame.f_trace_lines, loud.gi_frame.f_trace_lines]

    assert seen == [True, *[False, True] * 40]
