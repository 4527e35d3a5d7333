"""record(output=): whatever ends the program, its file opens with all that it did.

Children are small programs that say on a pipe how far they came; what they said before their end
must be in the file, as events or as loss.
"""

from __future__ import annotations

import gc
import json
import os
import random
import shutil
import signal
import stat
import struct
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import nasty
import numpy as np
import programs
import pytest

import eventprof

pytestmark = pytest.mark.usefixtures("restored")

MIB = 1 << 20
FOLDER = str(Path(eventprof.__file__).parent.parent)


def facts(trace):
    return trace._core.file_facts()


def leaf(n):
    return n


def work(n):
    return [leaf(i) for i in range(n)]


# ---- The same as in memory -------------------------------------------------------------------------

TABLES = ("events", "calls", "allocations", "functions", "memory", "threads")


#: What the two tell by clocks of their own: the file's lacks the chunks that were in use before it.
TIMES = {"time", "start", "end", "duration", "total", "self", "mean", "min", "max", "p50",
         "p95", "p99", "first", "last"}  # fmt: skip


def same(column, a, b):
    a, b = np.ma.asarray(a), np.ma.asarray(b)
    if not np.array_equal(np.ma.getmaskarray(a), np.ma.getmaskarray(b)):
        return False
    x, y = a.compressed(), b.compressed()
    if column in TIMES and x.dtype.kind in "if":
        return np.allclose(x, y, rtol=1e-3, atol=20_000)
    if x.dtype.kind == "f":
        return np.array_equal(x, y, equal_nan=True)
    return len(x) == len(y) and all(x == y)


def assert_same(file, memory):
    for name in TABLES:
        a, b = getattr(file, name), getattr(memory, name)
        assert a.columns == b.columns, name
        assert len(a) == len(b), name
        for column in a.columns:
            assert same(column, a[column], b[column]), f"{name}: {column}"
    assert repr(file.loss) == repr(memory.loss)
    assert file.loss.by_kind == memory.loss.by_kind
    for key, value in memory.metadata.items():
        # Seen when the file was begun; measured over it.
        assert key in file.metadata, key
        if key == "duration_ns":
            assert file.metadata[key] == pytest.approx(value, rel=1e-3, abs=20_000)
        elif key not in ("argv", "frequency"):
            assert file.metadata[key] == value, key


@pytest.mark.parametrize("name", ["richards", "json", "generators", "coroutines"])
def test_a_program_on_file_is_the_program_in_memory(name, backend, tmp_path):
    run = programs.program(name)
    rec = eventprof.record(output=tmp_path / "a.epr", backend=backend, on_full="grow")
    with rec:
        run()

    assert_same(eventprof.open(rec.output), rec.trace)


@pytest.mark.parametrize("on_full", ["overwrite", "stop", "grow"])
def test_each_policy(on_full, tmp_path):
    rec = eventprof.record(output=tmp_path / "a.epr", buffer="1 MiB", on_full=on_full)
    with rec:
        for _ in range(20):
            work(2000)

    trace = eventprof.open(rec.output)
    assert_same(trace, rec.trace)
    assert bool(trace.loss) == (on_full != "grow")


def test_threads_and_their_names(tmp_path):
    rec = eventprof.record(output=tmp_path / "a.epr", buffer="4 MiB")
    with rec:
        for round_ in range(5):
            threads = [
                threading.Thread(target=work, args=(2000,), name=f"worker {round_} {i}")
                for i in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    trace = eventprof.open(rec.output)
    assert_same(trace, rec.trace)
    names = {str(name) for name in trace.threads["name"]}
    assert {"MainThread", "worker 0 0", "worker 4 3"} <= names


def nasty_cases():
    return [
        value for name, value in vars(nasty).items() if name.startswith("case_") and callable(value)
    ]


def test_odd_programs(tmp_path):
    rec = eventprof.record(output=tmp_path / "a.epr", on_full="grow")
    with rec:
        for name in ("été", "\ud800odd", "x" * 70_000, "tab\tname", ""):
            exec(compile("def f(): pass\nf()", name, "exec"), {"__name__": name})
            try:
                f = eval("lambda: None")
                f.__code__ = f.__code__.replace(co_qualname=name)
                f()
            except (ValueError, AttributeError):
                pass
        for case in nasty_cases():
            case()

    trace = eventprof.open(rec.output)
    a, b = trace.events, rec.trace.events
    assert len(a) == len(b)
    assert repr(trace.loss) == repr(rec.trace.loss)
    short = [i for i, name in enumerate(b["name"]) if len(str(name)) < 60_000]
    assert [str(a["name"][i]) for i in short] == [str(b["name"][i]) for i in short]
    assert any(str(name) == "\ud800odd" for name in trace.functions["name"])


def test_include_and_exclude(tmp_path):
    rec = eventprof.record(output=tmp_path / "a.epr", include=["*leaf"], exclude=["json*"])
    with rec:
        work(100)
        json.dumps({})

    trace = eventprof.open(rec.output)
    assert_same(trace, rec.trace)
    assert set(map(str, trace.functions["name"])) >= {"leaf"}


def test_threads_current(tmp_path):
    rec = eventprof.record(output=tmp_path / "a.epr", threads="current")
    with rec:
        thread = threading.Thread(target=work, args=(100,))
        thread.start()
        thread.join()
        work(10)

    trace = eventprof.open(rec.output)
    assert_same(trace, rec.trace)
    assert len(trace.threads) == 1


def test_lines_and_what_the_file_says_of_itself(tmp_path):
    rec = eventprof.record(output=tmp_path / "a.epr")
    with rec:
        work(1)

    trace = eventprof.open(rec.output)
    events = trace.events
    rows = [i for i, name in enumerate(events["name"]) if str(name) == "leaf"]
    assert [events["caller_line"][i] for i in rows if str(events["event"][i]) == "call"] == [
        work.__code__.co_firstlineno + 1
    ]
    said = facts(trace)
    assert said["unfinished"] is False
    assert said["live"] is False
    assert said["missing_count"] == 0
    assert trace.metadata["pid"] == os.getpid()
    assert "rss" not in trace.memory.columns or (trace.memory["rss"] > 0).any()


def test_the_trace_outlives_the_file(tmp_path):
    rec = eventprof.record(output=tmp_path / "a.epr")
    with rec:
        work(100)
    trace = eventprof.open(rec.output)
    os.unlink(rec.output)

    assert_same(trace, rec.trace)


# ---- Killed ----------------------------------------------------------------------------------------

CHILD = """
import os, sys, threading
import eventprof
how, path, threads, on_full, seed = sys.argv[1:6]
def last_words(k, n):
    return os.write(1, b"%d %d\\n" % (k, n))
def work(k):
    n = 0
    while True:
        for _ in range(50):
            leaf(n)
            n += 1
        last_words(k, n)
        if how != "kill" and n >= limit:
            end()
def leaf(n):
    return [n]
def end():
    if how == "exit":
        os._exit(3)
    import ctypes
    ctypes.string_at(0)
limit = 50 * int(seed)
rec = eventprof.record(output=path, buffer="2 MiB", on_full=on_full, c_calls=False)
rec.start()
for k in range(1, int(threads)):
    threading.Thread(target=work, args=(k,), daemon=True).start()
work(0)
"""


def environment():
    return {**os.environ, "PYTHONPATH": FOLDER, "PYTHONFAULTHANDLER": ""}


def run_child(code, *arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}",
         *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=options.pop("stderr", None),
        env=environment(),
        **options,
    )  # fmt: skip


