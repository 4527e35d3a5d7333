"""record(output=, archive=True): the packed file is the trace, whatever ends the program."""

from __future__ import annotations

import json
import struct
import textwrap
import threading

import numpy as np
import programs
import pytest
from log_children import (
    assert_as_read_independently,
    assert_same,
    facts,
    kill_one,
    run_child,
    run_to_end,
    size_at,
    slots_of,
    work,
)

import eventprof

pytestmark = pytest.mark.usefixtures("restored")

PACKED, AS_WRITTEN = b"EVPP", b"EVPC"


def chunks(path):
    """Return offset and length of each packed slot, and of each slot of unpacked events."""
    data = path.read_bytes()
    found = {PACKED: [], AS_WRITTEN: []}
    for offset in slots_of(data):
        state, wanted = (
            struct.unpack_from("<I", data, offset + 4)[0],
            any(data[offset + 80 : offset + 88]),
        )
        if data[offset : offset + 4] in found and state and wanted:
            found[data[offset : offset + 4]].append((offset, size_at(data, offset)))
    return found[PACKED], found[AS_WRITTEN]


def packed_slots(path):
    return [offset for offset, _ in chunks(path)[0]]


# ---- The same as in memory -----------------------------------------------------------------------


@pytest.mark.parametrize("on_full", ["overwrite", "stop", "grow"])
def test_each_policy(on_full, tmp_path):
    path = tmp_path / "a.epr"
    rec = eventprof.record(output=path, buffer="1 MiB", on_full=on_full, archive=True)
    with rec:
        for _ in range(20):
            work(4000)

    trace = eventprof.open(path)

    assert_same(trace, rec.trace)
    assert packed_slots(path)
    assert trace.file["version"] == (3, 0) and trace.file["missing"] == []
    assert trace.verify()
    assert rec._count()[:2] == (len(trace.events), trace.loss.total)
    if on_full == "grow":
        # Not the file's size: it has the names of all that this process has recorded, too.
        packed, rest = chunks(path)
        assert sum(size for _, size in packed) < 2 * len(trace.events) and not trace.loss
        assert all(size <= 8192 for _, size in rest)


def test_more_events_have_room_in_the_same_buffer(tmp_path):
    kept = []
    for archive in (False, True):
        with eventprof.record(
            output=tmp_path / f"{archive}.epr", buffer="4 MiB", on_full="stop", archive=archive
        ) as rec:
            for _ in range(10):
                work(60_000)
        kept.append(len(rec.trace.events))

    assert kept[1] > 4 * kept[0]


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["json", "generators"])
def test_a_program(name, backend, tmp_path):
    run = programs.program(name)
    rec = eventprof.record(output=tmp_path / "a.epr", backend=backend, on_full="grow", archive=True)
    with rec:
        run()

    assert_same(eventprof.open(rec.output), rec.trace)


