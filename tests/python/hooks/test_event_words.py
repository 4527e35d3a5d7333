"""events= of record(): each word by itself, what the interpreter is asked for then, and who disagrees."""

from __future__ import annotations

import ctypes
import gc
import sys
import time

import numpy as np
import pytest
import raw
import read_log
from inside_programs import NAMES, asked_of_the_interpreter

import eventprof
from eventprof.recording.events import EVENTS

PYTHON = ("call", "return", "yield", "resume", "throw", "unwind")
C = ("c_call", "c_return", "c_exception")
BLOCKS = ("malloc", "calloc", "realloc", "realloc_free", "free", "realloc_failed")
INSIDE = (
    "line", "instruction", "raise", "reraise", "handled", "stop_iteration", "branch", "jump",
)  # fmt: skip
MARKS = ("span_begin", "span_end", "mark", "counter", "flow", "label", "label_text")
GC = ("gc_start", "gc_stop", "gc_collected")
REFS = ("create", "destroy")
WAITS = ("wait_begin", "wait", "waker", "wait_object", "pipe_write")
TASKS = ("task",)
HPY = ("hpy_call", "hpy_return")
HAS_TRACER = sys.version_info >= (3, 13)
#: By trace, on 3.11 also of calls: what does not come from one of the other hooks.
TRACED = (*PYTHON, "line", "instruction", "raise", "stop_iteration")
#: What the program below is sure not to do, or not in every version: a waker is another thread. Tasks
#: are seen in calls alone.
RARE = {"realloc_failed", "stop_iteration", "throw", "waker", "wait_object", "pipe_write", "task"}


class Ring:
    """Garbage, once nothing else refers to it."""

    def __init__(self):
        self.itself = self


def numbers():
    with eventprof.span("loose"):
        yield 1
        yield 2


def raising():
    try:
        return "".index("x")
    except ValueError:
        raise KeyError from None


def everything():
    """Some of each kind."""
    for number in numbers():
        if number > 1:
            eventprof.counter("numbers", number)
    with eventprof.span("nested"):
        eventprof.mark("here")
    with eventprof.label(words="every"):
        eventprof.flow("work", 1, "begin")
    eventprof.flow("work", 1, "end")
    sys.audit("tests.first")
    sys.audit("tests.second")
    try:
        raising()
    except KeyError:
        pass
    texts = []
    for i in range(300):
        texts.append(str(i) * 5)
    text = bytearray(bytes(12347))
    text.extend(b"x" * 99_991)
    Ring()
    gc.collect()
    time.sleep(1e-5)
    return sorted(texts)


def tracer():
    """The tracer of references; None: this version has none."""
    if not HAS_TRACER:
        return None
    data = ctypes.c_void_p()
    get = ctypes.pythonapi.PyRefTracer_GetTracer
    get.restype = ctypes.c_void_p
    return get(ctypes.byref(data)), data.value


def state():
    return {**raw.hooks(), "gc": list(gc.callbacks), "tracer": tracer()}


def may_change(word, backend):
    """What of the interpreter's may be other than without a recorder, that asks for one word."""
    if word in BLOCKS:
        return {"allocators"}
    if word in GC:
        return {"gc"}
    if word in REFS:
        return {"tracer"}
    if word in (*PYTHON, *C, *INSIDE):
        if backend == "monitoring":
            return {"tools"}
        # Other threads get the hook as they begin.
        hook = {"trace" if backend == "trace" and word not in C else "profile"}
        mended = {"gc"} if raw.MENDS_GENERATORS else set()
        return {*hook, *mended, "starters", "threading profile", "evaluator"}
    return set()


def words_of(rec):
    return set(rec.trace.events["event"].astype(str))


def hooks_for(word):
    """The backends that see it; what is of no function is the same with all."""
    backends = [*raw.BACKENDS, *(["trace"] if raw.HAS_GIL else [])]
    if word in (*PYTHON, *C):
        return backends
    if word in INSIDE:
        return [
            backend
            for backend in backends
            if backend == "monitoring" or (backend == "trace" and word in TRACED)
        ]
    return ["auto"]


