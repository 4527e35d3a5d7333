"""record(): its arguments, the three ways to use it, and what it leaves behind."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import sys
import threading
import warnings

import children
import pytest
import raw
from preloading import HAS_LIBRARY

import eventprof
from eventprof import _core
from eventprof.base.quantities import parse_size
from eventprof.recording.events import EVENTS

LATER_THAN_3_11 = sys.version_info >= (3, 12)
BACKENDS = raw.BACKENDS


class _Allocator(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("ctx", "malloc", "calloc", "realloc", "free")]


def hooks():
    """What of the interpreter a recorder changes."""
    allocators = []
    for domain in range(3):
        allocator = _Allocator()
        ctypes.pythonapi.PyMem_GetAllocator(ctypes.c_int(domain), ctypes.byref(allocator))
        allocators.append(tuple(getattr(allocator, name) for name, _ in _Allocator._fields_))
    tools = [sys.monitoring.get_tool(i) for i in range(6)] if LATER_THAN_3_11 else []
    return sys.getprofile(), sys.gettrace(), tools, allocators


@pytest.fixture(autouse=True)
def hooks_are_restored():
    before = hooks()
    yield
    gc.collect()
    assert hooks() == before


def leaf(x):
    return len(str(x))


def tree(n):
    return [leaf(i) for i in range(n)]


def calls_of(trace, name):
    events = trace.events
    return int(((events["name"] == name) & (events["event"] == "call")).sum())


# ---- Arguments -----------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("value", "size"),
    [
        (1, 1),
        (12347, 12347),
        ("1", 1),
        ("12347 B", 12347),
        ("64 MiB", 64 << 20),
        ("64mib", 64 << 20),
        (" 1.5 GiB ", 3 << 29),
        ("100 MB", 100_000_000),
        (".5kB", 500),
        ("1_000 KiB", 1000 << 10),
    ],
)
def test_sizes(value, size):
    assert parse_size("buffer", value) == size


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("arguments", "error", "parts"),
    [
        ({"buffer": 0}, ValueError, ["buffer", "1 MiB or more", "0"]),
        (
            {"buffer": 5},
            ValueError,
            ["buffer", "1 MiB or more, not 5: a number without a unit is bytes"],
        ),
        ({"buffer": "5"}, ValueError, ["buffer", "1 MiB or more, not '5'", "'64 MiB'"]),
        ({"buffer": (1 << 20) - 1}, ValueError, ["buffer", "1 MiB or more"]),
        ({"buffer": -5}, ValueError, ["buffer", "-5"]),
        ({"buffer": "0 MiB"}, ValueError, ["buffer", "'0 MiB'"]),
        ({"buffer": 0.5}, TypeError, ["buffer", "0.5", "int"]),
        ({"buffer": True}, TypeError, ["buffer", "True"]),
        ({"buffer": None}, TypeError, ["buffer", "None"]),
        ({"buffer": "much"}, ValueError, ["buffer", "'much'", "64 MiB"]),
        ({"buffer": "64 MB2"}, ValueError, ["buffer", "'64 MB2'"]),
        ({"buffer": "64 mibs"}, ValueError, ["buffer", "no unit 'mibs'", "MiB"]),
        ({"buffer": "-1 MiB"}, ValueError, ["buffer", "'-1 MiB'"]),
        ({"buffer": 1 << 60}, MemoryError, ["buffer", "memory"]),
        ({"buffer": 1 << 90}, MemoryError, ["buffer", "memory"]),
        ({"buffer": "999999 TiB"}, MemoryError, ["buffer", "999999 TiB"]),
        ({"on_full": "overwritten"}, ValueError, ["on_full", "'stop'", "did you mean 'overwrite'"]),
        ({"on_full": 1}, TypeError, ["on_full", "'grow'", "1"]),
        ({"threads": "every"}, ValueError, ["threads", "'all' or 'current'", "'every'"]),
        ({"backend": "Profile"}, ValueError, ["backend", "did you mean 'profile'?"]),
        ({"clock": "tsc"}, ValueError, ["clock", "'counter'", "'tsc'"]),
        ({"calls": 1}, TypeError, ["calls", "True or False", "1"]),
        ({"c_calls": "no"}, TypeError, ["c_calls", "'no'"]),
        ({"memory": "raw"}, TypeError, ["memory", "['obj']", "'raw'"]),
        ({"memory": 3}, TypeError, ["memory", "3"]),
        ({"memory": ["ram"]}, ValueError, ["memory", "'ram'", "did you mean 'raw'?"]),
        ({"memory": [1]}, TypeError, ["memory", "1"]),
        ({"memory": ["numpy"]}, ValueError, ["memory", "'numpy'", "numpy=True and native=True"]),
        ({"memory": ["obj", "libc"]}, ValueError, ["memory", "'libc'", "native=True"]),
        ({"events": ["cal"]}, ValueError, ["events", "'cal'", "did you mean 'call'?"]),
        ({"events": "call"}, TypeError, ["events", "['call']"]),
        ({"events": [None]}, TypeError, ["events", "None"]),
        ({"events": 7}, TypeError, ["events", "7"]),
        ({"events": []}, ValueError, ["nothing to record", "'call'"]),
        (
            {"calls": False, "c_calls": False, "memory": False, "marks": False},
            ValueError,
            ["nothing to record", "memory"],
        ),
        ({"include": "json.*"}, TypeError, ["include", "['json.*']"]),
        ({"include": [b"x"]}, TypeError, ["include", "b'x'"]),
        ({"exclude": [""]}, ValueError, ["exclude", "''"]),
        ({"exclude": None}, TypeError, ["exclude", "None"]),
        ({"colls": True}, TypeError, ["colls"]),
    ],
)
def test_a_bad_argument_is_named(arguments, error, parts):
    before = hooks()

    with pytest.raises(error) as caught:
        eventprof.record(**arguments)

    for part in parts:
        assert part in str(caught.value)
    assert hooks() == before


def test_arguments_have_names():
    with pytest.raises(TypeError):
        eventprof.record(True)


@pytest.mark.skipif(LATER_THAN_3_11, reason="has sys.monitoring")
def test_monitoring_is_unsupported_on_3_11():
    with pytest.raises(eventprof.UnsupportedError, match=r"3\.12"):
        eventprof.record(backend="monitoring")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        ({"calls": False}, {"call", "return", "yield"}),
        ({"c_calls": False}, {"c_call", "c_return"}),
        ({"memory": False}, {"malloc", "free"}),
        ({"events": {"call"}}, set(EVENTS) - {"call"}),
        ({"events": {"malloc", "return"}}, set(EVENTS) - {"malloc", "return"}),
        ({"events": {"malloc"}, "memory": ["obj"]}, set(EVENTS) - {"malloc"}),
    ],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_only_what_was_asked_for(arguments, absent, backend):
    with eventprof.record(backend=backend, **arguments) as rec:
        tree(57)

    found = set(rec.trace.events["event"])
    assert found
    assert not found & absent
    assert found <= set(rec.options.events)


def test_only_the_domains_asked_for():
    with eventprof.record(memory=["mem"]) as rec:
        bytearray(12347)
        "".join(["a"] * 100)

    events = rec.trace.events
    domains = events["domain"][~events["size"].mask]
    assert set(domains) == {"mem"}


def test_include_and_exclude():
    with eventprof.record(include=["*tree", "*leaf"], exclude=["*.leaf"], memory=False) as rec:
        tree(3)

    assert calls_of(rec.trace, "tree") == 1
    assert calls_of(rec.trace, "leaf") == 0


# ---- Use -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_as_a_context_manager(backend):
    with eventprof.record(backend=backend) as rec:
        tree(57)

    assert rec.state == "stopped"
    assert rec.backend == backend
    assert calls_of(rec.trace, "leaf") == 57
    assert not rec.trace.loss


def test_started_and_stopped_again_and_again():
    rec = eventprof.record()
    traces = []
    for n in (3, 5):
        rec.start()
        tree(n)
        rec.stop()
        traces.append(rec.trace)

    assert [calls_of(trace, "leaf") for trace in traces] == [3, 5]
    assert rec.trace is traces[1]


def fill():
    """Some 20 MiB of records."""
    for _ in range(6):
        _ = [object() for _ in range(100_000)]


def test_a_recorder_that_starts_again_keeps_its_chunks():
    """To unmap and map them took 0.6 to 1.8 ms after 100 ms at full rate; to start anew 0.08."""

    def mapped():
        return _core.engine_stats()["bytes_mapped"]

    rec = eventprof.record(calls=False, buffer="64 MiB", on_full="stop")
    with rec:
        fill()
    held = mapped()
    rec.start()
    assert mapped() == held > 16 << 20
    fill()
    assert mapped() <= held + (8 << 20)  # the second window is in the chunks of the first
    rec.stop()
    again = mapped()

    del rec
    with eventprof.record(calls=False):
        pass
    assert mapped() < again - (8 << 20)  # nobody starts again: they are given back


def test_to_record_calls_alone_clears_no_table_of_blocks():
    """512 KiB were cleared for nothing: the pages are the recorder's from then on."""
    code = """
        import sys, time, eventprof
        with eventprof.record(memory=sys.argv[1] == "memory") as rec:
            time.sleep(0.05)
        print(rec.trace.resident["recorder"][-1])
    """
    held = {kind: int(children.program(code, kind).stdout) for kind in ("calls", "memory")}

    assert held["calls"] + 512 * 1024 <= held["memory"]


