"""The resident set: sampled each 10 ms while memory is recorded, whatever the program does meanwhile."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path

import children
import pytest
import raw
from running import alone

import eventprof
from eventprof.answers.first import memory_parts
from eventprof.viewer import data

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the system does not say")


def held(trace):
    return trace.resident["bytes"].tolist()


def sleep_until_sampled(rec, count, since_ns=0):
    """The helper thread samples when a busy machine lets it run, so time alone says nothing."""
    deadline = time.monotonic() + 120
    while True:
        trace = rec.snapshot()
        started = trace.metadata["start_monotonic_ns"]
        if (trace.resident["time"] + started > since_ns).sum() >= count:
            return
        assert time.monotonic() < deadline, f"{len(trace.resident)} samples in 120 s"
        time.sleep(0.02)


def sleep_until_sampled_again(rec):
    sleep_until_sampled(rec, 4, time.monotonic_ns())  # one is the snapshot's own


def touch(size):
    block = bytearray(size)
    for offset in range(0, size, 4096):
        block[offset] = 1
    return block


def test_a_program_without_events_is_sampled():
    with eventprof.record() as rec:
        sleep_until_sampled(rec, 10)

    # Both ends and one chunk, before.
    assert len(rec.trace.resident) >= 10


def test_calls_alone_are_not_sampled():
    with eventprof.record(memory=False) as rec:
        time.sleep(0.3)

    assert len(rec.trace.resident) <= 4


@alone  # what earlier tests left may be given back meanwhile
def test_a_block_is_seen_where_it_is_touched():
    with eventprof.record(calls=False) as rec:
        sleep_until_sampled_again(rec)
        block = touch(64 << 20)
        sleep_until_sampled_again(rec)
        del block
        sleep_until_sampled_again(rec)
    times = rec.trace.resident["time"].tolist()

    assert times == sorted(times) and times[0] >= 0 and times[-1] <= rec.trace.duration
    found = held(rec.trace)
    assert max(found) >= found[0] + (60 << 20), list(zip(times, found, strict=True))
    if raw.HAS_GIL:  # without a GIL Python's allocator keeps the pages of a freed block for a while
        assert found[-1] <= max(found) - (50 << 20)


def test_a_file_and_its_archive_have_the_same_samples(tmp_path):
    with eventprof.record(output=tmp_path / "x.epr") as rec:
        sleep_until_sampled(rec, 10)
    rec.trace.save(tmp_path / "y.epr")

    of_file = eventprof.open(tmp_path / "x.epr")
    of_archive = eventprof.open(tmp_path / "y.epr")
    assert len(of_file.resident) >= 8
    assert held(rec.trace) == held(of_file) == held(of_archive)


def test_a_second_recorder_has_a_file_with_samples_of_its_own(tmp_path):
    first = eventprof.record(output=tmp_path / "first.epr")
    with first:
        with eventprof.record(output=tmp_path / "second.epr") as rec:
            sleep_until_sampled(rec, 10)
        sleep_until_sampled_again(first)

    second = eventprof.open(tmp_path / "second.epr").resident
    assert 8 <= len(second) < len(eventprof.open(tmp_path / "first.epr").resident)


def test_a_killed_program_leaves_its_samples(tmp_path):
    code = f"""
        import time, eventprof
        rec = eventprof.record(output={str(tmp_path / "x.epr")!r})
        rec.start()
        while len(rec.snapshot().resident) < 10:
            time.sleep(0.02)
        print("ready", flush=True)
        time.sleep(100)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGKILL)

    trace = eventprof.open(tmp_path / "x.epr")
    assert len(trace.resident) >= 8
    assert trace.resident["time"].max() <= trace.duration


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@alone  # fork() warns if another test has left a thread
def test_forks_are_not_warned_of_and_both_go_on():
    rec = eventprof.record()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # fork() counts the process's threads
        rec.start()
        child = os.fork()
    if child == 0:
        _ = [object() for _ in range(200_000)]
        sleep_until_sampled(rec, 10)
        rec.stop()
        os._exit(0 if len(rec.trace.resident) >= 8 else 1)
    _, status = os.waitpid(child, 0)
    before = time.monotonic_ns()
    _ = [object() for _ in range(200_000)]
    sleep_until_sampled(rec, 10, before)
    rec.stop()

    assert status == 0
    started = rec.trace.metadata["start_monotonic_ns"]
    assert sum(rec.trace.resident["time"] + started > before) >= 8


# ---- The recorder's own part ---------------------------------------------------------------------

MIB = 1 << 20


def make_events():
    """Some 48 MiB of records, and nothing that stays."""
    for _ in range(15):
        _ = [object() for _ in range(100_000)]


def mapped(path):
    """Bytes of a file's mappings that are resident."""
    text = Path("/proc/self/smaps").read_text()
    found = re.findall(r"^[0-9a-f]+-[0-9a-f]+ .* (\S+)\n(?:.*\n)*?Rss: +([0-9]+) kB", text, re.M)
    return sum(int(kilobytes) * 1024 for name, kilobytes in found if name == str(path))


