"""Objects that are created and destroyed, against the program's own books and the interpreter's."""

from __future__ import annotations

import ctypes
import gc
import itertools
import shutil
import sys
import threading
import tracemalloc
from collections import Counter

import children
import pytest
import raw

import eventprof

HAS_TRACER = sys.version_info >= (3, 13)

pytestmark = [
    pytest.mark.usefixtures("restored"),
    pytest.mark.skipif(not HAS_TRACER, reason="needs PyRefTracer_SetTracer"),
]

SIZE = 12347


class Thing:
    pass


class Slotted:
    __slots__ = ("next",)


class _Tracer:
    """The runtime's tracer, as ctypes has it."""

    if HAS_TRACER:
        get = ctypes.pythonapi.PyRefTracer_GetTracer
        get.restype = ctypes.c_void_p
        get.argtypes = [ctypes.POINTER(ctypes.c_void_p)]
        put = ctypes.pythonapi.PyRefTracer_SetTracer
        put.argtypes = [ctypes.c_void_p, ctypes.c_void_p]

    @classmethod
    def now(cls):
        data = ctypes.c_void_p()
        return cls.get(ctypes.byref(data)), data.value


@pytest.fixture(autouse=True)
def _the_tracer_is_restored():
    if not HAS_TRACER:
        yield
        return
    _take_out_what_tracemalloc_left()
    assert _Tracer.now() == (None, None)
    yield
    _take_out_what_tracemalloc_left()
    assert _Tracer.now() == (None, None)


def _take_out_what_tracemalloc_left():
    if not tracemalloc.is_tracing() and TRACEMALLOC_STAYS:
        _Tracer.put(None, None)


def _tracemalloc_stays() -> bool:
    """Whether tracemalloc leaves its tracer behind when it stops: early 3.13 (gh-128679)."""
    if not HAS_TRACER:
        return False
    tracemalloc.start()
    tracemalloc.stop()
    stays = _Tracer.now() != (None, None)
    _Tracer.put(None, None)
    return stays


TRACEMALLOC_STAYS = _tracemalloc_stays()


def row_of(trace, kind):
    table = trace.objects
    (row,) = table[(table["name"] == kind.__qualname__) & (table["module"] == kind.__module__)]
    return row


def alive(kind):
    gc.collect()
    return sum(type(each) is kind for each in gc.get_objects())


def recording(**options):
    return eventprof.record(
        refs=True, **{"memory": False, "calls": False, "c_calls": False, **options}
    )


def test_births_and_lives_are_those_that_the_collector_knows(tmp_path):
    old = [Thing() for _ in range(7)]
    log = tmp_path / "log.epr"
    with recording() as rec, recording(output=log, c_calls=True) as other:
        kept = [Thing() for _ in range(100)]
        del kept[:40]
        gone = [Thing() for _ in range(30)]
        del gone
        del old[:3]
    assert alive(Thing) == 60 + 4
    rec.trace.save(tmp_path / "saved.epr")
    traces = [rec.trace, other.trace, eventprof.open(log), eventprof.open(tmp_path / "saved.epr")]
    for trace in traces:
        row = row_of(trace, Thing)
        assert (row.created, row.live + row.unseen + row.churn) == (130, 130)
        if REPORTS_ENDS:
            assert (row.destroyed, row.older) == (73, 3)
            # An address that was given out again has no end of its own unless that was reported.
            assert (row.churn, row.unseen, row.live) == (70, 0, 60)
        words = Counter(trace.events["event"].tolist())
        assert words["create"] >= 130
    assert len(kept) == 60


def test_counts_agree_with_the_references_to_the_class():
    """Every instance holds a reference to its class."""
    Slotted()
    references = sys.getrefcount(Slotted)
    with recording() as rec:
        kept = [Slotted() for _ in range(50)]
        del kept[10:]
    held = sys.getrefcount(Slotted) - references
    row = row_of(rec.trace, Slotted)
    assert row.created == 50
    if REPORTS_ENDS:
        assert row.live == 10
        if raw.HAS_GIL:
            assert held == 10
    assert len(kept) == 10


def _ends_are_reported() -> bool:
    """Not by 3.13.0: gh-130382."""
    if not HAS_TRACER:
        return False
    with eventprof.record(refs=True, memory=False, calls=False, c_calls=False) as rec:
        for _ in range(20):
            Slotted()
    return row_of(rec.trace, Slotted).destroyed == 20


REPORTS_ENDS = _ends_are_reported()