def test_states():
    rec = eventprof.record()
    with pytest.raises(eventprof.StateError, match="never started"):
        _ = rec.trace
    with pytest.raises(eventprof.StateError, match="never started"):
        rec.snapshot()
    with pytest.raises(eventprof.StateError):
        rec.stop()

    with rec:
        assert rec.state == "running"
        with pytest.raises(eventprof.StateError, match="already running"):
            rec.start()
        with pytest.raises(RuntimeError, match=r"snapshot\(\)"):
            _ = rec.trace

    with pytest.raises(eventprof.StateError, match="not running"):
        rec.stop()


def test_stopped_inside_of_its_block():
    with eventprof.record() as rec:
        tree(2)
        rec.stop()
        tree(5)

    assert calls_of(rec.trace, "leaf") == 2


def test_a_snapshot_goes_on():
    with eventprof.record() as rec:
        tree(3)
        first = rec.snapshot()
        tree(4)
        second = rec.snapshot()

    assert calls_of(first, "leaf") == 3
    assert calls_of(second, "leaf") == 7
    assert calls_of(rec.trace, "leaf") == 7
    assert rec.snapshot() is rec.trace


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_of_ours_is_recorded(backend):
    rec = eventprof.record(backend=backend)

    @rec
    def work():
        rec.snapshot()
        repr(rec)
        return leaf(1)

    work()

    events = rec.trace.events
    ours = os.path.dirname(eventprof.__file__)
    functions = rec.trace.functions
    assert not [f for f in functions["file"] if f is not None and f.startswith(ours)]
    assert "threading" not in set(functions["module"])
    assert set(events["name"][events["event"] == "call"]) == {
        "test_nothing_of_ours_is_recorded.<locals>.work",
        "leaf",
    }


