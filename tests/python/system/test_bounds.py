"""What is promised of a buffer and of its file: their size, and a file that is changed from outside."""

from __future__ import annotations

import os
import textwrap

import children
import pytest

import eventprof

KIB, MIB = 1 << 10, 1 << 20
#: What each living thread may have beyond the limit.
SMALLEST = 4 * KIB


def run(code, *arguments, status=0, **options):
    return children.program(code, *arguments, status=status, **options).stdout


# ---- The bound -------------------------------------------------------------------------------------

THREADS = """
    import sys, threading, eventprof
    def leaf(n):
        return n
    count, path, where = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    threading.stack_size(128 * 1024)
    barrier = threading.Barrier(count + 1)
    def work():
        barrier.wait()
        for n in range(100):
            leaf(n)
        barrier.wait()
    output = {"output": path} if where == "file" else {}
    rec = eventprof.record(buffer="2 MiB", memory=False, c_calls=False, include=["*leaf"], **output)
    threads = [threading.Thread(target=work) for _ in range(count)]
    with rec:
        for thread in threads:
            thread.start()
        barrier.wait()
        barrier.wait()
        held = rec.stats["chunk_bytes"]
        for thread in threads:
            thread.join()
    trace = rec.trace
    called = sum(str(event) == "call" for event in trace.events["event"])
    print(held, called, trace.loss.total)
"""


@pytest.mark.parametrize("where", ["memory", "file"])
def test_threads_by_the_hundred_stay_within_the_buffer(where, tmp_path):
    """With a chunk of 1 MiB each, 2000 took 2.1 GB at 8 MiB, and lost nearly half."""
    count = 400
    path = tmp_path / "a.epr"

    held, called, lost = map(int, run(THREADS, count, path, where).split())

    assert (called, lost) == (100 * count, 0)
    assert held <= 2 * MIB + count * SMALLEST
    if where == "file":
        trace = eventprof.open(path)
        assert not trace.loss and not trace.file["missing"]
        assert trace.verify().ok
        assert path.stat().st_size <= 2 * MIB + count * SMALLEST + MIB  # names


@pytest.mark.thorough
@pytest.mark.parametrize("buffer", [MIB, 3 * MIB])
@pytest.mark.parametrize("on_full", ["overwrite", "stop"])
@pytest.mark.parametrize("where", ["memory", "file"])
def test_the_bound_that_is_stated_is_kept(where, on_full, buffer, tmp_path):
    code = """
        import sys, threading, eventprof
        def leaf(n):
            return n
        def work():
            for n in range(int(sys.argv[4])):
                leaf(n)
        output = {"output": sys.argv[3]} if sys.argv[3] else {}
        rec = eventprof.record(buffer=int(sys.argv[1]), on_full=sys.argv[2], c_calls=False, memory=False,
                               include=["*leaf"], **output)
        threads = [threading.Thread(target=work) for _ in range(4)]
        held = []
        with rec:
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                held.append(rec.stats["chunk_bytes"])
                threads[0].join(0.01)
                threads[-1].join(0.01)
            held.append(rec.stats["chunk_bytes"])
        trace = rec.trace
        print(max(held), len(trace.events), trace.loss.total)
    """
    path = tmp_path / "a.epr"
    each = 40_000 * buffer // MIB

    out = run(code, buffer, on_full, path if where == "file" else "", each)

    held, kept, lost = map(int, out.split())
    assert kept + lost == 2 * 4 * each
    assert lost > 0
    # A few chunks that were in use at the start, for which the limit does not count.
    assert buffer // 2 <= held <= buffer + 12 * SMALLEST
    if where == "file":
        trace = eventprof.open(path)
        assert len(trace.events) + trace.loss.total == 2 * 4 * each
        assert path.stat().st_size <= buffer + 12 * SMALLEST + 2 * MIB  # names


def test_many_small_forks_leave_small_files(tmp_path):
    """300 that did nearly nothing left 1.1 GB."""
    code = """
        import os, sys, eventprof
        def leaf(n):
            return n
        with eventprof.record(output=sys.argv[1]):
            for n in range(50):
                child = os.fork()
                if child == 0:
                    leaf(n)
                    os._exit(0)
                os.waitpid(child, 0)
    """
    run(code, tmp_path / "a-%p.epr")

    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) == 51
    assert sum(sizes) <= 51 * MIB / 3


