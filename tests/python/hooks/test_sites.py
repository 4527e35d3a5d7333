"""Where from: the caller and the line of every call, on a program with every way of being called."""

from __future__ import annotations

import gc
import sys
import threading

import nasty
import pytest
import raw


@pytest.fixture(autouse=True)
def no_automatic_collection():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def warm():
    nasty.run()
    nasty.run()


def of_run(events):
    """Within the call of nasty.run."""
    names = [(event[0], event[1]) for event in events]
    return events[names.index(("call", "run")) + 1 : names.index(("return", "run"))]


@pytest.mark.thorough
@pytest.mark.parametrize("memory", [False, True], ids=["calls", "calls+memory"])
@pytest.mark.parametrize("backend", raw.BACKENDS)
def test_caller_and_line_are_what_the_callee_sees_in_getframe(backend, memory):
    nasty.SEEN.clear()
    events = raw.record(nasty.run, backend=backend, kinds=raw.ALL if memory else raw.CALLS)
    seen = iter(list(nasty.SEEN))

    stacks: dict[int, list[raw.Row]] = {}
    checked = 0
    for row in events:
        if row.sort != "python" or row.word not in raw.OPENING | raw.CLOSING:
            continue
        stack = stacks.setdefault(row.thread, [])
        if row.word in raw.CLOSING:
            if stack:
                stack.pop()
            continue
        if row.name == "see":
            top = stack[-1]
            assert (top.name, top.caller, top.caller_line) == next(seen)
            assert row.caller == top.name
            checked += 1
        stack.append(row)

    assert checked == len(nasty.SEEN) > 600
    assert next(seen, None) is None


def observed(program):
    """What sys.setprofile shows of a program: (sort, function, caller, line), thread by thread."""
    threads: dict[int, list] = {}
    get_ident = threading.get_ident

    def observe(frame, event, argument):
        log = threads.setdefault(get_ident(), [])
        if event == "call":
            back = frame.f_back
            log.append(
                (
                    "call",
                    frame.f_code.co_qualname,
                    back and back.f_code.co_qualname,
                    back.f_lineno if back else -1,
                )
            )
        elif event == "return":
            log.append(("return", frame.f_code.co_qualname))
        elif event == "c_call":
            log.append(("c_call", argument.__name__, frame.f_code.co_qualname, frame.f_lineno))
        else:
            log.append(("c_return", argument.__name__))

    threading.setprofile(observe)
    sys.setprofile(observe)
    try:
        program()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return threads[get_ident()]


SAME = {
    "call": "call",
    "resume": "call",
    "throw": "call",
    "return": "return",
    "yield": "return",
    "unwind": "return",
    "c_call": "c_call",
    "c_return": "c_return",
    "c_exception": "c_return",
}


def recorded(program, backend):
    """List the calls of a recording: of the main thread, and of those that sys.setprofile shows."""
    events = raw.record(program, backend=backend, current_thread=True)
    log = []
    for row in events:
        word = SAME[row.word]
        if word == "call":
            log.append(("call", row.name, row.caller, row.caller_line))
        elif word == "return":
            log.append(("return", row.name))
        elif word == "c_call":
            log.append(("c_call", row.name.rpartition(".")[2], row.caller, row.caller_line))
        else:
            log.append(("c_return", row.name.rpartition(".")[2]))
    return log


@pytest.mark.thorough
@pytest.mark.parametrize("backend", raw.BACKENDS)
def test_every_python_call_is_where_setprofile_shows_it(backend):
    expected = [e for e in of_run(observed(nasty.run)) if e[0] in ("call", "return")]

    ours = [e for e in of_run(recorded(nasty.run, backend)) if e[0] in ("call", "return")]

    for i, (a, b) in enumerate(zip(ours, expected, strict=False)):
        assert a == b, (i, ours[i - 3 : i + 3], expected[i - 3 : i + 3])
    assert len(ours) == len(expected) > 3000


@pytest.mark.thorough
@pytest.mark.parametrize("backend", raw.BACKENDS)
def test_every_c_call_is_where_setprofile_shows_it(backend):
    expected = of_run(observed(nasty.run))

    ours = of_run(recorded(nasty.run, backend))

    if backend == "profile":
        for i, (a, b) in enumerate(zip(ours, expected, strict=False)):
            assert a == b, (i, ours[i - 3 : i + 3], expected[i - 3 : i + 3])
        assert len(ours) == len(expected)
        return
    # Monitoring sees more callables: in ours, and in order, is all that the other shows.
    row = 0
    for i, event in enumerate(expected):
        while row < len(ours) and ours[row] != event:
            assert ours[row][0] in ("c_call", "c_return"), (
                i,
                ours[row - 3 : row + 3],
                expected[i - 3 : i + 3],
            )
            row += 1
        assert row < len(ours), (i, event)
        row += 1
