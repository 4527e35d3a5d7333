"""Ids of sys.monitoring: what their former holders left behind, and who changes ours while it is in use."""

from __future__ import annotations

import sys
import textwrap
from collections import Counter

import children
import pytest
import raw

import eventprof

if not raw.HAS_MONITORING:
    pytest.skip("sys.monitoring is of 3.12 and later", allow_module_level=True)

monitoring = sys.monitoring
E = monitoring.events

pytestmark = pytest.mark.usefixtures("restored", "_free_ids")


@pytest.fixture
def _free_ids():
    """Ids that a test took are free again after it, and nothing is switched off."""
    yield
    for tool in range(6):
        if (monitoring.get_tool(tool) or "").startswith("test "):
            leave(tool)
    monitoring.restart_events()


CALL_EVENTS = (
    E.PY_START, E.PY_RESUME, E.PY_RETURN, E.PY_YIELD, E.CALL,
    E.PY_THROW, E.PY_UNWIND, E.C_RETURN, E.C_RAISE,
)  # fmt: skip


def leave(tool):
    monitoring.set_events(tool, 0)
    for event in CALL_EVENTS:
        monitoring.register_callback(tool, event, None)
    monitoring.free_tool_id(tool)


def inner(n):
    return [str(i) for i in range(n)]


def outer():
    return inner(3)


def generator():
    yield outer()
    yield len("ab")


def work():
    outer()
    list(generator())


#: What work() calls.
CALLS = {"work": 1, "outer": 2, "inner": 2, "generator": 1, "str": 6, "len": 1}


def former_tool(tool, run=work):
    """A tool switches all places off, as one that measures coverage does, and goes as it should."""
    monitoring.use_tool_id(tool, "test former tool")
    for event in (E.PY_START, E.PY_RESUME, E.PY_RETURN, E.PY_YIELD, E.CALL):
        monitoring.register_callback(tool, event, lambda *args: monitoring.DISABLE)
    monitoring.set_events(tool, E.PY_START | E.PY_RESUME | E.PY_RETURN | E.PY_YIELD | E.CALL)
    run()
    leave(tool)


def calls_of(names):
    return {name: number for name, number in Counter(names).items() if name in CALLS}


def recorded(rec):
    return calls_of(row.name for row in raw.rows(rec) if row.word in ("call", "c_call"))


def counted(counter):
    return calls_of(
        name.rpartition(".")[2]
        for name, number in counter.get_call_counts().items()
        for _ in range(number)
    )


def our_id(name="eventprof"):
    (ours,) = (tool for tool in range(6) if monitoring.get_tool(tool) == name)
    return ours


def others_have_all_but(tool):
    for other in range(6):
        if other != tool and monitoring.get_tool(other) is None:
            monitoring.use_tool_id(other, f"test {other}")


# ---- What a former holder of the id switched off --------------------------------------------------


@pytest.mark.parametrize("tool", range(6))
def test_a_recorder_sees_what_a_former_tool_switched_off(tool):
    former_tool(tool)
    others_have_all_but(tool)
    rec = raw.recorder(raw.CALLS, backend="monitoring")

    with rec:
        assert our_id() == tool
        work()

    assert recorded(rec) == CALLS


@pytest.mark.parametrize("tool", range(6))
def test_a_counter_sees_what_a_former_tool_switched_off(tool):
    former_tool(tool)
    others_have_all_but(tool)

    with eventprof.count(memory=False) as counter:
        assert our_id("eventprof counters") == tool
        work()

    assert counted(counter) == CALLS


def test_a_recorder_sees_what_is_under_way_on_other_places_of_a_former_tool():
    """A function that is running when the recorder starts was switched off, too."""
    rec = raw.recorder(raw.CALLS, backend="monitoring")

    def running(start):
        if start:
            rec.start()
        outer()

    former_tool(4, lambda: (running(False), outer()))
    running(True)
    rec.stop()

    assert recorded(rec) == {"outer": 1, "inner": 1, "str": 3}


