"""greenlet and gevent: every event is recorded on its thread, and the trace says that its tree is wrong."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import signal

import programs
import pytest
import raw
from children import child

import eventprof

pytestmark = pytest.mark.usefixtures("restored")


@pytest.fixture(autouse=True)
def _not_verified(monkeypatch):
    """Two stacks of calls in one tree: `Trace.verify` is right to refuse that."""
    monkeypatch.setattr(raw, "VERIFIES", False)


def leaf(n):
    return n


def pairs(trace, *names):
    return [
        (row.event, row.name.rpartition(".")[2])
        for row in trace.events
        if row.name and row.name.rpartition(".")[2] in names
    ]


@pytest.mark.parametrize("c_calls", [False, True])
def test_every_event_of_greenlets_and_a_word_that_the_tree_is_wrong(c_calls, backend, capsys):
    greenlet = pytest.importorskip("greenlet")

    def first():
        leaf(1)
        other.switch()
        leaf(2)
        other.switch()
        leaf(3)

    def second():
        leaf(4)
        inner()
        leaf(5)

    def inner():
        main.switch()
        leaf(6)
        main.switch()

    main = greenlet.getcurrent()
    other = greenlet.greenlet(second)
    with eventprof.record(memory=False, c_calls=c_calls, backend=backend) as rec:
        first()

    trace = rec.trace
    # In the order in which they happened, with the callers that they had.
    called = [
        name for event, name in pairs(trace, "first", "second", "inner", "leaf") if event == "call"
    ]
    assert called == ["first", "leaf", "second", "leaf", "inner", "leaf", "leaf", "leaf"]
    assert trace.pairing["calls_misplaced"] == 2
    trace.report()
    assert "switches greenlets" in " ".join(capsys.readouterr().out.split())
    callers = trace.functions["name"][trace.calls["caller"].filled(0)]
    ours = [
        caller.rpartition(".")[2]
        for caller, name in zip(callers, trace.calls["name"], strict=True)
        if name == "leaf"
    ]
    assert ours == ["first", "second", "first", "inner", "first"]


def test_greenlets_that_are_killed_and_that_raise(backend):
    greenlet = pytest.importorskip("greenlet")
    main = greenlet.getcurrent()

    def waits():
        try:
            main.switch()
        finally:
            leaf(1)

    def fails():
        raise KeyError

    with eventprof.record(backend=backend) as rec:
        dropped = greenlet.greenlet(waits)
        dropped.switch()
        del dropped
        with pytest.raises(KeyError):
            greenlet.greenlet(fails).switch()

    assert pairs(rec.trace, "leaf") == [("call", "leaf"), ("return", "leaf")]


def test_a_recording_that_begins_in_one_greenlet_and_ends_in_another(backend, restored):
    greenlet = pytest.importorskip("greenlet")
    main = greenlet.getcurrent()
    rec = eventprof.record(memory=False, backend=backend)

    def starts():
        rec.start()
        leaf(1)
        main.switch()
        leaf(2)

    def stops():
        leaf(3)
        rec.stop()

    first = greenlet.greenlet(starts)
    first.switch()
    greenlet.greenlet(stops).switch()
    first.switch()

    assert raw.hooks() == restored
    assert [name for event, name in pairs(rec.trace, "leaf") if event == "call"] == ["leaf"] * 2


@pytest.mark.parametrize("loaded", ["before", "while recording", "nothing but blocks"])
def test_blocks_that_a_switch_frees(loaded, backend):
    """In the middle of a switch the C stack is another's already: what lay there is not to be read."""
    pytest.importorskip("greenlet")
    code = f"""
    {"import greenlet" if loaded == "before" else ""}
    if {loaded == "nothing but blocks"}: rec = raw.recorder(raw.MEMORY, backend=backend)
    with rec:
        import greenlet
        def deep(n):
            if n:
                return deep(n - 1)
            try:
                greenlet.getcurrent().parent.switch(max([1, 2], key=lambda x: outer(x)))
            finally:
                outer(1)
        for n in range(20):
            some = [greenlet.greenlet(deep) for _ in range(n % 5)]
            for each in some: each.switch(n)
            for each in some[1:]: each.switch()
            del some
    print(len(raw.rows(rec)) > 1000)
    """
    assert child(code, backend) == (0, "True\n", "")


def test_gevent(backend):
    pytest.importorskip("gevent")
    code = """
    from gevent import monkey; monkey.patch_all()
    import gevent, eventprof
    from gevent.pool import Pool
    def leaf(n): return n
    def job(n):
        for _ in range(3):
            leaf(n); gevent.sleep(0)
        return n
    Pool(3).map(job, range(3))
    with eventprof.record(backend=backend) as rec:
        got = Pool(5).map(job, range(20))
        thread = threading.Thread(target=job, args=(20,))
        thread.start(); thread.join()
    names = list(rec.trace.events["name"])
    words = list(rec.trace.events["event"])
    print(got == list(range(20)))
    print(sum(n == "leaf" and w == "call" for n, w in zip(names, words)))
    print(sum(n == "leaf" and w == "return" for n, w in zip(names, words)))
    print(rec.trace.pairing["calls_misplaced"] > 0)
    """
    status, output, errors = child(code, backend)

    assert (status, errors) == (0, "")
    assert output.split() == ["True", "63", "63", "True"]


@pytest.mark.parametrize("name", ["deltablue", "generators", "pickle"])
def test_no_call_of_a_program_without_greenlets_is_misplaced(name, backend):
    run = programs.ALL[name]()
    run()
    with eventprof.record(memory=False, backend=backend) as rec:
        run()

    assert rec.trace.pairing["calls_misplaced"] == 0


# ---- What is not greenlets -----------------------------------------------------------------------


class Node:
    def __init__(self):
        self.me = self

    def __del__(self):
        leaf(1)


def even(n):
    Node()
    return n == 0 or odd(n - 1)


def odd(n):
    Node()
    return n != 0 and even(n - 1)


@pytest.mark.parametrize("memory", [False, True])
def test_finalizers_that_a_collection_runs_switch_nothing(memory, backend, capsys):
    """From 3.13 on it runs at the entry of a function, before the interpreter tells of that call."""
    before = gc.get_threshold()
    gc.set_threshold(20)
    try:
        with eventprof.record(memory=memory, backend=backend) as rec:
            for _ in range(100):
                even(20)
                leaf([])
    finally:
        gc.set_threshold(*before)

    ran = sum(event == "call" for event, _ in pairs(rec.trace, "__del__"))
    if not (ran or raw.HAS_GIL):
        pytest.skip("no collection: without the lock it begins at a quarter more objects than live")
    assert ran > 100
    assert rec.trace.verify(), rec.trace.verify()
    assert rec.trace.pairing["calls_misplaced"] == 0
    rec.trace.report()
    assert "switches greenlets" not in " ".join(capsys.readouterr().out.split())


def test_handlers_of_signals_switch_nothing(backend):
    """Nor do those that raise, whose function never begins."""
    interrupt = ctypes.pythonapi.PyErr_SetInterruptEx
    raises: list[bool] = []

    def handler(*_):
        leaf(1)
        if raises:
            raise KeyError

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with eventprof.record(memory=False, backend=backend) as rec:
            for _ in range(2):
                list(map(leaf, map(interrupt, [signal.SIGUSR1])))
            raises.append(True)
            for _ in range(2):
                with contextlib.suppress(KeyError):
                    list(map(leaf, map(interrupt, [signal.SIGUSR1])))
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert rec.trace.pairing["calls_misplaced"] == 0
