"""Methods bound to what comes from C, called as f(*args): interpreters do not tell of their end, or of neither, so
they are not recorded. What is beside such a call keeps its own time and parent."""

from __future__ import annotations

import contextlib
import sys
import threading
import types

import pytest
import raw

import eventprof

pytestmark = pytest.mark.usefixtures("restored")

HEARD = {
    "len",
    "sorted",
    "divmod",
    "int",
    "list.append",
    "list.clear",
    "after",
    "max",
    "str.format",
}
ENDS = raw.OPENING | raw.CLOSING


def after():
    return None


def with_one(one):
    return after()


def spread(method, *args):
    return method(*args)


def spread_names(method, **names):
    return method(*(), **names)


def bound_methods():
    """Each of them is called with *args, and then a Python function."""
    spread(types.MethodType(len, [1, 2, 3]))
    after()
    spread_names(types.MethodType(sorted, [2, 1]), key=abs, reverse=True)
    after()
    spread(types.MethodType(types.MethodType(divmod, 7), 3))
    after()
    spread(types.MethodType(int, "5"))
    after()
    with contextlib.suppress(ValueError):
        spread(types.MethodType(int, "x"))
    after()
    spread(types.MethodType(list.append, []), 1)
    after()


def others():
    """What is called with *args and is no such method."""
    spread(len, [1])
    spread(types.MethodType(with_one, 1))
    spread("{}".format, 1)
    spread(max, 1, 2)
    with contextlib.suppress(TypeError):
        spread(len, 1)


def heard(trace):
    return [
        (row.word, row.name)
        for row in raw.rows(trace._core)
        if row.name in HEARD and row.word in ENDS
    ]


@pytest.mark.parametrize("inside", [{}, {"lines": True}, {"instructions": True}], ids=str)
def test_they_are_not_recorded_and_nothing_lies_in_them(backend, inside):
    if inside and backend == "profile":
        pytest.skip("a profile hook sees calls alone")
    with eventprof.record(memory=False, backend=backend, **inside) as rec:
        bound_methods()

    trace = rec.trace
    assert trace.verify(), trace.verify()
    assert heard(trace) == [("call", "after"), ("return", "after")] * 6
    calls = trace.calls
    parents = calls["parent"][calls["name"] == "after"]
    assert [calls["name"][row] for row in parents] == ["bound_methods"] * 6
    assert trace.pairing["ends_unseen"] == 0


def test_an_exit_stack_gives_each_what_is_its_own(backend):
    """What closes first has the time of what closes after it, if its end is not seen."""
    lock = threading.RLock()

    with eventprof.record(memory=False, backend=backend) as rec, contextlib.ExitStack() as stack:
        stack.callback(after)  # runs after the exit of the lock
        stack.enter_context(lock)

    trace = rec.trace
    assert trace.verify(), trace.verify()
    of_lock = [r for r in raw.rows(trace._core) if r.name and r.name.endswith("Lock.__exit__")]
    # Python 3.15's stack asks the lock for a builtin method, which is recorded, instead of making a method object.
    ends = ["c_call", "c_return"] if sys.version_info >= (3, 15) else []
    assert [row.word for row in of_lock] == ends
    calls = trace.calls
    (wrapper,) = calls["parent"][calls["name"] == "after"]
    assert calls["name"][calls["parent"][wrapper]] == "ExitStack.__exit__"


@pytest.mark.parametrize(
    "options", [{"include": ["*"]}, {"max_depth": 50}, {"min_duration": "1 ns"}]
)
def test_filters_do_not_bring_them_back(backend, options):
    with eventprof.record(memory=False, backend=backend, **options) as rec:
        bound_methods()

    assert rec.trace.verify(), rec.trace.verify()
    assert {name for _, name in heard(rec.trace)} <= {"after"}


def plainly(method):
    method()
    after()


def told_of(backend):
    """By the name of what is behind the method: which ends the interpreter tells of if it is called as f()."""
    both, end, neither = ["c_call", "c_return"], ["c_return"], []
    if backend == "monitoring":
        return {"len": both, "sorted": both, "int": both, "list.clear": both, "divmod": both}
    if sys.version_info < (3, 12):
        return {"len": both, "sorted": both, "int": neither, "list.clear": both, "divmod": neither}
    minor = sys.version_info[1]
    builtin = end if minor == 12 else both
    of_class = end if minor <= 13 else both
    of_two = end if minor == 13 else neither
    return {
        "len": builtin,
        "sorted": builtin,
        "int": neither,
        "list.clear": of_class,
        "divmod": of_two,
    }


def test_called_without_a_tuple_each_backend_sees_what_the_page_says(backend, monkeypatch):
    """doc/recording.rst, *Beside other tools*."""
    monkeypatch.setattr(raw, "VERIFIES", False)
    methods = [
        types.MethodType(len, [1]),
        types.MethodType(sorted, [2, 1]),
        types.MethodType(int, "5"),
        types.MethodType(types.MethodType(divmod, 7), 3),
        types.MethodType(list.clear, []),
    ]

    with eventprof.record(memory=False, backend=backend) as rec:
        for method in methods:
            plainly(method)

    trace, expected = rec.trace, told_of(backend)
    found = heard(trace)
    assert {name: [word for word, each in found if each == name] for name in expected} == expected
    lone = sum(words == ["c_return"] for words in expected.values())
    assert trace.pairing["unmatched_ends"] == lone
    assert bool(trace.verify()) == (lone == 0)
    parents = trace.calls["parent"][trace.calls["name"] == "after"]
    assert {trace.calls["name"][row] for row in parents} == {"plainly"}


def test_everything_else_that_is_called_with_a_tuple_is_there(backend):
    with eventprof.record(memory=False, backend=backend) as rec:
        others()

    assert rec.trace.verify(), rec.trace.verify()
    assert heard(rec.trace) == [
        ("c_call", "len"),
        ("c_return", "len"),
        ("call", "after"),
        ("return", "after"),
        ("c_call", "str.format"),
        ("c_return", "str.format"),
        ("c_call", "max"),
        ("c_return", "max"),
        ("c_call", "len"),
        ("c_exception", "len"),
    ]


@pytest.mark.skipif(
    not raw.HAS_MONITORING, reason="a profile hook is told of both ends or of neither"
)
def test_counters_do_not_count_them():
    with eventprof.count(memory=False) as counter:
        bound_methods()

    counts = counter.get_call_counts()
    assert {name: counts.get(name, 0) for name in HEARD} == {**dict.fromkeys(HEARD, 0), "after": 6}
    # What is called with one open would be called by it.
    durations = counter.get_durations()
    assert durations["spread"] <= durations["bound_methods"]
