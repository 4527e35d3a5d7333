"""The flight recorder: the last time of a ring has all its events; triggers write files."""

import asyncio
import gc
import os
import random
import signal
import sys
import threading
import time

import children
import pytest

import eventprof

pytestmark = pytest.mark.version


def step(n):
    return [n] * 20


def busy(rounds):
    for n in range(rounds):
        step(n)


def flight_recorder(folder, **options):
    given = {"buffer": "8 MiB", "min_age": "5 s", "pause": 0, "folder": folder, **options}
    return eventprof.flight_recorder(**given)


def native_rows(trace):
    return {int(native): row for row, native in enumerate(trace.threads["native_id"].tolist())}


@pytest.mark.thorough
@pytest.mark.parametrize("memory", [False, True])
def test_the_last_time_is_the_end_of_the_whole(memory):
    whole = eventprof.record(on_full="grow", memory=memory, backend="auto")
    ring = eventprof.record(buffer="1 MiB", on_full="overwrite", memory=memory)
    ring._warns = False
    going, rounds = True, random.Random(7)

    def quiet():
        while going:
            time.sleep(0.002)
            step(1)

    thread = threading.Thread(target=quiet)
    try:
        with whole, ring:
            thread.start()
            with eventprof.span("open"):
                for _ in range(40):
                    busy(rounds.randrange(12_000))
                    one = threading.Thread(target=busy, args=(3,))
                    one.start()
                    one.join()
                going = False
                thread.join()
                tail = ring.snapshot(last="1 s")
                lost = ring.snapshot().loss
    finally:
        going = False
    full = whole.trace
    assert lost and not tail.loss
    assert tail.verify()
    of_full = native_rows(full)
    for native, row in native_rows(tail).items():
        wanted = full.events["thread"] == of_full[native]
        kinds = full.events["event"][wanted].tolist()
        words = tail.events["event"][tail.events["thread"] == row].tolist()
        functions = full.events["name"][wanted].tolist()
        seen = tail.events["name"][tail.events["thread"] == row].tolist()
        # The whole has a few events after the tail: find the tail from the end on. A thread that
        # ends as the last time begins has one or two events in it.
        text, part = list(zip(kinds, functions, strict=True)), list(zip(words, seen, strict=True))
        if part:
            last = part[-3:]
            ends = [
                end
                for end in range(len(part), len(text) + 1)
                if text[end - len(last) : end] == last
            ]
            assert any(text[end - len(part) : end] == part for end in reversed(ends))
    opened = tail.calls["name"][(tail.calls["flags"] & 1) != 0].tolist()
    assert "open" in opened


def test_the_last_time_is_as_long_as_asked():
    with eventprof.record(memory=False) as rec:
        busy(10)
        time.sleep(0.05)
        busy(10)
        tail = rec.snapshot(last="20 ms")
        longer = rec.snapshot(last="3600 s")
    assert abs(tail.duration - 20_000_000) <= 2
    assert 50_000_000 < longer.duration < rec.trace.duration
    assert (tail.calls["name"] == "step").sum() <= 10
    assert (longer.calls["name"] == "step").sum() == 20
    assert rec.snapshot(last="3600 s").duration == rec.trace.duration


def test_a_wrong_time_is_refused():
    rec = eventprof.record(memory=False)
    with pytest.raises(eventprof.StateError, match="never started"):
        rec.snapshot(last="1 s")
    with rec:
        with pytest.raises(ValueError, match="last"):
            rec.snapshot(last="1 parsec")
        with pytest.raises(TypeError, match="last"):
            rec.snapshot(last=1.5)


def test_an_archive_of_a_ring_in_a_span_opens(tmp_path):
    """The span's begin is lost, and it is open where the kept events begin."""
    rec = eventprof.record(buffer="1 MiB", memory=False)
    rec._warns = False
    with rec, eventprof.span("long"):
        busy(100_000)
    assert rec.trace.loss
    rec.trace.save(tmp_path / "ring.epr")
    trace = eventprof.open(tmp_path / "ring.epr")
    assert trace.calls["name"].tolist() == rec.trace.calls["name"].tolist()
    spans = (trace.calls["name"] == "long") & ((trace.calls["flags"] & 1) != 0)
    assert spans.sum() == 1