def test_threads_start_where_memory_is_limited():
    """An address space with room for the threads, and not for 1 MiB more of each."""
    code = """
        import resource, sys, threading, eventprof
        threading.stack_size(128 * 1024)
        count = 200
        barrier = threading.Barrier(count + 1)
        def start_all():
            threads = [
                threading.Thread(target=barrier.wait, args=(100,), daemon=True) for _ in range(count)
            ]
            for thread in threads:
                thread.start()
            barrier.wait(100)
            for thread in threads:
                thread.join()
        start_all()  # what the C library keeps for threads is there
        rec = eventprof.record(buffer="16 MiB", memory=False)
        pages = int(open("/proc/self/statm").read().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (100 << 20), resource.RLIM_INFINITY))
        with rec:
            start_all()
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert not rec.trace.loss, rec.trace.loss
    """
    run(code, MALLOC_ARENA_MAX="1")  # an arena is 128 MiB of addresses


def test_a_file_ends_where_its_records_do(tmp_path):
    """In a process of its own: names of all tests before would be in the file, too."""
    code = """
        import eventprof, sys
        with eventprof.record(output=sys.argv[1], memory=False) as rec:
            len("text")
    """
    path = tmp_path / "a.epr"

    run(code, path)

    size = os.stat(path).st_size
    trace = eventprof.open(path)
    assert len(trace.events) == 2 and not trace.file["missing"]
    assert size < MIB and size % (4 * KIB) == 0


# ---- A file that others cut off --------------------------------------------------------------------

CUT = """
    import os, sys, threading, eventprof
    def leaf(n):
        return n
    path, how = sys.argv[1:]
    rec = eventprof.record(output=path, memory=False, c_calls=False, include=["*leaf"])
    rec.start()
    for n in range(100_000):
        leaf(n)
    threads = [threading.Thread(target=lambda: [leaf(n) for n in range(100_000)]) for _ in range(2)]
    for thread in threads:
        thread.start()
    size = os.stat(path).st_size
    os.truncate(path, {"all": 0, "head": 100, "state": 9000, "half": size // 2, "page": size - 4096}[how])
    for n in range(100_000):
        leaf(n)
    for thread in threads:
        thread.join()
    if os.fork() == 0:
        leaf(1)
        rec.stop()
        os._exit(0)
    assert os.wait()[1] == 0
    leaf(-1)
    rec.stop()
    trace = rec.trace
    print(os.stat(path).st_size <= size, trace.loss.reason, len(trace.events) > 50_000, len(trace.calls) > 0)
    with rec:
        leaf(2)
    print(rec.trace.loss.reason, len(rec.trace.events))
"""


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["all", "head", "state", "half", "page"])
def test_a_file_that_is_cut_off_while_it_is_written_does_not_end_the_program(how, tmp_path):
    path = tmp_path / "a.epr"

    first, second = run(CUT.replace("with rec:", f"os.rename(path, path + '.{how}')\n    with rec:"),
                        path, how).splitlines()  # fmt: skip

    assert first.split() == ["True", "cut", "True", "True"]
    assert second == "None 2"
    whole = eventprof.open(path)  # the next window's
    assert len(whole.events) == 2 and not whole.loss and not whole.file["missing"]
    cut = tmp_path / f"a.epr.{how}"
    if how in ("all", "head"):
        with pytest.raises(eventprof.FormatError):
            eventprof.open(cut)
        return
    trace = eventprof.open(cut)
    assert trace.loss.reason == "cut"
    assert trace.file["missing"]
    text = " ".join(str(trace).split())
    assert "cut the file off" in text and "overwritten" not in text
    if how in ("half", "page"):
        assert len(trace.events) > 0


def test_a_log_rotation_under_run(tmp_path):
    (tmp_path / "main.py").write_text(
        textwrap.dedent("""
            def leaf(n):
                return n
            for n in range(200_000):
                leaf(n)
            open("a.epr", "w").close()
            for n in range(200_000):
                leaf(n)
            print("worked")
        """)
    )
    done = children.eventprof("run", "-o", "a.epr", "main.py", cwd=tmp_path)

    assert done.stdout == "worked\n"
    assert "cut the file off" in done.stderr and "overwritten" not in done.stderr


