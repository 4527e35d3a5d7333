"""Labels: they are where the context goes, and nowhere else."""

import asyncio
import contextlib
import contextvars
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import children
import pytest
import raw

import eventprof

pytestmark = pytest.mark.version


def work(number):
    return [number] * 10


def of_function(trace, name, label="n"):
    """The values of a label that calls of a function began with."""
    calls = trace.calls
    return [value for call, value in zip(calls["name"], calls[label], strict=True) if call == name]


OPTIONS = [
    {},
    {"memory": False},
    {"memory": False, "c_calls": False},
    *([{"backend": "profile"}] if raw.HAS_GIL else []),
    {"c_calls": False, "include": ["*work"]},
    {"memory": False, "min_duration": "1 ns", "max_depth": 50},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_calls_spans_and_marks_inside_have_the_labels(options):
    with eventprof.record(**options) as rec:
        work(0)
        with eventprof.label(n=1):
            with eventprof.span("one"):
                work(1)
            eventprof.mark("a mark")
            with eventprof.label(n=2, more="text"):
                work(2)
            work(1)
        work(0)
    trace = rec.trace

    assert of_function(trace, "work") == [None, "1", "2", "1", None]
    assert of_function(trace, "work", "more") == [None, None, "text", None, None]
    assert trace.spans["n"].tolist() == ["1"]
    assert trace.marks["n"].tolist() == ["1"]
    assert trace.verify()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_two_requests_at_once_on_one_loop_never_mix(options):
    async def inner(number):
        await asyncio.sleep(0.001)
        work(number)
        await asyncio.sleep(0)
        await asyncio.to_thread(work, number)
        return work(number)

    async def request(number):
        with eventprof.label(n=number), eventprof.span("request"):
            with ThreadPoolExecutor(1) as pool:
                for _ in range(3):
                    await asyncio.gather(inner(number), inner(number))
                    pool.submit(contextvars.copy_context().run, work, number).result()

    async def main():
        await asyncio.gather(*(request(number) for number in range(1, 6)))
        work(0)

    with eventprof.record(**options) as rec:
        asyncio.run(main())
    trace = rec.trace

    found = of_function(trace, "work")
    assert {value: found.count(value) for value in {*found}} == {
        None: 1, "1": 21, "2": 21, "3": 21, "4": 21, "5": 21
    }  # fmt: skip
    assert sorted(trace.spans["n"].tolist()) == ["1", "2", "3", "4", "5"]
    assert trace.verify()
    assert not trace.loss


def test_every_call_has_the_label_of_its_context():
    calls = []

    def step(number):
        return number

    async def request(number):
        with eventprof.label(n=number):
            for turn in range(20):
                await asyncio.sleep(0.0001 * ((number + turn) % 3))
                calls.append(number)
                step(number)

    async def main():
        await asyncio.gather(*(request(number) for number in range(8)))

    with eventprof.record(memory=False) as rec:
        asyncio.run(main())

    name = step.__qualname__
    assert of_function(rec.trace, name) == [str(number) for number in calls]


def test_a_generator_that_is_closed_elsewhere_disturbs_nothing():
    def generator():
        with eventprof.label(n="inside"):
            yield work(1)

    with eventprof.record(memory=False) as rec:
        steps = contextvars.copy_context().run(lambda: (lambda g: (next(g), g))(generator()))[1]
        with eventprof.label(n="outside"):
            steps.close()
            work(2)
        work(3)

    assert of_function(rec.trace, "work") == ["inside", "outside", None]


def test_a_thread_without_a_context_has_no_labels():
    with eventprof.record(memory=False) as rec:
        with eventprof.label(n=1):
            thread = threading.Thread(target=contextvars.Context().run, args=(work, 0))
            thread.start()
            thread.join()
            work(1)

    assert sorted(of_function(rec.trace, "work"), key=str) == ["1", None]


def test_a_label_decorates_functions_and_coroutine_functions():
    @eventprof.label(n="plain")
    def plain(depth):
        work(depth)
        return depth and plain(depth - 1)

    @eventprof.label(n="coroutine")
    async def coroutine():
        await asyncio.sleep(0)
        work(1)

    with eventprof.record(memory=False) as rec:
        plain(2)
        asyncio.run(coroutine())
        work(0)

    assert of_function(rec.trace, "work") == ["plain"] * 3 + ["coroutine", None]


def test_what_is_added_holds_for_what_came_before():
    with eventprof.record(memory=False) as rec:
        with eventprof.label(n=1) as label:
            work(1)
            with eventprof.label(inner="x"):
                work(2)
                label.add(status=200, n="one")
                label.add(status=500)
        label.add(status="too late")
    trace = rec.trace

    assert of_function(trace, "work", "status") == ["500", "500"]
    assert of_function(trace, "work", "n") == ["one", "one"]
    assert of_function(trace, "work", "inner") == [None, "x"]


class Bad:
    def __str__(self):
        raise RuntimeError("no text")

    __hash__ = None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"),
        ("", ""),
        ("seven b", "seven b"),
        ("<b>&\x1b[31m\n\0", "<b>&\x1b[31m\n\0"),
        ("\udc80 ä 😀", "\udc80 ä 😀"),
        (b"bytes", "b'bytes'"),
        ([1, {}], "[1, {}]"),
        (None, "None"),
        (Bad(), "(Bad without text)"),
        ("x" * 10**6, "x" * 197 + "..."),
        ("😀" * 1000, "😀" * 197 + "..."),
        (10**5000, "(int without text)"),
    ],
    ids=range(12),
)  # fmt: skip
def test_any_value_has_a_text(value, text, tmp_path):
    with eventprof.record() as rec:
        with eventprof.label(n=value):
            work(1)
    rec.trace.save(tmp_path / "labels.epr")

    for trace in (rec.trace, eventprof.open(tmp_path / "labels.epr")):
        assert of_function(trace, "work") == [text]
        assert len(trace.where(n=text).calls) == 1
        assert trace.verify()


