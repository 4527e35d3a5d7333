"""`Trace.verify`: no finding in recordings of programs, even if events were lost; a finding for each damage. In which way
each damage is found is tests/c/test_verify.c's."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import queue
import struct
import threading
from pathlib import Path

import children
import footprint
import nasty
import programs
import pytest
import raw
from archiving import open_or_skip
from read_log import HEADER_OFFSETS

import eventprof
from eventprof.answers import verification

DATA = Path(__file__).resolve().parents[2] / "data"
NAMES = ["generators", "coroutines", "json", "logging", "pickle", "tokenize", "deltablue"]


def recorded(run, **options):
    with eventprof.record(**{"buffer": "64 MiB", "on_full": "grow", **options}) as rec:
        run()
    return rec.trace


def assert_right(trace):
    found = trace.verify()
    assert found.ok, str(found)
    assert found.events == len(trace.events)
    return found


# ---- What programs do ----------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("name", [*NAMES, "nasty", "footprint"])
def test_a_program_is_right_and_nothing_needs_an_excuse(name, memory, backend):
    run = {"nasty": nasty.run, "footprint": footprint.run}.get(name) or programs.program(name)

    trace = recorded(run, memory=memory, backend=backend)

    found = assert_right(trace)
    # The profile hook's own blocks may be freed in it: verification._has_hook_frees.
    hook_frees = {"freed_twice"} if memory and backend == "profile" else set()
    assert set(found.excused) <= hook_frees


def work_in_threads():
    handed: queue.SimpleQueue = queue.SimpleQueue()

    def make():
        for i in range(2000):
            handed.put([bytearray(i % 700), str(i), {i: i}])
        handed.put(None)

    def take():
        kept = []
        while (got := handed.get()) is not None:
            kept.append(got)
            if len(kept) > 50:
                kept.clear()

    threads = [threading.Thread(target=f) for f in (make, take, make, take)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)


def work_in_asyncio():
    async def child(n):
        await asyncio.sleep(0)
        if n % 3 == 0:
            raise ValueError(n)
        return [n] * n

    async def numbers():
        for i in range(20):
            await asyncio.sleep(0)
            yield i

    async def main():
        for _ in range(10):
            await asyncio.gather(*(child(n) for n in range(20)), return_exceptions=True)
        async with asyncio.timeout(60):
            return [i async for i in numbers()]

    asyncio.run(main())


def work_in_generators():
    def count(n):
        try:
            while n:
                n -= 1
                yield n
        finally:
            len("closed")

    def both(a, b):
        yield from a
        try:
            yield from b
        except KeyError:
            yield -1

    runs = [both(count(i), count(50)) for i in range(30)]
    for each in runs[:10]:
        next(each)
        each.close()
    for each in runs[10:20]:
        for _ in range(40):
            next(each)
        each.throw(KeyError)
    sorted([[each, next(each)][1] for each in runs[21:]], key=lambda n: -n)


def work_deep():
    def down(n):
        kept = bytearray(n)
        return down(n - 1) + len(kept) if n else 0

    for _ in range(20):
        down(600)


WORKS = {
    "threads": work_in_threads,
    "asyncio": work_in_asyncio,
    "generators": work_in_generators,
    "deep": work_deep,
}


@pytest.mark.parametrize("name", WORKS)
def test_threads_tasks_generators_and_deep_calls_are_right(name, backend):
    trace = recorded(WORKS[name], backend=backend)

    assert_right(trace)


@pytest.mark.thorough
@pytest.mark.parametrize("on_full", ["overwrite", "stop"])
@pytest.mark.parametrize("name", ["threads", "deep"])
def test_what_a_full_buffer_lost_is_excused(name, on_full, backend):
    def several():
        for _ in range(6):
            WORKS[name]()

    trace = recorded(several, buffer="2 MiB", on_full=on_full, backend=backend)

    assert trace.loss
    assert_right(trace)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "options",
    [
        {"include": ["test_verify.*"]},
        {"exclude": ["stdlib"]},
        {"max_depth": 3},
        {"min_duration": "5 us"},
        {"threads": "current"},
        {"events": ["return", "malloc", "c_call"]},
        {"memory": ["obj"]},
        {"c_calls": False},
        {"calls": False},
        {"calls": False, "c_calls": False},
    ],
    ids=str,
)
def test_what_was_left_out_is_excused(options, backend):
    def run():
        work_in_threads()
        work_in_generators()

    trace = recorded(run, backend=backend, **options)

    assert_right(trace)


def test_a_window_in_the_middle_of_calls_of_c_is_right(backend):
    rec = eventprof.record(backend=backend)

    def key(n):
        if n == 3:
            rec.start()
        return -n

    def inside(n):
        return sorted(range(n), key=key)

    # From inside of sorted's key function, on to the end of what was open then.
    assert list(map(inside, [7])) == [[6, 5, 4, 3, 2, 1, 0]]
    [].append(1)
    rec.stop()

    found = assert_right(rec.trace)
    assert set(found.excused) <= {"end_without_call", "end_of_another"}


def test_a_snapshot_of_a_running_recorder_is_right(backend):
    with eventprof.record(backend=backend) as rec:
        work_in_generators()
        found = rec.snapshot().verify()

    assert found.ok, str(found)


# ---- Records, archives, merged traces ------------------------------------------------------------


def test_records_are_looked_at_while_they_are_there():
    with eventprof.record() as rec:
        work_in_generators()

    first = rec.trace._core.verify(1, False, False, False, False, False)
    assert first[3] is not None  # conftest.py's check came first
    assert first[3][0] >= len(rec.trace.events)

    with eventprof.record() as rec:
        work_in_generators()
    core = rec._capture()
    core.facts()  # decodes them
    assert core.verify(1, False, False, False, False, False)[3] is None


def test_archives_and_merged_traces_are_right(tmp_path):
    parts = [recorded(work_in_generators), recorded(work_in_threads)]
    for i, part in enumerate(parts):
        part.save(tmp_path / f"{i}.epr")

    opened = [eventprof.open(tmp_path / f"{i}.epr") for i in range(2)]

    for part in opened:
        assert assert_right(part).records is None
    assert_right(eventprof.merge(opened))
    assert_right(eventprof.merge(parts))


@pytest.mark.parametrize(
    "packed", sorted((DATA / "log").glob("*.epr.gz")), ids=lambda path: path.stem
)
def test_a_file_that_was_kept_is_right_and_so_is_an_archive_of_it(packed, tmp_path):
    path = tmp_path / packed.stem
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    trace = open_or_skip(path)
    found = trace.verify()
    assert found.ok, str(found)
    # An archive has no records.
    assert found.records >= found.events if trace.file["format"] == "log" else not found.records
    trace.save(tmp_path / "again.epr", force=True)
    assert_right(eventprof.open(tmp_path / "again.epr"))


# ---- Files of programs that were killed, and damaged ones ----------------------------------------

PROGRAM = """
import os, sys, eventprof

