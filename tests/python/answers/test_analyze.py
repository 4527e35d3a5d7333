"""Findings: each planted fault is named first, clean programs have none; JSON, budget, words."""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import re
import threading
import time
from pathlib import Path

import faulty
import pytest
import raw
from json_schema import conform

import eventprof
from eventprof import _core
from eventprof.answers import findings
from eventprof.answers.spots import find_spots
from eventprof.cli import main
from eventprof.importing._build import BEGINS, C_CALL, CALL, Builder
from eventprof.show.own_lines import spot_lines


def record(function, **options):
    gc.collect()
    gc.freeze()  # a run of the collector takes no longer for what earlier tests left
    function()  # what it imports and compiles is there
    faulty.CACHE.clear()
    faulty.LISTENERS.clear()
    with eventprof.record(buffer="1 GiB", **options) as rec:
        function()
    return rec.trace


#: As ``record()`` and as ``eventprof run`` record.
WAITS = [False] + [True] * _core.waits_available()


@pytest.mark.skipif(not WAITS[-1], reason="waits are not recorded here")
@pytest.mark.parametrize(("rule", "fault", "twin"), faulty.WAITING)
def test_what_recorded_waits_show(rule, fault, twin):
    found = {finding.rule: finding for finding in record(fault, waits=True).analyze()}
    assert rule in found
    assert Path(found[rule].evidence[0].file) == Path(faulty.__file__)
    assert rule not in {finding.rule for finding in record(twin, waits=True).analyze()}


def test_there_are_20_programs_of_each_sort():
    assert len(faulty.FAULTY) >= 20 and len(faulty.CLEAN) >= 20


@pytest.mark.thorough
@pytest.mark.parametrize("waits", WAITS, ids=["without waits", "with waits"][: len(WAITS)])
@pytest.mark.parametrize(
    ("rule", "program"), faulty.FAULTY, ids=[function.__name__ for _, function in faulty.FAULTY]
)
def test_planted_faults_are_named_first(rule, program, waits):
    if rule == "lock-waiting" and not raw.HAS_GIL:
        pytest.skip("without the interpreter's lock no thread waits for it")
    found = record(program, waits=waits).analyze()

    assert [finding.rule for finding in found][:1] == [rule], found
    first = found[0]
    assert first.numbers and first.claim and first.advice
    assert first.command.startswith("eventprof ")
    assert not first.evidence or first.evidence[0].name


@pytest.mark.thorough
@pytest.mark.skipif(not raw.HAS_GIL, reason="no thread waits for an interpreter's lock")
def test_a_thread_that_starts_others_and_waits_is_not_said_to_compute_in_turn_with_them():
    def program():
        end = time.perf_counter() + 0.1
        while time.perf_counter() < end:
            pass
        faulty.computes_in_threads()
        time.sleep(0.2)

    (found,) = (each for each in record(program).analyze() if each.rule == "lock-waiting")

    assert found.numbers["threads"] == len(found.evidence) == 3
    (line,) = (
        each
        for each in findings.text_lines([found], "a.epr")
        if each.endswith(found.evidence[0].name)
    )
    assert line == f"   at {found.evidence[0].name}"


@pytest.mark.thorough
def test_threads_that_wait_for_one_that_sleeps_are_not_said_to_compute():
    lock = threading.Lock()

    def work():
        for _ in range(5):
            with lock:
                time.sleep(0.02)

    def program():
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert "lock-waiting" not in {finding.rule for finding in record(program).analyze()}


@pytest.mark.thorough
@pytest.mark.parametrize("waits", WAITS, ids=["without waits", "with waits"][: len(WAITS)])
@pytest.mark.parametrize("program", faulty.CLEAN, ids=lambda function: function.__name__)
def test_programs_without_faults_have_no_findings(program, waits):
    assert record(program, waits=waits).analyze() == []


def _total(frame):
    return sum(row["a"] * row["b"] for _, row in frame.iterrows())


def _label(frame):
    return frame.apply(lambda row: f"{row['a']}-{row['b']}", axis=1)


def _fill(frame):
    for number in range(1500):
        frame.loc[number, "a"] = number


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("program", "word"), [(_total, "iterrows"), (_label, "apply"), (_fill, "__setitem__")]
)
def test_a_frame_that_is_taken_apart_row_by_row_is_found(program, word):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": range(1200), "b": range(1200)})

    def work():
        program(frame.copy())

    first = record(work).analyze()[0]

    assert first.rule == "row-by-row" and word in first.claim
    assert first.evidence[0].file == __file__
    assert first.evidence[0].line == program.__code__.co_firstlineno + (2 if word[0] == "_" else 1)


