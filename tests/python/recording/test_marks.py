"""User events: marks, spans, counters and flows, against what the program itself counted."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import random
import shutil
import sys
import sysconfig
import threading
import tracemalloc
from collections import Counter

import children
import numpy as np
import pytest
from children import child

import eventprof

pytestmark = [pytest.mark.version, pytest.mark.usefixtures("restored")]

ROUNDS = 12


def lists(table):
    """Return a table's columns as lists; None where unknown."""
    return {name: table._column(name).items() for name in table.columns}


def line_here():
    return sys._getframe(1).f_lineno


def nothing():
    pass


def round_trips(trace, tmp_path):
    """Return the trace, and the same saved and opened."""
    path = tmp_path / "saved.epr"
    trace.save(path, force=True)
    return [trace, eventprof.open(path)]


# ---- Marks, counters, flows ----------------------------------------------------------------------


def test_marks_are_where_and_as_often_as_the_program_made_them(backend, tmp_path):
    made = []

    def work(name):
        made.append((name, "work", line_here() + 1))
        eventprof.mark(name)

    with eventprof.record(backend=backend) as rec:
        for i in range(ROUNDS):
            work("even" if i % 2 == 0 else "odd")
        made.append(("last", sys._getframe().f_code.co_name, line_here() + 1))
        eventprof.mark("last")

    for trace in round_trips(rec.trace, tmp_path):
        marks, functions = lists(trace.marks), trace.functions["name"]
        callers = [functions[row].rpartition(".")[2] for row in marks["caller"]]
        assert list(zip(marks["name"], callers, marks["caller_line"], strict=True)) == made
        assert marks["time"] == sorted(marks["time"])
        kinds = trace.functions["kind"][trace.functions["name"] == "last"]
        assert kinds.tolist() == ["user"]
        assert Counter(trace.events["event"].tolist())["mark"] == len(made)


class Text(str):
    """A str that says it equals whatever it is asked about."""

    def __hash__(self):
        raise AssertionError("a name is no reason to run code of the program's")

    def __eq__(self, other):
        raise AssertionError("a name is no reason to run code of the program's")


def test_a_name_is_its_text():
    names = ["", "a", "".join(["a"]), "\N{SNOWMAN}", "\ud800", "x" * 5000, "a\0b", Text("sub")]
    names += [f"number {i}" for i in range(300)] * 2
    with eventprof.record() as rec:
        for name in names:
            eventprof.mark(name)
    assert rec.trace.marks["name"].tolist() == [str.__str__(name) for name in names]
    assert len(set(rec.trace.marks._column("name").values().tolist())) == 307  # "a" twice


def test_counters_keep_every_bit():
    values = [
        0,
        1,
        -1,
        True,
        2.5,
        -0.0,
        1e308,
        5e-324,
        2**53,
        10**300,
        math.inf,
        -math.inf,
        math.nan,
    ]
    with eventprof.record() as rec:
        for value in values:
            eventprof.counter("value", value)
    found = rec.trace.counters["value"]
    assert [math.copysign(1, each) for each in found] == [math.copysign(1, v) for v in values]
    assert list(map(repr, found.tolist())) == [repr(float(v)) for v in values]
    events = rec.trace.events[rec.trace.events["event"] == "counter"]
    assert events["value"].count() == len(values) - 1  # of the one that is none
    assert events["address"].mask.all() and events["size"].mask.all()


def test_flows_go_from_thread_to_thread(tmp_path):
    made = []
    stations = threading.Lock()

    def station(identity, phase):
        with stations:
            made.append((identity, phase, threading.get_native_id()))
            eventprof.flow("job", identity, phase)

    with eventprof.record(calls=False, c_calls=False, memory=False) as rec:
        for identity in (0, 7, 2**61 - 1):
            station(identity, "begin")
            for phase in ("step", "".join(["st", "ep"]), "end"):
                thread = threading.Thread(target=station, args=(identity, phase))
                thread.start()
                thread.join()
    for trace in round_trips(rec.trace, tmp_path):
        flows = lists(trace.flows)
        native = trace.threads["native_id"]
        threads = [int(native[row]) for row in flows["thread"]]
        assert list(zip(flows["id"], flows["phase"], threads, strict=True)) == made
        assert set(flows["name"]) == {"job"}
        assert len(trace.spans) == 0