def test_callbacks_that_a_former_tool_left_on_its_id_are_not_called():
    called = []
    others_have_all_but(4)
    monitoring.use_tool_id(4, "test careless tool")
    for event in CALL_EVENTS:
        monitoring.register_callback(4, event, lambda *args: called.append(args))
    monitoring.free_tool_id(4)
    rec = raw.recorder(raw.CALLS & ~raw.bits("C_RETURN", "C_EXCEPTION"), backend="monitoring")

    with rec:
        work()

    assert not called
    assert recorded(rec) == CALLS


def test_excluded_places_are_off_again_after_their_first_event():
    """Each start of a recorder switches all places on; those of excluded functions go off again."""
    former_tool(4)

    with eventprof.record(exclude=["*.inner"], memory=False) as rec:
        work()
        work()

    names = Counter(call.name for call in rec.trace.calls)
    assert names["outer"] == 4 and "inner" not in names


# ---- Who changes our id ---------------------------------------------------------------------------


def set_no_events(tool):
    monitoring.set_events(tool, 0)


def set_fewer_events(tool):
    monitoring.set_events(tool, E.CALL)


def set_more_events(tool):
    monitoring.set_events(tool, monitoring.get_events(tool) | E.LINE)


def take_a_callback(tool):
    monitoring.register_callback(tool, E.PY_START, lambda *args: None)


def take_a_callback_that_disables(tool):
    monitoring.register_callback(tool, E.PY_START, lambda *args: monitoring.DISABLE)


def remove_a_callback(tool):
    monitoring.register_callback(tool, E.CALL, None)


def free(tool):
    monitoring.free_tool_id(tool)


def free_and_take(tool):
    monitoring.free_tool_id(tool)
    monitoring.use_tool_id(tool, "test thief")


def free_and_take_by_our_name(tool):
    name = monitoring.get_tool(tool).encode().decode()  # equal, and not the same
    monitoring.free_tool_id(tool)
    monitoring.use_tool_id(tool, name)
    monitoring.set_events(tool, 0)


INTRUSIONS = [
    set_no_events, set_fewer_events, take_a_callback, take_a_callback_that_disables,
    remove_a_callback, free, free_and_take, free_and_take_by_our_name,
]  # fmt: skip


def leave_no_trace():
    """What a test's tool put on ids, whoever has them now."""
    for tool in range(6):
        taken = monitoring.get_tool(tool) is not None
        if not taken:
            monitoring.use_tool_id(tool, "test end")
        if (monitoring.get_tool(tool) or "").startswith(("test ", "eventprof")):
            leave(tool)


@pytest.mark.parametrize("intrusion", INTRUSIONS)
def test_a_change_of_our_id_is_displacement(intrusion):
    rec = raw.recorder(raw.CALLS, backend="monitoring")
    rec.start()
    work()

    intrusion(our_id())

    assert rec.displaced == ("monitoring",)
    work()
    rec.stop()
    assert rec.displaced == ("monitoring",)
    leave_no_trace()


@pytest.mark.parametrize("intrusion", INTRUSIONS)
def test_a_change_of_our_id_is_displacement_of_a_counter(intrusion):
    with eventprof.count(memory=False) as counter:
        work()

        intrusion(our_id("eventprof counters"))

        assert counter.displaced is True
        work()
    assert counter.displaced is True
    leave_no_trace()


@pytest.mark.parametrize("intrusion", INTRUSIONS)
def test_a_change_of_our_id_is_told_by_the_trace(intrusion, tmp_path):
    with eventprof.record(memory=False, output=tmp_path / "x.epr") as rec:
        work()
        intrusion(our_id())
        assert "monitoring" in rec.snapshot().metadata["displaced"]
        work()

    assert "monitoring" in rec.trace.metadata["displaced"]
    assert "monitoring" in eventprof.open(tmp_path / "x.epr").metadata["displaced"]
    assert "monitoring" in str(rec.trace)
    assert rec.trace.verify(all=True)
    leave_no_trace()


