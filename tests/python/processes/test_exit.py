"""Every way out of a recording leaves the interpreter as it was, and the program's end unchanged."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import warnings
import weakref

import children
import pytest
import raw
from children import PRELUDE, child

from eventprof import _core

pytestmark = pytest.mark.usefixtures("restored")


def outer(n):
    return inner(n) + 1


def inner(n):
    return len([n])


# ---- Ways out of the block ----------------------------------------------------------------------------


class Odd(BaseException):
    pass


@pytest.mark.parametrize(
    "error",
    [
        ValueError,
        KeyboardInterrupt,
        SystemExit,
        GeneratorExit,
        Odd,
        RecursionError,
        MemoryError,
        StopIteration,
    ],
)
def test_exception_leaves_the_block_and_restores(error, backend, restored):
    rec = raw.recorder(raw.ALL, backend=backend)

    with pytest.raises(error), rec:
        outer(1)
        raise error

    assert rec.state == "stopped"
    assert raw.hooks() == restored
    assert [row.name for row in raw.rows(rec) if row.word == "call"] == ["outer", "inner"]


def test_return_break_and_continue_leave_the_block(backend, restored):
    def returns():
        with raw.recorder(raw.ALL, backend=backend):
            return outer(1)

    assert returns() == 2
    assert raw.hooks() == restored
    for _ in range(3):
        with raw.recorder(raw.ALL, backend=backend):
            continue
    for _ in range(3):
        with raw.recorder(raw.ALL, backend=backend):
            break
    assert raw.hooks() == restored


def recording(backend, kept):
    with raw.recorder(raw.ALL, backend=backend) as rec:
        kept.append(rec)
        yield outer(1)
        yield outer(2)


def test_generator_closed_in_the_block(backend, restored):
    kept: list = []
    generator = recording(backend, kept)
    next(generator)

    generator.close()

    assert kept[0].state == "stopped"
    assert raw.hooks() == restored


def test_generator_dropped_in_the_block(backend, restored):
    kept: list = []
    generator = recording(backend, kept)
    next(generator)

    del generator
    gc.collect()

    assert kept[0].state == "stopped"
    assert raw.hooks() == restored


def test_stopped_on_another_thread(backend, restored):
    rec = raw.recorder(raw.ALL, backend=backend)
    rec.start()
    outer(1)

    thread = threading.Thread(target=rec.stop)
    thread.start()
    thread.join()

    assert raw.hooks() == restored
    assert [
        row.name for row in raw.rows(rec) if row.word == "call" and row.name in ("outer", "inner")
    ] == ["outer", "inner"]


def test_started_on_a_thread_that_ends(backend, restored):
    rec = raw.recorder(raw.ALL, backend=backend)
    thread = threading.Thread(target=rec.start)
    thread.start()
    thread.join()

    outer(1)

    rec.stop()
    assert [
        row.name for row in raw.rows(rec) if row.word == "call" and row.name in ("outer", "inner")
    ] == ["outer", "inner"]


def test_stopped_deep_inside(backend):
    rec = raw.recorder(raw.CALLS, backend=backend)

    def deep(n):
        return deep(n - 1) if n else rec.stop()

    rec.start()
    deep(20)

    events = [row for row in raw.rows(rec) if row.sort == "python"]
    assert [row.word for row in events] == ["call"] * 21


def test_started_deep_inside_and_returned_from(backend):
    rec = raw.recorder(raw.CALLS, backend=backend)

    def deep(n):
        if n:
            deep(n - 1)
        else:
            rec.start()

    deep(20)
    rec.stop()

    events = [row for row in raw.rows(rec) if row.sort == "python"]
    assert [row.word for row in events] == ["return"] * 21
    assert all(row.call >= 0 for row in events)
    assert [row.depth for row in events] == list(range(events[0].depth, events[0].depth - 21, -1))


# ---- Wrong use -----------------------------------------------------------------------------------------------


def test_start_twice_and_stop_unstarted(backend):
    rec = raw.recorder(backend=backend)
    with pytest.raises(_core.StateError, match="not running"):
        rec.stop()
    rec.start()
    with pytest.raises(_core.StateError, match="already running") as info:
        rec.start()
    assert isinstance(info.value, RuntimeError)
    with pytest.raises(_core.StateError), rec:
        pass
    outer(1)
    rec.stop()

    assert "outer" in {row.name for row in raw.rows(rec)}
    with pytest.raises(_core.StateError):
        rec.stop()


def test_a_recorder_can_be_used_again(backend):
    rec = raw.recorder(backend=backend)
    with rec:
        outer(1)
    with rec:
        inner(1)

    assert [row.name for row in raw.rows(rec) if row.word == "call"] == ["inner"]


def test_a_recorder_dropped_while_running_is_stopped_and_warned_of(backend, restored):
    rec = raw.recorder(raw.ALL, backend=backend)
    rec.start()

    with pytest.warns(ResourceWarning, match="dropped while running"):
        del rec
        gc.collect()

    assert raw.hooks() == restored


def test_a_dropped_recorder_whose_warning_is_an_error(backend, restored):
    rec = raw.recorder(raw.ALL, backend=backend)
    rec.start()
    seen: list = []

    hook, sys.unraisablehook = sys.unraisablehook, seen.append
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            del rec
    finally:
        sys.unraisablehook = hook

    assert len(seen) == 1
    seen.clear()
    assert raw.hooks() == restored


def test_subclass_and_cycle(backend, restored):
    class Mine(_core.Recorder):
        pass

    recorder = Mine(
        kinds=raw.ALL,
        limit_bytes=1 << 20,
        on_full=2,
        backend=backend,
        clock="auto",
        current_thread=False,
    )
    recorder.me = recorder
    with recorder:
        outer(1)
    gone = weakref.ref(recorder)
    del recorder
    gc.collect()
    assert gone() is None


# ---- Ends of processes --------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(
    "code, status, output",
    [
        ("rec.start(); outer(1); print('end')", 0, "end\n"),
        ("rec.start(); outer(1); sys.exit(3)", 3, ""),
        ("rec.start(); outer(1); print('x', flush=True); os._exit(4)", 4, "x\n"),
        (
            "rec.start(); threading.Thread(target=time.sleep, args=(0.1,)).start(); print(1)",
            0,
            "1\n",
        ),
        ("rec.start(); atexit.register(lambda: print(outer(1))); print(1)", 0, "1\n2\n"),
        ("atexit.register(lambda: print(rec.state)); rec.start()", 0, "running\n"),
        ("atexit.register(lambda: rec.start()); outer(1)", 0, ""),
        ("rec.start(); sys.modules.clear(); 1", 0, ""),
        ("rec.start(); del sys.modules['raw']; del raw; gc.collect(); print(outer(1))", 0, "2\n"),
        ("class D:\n def __del__(self): print(outer(1))\nd = D(); rec.start()", 0, "2\n"),
        ("rec.start(); os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, ""),
        ("rec.start(); os.abort()", -signal.SIGABRT, ""),
        (
            "r2 = raw.recorder(raw.ALL, backend=backend); r2.start(); rec.start(); outer(1); print(1)",
            0,
            "1\n",
        ),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, str) else None,
)
def test_exit_while_recording_changes_neither_status_nor_output(code, status, output, backend):
    got = child(code, backend)

    assert got[:2] == (status, output), got[2]
    if status not in (-signal.SIGABRT,):
        assert got[2] == ""


def test_uncaught_exception_while_recording_shows_as_ever(backend):
    status, output, errors = child("rec.start(); inner(None); 1/0", backend)

    assert (status, output) == (1, "")
    assert errors.rstrip().endswith("ZeroDivisionError: division by zero")


@pytest.mark.thorough
def test_daemon_threads_that_run_through_the_exit(backend):
    code = """
    def spin():
        while True:
            outer(1); list(map(inner, range(10))); {i: [i] for i in range(20)}
    for _ in range(4):
        threading.Thread(target=spin, daemon=True).start()
    rec.start()
    time.sleep(0.2)
    print('end')
    """
    for _ in range(3):
        assert child(code, backend)[:2] == (0, "end\n")


def test_thread_killed_at_exit_inside_its_own_block(backend):
    code = """
    def spin():
        with raw.recorder(raw.ALL, backend=backend):
            while True:
                outer(1)
    for _ in range(2):
        threading.Thread(target=spin, daemon=True).start()
    time.sleep(0.1)
    sys.exit(5)
    """
    assert child(code, backend) == (5, "", "")


def test_recorder_alive_in_a_module_at_exit(backend):
    status, output, errors = child(
        """
    import types
    holder = types.ModuleType("holder"); sys.modules["holder"] = holder
    holder.rec = rec
    with rec: outer(1)
    holder.trace = rec._capture(); holder.column = holder.trace.events("time")
    print(len(holder.column) > 0)
    """,
        backend,
    )

    assert (status, output, errors) == (0, "True\n", "")


# Without the GIL the interpreter refuses to start with another than mimalloc.
ALLOCATORS = [
    "debug",
    *(["malloc", "malloc_debug", "pymalloc"] if raw.HAS_GIL else []),
    *(["mimalloc", "mimalloc_debug"] if sys.version_info >= (3, 13) else []),
]


@pytest.mark.thorough
@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_under_every_allocator(allocator, backend):
    status, output, errors = child(
        """
    with rec:
        kept = [bytearray(i) for i in range(2000)]
        kept += [outer(i) for i in range(100)]
        del kept[::2]
        gc.collect()
    rows = raw.rows(rec)
    live = {}
    for row in rows:
        if row.word in ("malloc", "calloc", "realloc"):
            assert row.address not in live, row
            live[row.address] = row
        elif row.word in ("free", "realloc_free"):
            live.pop(row.address, None)
    print(len(rows) > 2000, 900 < len(live))
    """,
        backend,
        PYTHONMALLOC=allocator,
    )

    assert (status, output, errors) == (0, "True True\n", "")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "arguments",
    [
        ("-X", "dev"),
        ("-O",),
        ("-I",),
        ("-X", "importtime"),
        ("-X", "tracemalloc"),
        ("-b", "-bb", "-Werror"),
    ],
    ids=str,
)
def test_under_every_option(arguments, backend):
    code = f"import sys; sys.path[:0] = {sys.path!r}\n"
    script = (
        code
        + PRELUDE.format(backend=backend)
        + "\nwith rec: outer(1)\nprint(len(raw.rows(rec)) > 4)"
    )
    done = children.program(script, flags=arguments)
    assert done.stdout == "True\n", done.stderr
    if arguments != ("-X", "importtime"):
        assert done.stderr == ""


# ---- fork, signals ----------------------------------------------------------------------------------------------


def test_fork_gives_the_child_a_log_of_its_own(backend):
    status, output, errors = child(
        """
    rec.start()
    outer(1)
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        inner(1)
        rec.stop()
        names = [r.name for r in raw.rows(rec) if r.word == "call"]
        print("child", [n for n in names if n in ("outer", "inner")], flush=True)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    outer(2)
    rec.stop()
    names = [r.name for r in raw.rows(rec) if r.word == "call"]
    print("parent", [n for n in names if n in ("outer", "inner")])
    """,
        backend,
        arguments=("-W", "error"),
    )

    assert (status, errors) == (0, "")
    assert output.splitlines() == ["child ['inner']", "parent ['outer', 'inner', 'outer', 'inner']"]


@pytest.mark.thorough
def test_fork_while_threads_record(backend):
    # A ring: threads that are not held up by a GIL fill gigabytes meanwhile, which each fork would copy.
    status, output, errors = child(
        """
    rec = raw.recorder(raw.ALL, backend=backend, on_full=raw.OVERWRITE, limit=64 << 20)
    go = True
    def spin():
        while go:
            outer(1); [bytearray(i) for i in range(50)]
    threads = [threading.Thread(target=spin) for _ in range(3)]
    rec.start()
    for t in threads: t.start()
    for i in range(10):
        pid = os.fork()
        if pid == 0:
            for _ in range(100): outer(1)
            calls = [r.name for r in raw.rows(rec) if r.word == "call" and r.name == "outer"]
            os._exit(0 if len(calls) == 100 and len({r.thread for r in raw.rows(rec)}) == 1 else 1)
        assert os.waitpid(pid, 0)[1] == 0, i
    go = False
    for t in threads: t.join()
    rec.stop()
    print(rec._capture().facts()["events"] > 1000)
    """,
        backend,
        arguments=("-W", "ignore"),
    )

    assert (status, output, errors) == (0, "True\n", "")


def test_fork_and_a_child_that_starts_and_stops(backend):
    status, output, errors = child(
        """
    before = raw.hooks()
    rec.start()
    pid = os.fork()
    if pid == 0:
        rec.stop()
        ok = raw.hooks() == before
        with raw.recorder(raw.ALL, backend=backend) as mine: outer(1)
        ok = ok and [r.name for r in raw.rows(mine) if r.word == "call"] == ["outer", "inner"]
        pid = os.fork()
        if pid == 0: sys.exit(0)
        ok = ok and os.waitpid(pid, 0)[1] == 0
        sys.exit(0 if ok else 9)
    print(os.waitpid(pid, 0)[1])
    rec.stop()
    print(raw.hooks() == before)
    """,
        backend,
        arguments=("-W", "error"),
    )

    assert (status, output, errors) == (0, "0\nTrue\n", "")


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing_while_recording(method, backend, tmp_path):
    (tmp_path / "job.py").write_text("def job(n):\n    return sum(range(n))\n")
    script = tmp_path / "main.py"
    script.write_text(
        textwrap.dedent(f"""
    import multiprocessing, raw, job
    if __name__ == "__main__":
        rec = raw.recorder(raw.ALL, backend={backend!r})
        with rec:
            with multiprocessing.get_context({method!r}).Pool(2) as pool:
                print(pool.map(job.job, range(5)))
        print(len(raw.rows(rec)) > 100)
    """)
    )
    done = children.run(sys.executable, "-W", "ignore", script, PYTHONPATH=children.path())

    assert (done.stdout, done.stderr) == ("[0, 0, 1, 3, 6]\nTrue\n", "")


def test_subprocess_while_recording(backend):
    rec = raw.recorder(raw.ALL, backend=backend)

    with rec:
        done = subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"1\n", b"")


def test_signal_handler_while_recording(backend):
    def handler(number, frame):
        outer(number)

    old = signal.signal(signal.SIGUSR1, handler)
    try:
        with raw.recorder(raw.ALL, backend=backend) as rec:
            for _ in range(50):
                os.kill(os.getpid(), signal.SIGUSR1)
                inner(1)
    finally:
        signal.signal(signal.SIGUSR1, old)

    events = raw.rows(rec)
    assert sum(row.word == "call" and row.name.endswith("handler") for row in events) == 50
    assert all(
        row.caller.endswith("handler")
        for row in events
        if row.word == "call" and row.name == "outer"
    )


def test_signal_that_raises_while_recording(backend, restored):
    raised = []

    def handler(number, frame):
        if not raised:
            raised.append(number)
            raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, handler)
    try:
        for _ in range(10):
            raised.clear()
            rec = raw.recorder(raw.ALL, backend=backend)
            with pytest.raises(KeyboardInterrupt), rec:
                # Again and again: 3.12 forgets a signal once in some ten thousand, with or without
                # hooks (its eval breaker is computed and stored in two steps).
                signal.setitimer(signal.ITIMER_REAL, 0.002, 0.5)
                while True:
                    outer(1)
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert rec.state == "stopped"
            assert raw.hooks() == restored
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


# ---- The module itself -------------------------------------------------------------------------------------------


def test_module_removed_and_imported_again(backend):
    status, output, errors = child(
        """
    import importlib
    rec.start()
    outer(1)
    for name in [n for n in sys.modules if n.split('.')[0] == 'eventprof']:
        del sys.modules[name]
    from eventprof import _core as again
    mine = again.Recorder(kinds=raw.ALL, limit_bytes=1 << 20, on_full=2, backend=backend,
                          clock="auto", current_thread=False)
    with mine: outer(2)
    rec.stop()
    print([r.name for r in raw.rows(mine) if r.word == "call"])
    print([r.name for r in raw.rows(rec) if r.word == "call" and r.name in ("outer", "inner")])
    """,
        backend,
    )

    assert (status, errors) == (0, "")
    assert output.splitlines() == ["['outer', 'inner']", "['outer', 'inner', 'outer', 'inner']"]


# ---- Without atexit -----------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [0, 1])
@pytest.mark.parametrize("begin", ["EVENTPROF", "record"])
def test_a_program_that_forgets_the_functions_of_atexit_ends(begin, memory, tmp_path):
    """The recorder is stopped by its finalizer, when the interpreter has dropped sys.modules."""
    text = "import atexit\natexit._clear()\nprint(len([1]), flush=True)\n"
    environment = {**os.environ, "EVENTPROF_OUTPUT": str(tmp_path / "out.epr")}
    if begin == "EVENTPROF":
        environment["EVENTPROF"] = f"memory={memory}"
    else:
        text = (
            f"import eventprof\nrec = eventprof.record(memory={memory == 1})\nrec.start()\n{text}"
        )

    done = children.program(text, environment=environment)

    assert (done.stdout, done.stderr) == ("1\n", "")
