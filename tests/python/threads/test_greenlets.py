"""greenlet and gevent: each greenlet is a lane with its own stack of calls."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import random
import signal
import threading
import time

import children
import numpy as np
import programs
import pytest
import raw
import read_log

import eventprof

pytestmark = pytest.mark.usefixtures("restored")


def child(*arguments, **options):
    """As children.child(); without the interpreter's line that greenlet brings the GIL back."""
    warnings = "ignore:The global interpreter lock:RuntimeWarning"
    return children.child(*arguments, PYTHONWARNINGS=warnings, **options)


def leaf(n):
    return n


def rows_of(table, names):
    """Return the rows of a table with these names of functions, without their classes."""
    whole = [name for name in table.categories("name") if name.rpartition(".")[2] in names]
    return table[np.isin(table["name"], whole)]


def named(trace, *names):
    """Return the calls of these functions, in order of their begins."""
    return list(rows_of(trace.calls, names))


def pairs(trace, *names):
    return [(row.event, row.name.rpartition(".")[2]) for row in rows_of(trace.events, names)]


def lanes(trace):
    return list(trace.threads["name"])


# ---- Random programs ------------------------------------------------------------------------------


def numbers(count):
    for n in range(count):
        yield leaf(n)


def paused(n, pause):
    pause()
    return n


def fails(rng, depth, pause):
    step(rng, depth, pause)
    raise KeyError


def step(rng, depth, pause):
    kind = rng.randrange(6)
    leaf(kind)
    if kind == 0:
        pause()
    elif kind == 1 and depth:
        step(rng, depth - 1, pause)
    elif kind == 2:
        for n in numbers(2):
            if n:
                pause()
    elif kind == 3 and depth:
        with contextlib.suppress(KeyError):
            fails(rng, depth - 1, pause)
    elif kind == 4:
        max([1, 2], key=lambda n: paused(n, pause))
    else:
        sorted([2, 1])


def body(seed, pause):
    rng = random.Random(seed)
    for _ in range(rng.randrange(1, 6)):
        step(rng, 3, pause)


def trees(trace, root="body"):
    """Return what each call of `root` called: (name, event, what it called), without the pauses."""
    calls = list(trace.calls)
    children = {}
    for number, call in enumerate(calls):
        children.setdefault(call.parent, []).append(number)

    def of(number):
        call = calls[number]
        name = call.name.rpartition(".")[2]
        return (
            name,
            call.kind,
            [
                of(each)
                for each in children.get(number, [])
                if calls[each].name.rpartition(".")[2] not in ("switch", "getcurrent")
            ],
        )

    return [of(n) for n, call in enumerate(calls) if call.name.rpartition(".")[2] == root]


@pytest.mark.parametrize("seed", range(6))
def test_a_greenlet_has_the_tree_of_its_function_in_a_thread(seed, backend):
    greenlet = pytest.importorskip("greenlet")
    rng = random.Random(seed)
    count = rng.randrange(1, 9)
    options = {
        "backend": backend,
        "memory": rng.random() < 0.5,
        "waits": raw_waits() and rng.random() < 0.5,
    }
    with eventprof.record(**options) as rec:
        for n in range(count):
            thread = threading.Thread(target=body, args=(n, greenlet.getcurrent))
            thread.start()
            thread.join()
    in_threads = trees(rec.trace)

    main = greenlet.getcurrent()
    with eventprof.record(**options) as rec:
        running = []
        for n in range(count):
            running.append(greenlet.greenlet(body))
            running[-1].switch(n, main.switch)
        while running := [each for each in running if not each.dead]:
            rng.choice(running).switch()

    trace = rec.trace
    assert trees(trace) == in_threads
    assert trace.verify(), trace.verify()
    assert {name: trace.pairing[name] for name in ("calls_misplaced", "unmatched_ends")} == {
        "calls_misplaced": 0,
        "unmatched_ends": 0,
    }


def raw_waits():
    """Return whether waits can be recorded here."""
    try:
        eventprof.record(waits=True, memory=False)
    except eventprof.UnsupportedError:
        return False
    return True


