"""Counting: against cProfile, against a recorder of the same run, and with what programs do."""

from __future__ import annotations

import _thread
import ctypes
import gc
import os
import random
import sys
import threading
from collections import Counter

import children
import nasty
import programs
import pytest
import raw
from counted import cprofile_counts

import eventprof
import eventprof.tables.counting_table

pytestmark = pytest.mark.version

SMALL = ["deltablue", "chaos", "logging", "generators", "coroutines", "nqueens", "json",
         "tokenize", "pickle", "decimal"]  # fmt: skip


def rows(table, *columns):
    """What was called, with those columns."""
    return Counter(
        (row.name, row.module, row.line, row.kind, *(getattr(row, c) for c in columns))
        for row in table
        if row.calls or row.resumes
    )


def total(counter):
    return sum(counter.get_call_counts().values())


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


# ---- Against others ------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("name", SMALL)
def test_counts_equal_cprofiles(name):
    run = programs.program(name)
    gc.collect()  # a generator of another's that waits to be freed would be a call in one of the two
    python, _ = cprofile_counts(run)

    with eventprof.count(c_calls=False, memory=False) as counter:
        run()

    ours: Counter = Counter()
    for row in counter.functions:
        if row.calls or row.resumes:
            ours[row.file, row.line, row.name] += row.calls + row.resumes
    assert ours == python


@pytest.mark.thorough
@pytest.mark.parametrize("name", [*SMALL, "nasty"])
def test_a_counter_agrees_with_a_recorder_of_the_same_run(name):
    run = nasty.run if name == "nasty" else programs.program(name)
    run()
    recorder = eventprof.record(buffer="512 MiB", on_full="grow", threads="current")
    counter = eventprof.count(threads="current")
    gc.collect()
    gc.disable()
    try:
        with recorder, counter:
            run()
    finally:
        gc.enable()

    columns = ["calls", "resumes"]
    if name != "nasty":  # in which functions that share a name call each other
        columns += ["recursive"]
        if raw.HAS_MONITORING:
            # 3.11: of a call that raised, the frame object is the program's for a recorder alone.
            columns += ["allocated_self", "blocks_self"]
    assert rows(counter.functions, *columns) == rows(recorder.trace.functions, *columns)
    assert counter.displaced is False
    assert recorder.displaced == ()


@pytest.mark.parametrize("name", ["json", "coroutines", "pickle"])
def test_own_times_sum_up_to_the_window(name):
    run = programs.program(name)

    with eventprof.count(threads="current") as counter:
        run()

    table = counter.functions
    assert abs(int(table["self"].sum()) - counter.stats["duration"]) <= len(table) + 1
    assert counter.stats["unmatched"] == counter.stats["lost"] == 0
    for row in table:
        assert row.self <= row.total or row.recursive
        if row.mean is not None:
            assert row.min <= row.mean + 1
            assert row.mean <= row.max + 1
            assert row.max <= row.total + 1


def test_of_recursive_calls_the_outermost_is_in_the_total():
    with eventprof.count(memory=False) as counter:
        fib(12)

    (row,) = (row for row in counter.functions if row.name == "fib")
    assert row.calls == 465
    assert row.recursive == 464
    assert row.total == row.max
    assert row.mean * 465 > row.total


# ---- Random programs -----------------------------------------------------------------------------


def random_program(seed):
    """A function, and how often it calls each of eight others: in calls, slices, and unwinds."""
    choose = random.Random(seed)
    expected: Counter = Counter()

    def node(depth):
        kind = choose.choice(("plain", "plain", "generator", "raises", "c"))
        children = [] if depth > 4 else [node(depth + 1) for _ in range(choose.randrange(3))]
        return kind, children

    tree = node(0)

    def plain(children):
        expected["plain"] += 1
        for child in children:
            execute(child)

    def generator(children):
        expected["generator"] += 1
        for child in children:
            execute(child)
            yield child

    def raises(children):
        expected["raises"] += 1
        for child in children:
            execute(child)
        raise KeyError(children)

    def execute(child):
        expected["execute"] += 1
        kind, children = child
        if kind == "plain":
            plain(children)
        elif kind == "generator":
            for _ in generator(children):
                pass
        elif kind == "raises":
            try:
                raises(children)
            except KeyError:
                pass
        else:
            abs(-1)
            expected["abs"] += 1
            for each in children:
                execute(each)

    return lambda: execute(tree), expected


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_are_counted(seed):
    run, expected = random_program(seed)

    with eventprof.count(memory=False) as counter:
        run()

    counts = counter.get_call_counts()
    ours = {name.rpartition(".")[2]: count for name, count in counts.items()}
    assert {name: ours.get(name, 0) for name in expected} == expected


