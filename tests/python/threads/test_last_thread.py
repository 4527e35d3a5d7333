"""A recorded process ends when the program's last thread ends: no thread of eventprof outlives it.

Each program ends in a way of its own, without a recorder and with one of each kind. What hangs is killed after
`LIMIT_S` seconds: the recorder's helper threads kept the process alive then (record/prefault.h, record/packing.h,
recording/flight.py).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import textwrap

import children
import pytest
from amounts import pairs

import eventprof

pytestmark = pytest.mark.version

LIMIT_S = 60.0
STEPS = 3_000

#: What every program begins with. `work` fills chunks of a megabyte: the second and later ones are prepared by a
#: helper thread, and packed by another one.
BEGIN = f"""
import ctypes, os, sys, threading, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)

def step(kept):
    return [None] * 20

def work():
    for _ in range({STEPS}):
        step(None)
    for number in range(150_000):
        len("")

def ended(pid):
    print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)

def in_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    return thread

def end_main_thread():
    ctypes.CDLL(None).pthread_exit(None)

work()
"""

#: Program: how it goes on, how it ends, and how often `work` runs in all of its processes.
PROGRAMS = {
    "fork from a thread": (
        """
        def forks():
            pid = os.fork()
            if pid == 0:
                in_thread(work).join()
                return
            ended(pid)
        in_thread(forks).join()
        """,
        (0, "child 0\n"),
        2,
    ),
    "fork from a thread, whose child's thread is the last": (
        """
        def later(kept):
            work()
            print("later", flush=True)
        def forks():
            pid = os.fork()
            if pid == 0:
                in_thread(lambda: (time.sleep(0.2), later(None)))
                return
            ended(pid)
        in_thread(forks).join()
        """,
        (0, "later\nchild 0\n"),
        2,
    ),
    "forks of forks, all from threads": (
        """
        def forks(depth):
            work()
            if depth == 3:
                return
            pid = os.fork()
            if pid == 0:
                in_thread(lambda: forks(depth + 1)).join()
                return
            ended(pid)
        in_thread(lambda: forks(0)).join()
        """,
        (0, "child 0\nchild 0\nchild 0\n"),
        5,
    ),
    "several forks from a thread": (
        """
        def forks():
            pids = []
            for _ in range(3):
                pid = os.fork()
                if pid == 0:
                    work()
                    return
                pids.append(pid)
            for pid in pids:
                ended(pid)
        in_thread(forks).join()
        """,
        (0, "child 0\nchild 0\nchild 0\n"),
        4,
    ),
    "an exception in a child of a thread": (
        """
        def forks():
            pid = os.fork()
            if pid == 0:
                threading.excepthook = lambda args: None
                work()
                raise ValueError
            ended(pid)
        in_thread(forks).join()
        """,
        (0, "child 0\n"),
        2,
    ),
    "fork from the main thread": (
        """
        pid = os.fork()
        if pid == 0:
            work()
            sys.exit(3)
        ended(pid)
        sys.exit(4)
        """,
        (4, "child 3\n"),
        2,
    ),
    "the main thread ends first": (
        """
        def later():
            time.sleep(0.2)
            work()
            print("later", flush=True)
        in_thread(later)
        end_main_thread()
        """,
        (0, "later\n"),
        2,
    ),
    "the main thread ends, and there is no other": ("end_main_thread()", (0, ""), 1),
    "in a child the main thread ends first": (
        """
        pid = os.fork()
        if pid == 0:
            def later():
                time.sleep(0.2)
                work()
                print("later", flush=True)
            in_thread(later)
            end_main_thread()
        ended(pid)
        """,
        (0, "later\nchild 0\n"),
        2,
    ),
    "a daemon thread at the end": (
        """
        threading.Thread(target=lambda: [len("") for _ in iter(int, 1)], daemon=True).start()
        work()
        sys.exit(5)
        """,
        (5, ""),
        2,
    ),
    "a daemon thread in a child of a thread": (
        """
        def forks():
            pid = os.fork()
            if pid == 0:
                threading.Thread(target=time.sleep, args=(0.2,), daemon=True).start()
                work()
                return
            ended(pid)
        in_thread(forks).join()
        """,
        (0, "child 0\n"),
        2,
    ),
    "os._exit": ("os._exit(6)", (6, ""), 1),
    "os._exit in a thread": (
        """
        in_thread(lambda: (work(), os._exit(6))).join()
        """,
        (6, ""),
        2,
    ),
    "os._exit in a child of a thread": (
        """
        def forks():
            pid = os.fork()
            if pid == 0:
                work()
                os._exit(6)
            ended(pid)
        in_thread(forks).join()
        """,
        (0, "child 6\n"),
        2,
    ),
    "sys.exit in a thread": (
        """
        in_thread(lambda: (work(), sys.exit(7))).join()
        work()
        """,
        (0, ""),
        3,
    ),
}

#: Kind of recorder: options of ``eventprof run``, or the line that begins to record.
RECORDERS = {
    "file": ["-o", "out.epr"],
    "file, calls": ["-o", "out.epr", "--no-memory"],
    "file, ring": ["-o", "out.epr", "--on-full", "overwrite"],
    "archive": ["-o", "out.epr", "--archive"],
    "memory": "import eventprof; recorder = eventprof.record(); recorder.start()",
    "flight": "import eventprof; recorder = eventprof.flight_recorder(); recorder.start()",
}


def run(arguments, folder):
    """Run Python. Returns: status, output, errors; the status is "hangs" if it had to be killed."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # NumPy's library has threads, which would keep a process alive.
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        return "hangs", output, errors
    return process.returncode, output, errors