@pytest.mark.thorough
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit, ZeroDivisionError])
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_exception_leaves_the_block(error, backend):
    before = hooks()
    rec = eventprof.record(backend=backend)

    with pytest.raises(error), rec:
        assert hooks() != before
        tree(3)
        raise error

    assert hooks() == before
    assert rec.state == "stopped"
    assert calls_of(rec.trace, "leaf") == 3


def test_a_generator_is_closed_inside_of_the_block():
    rec = eventprof.record()

    def steps():
        with rec:
            yield leaf(1)

    generator = steps()
    next(generator)
    assert rec.state == "running"
    generator.close()

    assert rec.state == "stopped"


def test_a_dropped_recorder_is_stopped_with_a_warning():
    rec = eventprof.record()
    rec.start()

    with pytest.warns(ResourceWarning, match="dropped while running"):
        del rec
        gc.collect()


def test_exit_while_recording():
    code = "import eventprof, sys; r = eventprof.record(); r.start(); print('said'); sys.exit(7)"
    done = children.program(code, status=7)
    assert done.stdout == "said\n"
    assert "Traceback" not in done.stderr


def test_recorders_overlap():
    outer, inner = eventprof.record(memory=False), eventprof.record(c_calls=False)
    with outer:
        tree(2)
        with inner:
            tree(3)
        tree(4)

    assert calls_of(outer.trace, "leaf") == 9
    assert calls_of(inner.trace, "leaf") == 3
    assert "malloc" not in set(outer.trace.events["event"])
    assert "c_call" not in set(inner.trace.events["event"])