def test_a_frame_that_is_asked_by_columns_has_no_findings():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": range(1200), "b": range(1200)})

    assert record(lambda: (frame["a"] * frame["b"]).sum()).analyze() == []


def test_evidence_is_the_line_of_the_fault():
    found = record(faulty.asks_for_each_row).analyze()[0]

    first = faulty.asks_for_each_row.__code__.co_firstlineno
    assert found.evidence[0].file == faulty.__file__
    assert found.evidence[0].line == first + 6
    assert found.numbers["calls"] == 300


# ---- Times: by numbers, not by the clock, and of runs of every length ------------------------------


class Program:
    """A program whose events have the times that it says: `step` ns for one of its steps."""

    def __init__(self, step):
        self.step = step
        self.builder = Builder("made", "made", 0)
        self.builder.metadata = {"imported": False}
        self.names = itertools.count(1)

    def own(self, name):
        return self.builder.function(name, "__main__", "/home/user/program.py", 3)

    def other(self, name, module, kind="c"):
        file = None if kind == "c" else f"/usr/lib/python3.13/{module.replace('.', '/')}.py"
        return self.builder.function(name, module, file, 1, kind)

    def thread(self):
        return Steps(self.builder.thread(next(self.names)), self.step)

    def rules(self):
        return [finding.rule for finding in self.builder.trace().analyze()]


class Steps:
    """A thread of such a program: `now` is its time, in steps."""

    def __init__(self, thread, step):
        self.events, self.step, self.now = thread, step, 0.0

    @contextlib.contextmanager
    def call(self, function, steps=0, kind=CALL):
        """A call of a function that takes so many steps besides what is done inside."""
        self.events.begin(round(self.now * self.step), function, 5, kind)
        yield
        self.now += steps
        self.events.end(round(self.now * self.step))

    def calls(self, function, steps, kind=C_CALL):
        with self.call(function, steps, kind):
            pass


def grows(growth, step):
    program = Program(step)
    thread, main, add = program.thread(), program.own("main"), program.own("add")
    with thread.call(main):
        for number in range(1000):
            thread.calls(add, 1 + growth * number / 20, CALL)
    return program


def one_waits(share, step):
    """One of 60 requests sleeps for a share of the whole run."""
    program = Program(step)
    thread, main, request = program.thread(), program.own("main"), program.own("request")
    sleep = program.other("sleep", "time")
    with thread.call(main, 60 / (1 - share) - 120):
        for number in range(60):
            with thread.call(request, 1):
                if number == 30:
                    thread.calls(sleep, 60 * share / (1 - share))
    return program


def imports(modules, step):
    program = Program(step)
    thread, main = program.thread(), program.own("main")
    load = program.other("_find_and_load", "importlib._bootstrap", "python")
    with thread.call(main, modules):
        for _ in range(modules):
            thread.calls(load, 1, CALL)
    return program


def collects(share, step):
    program = Program(step)
    thread, main = program.thread(), program.own("main")
    run = program.builder.function("gc generation 0", kind="gc")
    with thread.call(main, 60 * (1 - share) / share):
        for _ in range(60):
            thread.calls(run, 1, BEGINS["gc"])
    return program