# ---- Lanes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("c_calls", [False, True])
def test_calls_lie_in_the_calls_that_made_them(c_calls, backend, capsys):
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
    # In the order in which they happened.
    called = [
        name for event, name in pairs(trace, "first", "second", "inner", "leaf") if event == "call"
    ]
    assert called == ["first", "leaf", "second", "leaf", "inner", "leaf", "leaf", "leaf"]
    assert trace.pairing["calls_misplaced"] == 0
    trace.report()
    assert "switches greenlets" not in " ".join(capsys.readouterr().out.split())
    names = list(trace.calls["name"])
    around = [names[call.parent].rpartition(".")[2] for call in named(trace, "leaf")]
    assert around == ["first", "second", "first", "inner", "first"]
    assert lanes(trace) == ["MainThread", "MainThread greenlet 1"]
    assert len(set(trace.threads["native_id"].tolist())) == 1


def test_as_many_rows_as_greenlets_that_are_alive_at_the_same_time(backend):
    greenlet = pytest.importorskip("greenlet")

    def waits():
        greenlet.getcurrent().parent.switch()
        leaf(1)

    with eventprof.record(backend=backend) as rec:
        for _ in range(100):
            alive = [greenlet.greenlet(waits) for _ in range(3)]
            for each in [*alive, *alive]:
                each.switch()

    assert len(rec.trace.threads) == 4
    assert len(named(rec.trace, "leaf")) == 300


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
    assert lanes(rec.trace) == ["MainThread", "MainThread greenlet 1"]


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
    assert greenlet.gettrace() is None


@pytest.mark.parametrize("c_calls", [False, True])
def test_greenlets_that_are_switched_out_when_a_recording_begins(c_calls, backend):
    """Their calls are open from the begin on, and are seen to end."""
    greenlet = pytest.importorskip("greenlet")
    main = greenlet.getcurrent()

    def outer():
        inner()
        leaf(1)

    def inner():
        main.switch()
        leaf(2)
        main.switch()

    waiting = [greenlet.greenlet(outer) for _ in range(3)]
    for each in waiting:
        each.switch()
    around = eventprof.record(memory=False, c_calls=c_calls, backend=backend)
    with around, eventprof.record(memory=False, c_calls=c_calls, backend=backend) as rec:
        for each in waiting[:2]:
            each.switch()
        # It began while these greenlets, which the others know, were switched out.
        with eventprof.record(memory=False, c_calls=c_calls, backend=backend) as late:
            for each in [waiting[2], *waiting]:
                each.switch()

    for trace in (around.trace, rec.trace, late.trace):
        assert trace.verify(), trace.verify()
        assert trace.pairing["calls_misplaced"] == 0
        names = list(trace.calls["name"])
        leaves = [names[call.parent].rpartition(".")[2] for call in named(trace, "leaf")]
        assert leaves == (["inner"] * (1 if trace is late.trace else 3)) + ["outer"] * 3
        assert [call.flags & 3 for call in named(trace, "inner")] == [1, 1, 1]


def test_a_ring_that_lost_the_switches(backend):
    greenlet = pytest.importorskip("greenlet")
    main = greenlet.getcurrent()

    def turns(n):
        while True:
            body(n, main.switch)
            main.switch()

    running = [greenlet.greenlet(turns) for _ in range(20)]
    lost = pytest.warns(eventprof.EventsLostWarning)
    with lost, eventprof.record(memory=False, backend=backend, buffer="1 MiB") as rec:
        for _ in range(400):
            for n, each in enumerate(running):
                each.switch(n) if not each else each.switch()
    for each in running:
        each.throw()

    trace = rec.trace
    assert trace.verify(), trace.verify()
    assert len(trace.threads) == 21


