"""What is recorded on PyPy, against the interpreter's own hook."""

import os
import subprocess
import sys
import threading

import programs
import pytest

import eventprof
from eventprof._pypy import log
from eventprof.base.quantities import LEAST_BUFFER

QUIET = {"jit": False, "gc": False}


def words(trace):
    return list(trace.events["event"])


def test_counts_are_those_of_sys_setprofile():
    expected = programs.counted_by_profile(programs.everything)

    with eventprof.record(**QUIET) as rec:
        programs.everything()

    assert programs.counted(rec.trace) == expected
    assert sum(expected.values()) > 300


def test_a_second_run_of_a_recorder_has_the_same_counts():
    expected = programs.counted_by_profile(programs.everything)
    rec = eventprof.record(**QUIET)

    for _ in range(3):
        with rec:
            programs.everything()

        assert programs.counted(rec.trace) == expected


def test_nothing_of_ours_is_recorded():
    with eventprof.record(**QUIET) as rec:
        pass

    assert words(rec.trace) == []


def test_generators_tell_how_each_slice_begins_and_ends():
    with eventprof.record(c_calls=False, **QUIET) as rec:
        generator = programs.steps(2)
        next(generator)
        generator.send("sent")
        list(generator)

    assert words(rec.trace) == ["call", "yield", "resume", "yield", "resume", "yield", "resume",
                                "return"]  # fmt: skip
    functions = {row.name: row for row in rec.trace.functions}
    assert (functions["steps"].calls, functions["steps"].resumes) == (1, 3)


def test_an_exception_through_a_delegation_ends_both_calls():
    with eventprof.record(c_calls=False, **QUIET) as rec:
        try:
            for _ in programs.through():
                pass
        except KeyError:
            pass

    assert list(zip(rec.trace.events["event"], rec.trace.events["name"], strict=True)) == [
        ("call", "through"),
        ("call", "raising_generator"),
        ("yield", "raising_generator"),
        ("yield", "through"),
        ("resume", "through"),
        ("resume", "raising_generator"),
        ("unwind", "raising_generator"),
        ("unwind", "through"),
    ]


def test_calls_lie_within_their_parents_and_self_times_sum_up():
    with eventprof.record(**QUIET) as rec:
        programs.everything()

    calls = list(rec.trace.calls)
    for call in calls:
        if call.parent is not None:
            parent = calls[call.parent]
            assert parent.start <= call.start
            assert call.start + call.duration <= parent.start + parent.duration
            assert call.depth == parent.depth + 1
    outermost = sum(call.duration for call in calls if call.parent is None)
    assert sum(call.self for call in calls) == outermost
    assert rec.trace.pairing == {"unmatched_ends": 0, "ends_unseen": 0}


def test_the_line_of_a_builtins_call_is_known():
    def caller():
        return abs(-1)

    with eventprof.record(**QUIET) as rec:
        caller()

    of_abs = [call for call in rec.trace.calls if call.name == "abs"]
    assert [call.caller_line for call in of_abs] == [caller.__code__.co_firstlineno + 1]


def test_frames_open_at_the_start_are_parents():
    with eventprof.record(**QUIET) as rec:
        programs.fib(1)

    calls = list(rec.trace.calls)
    here = next(c for c in calls if c.name == "test_frames_open_at_the_start_are_parents")
    fib = next(call for call in calls if call.name == "fib")
    assert here.flags & 1 and here.flags & 2
    assert calls[fib.parent] == here


def test_objects_are_not_kept_alive():
    class Witness(list):
        pass

    import gc
    import weakref

    rec = eventprof.record(**QUIET)
    rec.start()
    witness = Witness()
    witness.append(1)
    rec.stop()
    gone = weakref.ref(witness)
    del witness

    for _ in range(20):
        gc.collect()
        if gone() is None:
            break
    assert gone() is None


# ---- Which events --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({"c_calls": False}, {"call", "return", "yield", "resume", "unwind"}),
        ({"calls": False}, {"c_call", "c_return", "c_exception"}),
        ({"events": ["call", "unwind"]}, {"call", "unwind"}),
        ({"events": ["c_exception"]}, {"c_exception"}),
    ],
)
def test_only_what_was_asked_for(options, allowed):
    expected = programs.counted_by_profile(programs.everything)

    with eventprof.record(**options, **QUIET) as rec:
        programs.everything()

    assert set(words(rec.trace)) == allowed
    for event in allowed - {"call", "return", "yield", "resume", "unwind"}:
        count = sum(n for (word, _), n in expected.items() if word == event)
        assert words(rec.trace).count(event) == count


# ---- Threads -------------------------------------------------------------------------------------


def in_a_thread(function, *args, name):
    thread = threading.Thread(target=function, args=args, name=name)
    thread.start()
    thread.join()


def by_thread(trace, name):
    row = list(trace.threads["name"]).index(name)
    return [e.name for e in trace.events if e.thread == row and e.event == "call"]


def test_threads_that_start_meanwhile_are_recorded_and_named():
    with eventprof.record(**QUIET) as rec:
        in_a_thread(programs.fib, 5, name="first")
        in_a_thread(programs.fib, 3, name="second")

    assert by_thread(rec.trace, "first").count("fib") == 15
    assert by_thread(rec.trace, "second").count("fib") == 5