def test_threads_all_or_current():
    def both(threads):
        with eventprof.record(threads=threads) as rec:
            thread = threading.Thread(target=tree, args=(5,), name="a worker")
            thread.start()
            thread.join()
            tree(2)
        return rec.trace

    everything, own = both("all"), both("current")

    assert calls_of(everything, "leaf") == 7
    # A thread of an earlier test may still be giving back its memory: it shows, without a name.
    assert sorted(filter(None, everything.threads["name"])) == ["MainThread", "a worker"]
    assert calls_of(own, "leaf") == 2
    assert list(own.threads["name"]) == ["MainThread"]


def test_loss_is_counted():
    with eventprof.record(buffer=1 << 20, memory=False) as rec:
        tree(200_000)

    trace = rec.trace
    loss = trace.loss
    assert loss
    assert loss.reason == "overwritten"
    counts = {word: int((trace.events["event"] == word).sum()) for word in ("call", "return")}
    for word in ("call", "return"):
        expected = 200_000 + 1 + (sys.version_info < (3, 12))  # the comprehension
        assert counts[word] + loss.by_kind[word] == expected
    assert loss.total == sum(loss.by_kind.values()) == sum(loss.by_thread.values())
    assert f"{loss.total:,}" in repr(loss)
    assert "lost" in repr(trace)
    assert trace.threads["lost"].sum() == loss.total


def test_on_full_stop_keeps_the_head():
    with eventprof.record(buffer=1 << 20, memory=False, on_full="stop") as rec:
        tree(200_000)

    assert rec.trace.loss.reason == "limit"
    assert "tree" in rec.trace.events["name"][:3]


# ---- The decorator -------------------------------------------------------------------------------


def test_decorates_a_function():
    rec = eventprof.record()

    @rec
    def work(n, *, more=0):
        """What it does."""
        return tree(n + more)

    assert work(2, more=1) == [1, 1, 1]
    assert (work.__name__, work.__doc__, work.recorder) == ("work", "What it does.", rec)
    assert calls_of(rec.trace, "leaf") == 3

    work(1)
    assert calls_of(rec.trace, "leaf") == 1


def test_decorates_what_calls_itself():
    @eventprof.record()
    def down(n):
        return n and down(n - 1)

    down(4)

    assert calls_of(down.recorder.trace, "test_decorates_what_calls_itself.<locals>.down") == 5


def test_decorates_methods():
    class Thing:
        @eventprof.record()
        def method(self, n):
            return tree(n)

        @eventprof.record()
        @staticmethod
        def static(n):
            return tree(n)

        @eventprof.record()
        @classmethod
        def of_class(cls, n):
            return cls, tree(n)

    Thing().method(2)
    Thing().static(3)
    assert Thing().of_class(4)[0] is Thing

    assert calls_of(Thing.method.recorder.trace, "leaf") == 2
    assert calls_of(Thing.static.recorder.trace, "leaf") == 3
    assert calls_of(Thing.of_class.recorder.trace, "leaf") == 4


def test_decorates_a_generator_over_its_whole_run():
    @eventprof.record()
    def steps(n):
        got = yield leaf(0)
        assert got == "sent"
        try:
            yield leaf(1)
        except ZeroDivisionError:
            yield leaf(2)
        return "returned"

    rec = steps.recorder
    generator = steps(3)
    assert rec.state == "new"
    next(generator)
    assert rec.state == "running"
    tree(2)
    generator.send("sent")
    generator.throw(ZeroDivisionError)
    with pytest.raises(StopIteration, match="returned"):
        next(generator)

    assert rec.state == "stopped"
    assert calls_of(rec.trace, "leaf") == 5

    unfinished = steps(3)
    next(unfinished)
    unfinished.close()
    assert rec.state == "stopped"