def compute_in_turn(tenures, step):
    """Two threads take the lock from each other, after 5 ms each time, however long the program is."""
    program = Program(5_000_000)
    threads = [program.thread(), program.thread()]
    work, len_ = program.own("work"), program.other("len", "builtins")
    with contextlib.ExitStack() as open_calls:
        for thread in threads:
            open_calls.enter_context(thread.call(work))
        for turn in range(tenures * max(step // 1000, 1)):
            for number, thread in enumerate(threads):
                thread.now = 2 * turn + number
                thread.calls(len_, 0.4)
                thread.calls(len_, 0.5)
    return program


def wait_for_a_lock(times, step):
    """Three threads wait for the lock of one: once each, or several times."""
    program = Program(step)
    work, acquire = program.own("work"), program.other("lock.acquire", "_thread")
    for thread in (program.thread() for _ in range(3)):
        with thread.call(work):
            for _ in range(3):
                thread.calls(acquire, 0.01)
            for _ in range(times):
                thread.calls(acquire, 10)
                thread.now += 1
    return program


def blocks_the_loop(share, step):
    program = Program(step)
    thread, main, handle = program.thread(), program.own("main"), program.own("handle")
    run = program.other("Handle._run", "asyncio.events", "python")
    sleep = program.other("sleep", "time")
    with thread.call(main), thread.call(run, 100 * (1 - share)), thread.call(handle):
        thread.calls(sleep, 100 * share)
    return program


@pytest.mark.parametrize("step", [20, 1_000, 1_000_000], ids=lambda step: f"{step} ns")
@pytest.mark.parametrize(
    ("program", "found", "not_found", "rule"),
    [
        (grows, 1.0, 0.0, "growing-calls"),
        (one_waits, 0.5, 0.1, "one-slow-call"),
        (imports, 30, 5, "import-time"),
        (collects, 0.5, 0.1, "gc-share"),
        (compute_in_turn, 4, 1, "lock-waiting"),
        (wait_for_a_lock, 3, 1, "contended-lock"),
        (blocks_the_loop, 0.5, 0.1, "blocked-event-loop"),
    ],
    ids=[
        "growing-calls",
        "one-slow-call",
        "import-time",
        "gc-share",
        "lock-waiting",
        "contended-lock",
        "blocked-event-loop",
    ],
)
def test_a_finding_does_not_depend_on_how_long_the_run_is(program, found, not_found, rule, step):
    assert rule in program(found, step).rules()
    assert rule not in program(not_found, step if program is not compute_in_turn else 1).rules()


# ---- As text and as JSON -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    path = tmp_path_factory.mktemp("analyze") / "faulty.epr"
    record(
        lambda: (faulty.asks_for_each_row(), faulty.copies_deep(), faulty.asks_forgiveness())
    ).save(path)
    return str(path)


def test_text_has_claim_line_advice_and_command(recording, capsys):
    assert main(["analyze", recording]) == 0

    printed = capsys.readouterr().out
    assert "nothing lost" in printed.splitlines()[0]
    assert re.search(r"^1\. ", printed, re.MULTILINE)
    assert "faulty.py:" in printed
    assert f"more: eventprof tree {recording}" in printed


def test_where_it_goes_is_there_where_no_rule_finds_anything(tmp_path, capsys):
    kept = []

    def load(count):
        total = 0
        for number in range(count // 10):
            total += number
        return total, bytes(count)

    def keep():
        kept.append(load(2_000_000))
        for _ in range(3):
            kept.append(load(10))

    path = tmp_path / "clean.epr"
    record(keep).save(path)
    trace = eventprof.open(path)
    assert not trace.analyze()

    time, peak = (
        [spot for spot in find_spots(findings.case_of(trace)) if spot.sort == sort]
        for sort in ("time", "peak")
    )
    own = [(name.rpartition(".")[2], line) for name, line in zip(*own_columns(trace), strict=True)]
    assert {(spot.line.name.rpartition(".")[2], spot.line.line or -1) for spot in time} <= set(own)
    assert sum(spot.line.share for spot in time) <= 1.0001
    assert peak[0].line.name.endswith("load")
    assert peak[0].line.value > 0.9 * trace._tree.facts["peak"]
    of_load = next(spot for spot in time if spot.line.name.endswith("load"))
    assert (of_load.line.line, of_load.calls) == (None, 4)

    assert main(["analyze", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:3] == ["no rule found anything", "where the time goes, by own line"]
    assert "where the peak goes, by own line" in lines
    assert any("load itself, without its calls, 4 calls, " in line for line in lines)
    assert main(["analyze", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    conform(document)
    assert document["rows"] == []
    assert document["where"] == [spot.as_dict() for spot in find_spots(findings.case_of(trace))]


def own_columns(trace):
    table = trace.own
    return list(table["name"]), [line or -1 for line in table["line"].filled(0).tolist()]


def test_a_line_says_what_it_called(tmp_path):
    def each(n):
        return sorted(range(n))

    def job():
        for n in range(50):
            each(n * 100)

    trace = record(job)

    spots = [spot for spot in find_spots(findings.case_of(trace)) if spot.sort == "time"]
    (of_sorted,) = [spot for spot in spots if [part.name for part in spot.called][:1] == ["sorted"]]
    assert of_sorted.calls >= 50
    assert of_sorted.called[0].calls == 50
    lines = list(spot_lines(spots))
    assert any(line.strip().startswith("through sorted ") for line in lines)


def test_json_follows_its_schema(recording, capsys):
    assert main(["analyze", recording, "--json"]) == 0

    document = json.loads(capsys.readouterr().out)
    conform(document)
    assert document["rows"][0]["handle"] == "f-1"


def test_budget_is_kept_and_says_what_was_left_out(recording, capsys):
    whole = main(["analyze", recording]), capsys.readouterr().out
    small = main(["analyze", recording, "--budget", "120"]), capsys.readouterr().out

    assert len(whole[1]) > 120 * 4
    assert len(small[1]) <= 120 * 4
    assert "left out: --budget" in small[1]
    main(["analyze", recording, "--json", "--budget", "100"])
    document = json.loads(capsys.readouterr().out)
    assert document["left_out"] >= 1


def test_lost_events_come_first():
    with eventprof.record(buffer="1 MiB") as rec:
        for number in range(60_000):
            len(str(number))

    assert rec.trace.analyze()[0].rule == "lost-events"
