"""Calls of HPy's functions, against what hpy.trace counts and measures itself."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import threading
import time
from collections import Counter
from importlib.machinery import ModuleSpec
from pathlib import Path

import children
import pytest
import raw

import eventprof

universal = pytest.importorskip("hpy.universal", reason="hpy is not installed")
import hpy.trace  # noqa: E402

pytestmark = [pytest.mark.version, pytest.mark.usefixtures("restored")]

HPY = raw.bits("HPY_CALL", "HPY_RETURN")
SIZE = 12347  # of text(), without what a bytes object has beyond it


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    devel = Path(universal.__file__).parent / "devel"
    sources = [devel / "src/runtime" / f"{name}.c" for name in ("argparse", "buildvalue", "format",
                                                                "helpers", "structseq")]  # fmt: skip
    path = tmp_path_factory.mktemp("hpy") / "hpy_extension.hpy0.so"
    children.run(
        compiler, "-shared", "-fPIC", "-O1", "-DHPY", "-DHPY_ABI_UNIVERSAL",
        f"-I{devel / 'include'}", Path(__file__).with_name("hpy_extension.c"), *sources, "-o", path,
    )  # fmt: skip
    return str(path)


def load(path, hpy_mode):
    """As the stub that HPy generates for a module does, with HPY of the environment."""
    spec = ModuleSpec("hpy_extension", None, origin=path)
    return universal._load_bootstrap(
        "hpy_extension", "hpy_extension", "", path, None, spec, {"HPY": hpy_mode}
    )


@pytest.fixture(scope="module")
def module(library):
    return load(library, "trace")


@pytest.fixture(autouse=True)
def _no_functions_left():
    yield
    hpy.trace.set_trace_functions(on_enter=None, on_exit=None)


def counts():
    return Counter(hpy.trace.get_call_counts())


def durations():
    return Counter(hpy.trace.get_durations())


def run(module):
    """A bit of all."""
    assert module.add(1, 2) == 3
    assert module.call(lambda: module.add("a", "b")) == "ab"
    with pytest.raises(ValueError, match="as asked for"):
        module.fail(module)
    assert module.numbers(50) == 50
    assert len(module.text()) == SIZE
    module.leave()


def hpy_rows(rec):
    return [row for row in raw.rows(rec) if row.word in ("hpy_call", "hpy_return")]


# ---- What is recorded ----------------------------------------------------------------------------------


def test_calls_are_those_that_hpy_counts(module):
    rec = raw.recorder(HPY)
    before = counts()

    with rec:
        run(module)

    rows = hpy_rows(rec)
    theirs = counts() - before
    assert Counter(row.name for row in rows if row.word == "hpy_call") == theirs
    assert Counter(row.name for row in rows if row.word == "hpy_return") == theirs
    assert theirs["ctx_Close"] >= 51
    assert theirs["ctx_Err_SetString"] == theirs["ctx_LeavePythonExecution"] == 1
    assert {(row.module, row.sort) for row in rows} == {("hpy", "hpy")}


def test_times_lie_between_hpys_and_those_of_the_functions_around(module):
    """Read right around hpy's own clock, and inside of what set_trace_functions() is given: so whatever the machine
    does meanwhile, they are no shorter than the one and no longer than the other."""
    opened, around = [], Counter()

    def on_enter(name):
        opened.append(time.monotonic_ns())

    def on_exit(name):
        around[name] += time.monotonic_ns() - opened.pop()

    rec = raw.recorder(HPY)
    hpy.trace.set_trace_functions(on_enter=on_enter, on_exit=on_exit)
    before = durations()

    with rec:
        module.call(lambda: time.sleep(0.02))
        module.add(1, 2)
        module.numbers(1000)
        module.text()

    theirs = durations() - before
    ours, calls, stack = Counter(), Counter(), []
    for row in hpy_rows(rec):
        if row.word == "hpy_call":
            stack.append(row.time)
        else:
            ours[row.name] += row.time - stack.pop()
            calls[row.name] += 1
    assert theirs["ctx_CallTupleDict"] >= 20_000_000
    for name, total in ours.items():
        # Two clocks: one is disciplined, one is not; each has its step.
        slack = total // 500 + 200 * calls[name]
        assert theirs[name] <= total + slack, name
        assert total <= around[name] + slack, name


def test_durations_are_hpys_where_nothing_else_is_recorded(module):
    module.numbers(10)  # the thread's first
    rec = raw.recorder(HPY)
    before = durations()

    with rec:
        module.numbers(5000)
        for _ in range(100):
            module.text()
            module.add(1, 2)

    theirs = durations() - before
    ours, calls = Counter(), Counter()
    rows = hpy_rows(rec)
    for begin, end in zip(rows[::2], rows[1::2], strict=True):
        assert (begin.word, end.word, begin.name) == ("hpy_call", "hpy_return", end.name)
        ours[begin.name] += end.time - begin.time
        calls[begin.name] += 1
    assert calls["ctx_Close"] == 5000
    assert ours.keys() == theirs.keys()
    for name, total in theirs.items():
        # Times are whole ns, at both ends of a call; the rates of the clocks differ.
        assert abs(ours[name] - total) <= 2 * calls[name] + total // 100, (name, ours[name], total)


def test_they_are_calls_of_the_tree(module, tmp_path):
    def called():
        return module.text()

    with eventprof.record(hpy=True) as rec:
        blob = module.call(called)

    calls = rec.trace.calls
    kinds, names, depths = (calls[each].tolist() for each in ("kind", "name", "depth"))
    rows = list(zip(kinds, names, depths, strict=True))
    first = names.index("call")
    assert [
        (kind, name, depth - depths[first]) for kind, name, depth in rows[first : first + 5]
    ] == [
        ("c_call", "call", 0),
        ("hpy", "ctx_CallTupleDict", 1),
        ("call", called.__qualname__, 2),
        ("c_call", "text", 3),
        ("hpy", "ctx_Bytes_FromStringAndSize", 4),
    ]
    made = names.index("ctx_Bytes_FromStringAndSize")
    assert SIZE < calls["allocated"][made] < SIZE + 100
    assert calls["caller_line"][made] == called.__code__.co_firstlineno + 1
    assert (
        calls["caller_line"][names.index("ctx_CallTupleDict")] == called.__code__.co_firstlineno + 4
    )
    assert len(blob) == SIZE
    # In an archive, too.
    rec.trace.save(tmp_path / "hpy.epr")
    again = eventprof.open(tmp_path / "hpy.epr").calls
    assert again["kind"].tolist() == kinds
    assert again["name"].tolist() == names


def test_a_module_that_is_not_traced_is_not_seen(library, module, tmp_path):
    # A copy: a library has one context, that of its last load.
    plain = load(shutil.copy(library, tmp_path), "universal")
    with raw.recorder(HPY) as rec:
        plain.add(1, 2)
        module.add(1, 2)
    assert [row.word for row in hpy_rows(rec)] == ["hpy_call", "hpy_return"]


def test_each_recorder_has_its_own(module):
    with raw.recorder(raw.CALLS) as calls:
        module.add(1, 2)
        with raw.recorder(HPY) as hpy_calls:
            module.add(1, 2)
        with raw.recorder(HPY | raw.CALLS) as both:
            module.add(1, 2)
        module.add(1, 2)

    def words(rec):
        return Counter(row.word for row in raw.rows(rec) if row.name in ("add", "ctx_Add"))

    assert words(hpy_calls) == {"hpy_call": 1, "hpy_return": 1}
    c_calls = words(calls)
    assert set(c_calls) == {"c_call", "c_return"}
    assert c_calls["c_call"] == 4
    assert words(both) == {"c_call": 1, "c_return": 1, "hpy_call": 1, "hpy_return": 1}


def test_started_and_stopped_inside(module):
    rec = raw.recorder(HPY)

    def begin():
        rec.start()
        module.add(1, 2)

    module.call(begin)
    module.add(3, 4)
    module.call(rec.stop)
    module.add(5, 6)

    assert [(row.word, row.name) for row in hpy_rows(rec)] == [
        ("hpy_call", "ctx_Add"),
        ("hpy_return", "ctx_Add"),
        ("hpy_return", "ctx_CallTupleDict"),
        ("hpy_call", "ctx_Add"),
        ("hpy_return", "ctx_Add"),
        ("hpy_call", "ctx_CallTupleDict"),
    ]


def test_threads_that_let_go_of_the_gil(module):
    def work():
        for _ in range(200):
            module.leave()
            module.add(1, 2)

    threads = [threading.Thread(target=work) for _ in range(4)]
    before = counts()
    with raw.recorder(HPY) as rec:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    rows = hpy_rows(rec)
    # hpy itself counts two of these without the GIL, and may lose some: how often they were called is known.
    expected = Counter(
        dict.fromkeys(
            ("ctx_LeavePythonExecution", "ctx_ReenterPythonExecution", "ctx_Dup", "ctx_Add"), 800
        )
    )
    assert Counter(row.name for row in rows if row.word == "hpy_call") == expected
    assert Counter(row.name for row in rows if row.word == "hpy_return") == expected
    assert (counts() - before)["ctx_Add"] == 800
    for thread in {row.thread for row in rows}:
        stack = []
        for row in rows:
            if row.thread == thread and row.word == "hpy_call":
                stack.append(row.name)
            elif row.thread == thread:
                assert stack.pop() == row.name
        assert not stack


# ---- hpy.trace goes on as ever -------------------------------------------------------------------------


def words_of_hpy():
    """What is in the two words through which hpy.universal calls its own trace functions."""
    file = os.path.realpath(universal.__file__)
    base = min(
        int(line.split("-")[0], 16)
        for line in Path("/proc/self/maps").read_text().splitlines()
        if line.endswith(file)
    )
    listed = children.run("readelf", "-rW", file).stdout
    found = {}
    for line in listed.splitlines():
        fields = line.split()
        if len(fields) > 4 and fields[4] in ("hpy_trace_on_enter", "hpy_trace_on_exit"):
            found[fields[4]] = ctypes.c_void_p.from_address(base + int(fields[0], 16)).value
    assert len(found) == 2, listed
    return found


@pytest.mark.skipif(shutil.which("readelf") is None, reason="no readelf")
def test_everything_is_put_back(module):
    run(module)
    before = words_of_hpy()
    first, second = raw.recorder(HPY), raw.recorder(HPY)

    first.start()
    during = words_of_hpy()
    second.start()
    first.stop()
    assert words_of_hpy() == during
    second.stop()

    assert all(during[name] != before[name] for name in before)
    assert words_of_hpy() == before
    assert first.displaced == second.displaced == ()


def test_functions_of_the_program_are_called_as_without(module):
    results = []
    for recorded in (False, True):
        seen = []
        rec = raw.recorder(HPY)
        hpy.trace.set_trace_functions(on_enter=lambda name, seen=seen: seen.append(("in", name)))
        module.add(1, 2)
        if recorded:
            rec.start()
        module.add(1, 2)
        hpy.trace.set_trace_functions(on_exit=lambda name, seen=seen: seen.append(("out", name)))
        module.add(1, 2)
        module.call(lambda: module.add(1, 2))
        hpy.trace.set_trace_functions(on_enter=None)
        module.add(1, 2)
        if recorded:
            rec.stop()
            assert [row.word for row in hpy_rows(rec) if row.name == "ctx_Add"] == [
                "hpy_call", "hpy_return",
            ] * 4  # fmt: skip
        module.add(1, 2)
        hpy.trace.set_trace_functions(on_exit=None)
        results.append(seen)

    assert results[0] == results[1]
    # Entered four times and four more while it is nested, left from the third on, and so on.
    assert Counter(results[0]) == {
        ("in", "ctx_Add"): 4,
        ("in", "ctx_CallTupleDict"): 1,
        ("out", "ctx_Add"): 4,
        ("out", "ctx_CallTupleDict"): 1,
    }


def test_its_frequency_and_its_counts_are_its_own(module):
    frequency, before = hpy.trace.get_frequency(), counts()
    with raw.recorder(HPY):
        module.add(1, 2)
        assert hpy.trace.get_frequency() == frequency
        assert (counts() - before) == {"ctx_Add": 1}
    assert (counts() - before) == {"ctx_Add": 1}


def test_blocks_are_the_same_with_hpy_calls_on_and_off(module):
    """There is no event that our part of it would have made."""

    def blocks(kinds):
        with raw.recorder(raw.MEMORY | kinds, current_thread=True) as rec:
            for _ in range(3):
                module.add(1000, 2000)
                module.text()
        return Counter((row.word, row.size) for row in raw.rows(rec) if row.domain is not None)

    blocks(HPY), blocks(0)
    assert blocks(HPY) == blocks(0)


def test_memory_of_names_and_sites_does_not_grow(module):
    def count():
        stats = eventprof._core.engine_stats()
        return stats["names"], stats["sites"]

    before = None
    for _ in range(3):
        with raw.recorder(HPY):
            for _ in range(100):
                module.add(1, 2)
        before = before or count()
    assert count() == before


# ---- Where there is none -------------------------------------------------------------------------------


def test_without_hpy_the_error_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "hpy.universal", None)
    with pytest.raises(eventprof.UnsupportedError, match=r"eventprof\[hpy\]"):
        eventprof.record(hpy=True)


def test_the_command_line_has_it(library, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os\n"
        "from importlib.machinery import ModuleSpec\n"
        "import hpy.universal\n"
        f"path = {library!r}\n"
        "spec = ModuleSpec('hpy_extension', None, origin=path)\n"
        "module = hpy.universal._load_bootstrap(\n"
        "    'hpy_extension', 'hpy_extension', '', path, None, spec, os.environ)\n"
        "module.add(1, 2)\n"
    )
    output = tmp_path / "out.epr"
    children.eventprof("run", "-q", "--hpy", "-o", output, script, HPY="trace")
    calls = eventprof.open(output).calls
    names = calls["name"][calls["kind"] == "hpy"].tolist()
    assert names.count("ctx_Add") == 1