def test_every_thread_has_its_own_events():
    def work(number):
        for i in range(200):
            with eventprof.span(f"thread {number}"):
                eventprof.mark(f"mark {number}")
                eventprof.counter(f"counter {number}", i)

    with eventprof.record(memory=False) as rec:
        threads = [threading.Thread(target=work, args=(n,), name=f"T{n}") for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    trace = rec.trace
    names = trace.threads["name"]
    for table, word in (
        (trace.marks, "mark"),
        (trace.counters, "counter"),
        (trace.spans, "thread"),
    ):
        found = lists(table)
        of_thread = [names[row] for row in found["thread"]]
        assert Counter(zip(found["name"], of_thread, strict=True)) == {
            (f"{word} {n}", f"T{n}"): 200 for n in range(4)
        }
    for n in range(4):
        counted = trace.counters["value"][trace.counters["name"] == f"counter {n}"]
        assert counted.tolist() == list(range(200))
    assert (trace.spans["flags"] == 0).all()


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize(
    ("function", "arguments", "error"),
    [
        ("mark", (), TypeError),
        ("mark", (1,), TypeError),
        ("mark", (b"x",), TypeError),
        ("mark", ("x", "y"), TypeError),
        ("counter", ("x",), TypeError),
        ("counter", (None, 1), TypeError),
        ("counter", ("x", "1"), TypeError),
        ("counter", ("x", 10**400), OverflowError),
        ("flow", ("x", 1), TypeError),
        ("flow", ("x", 1.0, "begin"), TypeError),
        ("flow", ("x", -1, "begin"), ValueError),
        ("flow", ("x", 2**61, "begin"), ValueError),
        ("flow", ("x", 10**40, "begin"), ValueError),
        ("flow", ("x", 1, "middle"), ValueError),
        ("flow", ("x", 1, 0), TypeError),
        ("span", (), TypeError),
        ("span", (3,), TypeError),
    ],
)
def test_what_is_wrong_is_wrong_whether_anybody_records_or_not(running, function, arguments, error):
    with (
        eventprof.record() if running else contextlib.nullcontext(),
        pytest.raises(error) as raised,
    ):
        getattr(eventprof, function)(*arguments)
    assert (
        function in str(raised.value)
        or error is OverflowError
        or "real number" in str(raised.value)
    )


# ---- Spans ---------------------------------------------------------------------------------------


def random_spans(seed, backend="auto"):
    """Run nested spans, calls and exceptions at random. Returns: the trace, [(name, parent)]."""
    choose = random.Random(seed)
    made, stack = [], []

    def call(depth):
        step(depth + 1)

    def step(depth):
        for _ in range(choose.randrange(4)):
            name = choose.choice("abc")
            made.append((name, stack[-1] if stack else None))
            stack.append(name)
            try:
                with eventprof.span(name):
                    if depth < 4:
                        choose.choice((step, call))(depth + 1)
                    if choose.random() < 0.2:
                        raise KeyError(name)
            except KeyError:
                if choose.random() < 0.3 and depth:
                    raise
            finally:
                stack.pop()

    with eventprof.record(backend=backend) as rec:
        for _ in range(40):
            with contextlib.suppress(KeyError):
                step(0)
    return rec.trace, made


@pytest.mark.parametrize("seed", range(3))
def test_spans_nest_as_the_program_nested_them(seed, backend, tmp_path):
    first, made = random_spans(seed, backend)
    assert len(made) > 50
    for trace in round_trips(first, tmp_path):
        calls = lists(trace.calls)
        spans = [row for row, kind in enumerate(calls["kind"]) if kind == "span"]

        def outer(row, calls=calls):
            parent = calls["parent"][row]
            while parent is not None and calls["kind"][parent] != "span":
                parent = calls["parent"][parent]
            return None if parent is None else calls["name"][parent]

        assert [(calls["name"][row], outer(row)) for row in spans] == made
        assert not any(calls["flags"][row] & ~32 for row in spans)
        assert trace.spans["call"].tolist() == spans
        assert trace.pairing["ends_unseen"] == trace.pairing["unmatched_ends"] == 0
        assert trace.pairing["calls_misplaced"] == 0
        functions = trace.functions
        for name, count in Counter(name for name, _ in made).items():
            row = functions[(functions["name"] == name) & (functions["kind"] == "user")]
            assert (row["calls"].tolist(), row["resumes"].tolist()) == ([count], [0])


def assert_between_marks(trace, count):
    """Every span begins right before a mark `in N` and ends right after `out N`."""
    times = dict(zip(trace.marks["name"].tolist(), trace.marks["time"].tolist(), strict=True))
    every = sorted(times.values())
    spans = sorted(
        zip(trace.spans["start"].tolist(), trace.spans["duration"].tolist(), strict=True)
    )
    assert len(spans) == count and (trace.spans["flags"] == 0).all()
    left = {n for n in range(count)}
    for start, duration in spans:
        (number,) = (n for n in left if start <= times[f"in {n}"] and
                     not any(start <= t < times[f"in {n}"] for t in every))  # fmt: skip
        left.remove(number)
        end = start + duration
        assert times[f"out {number}"] <= end
        assert not any(times[f"out {number}"] < t < end for t in every)


def interleaved(generators, step):
    """Steps through them in turns until all have ended."""
    choose = random.Random(5)
    left = list(generators)
    while left:
        each = choose.choice(left)
        if not step(each):
            left.remove(each)


@pytest.mark.parametrize("calls", [True, False])
def test_spans_in_generators_end_where_they_began(calls, tmp_path):
    def generator(number):
        with eventprof.span("same name"):
            eventprof.mark(f"in {number}")
            for _ in range(number % 3):
                yield number
            if number % 4 == 3:
                with contextlib.suppress(KeyError):
                    raise KeyError
            eventprof.mark(f"out {number}")

    with eventprof.record(calls=calls, c_calls=calls, memory=False) as rec:
        interleaved([generator(n) for n in range(20)], lambda g: next(g, None) is not None)
    for trace in round_trips(rec.trace, tmp_path):
        assert_between_marks(trace, 20)
        assert trace.spans["call"].mask.all() and len(trace.flows) == 0
        assert "span" not in trace.calls["kind"]
        assert trace.pairing["ends_unseen"] == trace.pairing["unmatched_ends"] == 0
        words = Counter(trace.events["event"].tolist())
        assert words["span_begin"] == words["span_end"] == 20 and words["flow"] == 0


@pytest.mark.slow
def test_words_of_events_with_loose_spans_take_little_memory():
    count = 500_000
    with eventprof.record(c_calls=False, memory=False, on_full="grow") as rec:
        for number in range(count):
            if number % 50_000 == 0:
                list(generator_with_span())
            nothing()
    events = rec.trace.events
    assert len(events) > 2 * count
    _ = rec.trace._core.events("kind"), rec.trace._thread_rows

    tracemalloc.start()
    try:
        codes = events.codes("event")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak - codes.nbytes < len(events) * 3 // 4  # it was one more array of all kinds
    words = events.categories("event")
    for word in ("span_begin", "span_end"):
        assert np.count_nonzero(codes == words.index(word)) == 10


def test_spans_of_tasks_and_of_stacks_end_where_they_began():
    async def task(number):
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(eventprof.span("same name"))
            eventprof.mark(f"in {number}")
            for _ in range(number % 4):
                await asyncio.sleep(0)
            eventprof.mark(f"out {number}")

    def kept(number):
        with contextlib.ExitStack() as stack:
            stack.enter_context(eventprof.span("same name"))
            eventprof.mark(f"in {number}")
            return stack.pop_all()

    async def run():
        await asyncio.gather(*(task(n) for n in range(10)))

    with eventprof.record(memory=False) as rec:
        asyncio.run(run())
        stacks = [kept(n) for n in range(10, 15)]
        for number, stack in enumerate(stacks, 10):
            eventprof.mark(f"out {number}")
            stack.close()
    assert_between_marks(rec.trace, 15)
    assert rec.trace.pairing["ends_unseen"] == rec.trace.pairing["unmatched_ends"] == 0


def test_a_span_decorates_whatever_runs():
    span = eventprof.span("decorated")

    class Methods:
        @span
        def method(self):
            return "method"

        @span
        @classmethod
        def of_class(cls):
            return cls.__name__

        @span
        @staticmethod
        def static():
            return "static"

    @span
    def function(n):
        """Its own documentation."""
        return n if n == 0 else function(n - 1)

    @span
    def generator():
        yield 1
        yield (yield 2)

    @span
    async def coroutine():
        await asyncio.sleep(0)
        return "done"

    @span
    async def async_generator():
        yield 1
        yield 2

    async def run():
        return await coroutine(), [each async for each in async_generator()]

    with eventprof.record(memory=False) as rec:
        assert (Methods().method(), Methods.of_class(), Methods.static()) == (
            "method",
            "Methods",
            "static",
        )
        assert function(3) == 0
        steps = generator()
        assert [next(steps), next(steps), steps.send("sent")] == [1, 2, "sent"]
        steps.close()
        assert asyncio.run(run()) == ("done", [1, 2])
    assert function.__name__ == "function" and function.__doc__ == "Its own documentation."
    assert Counter(rec.trace.spans["name"].tolist()) == {"decorated": 3 + 4 + 1 + 1 + 1}
    assert int((rec.trace.calls["kind"] == "span").sum()) == 7
    assert (rec.trace.spans["flags"] == 0).all()
    with pytest.raises(TypeError, match="the class Methods"):
        span(Methods)
    with pytest.raises(TypeError, match="not 3"):
        span(3)


def test_spans_that_the_window_cuts_say_so():
    outer, inner = eventprof.span("outer"), eventprof.span("inner")
    rec = eventprof.record(memory=False)

    def generator():
        with eventprof.span("loose"):
            yield

    steps, others = generator(), generator()
    with outer:
        next(steps)
        rec.start()
        next(others)
        for _ in steps:
            pass
    with inner:
        rec.stop()
    spans = lists(rec.trace.spans)
    found = {(name, flags) for name, flags in zip(spans["name"], spans["flags"], strict=True)}
    assert found == {("loose", 1), ("loose", 2), ("outer", 1), ("inner", 2)}
    ends = [
        start + duration for start, duration in zip(spans["start"], spans["duration"], strict=True)
    ]
    assert max(ends) == rec.trace.duration and min(spans["start"]) == 0
    others.close()


def test_a_span_that_ends_in_another_function_harms_nothing_else():
    span = eventprof.span("by hand")

    def begin():
        span.__enter__()

    def end():
        span.__exit__(None, None, None)

    with eventprof.record(memory=False) as rec:  # and conftest.py verifies it
        with eventprof.span("around"):
            begin()
            end()
    spans = lists(rec.trace.spans)
    assert sorted(zip(spans["name"], spans["flags"], strict=True)) == [
        ("around", 0), ("by hand", 1), ("by hand", 16),
    ]  # fmt: skip
    assert rec.trace.pairing["unmatched_ends"] == rec.trace.pairing["ends_unseen"] == 1


def test_an_exception_goes_through():
    span = eventprof.span("failing")
    error = KeyError("mine")
    with eventprof.record() as rec:
        with pytest.raises(KeyError) as caught, span:
            raise error
    assert caught.value is error
    assert rec.trace.spans["flags"].tolist() == [0]
    assert repr(span) == "eventprof.span('failing')" and span.name == "failing"


def test_what_with_binds_is_given_back_and_is_in_no_table():
    """Up to 3.13 the bound methods of spans come from a list of 16."""
    span = eventprof.span("deep")

    def nest(depth):
        with span:
            return depth == 0 or nest(depth - 1)

    nest(40)
    before = sys.getrefcount(span)
    with eventprof.record(memory=("mem", "obj")) as rec:
        nest(40)
    assert sys.getrefcount(span) == before
    trace = rec.trace
    assert trace.spans["name"].tolist() == ["deep"] * 41 and (trace.spans["flags"] == 0).all()
    assert set(trace.calls["kind"].tolist()) == {"call", "span"}, lists(trace.calls)["name"]
    if sys.version_info < (3, 14) and not sysconfig.get_config_var("Py_GIL_DISABLED"):
        assert "nest" not in trace.allocations["function"].tolist(), lists(trace.allocations)


def test_the_methods_of_a_span_are_methods():
    span = eventprof.span("methods")
    enter, leave = span.__enter__, span.__exit__
    assert enter.__self__ is span and enter() is span
    assert leave(None, None, None) is False
    assert type(span).__enter__(span) is span
    assert type(span).__exit__(span, None, None, None) is False
    assert type(span).__enter__.__objclass__ is type(span)
    for wrong in (lambda: enter(1), lambda: enter(key=1), lambda: leave(key=1)):
        with pytest.raises(TypeError):
            wrong()
    del span
    assert enter().name == "methods"  # a method keeps its object


# ---- Recorders -----------------------------------------------------------------------------------


def everything():
    eventprof.mark("m")
    with eventprof.span("s"):
        eventprof.counter("c", 1)
    eventprof.flow("f", 1, "begin")


def test_each_recorder_has_what_it_asked_for():
    """Neither whether another runs, nor when it started, changes what one has."""
    everything()
    with eventprof.record(marks=False, memory=False) as without:
        everything()
        with eventprof.record(calls=False, c_calls=False, memory=False) as alone:
            everything()
            with eventprof.record(memory=False) as both:
                everything()
        everything()
    everything()
    words = ("mark", "span_begin", "span_end", "counter", "flow")
    for rec, times in ((without, 0), (alone, 2), (both, 1)):
        found = Counter(rec.trace.events["event"].tolist())
        assert [found[word] for word in words] == [times] * 5
        tables = (rec.trace.marks, rec.trace.spans, rec.trace.counters, rec.trace.flows)
        assert [len(table) for table in tables] == [times] * 4
    assert set(alone.trace.events["event"].tolist()) == set(words)
    assert Counter(without.trace.events["event"].tolist())["call"] > 0


def test_a_log_file_has_them(tmp_path):
    path = tmp_path / "log.epr"
    with eventprof.record(output=path, memory=False) as rec:
        for _ in range(ROUNDS):
            everything()
        list(generator_with_span())
    assert_same(rec.trace, eventprof.open(path))


def generator_with_span():
    with eventprof.span("loose"):
        yield 1


def assert_same(one, other):
    for name in ("marks", "spans", "counters", "flows"):
        assert lists(getattr(one, name)) == lists(getattr(other, name)), name
        assert len(getattr(one, name)) > 0, name


@pytest.mark.parametrize("on_full", ["overwrite", "stop"])
def test_what_is_lost_is_counted(on_full):
    count = 150_000
    mark, counter, span = eventprof.mark, eventprof.counter, eventprof.span("span")
    with eventprof.record(
        calls=False, c_calls=False, memory=False, buffer="1 MiB", on_full=on_full
    ) as rec:
        for i in range(count):
            mark("lost or not")
            counter("value", i)
            with span:
                pass
    recorded = Counter(rec.trace.events["event"].tolist())
    lost = rec.trace.loss.by_kind
    assert lost["mark"] > 0 and lost["counter"] > 0
    for word in ("mark", "counter", "span_begin", "span_end"):
        assert recorded[word] + lost[word] == count, word


def test_filters_leave_user_events_alone():
    def leaf():
        eventprof.mark("in leaf")

    def work():
        with eventprof.span("around"):
            for _ in range(ROUNDS):
                leaf()

    for options in (
        {"include": ["nothing.*"]},
        {"exclude": ["*"]},
        {"max_depth": 0},
        {"min_duration": "10 s"},
    ):
        with eventprof.record(memory=False, **options) as rec:
            work()
        assert rec.trace.marks["name"].tolist() == ["in leaf"] * ROUNDS, options
        assert rec.trace.spans["name"].tolist() == ["around"], options
        assert rec.trace.spans["flags"].tolist() == [0], options


def test_only_marks_may_be_recorded_and_nothing_may_not():
    with eventprof.record(calls=False, c_calls=False, memory=False) as rec:
        everything()
    assert len(rec.trace.events) == 5
    with pytest.raises(ValueError, match="nothing to record"):
        eventprof.record(calls=False, c_calls=False, memory=False, marks=False)
    with pytest.raises(TypeError, match="marks must be True or False"):
        eventprof.record(marks="some")


def test_their_own_memory_and_calls_are_not_the_programs(backend):
    lock = threading.Lock()

    def work(with_spans):
        kept = []
        for i in range(ROUNDS):
            # `with` makes two methods of any object in C.
            with eventprof.span("s") if with_spans else lock:
                if with_spans:
                    eventprof.mark("m")
                    eventprof.counter("c", 1)
            kept.append(bytearray(12347 + i))
        return kept

    def allocations(with_spans):
        with eventprof.record(memory=True, backend=backend) as rec:
            work(with_spans)
        events = rec.trace.events
        names = events["name"].tolist()
        assert not [name for name in names if name in ("mark", "span", "counter", "Span")]
        sizes = events["size"][events["event"] == "malloc"]
        return Counter(sizes[sizes < 12347].tolist())

    everything()
    work(True)
    plain, with_spans = allocations(False), allocations(True)
    # Nothing that a span is made of is there: not once a round.
    assert sum((with_spans - plain).values()) < ROUNDS


def test_the_report_counts_them():
    with eventprof.record() as rec:
        everything()
    text = str(rec.trace)
    assert "1 mark" in text and "1 counter" in text and "1 flow" in text and "1 span_begin" in text


# ---- From C --------------------------------------------------------------------------------------

EXTENSION = r"""
#include <Python.h>
#include <pthread.h>
#include "eventprof.h"

static eventprof_name m = EVENTPROF_NAME("c mark"), s = EVENTPROF_NAME("c span"),
                      c = EVENTPROF_NAME("c counter"), f = EVENTPROF_NAME("c flow");

static void events(long count) {
    for (long i = 0; i < count; i++) {
        eventprof_span_begin(&s);
        eventprof_mark(&m);
        eventprof_counter(&c, (double)i / 2);
        eventprof_flow(&f, (uint64_t)i, i % 2 ? EVENTPROF_FLOW_END : EVENTPROF_FLOW_BEGIN);
        eventprof_span_end(&s);
    }
}
static void *thread(void *count) { events((long)count); return NULL; }
static PyObject *work(PyObject *self, PyObject *count) {
    events(PyLong_AsLong(count));
    Py_RETURN_NONE;
}
static PyObject *work_without_gil(PyObject *self, PyObject *count) {
    long n = PyLong_AsLong(count);
    pthread_t other;
    Py_BEGIN_ALLOW_THREADS
    pthread_create(&other, NULL, thread, (void *)n);
    pthread_join(other, NULL);
    events(n);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}
static PyObject *records(PyObject *self, PyObject *unused) {
    return PyBool_FromLong(eventprof_records(EVENTPROF_MARKS) != NULL);
}
static PyMethodDef methods[] = {
    {"work", work, METH_O, NULL},
    {"work_without_gil", work_without_gil, METH_O, NULL},
    {"records", records, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "marking", NULL, -1, methods,
                                        NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit_marking(void) {
    PyObject *module = PyModule_Create(&definition);
#ifdef Py_GIL_DISABLED
    if (module != NULL) PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#endif
    if (eventprof_import() < 0) return NULL;
    return module;
}
"""


@pytest.fixture(scope="module")
def extension(tmp_path_factory):
    compiler = shutil.which("cc")
    include = sysconfig.get_paths()["include"]
    if compiler is None or not os.path.exists(os.path.join(include, "Python.h")):
        pytest.skip("no C compiler, or no Python.h")
    folder = tmp_path_factory.mktemp("extension")
    (folder / "marking.c").write_text(EXTENSION)
    made = folder / f"marking{sysconfig.get_config_var('EXT_SUFFIX')}"
    children.run(
        compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter",
        "-Wno-cast-function-type", "-isystem", include, "-I", eventprof.get_include(), "-pthread",
        "-o", made, folder / "marking.c",
    )  # fmt: skip
    return folder


C_WORK = """
import sys
sys.path.insert(0, {folder!r})
{imports}
marking.work(2)
assert not marking.records()
with eventprof.record() as rec:
    assert marking.records()
    def caller():
        marking.work(3)
    caller()
    marking.work_without_gil(2)
marking.work(2)
assert not marking.records()
trace = rec.trace
assert trace.verify().ok
print(trace.marks["name"].tolist() == ["c mark"] * 7, len(trace.threads))
print(trace.counters["value"].tolist()[:3], len(trace.spans), trace.spans["flags"].sum())
print(sorted(zip(trace.flows["id"].tolist(), trace.flows["phase"].tolist()))[:2], len(trace.flows))
print(trace.functions["name"][trace.marks["caller"][0]], trace.marks["caller_line"][0] > 0)
calls = trace.calls
spans = calls[calls["kind"] == "span"]
print([calls["name"][p] for p in spans["parent"][:3]])
"""


@pytest.mark.parametrize("imports", ["import eventprof, marking", "import marking, eventprof"])
def test_a_c_extension_adds_events(extension, imports):
    status, output, errors = child(
        C_WORK.format(folder=str(extension), imports=imports), "auto", timeout=900,
        before="import sys\n" + f"sys.path.insert(0, {str(extension)!r})\n"
        + ("import marking\n" if imports.startswith("import marking") else ""),
    )  # fmt: skip
    assert status == 0, errors
    assert output.splitlines() == [
        "True 2",
        "[0.0, 0.5, 1.0] 7 0",
        "[(0, 'begin'), (0, 'begin')] 7",
        "caller True",
        "['work', 'work', 'work']",
    ]


def test_a_c_extension_does_without_eventprof(extension):
    done = children.program(
        f"import sys; sys.path.insert(0, {str(extension)!r}); import marking\n"
        "marking.work(1000); marking.work_without_gil(10)\n"
        "print(marking.records(), 'eventprof' in sys.modules, 'numpy' in sys.modules)",
        flags=["-I"],
    )
    assert done.stdout == "False False False\n", done.stderr