ALONE = [
    pytest.param(word, backend, id=f"{word}-{backend}")
    for word in EVENTS
    if word not in HPY and (HAS_TRACER or word not in REFS)
    for backend in hooks_for(word)
]


def test_every_event_is_a_word():
    assert set(EVENTS) == {row[2] for row in eventprof._core.kind_table() if row[2]}
    assert set(EVENTS) == {*PYTHON, *C, *BLOCKS, *INSIDE, *MARKS, *GC, *REFS, "audit", *WAITS, *TASKS,
                           *HPY}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize(("word", "backend"), ALONE)
def test_a_word_alone(word, backend):
    everything()
    rec = eventprof.record(events={word}, backend=backend, threads="current", on_full="grow")
    before = state()

    with rec:
        within = state()
        asked = asked_of_the_interpreter() if backend == "monitoring" else set()
        everything()
    after = state()

    changed = {name for name in before if before[name] != within[name]}
    assert changed <= may_change(word, backend)
    assert after == before
    if backend == "monitoring":
        expected = NAMES[word] - {"C_RETURN", "C_RAISE"}  # these come with CALL
        if word == "unwind":
            expected |= {"PY_THROW"}  # it says which unwinds end a slice that was reported
        assert asked - {"C_RETURN", "C_RAISE"} == expected
    # A span that does not nest is recorded as two flows.
    spans = {"span_begin", "span_end"}
    found, beside = words_of(rec), {"flow", *spans} if word in spans else set()
    assert found <= {word} | beside
    assert found >= {word} - RARE
    assert not rec.trace.loss
    kinds = {raw.WORD[kind] for *_, recorded, _ in rec.trace._thread_rows for kind in recorded}
    assert kinds <= {word, *({"flow"} & beside)}
    assert set(rec.options.events) == {word, *({"flow"} & beside)}


def test_a_word_alone_changes_something():
    """The test above can fail: what is asked for is there."""
    before = state()
    for word, name in (("free", "allocators"), ("gc_stop", "gc"), ("create", "tracer")):
        if word == "create" and not HAS_TRACER:
            continue
        with eventprof.record(events={word}):
            assert state()[name] != before[name]
    backend = "monitoring" if raw.HAS_MONITORING else "profile"
    with eventprof.record(events={"call"}, backend=backend):
        changed = {name for name, value in state().items() if value != before[name]}
        assert changed & may_change("call", backend)


@pytest.mark.thorough
def test_what_is_asked_for_in_the_log_is_no_more(tmp_path):
    """Not even what other words of the same hook would have been: a full buffer holds only these."""
    for word, others in (("gc_stop", GC), ("destroy", REFS)):
        if word in REFS and not HAS_TRACER:
            continue
        path = tmp_path / f"{word}.epr"
        with eventprof.record(events={word}, output=path, threads="current") as rec:
            for _ in range(3):
                everything()
        assert words_of(rec) == {word}
        # As if all kinds had been wanted: the records that were written, not those that are shown.
        data = bytearray(path.read_bytes())
        offset = read_log.HEADER_OFFSETS["kinds"]
        data[offset : offset + 8] = b"\xff" * 8
        path.write_bytes(data)
        written = {event.word for event in read_log.read(path).events}
        assert word in written
        assert not written & (set(others) - {word})


def test_marks_are_there_if_they_are_named():
    with eventprof.record(events={"call"}) as rec:
        everything()
    assert words_of(rec) == {"call"}
    assert not rec.options.marks

    with eventprof.record(events={"call", "mark"}) as rec:
        everything()
    assert words_of(rec) == {"call", "mark"}
    assert rec.options.marks
    assert rec.trace.marks["name"].tolist() == ["here"]


def test_of_flows_spans_keep_what_they_are_made_of():
    with eventprof.record(events={"span_begin", "span_end"}) as rec:
        everything()
    assert sorted(rec.trace.spans["name"]) == ["loose", "nested"]
    with eventprof.record(events={"flow"}) as rec:
        everything()
    assert len(rec.trace.spans) == 0
    assert rec.trace.flows["phase"].tolist() == ["begin", "end"]


