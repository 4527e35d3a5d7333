"""Sets of events from inside of functions, and filters: no more and no less than was asked for."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
import raw
from inside_programs import (
    ALL_INSIDE,
    C_CALLS,
    CALLS,
    HAS_MONITORING,
    NAMES,
    asked_of_the_interpreter,
    everything,
    is_of_everything,
    known,
    outer,
    record,
)

import eventprof

# ---- Mixes ---------------------------------------------------------------------------------------


def mixes(hook, count):
    chance = random.Random(11)
    words = known((*CALLS, *C_CALLS, *ALL_INSIDE), hook)
    for _ in range(count):
        yield frozenset(chance.sample(words, chance.randint(1, 6)))


def keys(trace, words):
    """What tells events of the same run apart, without times."""
    events = trace.events
    mask = np.isin(events["event"].astype(str), list(words))
    rows = events[mask]
    files = trace.functions["file"]
    where = [
        files[caller if caller is not np.ma.masked else function]
        for caller, function in zip(rows["caller"], rows["function"], strict=True)
    ]
    return [
        tuple(None if each is np.ma.masked else each for each in row)
        for row in zip(
            rows["event"], rows["name"], rows["line"], rows["caller_line"], rows["offset"],
            rows["opcode"], where, strict=True,
        )
    ]  # fmt: skip


def test_a_mix_has_no_more_than_was_asked_for(hook):
    everything()
    for mix in mixes(hook, 15):
        rec = eventprof.record(events=mix, backend=hook, threads="current")
        with rec:
            asked = asked_of_the_interpreter() if hook == "monitoring" else None
            everything()
        words = Counter(rec.trace.events["event"])
        assert set(words) <= mix
        # C_RETURN and C_RAISE come with CALL, and are in its place in the events that are set.
        expected = set().union(*(NAMES[word] for word in mix))
        if "unwind" in mix:
            expected.add("PY_THROW")  # it says which unwinds end a slice that was reported
        if asked is not None:
            assert asked - {"C_RETURN", "C_RAISE"} == expected - {"C_RETURN", "C_RAISE"}
        sure = {"call", "return", "c_call", "line", "instruction", "raise"} & mix
        assert sure <= set(words), mix


def test_two_recorders_with_different_sets_have_each_its_own(hook):
    everything()
    more = list(mixes(hook, 4))
    pairs = [
        ({"line"}, {"call", "return", "raise"}),
        ({"instruction", "c_call", "c_return"}, {"line", "c_exception", "c_call"}),
        ({"raise", "stop_iteration"}, {"call", "return", "yield", "resume", "throw", "unwind"}),
        (more[0], more[1]),
        (more[2], more[3]),
    ]
    for first, second in pairs:
        alone = [keys(record(everything, words, hook), words) for words in (first, second)]
        with eventprof.record(events=first, backend=hook, threads="current") as one:
            with eventprof.record(events=second, backend=hook, threads="current") as two:
                everything()
        # What is in the window beside: this function's own, and what starts the second.
        found_one = keys(one.trace, first)
        found_two = keys(two.trace, second)
        ours = [key for key in alone[1] if is_of_everything(key)]
        assert [key for key in found_two if is_of_everything(key)] == ours
        ours = [key for key in alone[0] if is_of_everything(key)]
        assert [key for key in found_one if is_of_everything(key)] == ours
        assert set(one.trace.events["event"]) <= first
        assert set(two.trace.events["event"]) <= second


def test_events_and_flags_exclude_each_other():
    with pytest.raises(ValueError, match="'line' into events"):
        eventprof.record(lines=True, events=["call"])
    with pytest.raises(TypeError, match="exceptions must be True or False"):
        eventprof.record(exceptions=1)


@pytest.mark.skipif(not raw.HAS_GIL, reason="these hooks need the GIL, which is said first")
def test_what_a_hook_does_not_see_is_an_error_that_names_who_does():
    needs = "monitoring" if HAS_MONITORING else "3.12"
    with pytest.raises(eventprof.UnsupportedError, match=f"branch, jump.*{needs}"):
        eventprof.record(branches=True, backend="trace")
    with pytest.raises(eventprof.UnsupportedError, match=f"trace hook .* handled: .*{needs}"):
        eventprof.record(events=["handled"], backend="trace")
    with pytest.raises(eventprof.UnsupportedError, match="profile hook .* line: .*'trace'"):
        eventprof.record(lines=True, backend="profile")


@pytest.mark.skipif(not raw.HAS_GIL, reason="trace functions of other threads need the GIL")
def test_exceptions_are_what_the_trace_hook_sees_of_them():
    rec = eventprof.record(exceptions=True, backend="trace")
    assert set(rec.options.events) & set(ALL_INSIDE) == {"raise", "stop_iteration"}


def test_nothing_inside_is_recorded_unasked():
    with eventprof.record() as rec:
        everything()
    assert not set(rec.trace.events["event"]) & set(ALL_INSIDE)


# ---- Filters -------------------------------------------------------------------------------------


def test_lines_of_what_is_left_out_are_left_out(hook):
    events = known((*CALLS, "line", "instruction", "branch"), hook)

    trace = record(outer, events, hook, include=["*.inner"])

    names = set(trace.events["name"])
    assert names == {"inner"}
    assert Counter(trace.events["event"])["call"] == 2
    lines = trace.lines
    assert set(lines["name"]) == {"inner"}
    whole = record(outer, events, hook)
    assert keys(trace, {"line"}) == [key for key in keys(whole, {"line"}) if key[1] == "inner"]


def test_lines_go_by_names_where_no_calls_are_recorded(hook):
    trace = record(outer, {"line"}, hook, exclude=["*.inner"])

    assert "inner" not in set(trace.events["name"])
    assert "outer" in set(trace.events["name"])


def test_lines_go_with_calls_that_are_too_deep(hook):
    events = known((*CALLS, "line", "raise"), hook)

    trace = record(outer, events, hook, max_depth=0)

    rows = trace.events
    assert set(rows[rows["event"] == "call"]["name"]) == {"outer"}
    assert "inner" not in set(rows["name"])
    assert Counter(rows[rows["event"] == "line"]["name"])["outer"] == 2


def test_lines_go_with_calls_that_are_too_short(hook):
    events = known((*CALLS, "line"), hook)

    trace = record(outer, events, hook, min_duration="30 s")

    assert not {"inner", "outer"} & set(trace.events["name"])