@pytest.mark.thorough
def test_the_pages_of_a_log_are_the_recorders(tmp_path):
    path = tmp_path / "x.epr"
    with eventprof.record(calls=False, output=path, buffer="256MiB") as rec:
        make_events()
        own = mapped(path)
    own_bytes = rec.trace.resident["recorder"]

    assert own > 40 * MIB
    # The chunks that are made ahead, and few names.
    assert own - 4 * MIB < own_bytes[-1] - own_bytes[0] < own + 4 * MIB
    assert (own_bytes <= rec.trace.resident["bytes"]).all()


@pytest.mark.thorough
def test_a_log_in_memory_is_the_recorders():
    make_events()
    with eventprof.record(calls=False, buffer="256MiB") as rec:
        make_events()
    table = rec.trace.resident
    grown = {name: int(table[name][-1]) - int(table[name][0]) for name in ("bytes", "recorder")}

    assert grown["recorder"] > 40 * MIB
    assert abs(grown["bytes"] - grown["recorder"]) < 8 * MIB


def recorders_now():
    """What the recorder has without a window: earlier tests may have left some."""
    with eventprof.record(calls=False) as rec:
        pass
    return int(rec.trace.resident["recorder"][-1])


@pytest.mark.thorough
@alone
def test_what_was_given_back_is_not_the_recorders(tmp_path):
    at_first = recorders_now()
    for output in (None, tmp_path / "x.epr"):
        rec = eventprof.record(calls=False, buffer="256MiB", output=output)
        with rec:
            make_events()
        before = int(rec.trace.resident["recorder"][-1])
        del rec

        assert before > at_first + 40 * MIB
        assert recorders_now() < at_first + 20 * MIB


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_counts_its_own_log_alone(tmp_path):
    at_first = recorders_now()
    rec = eventprof.record(calls=False, buffer="256MiB", output=tmp_path / "%p.epr")
    rec.start()
    make_events()
    child = os.fork()
    if child == 0:
        rec.stop()
        os._exit(int(rec.trace.resident["recorder"][-1] > at_first + 20 * MIB))
    _, status = os.waitpid(child, 0)
    rec.stop()

    assert status == 0


def test_a_file_an_archive_and_a_merged_trace_have_the_part(tmp_path):
    with eventprof.record(output=tmp_path / "x.epr") as rec:
        time.sleep(0.1)
    rec.trace.save(tmp_path / "y.epr")

    of_file = eventprof.open(tmp_path / "x.epr")
    of_archive = eventprof.open(tmp_path / "y.epr")
    twice = eventprof.merge([of_file, of_archive])
    own_bytes = rec.trace.resident["recorder"].tolist()
    assert all(own_bytes)
    assert (
        of_file.resident["recorder"].tolist()
        == of_archive.resident["recorder"].tolist()
        == own_bytes
    )
    assert twice.resident["recorder"].tolist()[-1] == 2 * own_bytes[-1]


def test_the_page_draws_the_programs_part():
    with eventprof.record() as rec:
        time.sleep(0.1)
    table = rec.trace.resident

    assert data._resident(rec.trace) == [
        table["time"].tolist(),
        (table["bytes"] - table["recorder"]).tolist(),
        True,
    ]


@pytest.mark.thorough
def test_the_report_names_the_part():
    with eventprof.record(buffer="256MiB") as rec:
        make_events()
        kept = [bytes(1000) for _ in range(10_000)]
        time.sleep(0.05)
    del kept
    trace = rec.trace
    parts = {part.name: part.bytes for part in memory_parts(trace, trace._tree)}

    assert 20 * MIB < parts["of it the recorder's"] < parts["resident set"]
    assert parts["of it not seen"] == (
        parts["resident set"] - parts["of it the recorder's"] - trace._tree.facts["peak"]
    )


FORKS = """
import os
import threading

for _ in range(20):
    thread = threading.Thread(target=len, args=("",))
    thread.start()  # its log starts the helper thread again
    thread.join()
    child = os.fork()  # ends it
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
for _ in range(1_000_000):
    len("")  # takes what the helper thread has made ready
"""


def test_a_helper_thread_that_is_ended_while_it_samples_makes_nothing_more(tmp_path):
    """It made one chunk more at each end, and wrote beyond the place for three."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or os.environ.get("LD_PRELOAD"):
        pytest.skip("needs a C compiler, and no other preloaded library")
    library = tmp_path / "slow_statm.so"
    source = Path(__file__).parent / "slow_statm.c"
    children.run(compiler, "-shared", "-fPIC", "-O1", source, "-o", library, "-ldl")
    (tmp_path / "forks.py").write_text(FORKS)

    children.eventprof("run", "-o", "out-%p.epr", "forks.py", cwd=tmp_path, LD_PRELOAD=str(library))
