"""Whatever ends the program, its file opens with all that it did; processes have each their file.

Children are small programs that say on a pipe how far they came; what they said before their end
must be in the file, as events or as loss.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import textwrap

import children
import numpy as np
import pytest
from log_children import facts, kill_one, names_called, run_to_end

import eventprof

pytestmark = pytest.mark.usefixtures("restored")


# ---- Killed --------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_killed_program_has_all_on_file(tmp_path):
    for number in range(10):
        kill_one(number, tmp_path)


@pytest.mark.long
def test_a_hundred_killed_programs_have_all_on_file(tmp_path):
    for number in range(10, 110):
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
    """Find where the fullest unsealed chunk begins, and the word in the middle of its records."""
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


@pytest.mark.thorough
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


# ---- Other processes -----------------------------------------------------------------------------


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
    children.run(
        sys.executable, "-W", "ignore", tmp_path / "program.py", output / "a.epr", method,
        PYTHONPATH=os.pathsep.join(sys.path), PYTHONFAULTHANDLER="",
    )  # fmt: skip

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
