"""Saving and opening: the same trace, here, elsewhere, and by a reader of the format's page."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from pathlib import Path

import archiving
import nasty
import numpy as np
import programs
import pytest
import read_archive
from archiving import (
    DATA,
    assert_same,
    assert_same_answers,
    digest,
    recorded,
    saved_and_opened,
    work,
)

import eventprof
from eventprof import _core
from eventprof.files import opening

# ---- Identity ------------------------------------------------------------------------------------


def random_program(seed):
    chosen = random.Random(seed)
    kept = []

    def fails(depth):
        if depth:
            fails(depth - 1)
        raise ValueError

    def numbers(count):
        for i in range(count):
            yield bytes(i)

    def step(depth):
        for _ in range(chosen.randrange(6)):
            what = chosen.randrange(7)
            if what == 0 and depth < 20:
                step(depth + 1)
            elif what == 1:
                kept.append(bytearray(chosen.randrange(2000)))
            elif what == 2 and kept:
                del kept[chosen.randrange(len(kept))]
            elif what == 3:
                sum(map(len, numbers(chosen.randrange(5))))
            elif what == 4:
                try:
                    fails(chosen.randrange(4))
                except ValueError:
                    pass
            elif what == 5 and kept:
                kept[-1].extend(b"-" * chosen.randrange(5000))
            else:
                sorted(map(str, range(chosen.randrange(9))))

    def run():
        for _ in range(200):
            step(0)

    return run


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(5))
def test_a_random_program_comes_back(seed, tmp_path):
    trace = recorded(random_program(seed))

    opened = saved_and_opened(trace, tmp_path)

    assert_same(trace, opened)
    assert_same_answers(trace, opened)


@pytest.mark.thorough
@pytest.mark.parametrize("part", nasty.PARTS, ids=lambda part: part.__name__)
def test_a_nasty_program_comes_back(part, tmp_path):
    trace = recorded(lambda: nasty.run([part]))

    opened = saved_and_opened(trace, tmp_path)

    assert_same(trace, opened)
    assert_same_answers(trace, opened)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "options",
    [
        {"memory": False},
        {"calls": False, "c_calls": False},
        {"memory": ["raw"], "c_calls": False},
        {"include": ["programs", "json.*"]},
        {"threads": "current"},
        {"clock": "monotonic"},
        {"events": ["malloc", "free"]},
    ],
    ids=repr,
)
def test_each_kind_of_recording_comes_back(options, tmp_path):
    trace = recorded(programs.program("json"), **options)

    assert_same(trace, saved_and_opened(trace, tmp_path))


@pytest.mark.thorough
@pytest.mark.parametrize("on_full", ["overwrite", "stop"])
def test_loss_comes_back(on_full, tmp_path):
    run = programs.program("richards")
    trace = recorded(lambda: [run() for _ in range(2)], buffer="1 MiB", on_full=on_full)
    assert trace.loss

    assert_same(trace, saved_and_opened(trace, tmp_path))


def test_many_threads_and_calls_open_at_the_start_come_back(tmp_path):
    go = threading.Event()

    def body(n):
        go.wait()
        work(n)

    threads = [threading.Thread(target=body, args=(i,), name=f"t{i}\udc80") for i in range(20)]
    for thread in threads:
        thread.start()

    def run():
        go.set()
        for thread in threads:
            thread.join()

    trace = recorded(run)

    opened = saved_and_opened(trace, tmp_path)

    assert_same(trace, opened)
    assert any(name == "t7\udc80" for name in opened.threads["name"].tolist())


def test_a_trace_of_nothing_comes_back(tmp_path):
    trace = recorded(lambda: None, calls=False, c_calls=False, memory=["raw"])

    assert_same(trace, saved_and_opened(trace, tmp_path))


def test_what_was_paired_before_saving_makes_no_difference(tmp_path):
    rec = eventprof.record()
    with rec:
        kept = work()
    kept.clear()
    first, second = rec._make_trace(), rec._make_trace()
    assert len(second.allocations) > 0

    for trace, name in ((first, "first"), (second, "second")):
        trace.save(tmp_path / name)

    assert digest(eventprof.open(tmp_path / "first")) == digest(eventprof.open(tmp_path / "second"))


def test_an_opened_trace_can_be_saved_again(trace, tmp_path):
    opened = saved_and_opened(trace, tmp_path)
    opened.save(tmp_path / "again.epr")

    assert_same(trace, eventprof.open(tmp_path / "again.epr"))


def test_an_opened_trace_can_be_saved_over_itself(trace, saved):
    opened = eventprof.open(saved)
    opened.save(saved, force=True)

    assert_same(trace, eventprof.open(saved))


def test_a_snapshot_can_be_saved(tmp_path):
    with eventprof.record() as rec:
        work()
        snapshot = rec.snapshot()
        snapshot.save(tmp_path / "snapshot.epr")
        work()

    assert_same(snapshot, eventprof.open(tmp_path / "snapshot.epr"))


def test_opening_twice_gives_equal_traces(trace, saved):
    first, second = eventprof.open(saved), eventprof.open(saved)

    assert first is not second
    assert_same(first, second)
    sites = _core.engine_stats()["sites"]
    assert_same(trace, eventprof.open(saved))
    assert _core.engine_stats()["sites"] == sites


def test_the_events_are_still_there_when_the_file_is_gone(trace, saved):
    opened = eventprof.open(saved)
    saved.unlink()

    assert_same(trace, opened)


def test_metadata_keeps_its_structure(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["prog\udcff", "", 'a"b\n'])
    trace = recorded(work, include=["x*", "*"])

    metadata = saved_and_opened(trace, tmp_path).metadata

    assert metadata == trace.metadata
    assert metadata["argv"] == ("prog\udcff", "", 'a"b\n')
    assert metadata["options"]["include"] == ("x*", "*")


# ---- Other processes -----------------------------------------------------------------------------


READ = """
import sys
sys.path.insert(0, {tests!r})
import archiving, eventprof
print(archiving.digest(eventprof.open(sys.argv[1])))
"""


@pytest.mark.thorough
def test_several_processes_read_the_same(trace, saved):
    code = READ.format(tests=str(Path(archiving.__file__).parent))
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(saved)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]

    found = {reader.communicate(timeout=900)[0].strip() for reader in readers}

    assert found == {digest(trace)}
    assert [reader.returncode for reader in readers] == [0, 0, 0]


def test_threads_may_ask_an_opened_trace_at_once(trace, saved):
    opened, found = eventprof.open(saved), []
    threads = [threading.Thread(target=lambda: found.append(digest(opened))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert set(found) == {digest(trace)}


# ---- The format, by its page ---------------------------------------------------------------------


def has_zstandard():
    try:
        import zstandard  # noqa: F401
    except ImportError:
        return False
    return True


def assert_reads_alike(path):
    read, opened = read_archive.read(path), eventprof.open(path)
    core = opened._core
    events = read["events"]
    assert [row[0] for row in events] == core.events("time").tolist()
    assert [row[1] for row in events] == core.events("thread").tolist()
    assert [row[2] for row in events] == core.events("kind").tolist()
    # What a value has beside its site is no address, but of an object.
    addresses = [0 if row[2] in read_archive.WITHOUT_ADDRESS else row[4] or 0 for row in events]
    assert addresses == core.events("address").tolist()
    functions = core.functions()
    for row, function, line in zip(
        events, core.events("function").tolist(), core.events("line").tolist(), strict=True
    ):
        kind, number = row[2], row[3]
        callee, caller, _, site_line = (
            (number, 0, -1, -1) if kind in read_archive.CLOSES else read["sites"][number]
        )
        name = read["names"][callee or caller]
        is_call = kind < 10 or 40 <= kind < 46
        assert (functions[function] if function >= 0 else None) == (
            (*name[:3], name[3] if name[3] > 0 else None, name[4]) if callee or caller else None
        )
        assert line == (
            max(name[3], -1) or -1 if is_call and callee else -1 if is_call else site_line
        )
    sizes = [row[5] for row in events if row[2] in read_archive.ALLOCATIONS]
    kinds = core.events("kind")
    assert sizes == core.events("size")[np.isin(kinds, list(read_archive.ALLOCATIONS))].tolist()
    for ours, theirs in zip(core.threads(), read["threads"], strict=True):
        name, native_id, first, last, recorded, lost = ours
        assert theirs["recorded"] == recorded
        assert theirs["lost"] == lost
        assert (theirs["first"], theirs["last"]) == (first, last)
        assert (theirs["name"] if theirs["flags"] & 2 else None) == (
            name if theirs["flags"] & 1 else None
        )
        assert theirs["native_id"] == native_id or not theirs["flags"] & 1
    times, resident, recorder = core.resident()
    assert read["resident"] == list(zip(times.tolist(), resident.tolist(), strict=True))
    assert read["recorder"] == [(row, own) for row, own in enumerate(recorder.tolist()) if own]
    facts, recording = core.facts(), read["recording"]
    assert recording[0] == facts["kinds"] & (1 << 64) - 1
    asked = {kind for kind, was_asked, *_ in read["kinds"] if was_asked}
    assert asked == {kind for kind in range(128) if facts["kinds"] >> kind & 1}
    assert recording[2:4] == (facts["start_monotonic_ns"], facts["start_realtime_ns"])
    assert recording[5] == facts["clock_frequency_hz"]
    assert recording[9:11] == (facts["duration_ns"], facts["events"])
    return read


@pytest.mark.thorough
@pytest.mark.skipif(not has_zstandard(), reason="needs zstandard")
@pytest.mark.parametrize("name", ["nasty", "json", "generators"])
def test_a_reader_by_the_page_reads_what_we_write(name, tmp_path):
    run = nasty.run if name == "nasty" else programs.program(name)
    trace = recorded(run, waits=name == "nasty" and sys.platform == "linux")
    trace.save(tmp_path / "page.epr")

    read = assert_reads_alike(tmp_path / "page.epr")

    assert opening._tuples(read["metadata"]) == trace._recorder_metadata


@pytest.mark.parametrize("path", sorted(DATA.glob("archive-*.epr")), ids=lambda path: path.name)
def test_a_reader_by_the_page_reads_what_was_kept(path):
    if "zstd" in path.name and not has_zstandard():
        pytest.skip("needs zstandard")
    try:
        eventprof.open(path)
    except eventprof.UnsupportedError:
        pytest.skip("this build lacks the codec")

    read = assert_reads_alike(path)

    assert len(read["events"]) == 1000
