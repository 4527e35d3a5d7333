"""On 3.11 calls of Python functions alone come from a frame evaluator: the same events as from the profile hook,
whatever comes and goes meanwhile."""

from __future__ import annotations

import gc
import sys
import threading

import nasty
import programs
import pytest
import raw
from counted import PROGRAMS, SMALL, without_waits
from histogram import allocation_histogram

import eventprof

pytestmark = [
    pytest.mark.skipif(
        not (3, 11, 4) <= sys.version_info < (3, 12), reason="of Python 3.11, from 3.11.4 on"
    ),
    pytest.mark.usefixtures("restored"),
]

WAYS = ("profile", "auto")  # by the hook alone; by the evaluator as well


def is_in() -> bool:
    """Whether a frame evaluator other than the interpreter's is in place."""
    return raw.evaluator() != raw.DEFAULT_EVALUATOR


def sequence(run, way, kinds=raw.PYTHON, **options):
    """What is told of every event but its time."""
    gc.collect()
    gc.disable()
    try:
        rec = raw.recorder(kinds, backend=way, **options)
        with rec:
            run()
    finally:
        gc.enable()
    return [
        (row.word, row.name, row.file, row.line, row.caller, row.caller_line, row.depth)
        for row in without_waits(raw.rows(rec))
    ]


def assert_same(run, **options):
    run()
    run()
    by_hook, by_evaluator = (sequence(run, way, **options) for way in WAYS)
    for i, (a, b) in enumerate(zip(by_hook, by_evaluator, strict=False)):
        assert a == b, (i, by_hook[max(0, i - 3) : i + 3], by_evaluator[max(0, i - 3) : i + 3])
    assert len(by_hook) == len(by_evaluator) > 0
    return by_hook


@pytest.mark.parametrize("name", SMALL)
def test_the_events_are_those_of_the_hook(name):
    assert_same(PROGRAMS[name](), current_thread=True)


@pytest.mark.parametrize("name", ["generators", "coroutines", "nqueens", "nasty"])
def test_so_are_those_of_some_kinds(name):
    run = PROGRAMS[name]()

    for kinds in ("CALL", "RETURN"), ("YIELD", "RESUME"), ("THROW", "UNWIND"):
        run()
        run()
        by_hook, by_evaluator = (
            sequence(run, way, raw.bits(*kinds), current_thread=True) for way in WAYS
        )
        assert by_hook == by_evaluator


def test_nothing_is_allocated_for_it():
    """With the hook alone, what that makes is recognised and left out; here there is nothing to leave out."""
    without = allocation_histogram(0, "auto")
    assert allocation_histogram(0, "auto") == without, "the program is not deterministic"

    together = allocation_histogram(raw.PYTHON, "auto")

    difference = (without - together) + (together - without)
    assert without.total() > 150_000
    assert difference.total() <= 10, difference  # as with the hook: what is not ours may differ


def test_filters_and_limits_hold():
    run = programs.program("deltablue")
    for options in (
        {"include": ["*Constraint.*"]},
        {"exclude": ["*Planner*"]},
        {"max_depth": 5},
        {"include": ["*Constraint*"], "max_depth": 1},
    ):
        run()
        counts = []
        for backend in WAYS:
            with eventprof.record(c_calls=False, memory=False, backend=backend, **options) as rec:
                run()
            functions = rec.trace.functions
            rows = functions[functions["calls"] > 0]
            counts.append(
                {
                    (name, line): (calls, recursive)
                    for name, line, calls, recursive in zip(
                        *(rows[each].tolist() for each in ("name", "line", "calls", "recursive")),
                        strict=True,
                    )
                }
            )
        assert counts[0] == counts[1]
        assert counts[0]


# ---- What comes and goes meanwhile ---------------------------------------------------------------------


def leaf(x=0):
    return x


def inner(x):
    return leaf(x) + leaf(x)


def outer(x):
    return inner(x) + leaf(x)


def numbers():
    try:
        for i in range(100):
            yield leaf(i)
    except ValueError:
        yield -1


def words(rows):
    """Depths are told from the lowest: a test runner is below."""
    lowest = min(row.depth for row in rows)
    return [(row.word, row.name, row.depth - lowest) for row in rows]


