"""What is called, how often, and in what order: cProfile and the other backend agree."""

from __future__ import annotations

import gc
from collections import Counter

import nasty
import numpy as np
import programs
import pytest
import raw
from counted import PROGRAMS, SMALL, cprofile_counts, without_waits


def openings(trace):
    """(kinds, functions, function table) of the rows that open a call."""
    kind, function = trace.events("kind"), trace.events("function")
    opens = np.isin(kind, [raw.KIND[name] for name in ("CALL", "RESUME", "THROW", "C_CALL")])
    return kind[opens], function[opens], trace.functions()


def our_counts(run, backend) -> tuple[Counter, Counter]:
    gc.collect()  # generators that earlier tests left would be closed in this recording
    rec = raw.recorder(backend=backend)
    with rec:
        run()
    trace = raw.capture(rec)
    kinds, functions, table = openings(trace)
    python: Counter = Counter()
    builtin: Counter = Counter()
    for (kind, function), count in pairs(kinds, functions):
        name, module, file, line, sort = table[function]
        if kind != raw.KIND["C_CALL"]:
            python[file, line, name] += count
        elif sort == "c":
            owner, _, short = name.rpartition(".")
            builtin[owner or (module or "").rpartition(".")[2] or None, short] += count
    return python, builtin


def pairs(kinds, functions):
    both = kinds.astype(np.int64) << 32 | functions
    for value, count in zip(*np.unique(both, return_counts=True), strict=True):
        yield (int(value) >> 32, int(value) & 0xFFFFFFFF), int(count)


@pytest.mark.thorough
@pytest.mark.parametrize("backend", raw.BACKENDS)
@pytest.mark.parametrize("name", programs.ALL)
def test_calls_per_function_equal_cprofiles(name, backend):
    run = programs.program(name)
    python, builtin = cprofile_counts(run)

    ours, ours_builtin = our_counts(run, backend)

    assert ours == python
    # An owner that cProfile does not tell (None) is any.
    for (owner, short), count in builtin.items():
        if owner is None:
            found = sum(n for (_, other), n in ours_builtin.items() if other == short)
            known = sum(n for (o, other), n in builtin.items() if other == short and o is not None)
            assert found - known >= count, (short, found, known, count)
        else:
            assert ours_builtin[owner, short] == count, (owner, short)


# ---- Both backends, nesting ----------------------------------------------------------------------------


def sequence(run, backend, only="python"):
    """(word, function, file, caller, caller's line) of every row of Python functions, or of all."""
    gc.collect()
    gc.disable()
    try:
        events = raw.record(run, backend=backend, current_thread=True)
    finally:
        gc.enable()
    return [
        (
            row.word,
            row.name,
            row.file,
            row.line,
            row.caller,
            row.caller_line,
            row.sort,
        )
        for row in without_waits(events)
        if only is None or row.sort == only
    ]


@pytest.mark.thorough
@pytest.mark.skipif(not raw.HAS_MONITORING, reason="one backend")
@pytest.mark.parametrize("name", SMALL)
def test_backends_give_the_same_python_events(name):
    run = PROGRAMS[name]()
    run()
    run()

    by_monitoring = sequence(run, "monitoring")

    by_profile = sequence(run, "profile")
    for i, (a, b) in enumerate(zip(by_monitoring, by_profile, strict=False)):
        assert a == b, (i, by_monitoring[i - 3 : i + 3], by_profile[i - 3 : i + 3])
    assert len(by_monitoring) == len(by_profile) > 3


@pytest.mark.thorough
@pytest.mark.skipif(not raw.HAS_MONITORING, reason="one backend")
@pytest.mark.parametrize("name", SMALL)
def test_backends_give_the_same_c_calls_of_what_profile_sees(name):
    run = PROGRAMS[name]()
    run()
    run()

    by_monitoring = sequence(run, "monitoring", only=None)

    # By place: the same callable is invisible to profile when it is called in another way.
    rest = iter(by_monitoring)
    for event in sequence(run, "profile", only=None):
        for other in rest:
            if other == event:
                break
            assert other[0].startswith("c_"), (other, event)
        else:
            pytest.fail(f"not seen by monitoring: {event}")
    for event in rest:
        assert event[0].startswith("c_")


@pytest.mark.thorough
@pytest.mark.parametrize("backend", raw.BACKENDS)
@pytest.mark.parametrize("name", SMALL)
def test_every_call_ends_within_its_caller(name, backend):
    run = PROGRAMS[name]()
    run()
    rec = raw.recorder(backend=backend)

    with rec:
        run()

    events = raw.rows(rec)
    stacks: dict[int, list] = {}
    for row in events:
        stack = stacks.setdefault(row.thread, [])
        if row.word in raw.OPENING:
            # What C calls back has the Python function below as its caller; what is thrown into a
            # generator, the one that delegates to it, which does not run itself.
            open_python = [name for name, sort in stack if sort == "python"]
            if open_python and row.word != "throw":
                assert row.caller == open_python[-1], (row, stack)
            assert row.depth >= len(stack)
            stack.append((row.name, row.sort))
        else:
            assert row.word in raw.CLOSING
            if stack:
                assert stack.pop()[0] == row.name, row
    assert not any(s for thread, s in stacks.items() if thread != events[0].thread), stacks


def test_times_never_go_backwards():
    events = raw.record(nasty.run)

    assert all(a.time <= b.time for a, b in zip(events, events[1:], strict=False))