def inner(n):
    return [bytes(n)] * 3

def outer(n):
    return sum(len(inner(i)) for i in range(n))

rec = eventprof.record(output=sys.argv[1])
rec.start()
for _ in range(30):
    outer(60)
{end}
"""


def run_program(path, end):
    return children.program(PROGRAM.format(end=end), path, status=None).returncode


@pytest.fixture
def killed(tmp_path):
    path = tmp_path / "killed.epr"
    assert run_program(path, "os.kill(os.getpid(), 9)") == -9
    return path


def command(*words):
    done = children.eventprof("verify", *words, status=None)
    return done.returncode, done.stdout, done.stderr


def test_the_file_of_a_killed_program_is_right(killed):
    trace = eventprof.open(killed)

    found = trace.verify()

    assert found.ok, str(found)
    assert trace.file["unfinished"]
    assert found.records >= found.events > 1000
    assert "nothing is wrong" in repr(found)


WORD = struct.Struct("<Q")


def swap_a_call_and_its_end(path):
    """Swap two records that follow each other in the log; give the name of the function."""
    content = bytearray(path.read_bytes())
    call, back = raw.KIND["CALL"], raw.KIND["RETURN"]
    slot = struct.unpack_from("<Q", content, HEADER_OFFSETS["head_bytes"])[0]
    while slot < len(content):
        offset, slot = slot + 128, slot + struct.unpack_from("<I", content, slot + 96)[0]
        if content[offset - 128 : offset - 124] != b"EVPC":
            continue
        while offset + 8 < min(slot, len(content)):
            (word,), (after,) = (
                WORD.unpack_from(content, offset),
                WORD.unpack_from(content, offset + 8),
            )
            kind = word >> 25 & 127
            if word == 0:
                break
            if kind == call and after >> 25 & 127 == back:
                WORD.pack_into(content, offset, after)
                WORD.pack_into(content, offset + 8, word)
                path.write_bytes(content)
                return
            offset += 8 if kind <= raw.KIND["C_EXCEPTION"] else 16
    raise AssertionError("no call of one function alone")


@pytest.fixture
def damaged(tmp_path):
    path = tmp_path / "damaged.epr"
    program = "def leaf(): pass\nfor _ in range(2000): leaf()\nos.kill(os.getpid(), 9)"
    assert run_program(path, program) == -9
    swap_a_call_and_its_end(path)
    return path


def test_damage_is_named_with_its_place_and_what_was_expected(damaged):
    trace = eventprof.open(damaged)

    found = trace.verify()

    assert not found
    assert not found.ok
    (first,) = found.findings
    assert first.sort in ("end_of_another", "end_without_call")
    assert trace.events["event"][first.row] == "return"
    assert trace.events["thread"][first.row] == first.thread
    assert trace.events["time"][first.row] == first.time
    assert "return of 'leaf'" in first.what
    assert f"event {first.row:,}" in str(found)
    assert first.sort in verification.SORTS
    every = trace.verify(all=True, limit=5)
    assert every.findings[0] == first
    assert len(every.findings) == min(5, sum(every.counts.values()))
    assert "expected" in repr(every)


def test_limit_must_be_one_at_least():
    trace = recorded(lambda: None)

    with pytest.raises(ValueError, match="limit must be 1 or more"):
        trace.verify(limit=0)


@pytest.mark.thorough
def test_command_says_it_and_its_status_is_0_1_or_2(killed, damaged, tmp_path):
    assert command(killed) == (0, f"{killed}: {eventprof.open(killed).verify()}\n", "")

    status, printed, _ = command(killed, damaged)
    assert status == 1
    assert len(printed.splitlines()) >= 2
    assert "return of 'leaf'" in printed

    status, printed, _ = command(killed, damaged, "--json", "--all", "--limit", 3)
    assert status == 1
    first, second = json.loads(printed)["rows"]
    assert (first["ok"], second["ok"]) == (True, False)
    assert first["file"] == str(killed)
    assert 1 <= len(second["findings"]) <= 3
    assert second["findings"][0]["sort"] in second["counts"]

    missing = tmp_path / "missing.epr"
    other = tmp_path / "other.epr"
    other.write_text("something else")
    (tmp_path / "empty").mkdir()
    for words in ((missing,), (other,), (tmp_path / "empty",), (missing, damaged)):
        status, _, complaint = command(*words)
        assert status == 2
        assert len(complaint.splitlines()) == 1
    assert command(killed, "--limit", 0)[0] == 2


def cut_archive(path):
    """Cut the last of two sections of events off an archive."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 4 // 5])