@pytest.mark.parametrize("way", WAYS)
def test_what_was_open_at_the_start_is_seen_to_end(way):
    rec = raw.recorder(raw.PYTHON, backend=way)
    generator = numbers()
    next(generator)

    def begin():
        leaf()
        rec.start()
        return leaf()

    def above():
        begin()
        return next(generator)

    above()
    generator.throw(ValueError)
    rec.stop()

    assert words(raw.rows(rec)) == [
        ("call", "leaf", 2),
        ("return", "leaf", 2),
        ("return", begin.__qualname__, 1),
        ("resume", "numbers", 1),
        ("call", "leaf", 2),
        ("return", "leaf", 2),
        ("yield", "numbers", 1),
        ("return", above.__qualname__, 0),
        ("throw", "numbers", 0),
        ("yield", "numbers", 0),
    ]


def test_a_generator_that_runs_at_the_start_yields():
    def run(way):
        rec = raw.recorder(raw.PYTHON, backend=way)

        def begins():
            yield 1
            rec.start()
            leaf()
            yield 2
            leaf()

        generator = begins()
        next(generator)
        next(generator)
        list(generator)
        rec.stop()
        return [(row.word, row.name) for row in raw.rows(rec)]

    assert run("auto") == run("profile")
    assert [word for word, _ in run("auto")] == [
        "call", "return", "yield", "resume", "call", "return", "return",
    ]  # fmt: skip


def between(way, change, restore=lambda: None):
    """Rows around a change that is made three calls deep."""
    rec = raw.recorder(raw.PYTHON, backend=way, current_thread=True)

    def third():
        leaf()
        change()
        outer(1)

    def second():
        third()
        leaf()

    def first():
        second()
        outer(2)
        restore()
        outer(3)

    with rec:
        first()
        outer(4)
    return [(row.word, row.name, row.depth) for row in raw.rows(rec)]


def test_a_trace_function_comes_and_goes():
    seen = []

    def tracer(frame, event, arg):
        seen.append((event, frame.f_code.co_name))
        return tracer

    results = []
    for way in WAYS:
        seen.clear()
        before = sys.gettrace()
        try:
            rows = between(way, lambda: sys.settrace(tracer), lambda: sys.settrace(None))
        finally:
            sys.settrace(before)
        results.append((rows, list(seen)))

    assert results[0] == results[1]
    assert ("call", "outer") in results[0][1]


def test_another_profile_function_takes_over_and_gives_back():
    results = []
    for way in WAYS:
        held = []

        def take(held=held):
            held.append(sys.getprofile())
            sys.setprofile(lambda *_: None)

        results.append(between(way, take, lambda held=held: sys.setprofile(held.pop())))

    assert results[0] == results[1]


def test_a_recorder_of_c_calls_comes_and_goes():
    results = []
    for way in WAYS:
        other = raw.recorder(raw.CALLS)

        def check(on, way=way):
            assert is_in() == (on and way == "auto")

        def begin(other=other, check=check):
            check(True)
            other.start()
            check(False)
            abs(-1)

        def end(other=other, check=check):
            check(False)
            other.stop()
            check(True)

        rows = between(way, begin, end)
        results.append((rows, words(raw.rows(other))))

    assert results[0] == results[1]
    assert any(word == "c_call" and name == "abs" for word, name, _ in results[1][1])


def test_a_recorder_that_asks_for_the_hook_by_name_has_it():
    with raw.recorder(raw.PYTHON) as rec:
        leaf()
        assert is_in()
        with raw.recorder(raw.PYTHON, backend="profile") as other:
            assert not is_in()
            leaf()
        assert is_in()
        leaf()

    assert [row.word for row in raw.rows(rec) if row.name == "leaf"] == ["call", "return"] * 3
    assert [row.word for row in raw.rows(other) if row.name == "leaf"] == ["call", "return"]


# ---- The C stack ---------------------------------------------------------------------------------------


def down(n):
    return 1 + down(n - 1) if n else leaf()