# ---- Triggers ----------------------------------------------------------------------------------


def test_a_watch_that_is_slow_writes_a_file(tmp_path):
    flight = flight_recorder(tmp_path)
    with flight:
        with flight.watch("quick", longer_than="3600 s"):
            busy(10)
        with flight.watch("slow", longer_than="1 ms"):
            busy(10)
            time.sleep(0.01)
        assert flight.wait(30)
        (written,) = flight.written
    assert written.trigger == "slow"
    assert written.reason.startswith("slow took ")
    assert written.value > 10_000_000
    assert written.size_bytes == os.path.getsize(written.path)
    assert os.path.dirname(written.path) == str(tmp_path)
    trace = eventprof.open(written.path)
    assert trace.verify()
    assert trace.duration == written.covers_ns
    assert {"quick", "slow"} <= set(trace.spans["name"].tolist())
    assert "flight recorder: slow" in trace.marks["name"].tolist()
    assert trace.metadata["flight"]["reason"] == written.reason
    report = children.eventprof("report", written.path)
    assert "a flight recorder kept the last" in report.stdout
    assert "slow took" in report.stdout


def test_a_watch_that_raises_writes_a_file(tmp_path):
    flight = flight_recorder(tmp_path)
    with flight:
        for error in (KeyError, ValueError):
            with pytest.raises(error), flight.watch("part", raises=(LookupError, OSError)):
                raise error("text")
        assert flight.wait(30)
    assert [file.reason for file in flight.written] == ["part raised KeyError"]


@pytest.mark.parametrize("more", [{"pause": "10 s"}, {"pause": "0 s", "which": "worst"}])
def test_slow_parts_keep_no_failure_away(tmp_path, more):
    flight = flight_recorder(tmp_path, keep=1, **more)
    with flight:
        with flight.watch("part", longer_than=0, raises=KeyError):
            time.sleep(0.002)
        assert flight.wait(30)
        with pytest.raises(KeyError), flight.watch("part", longer_than=0, raises=KeyError):
            raise KeyError
        assert flight.wait(30)
    assert [file.trigger for file in flight.written] == ["part", "part: KeyError"]


def test_a_watch_decorates_functions_and_coroutines(tmp_path):
    flight = flight_recorder(tmp_path)

    @flight.watch("function", longer_than=0)
    def function(n):
        return n + 1

    @flight.watch("coroutine", longer_than=0)
    async def coroutine(n):
        await asyncio.sleep(0)
        return n + 2

    async def both():
        return await asyncio.gather(coroutine(1), coroutine(2))

    with flight:
        assert function(1) == 2
        assert asyncio.run(both()) == [3, 4]
        assert flight.wait(30)
    assert sorted(file.trigger for file in flight.written) == ["coroutine", "coroutine", "function"]


def test_a_signal_writes_a_file_and_calls_the_handler_before(tmp_path):
    came = []
    before = signal.signal(signal.SIGUSR2, lambda *_: came.append(1))
    try:
        flight = flight_recorder(tmp_path, signal=signal.SIGUSR2)
        handler = signal.getsignal(signal.SIGUSR2)
        with flight:
            os.kill(os.getpid(), signal.SIGUSR2)
            assert flight.wait(30)
        assert signal.getsignal(signal.SIGUSR2) == handler
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert came == [1]
    assert [file.reason for file in flight.written] == ["signal SIGUSR2 came"]


GROWING = """
import eventprof, numpy as np, sys, time
limit = eventprof._core.resident_bytes() + (64 << 20)
with eventprof.flight_recorder("8 MiB", folder=sys.argv[1], pause=0, memory_above=limit) as flight:
    time.sleep(0.6)
    assert flight.written == ()
    held = np.ones(128 << 17)
    deadline = time.monotonic() + 60
    while not flight.written and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.6)
    (written,) = flight.written
assert written.trigger == "memory"
assert "the resident set is" in written.reason
"""


def test_more_memory_writes_a_file_once(tmp_path):
    """In a process of its own: where what earlier tests left is freed meanwhile, the resident set
    falls, and never comes above the limit."""
    children.program(GROWING, tmp_path)
    assert len(os.listdir(tmp_path)) == 1