def run_to_end(code, *arguments, **options):
    child = run_child(textwrap.dedent(code), *arguments, **options)
    out = child.communicate()[0]
    return child.returncode, out


def kill_one(number, tmp_path):
    """Run a program, kill it, and hold its file against what it said."""
    dice = random.Random(number)
    how = ("kill", "segv", "exit")[number % 3]
    threads = (1, 4)[number // 3 % 2]
    on_full = ("overwrite", "grow")[number // 6 % 2]
    path = tmp_path / f"{number}.epr"
    lines = dice.randrange(1, 800)
    child = run_child(CHILD, how, path, threads, on_full, lines)
    said = b""
    if how == "kill":
        while said.count(b"\n") < lines:
            said += os.read(child.stdout.fileno(), 4096)
        child.kill()
    said += child.communicate()[0]
    last = {}
    for line in said.split(b"\n")[:-1]:
        k, n = line.split()
        last[int(k)] = int(n)
    expected = {"kill": -signal.SIGKILL, "segv": -signal.SIGSEGV, "exit": 3}[how]
    assert child.returncode == expected

    trace = eventprof.open(path)
    events = trace.events
    called = {}
    for name, event in zip(events["name"], events["event"], strict=True):
        if str(event) == "call":
            called[str(name)] = called.get(str(name), 0) + 1
    lost = trace.loss.by_kind.get("call", 0)
    leaves, words = sum(last.values()), sum(n // 50 for n in last.values())
    what = f"{how}, {threads} threads, {on_full}: {called} and {lost} lost, of {last}"
    assert sum(called.values()) + lost >= leaves + words, what
    if on_full == "grow":
        assert lost == 0, what
        assert called["leaf"] >= leaves, what
        assert called["last_words"] >= words, what
    said = facts(trace)
    assert said["unfinished"] and not said["live"]
    assert said["missing"] == [], what
    # What it did right before its end has names and lines.
    named = [
        i
        for i in range(max(0, len(events) - 200), len(events))
        if str(events["event"][i]) == "call"
    ]
    assert named
    for i in named:
        assert (
            str(events["name"][i]) in ("leaf", "last_words", "work", "end", "<module>")
            or how == "segv"
            or threads > 1
        )
    path.unlink()


def test_a_killed_program_has_all_on_file(tmp_path):
    for number in range(30):
        kill_one(number, tmp_path)


@pytest.mark.slow
def test_a_hundred_killed_programs_have_all_on_file(tmp_path):
    for number in range(30, 130):
        kill_one(number, tmp_path)


def test_code_without_a_module_gets_none_of_other_code_that_has_no_file_either(tmp_path):
    other: dict = {"__name__": "other"}
    exec("def of_a_module():\n    pass", other)
    bare: dict = {}
    exec("def of_none():\n    pass", bare)
    with eventprof.record(output=tmp_path / "a.epr") as rec:
        other["of_a_module"]()
        bare["of_none"]()

    for trace in (rec.trace, eventprof.open(tmp_path / "a.epr")):
        functions = trace.functions
        modules = dict(zip(functions["name"], functions["module"], strict=True))
        assert modules["of_a_module"] == "other"
        assert modules["of_none"] is None


def longest_open_chunk(path):
    """Give where the chunk that has most records and was not sealed begins, and the word in their middle."""
    data, found = path.read_bytes(), []
    for offset in range(0, len(data), 4096):
        magic, state = struct.unpack_from("<II", data, offset)
        if (magic, state) == (0x43505645, 1):
            words = np.frombuffer(data, "<u8", offset=offset + 128)
            found.append((int(np.argmin(words != 0)), offset))
    used, offset = max(found)
    return offset, used // 2


def test_damage_in_a_chunk_that_its_killed_owner_did_not_seal_is_told(tmp_path):
    code = """
        import os, sys, eventprof
        rec = eventprof.record(output=sys.argv[1], memory=False)
        rec.start()
        for _ in range(20_000):
            len("")
        os.kill(os.getpid(), 9)
    """
    path = tmp_path / "killed.epr"
    assert run_to_end(code, path)[0] == -signal.SIGKILL
    whole = eventprof.open(path)
    assert whole.file["missing"] == []
    count = len(whole.events)
    offset, middle = longest_open_chunk(path)
    with open(path, "r+b") as file:
        file.seek(offset + 128 + middle * 8)
        file.write(b"\xff" * 64)

    trace = eventprof.open(path)

    assert 0 < len(trace.events) < count
    (note,) = trace.file["missing"]
    assert f"chunk at offset {offset}: damaged; the first {middle * 8} bytes" in note


def test_names_and_lines_of_what_happened_right_before_the_kill(tmp_path):
    code = """
        import os, sys, eventprof
        rec = eventprof.record(output=sys.argv[1], calls=True)
        rec.start()
        exec(compile("def quite_new():\\n    end()\\n\\n\\ndef end():\\n    os.kill(os.getpid(), 9)\\n"
                     "quite_new()", "new.py", "exec"))
    """
    path = tmp_path / "a.epr"
    assert run_to_end(code, path)[0] == -signal.SIGKILL

    trace = eventprof.open(path)

    events = trace.events
    last = [i for i in range(len(events)) if str(events["event"][i]) == "call"][-2:]
    assert [str(events["name"][i]) for i in last] == ["quite_new", "end"]
    assert [events["caller_line"][i] for i in last] == [7, 2]
    row = list(map(str, trace.functions["name"])).index("end")
    assert str(trace.functions["file"][row]) == "new.py"
    assert trace.functions["line"][row] == 5
    blocks = [i for i in range(len(events)) if str(events["event"][i]) == "malloc"]
    assert blocks
    assert events["line"][blocks[-1]] is not np.ma.masked


@pytest.mark.parametrize("how", ["daemon", "end", "sys.exit", "exception"])
def test_a_program_that_ends_without_a_stop(how, tmp_path):
    code = """
        import sys, threading, eventprof
        how = sys.argv[2]
        rec = eventprof.record(output=sys.argv[1], on_full="grow")
        rec.start()
        def leaf(n): return n
        def spin():
            while True: leaf(1)
        for i in range(1000): leaf(i)
        if how == "daemon":
            for i in range(3): threading.Thread(target=spin, daemon=True).start()
            for i in range(20000): leaf(i)
        elif how == "sys.exit":
            sys.exit(5)
        elif how == "exception":
            raise ValueError
    """
    path = tmp_path / "a.epr"
    code, _ = run_to_end(code, path, how, stderr=subprocess.DEVNULL)
    assert code == {"sys.exit": 5, "exception": 1}.get(how, 0)

    trace = eventprof.open(path)

    assert facts(trace)["missing"] == []
    assert not facts(trace)["live"]
    events = trace.events
    calls = sum(
        str(n) == "leaf" and str(e) == "call"
        for n, e in zip(events["name"], events["event"], strict=True)
    )
    assert calls >= (21000 if how == "daemon" else 1000)


# ---- Paths -----------------------------------------------------------------------------------------


def test_a_file_that_is_there_is_not_touched_without_force(tmp_path):
    path = tmp_path / "a.epr"
    path.write_bytes(b"precious")
    rec = eventprof.record(output=path)

    with pytest.raises(FileExistsError, match=r"force=True.*a\.epr"):
        rec.start()

    assert path.read_bytes() == b"precious"
    assert rec.state == "new"
    forced = eventprof.record(output=path, force=True)
    with forced:
        work(1)
    assert_same(eventprof.open(path), forced.trace)


def test_force_leaves_those_alone_who_have_the_old_file_open(tmp_path):
    path = tmp_path / "a.epr"
    with eventprof.record(output=path) as first:
        work(10)
    with eventprof.record(output=path, force=True) as second:
        work(20)

    assert names_called(first.trace).count("leaf") == 10
    assert_same(eventprof.open(path), second.trace)


def test_started_again_it_replaces_its_own_file(tmp_path):
    rec = eventprof.record(output=tmp_path / "a.epr")
    with rec:
        work(10)
    with rec:
        leaf(1)

    assert_same(eventprof.open(rec.output), rec.trace)
    assert os.listdir(tmp_path) == ["a.epr"]


@pytest.mark.parametrize("where", ["folder", "missing/a.epr", "file/a.epr"])
def test_where_no_file_can_be(where, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"")
    rec = eventprof.record(output=tmp_path / where, force=True)

    with pytest.raises(OSError) as info:
        rec.start()

    assert info.value.filename == str(tmp_path / where)
    assert info.value.errno
    assert rec.state == "new"
    assert (tmp_path / "folder").is_dir()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_rights(tmp_path):
    folder = tmp_path / "closed"
    folder.mkdir(mode=stat.S_IRUSR | stat.S_IXUSR)

    with pytest.raises(PermissionError):
        eventprof.record(output=folder / "a.epr").start()


def test_patterns(tmp_path):
    rec = eventprof.record(output=tmp_path / "%h-%p-%%.epr")
    with rec:
        work(1)

    assert rec.output == str(tmp_path / f"{os.uname().nodename}-{os.getpid()}-%.epr")
    assert_same(eventprof.open(rec.output), rec.trace)
    for wrong in ("%q.epr", "a%"):
        with pytest.raises(ValueError, match="%p, %h and %%"):
            eventprof.record(output=wrong)


def test_a_relative_path_is_one_of_where_it_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    rec = eventprof.record(output="a.epr")
    os.chdir("elsewhere")
    with rec:
        work(1)

    assert rec.output == str(tmp_path / "a.epr")
    assert os.path.exists(rec.output)


@pytest.mark.parametrize("order", ["inside", "overlapping"])
def test_several_files_at_once(order, tmp_path):
    first, second, third = (eventprof.record(output=tmp_path / f"{name}.epr") for name in "abc")
    first.start()
    work(10)
    second.start()
    work(30_000)  # more than one chunk
    third.start()
    work(20)
    for rec in (third, second, first) if order == "inside" else (first, second, third):
        rec.stop()
        work(3)

    calls = []
    for rec in (first, second, third):
        file = eventprof.open(rec.output)
        assert not file.loss and not file.file["missing"] and not file.file["unfinished"]
        assert_same(file, rec.trace)
        assert file.verify().ok
        calls.append(names_called(file).count("leaf"))
    inside = [30_036, 30_023, 20] if order == "inside" else [30_030, 30_023, 26]
    assert calls == inside

    with second:  # once more, with nothing beside it: it streams
        work(3)
    assert_same(eventprof.open(second.output), second.trace)


def test_a_file_that_is_recorded_into_is_not_replaced(tmp_path):
    first = eventprof.record(output=tmp_path / "a.epr")
    same_path = eventprof.record(output=tmp_path / "a.epr", force=True)
    with first:
        work(10)
        with pytest.raises(
            eventprof.StateError, match=r"another recorder records into .*a\.epr.*another name"
        ):
            same_path.start()

    assert_same(eventprof.open(first.output), first.trace)


def test_a_second_file_of_a_forked_child(tmp_path):
    code = """
        import eventprof, os, sys
        def leaf(n):
            return n
        os.chdir(sys.argv[1])
        with eventprof.record(output="outer.epr"):
            with eventprof.record(output="inner.epr") as inner:
                leaf(1)
                child = os.fork()
                for n in range(5 if child else 7):
                    leaf(n)
            if child == 0:
                sys.exit(0 if inner.output.endswith(f"inner-{os.getpid()}.epr") else 3)
            sys.exit(os.waitpid(child, 0)[1])
    """
    status, _ = run_to_end(code, tmp_path)

    assert status == 0
    child = next(tmp_path.glob("inner-*.epr"))
    for path, count in ((tmp_path / "inner.epr", 6), (child, 7)):
        trace = eventprof.open(path)
        assert names_called(trace).count("leaf") == count
        assert not trace.loss and not trace.file["unfinished"]


def test_recorders_of_memory_beside_it(tmp_path):
    with eventprof.record() as around:
        with eventprof.record(output=tmp_path / "a.epr") as rec, eventprof.record() as inside:
            work(1000)
        work(10)

    assert_same(eventprof.open(rec.output), rec.trace)
    calls = [sum(str(e) == "call" for e in r.trace.events["event"]) for r in (around, rec, inside)]
    assert calls[0] >= calls[1] >= calls[2] >= 1001


def test_no_descriptor_is_left(tmp_path):
    before = os.listdir("/proc/self/fd")
    for i in range(3):
        with eventprof.record(output=tmp_path / f"{i}.epr") as rec:
            work(10)
        trace = eventprof.open(rec.output)
        len(trace.events)
        del trace
    with pytest.raises(FileNotFoundError):
        eventprof.record(output=tmp_path / "no" / "b.epr").start()
    (tmp_path / "bad").write_bytes(b"bad")
    for _ in range(3):
        with pytest.raises(eventprof.FormatError):
            eventprof.open(tmp_path / "bad")
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == len(before)


# ---- Other processes -------------------------------------------------------------------------------


def names_called(trace):
    events = trace.events
    return [
        str(n) for n, e in zip(events["name"], events["event"], strict=True) if str(e) == "call"
    ]


def test_fork(tmp_path):
    code = """
        import os, sys, eventprof
        def in_parent(): pass
        def in_child(): pass
        def in_grandchild(): pass
        rec = eventprof.record(output=sys.argv[1], on_full="grow")
        rec.start()
        in_parent()
        child = os.fork()
        if child == 0:
            in_child()
            grandchild = os.fork()
            if grandchild == 0:
                in_grandchild()
                os.kill(os.getpid(), 9)
            os.waitpid(grandchild, 0)
            print(grandchild, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        in_parent()
        print(child)
        rec.stop()
    """
    status, out = run_to_end(code, tmp_path / "a.epr")
    assert status == 0
    grandchild, child = map(int, out.split())

    assert sorted(os.listdir(tmp_path)) == sorted(
        ["a.epr", f"a-{child}.epr", f"a-{grandchild}.epr"]
    )
    parent = eventprof.open(tmp_path / "a.epr")
    first = eventprof.open(tmp_path / f"a-{child}.epr")
    second = eventprof.open(tmp_path / f"a-{grandchild}.epr")
    ours = ("in_parent", "in_child", "in_grandchild")
    assert [n for n in names_called(parent) if n in ours] == ["in_parent"] * 2
    assert [n for n in names_called(first) if n in ours] == ["in_child"]
    assert [n for n in names_called(second) if n in ours] == ["in_grandchild"]
    assert [facts(t)["unfinished"] for t in (parent, first, second)] == [False, True, True]
    assert facts(first)["parent_pid"] == parent.metadata["pid"]
    assert facts(second)["parent_pid"] == child
    assert first.metadata["pid"] == child
    for trace in (parent, first, second):
        assert facts(trace)["missing"] == []


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(method, tmp_path):
    (tmp_path / "program.py").write_text(
        textwrap.dedent("""
        import multiprocessing, sys, eventprof
        def task(n): return n * n
        if __name__ == "__main__":
            context = multiprocessing.get_context(sys.argv[2])
            with eventprof.record(output=sys.argv[1], on_full="grow") as rec:
                with context.Pool(2) as pool:
                    assert pool.map(task, range(20)) == [n * n for n in range(20)]
                    pool.close()
                    pool.join()
    """)
    )
    output = tmp_path / "out"
    output.mkdir()
    subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            str(tmp_path / "program.py"),
            str(output / "a.epr"),
            method,
        ],
        env={**environment(), "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
        timeout=120,
    )

    traces = {name: eventprof.open(output / name) for name in os.listdir(output)}
    tasks = sum(names_called(trace).count("task") for trace in traces.values())
    assert all(facts(trace)["missing"] == [] for trace in traces.values())
    if method == "fork":
        assert len(traces) == 3
        assert tasks == 20
    else:
        assert list(traces) == ["a.epr"]


def test_subprocesses_leave_no_file_unless_they_run_python(tmp_path):
    code = """
        import os, subprocess, sys, eventprof
        def prepare(): os.environ
        with eventprof.record(output=sys.argv[1], on_full="grow"):
            subprocess.run(["true"], check=True)
            subprocess.run(["true"], check=True, close_fds=False)
            subprocess.run(["true"], check=True, preexec_fn=prepare)
            os.system("true")
        # Nothing that can be inherited.
        subprocess.run(["sh", "-c", "ls -l /proc/self/fd"], check=True)
    """
    status, out = run_to_end(code, tmp_path / "a.epr")
    assert status == 0
    assert b".epr" not in out

    names = os.listdir(tmp_path)
    assert "a.epr" in names
    assert len(names) <= 2
    for name in names:
        trace = eventprof.open(tmp_path / name)
        assert facts(trace)["missing"] == []
        assert ("prepare" in names_called(trace)) == (name != "a.epr")


# ---- No room ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_full", ["overwrite", "stop", "grow"])
def test_a_limit_of_the_system(on_full, tmp_path):
    code = """
        import resource, sys, eventprof
        def leaf(n): return n
        resource.setrlimit(resource.RLIMIT_FSIZE, (7 << 20, resource.RLIM_INFINITY))
        rec = eventprof.record(output=sys.argv[1], on_full=sys.argv[2], memory=False, c_calls=False)
        with rec:
            for i in range(600000): leaf(i)
        called = sum(str(e) == "call" for e in rec.trace.events["event"])
        print(called, rec.trace.loss.by_kind.get("call", 0))
    """
    status, out = run_to_end(code, tmp_path / "a.epr", on_full)
    assert status == 0
    called, lost = map(int, out.split())
    assert called + lost == 600000
    assert lost > 0

    trace = eventprof.open(tmp_path / "a.epr")

    assert sum(str(e) == "call" for e in trace.events["event"]) == called
    assert trace.loss.by_kind["call"] == lost
    assert os.path.getsize(tmp_path / "a.epr") <= 7 << 20


def test_no_room_for_a_file_at_all(tmp_path):
    code = """
        import os, resource, sys, eventprof
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, resource.RLIM_INFINITY))
        rec = eventprof.record(output=sys.argv[1])
        try:
            rec.start()
        except OSError as error:
            print(error.errno, rec.state, os.path.exists(sys.argv[1]))
    """
    assert run_to_end(code, tmp_path / "a.epr") == (0, b"27 new False\n")


@pytest.fixture
def tiny_disk(tmp_path):
    folder = tmp_path / "tiny"
    folder.mkdir()
    mount = shutil.which("mount")
    if mount is None or subprocess.run([mount, "-t", "tmpfs", "-o", "size=6m", "none", str(folder)],
                                       capture_output=True, check=False).returncode != 0:  # fmt: skip
        pytest.skip("may not mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("on_full", ["overwrite", "stop", "grow"])
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_full_disk(on_full, how, tiny_disk):
    code = """
        import os, sys, eventprof
        def leaf(n): return n
        rec = eventprof.record(output=sys.argv[1], on_full=sys.argv[2], memory=False, c_calls=False)
        rec.start()
        for i in range(600000): leaf(i)
        if sys.argv[3] == "kill": os.kill(os.getpid(), 9)
        rec.stop()
    """
    status, _ = run_to_end(code, tiny_disk / "a.epr", on_full, how)
    assert status == (0 if how == "stop" else -signal.SIGKILL)

    trace = eventprof.open(tiny_disk / "a.epr")

    called = sum(str(e) == "call" for e in trace.events["event"])
    assert called > 60000
    if how == "stop" or on_full == "overwrite":
        assert called + trace.loss.by_kind["call"] == 600000
    else:
        assert called + trace.loss.by_kind.get("call", 0) <= 600000


# ---- What is no log, or not whole ------------------------------------------------------------------


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A file with a sealed chunk and more; in a ring of two, another thread could push the first out."""
    path = tmp_path_factory.mktemp("good") / "good.epr"
    rec = eventprof.record(output=path, buffer="16 MiB")
    with rec:
        work(80_000)
    return path.read_bytes()


def put(data, offset, form, *values):
    changed = bytearray(data)
    struct.pack_into("<" + form, changed, offset, *values)
    return bytes(changed)


def slots_of(data):
    """Offsets of the slots."""
    at = struct.unpack_from("<Q", data, log_header()["head_bytes"])[0]
    while at < len(data):
        yield at
        at += size_at(data, at)


def size_at(data, slot):
    return struct.unpack_from("<I", data, slot + 96)[0]


def chunk_at(data):
    """Offset of the first slot of events that is sealed, wanted, and longer than what is cut off."""
    sealed = struct.pack("<II", 0x43505645, 2)
    return next(
        o
        for o in slots_of(data)
        if data[o : o + 8] == sealed
        and size_at(data, o) > 20_064
        and any(data[o + 80 : o + 88])
        and any(data[o + 20_000 : o + 20_064])
    )


def state_at(data, which):
    return struct.unpack_from("<Q", data, log_header()[f"state_offset{which}"])[0]


def texts_at(data):
    return next(o for o in slots_of(data) if data[o : o + 4] == b"EVPN")


BAD = {
    "empty": lambda d: b"",
    "one byte": lambda d: b"E",
    "text": lambda d: b"hello, world\n" * 1000,
    "zeros": lambda d: bytes(len(d)),
    "ones": lambda d: b"\xff" * len(d),
    "random": lambda d: random.Random(1).randbytes(3 * MIB),
    "magic and random": lambda d: d[:8] + random.Random(2).randbytes(3 * MIB),
    "header and random": lambda d: d[:4096] + random.Random(3).randbytes(3 * MIB),
    "magic alone": lambda d: d[:8],
    "half a header": lambda d: d[:100],
    "header alone": lambda d: d[:4096],
    "cut in the first slot": lambda d: d[: next(slots_of(d)) + 2000],
    "head alone": lambda d: d[: next(slots_of(d))],
    "cut in a chunk": lambda d: d[: chunk_at(d) + 12345],
    "cut by one byte": lambda d: d[:-1],
    "newer major": lambda d: put(d, 8, "H", 99),
    "other byte order": lambda d: put(d, 12, "I", 0x04030201),
    "slots of no size": lambda d: put(d, 20, "I", 0),
    "slots of all sizes": lambda d: put(d, 20, "I", 0xFFFFFFFF),
    "chunk beyond the file": lambda d: put(d, chunk_at(d) + 56, "Q", 1 << 62),
    "chunk of all ones": lambda d: d[: chunk_at(d) + 16] + b"\xff" * 9000 + d[chunk_at(d) + 9016 :],
    "texts beyond the file": lambda d: put(d, texts_at(d) + 128, "Q", 1 << 32 | 0xFFFFFFF0),
    "a text id of all ones": lambda d: put(d, texts_at(d) + 136, "I", 0xFFFFFFFF),
    "metadata beyond the limit": lambda d: put(d, 4096, "I", 0),
    "state beyond its room": lambda d: put(
        put(d, state_at(d, 0), "QIIQQ", 0, 5, 0xFFFFFFFF, 1, 0),
        state_at(d, 1), "QIIQQ", 0, 5, 0xFFFFFFFF, 1, 0),
    "a state beyond the file": lambda d: put(d, log_header()["state_offset0"], "QQ", 1 << 62, 1 << 62),
    "states of any room": lambda d: put(d, log_header()["state_room0"], "QQ", 2**64 - 1, 2**64 - 1),
    "head beyond the file": lambda d: put(d, log_header()["head_bytes"], "Q", 1 << 62),
    "a slot of no size": lambda d: put(d, chunk_at(d) + 96, "I", 0),
    "a slot of any size": lambda d: put(d, chunk_at(d) + 96, "I", 0xFFFFF000),
}  # fmt: skip

READ = """
import resource, sys
limit = int(sys.argv[2])
import eventprof, os
import eventprof.files.opening, eventprof.trace
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + limit, -1))
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
path = sys.argv[1]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    trace = eventprof.open(path)
    for name in ("events", "calls", "allocations", "functions", "memory", "threads"):
        table = getattr(trace, name)
        for column in table.columns:
            table[column]
    repr(trace), trace.loss, trace.metadata
    print("opened", len(trace.events), trace._core.file_facts()["missing_count"])
except (eventprof.FormatError, OSError) as error:
    print("refused", error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def read_apart(path, limit=600 << 20):
    """Read a file where a crash, or too much memory, harms nobody. Gives (what, rest, KiB)."""
    status, out = run_to_end(READ, path, limit)
    assert status == 0, f"status {status}: {out!r}"
    said, grown = out.decode().strip().rsplit("\n", 1)
    what, _, rest = said.partition(" ")
    return what, rest, int(grown)


@pytest.mark.parametrize("what", BAD)
def test_bad_files(what, good, tmp_path):
    path = tmp_path / "bad.epr"
    path.write_bytes(BAD[what](good))

    result, rest, grown = read_apart(path)

    assert grown < 60_000 + 12 * path.stat().st_size / 1024
    if result == "refused":
        assert str(path) in rest
        assert any(word in rest for word in ("offset", "byte ", "version", "empty", "begins with"))
    for refused in ("empty", "text", "zeros", "ones", "random", "half a header", "newer major"):
        if what == refused:
            assert result == "refused"
    if what == "cut by one byte":  # of the room behind the last record
        assert result == "opened"
    if what in ("chunk beyond the file", "cut in a chunk"):
        assert result == "opened"
        assert int(rest.split()[1]) >= 1


@pytest.mark.parametrize(
    "metadata",
    [b"[]", b"3", b"[" * 60_000, b"\xff\xfe\x00", b'{"options": 3}', b'{"options": {"include": 5}}',
     b'{"options": {"include": ["", "a\\u0000b"]}}', b'{"pid": {}}', b"", b'{"\\ud800": "\\ud800"}'],
)  # fmt: skip
def test_metadata_of_any_sort(metadata, good, tmp_path):
    path = tmp_path / "a.epr"
    data = put(good, 4096, f"{len(metadata)}s", metadata)
    path.write_bytes(put(data, log_header()["metadata_bytes"], "Q", len(metadata)))

    trace = eventprof.open(path)

    assert len(trace.events) > 0
    assert isinstance(trace.metadata, dict)
    repr(trace)


def log_header():
    import read_log

    return read_log.HEADER_OFFSETS


def of_a_later_version(data, number):
    """The same log as if marks were of a kind that this version does not know."""
    import read_log

    mark, at = 46, read_log.HEADER_OFFSETS
    kinds = struct.unpack_from("<Q", data, at["kinds"])[0]
    data = put(data, at["kinds"], "Q", kinds & ~(1 << mark))
    data = put(data, at["kinds_high"], "Q", 1 << number - 64)
    row = at["kind_table"] + 24 * number
    data = put(data, row, "4B20s", *data[row - 24 * (number - mark) :][:4], b"later")
    for slot in slots_of(data):
        magic, state = struct.unpack_from("<II", data, slot)
        if magic != 0x43505645 or not state:
            continue
        count = (min(size_at(data, slot), len(data) - slot) - 128) // 8
        words = list(struct.unpack_from(f"<{count}Q", data, slot + 128))
        place = 0
        while place < len(words) and words[place]:
            kind = words[place] >> 25 & 127
            if kind == mark:
                words[place] += number - mark << 25
            place += 1 if kind in read_log.CALLS or kind in read_log.POINTS else 2
        data = put(data, slot + 128, f"{len(words)}Q", *words)
        if state == 2:
            used = struct.unpack_from("<Q", data, slot + 56)[0]
            total = read_log.sum64(data[slot + 128 : slot + 128 + 8 * used])
            data = put(data, slot + 88, "Q", total)
    return data


def test_kinds_of_a_later_version_are_left_out(tmp_path, capsys):
    import read_log

    path, later = tmp_path / "now.epr", tmp_path / "later.epr"
    with eventprof.record(output=path):
        for _ in range(50):
            eventprof.mark("here")
            work(3)
    later.write_bytes(of_a_later_version(path.read_bytes(), 101))

    now, trace = eventprof.open(path), eventprof.open(later)

    marks = now.events["event"] == "mark"
    assert marks.sum() == 50
    assert trace.file["unknown_events"] == 50
    assert trace.file["unknown_kinds"] == "later"
    assert not trace.file["missing"]
    assert trace.metadata["damaged_chunks"] == 0
    assert trace.events["event"].tolist() == now.events["event"][~marks].tolist()
    assert trace.events["time"].tolist() == now.events["time"][~marks].tolist()
    assert [event.word for event in read_log.read(later).events] == trace.events["event"].tolist()
    trace.report()
    told = " ".join(capsys.readouterr().out.split())
    assert "50 events of kinds that this eventprof does not know (later) are left out" in told
    assert trace.verify()


def test_changed_anywhere(good, tmp_path):
    """Bytes of headers, states and first records changed at random: it opens, or says why not."""
    dice = random.Random(4)
    starts = [0, state_at(good, 0), state_at(good, 1), chunk_at(good), texts_at(good)]
    path = tmp_path / "a.epr"
    path.write_bytes(good)
    with path.open("r+b") as file:
        for _ in range(150):
            at = dice.choice(starts) + dice.randrange(400)
            file.seek(at)
            file.write(dice.randbytes(dice.choice([1, 4, 8])))
            file.flush()
            try:
                trace = eventprof.open(path)
                trace.events["time"]
                trace.calls["start"]
                trace.functions["name"]
                trace.threads["name"]
            except (eventprof.FormatError, OSError) as error:
                assert str(path) in str(error)
            file.seek(at & ~4095)
            file.write(good[at & ~4095 : (at & ~4095) + 8192])
            file.flush()


def test_a_sparse_file_of_any_length(good, tmp_path):
    path = tmp_path / "a.epr"
    path.write_bytes(good)
    os.truncate(path, 1 << 42)

    result, _, grown = read_apart(path)

    assert result == "opened"
    assert grown < 60_000 + 12 * len(good) / 1024


# ---- An independent reader -------------------------------------------------------------------------


def assert_as_read_independently(path):
    import read_log

    other = read_log.read(path)
    trace = eventprof.open(path)
    events = trace.events
    assert len(other.events) == len(events)
    words = [str(word) for word in events["event"]]
    assert [event.word for event in other.events] == words
    for key in ("address", "size"):
        ours = np.ma.asarray(events[key])
        for i in np.nonzero(~np.ma.getmaskarray(ours))[0][:5000]:
            theirs = getattr(other.events[i], key)
            assert theirs is None or theirs == ours[i], key
    assert [event.name for event in other.events if event.word in ("call", "return")] == [
        str(name)
        for name, word in zip(events["name"], words, strict=True)
        if word in ("call", "return")
    ]
    lines = np.ma.asarray(events["caller_line"])
    for i, event in enumerate(other.events):
        if event.word == "call" and event.line is not None:
            assert event.line == lines[i]
    lost = {}
    for (_, word), count in other.lost.items():
        lost[word] = lost.get(word, 0) + count
    assert lost == {word: n for word, n in trace.loss.by_kind.items() if n}
    assert other.damaged == (facts(trace)["missing_count"] > 0)
    assert other.finished != facts(trace)["unfinished"]
    assert {t.name for t in other.threads.values() if t.events} <= {
        str(n) for n in trace.threads["name"]
    } | {""}
    return other


def test_the_specification_on_finished_files(tmp_path):
    for i, options in enumerate(
        ({"on_full": "grow"}, {"buffer": "1 MiB"}, {"buffer": "1 MiB", "on_full": "stop"})
    ):
        rec = eventprof.record(output=tmp_path / f"{i}.epr", **options)
        with rec:
            work(3000 if i == 0 else 60000)
            thread = threading.Thread(target=work, args=(1000,))
            thread.start()
            thread.join()
        assert assert_as_read_independently(rec.output).finished


@pytest.mark.parametrize("threads", [1, 4])
def test_the_specification_on_killed_files(threads, tmp_path):
    path = tmp_path / "a.epr"
    status = run_to_end(CHILD, "exit", path, threads, "overwrite", 600)[0]
    assert status == 3

    assert not assert_as_read_independently(path).finished


# ---- Files of before -------------------------------------------------------------------------------

DATA = Path(__file__).parent.parent / "data" / "log"


@pytest.mark.parametrize("name", sorted(p.name for p in DATA.glob("*.gz")))
def test_files_of_before_open(name, tmp_path):
    import gzip

    path = tmp_path / name.removesuffix(".gz")
    with gzip.open(DATA / name) as packed, path.open("wb") as file:
        shutil.copyfileobj(packed, file)
    expected = json.loads((DATA / "expected.json").read_text())[name]

    trace = eventprof.open(path)

    assert len(trace.events) == expected["events"]
    assert len(trace.calls) == expected["calls"]
    assert len(trace.allocations) == expected["allocations"]
    assert len(trace.functions) == expected["functions"]
    assert len(trace.threads) == expected["threads"]
    assert {k: v for k, v in trace.loss.by_kind.items() if v} == expected["lost"]
    assert facts(trace)["unfinished"] == expected["unfinished"]
    assert facts(trace)["missing_count"] == 0
    assert "tick" in set(map(str, trace.functions["name"]))


LATE = """
    import os, signal, eventprof
    def both():
        pass
    first = eventprof.record(output="first.epr", memory=False)
    first.start()
    second = eventprof.record(output="second.epr", memory=False)
    second.start()
    both()
    if {stops}:
        second.stop()
        second = eventprof.record(output="third.epr", memory=False)
        second.start()
    print("recorded", flush=True)
    input()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("stops", [False, True])
def test_a_second_file_says_that_it_is_written_at_its_stop(tmp_path, stops):
    program = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(LATE.format(stops=stops))],
        cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert program.stdout.readline() == "recorded\n"
    late = tmp_path / ("third.epr" if stops else "second.epr")

    trace = eventprof.open(late)
    assert len(trace.events) == 0
    assert trace.file["live"] and trace.file["awaits_stop"] and not trace.file["missing"]
    assert "its events are in memory" in " ".join(str(trace).split())
    assert "Nothing lost" not in str(trace)

    program.communicate("\n", timeout=60)
    assert program.returncode == -signal.SIGKILL
    trace = eventprof.open(late)
    assert len(trace.events) == 0
    assert not trace.file["live"]
    assert trace.file["awaits_stop"]
    assert "was not stopped" in trace.file["missing"][0]
    assert str(trace).startswith("DAMAGE: 1 part")
    assert "what both recorded is in the other file" in " ".join(str(trace).split())
    assert "both" in set(eventprof.open(tmp_path / "first.epr").functions["name"])
    assert eventprof.open(tmp_path / "first.epr").file["awaits_stop"] is False
    if stops:
        stopped = eventprof.open(tmp_path / "second.epr")
        assert "both" in set(stopped.functions["name"])
        assert stopped.file["awaits_stop"] is False and not stopped.file["missing"]
