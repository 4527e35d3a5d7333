"""The hooks of lines beside threads, other tools, and our own allocations."""

from __future__ import annotations

import gc
import sys
import threading
from collections import Counter

import footprint
import pytest
import raw
from inside_programs import CALLS, OddError, inner, known, outer

import eventprof

# ---- Threads, and other tools --------------------------------------------------------------------


def test_lines_of_all_threads(hook):
    began, go_on = threading.Event(), threading.Event()

    def waiting():
        began.set()
        assert go_on.wait(60)
        inner()

    old = threading.Thread(target=waiting)
    old.start()
    assert began.wait(60)
    with eventprof.record(events=known(("call", "return", "line"), hook), backend=hook) as rec:
        new = threading.Thread(target=outer)
        new.start()
        new.join(60)
        go_on.set()
        old.join(60)

    rows = rec.trace.events
    lines = rows[(rows["event"] == "line") & (rows["name"] == "inner")]
    assert Counter(Counter(lines["thread"].tolist()).values()) == Counter({9: 1, 18: 1})


@pytest.mark.skipif(not raw.HAS_GIL, reason="trace functions of other threads need the GIL")
def test_a_trace_function_goes_on_beside_the_trace_hook():
    events = []

    def tracer(frame, event, argument):
        if frame.f_code.co_name in ("inner", "outer"):
            events.append((frame.f_code.co_name, event, frame.f_lineno))
            return tracer
        return None

    def traced():
        events.clear()
        before = sys.gettrace()
        sys.settrace(tracer)
        try:
            yield
        finally:
            sys.settrace(before)

    for _ in traced():
        outer()
    expected = list(events)
    for _ in traced():
        with eventprof.record(
            events=[*CALLS, "line", "instruction"], backend="trace", threads="current"
        ) as rec:
            assert sys.gettrace() is tracer
            outer()
        assert sys.gettrace() is tracer

    assert events == expected
    assert rec.displaced == ()
    rows = rec.trace.events
    lines = rows[rows["event"] == "line"]
    assert Counter(lines["name"])["inner"] == 18
    assert Counter(rows["event"])["instruction"] > 50


@pytest.mark.skipif(not raw.HAS_GIL, reason="trace functions of other threads need the GIL")
def test_what_a_trace_function_raises_is_the_programs():
    def tracer(frame, event, argument):
        if frame.f_code.co_name == "inner":
            raise OddError("of the tracer")
        return None

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        with eventprof.record(events=["line"], backend="trace", threads="current") as rec:
            with pytest.raises(OddError, match="of the tracer"):
                outer()
        # Who raises is taken out, and the hook in front with it.
        assert rec.displaced == ("trace",)
        assert sys.gettrace() is None
    finally:
        sys.settrace(before)


@pytest.mark.skipif(not raw.HAS_GIL, reason="trace functions of other threads need the GIL")
def test_a_trace_function_that_comes_later_displaces_the_trace_hook():
    def tracer(frame, event, argument):
        return None

    before = sys.gettrace()
    try:
        with eventprof.record(events=["line"], backend="trace", threads="current") as rec:
            assert rec.displaced == ()
            sys.settrace(tracer)
            assert rec.displaced == ("trace",)
        assert rec.displaced == ("trace",)
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)


@pytest.mark.skipif(not raw.HAS_GIL, reason="trace functions of other threads need the GIL")
def test_the_trace_hook_comes_back_after_a_round_trip():
    before = sys.gettrace()
    if before is not None:
        pytest.skip("a trace function is there, whose object is shown")
    with eventprof.record(events=["line"], backend="trace", threads="current") as rec:
        shown = sys.gettrace()
        assert repr(shown) == "<eventprof trace hook>"
        sys.settrace(None)
        sys.settrace(shown)
        inner()
        inner()
    assert sys.gettrace() is None
    assert rec.displaced == ("trace",)  # for a while
    lines = rec.trace.lines
    assert lines[lines["name"] == "inner"]["hits"].sum() >= 9


# ---- Own footprint -------------------------------------------------------------------------------


def allocations(kinds, hook):
    def run():
        footprint.points(150)
        footprint.lists(60)
        return footprint.dicts(60), footprint.exceptions(20), list(footprint.numbers(50))

    run()
    rec = raw.recorder(kinds | raw.MEMORY, backend=hook)
    gc.collect()
    with rec:
        kept = run()
    del kept
    trace = raw.capture(rec)
    kind, size = trace.events("kind"), trace.events("size")
    memory = (kind >= raw.KIND["MALLOC_RAW"]) & (kind <= raw.KIND["REALLOC_FAILED_LIBC"])
    names = [raw.IDENTIFIER[k] for k in kind[memory].tolist()]
    return Counter(
        (name, -1 if "FREE" in name else s)
        for name, s in zip(names, size[memory].tolist(), strict=True)
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    "kinds", [("LINE",), ("INSTRUCTION",), ("BRANCH", "JUMP"), ("LINE", "CALL", "RETURN")]
)
def test_what_is_told_leaves_no_allocations_of_its_own(hook, kinds):
    if hook == "trace" and "BRANCH" in kinds:
        pytest.skip("a trace hook is not told")
    if sys.version_info >= (3, 14):
        pytest.skip("ints of offsets come from the program's free list, and go there")
    without = allocations(0, hook)

    together = allocations(raw.bits(*kinds), hook)

    extra, missing = together - without, without - together
    assert without.total() > 3000
    allowed = 20
    assert extra.total() + missing.total() <= allowed, (extra, missing)