PROGRAM = """
import eventprof, sys, threading
flight = eventprof.flight_recorder("8 MiB", "5 s", folder=sys.argv[1], uncaught=True, pause=0)
flight.start()
def work():
    return {}["key"]
if sys.argv[2] == "thread":
    thread = threading.Thread(target=work, name="worker")
    thread.start()
    thread.join()
else:
    work()
"""


@pytest.mark.parametrize("where", ["thread", "main"])
def test_an_uncaught_exception_writes_a_file(tmp_path, where):
    run = children.program(PROGRAM, tmp_path, where, status=int(where == "main"))
    assert "KeyError" in run.stderr
    (name,) = os.listdir(tmp_path)
    trace = eventprof.open(tmp_path / name)
    assert "work" in trace.calls["name"].tolist()
    ended = "worker" if where == "thread" else "the program"
    assert trace.metadata["flight"]["reason"] == f"an uncaught KeyError ended {ended}"


# ---- Which files stay --------------------------------------------------------------------------


def test_the_last_files_stay(tmp_path):
    flight = flight_recorder(tmp_path, keep=2)
    with flight:
        for n in range(5):
            flight.trigger(f"number {n}")
        assert flight.wait(30)
    assert [file.reason for file in flight.written] == ["number 3", "number 4"]
    assert sorted(os.listdir(tmp_path)) == sorted(
        os.path.basename(file.path) for file in flight.written
    )


def test_the_worst_files_stay(tmp_path):
    flight = flight_recorder(tmp_path, keep=2, which="worst")
    with flight:
        for took_ms in (10, 80, 1, 50):  # as a watch says it; a busy machine sleeps longer
            flight._took("part", took_ms * 1_000_000, None, 0, ())
        assert flight.wait(30)
    assert sorted(file.value for file in flight.written) == [50e6, 80e6]
    assert flight.skipped == 1
    assert len(os.listdir(tmp_path)) == 2


def test_a_pause_holds_between_files_of_one_trigger(tmp_path):
    flight = flight_recorder(tmp_path, pause="3600 s")
    with flight:
        for name in ("a", "b", "a", "a"):
            with flight.watch(name, longer_than=0):
                pass
        assert flight.wait(30)
    assert [file.trigger for file in flight.written] == ["a", "b"]
    assert flight.skipped == 2


def test_what_is_written_is_handed_on(tmp_path):
    given = []
    flight = flight_recorder(tmp_path, on_written=given.append)
    with flight:
        flight.trigger()
        assert flight.wait(30)
    assert tuple(given) == flight.written


# ---- Faults ------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_written_is_told_and_harms_nothing(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    flight = flight_recorder(tmp_path / "file" / "folder")
    with flight:
        flight.trigger()
        assert flight.wait(30)
        busy(10)
    assert flight.written == ()
    (error,) = flight.errors
    assert "no file was written: NotADirectoryError" in error
    assert "no file was written" in caplog.text


def test_a_function_that_fails_is_told(tmp_path):
    flight = flight_recorder(tmp_path, on_written=lambda written: 1 / 0)
    with flight:
        flight.trigger()
        assert flight.wait(30)
    assert len(flight.written) == 1
    assert "ZeroDivisionError" in flight.errors[0]


def test_write_to_refuses_an_existing_file(tmp_path):
    flight = flight_recorder(tmp_path)
    with flight:
        busy(10)
        flight.write_to(tmp_path / "mine.epr")
        with pytest.raises(FileExistsError):
            flight.write_to(tmp_path / "mine.epr")
        flight.write_to(tmp_path / "mine.epr", force=True)
    assert "step" in eventprof.open(tmp_path / "mine.epr").calls["name"].tolist()
    assert flight.written == ()


