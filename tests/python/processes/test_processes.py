"""Processes that begin and end while a recorder runs; simpler cases are in test_exit.py."""

from __future__ import annotations

import signal
import sys
import textwrap

import children
import pytest
import raw
from amounts import amount
from children import child

pytestmark = pytest.mark.usefixtures("restored")


def script(tmp_path, text, *, arguments=("-W", "ignore")):
    """Runs a file of its own, which spawned processes can import. Returns: status, output, errors."""
    path = tmp_path / "main.py"
    path.write_text(textwrap.dedent(text))
    done = children.run(
        sys.executable, "-X", "faulthandler", *arguments, path,
        status=None, PYTHONPATH=children.path(),
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


# ---- fork ----------------------------------------------------------------------------------------


def test_fork_from_a_thread(backend):
    """The child has that thread alone, as its main thread; it goes on in calls that it is in."""
    status, output, errors = child(
        """
    def forks():
        outer(1)
        pid = os.fork()
        if pid == 0:
            outer(2)
            rec.stop()
            rows = [r for r in raw.rows(rec) if r.domain is None]
            rows = [r for r in rows if r.name in ("outer", "inner", "forks")]
            ok = [(r.word, r.name) for r in rows] == [
                ("call", "outer"), ("call", "inner"), ("return", "inner"), ("return", "outer")]
            ok = ok and len({r.thread for r in rows}) == 1 and rows[0].caller == "forks"
            ok = ok and rows[0].call >= 0 and rows[0].depth >= 1
            with raw.recorder(raw.ALL, backend=backend) as mine: inner(1)
            ok = ok and "inner" in {r.name for r in raw.rows(mine)}
            os._exit(0 if ok else 9)
        done.append(os.waitpid(pid, 0)[1])
        outer(3)
    done = []
    waits = threading.Event()
    others = [threading.Thread(target=waits.wait) for _ in range(2)]
    for t in others: t.start()
    with rec:
        thread = threading.Thread(target=forks)
        thread.start(); thread.join()
    waits.set()
    for t in others: t.join()
    print(done, [r.name for r in raw.rows(rec) if r.word == "call" and r.name in ("outer", "inner")])
    """,
        backend,
        arguments=("-W", "ignore"),
    )

    assert (status, errors) == (0, "")
    assert output == "[0] ['outer', 'inner', 'outer', 'inner']\n"


def test_children_of_children_of_threads(backend):
    """Each forks on from a thread of its own: 5 deep, the recorder running in all of them."""
    status, output, errors = child(
        """
    def descend(level):
        outer(level)
        if level == 5:
            return 0
        pid = os.fork()
        if pid != 0:
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        result = []
        thread = threading.Thread(target=lambda: result.append(descend(level + 1)))
        thread.start(); thread.join()
        rec.stop()
        names = [r.name for r in raw.rows(rec) if r.word == "call" and r.name in ("outer", "inner")]
        os._exit(result[0] if names == ["outer", "inner"] else 40 + level)
    rec.start()
    print(descend(0))
    rec.stop()
    """,
        backend,
        arguments=("-W", "ignore"),
    )

    assert (status, output, errors) == (0, "0\n", "")


@pytest.mark.thorough
def test_fork_while_a_recorder_starts_and_stops_on_another_thread(backend):
    """The lock of a change may be held at the moment of the fork: the child is not to wait for it."""
    status, output, errors = child(
        """
    go = True
    def change():
        while go:
            with raw.recorder(raw.ALL, backend=backend): outer(1)
    thread = threading.Thread(target=change)
    thread.start()
    for i in range(30):
        pid = os.fork()
        if pid == 0:
            with raw.recorder(raw.ALL, backend=backend) as mine: outer(1)
            names = [r.name for r in raw.rows(mine) if r.word == "call"]
            os._exit(0 if names[:2] == ["outer", "inner"] else 1)
        assert os.waitpid(pid, 0)[1] == 0, i
    go = False
    thread.join()
    print("done")
    """,
        backend,
        arguments=("-W", "ignore"),
        timeout=900,
    )

    assert (status, output, errors) == (0, "done\n", "")


@pytest.mark.thorough
def test_fork_while_other_threads_collect(backend):
    """3.13t: they may hold the interpreter's lock of those who stop the threads, and it stays locked."""
    status, output, errors = child(
        """
    go = True
    def collect():
        while go: gc.collect(0)
    threads = [threading.Thread(target=collect, daemon=True) for _ in range(2)]
    for t in threads: t.start()
    for i in range(10):
        pid = os.fork()
        if pid == 0:
            signal.alarm(30)
            with raw.recorder(raw.ALL, backend=backend) as mine: outer(1)
            names = [r.name for r in raw.rows(mine) if r.word == "call"]
            os._exit(0 if names[:2] == ["outer", "inner"] else 1)
        assert os.waitpid(pid, 0)[1] == 0, i
        with rec:
            outer(1)
            pid = os.fork()
            if pid == 0:
                signal.alarm(30)
                rec.stop()
                os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0, i
    go = False
    for t in threads: t.join()
    print("done")
    """,
        backend,
        arguments=("-W", "ignore"),
    )

    assert (status, output, errors) == (0, "done\n", "")


def test_a_new_thread_of_a_child_is_no_thread_of_its_parent(backend):
    """Threads that the parent's recorder expected are not there; ids of the system come again."""
    status, output, errors = child(
        """
    waits = threading.Event()
    silent = [threading.Thread(target=waits.wait, name="silent") for _ in range(3)]
    for t in silent: t.start()
    with rec:
        pid = os.fork()
        if pid == 0:
            thread = threading.Thread(target=outer, args=(1,), name="new")
            thread.start(); thread.join()
            rec.stop()
            trace = raw.capture(rec)
            names = [name for name, *_ in trace.threads()]
            rows = [r for r in raw.rows(trace) if r.name == "outer"]
            os._exit(0 if "silent" not in names and names[rows[0].thread] == "new" else 1)
        print(os.waitpid(pid, 0)[1])
    waits.set()
    for t in silent: t.join()
    """,
        backend,
        arguments=("-W", "ignore"),
    )

    assert (status, output, errors) == (0, "0\n", "")


# ---- multiprocessing, pools ----------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_by_every_method(method, backend, tmp_path):
    """Children that record for themselves, too, and a pool of processes from a pool of threads."""
    status, output, errors = script(
        tmp_path,
        f"""
    import multiprocessing, raw
    from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

    def leaf(n):
        return n + 1

    def job(n):
        with raw.recorder(raw.ALL, backend={backend!r}) as mine:
            leaf(n)
        return [r.name for r in raw.rows(mine) if r.word == "call"]

    if __name__ == "__main__":
        context = multiprocessing.get_context({method!r})
        rec = raw.recorder(raw.ALL, backend={backend!r})
        with rec:
            process = context.Process(target=leaf, args=(1,))
            process.start()
            process.join()
            with ProcessPoolExecutor(2, mp_context=context) as pool:
                print(list(pool.map(job, range(3))))
            with ThreadPoolExecutor(2) as threads:
                print(sorted(threads.map(leaf, range(3))))
        print(process.exitcode, len(raw.rows(rec)) > 100)
    """,
    )

    assert (status, errors) == (0, "")
    assert output.splitlines() == [str([["leaf"]] * 3), "[1, 2, 3]", "0 True"]


def test_threads_of_a_pool_have_their_names(backend):
    from concurrent.futures import ThreadPoolExecutor
    from threading import Barrier

    def leaf(barrier):
        barrier.wait()

    barrier = Barrier(3)
    with (
        raw.recorder(raw.CALLS, backend=backend) as rec,
        ThreadPoolExecutor(3, thread_name_prefix="cook") as pool,
    ):
        list(pool.map(leaf, [barrier] * 3))

    trace = raw.capture(rec)
    names = [name for name, *_ in trace.threads()]
    ours = {names[row.thread] for row in raw.rows(trace) if row.name.endswith("leaf")}
    assert ours == {"cook_0", "cook_1", "cook_2"}


@pytest.mark.thorough
@pytest.mark.parametrize("close_fds", [True, False])
def test_subprocesses_from_threads(close_fds, backend):
    """By vfork and by fork, with a program of Python's between fork and exec."""
    code = f"""
    import subprocess
    from concurrent.futures import ThreadPoolExecutor
    def launch(n):
        before = outer if n % 2 else None
        done = subprocess.run([sys.executable, "-S", "-c", "print(1)"], capture_output=True,
                              close_fds={close_fds}, preexec_fn=before and (lambda: before(1)))
        return done.returncode, done.stdout, done.stderr
    with rec, ThreadPoolExecutor(3) as pool:
        print(set(pool.map(launch, range(6))))
    print(sum(r.word == "call" and r.name == "launch" for r in raw.rows(rec)))
    """
    status, output, errors = child(code, backend, arguments=("-W", "ignore"))

    assert (status, errors) == (0, "")
    assert output.splitlines() == [str({(0, b"1\n", b"")}), "6"]


# ---- Signals, exits ------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(
    "end, status, output",
    [
        ("sys.exit(3)", 3, "exit functions\n"),
        ("os._exit(4)", 4, ""),
        ("rec.stop(); print(rec.state, flush=True); sys.exit(5)", 5, "stopped\nexit functions\n"),
        (
            "signal.signal(signal.SIGTERM, signal.SIG_DFL); os.kill(os.getpid(), signal.SIGTERM)",
            -signal.SIGTERM,
            "",
        ),
    ],
    ids=["exit", "_exit", "stop", "again"],
)
def test_sigterm_handlers(end, status, output, backend):
    """A service's: it comes at any moment, from without."""
    code = f"""
    def handler(number, frame):
        {end}
    signal.signal(signal.SIGTERM, handler)
    atexit.register(lambda: print("exit functions", outer(1) and "" or "", sep="", end="\\n"))
    rec.start()
    threading.Thread(target=lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
    while True:
        outer(1); [bytearray(i) for i in range(20)]
    """
    assert child(code, backend) == (status, output, "")