def test_a_file_has_the_lanes(tmp_path, backend):
    greenlet = pytest.importorskip("greenlet")
    path = tmp_path / "lanes.epr"
    main = greenlet.getcurrent()
    with eventprof.record(memory=True, backend=backend, output=path, threads="current") as rec:
        running = [greenlet.greenlet(body) for _ in range(4)]
        for n, each in enumerate(running):
            each.switch(n, main.switch)
        while running := [each for each in running if not each.dead]:
            running[0].switch()

    there = rec.trace
    trace = eventprof.open(path)
    assert trace.verify(), trace.verify()
    assert (
        lanes(trace)
        == lanes(there)
        == ["MainThread", *(f"MainThread greenlet {n}" for n in (1, 2, 3, 4))]
    )
    assert trees(trace) == trees(there)
    assert len(trace.events) == len(there.events)
    # And by the page of the format alone.
    read = read_log.read(path)
    names = [thread.name for _, thread in sorted(read.threads.items()) if thread.events]
    assert names == lanes(trace)


def test_only_the_calling_thread_is_recorded_with_its_greenlets(backend):
    greenlet = pytest.importorskip("greenlet")

    def other():
        greenlet.greenlet(leaf).switch(1)

    with eventprof.record(memory=False, backend=backend, threads="current") as rec:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        greenlet.greenlet(leaf).switch(2)

    assert len(named(rec.trace, "leaf")) == 1


def test_limits_of_depth_are_each_greenlets_own(backend):
    greenlet = pytest.importorskip("greenlet")
    main = greenlet.getcurrent()

    def deep(n):
        if n:
            deep(n - 1)
        else:
            main.switch()

    with eventprof.record(memory=False, c_calls=False, backend=backend, max_depth=5) as rec:
        alive = [greenlet.greenlet(deep) for _ in range(3)]
        for each in alive:
            each.switch(9)
        for each in alive:
            each.switch()
        leaf(1)

    assert rec.trace.verify(), rec.trace.verify()
    assert len(named(rec.trace, "deep")) in (15, 18)  # the call that started is a call, or none
    assert len(named(rec.trace, "leaf")) == 1


def test_labels_are_each_greenlets_own(backend):
    greenlet = pytest.importorskip("greenlet")
    main = greenlet.getcurrent()

    def handles(n):
        with eventprof.label(request=n):
            leaf(1)
            main.switch()
            leaf(2)

    with eventprof.record(memory=False, backend=backend) as rec:
        alive = [greenlet.greenlet(handles) for _ in range(3)]
        for n, each in enumerate(alive):
            each.switch(n)
        leaf(0)
        for each in reversed(alive):
            each.switch()

    with_label = rec.trace.select(label={"request": "1"}) if hasattr(rec.trace, "select") else None
    assert rec.trace.verify(), rec.trace.verify()
    assert with_label is None or len(named(with_label, "leaf")) == 2


def test_a_fork_in_a_greenlet(tmp_path, backend):
    pytest.importorskip("greenlet")
    code = """
    import greenlet, eventprof, os
    main = greenlet.getcurrent()
    def leaf(n): return n
    def waits():
        main.switch()
        leaf(1)
    def forks():
        if os.fork() == 0:
            main.switch()
        os.wait()
        main.switch()
    with eventprof.record(memory=False, backend=backend) as rec:
        other = greenlet.greenlet(waits); other.switch()
        greenlet.greenlet(forks).switch()
        other.switch()
    trace = rec.trace
    rows = [row for row in trace.calls if row.name == "leaf"]
    names = list(trace.calls["name"])
    print([names[row.parent] for row in rows], bool(trace.verify()), trace.pairing["calls_misplaced"], flush=True)
    """
    status, output, errors = child(code, backend)

    assert (status, errors) == (0, "")
    assert output == "['waits'] True 0\n" * 2


# ---- The hook --------------------------------------------------------------------------------------


def test_a_programs_own_trace_function_is_called_and_is_there_afterwards(backend):
    greenlet = pytest.importorskip("greenlet")
    seen = []

    def own(event, args):
        seen.append(event)
        leaf(1)

    before = greenlet.settrace(own)
    try:
        with eventprof.record(memory=False, backend=backend) as rec:
            greenlet.greenlet(leaf).switch(2)
        assert greenlet.gettrace() is own
    finally:
        greenlet.settrace(before)

    assert seen == ["switch", "switch"]
    assert lanes(rec.trace) == ["MainThread", "MainThread greenlet 1"]