def test_wrong_arguments_are_refused(tmp_path):
    for wrong, error in (
        ({"min_age": 0}, ValueError),
        ({"min_age": "soon"}, ValueError),
        ({"keep": 0}, ValueError),
        ({"keep": True}, TypeError),
        ({"which": "first"}, ValueError),
        ({"output": "x.epr"}, TypeError),
        ({"on_full": "stop"}, TypeError),
        ({"on_written": 1}, TypeError),
        ({"signal": 4711}, ValueError),
        ({"signal": True}, TypeError),
        ({"signal": "SIGUSR2"}, TypeError),
        ({"folder": 3}, TypeError),
        ({"uncaught": "no"}, TypeError),
        ({"memory_above": "much"}, ValueError),
        ({"nonsense": 1}, TypeError),
    ):
        with pytest.raises(error, match=next(iter(wrong))):
            flight_recorder(**{"folder": tmp_path, **wrong})
    with pytest.raises(TypeError, match="no argument 'kep'; did you mean 'keep'"):
        flight_recorder(tmp_path, kep=3)
    flight = flight_recorder(tmp_path)
    with pytest.raises(ValueError, match="longer_than= or raises="):
        flight.watch("part")
    with pytest.raises(TypeError, match="types of exceptions"):
        flight.watch("part", raises="KeyError")
    with pytest.raises(eventprof.StateError):
        flight.write_to(tmp_path / "x.epr")
    with pytest.raises(eventprof.StateError):
        flight.stop()
    flight.trigger()  # it does not run: nothing happens
    assert flight.wait(1)


def test_a_signal_needs_the_main_thread(tmp_path):
    flight = flight_recorder(tmp_path, signal=signal.SIGUSR2)
    caught = []

    def start():
        try:
            flight.start()
        except eventprof.StateError as error:
            caught.append(str(error))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert "main thread" in caught[0]
    assert flight.recorder.state == "new"


def test_a_signal_that_cannot_be_caught_is_refused(tmp_path):
    flight = flight_recorder(tmp_path, signal=signal.SIGKILL)
    with pytest.raises(OSError):
        flight.start()
    assert flight.recorder.state == "stopped"


FORK = """
import eventprof, os, sys
flight = eventprof.flight_recorder("8 MiB", "5 s", folder=sys.argv[1], pause=0)
with flight:
    flight.trigger("parent")
    flight.wait(30)
    child = os.fork()
    if child == 0:
        flight.trigger("child")
        os._exit(0 if flight.wait(30) and len(flight.written) == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(flight.written) == 1
"""


def test_a_forked_child_writes_its_own(tmp_path):
    children.program(FORK, tmp_path, flags=["-W", "ignore"])
    reasons = {
        eventprof.open(tmp_path / name).metadata["flight"]["reason"]
        for name in os.listdir(tmp_path)
    }
    assert reasons == {"parent", "child"}


def test_blocks_pass_between_the_helper_thread_and_the_program(tmp_path, backend):
    """The interpreter's free lists give what one thread allocated to another, which frees it."""

    def churn():
        held = []
        for n in range(8_000):
            held.append([n] * (n % 50 + 1))
            if len(held) > 200:
                held.clear()

    refs = sys.version_info >= (3, 13)
    with eventprof.record(buffer="256 MiB", backend=backend, refs=refs) as rec:
        with flight_recorder(tmp_path, min_age="50 ms", keep=2) as flight:
            for _ in range(4):
                churn()
                flight.trigger()
                churn()
                assert flight.wait(60)
        gc.collect()  # frees what is in the free lists
        churn()

    assert len(flight.written) == 2
    found = rec.trace.verify()
    assert found, found
    # The helper thread's memory is there, its calls are not.
    events = rec.trace.events
    helper = rec.trace.threads["name"].tolist().index("eventprof flight recorder")
    kinds = set(events["event"][events["thread"] == helper].tolist())
    assert {"malloc", "free"} <= kinds
    assert not kinds & {"call", "c_call", "return", "c_return"}


def test_it_starts_again(tmp_path):
    flight = flight_recorder(tmp_path)
    for n in range(3):
        with flight:
            flight.trigger(f"number {n}")
    assert [file.reason for file in flight.written] == ["number 0", "number 1", "number 2"]


@pytest.mark.thorough
def test_memory_does_not_grow(tmp_path):
    flight = flight_recorder(tmp_path, buffer="2 MiB", min_age="10 ms", keep=1)
    with flight:
        held = []
        for n in range(30):
            busy(20_000)
            flight.trigger(f"number {n}")
            assert flight.wait(30)
            held.append(flight.recorder.stats["all_chunk_bytes"])
    assert max(held[10:]) <= max(held[:10]) + (4 << 20)