def test_rows_say_what_and_where():
    with recording(calls=True) as rec:
        thing = Thing()
        del thing
    events = rec.trace.events
    rows = events[(events["name"] == "Thing")]
    rows = rows[(rows["event"] == "create") | (rows["event"] == "destroy")]
    assert rows["event"].tolist() == (["create", "destroy"] if REPORTS_ENDS else ["create"])
    assert len(set(rows["address"].tolist())) == 1 and rows["size"].mask.all()
    names, files = rec.trace.functions["name"], rec.trace.functions["file"]
    caller = rows["caller"][0]
    assert (names[caller], files[caller]) == ("test_rows_say_what_and_where", __file__)
    function = rows["function"][0]
    assert rec.trace.functions["kind"][function] == "type"


def test_the_address_is_the_objects():
    with recording() as rec:
        things = [Thing() for _ in range(20)]
    events = rec.trace.events
    found = events["address"][(events["name"] == "Thing") & (events["event"] == "create")]
    assert found.tolist() == [id(each) for each in things]


def test_over_time():
    with recording() as rec:
        first = [Thing() for _ in range(10)]
        eventprof.mark("first")
        second = [Slotted() for _ in range(5)]
        eventprof.mark("second")
        del first
        eventprof.mark("third")
    trace = rec.trace
    table = trace.objects_over_time(2000, [f"{__name__}.Thing", "Slotted"])
    live = {name: table["live"][table["name"] == name].tolist() for name in ("Thing", "Slotted")}
    assert live["Slotted"][-1] == 5 and max(live["Thing"]) == 10
    assert live["Thing"][-1] == 0 or not REPORTS_ENDS
    for name, values in live.items():
        part = table[table["name"] == name]
        assert (
            part["created"].sum()
            == row_of(trace, {"Thing": Thing, "Slotted": Slotted}[name]).created
        )
        assert values == (part["created"].cumsum() - part["destroyed"].cumsum()).tolist()
    assert table["time"].tolist() == sorted(table["time"][:2000].tolist()) * 2
    everything = trace.objects_over_time(1)
    assert len(everything) <= 10 and "Thing" in everything["name"]
    with pytest.raises(ValueError, match="no object of 'Thin' came or went; did you mean 'Thing'"):
        trace.objects_over_time(3, ["Thin"])
    with pytest.raises(ValueError, match="count must be 1 or more"):
        trace.objects_over_time(0)
    assert len(second) == 5


def test_only_who_asked_has_them():
    with eventprof.record(memory=False) as plain:
        Thing()
        with recording() as asked:
            Thing()
        Thing()
    assert row_of(asked.trace, Thing).created == 1
    assert not {"create", "destroy"} & set(plain.trace.events["event"].tolist())
    assert len(plain.trace.objects) == len(plain.trace.objects_over_time(3)) == 0