def lossy(path):
    """Record more than a ring has room for."""
    with eventprof.record(output=path, buffer="4 MiB", on_full="overwrite"):
        for _ in range(10):
            work_in_threads()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", ["log", "packed", "lossy", "archive", "cut", "damaged", "merged"])
def test_files_are_verified_in_one_pass_and_as_their_columns_are(kind, damaged, tmp_path):
    path = damaged if kind == "damaged" else tmp_path / "file.epr"
    if kind in ("log", "packed"):
        with eventprof.record(output=path, archive=kind == "packed"):
            work_in_threads()
    elif kind == "lossy":
        lossy(path)
    elif kind in ("archive", "cut"):
        recorded(lambda: [work_in_threads() for _ in range(6)]).save(path)
    else:
        lossy(tmp_path / "part.epr")
    if kind == "cut":
        cut_archive(path)

    def opened():
        if kind != "merged":
            return eventprof.open(path)
        return eventprof.merge([eventprof.open(damaged), eventprof.open(tmp_path / "part.epr")])

    streamed, columns = opened(), opened()
    found = streamed.verify(all=True)
    assert not streamed._core.has_columns()
    assert len(columns.events)
    expected = columns.verify(all=True)
    assert columns._core.has_columns()

    assert {**found.as_dict(), "records": None} == {**expected.as_dict(), "records": None}
    assert found.ok == (kind not in ("cut", "damaged", "merged"))
    # The records are looked at in the same pass, each once.
    assert (found.records is None) == (kind in ("archive", "cut", "merged"))
    assert streamed.verify(all=True).as_dict() == found.as_dict()


def test_a_part_that_is_missing_is_a_finding_and_excuses_the_rest(tmp_path):
    path = tmp_path / "cut.epr"
    recorded(work_in_threads).save(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3])

    with pytest.warns(RuntimeWarning):
        trace = eventprof.open(path)
    found = trace.verify(all=True)

    assert not found.ok
    assert set(found.counts) == {"damaged"}
    assert found.findings[0].sort == "damaged"
    assert command(path)[0] == 1


def test_no_thread_waits_while_a_trace_is_verified():
    trace = recorded(work_in_threads)
    trace.verify()
    go, steps = threading.Event(), []

    def count():
        while not go.wait(0):
            steps.append(1)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        while not steps:
            os.sched_yield()
        for _ in range(1000):
            before = len(steps)
            assert trace.verify().ok
            if len(steps) > before:
                break
        else:
            pytest.fail("no step of another thread in 1,000 verifications")
    finally:
        go.set()
        thread.join(60)
