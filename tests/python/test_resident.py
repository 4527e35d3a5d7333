"""The resident set: sampled each 10 ms while memory is recorded, whatever the program does meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
import warnings

import pytest

import eventprof

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the system does not say")


def held(trace):
    return trace.resident["bytes"].tolist()


def touch(size):
    block = bytearray(size)
    for at in range(0, size, 4096):
        block[at] = 1
    return block


def test_a_program_without_events_is_sampled():
    with eventprof.record() as rec:
        time.sleep(0.5)

    # Fifty on an idle machine; both ends and one chunk, before.
    assert len(rec.trace.resident) >= 10


def test_calls_alone_are_not_sampled():
    with eventprof.record(memory=False) as rec:
        time.sleep(0.3)

    assert len(rec.trace.resident) <= 4


def test_a_block_is_seen_where_it_is_touched():
    with eventprof.record(calls=False) as rec:
        time.sleep(0.05)
        block = touch(64 << 20)
        time.sleep(0.1)
        del block
        time.sleep(0.1)
    times = rec.trace.resident["time"].tolist()

    assert times == sorted(times) and times[0] >= 0 and times[-1] <= rec.trace.duration
    found = held(rec.trace)
    assert max(found) >= found[0] + (60 << 20)
    assert found[-1] <= max(found) - (50 << 20)


def test_a_file_and_its_archive_have_the_same_samples(tmp_path):
    with eventprof.record(output=tmp_path / "x.epr") as rec:
        time.sleep(0.3)
    rec.trace.save(tmp_path / "y.epr")

    of_file = eventprof.open(tmp_path / "x.epr")
    of_archive = eventprof.open(tmp_path / "y.epr")
    assert len(of_file.resident) >= 8
    assert held(rec.trace) == held(of_file) == held(of_archive)


def test_a_second_recorder_has_a_file_with_samples_of_its_own(tmp_path):
    first = eventprof.record(output=tmp_path / "first.epr")
    with first:
        with eventprof.record(output=tmp_path / "second.epr"):
            time.sleep(0.3)
        time.sleep(0.1)

    second = eventprof.open(tmp_path / "second.epr").resident
    assert 8 <= len(second) < len(eventprof.open(tmp_path / "first.epr").resident)


def test_a_killed_program_leaves_its_samples(tmp_path):
    code = f"""
        import time, eventprof
        rec = eventprof.record(output={str(tmp_path / "x.epr")!r})
        rec.start()
        time.sleep(0.3)
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
def test_forks_are_not_warned_of_and_both_go_on():
    rec = eventprof.record()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # fork() counts the process's threads
        rec.start()
        child = os.fork()
    if child == 0:
        _ = [object() for _ in range(200_000)]
        time.sleep(0.3)
        rec.stop()
        os._exit(0 if len(rec.trace.resident) >= 8 else 1)
    _, status = os.waitpid(child, 0)
    before = time.monotonic_ns()
    _ = [object() for _ in range(200_000)]
    time.sleep(0.3)
    rec.stop()

    assert status == 0
    started = rec.trace.metadata["start_monotonic_ns"]
    assert sum(rec.trace.resident["time"] + started > before) >= 8