def test_exit_functions_are_recorded_and_may_start_and_stop(backend):
    code = """
    def last():
        with raw.recorder(raw.ALL, backend=backend) as mine:
            outer(3)
        names = [r.name for r in raw.rows(mine) if r.word == "call"]
        state = rec.state
        rec.stop()
        calls = [r.name for r in raw.rows(rec) if r.word == "call" and r.name in ("outer", "last")]
        print(names, state, calls, flush=True)
    atexit.register(last)
    rec.start()
    outer(1)
    """
    assert child(code, backend) == (
        0,
        "['outer', 'inner'] running ['outer', 'last', 'outer']\n",
        "",
    )


DAEMONS = """
    def spin():
        while True:
            outer(1); list(map(inner, range(10))); {i: [i] for i in range(20)}
            began.release()
    def churn():
        while True:
            thread = threading.Thread(target=outer, args=(1,), daemon=True)
            try: thread.start()
            except RuntimeError: pass    # the interpreter is at its end
    began = threading.Semaphore(0)
    for target in (spin, spin, churn):
        threading.Thread(target=target, daemon=True).start()
    rec.start()
    for _ in range(20): began.acquire()
    print('end', flush=True)
"""


@pytest.mark.thorough
def test_daemon_threads_that_record_through_the_end(backend):
    for _ in range(amount(6, 20)):
        status, output, errors = child(DAEMONS, backend)
        assert (status, output) == (0, "end\n"), errors