@pytest.mark.parametrize("intrusion", INTRUSIONS)
def test_after_a_change_of_our_id_nothing_of_ours_stays(intrusion):
    """No callback of ours is left on any id, and events that others asked for stay."""
    rec = raw.recorder(raw.CALLS, backend="monitoring")
    rec.start()
    tool = our_id()
    intrusion(tool)
    thief = monitoring.get_tool(tool) == "test thief"

    rec.stop()

    assert monitoring.get_tool(tool) == ("test thief" if thief else None) or (
        intrusion is free_and_take_by_our_name
    )
    if monitoring.get_tool(tool) is None:
        monitoring.use_tool_id(tool, "test looks")
        assert monitoring.get_events(tool) == 0
    for event in CALL_EVENTS:
        left = monitoring.register_callback(tool, event, None)
        assert "eventprof" not in type(left).__module__, (event, left)
    leave_no_trace()


@pytest.mark.parametrize("intrusion", INTRUSIONS)
def test_the_next_recorder_has_everything(intrusion):
    """One that starts beside the first gets an id and callbacks that report; both record from then on."""
    first = raw.recorder(raw.CALLS, backend="monitoring")
    first.start()
    intrusion(our_id())
    second = raw.recorder(raw.CALLS & ~raw.bits("THROW"), backend="monitoring")

    second.start()
    work()
    assert second.displaced == ()
    second.stop()
    first.stop()

    assert recorded(second) == CALLS
    assert recorded(first) == CALLS
    assert first.displaced == ("monitoring",)
    assert second.displaced == ()
    leave_no_trace()


def test_a_change_that_is_undone_before_another_recorder_starts_is_remembered():
    first = raw.recorder(raw.CALLS, backend="monitoring")
    first.start()
    tool = our_id()
    before = monitoring.get_events(tool)
    monitoring.set_events(tool, 0)
    assert first.displaced == ("monitoring",)
    work()
    monitoring.set_events(tool, before)

    first.stop()

    assert first.displaced == ("monitoring",)


def local_events(tool):
    monitoring.set_local_events(tool, inner.__code__, E.LINE | E.INSTRUCTION | E.PY_START)


def restart(tool):
    monitoring.restart_events()


@pytest.mark.parametrize("change", [set_more_events, local_events, restart])
def test_what_takes_no_event_away_is_no_displacement(change):
    rec = raw.recorder(raw.CALLS, backend="monitoring")
    with rec:
        change(our_id())
        work()
        assert rec.displaced == ()
    if change is local_events:  # nothing ends them, not even the end of the tool, before 3.14
        monitoring.use_tool_id(4, "test local")
        monitoring.set_local_events(4, inner.__code__, 0)

    assert rec.displaced == ()
    assert recorded(rec) == CALLS


def test_looking_for_displacement_is_no_event():
    """Neither a call nor an audit event; and callbacks stay."""
    with eventprof.record(memory=False, audit=True) as rec:
        for _ in range(5):
            assert rec.displaced == ()
        work()

    audited = [row.name for row in rec.trace.events if row.event == "audit"]
    assert not [name for name in audited if name.startswith("sys.monitoring")]
    calls = [row.name for row in rec.trace.events if row.event in ("call", "c_call")]
    assert calls_of(calls) == CALLS


def test_eventprof_run_says_that_its_id_was_changed(tmp_path):
    program = tmp_path / "p.py"
    program.write_text(
        textwrap.dedent("""
        import sys
        for tool in range(6):
            if sys.monitoring.get_tool(tool) == "eventprof":
                sys.monitoring.set_events(tool, 0)
        """)
    )

    done = children.eventprof("run", "-o", tmp_path / "p.epr", program)

    assert "monitoring" in done.stderr and "another tool" in done.stderr