def test_a_trace_function_that_is_set_meanwhile_stays(backend):
    greenlet = pytest.importorskip("greenlet")

    def own(event, args):
        pass

    with eventprof.record(memory=False, backend=backend):
        greenlet.settrace(own)
        greenlet.greenlet(leaf).switch(2)
    assert greenlet.gettrace() is own
    greenlet.settrace(None)


def test_a_trace_function_that_raises_raises_into_the_program(backend):
    greenlet = pytest.importorskip("greenlet")

    def own(event, args):
        raise KeyError(event)

    before = greenlet.settrace(own)
    try:
        with eventprof.record(memory=False, backend=backend) as rec:
            with pytest.raises(KeyError):
                greenlet.greenlet(leaf).switch(1)
            greenlet.greenlet(leaf).switch(2)
    finally:
        greenlet.settrace(before)

    assert rec.trace.verify(), rec.trace.verify()


def test_another_threads_hook_is_gone_after_its_next_switch(backend):
    greenlet = pytest.importorskip("greenlet")
    stopped, seen = threading.Event(), []

    def runs():
        greenlet.greenlet(leaf).switch(1)
        started.set()
        stopped.wait()
        greenlet.greenlet(leaf).switch(1)
        seen.append(greenlet.gettrace())

    started = threading.Event()
    thread = threading.Thread(target=runs)
    with eventprof.record(memory=False, backend=backend) as rec:
        thread.start()
        started.wait()
    stopped.set()
    thread.join()

    assert seen == [None]
    assert len(named(rec.trace, "leaf")) == 1


@pytest.mark.parametrize("memory", [False, True])
def test_greenlet_may_be_imported_while_it_is_recorded(memory, backend):
    pytest.importorskip("greenlet")
    code = f"""
    import sys, eventprof
    def leaf(n): return n
    def waits():
        main.switch()
        leaf(1)
    with eventprof.record(memory={memory}, backend=backend) as rec:
        assert "greenlet" not in sys.modules
        import greenlet
        main = greenlet.getcurrent()
        other = greenlet.greenlet(waits)
        other.switch()
        other.switch()
    trace = rec.trace
    print(list(trace.threads["name"]), bool(trace.verify()), trace.pairing["calls_misplaced"])
    """
    status, output, errors = child(code, backend)

    assert (status, errors) == (0, "")
    assert output == "['MainThread', 'MainThread greenlet 1'] True 0\n"


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


# ---- Time ------------------------------------------------------------------------------------------


