"""Findings: each planted fault is named first, clean programs have none; JSON, budget, words."""

from __future__ import annotations

import gc
import json
import re
import threading
import time

import faulty
import pytest
import raw
from json_schema import conform

import eventprof
from eventprof.answers import findings, rules
from eventprof.cli import main

pytestmark = pytest.mark.newest


def record(function):
    gc.collect()
    gc.freeze()  # a run of the collector takes no longer for what earlier tests left
    try:
        function()  # what it imports and compiles is there
        faulty.CACHE.clear()
        faulty.LISTENERS.clear()
        with eventprof.record(buffer="1 GiB") as rec:
            function()
    finally:
        gc.unfreeze()
    return rec.trace


def test_there_are_20_programs_of_each_sort():
    assert len(faulty.FAULTY) >= 20 and len(faulty.CLEAN) >= 20


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("rule", "program"), faulty.FAULTY, ids=[function.__name__ for _, function in faulty.FAULTY]
)
def test_planted_faults_are_named_first(rule, program):
    if rule == "lock-waiting" and not raw.HAS_GIL:
        pytest.skip("without the interpreter's lock no thread waits for it")
    found = record(program).analyze()

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
@pytest.mark.parametrize("program", faulty.CLEAN, ids=lambda function: function.__name__)
def test_programs_without_faults_have_no_findings(program):
    assert record(program).analyze() == []


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


# ---- What takes longer from call to call, and imports: by numbers, not by the clock --------------


class Fake:
    """As much of a trace as a rule asks for."""

    def __init__(self, **columns):
        self._core = self
        self._columns = columns
        self.duration = int(columns["duration"].sum())

    def calls(self, name):
        return self._columns[name]


@pytest.mark.parametrize(("growth", "found"), [(1.0, 1), (0.0, 0)])
def test_growing_calls(growth, found):
    import numpy as np

    count = 1000
    duration = (100_000 * (1 + growth * np.arange(count) / 20)).astype(np.int64)
    start = np.cumsum(duration) - duration
    zeros = np.zeros(count, dtype=np.int32)
    trace = Fake(function=zeros, duration=duration, start=start, flags=zeros)

    class Tree:
        def __init__(self):
            self.nodes = {"total": np.array([duration.sum()])}
            self.functions = [("add", "__main__", "program.py", 3, "python")]

        def function_name(self, _):
            return "add"

        def by_function(self):
            return {"calls": np.array([count]), "total": np.array([duration.sum()])}

    case = findings.Case(trace, Tree(), np.array([True, False]))

    assert len(list(rules.growing_calls(case))) == found


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

    said = capsys.readouterr().out
    assert "nothing lost" in said.splitlines()[0]
    assert re.search(r"^1\. ", said, re.MULTILINE)
    assert "faulty.py:" in said
    assert f"more: eventprof tree {recording}" in said


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