def test_names_may_be_any_text_and_may_be_taken():
    labels = {"a.b c": 1, "<i>": 2, "": 3, "start": 4, "name": 5}
    with eventprof.record(memory=False) as rec:
        with eventprof.label(**labels), eventprof.span("s"):
            work(1)
    spans = rec.trace.spans

    assert [spans[name].tolist() for name in ("a.b c", "<i>", "", "label_start", "label_name")] == [
        ["1"], ["2"], ["3"], ["4"], ["5"]
    ]  # fmt: skip
    assert spans["name"].tolist() == ["s"]
    assert len(rec.trace.where(**labels).calls) == 2


def test_wrong_arguments_are_refused():
    for call in (eventprof.label, lambda: eventprof.label(7), eventprof.label(n=1).add):
        with pytest.raises(TypeError, match=r"names with values: \w+\(request_id=7\)"):
            call()
    with pytest.raises(TypeError):
        eventprof.label(n=1)(int)


def test_what_is_no_exception_of_the_programs_goes_on():
    class Stops:
        def __str__(self):
            raise KeyboardInterrupt

    with eventprof.record(memory=False) as rec:
        with pytest.raises(KeyboardInterrupt):
            eventprof.label(n=Stops()).__enter__()
        work(1)

    assert of_function(rec.trace, "work", "name") == ["work"]


def test_without_a_recorder_nothing_is_asked():
    with eventprof.label(n=Bad()) as label:
        label.add(more=Bad())
        with eventprof.record(memory=False) as rec:
            work(1)

    assert rec.trace.labels.columns == ("name", "value", "spans", "calls", "self", "allocated")
    assert len(rec.trace.labels) == 0
    with pytest.raises(ValueError, match="no such label in this trace"):
        rec.trace.where(n=1)


def test_a_recorder_that_begins_inside_knows_the_labels():
    outer = eventprof.record(memory=False)
    inner = eventprof.record(memory=False)
    with outer:
        with eventprof.label(n=1):
            with inner:
                work(1)
            work(1)
        work(0)

    assert of_function(outer.trace, "work") == ["1", "1", None]
    assert of_function(inner.trace, "work") == ["1"]


