"""A recorder that starts while a function is at its entry: in a signal handler, a finalizer that a collection runs, on
whatever thread. The interpreter may tell of that call before or after, and the call is there once."""

from __future__ import annotations

import ctypes
import gc
import signal

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
    """Unwinds from behind a yield, too, and from the entry of one that has not begun."""
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