def work(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


@pytest.mark.parametrize("waits", [False, True])
def test_the_time_of_others_is_waiting(waits, backend):
    """Self times of all greenlets without what they waited are not more than the thread ran."""
    greenlet = pytest.importorskip("greenlet")
    if waits and not raw_waits():
        pytest.skip("waits are not recorded here")
    main = greenlet.getcurrent()

    def turns():
        for _ in range(3):
            work(0.002)
            main.switch()

    with eventprof.record(memory=False, backend=backend, waits=waits) as rec:
        running = [greenlet.greenlet(turns) for _ in range(10)]
        while running := [each for each in running if not each.dead]:
            for each in running:
                each.switch()

    trace = rec.trace
    works = named(trace, "work")
    for call in named(trace, "turns"):
        inside = [each for each in works if each.thread == call.thread and each.start >= call.start]
        worked = sum(c.duration for c in inside[:3])
        assert call.waited >= 0.8 * (call.duration - worked), call
    worked = sum(call.duration - call.waited for call in named(trace, "turns"))
    assert worked <= trace.duration


# ---- gevent ----------------------------------------------------------------------------------------


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
    trace = rec.trace
    names = list(trace.calls["name"])
    leaves = [row for row in trace.calls if row.name == "leaf"]
    print(got == list(range(20)), len(leaves), {names[row.parent] for row in leaves})
    print(bool(trace.verify()), trace.pairing["calls_misplaced"], trace.pairing["unmatched_ends"])
    """
    status, output, errors = child(code, backend)

    assert (status, errors) == (0, "")
    assert output == "True 63 {'job'}\nTrue 0 0\n"


@pytest.mark.thorough
def test_eventlet(backend):
    pytest.importorskip("eventlet")
    code = """
    import warnings; warnings.simplefilter("ignore")
    import eventlet; eventlet.monkey_patch()
    import eventprof
    def leaf(n): return n
    def job(n):
        for _ in range(3):
            leaf(n); eventlet.sleep(0.001)
        return n
    with eventprof.record(backend=backend) as rec:
        got = list(eventlet.GreenPool(5).imap(job, range(20)))
    trace = rec.trace
    names = list(trace.calls["name"])
    leaves = [row for row in trace.calls if row.name == "leaf"]
    print(got == list(range(20)), len(leaves), {names[row.parent] for row in leaves})
    print(bool(trace.verify()), trace.pairing["calls_misplaced"], trace.pairing["unmatched_ends"])
    """
    status, output, errors = child(code, backend)

    assert (status, errors) == (0, "")
    assert output == "True 60 {'job'}\nTrue 0 0\n"


SERVICE = """
import sys
if {patched}:
    from gevent import monkey; monkey.patch_all()
import json, socket, threading, time
import eventprof

def parse(data): return data.decode().split()
def look_up(word):
    time.sleep(0.001 * (len(word) % 3)); return word
def answer(words): return " ".join(reversed([look_up(word) for word in words])).encode()
def handle(connection, number):
    while data := connection.recv(100):
        connection.sendall(answer(parse(data)))
    connection.close()
def serve(server):
    for number in range({count}):
        connection, _ = server.accept()
        threads.append(threading.Thread(target=handle, args=(connection, number)))
        threads[-1].start()
def ask(number):
    connection = socket.create_connection(server.getsockname())
    for n in range(3):
        connection.sendall(b"so long and " + b"thanks " * n); connection.recv(1000)
    connection.close()

threads = []
server = socket.create_server(("127.0.0.1", 0), backlog=500)
with eventprof.record(memory=False, c_calls=False, backend={backend!r}, waits={waits}) as rec:
    serving = threading.Thread(target=serve, args=(server,)); serving.start()
    asking = [threading.Thread(target=ask, args=(n,)) for n in range({count})]
    for each in asking: each.start()
    for each in [serving, *asking]: each.join()
    for each in threads: each.join()

trace = rec.trace
calls = list(trace.calls)
children = {{}}
for n, call in enumerate(calls):
    children.setdefault(call.parent, []).append(n)
def tree(n):
    # Of the program alone: how a socket waits is gevent's.
    inside = [each for child in children.get(n, ()) for each in tree(child)]
    return [[calls[n].name, inside]] if calls[n].file == "<string>" else inside
roots = [n for n, call in enumerate(calls) if call.name == "handle"]
slowest = max(roots, key=lambda n: calls[n].duration)
waited = {{str(kind) for kind in trace.waits["kind"]}} if {waits} else None
print(json.dumps([tree(slowest), len(roots), bool(trace.verify()), trace.pairing["calls_misplaced"],
                  trace.pairing["unmatched_ends"], sorted(waited) if waited else None]))
"""


@pytest.mark.thorough
def test_a_service_of_200_connections_has_the_trees_of_threads(backend):
    pytest.importorskip("gevent")
    waits = raw_waits()
    found = []
    for patched in (False, True):
        count = 200 if patched else 8
        code = SERVICE.format(patched=patched, count=count, backend=backend, waits=waits)
        status, output, errors = child(code, backend)
        assert (status, errors) == (0, "")
        found.append(json.loads(output))
        assert found[-1][1:5] == [count, True, 0, 0]

    assert found[0][0] == found[1][0]
    assert not waits or {"io", "sleep"} <= set(found[1][5])


# ---- What is not greenlets -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["deltablue", "generators", "pickle"])
def test_no_call_of_a_program_without_greenlets_is_misplaced(name, backend):
    run = programs.ALL[name]()
    run()
    with eventprof.record(memory=False, backend=backend) as rec:
        run()

    assert rec.trace.pairing["calls_misplaced"] == 0


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