def test_the_current_thread_alone():
    with eventprof.record(threads="current", **QUIET) as rec:
        in_a_thread(programs.fib, 5, name="other")

    assert "other" not in list(rec.trace.threads["name"])


def test_a_thread_that_goes_on_after_the_stop_loses_the_hook():
    begun, go, found = threading.Event(), threading.Event(), []

    def outlive():
        begun.set()
        go.wait(60)
        programs.fib(3)
        found.append(sys.getprofile())

    with eventprof.record(**QUIET) as rec:
        thread = threading.Thread(target=outlive, name="outlives")
        thread.start()
        assert begun.wait(60)
    go.set()
    thread.join(60)

    assert found == [None]
    assert by_thread(rec.trace, "outlives").count("fib") == 0
    assert threading.getprofile() is None


# ---- Room ----------------------------------------------------------------------------------------


#: Events of the smallest buffer.
ROOM = LEAST_BUFFER // log.EVENT_BYTES


def calls_of_one(n):
    def one():
        pass

    for _ in range(n):
        one()


@pytest.mark.parametrize("count", [100, 4096, 30_011])
@pytest.mark.parametrize("on_full", ["overwrite", "stop", "grow"])
def test_every_event_is_there_or_counted(on_full, count):
    with eventprof.record(buffer=LEAST_BUFFER, on_full=on_full, **QUIET) as rec:
        calls_of_one(count)

    trace = rec.trace
    emitted = {"call": count + 1, "return": count + 1, "c_call": 0}
    for word, expected in emitted.items():
        assert words(trace).count(word) + trace.loss.by_kind.get(word, 0) == expected
    assert bool(trace.loss) == (on_full != "grow" and 2 * count > ROOM)
    assert sum(trace.threads["lost"]) == trace.loss.total
    if trace.loss:
        assert trace.loss.reason == {"overwrite": "overwritten", "stop": "limit"}[on_full]


def test_what_was_overwritten_leaves_the_open_calls():
    def outer():
        calls_of_one(ROOM)
        return programs.fib(1)

    with eventprof.record(buffer=LEAST_BUFFER, **QUIET) as rec:
        outer()

    calls = list(rec.trace.calls)
    fib = next(call for call in calls if call.name == "fib")
    above = calls[fib.parent]
    assert above.name.endswith("outer") and above.flags == 1
    assert rec.trace.loss and rec.trace.pairing["unmatched_ends"] == 0


def test_stop_keeps_the_first_events():
    with eventprof.record(buffer=LEAST_BUFFER, on_full="stop", **QUIET) as rec:
        programs.fib(1)
        calls_of_one(ROOM)
        programs.run(programs.asks(1))

    names = list(rec.trace.events["name"])
    assert rec.trace.loss.reason == "limit"
    assert not names or names[0] == "fib"
    assert "asks" not in names


# ---- Others ---------------------------------------------------------------------------------------


def test_recorders_at_the_same_time_each_have_their_own():
    outer, inner = eventprof.record(**QUIET), eventprof.record(**QUIET)
    expected = programs.counted_by_profile(programs.everything)

    outer.start()
    programs.fib(4)
    inner.start()
    programs.everything()
    inner.stop()
    programs.fib(4)
    outer.stop()

    assert programs.counted(inner.trace) == expected
    whole = programs.counted(outer.trace)
    assert whole["call", "fib"] == expected["call", "fib"] + 2 * 9
    assert sys.getprofile() is None


def test_the_first_may_stop_first():
    first, second = eventprof.record(**QUIET), eventprof.record(**QUIET)

    first.start()
    second.start()
    programs.fib(3)
    first.stop()
    programs.fib(4)
    second.stop()

    assert programs.counted(first.trace)["call", "fib"] == 5
    assert programs.counted(second.trace)["call", "fib"] == 5 + 9
    assert sys.getprofile() is None


def test_a_profile_function_that_was_there_goes_on_and_is_put_back():
    seen = []

    def before(frame, event, arg):
        seen.append(frame.f_code.co_name)

    sys.setprofile(before)
    try:
        with eventprof.record(**QUIET) as rec:
            programs.fib(3)
        found = sys.getprofile()
    finally:
        sys.setprofile(None)

    assert found is before
    assert seen.count("fib") == 2 * 5
    assert programs.counted(rec.trace)["call", "fib"] == 5


def test_a_profile_function_that_took_over_stays():
    def other(frame, event, arg):
        pass

    rec = eventprof.record(**QUIET)
    rec.start()
    programs.fib(3)
    sys.setprofile(other)
    try:
        programs.fib(3)
        rec.stop()
        found = sys.getprofile()
    finally:
        sys.setprofile(None)

    assert found is other
    assert rec.displaced == ("profile",)
    assert programs.counted(rec.trace)["call", "fib"] == 5