# ---- The package itself --------------------------------------------------------------------------


PACKAGE = """
    import importlib, eventprof
    def calls_of(rec):
        names = [row.name for row in rec.trace.calls if row.kind == "call"]
        return [name for name in names if name in ("outer", "inner")]
"""


def test_reload_while_recording(backend):
    status, output, errors = child(
        PACKAGE
        + """
    before = raw.hooks()
    old = eventprof.record(backend=backend)
    old.start()
    outer(1)
    importlib.reload(eventprof)
    importlib.reload(eventprof._core)
    importlib.reload(eventprof.recording.recorder)
    new = eventprof.record(backend=backend)
    with new: outer(2)
    outer(3)
    old.stop()
    print(calls_of(new), calls_of(old), raw.hooks() == before)
    """,
        backend,
    )

    assert (status, errors) == (0, "")
    assert output == f"{['outer', 'inner']} {['outer', 'inner'] * 3} True\n"


def test_imported_again_while_recording_there_is_one_engine(backend):
    """Every event once in each of the two, whichever of them stops first."""
    status, output, errors = child(
        PACKAGE
        + """
    before = raw.hooks()
    old = eventprof.record(backend=backend)
    old.start()
    outer(1)
    for name in [n for n in sys.modules if n.split('.')[0] == 'eventprof']:
        del sys.modules[name]
    import eventprof as again
    assert again is not eventprof
    new = again.record(backend=backend)
    new.start()
    outer(2)
    during = raw.hooks()
    old.stop()
    outer(3)
    new.stop()
    print(calls_of(new), calls_of(old), raw.hooks() == before)
    if backend == "monitoring":
        print(sum(name == "eventprof" for name, _ in map(lambda t: t or (None, 0), during["tools"])
                  if name))
    else:
        print(1)
    """,
        backend,
    )

    assert (status, errors) == (0, "")
    assert output == f"{['outer', 'inner'] * 2} {['outer', 'inner'] * 2} True\n1\n"


def test_removed_from_sys_modules_and_dropped_while_recording(backend):
    """The recorder is all that is left of it; at the end of the program it still runs."""
    status, output, errors = child(
        PACKAGE
        + """
    rec = eventprof.record(backend=backend)
    rec.start()
    for name in [n for n in sys.modules if n.split('.')[0] == 'eventprof' or n == 'raw']:
        del sys.modules[name]
    del eventprof, raw
    gc.collect()
    print(outer(1))
    """,
        backend,
    )

    assert (status, output, errors) == (0, "2\n", "")