def test_decorates_coroutines_and_asynchronous_generators():
    @eventprof.record()
    async def work(n):
        await asyncio.sleep(0)
        return tree(n)

    @eventprof.record()
    async def steps(n):
        try:
            for i in range(n):
                assert (yield leaf(i)) in (None, "sent")
        except ZeroDivisionError:
            yield "caught"

    async def main():
        assert await work(3) == [1, 1, 1]
        assert [value async for value in steps(2)] == [1, 1]
        generator = steps(9)
        await anext(generator)
        await generator.asend("sent")
        assert await generator.athrow(ZeroDivisionError) == "caught"
        assert steps.recorder.state == "running"
        await generator.aclose()
        assert steps.recorder.state == "stopped"

    asyncio.run(main())

    assert calls_of(work.recorder.trace, "leaf") == 3
    assert calls_of(steps.recorder.trace, "leaf") == 2


@pytest.mark.parametrize("thing", [int, 7, "text"])
def test_does_not_decorate_other_things(thing):
    with pytest.raises(TypeError, match="decorates functions"):
        eventprof.record()(thing)


# ---- The trace -----------------------------------------------------------------------------------


def test_metadata():
    with eventprof.record(clock="monotonic", buffer="7 MiB") as rec:
        leaf(1)

    facts = rec.trace.metadata
    assert facts["clock"] == "monotonic"
    assert facts["pid"] == os.getpid()
    assert facts["python"].endswith(sys.version.split()[0])
    assert facts["options"]["buffer"] == 7 << 20
    assert facts["duration_ns"] == rec.trace.duration > 0
    assert facts["start_ns"] > 1_600_000_000 * 10**9
    assert facts["displaced"] == ()
    assert "displaced" not in repr(rec)


def test_texts_for_people():
    with eventprof.record(memory=False) as rec:
        leaf(1)

    assert repr(rec).startswith("<eventprof.Recorder: stopped; call return")
    assert repr(rec.trace).startswith("<eventprof.Trace: ")
    assert "of 1 thread in" in repr(rec.trace)
    assert str(rec.trace).startswith("Nothing lost: all ")
    assert repr(rec.trace.loss) == "<no events lost>"


def test_calls_and_statistics_agree():
    with eventprof.record() as rec:
        tree(57)

    trace = rec.trace
    of_leaf = trace.functions[trace.functions["name"] == "leaf"]
    calls = trace.calls[trace.calls["name"] == "leaf"]
    assert of_leaf["calls"].tolist() == [57]
    assert len(calls) == 57
    assert of_leaf["total"][0] == calls["duration"].sum()
    assert of_leaf["self"][0] == calls["self"].sum()
    sizes = trace.allocations["size"]
    assert sizes.sum() == trace.functions["allocated_self"].sum()


def test_the_drop_in_is_there_by_name():
    assert "EventProfiler" in dir(eventprof)
    with pytest.raises(AttributeError, match="no attribute 'EventProfilor'"):
        _ = eventprof.EventProfilor
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert eventprof.EventProfiler.__name__ == "EventProfiler"


@pytest.mark.thorough
@pytest.mark.parametrize("on_full", ["overwrite", "stop", "grow"])
def test_events_are_counted_without_decoding_them(on_full, backend):
    with eventprof.record(on_full=on_full, buffer=1 << 20, backend=backend) as rec:
        for n in range(30_000):
            str(n)

    recorded, lost, _, ns = rec._count()

    assert (recorded, lost) == (len(rec.trace.events), rec.trace.loss.total)
    assert ns + 1000 >= rec.trace.duration > 0


# ---- Where there is no library to preload --------------------------------------------------------


def test_native_is_refused_where_there_is_no_library(monkeypatch, tmp_path):
    monkeypatch.setattr(_core, "__file__", str(tmp_path / "_core.so"))

    with pytest.raises(eventprof.UnsupportedError, match=r"needs Linux with glibc: .*_shim\.so"):
        eventprof.record(native=True).start()


@pytest.mark.skipif(HAS_LIBRARY, reason="it is there")
def test_run_native_is_refused_where_there_is_no_library():
    done = children.eventprof("run", "--native", "-c", "print('ran')", status=None)

    assert done.returncode == 2
    assert "native=True needs Linux with glibc" in done.stderr and "record without" in done.stderr
    assert "ran" not in done.stdout