def test_threads_have_their_own():
    def work():
        for _ in range(500):
            Thing()

    with recording() as rec:
        threads = [threading.Thread(target=work, name=f"T{n}") for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    trace = rec.trace
    events = trace.events
    creations = events[(events["name"] == "Thing") & (events["event"] == "create")]
    names = trace.threads["name"]
    assert Counter(names[creations["thread"]].tolist()) == {f"T{n}": 500 for n in range(3)}
    assert row_of(trace, Thing).created == 1500


@pytest.mark.thorough
def test_classes_come_and_go():
    def rounds(count):
        for number in range(count):
            kind = type(f"Passing{number}", (), {})
            kind()
            del kind
            gc.collect()

    with recording() as rec:
        rounds(20)
    names = Counter(rec.trace.objects["name"].tolist())
    assert [names[f"Passing{number}"] for number in range(20)] == [1] * 20


def test_nothing_of_ours_is_in_it():
    with recording(calls=True, c_calls=True) as rec:
        with eventprof.span("s"):
            eventprof.counter("c", 1.5)
        rec.snapshot()
        with recording():
            pass
    modules = {str(each) for each in rec.trace.objects["module"].tolist()}
    assert not {each for each in modules if each.partition(".")[0] == "eventprof"}


def test_an_exception_that_is_pending_stays():
    class Failing:
        def __del__(self):
            Thing()

    def fail():
        failing = Failing()
        raise KeyError(repr(type(failing)))

    with recording() as rec, pytest.raises(KeyError) as caught:
        fail()
    assert "Failing" in str(caught.value)
    del caught
    gc.collect()
    assert rec.trace.verify().ok


def test_what_is_lost_is_counted():
    count = 100_000
    with recording(buffer="1 MiB", marks=False) as rec:
        for _ in itertools.repeat(None, count):  # range() would make numbers
            Slotted()
    events = rec.trace.events
    kept = int(((events["name"] == "Slotted") & (events["event"] == "create")).sum())
    lost = rec.trace.loss.by_kind["create"]
    others = Counter(events["event"].tolist())["create"] - kept
    assert lost > 0 and count <= kept + lost <= count + others + 1000


# ---- Other tracers -------------------------------------------------------------------------------


def test_tracemalloc_before_us_goes_on_and_comes_back():
    tracemalloc.start()
    try:
        tracer = _Tracer.now()
        with recording() as rec:
            assert _Tracer.now() != tracer
            block = bytearray(SIZE)
            thing = Thing()
        assert _Tracer.now() == tracer
        assert tracemalloc.get_object_traceback(block) is not None
        assert tracemalloc.get_traced_memory()[0] >= SIZE
        assert row_of(rec.trace, Thing).created == 1 and rec.displaced == ()
        del thing
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("stops", [True, False])
def test_tracemalloc_that_comes_later_displaces_us(stops):
    rec = recording()
    try:
        with rec:
            Thing()
            tracemalloc.start()
            theirs = _Tracer.now()
            if theirs[0] is None or not _replaces():
                pytest.skip("this tracemalloc uses no tracer")
            Thing()
            if stops:
                tracemalloc.stop()
        assert rec.displaced == ("refs",)
        assert row_of(rec.trace, Thing).created == 1
        if not stops:
            assert _Tracer.now() == theirs
    finally:
        tracemalloc.stop()
    with rec:
        Thing()
    assert rec.displaced == () and row_of(rec.trace, Thing).created == 1


def _replaces():
    """Whether the one that is there now is tracemalloc's: the runtime's own functions are."""
    return tracemalloc.is_tracing()


COUNTING = r"""
#include <stdatomic.h>
#include <stddef.h>
typedef int (*tracer)(void *, int, void *);
int PyRefTracer_SetTracer(tracer, void *);
static _Atomic long events[4], wrong;
static int own(void *object, int event, void *data) {
    events[event & 3]++;
    wrong += data != (void *)events;
    return 0;
}
void install(void) { PyRefTracer_SetTracer(own, (void *)events); }
void uninstall(void) { PyRefTracer_SetTracer(NULL, NULL); }
long count(int event) { return event < 0 ? wrong : events[event]; }
"""


@pytest.fixture
def counting(tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source, library = tmp_path / "counting.c", tmp_path / "counting.so"
    source.write_text(COUNTING)
    children.run(compiler, "-shared", "-fPIC", "-o", library, source)
    made = ctypes.PyDLL(str(library))
    made.count.restype = ctypes.c_long
    yield made
    made.uninstall()


def test_a_tracer_that_was_there_sees_all_and_comes_back(counting):
    def churn(rounds):
        for _ in range(rounds):
            Slotted()

    counting.install()
    theirs = _Tracer.now()
    with recording() as rec:
        before = [counting.count(event) for event in (0, 1)]
        churn(1000)
        after = [counting.count(event) for event in (0, 1)]
        with recording() as inner:
            churn(10)
    assert _Tracer.now() == theirs
    seen = [b - a for a, b in zip(before, after, strict=True)]
    assert seen[0] >= 1000 and (seen[1] >= 1000 or not REPORTS_ENDS)
    assert counting.count(-1) == 0
    assert row_of(rec.trace, Slotted).created == 1010
    assert row_of(inner.trace, Slotted).created == 10
    assert rec.displaced == inner.displaced == ()


def test_a_tracer_that_comes_later_is_left_alone(counting):
    rec = recording()
    with rec:
        Thing()
        counting.install()
        Thing()
    theirs = _Tracer.now()
    assert rec.displaced == ("refs",)
    assert row_of(rec.trace, Thing).created == 1
    with rec:
        Thing()
    assert _Tracer.now() == theirs
    assert row_of(rec.trace, Thing).created == 1


# ---- What the interpreter does not report --------------------------------------------------------
# doc/objects.rst says what these find; a version that differs is to be described there.


def made_by(work, kind, rounds=50):
    """How many of `rounds` objects are seen to be created, and destroyed."""
    work()
    with recording(marks=False) as rec:
        for _ in range(rounds):
            work()
    events = rec.trace.events
    of_kind = events[events["name"] == kind]
    words = Counter(of_kind["event"].tolist())
    return words["create"], words["destroy"]


def test_objects_of_free_lists_are_reported_when_they_come():
    """Reused memory of a free list is a birth all the same; that of an immortal object is none."""
    number = 12345.0
    assert made_by(lambda: number + 1.0, "float")[0] >= 50
    assert made_by(lambda: [1, 2], "list")[0] >= 50
    assert made_by(lambda: {1: 2}, "dict")[0] >= 50
    assert made_by(lambda: (number,), "tuple")[0] >= 50


def test_immortal_and_static_objects_are_never_reported():
    assert made_by(lambda: 5, "int")[0] < 50
    assert made_by(lambda: (), "tuple") == (0, 0)
    assert made_by(lambda: "a" + "", "str") == (0, 0)


def test_arguments():
    with pytest.raises(TypeError, match="refs must be True or False"):
        eventprof.record(refs=1)