# ---- What programs do ----------------------------------------------------------------------------


def test_thousands_of_functions_take_each_others_places():
    """A thread remembers 2048 of them by address; the others are found anew."""
    scope: dict = {}
    for number in range(5000):
        exec(f"def f{number}(): yield {number}", scope)
    functions = [scope[f"f{number}"] for number in range(5000)]
    order = random.Random(1).choices(range(5000), k=20_000)

    with eventprof.count(c_calls=False, memory=False) as counter:
        for number in order:
            assert list(functions[number]()) == [number]

    expected = Counter(f"f{number}" for number in order)
    found = {row.name: row for row in counter.functions if row.name in expected}
    assert {name: row.calls for name, row in found.items()} == expected
    assert {name: row.resumes for name, row in found.items()} == expected


def test_threads_are_counted_together_or_one_alone():
    def work():
        for _ in range(100):
            fib(3)

    def run():
        threads = [threading.Thread(target=work) for _ in range(6)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    everything = eventprof.count(memory=False)
    own = eventprof.count(memory=False, threads="current")

    with everything, own:
        run()
        fib(1)

    assert everything.get_call_counts()["fib"] == 6 * 100 * 5 + 1
    assert own.get_call_counts()["fib"] == 1


def test_a_thread_that_was_running_is_counted_from_the_start_on():
    go, stop, going = threading.Event(), threading.Event(), threading.Event()

    def inner():
        going.set()
        assert go.wait(120)
        fib(4)

    def outer():
        inner()
        stop.set()

    thread = threading.Thread(target=outer)
    thread.start()
    assert going.wait(120)
    with eventprof.count() as counter:
        go.set()
        assert stop.wait(120)
        thread.join(120)

    table = {row.name.rpartition(".")[2]: row for row in counter.functions}
    assert table["fib"].calls == 9
    assert table["inner"].calls == 0
    assert 0 < table["inner"].total <= table["outer"].total
    assert table["outer"].mean is None


def test_generators_exceptions_and_unwinds():
    def numbers():
        try:
            yield 1
            yield 2
        except ValueError:
            yield 3
        finally:
            fib(0)

    def fails():
        raise OSError

    def run():
        assert list(numbers()) == [1, 2]
        generator = numbers()
        next(generator)
        assert generator.throw(ValueError) == 3
        generator.close()
        with pytest.raises(OSError):
            fails()

    run()
    with eventprof.count(c_calls=False, memory=False) as counter:
        run()

    table = {row.name.rpartition(".")[2]: row for row in counter.functions}
    assert (table["numbers"].calls, table["fib"].calls, table["fails"].calls) == (2, 2, 1)
    assert table["numbers"].resumes in (3, 4, 5)  # whether close() goes through it
    assert counter.stats["unmatched"] == 0


def test_it_can_be_asked_while_it_runs():
    def outer(counter):
        fib(0)
        return counter.get_call_counts(), counter.get_durations()

    with eventprof.count(memory=False) as counter:
        counts, durations = outer(counter)

    name = next(name for name in counts if name.endswith("outer"))
    assert counts[name] == 1
    assert counts["fib"] == 1
    assert 0 < durations["fib"] <= durations[name] <= counter.get_durations()[name]
    assert not any("get_call_counts" in each for each in counter.get_call_counts())


def test_memory_is_constant():
    def work(times):
        for i in range(times):
            fib(5)
            str(i)
            [i] * 3

    counter = eventprof.count()
    with counter:
        work(100)
        before = counter.stats["bytes"]
        work(3000)
        after = counter.stats["bytes"]

    assert after == before
    assert counter.get_call_counts()["fib"] == 3100 * 15


def test_what_is_allocated_belongs_to_whom_it_was_for():
    def makes():
        return [bytes(12347) for _ in range(7)]

    makes()
    with eventprof.count() as counter:
        kept = makes()

    assert sum(row.blocks_self for row in counter.functions if row.allocated_self >= 7 * 12347) >= 7
    assert sum(counter.functions["allocated_self"]) >= 7 * 12347
    assert len(kept) == 7


@pytest.mark.parametrize("options", [
    {"include": ["json*"]}, {"exclude": ["json.encoder*"]},
    {"include": ["json.decoder", "builtins"], "exclude": ["*.decode"]},
    {"include": ["*/json/*"], "exclude": ["builtins"]}, {"c_calls": False},
    {"calls": False}, {"c_calls": False, "include": ["json*"]}, {"exclude": ["stdlib"]},
])  # fmt: skip
def test_filters_count_what_a_recorder_records(options):
    run = programs.program("json")
    recorder = eventprof.record(memory=False, **options)
    counter = eventprof.count(memory=False, **options)
    with recorder, counter:
        run()
        fib(2)

    assert rows(counter.functions, "calls") == rows(recorder.trace.functions, "calls")


def test_several_run_as_if_each_were_alone(restored):
    everything = eventprof.count(memory=False)
    one = eventprof.count(memory=False, include=["*fib"])
    blocks = eventprof.count(calls=False)
    everything.start()
    one.start()
    fib(1)
    blocks.start()
    fib(2)
    everything.stop()
    recorder = eventprof.record(memory=False)
    with recorder:
        fib(3)
    one.stop()
    fib(4)
    blocks.stop()

    assert everything.get_call_counts()["fib"] == 1 + 3
    assert one.get_call_counts() == {"fib": 1 + 3 + 5}
    assert not blocks.get_call_counts().get("fib")
    (recorded,) = (row for row in recorder.trace.functions if row.name == "fib")
    assert recorded.calls == 5


def test_started_again_it_begins_at_zero(restored):
    counter = eventprof.count(memory=False)
    for expected in (1, 3, 5):
        with counter:
            fib({1: 1, 3: 2, 5: 3}[expected])
        assert counter.get_call_counts()["fib"] == expected


def test_a_program_that_raises_leaves_the_hooks_as_they_were(restored):
    with pytest.raises(ZeroDivisionError), eventprof.count() as counter:
        fib(1 / 0)

    assert counter.state == "stopped"


def test_as_a_decorator():
    counter = eventprof.count(memory=False)

    @counter
    def work(n):
        return fib(n)

    assert work(3) == 2
    assert work.counter is counter
    assert counter.get_call_counts()["fib"] == 5
    assert work(1) == 1
    assert counter.get_call_counts()["fib"] == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_begins_anew():
    code = """
import os, sys, eventprof
def f(): pass
def g(counter):
    f()
    child = os.fork()
    if child == 0:
        f(); f(); f()
        os._exit(0 if counter.get_call_counts()["f"] == 3 else 1)
    return os.waitpid(child, 0)[1]
with eventprof.count() as counter:
    status = g(counter)
    f()
print(status, counter.get_call_counts()["f"])
"""
    done = children.program(code)

    assert (done.stdout, done.stderr) == ("0 2\n", "")


# ---- Callbacks -----------------------------------------------------------------------------------


def steps(trace):
    """(whether it begins, name) of every event of a call."""
    return [(row.event in raw.OPENING, row.name) for row in trace.events]


@pytest.mark.parametrize("name", ["json", "generators", "decimal"])
def test_callbacks_come_in_the_order_of_events(name):
    run = programs.program(name)
    heard: list[tuple[bool, str]] = []
    counter = eventprof.count(memory=False, threads="current")
    counter.set_trace_functions(
        lambda name: heard.append((True, name)), lambda name: heard.append((False, name))
    )
    recorder = eventprof.record(memory=False, threads="current")

    with counter:
        run()
    with recorder:
        run()

    assert heard == steps(recorder.trace)
    assert total(counter) == sum(recorder.trace.functions["calls"])


def test_what_is_left_out_stays_and_none_clears():
    heard: list[str] = []
    counter = eventprof.count(memory=False)
    counter.set_trace_functions(on_enter=lambda name: heard.append("+" + name))
    counter.set_trace_functions(on_exit=lambda name: heard.append("-" + name))

    with counter:
        fib(0)
        counter.set_trace_functions(on_enter=None)
        fib(0)
        counter.set_trace_functions(None, None)
        fib(0)

    assert [each for each in heard if "fib" in each] == ["+fib", "-fib", "-fib"]
    assert counter.get_call_counts()["fib"] == 3


def test_what_callbacks_call_and_take_is_not_counted():
    def on_enter(name):
        fib(10)
        heard.append(name)

    heard: list[str] = []
    counter = eventprof.count()
    counter.set_trace_functions(on_enter)
    with counter:
        fib(1)
        fib(1)

    assert counter.get_call_counts()["fib"] == 2
    assert heard.count("fib") == 2
    assert not any("on_enter" in name for name in counter.get_call_counts())


@pytest.mark.parametrize("end", [0, 1])
def test_a_callback_that_raises_is_reported_and_switched_off(end, monkeypatch):
    def bad(name):
        raise LookupError(name)

    reported = []
    monkeypatch.setattr(
        sys, "unraisablehook", lambda unraisable: reported.append(unraisable.exc_value.args)
    )
    counter = eventprof.count(memory=False, include=["*fib"])
    counter.set_trace_functions(*(bad if number == end else None for number in (0, 1)))

    with counter:
        assert fib(3) == 2
        with pytest.raises(TypeError):
            fib(None)

    assert reported == [("fib",)]
    assert counter.get_call_counts()["fib"] == 6


def test_callbacks_as_exceptions_pass_through():
    def fails():
        try:
            raise ValueError("kept")
        finally:
            len("")

    heard: list[str] = []
    counter = eventprof.count(memory=False)
    counter.set_trace_functions(heard.append, heard.append)
    with pytest.raises(ValueError, match="kept"), counter:
        fails()

    assert sum(name.endswith("fails") for name in heard) == 2


def test_a_callback_may_stop_the_counter(restored):
    counter = eventprof.count(memory=False)

    def on_enter(name):
        if name == "fib":
            counter.stop()

    counter.set_trace_functions(on_enter)
    counter.start()
    fib(5)

    assert counter.state == "stopped"
    assert counter.get_call_counts().get("fib", 0) == 0


def test_c_functions_by_capsule():
    heard: list[tuple[bytes, int | None]] = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p)(
        lambda name, context: heard.append((name, context))
    )
    api = ctypes.pythonapi
    api.PyCapsule_New.restype = ctypes.py_object
    api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    api.PyCapsule_SetContext.argtypes = [ctypes.py_object, ctypes.c_void_p]
    title = b"eventprof.trace_function"
    capsule = api.PyCapsule_New(ctypes.cast(function, ctypes.c_void_p), title, None)
    api.PyCapsule_SetContext(capsule, 4711)
    counter = eventprof.count(memory=False, include=["*fib"])
    counter.set_trace_functions(capsule, capsule)

    with counter:
        fib(1)

    assert heard == [(b"fib", 4711)] * 2
    other = api.PyCapsule_New(ctypes.cast(function, ctypes.c_void_p), b"another", None)
    with pytest.raises(ValueError, match=r"on_exit must be a capsule named 'eventprof"):
        counter.set_trace_functions(None, other)
    with pytest.raises(TypeError, match="on_enter must be callable"):
        counter.set_trace_functions(3)