def test_threads_snapshots_and_a_recorder_beside(tmp_path):
    rec = eventprof.record(output=tmp_path / "a.epr", on_full="grow", archive=True)
    held = []
    with rec:
        threads = [threading.Thread(target=work, args=(30_000,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        with eventprof.record() as beside:
            work(30_000)
            held.append(rec.snapshot())  # not decoded: its chunks stay
            work(30_000)
        for thread in threads:
            thread.join()
        work(30_000)

    assert_same(eventprof.open(rec.output), rec.trace)
    assert beside.trace.verify() and held[0].verify()


def test_a_forked_child_packs_its_own(tmp_path):
    code = """
        import os, sys, eventprof
        def step(i):
            return i
        def work(n):
            return [step(i) for i in range(n)]
        rec = eventprof.record(output=sys.argv[1], on_full="grow", archive=True)
        with rec:
            work(60_000)
            child = os.fork()
            work(80_000)
            if child == 0:
                rec.stop()
                os._exit(0)
            os.waitpid(child, 0)
    """
    path = tmp_path / "a.epr"
    assert run_to_end(code, path)[0] == 0

    own, (child,) = path, [p for p in tmp_path.iterdir() if p != path]
    for each, count in ((own, 140_000), (child, 80_000)):
        trace = eventprof.open(each)
        assert packed_slots(each) and trace.verify() and not trace.loss
        assert np.sum(trace.calls["name"] == "step") == count


# ---- Read while it is written, and after a kill --------------------------------------------------


def test_a_running_program_can_be_read_at_any_time(tmp_path):
    code = """
        import sys, eventprof
        def leaf(n):
            return n
        with eventprof.record(output=sys.argv[1], memory=False, c_calls=False, on_full="grow",
                              archive=True):
            for n in range(400_000):
                leaf(n)
                if n % 4000 == 0:
                    print(n, flush=True)
        print(400_000)
    """
    path = tmp_path / "a.epr"
    child = run_child(textwrap.dedent(code), path)
    seen = 0
    with child.stdout:
        for number, line in enumerate(child.stdout):
            if number % 12 == 4:
                trace = eventprof.open(path)
                assert trace.file["missing"] == []
                found = int(np.sum(trace.calls["name"] == "leaf"))
                assert found >= int(line) and found >= seen
                seen = found
    assert child.wait() == 0

    assert int(np.sum(eventprof.open(path).calls["name"] == "leaf")) == 400_000


@pytest.mark.thorough
def test_a_killed_program_has_all_on_file(tmp_path):
    for number in range(4):
        kill_one(number, tmp_path, archive=True)


@pytest.mark.long
def test_a_hundred_killed_programs_have_all_on_file(tmp_path):
    for number in range(4, 104):
        kill_one(number, tmp_path, archive=True)


# ---- The specification, damage, errors -----------------------------------------------------------


@pytest.mark.thorough
def test_the_specification(tmp_path):
    rec = eventprof.record(output=tmp_path / "a.epr", on_full="grow", archive=True)
    with rec:
        with eventprof.span("a span"):
            work(25_000)
            eventprof.counter("c", 1.5)
        try:
            json.loads("{")
        except ValueError:
            pass

    assert packed_slots(tmp_path / "a.epr")
    assert assert_as_read_independently(rec.output).finished


def test_damage_is_told_by_chunk(tmp_path):
    path = tmp_path / "a.epr"
    with eventprof.record(output=path, memory=False, on_full="grow", archive=True) as rec:
        work(150_000)
    count = len(rec.trace.events)
    offset = packed_slots(path)[-1]
    with open(path, "r+b") as file:
        file.seek(offset + 300)
        file.write(b"\xff" * 64)

    trace = eventprof.open(path)

    assert 0 < len(trace.events) < count
    (note,) = trace.file["missing"]
    assert f"chunk at offset {offset}: " in note
    assert facts(trace)["missing_count"] == 1
    assert not trace.verify()


def test_a_file_is_needed():
    with pytest.raises(ValueError, match=r"archive=True packs the file of output: pass output"):
        eventprof.record(archive=True)
    with pytest.raises(TypeError, match="archive"):
        eventprof.record(output="a.epr", archive="yes")


def test_no_thread_is_left_and_forks_do_not_warn(tmp_path):
    code = """
        import os, sys, time, warnings
        os.environ["OPENBLAS_NUM_THREADS"] = "1"  # NumPy's library has threads of its own
        import eventprof
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with eventprof.record(output=sys.argv[1], on_full="grow", archive=True):
                for _ in range(5):
                    [str(i) for i in range(30_000)]
                    if (child := os.fork()) == 0:
                        os._exit(0)
                    os.waitpid(child, 0)
        print(*said)
        tasks = "/proc/self/task"
        for _ in range(200):  # the kernel may count for a while a thread that has ended
            if not os.path.exists(tasks) or len(os.listdir(tasks)) == 1:
                sys.exit(0)
            time.sleep(0.01)
        sys.exit(1)
    """

    assert run_to_end(code, tmp_path / "a.epr") == (0, b"\n")