def test_the_programs_own_handler_of_bus_errors_is_called(tmp_path):
    """For what is not ours, and it is there again afterwards."""
    code = """
        import ctypes, mmap, os, signal, sys, eventprof
        def leaf(n):
            return n
        got = []
        signal.signal(signal.SIGBUS, lambda *_: got.append(1))
        with eventprof.record(output=sys.argv[1], memory=False) as rec:
            os.kill(os.getpid(), signal.SIGBUS)
            os.truncate(sys.argv[1], 0)
            for n in range(10_000):
                leaf(n)
        os.kill(os.getpid(), signal.SIGBUS)
        print(len(got), rec.trace.loss.reason)
        signal.signal(signal.SIGBUS, signal.SIG_DFL)
        other = open(sys.argv[1] + "-other", "wb+")
        other.truncate(8192)
        view = mmap.mmap(other.fileno(), 8192)
        rec = eventprof.record(output=sys.argv[1] + "-2")
        rec.start()
        other.truncate(0)
        view[0]
    """
    out = run(code, tmp_path / "a.epr", status=-7)

    assert out == "2 cut\n"


def test_a_trace_of_a_file_that_is_cut_off_afterwards(tmp_path):
    """The recorder's own trace is read from the file's pages."""
    code = """
        import os, sys, eventprof
        def leaf(n):
            return n
        for part in (0, 2, 3):
            path = f"{sys.argv[1]}-{part}"
            with eventprof.record(output=path, memory=False, include=["*leaf"]) as rec:
                for n in range(100_000):
                    leaf(n)
            os.truncate(path, os.stat(path).st_size * part // 4)
            trace = rec.trace
            assert len(trace.events) <= 200_000
            len(trace.calls), repr(trace), trace.loss
            print(trace.loss.reason if part == 0 else "")
    """
    assert run(code, tmp_path / "a.epr").split() == ["cut"]


def test_a_reader_of_a_file_that_shrinks(tmp_path):
    """What can be read, or why not."""
    with eventprof.record(output=tmp_path / "a.epr", memory=False) as rec:
        for n in range(100_000):
            max(n, 1)
    size = os.stat(rec.output).st_size
    for part in (3, 2, 1, 0):
        trace = eventprof.open(rec.output)
        os.truncate(rec.output, size * part // 4)
        try:
            assert len(trace.events) <= 200_000
        except eventprof.FormatError:
            assert part == 0
        else:
            assert trace.file["missing"]


# ---- A child that may not write --------------------------------------------------------------------


def test_a_forked_child_without_a_file_is_not_silent(tmp_path):
    """The parent's file says so, and how many there were."""
    code = """
        import os, sys, eventprof
        def leaf(n):
            return n
        folder = sys.argv[1]
        os.mkdir(folder)
        with eventprof.record(output=folder + "/a.epr", memory=False):
            os.rename(folder, folder + "-away")
            for _ in range(3):
                child = os.fork()
                if child == 0:
                    leaf(1)
                    os._exit(0)
                os.waitpid(child, 0)
            os.rename(folder + "-away", folder)
    """
    run(code, tmp_path / "files")

    trace = eventprof.open(tmp_path / "files" / "a.epr")
    assert trace.file["children_lost"] == 3
    assert "No such file" in trace.file["children_error"]
    assert "3 forked processes could not write a file (No such file" in " ".join(str(trace).split())


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_line_at_the_end_says_how_many_children_have_no_file(tmp_path, count):
    (tmp_path / "main.py").write_text(
        textwrap.dedent("""
        import os, sys
        os.rename("files", "away")
        for _ in range(int(sys.argv[1])):
            child = os.fork()
            if child == 0:
                print(len(sys.argv), file=sys.stderr)
                os._exit(0)
            os.waitpid(child, 0)
        os.rename("away", "files")
        """)
    )
    (tmp_path / "files").mkdir()

    done = children.eventprof("run", "-o", "files/a.epr", "main.py", count, cwd=tmp_path)

    words = {0: "", 1: "1 forked process could", 3: "3 forked processes could"}[count]
    line = done.stderr.splitlines()[-1]
    assert (f"none lost, {words} not write a file (No such file or directory)" in line) == (
        count > 0
    )
    assert ("forked" in line) == (count > 0)
