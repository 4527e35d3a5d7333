"""open(path, follow=True): a recording is read while it is made."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

import eventprof

PROGRAM = """
import sys, threading, eventprof
def tick(n): return n
def tock(n): return n
path, on_full, buffer, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rec = eventprof.record(output=path, on_full=on_full, buffer=buffer, memory=False)
rec.start()
print("ready", flush=True)
thread = threading.Thread(target=lambda: [tock(n) for n in range(count)])
thread.start()
for n in range(count):
    tick(n)
thread.join()
print("half", flush=True)
sys.stdin.readline()
for n in range(count):
    tick(n)
rec.stop()
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "out.epr"
    started = []

    def start(on_full, buffer, count):
        child = subprocess.Popen(
            [
                sys.executable,
                "-c",
                textwrap.dedent(PROGRAM),
                path,
                on_full,
                str(buffer),
                str(count),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(child)
        assert child.stdout.readline() == "ready\n"
        return child, path

    yield start
    for child in started:
        child.kill()
        child.communicate()


def calls(rows, name):
    return int(((rows["name"] == name) & (rows["event"] == "call")).sum())


def test_each_event_comes_once(program):
    child, path = program("grow", 1 << 20, 2000)
    follower = eventprof.open(path, follow=True)
    ticks = tocks = rows = 0
    changed = False
    for new in follower:
        ticks, tocks, rows = ticks + calls(new, "tick"), tocks + calls(new, "tock"), rows + len(new)
        if not changed and ticks:
            changed = True
            child.stdin.write("go\n")
            child.stdin.flush()

    assert (ticks, tocks) == (4000, 2000)
    assert rows == len(follower.trace.events)
    assert follower.missed == 0
    assert follower.ended


def test_what_a_ring_overwrote_before_it_was_read_is_counted(program):
    child, path = program("overwrite", 1 << 20, 150_000)
    follower = eventprof.open(path, follow=True)
    assert child.stdout.readline() == "half\n"
    seen = len(follower.poll())
    child.stdin.write("go\n")
    child.stdin.flush()
    seen += sum(len(new) for new in follower)

    trace = follower.trace
    assert follower.missed > 0
    assert seen + follower.missed == len(trace.events) + trace.loss.total


def test_a_running_program_is_read_up_to_now(program):
    child, path = program("grow", 1 << 20, 500)
    assert child.stdout.readline() == "half\n"

    trace = eventprof.open(path)

    assert calls(trace.events, "tick") == 500
    assert trace.file["live"]
    assert trace.file["unfinished"]
    assert "still being recorded" in " ".join(str(trace).split())


def test_a_killed_program_ends_the_following(program):
    child, path = program("grow", 1 << 20, 500)
    assert child.stdout.readline() == "half\n"
    child.kill()
    child.wait()

    follower = eventprof.open(path, follow=True)
    (rows,) = list(follower)

    assert calls(rows, "tick") == 500
    assert follower.trace.file["unfinished"]
    assert not follower.trace.file["live"]