# ---- Tables, texts, errors -----------------------------------------------------------------------


def test_the_table_has_the_columns_of_a_traces():
    with eventprof.record() as recorder, eventprof.count() as counter:
        fib(3)

    ours, theirs = counter.functions, recorder.trace.functions
    assert [name for name in theirs.columns if name in ours.columns] == list(ours.columns)
    for name in ours.columns:
        assert ours.describe()[ours.columns.index(name)][1:4] == next(
            row[1:4] for row in theirs.describe() if row.column == name
        )
    assert ours["calls"][ours["name"] == "fib"].tolist() == [5]
    assert len(eventprof.tables.counting_table.table([])) == 0


def test_the_report_names_the_functions(capsys):
    with eventprof.count() as counter:
        fib(6)

    counter.report()

    text = capsys.readouterr().out
    assert "25 calls of" in text or "26 calls of" in text
    assert "test_counting.fib (test_counting.py:" in text
    assert 2.0e6 < counter.get_frequency() < 1e11


def test_errors_name_the_thing_and_the_remedy():
    counter = eventprof.count()
    with pytest.raises(eventprof.StateError, match="never started"):
        counter.get_call_counts()
    with pytest.raises(eventprof.StateError, match="not running"):
        counter.stop()
    with counter, pytest.raises(eventprof.StateError, match="already running"):
        counter.start()
    with pytest.raises(ValueError, match="nothing to count"):
        eventprof.count(calls=False, c_calls=False)
    with pytest.raises(TypeError, match="memory"):
        eventprof.count(memory="obj")
    with pytest.raises(ValueError, match="threads must be"):
        eventprof.count(threads="some")
    more = [eventprof.count(memory=False) for _ in range(9)]
    try:
        for each in more[:8]:
            each.start()
        with pytest.raises(eventprof.StateError, match="8 counters run already"):
            more[8].start()
    finally:
        for each in more[:8]:
            each.stop()


def test_one_that_is_dropped_while_it_runs_is_stopped(restored):
    counter = eventprof.count()
    counter.start()
    with pytest.warns(ResourceWarning, match="was dropped while running"):
        del counter


def test_many_short_threads_take_no_more_than_one():
    def run(times):
        for _ in range(times):
            done = _thread.allocate_lock()
            done.acquire()
            thread = threading.Thread(target=lambda lock=done: (fib(2), lock.release()))
            thread.start()
            thread.join()

    with eventprof.count(memory=False) as counter:
        run(3)
        before = counter.stats["bytes"]
        run(40)
        after = counter.stats["bytes"]

    assert counter.get_call_counts()["fib"] == 43 * 3
    # join() returns a little before the thread has left: one may find the view still taken.
    assert after <= 3 * before