def test_labels_that_stay_when_recording_ends_are_left():
    with contextlib.ExitStack() as stack:
        with eventprof.record(memory=False):
            stack.enter_context(eventprof.label(n=1))
        with eventprof.record(memory=False) as second:
            work(1)
    with eventprof.record(memory=False) as third:
        work(0)

    assert of_function(second.trace, "work") == ["1"]
    assert len(third.trace.labels) == 0


def test_a_ring_that_dropped_the_beginning_still_knows_the_labels():
    rec = eventprof.record(buffer="1 MiB", on_full="overwrite", memory=False)
    rec._warns = False
    with rec:
        with eventprof.label(n=1, user="anna"):
            for _ in range(100_000):
                work(1)
            with eventprof.label(n=2):
                work(2)
    trace = rec.trace

    assert trace.loss
    found = of_function(trace, "work")
    assert found[-1] == "2"
    assert {*found[:-1]} == {"1"}
    assert {*of_function(trace, "work", "user")} == {"anna"}


def test_many_requests_keep_nothing():
    rec = eventprof.record(buffer="1 MiB", on_full="overwrite", memory=False)
    rec._warns = False
    with rec:
        before = rec.stats
        for number in range(30_000):
            with eventprof.label(n=number, user=f"user {number}"):
                work(number)
        after = rec.stats
    for name in ("names", "strings"):
        if name in before:
            assert after[name] - before[name] < 1000


def test_a_log_file_has_them(tmp_path):
    path = tmp_path / "log.epr"
    program = (
        "import eventprof, os\n"
        "rec = eventprof.record(output=PATH)\n"
        "def work(): pass\n"
        "rec.start()\n"
        "with eventprof.label(n=7, user='anna'):\n"
        "    work()\n"
        "    os._exit(0)\n"
    ).replace("PATH", repr(str(path)))
    children.program(program)

    assert of_function(eventprof.open(path), "work", "user") == ["anna"]


def test_a_forked_child_has_them(tmp_path):
    path = tmp_path / "child.epr"
    with eventprof.record(memory=False) as rec:
        with eventprof.label(n=1):
            child = os.fork()
            if child == 0:
                try:
                    with eventprof.label(more=2):
                        work(1)
                    rec.snapshot().save(path)
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
            with eventprof.label(more=3):
                work(1)
    merged = eventprof.open(path)

    assert of_function(merged, "work") == ["1"]
    assert of_function(merged, "work", "more") == ["2"]
    assert of_function(rec.trace, "work", "more") == ["3"]


def test_where_sums_up():
    kept = []
    with eventprof.record() as rec:
        for number in (1, 2, 1):
            with eventprof.label(n=number), eventprof.span("s"):
                kept.append(bytes(10_000 * number))
    trace = rec.trace

    found = trace.where(n=1)
    assert len(found.spans) == 2
    assert 20_000 <= found.allocated < 30_000
    assert found.busy > 0
    assert "n=1: 2 spans" in repr(found)
    assert len(trace.where(n=3).calls) == 0
    labels = trace.labels
    assert labels["value"].tolist() == ["1", "2"]
    assert labels["spans"].tolist() == [2, 1]
    with pytest.raises(ValueError, match="did you mean 'n'"):
        trace.where(nn=1)
    with pytest.raises(TypeError, match="where"):
        trace.where()


def test_the_ids_of_opentelemetry_are_labels():
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider

    tracer = TracerProvider().get_tracer("test")
    with eventprof.record() as rec:
        with eventprof.label(n=0):
            work(0)
        with tracer.start_as_current_span("outer") as span:
            with eventprof.label(n=1):
                work(1)
        context = span.get_span_context()
    trace = rec.trace

    assert of_function(trace, "work", "trace_id") == [None, f"{context.trace_id:032x}"]
    assert of_function(trace, "work", "span_id") == [None, f"{context.span_id:016x}"]
    assert trace.verify()
