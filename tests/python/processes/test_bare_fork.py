"""A fork by the bare system call, of which no handler is told: the child leaves what is recorded alone."""

from __future__ import annotations

import os
import platform
import sys
import textwrap

import children
import pytest

import eventprof

CLONE, SIGCHLD = 56, 17
# At the end of such a child NumPy's OpenBLAS waits for its threads, which are the parent's.
ENVIRONMENT = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="numbers of system calls"
)

PROGRAM = f"""
import ctypes, os, sys
import eventprof
libc = ctypes.CDLL(None) if sys.argv[1] == "released" else ctypes.PyDLL(None)

def both(n): return [repr(i) for i in range(n)]
def child_only(n): return [repr(i) for i in range(n)]

output = None if sys.argv[3] == "memory" else sys.argv[3]
recorder = eventprof.record(output=output)
with recorder:
    both(100)
    pid = libc.syscall({CLONE}, {SIGCHLD}, 0, 0, 0, 0)
    if pid == 0:
        for i in range(3000):
            child_only(30)
        if sys.argv[2] == "_exit":
            os._exit(0)
        if sys.argv[2] == "fork":
            below = os.fork()
            if below == 0:
                child_only(30)
                os._exit(0)
            os._exit(os.waitpid(below, 0)[1] != 0)
    else:
        for i in range(3000):
            both(30)
        assert os.waitpid(pid, 0)[1] == 0
if pid == 0:  # the end of the window, and of the interpreter
    sys.exit(0)
trace = recorder.trace
calls = {{f.name: f.calls for f in trace.functions if f.calls}}
print(calls.get("both"), calls.get("child_only"), calls.get("repr"), trace.verify(all=True).ok, trace.loss.total)
"""


def run(tmp_path, *arguments):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    return children.run(
        sys.executable, program, *arguments, status=None, cwd=tmp_path, environment=ENVIRONMENT
    )


@pytest.mark.thorough
@pytest.mark.parametrize("output", ["memory", "x.epr"])
@pytest.mark.parametrize("end", ["_exit", "exit", "fork"])
@pytest.mark.parametrize("lock", ["held", "released"])
def test_the_parent_has_its_events_and_no_other(tmp_path, lock, end, output):
    found = run(tmp_path, lock, end, output)

    assert found.stderr == ""
    assert found.stdout == f"3001 None {100 + 3000 * 30} True 0\n"
    if output != "memory":
        trace = eventprof.open(tmp_path / output)
        assert trace.verify(all=True).ok
        assert trace.file["unfinished"] is False
    assert sorted(os.listdir(tmp_path)) == sorted({"program.py", output} - {"memory"})


def test_the_end_says_that_a_child_is_missing(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(f"""
import ctypes, os
def both(): return str(1)
pid = ctypes.CDLL(None).syscall({CLONE}, {SIGCHLD}, 0, 0, 0, 0)
both()
if pid == 0:
    os._exit(0)
os.waitpid(pid, 0)
""")

    found = children.eventprof("run", "-o", "x.epr", program, cwd=tmp_path, environment=ENVIRONMENT)

    assert "1 forked process could not write a file" in found.stderr
