"""A recorded program that is stopped and goes on (SIGSTOP), and one whose clock of the day is set."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

import children
import numpy as np
import pytest

import eventprof

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signals, LD_PRELOAD")

STOPS = """
import os, signal, threading

def leaf(n):
    return [n]

def work(stops):
    for n in range(3000):
        leaf(n)
        if stops and n % 1000 == 999:
            os.kill(os.getpid(), signal.SIGSTOP)

thread = threading.Thread(target=work, args=(False,))
thread.start()
work(True)
thread.join()
print("done")
"""


@pytest.mark.parametrize("clock", ["counter", "monotonic"])
def test_a_program_that_is_stopped_thrice_loses_nothing(tmp_path, clock):
    path = tmp_path / "stops.epr"
    command = [sys.executable, "-m", "eventprof", "run", "-q", "--clock", clock, "-o", path]
    with subprocess.Popen([*command, "-c", STOPS], stdout=subprocess.PIPE, text=True) as process:
        stops = 0
        while os.WIFSTOPPED(status := os.waitpid(process.pid, os.WUNTRACED)[1]):
            stops += 1
            os.kill(process.pid, signal.SIGCONT)
        process.returncode = os.waitstatus_to_exitcode(status)
        output, _ = process.communicate()

    assert (stops, process.returncode, output) == (3, 0, "done\n")
    trace = eventprof.open(path)
    assert trace.verify().ok
    assert not trace.loss
    functions = trace.functions
    assert functions["calls"][functions["name"] == "leaf"].tolist() == [6000]
    assert (np.diff(trace.events["time"]) >= 0).all()


# Each reading of the clock of the day is an hour before or two hours after the one before.
STEPS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <time.h>

int clock_gettime(clockid_t id, struct timespec *to)
{
    static int (*next)(clockid_t, struct timespec *);
    static atomic_long count;
    if (next == NULL) {
        next = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    }
    int result = next(id, to);
    if (id == CLOCK_REALTIME) {
        to->tv_sec += atomic_fetch_add(&count, 1) % 2 == 0 ? -3600 : 7200;
    }
    return result;
}
"""
FORKS = """
import os

def leaf(n):
    return [n]

for _ in range(2):
    child = os.fork()
    for n in range(1000):
        leaf(n)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_a_clock_of_the_day_that_is_set_moves_no_event(tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source, library, path = tmp_path / "s.c", tmp_path / "s.so", tmp_path / "forks.epd"
    source.write_text(STEPS)
    children.run(compiler, "-shared", "-fPIC", "-o", library, source, "-ldl")
    command = [sys.executable, "-m", "eventprof", "run", "-q", "-o", path, "-c", FORKS]
    children.run(*command, LD_PRELOAD=os.fspath(library))

    trace = eventprof.open(path)

    assert trace.verify().ok
    assert "aligned by CLOCK_MONOTONIC" in trace.metadata["clocks"]
    assert "its clock of the day was set by" in trace.metadata["clocks"]
    rows = trace.processes
    assert len(rows) == 3
    # The children ran one after the other, within their parent's time.
    first, second = sorted(
        (start, end) for start, end in zip(rows["start"], rows["end"], strict=True) if start > 0
    )
    assert 0 < first[0] < first[1] < second[0] < second[1] < trace.duration