def verified(folder):
    """Return how often ``step`` was called in all recordings of a folder, each of which is right."""
    calls = 0
    for file in sorted(folder.glob("*.epd/*.epr")) or [folder / "out.epr"]:
        trace = eventprof.open(file)
        checked = trace.verify()
        assert checked.ok, checked
        assert trace.loss.total == 0
        functions = trace.functions
        calls += int(functions[functions["name"] == "step"]["calls"].sum())
    return calls


@pytest.mark.thorough
@pytest.mark.parametrize(("program", "recorder"), pairs(PROGRAMS, RECORDERS, 2))
def test_the_process_ends_as_without(program, recorder, tmp_path):
    text, end, works = PROGRAMS[program]
    begin = "" if isinstance(RECORDERS[recorder], list) else RECORDERS[recorder]
    (tmp_path / "program.py").write_text(f"{begin}\n{BEGIN}\n{textwrap.dedent(text)}")
    arguments = ["program.py"]
    if not begin:
        arguments = ["-m", "eventprof", "run", *RECORDERS[recorder], *arguments]

    status, output, errors = run(arguments, tmp_path)

    assert (status, output) == end, errors
    if not begin and "ring" not in recorder:
        assert verified(tmp_path) == works * STEPS


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_programs_end_so_without_a_recorder(program, tmp_path):
    text, end, _ = PROGRAMS[program]
    (tmp_path / "program.py").write_text(f"{BEGIN}\n{textwrap.dedent(text)}")

    status, output, errors = run(["program.py"], tmp_path)

    assert (status, output) == end, errors


EMBEDDING = r"""
#include <Python.h>
#include <stdio.h>

int
main(int count, char **arguments)
{
    for (int i = 1; i < count; i++) {
        Py_InitializeEx(0);
        int status = PyRun_SimpleString(arguments[i]);
        int ended = Py_FinalizeEx();
        printf("%d %d\n", status, ended);
        fflush(stdout);
    }
    return 8;
}
"""


def test_a_program_that_initialises_python_twice_ends(tmp_path):
    """Extensions such as NumPy load once in a process: the second program has no recorder."""
    compiler, library = shutil.which("cc"), sysconfig.get_config_var("LIBDIR")
    if compiler is None or not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        pytest.skip("no C compiler, or no shared library of Python")
    (tmp_path / "embedding.c").write_text(EMBEDDING)
    version = sysconfig.get_config_var("LDVERSION")
    include = sysconfig.get_path("include")
    words = [f"-I{include}", "embedding.c", f"-L{library}", f"-lpython{version}"]
    compiled = children.run(
        compiler, *words, f"-Wl,-rpath,{library}", "-o", "embedding", status=None, cwd=tmp_path
    )
    if "Python.h" in compiled.stderr:
        pytest.skip("no headers of Python")
    assert compiled.returncode == 0, compiled.stderr
    path = f"import sys; sys.path[:] = {sys.path!r}"
    record = (
        f"{path}\nimport eventprof\nrecorder = eventprof.record(output='out.epr')\nrecorder.start()"
    )

    def embedded(*programs):
        process = subprocess.Popen(
            [tmp_path / "embedding", *programs],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONHOME": sys.base_prefix},
            start_new_session=True,
        )
        try:
            return (*process.communicate(timeout=LIMIT_S), process.returncode)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            pytest.fail(f"it hangs: {process.communicate()}")

    bare = embedded(BEGIN, BEGIN, BEGIN)
    if bare[2] < 0:
        pytest.skip(f"this Python crashes when it begins again, without a recorder: {bare}")

    assert embedded(f"{record}\n{BEGIN}", BEGIN, BEGIN) == bare == ("0 0\n" * 3, "", 8)
    assert verified(tmp_path) == STEPS
