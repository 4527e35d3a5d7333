"""record(output=): the file has the same as the memory, by our reader and by that of the specification."""

from __future__ import annotations

import json
import os
import sys
import threading

import nasty
import programs
import pytest
from log_children import (
    CHILD,
    assert_as_read_independently,
    assert_same,
    facts,
    run_to_end,
    work,
)

import eventprof

pytestmark = pytest.mark.usefixtures("restored")


# ---- The same as in memory -----------------------------------------------------------------------


@pytest.mark.thorough
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
    found = facts(trace)
    assert found["unfinished"] is False
    assert found["live"] is False
    assert found["missing_count"] == 0
    assert trace.metadata["pid"] == os.getpid()
    assert "rss" not in trace.memory.columns or (trace.memory["rss"] > 0).any()


def test_the_trace_outlives_the_file(tmp_path):
    rec = eventprof.record(output=tmp_path / "a.epr")
    with rec:
        work(100)
    trace = eventprof.open(rec.output)
    os.unlink(rec.output)

    assert_same(trace, rec.trace)


# ---- An independent reader -----------------------------------------------------------------------


@pytest.mark.thorough
def test_the_specification_on_finished_files(tmp_path):
    for i, options in enumerate(
        (
            {"on_full": "grow", "waits": sys.platform == "linux"},
            {"buffer": "1 MiB"},
            {"buffer": "1 MiB", "on_full": "stop"},
        )
    ):
        rec = eventprof.record(output=tmp_path / f"{i}.epr", **options)
        with rec:
            work(3000 if i == 0 else 60000)
            thread = threading.Thread(target=work, args=(1000,))
            thread.start()
            thread.join()
        assert assert_as_read_independently(rec.output).finished


@pytest.mark.thorough
@pytest.mark.parametrize("threads", [1, 4])
def test_the_specification_on_killed_files(threads, tmp_path):
    path = tmp_path / "a.epr"
    status = run_to_end(CHILD, "exit", path, threads, "overwrite", 600, 0, 0)[0]
    assert status == 3

    assert not assert_as_read_independently(path).finished