def recursion(levels, *, thread_bytes=None):
    """(words by function, how deep) of a recursion, on a thread if it is to have its own stack."""
    problems = []

    def work():
        try:
            for _ in range(2):
                assert down(levels) == levels
                outer(1)
        except BaseException as error:
            problems.append(error)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(levels + 1000)
    try:
        with raw.recorder(raw.PYTHON) as rec:
            if thread_bytes is None:
                work()
            else:
                before = threading.stack_size(thread_bytes)
                try:
                    thread = threading.Thread(target=work)
                    thread.start()
                finally:
                    threading.stack_size(before)
                thread.join()
            assert is_in()
    finally:
        sys.setrecursionlimit(limit)
    assert not problems, problems
    rows = [row for row in raw.rows(rec) if row.name in ("down", "leaf", "outer", "inner")]
    return rows


@pytest.mark.parametrize(
    ("levels", "thread_bytes"), [(60_000, None), (50_000, 1 << 20), (3000, 256 << 10)]
)
def test_deep_recursions_go_on_by_the_hook(levels, thread_bytes):
    rows = recursion(levels, thread_bytes=thread_bytes)

    once = (
        ["call"] * (levels + 1) + ["call", "return"] + ["return"] * (levels + 1)
        + ["call", "call", "call", "return", "call", "return", "return", "call", "return", "return"]
    )  # fmt: skip
    assert [row.word for row in rows] == once * 2
    deepest = max(row.depth for row in rows) - min(row.depth for row in rows)
    assert deepest == levels + 1


def test_recursion_errors_come_where_they_came():
    def endless(n=0):
        reached[0] = n
        endless(n + 1)

    results = []
    for way in (None, *WAYS):
        reached = [0]
        rec = None if way is None else raw.recorder(raw.PYTHON, backend=way, current_thread=True)
        if rec is not None:
            rec.start()
        try:
            endless()
        except RecursionError:
            pass
        if rec is not None:
            rec.stop()
        results.append((reached[0], rec and [row.word for row in raw.rows(rec)]))

    assert results[0][0] == results[1][0] == results[2][0]
    assert results[1][1] == results[2][1]


# ---- Other evaluators ----------------------------------------------------------------------------------


def test_beside_another_evaluator_the_hook_does_it():
    # Ours, while nothing is recorded, only hands on: it stands for somebody else's.
    with raw.recorder(raw.PYTHON):
        ours = raw.evaluator()
    raw.set_evaluator(raw.interpreter(), ours)
    try:
        with raw.recorder(raw.PYTHON) as rec:
            outer(1)
        assert raw.evaluator() == ours
    finally:
        raw.set_evaluator(raw.interpreter(), raw.DEFAULT_EVALUATOR)

    assert [row.word for row in raw.rows(rec) if row.name == "outer"] == ["call", "return"]
    assert rec.displaced == ()


def test_an_evaluator_that_takes_the_place_stays_and_is_named():
    rec = raw.recorder(raw.PYTHON)
    rec.start()
    raw.set_evaluator(
        raw.interpreter(), raw.DEFAULT_EVALUATOR
    )  # as one that does not hand on to us
    now = rec.displaced
    rec.stop()

    assert now == ("profile",)
    assert rec.displaced == ("profile",)
    assert raw.evaluator() == raw.DEFAULT_EVALUATOR


def test_threads_are_recorded_and_named():
    def run():
        def work():
            for _ in range(50):
                outer(1)
                list(numbers())

        threads = [threading.Thread(target=work, name=f"worker {i}") for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    counts = []
    for way in WAYS:
        with raw.recorder(raw.PYTHON, backend=way) as rec:
            run()
        named = [thread[0] for thread in raw.capture(rec).threads()]
        assert {f"worker {i}" for i in range(4)} <= {*named}
        rows = [row for row in raw.rows(rec) if row.name in ("leaf", "outer", "numbers")]
        counts.append(sorted((row.word, row.name) for row in rows))
    assert counts[0] == counts[1]
    assert len(counts[0]) == 4 * 50 * (
        8 + 202 + 200
    )  # outer(); the slices of numbers(); its leaf()


def test_every_thread_of_a_nasty_program():
    counts = []
    nasty.run()
    for way in WAYS:
        with raw.recorder(raw.PYTHON, backend=way) as rec:
            nasty.threads()
        rows = [row for row in raw.rows(rec) if row.file == nasty.__file__]
        counts.append(sorted((row.word, row.name) for row in rows))
    assert counts[0] == counts[1]