def test_a_full_stack_ends_the_recording_and_is_said():
    def deep():
        deep()

    with eventprof.record(**QUIET) as rec:
        with pytest.raises(RecursionError):
            deep()

    # Where the stack ends, in the program or in the hook, is the interpreter's business.
    assert rec.displaced in ((), ("profile",))
    began, ended = words(rec.trace).count("call"), words(rec.trace).count("unwind")
    assert began == ended or rec.displaced == ("profile",)
    assert sys.getprofile() is None


@pytest.mark.parametrize("left", [None, *range(20, 1000, 70)])
def test_a_forked_child_begins_anew(left):
    """left: for how many events the parent's log has room; None: for many."""
    read, write = os.pipe()
    rec = eventprof.record(**QUIET)
    rec.start()
    programs.fib(5)
    (mine,) = log._running[-1].logs
    while left is not None and mine.end - mine.next > left:
        abs(-5)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            programs.fib(3)
            rec.stop()
            counts = programs.counted(rec.trace)
            os.write(write, b"%d" % counts["call", "fib"])
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    written = os.read(read, 100)
    _, status = os.waitpid(child, 0)
    rec.stop()
    os.close(read)

    assert (os.waitstatus_to_exitcode(status), written) == (0, b"5")
    assert programs.counted(rec.trace)["call", "fib"] == 15


def test_a_snapshot_leaves_the_recorder_running():
    rec = eventprof.record(**QUIET)
    rec.start()
    programs.fib(3)
    early = rec.snapshot()
    programs.fib(3)
    rec.stop()

    assert programs.counted(early)["call", "fib"] == 5
    assert programs.counted(rec.trace)["call", "fib"] == 10
    assert {name for _, name in programs.counted(rec.trace)} == {"fib"}


def test_the_decorator_records_the_function_alone():
    @eventprof.record(**QUIET)
    def decorated(n):
        return programs.fib(n)

    assert decorated(3) == 2
    counts = programs.counted(decorated.recorder.trace)
    assert counts == {("call", "fib"): 5, ("return", "fib"): 5,
                      ("call", name(decorated)): 1, ("return", name(decorated)): 1}  # fmt: skip


def name(function):
    return function.__qualname__


def test_an_exception_passes_and_the_hook_goes():
    rec = eventprof.record(**QUIET)
    with pytest.raises(ValueError, match="at the bottom"), rec:
        programs.raising(3)

    assert sys.getprofile() is None
    assert words(rec.trace).count("unwind") == 4


@pytest.mark.parametrize("clock", ["auto", "monotonic"])
def test_times_go_forward_and_fit_the_window(clock):
    with eventprof.record(clock=clock, **QUIET) as rec:
        programs.everything()

    times = list(rec.trace.events["time"])
    assert times == sorted(times)
    assert 0 <= times[0] and times[-1] <= rec.trace.duration


# ---- What there is not ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"memory": True},
        {"memory": ["obj"]},
        {"events": ["malloc"]},
        {"backend": "monitoring"},
        {"output": "x.epr"},
        {"include": ["json.*"]},
        {"exclude": ["json.*"]},
        {"max_depth": 3},
        {"min_duration": "1 ms"},
    ],
)
def test_what_pypy_lacks_is_said_with_cause_and_remedy(options):
    with pytest.raises(eventprof.UnsupportedError, match=r"not available on PyPy: .+; .+"):
        eventprof.record(**options)


@pytest.mark.parametrize("name", ["EventProfiler", "WithEventProfiler", "merge", "Follower"])
def test_what_the_package_lacks_is_said(name):
    with pytest.raises(eventprof.UnsupportedError, match=f"eventprof.{name} is not available"):
        getattr(eventprof, name)


def test_the_last_seconds_alone_are_not_available():
    with eventprof.record(**QUIET) as rec:
        pass

    with pytest.raises(eventprof.UnsupportedError, match=r"snapshot\(last=...\) is not available"):
        rec.snapshot(last="1 s")


def test_tables_of_memory_are_said_to_be_missing():
    with eventprof.record(**QUIET) as rec:
        pass

    with pytest.raises(eventprof.UnsupportedError, match=r"trace\.allocations"):
        _ = rec.trace.allocations


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"calls": 1}, TypeError),
        ({"jit": "yes"}, TypeError),
        ({"events": ["cal"]}, ValueError),
        ({"on_full": "ring"}, ValueError),
        ({"buffer": 0}, ValueError),
        ({"calls": False, "c_calls": False, "jit": False, "gc": False}, ValueError),
    ],
)
def test_wrong_arguments_are_refused(options, error):
    with pytest.raises(error, match=next(iter(options)) if len(options) == 1 else "nothing"):
        eventprof.record(**options)


def test_states():
    rec = eventprof.record(**QUIET)
    with pytest.raises(eventprof.StateError):
        rec.stop()
    with pytest.raises(eventprof.StateError):
        _ = rec.trace
    with rec:
        with pytest.raises(eventprof.StateError):
            rec.start()
        with pytest.raises(eventprof.StateError):
            _ = rec.trace
    assert (rec.state, rec.backend) == ("stopped", "profile")


def test_importing_loads_neither_numpy_nor_rich():
    code = "import sys, eventprof; eventprof.record(); print({'numpy', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "set()\n"