def test_audit_chooses_of_the_audit_events():
    with eventprof.record(events={"audit"}) as rec:
        everything()
    assert {"tests.first", "tests.second"} <= set(rec.trace.audit["name"])
    with eventprof.record(events={"audit", "mark"}, audit=["*.second"]) as rec:
        everything()
    assert rec.trace.audit["name"].tolist() == ["tests.second"]
    assert words_of(rec) == {"audit", "mark"}


def test_a_mix_over_all_hooks_is_exactly_that():
    words = {"call", "return", "free", "mark", "gc_collected", "audit"}
    words |= {"destroy"} if HAS_TRACER else set()
    with eventprof.record(events=words, memory=["obj"], on_full="grow") as rec:
        everything()
    assert words_of(rec) == words
    domains = rec.trace.events["domain"]
    assert set(np.ma.compressed(domains)) - {None} == {"obj"}


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ({"events": ["call"], "lines": True}, ["events", "lines", "'line'"]),
        ({"events": ["call"], "branches": True}, ["events", "branches", "'branch', 'jump'"]),
        ({"events": ["call"], "gc": True}, ["events", "gc is given", "'gc_start', 'gc_stop'"]),
        ({"events": ["gc_stop"], "gc": True}, ["events", "gc is given", "'gc_collected'"]),
        ({"events": ["call"], "refs": True}, ["events", "refs", "'create', 'destroy'"]),
        (
            {"events": ["call"], "waits": True},
            ["events", "waits", "'wait_begin', 'wait', 'waker', 'wait_object', 'pipe_write'"],
        ),
        ({"events": ["call"], "hpy": True}, ["events", "hpy", "'hpy_call', 'hpy_return'"]),
        ({"events": ["call"], "audit": True}, ["events", "audit=", "'audit'"]),
        ({"events": ["call"], "audit": ["open"]}, ["events", "audit=", "'audit'"]),
        ({"events": ["call", "return"], "calls": False}, ["'call', 'return'", "calls=False"]),
        ({"events": ["c_call"], "c_calls": False}, ["events", "'c_call'", "c_calls=False"]),
        ({"events": ["malloc"], "memory": False}, ["events", "'malloc'", "memory=False"]),
        ({"events": ["mark"], "marks": False}, ["events", "'mark'", "marks=False"]),
        ({"events": ["audit"], "audit": False}, ["events", "'audit'", "audit=False"]),
        ({"events": ["call"], "memory": ["obj"]}, ["events", "memory", "'malloc'"]),
        ({"events": ["call"], "numpy": True}, ["events", "numpy", "'malloc'"]),
        ({"events": ["call"], "native": True}, ["events", "native", "'malloc'"]),
        ({"events": ["gc"]}, ["events", "'gc'", "'gc_start', 'gc_stop', 'gc_collected'"]),
        ({"events": ["span"]}, ["events", "'span'", "'span_begin', 'span_end'"]),
        ({"events": ["lines"]}, ["events", "'lines'", "'line'"]),
        ({"events": ["marc"]}, ["events", "'marc'", "did you mean 'mark'?"]),
    ],
)
def test_a_flag_that_says_something_else_is_named(arguments, parts):
    with pytest.raises(ValueError) as caught:
        eventprof.record(**arguments)

    for part in parts:
        assert part in str(caught.value)


def test_flags_that_say_the_same_may_be_there():
    for arguments in (
        {"events": ["call"], "memory": False, "marks": False, "c_calls": False},
        {"events": ["malloc"], "memory": ["raw"], "calls": False},
        {"events": ["call"], "gc": False, "refs": False, "audit": False, "numpy": False},
    ):
        rec = eventprof.record(**arguments)
        assert rec.options.events == tuple(arguments["events"])


@pytest.mark.skipif(HAS_TRACER, reason="3.13 and later have a reference tracer")
def test_objects_need_a_later_python():
    with pytest.raises(eventprof.UnsupportedError, match=r"create and destroy.*3\.13"):
        eventprof.record(events=["create"])


def test_what_is_shown_of_a_recorder():
    assert "all events" in repr(eventprof.record())
    assert "all events" not in repr(eventprof.record(gc=True))
    assert ": new; call mark;" in repr(eventprof.record(events=["mark", "call"]))
    assert "mark" not in repr(eventprof.record(memory=False))
