"""The tree as text and as JSON, for people: own code, one call, several recordings."""

from __future__ import annotations

import json
import re
import time

import json_schema
import numpy as np
import pytest

import eventprof
from eventprof.answers import branches
from eventprof.cli import main

# ---- Own code ------------------------------------------------------------------------------------


def own_work():
    text = json.dumps([1, 2, {"three": "x" * 1000}] * 20)
    return json.loads(text)


def test_libraries_are_charged_to_the_own_line_that_called_them():
    own_work()
    with eventprof.record(threads="current") as rec:
        kept = own_work()
    own = rec.trace.own

    assert kept
    first = own_work.__code__.co_firstlineno
    rows = own[np.array([name == "own_work" for name in own["name"]])]
    by_line = dict(zip(rows["line"].tolist(), rows["self"].tolist(), strict=True))
    assert by_line[first + 1] > 0
    assert by_line[first + 2] > 0
    assert not any(name and name.startswith("JSON") for name in own["name"])
    assert int(own["self"].sum()) == int(rec.trace.tree["total"][0])
    assert int(own["allocated"].sum()) == int(rec.trace.tree["allocated"][0])
    assert int(own["at_peak"].sum()) == int(rec.trace.tree["at_peak"][0])


def test_what_is_own_can_be_said():
    with eventprof.record(threads="current") as rec:
        own_work()
    rec.trace.set_own("json.*", "json")

    names = set(rec.trace.own["name"])

    assert "own_work" not in names
    assert any(name and name.startswith("JSON") for name in names)
    with pytest.raises(TypeError, match="globs"):
        rec.trace.set_own(5)


# ---- As text -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    path = tmp_path_factory.mktemp("tree") / "own.epr"
    with eventprof.record(threads="current") as rec:
        with eventprof.span("request"):
            own_work()
        own_work()
        sorted(range(1000), key=lambda n: -n)
    rec.trace.save(path)
    return str(path)


@pytest.fixture
def nothing_is_small(monkeypatch):
    """Which branches have less than 1 % of the time depends on the machine."""
    monkeypatch.setattr(branches, "SMALLEST", 0.0)


@pytest.mark.usefixtures("nothing_is_small")
def test_tree_shows_own_code_in_25_lines(recording, capsys):
    assert main(["tree", recording]) == 0

    printed = capsys.readouterr().out.splitlines()
    assert "nothing lost" in printed[0]
    assert len(printed) <= 60
    assert any("own_work" in line for line in printed)
    assert any("json.dumps" in line for line in printed)
    assert not any("JSONEncoder" in line for line in printed)


@pytest.mark.usefixtures("nothing_is_small")
def test_tree_all_shows_the_insides_of_libraries(recording, capsys):
    assert main(["tree", recording, "--all", "--limit", "5000", "--width", "200"]) == 0

    assert "JSONDecoder" in capsys.readouterr().out


@pytest.mark.usefixtures("nothing_is_small")
def test_tree_json(recording, capsys):
    assert main(["tree", recording, "--json"]) == 0

    rows = json.loads(capsys.readouterr().out)["rows"]
    assert rows[0]["depth"] == 0 and rows[0]["total"] >= max(row["total"] for row in rows[1:])
    assert any(row["name"] == "own_work" and row["calls"] >= 1 for row in rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--slowest", "own_work"], "of 2 calls the median"),
        (["--span", "request"], "request"),
        (["--at", "1us"], "at 1"),
        (["--call", "0"], "call 0"),
    ],
)
def test_tree_of_one_call(recording, capsys, arguments, message):
    assert main(["tree", recording, *arguments]) == 0

    assert message in capsys.readouterr().out


def test_slowest_is_of_own_code_if_that_has_the_name(capsys):
    def sort_key(n):
        return -n

    library = {"time": time, "__name__": "library"}
    code = "class Table:\n    def sort_key(self, n):\n        time.sleep(0.05)\n"
    exec(compile(code, "/usr/lib/python3/site-packages/library.py", "exec"), library)
    with eventprof.record(threads="current", memory=False) as rec:
        sort_key(1)
        library["Table"]().sort_key(1)

    rec.trace.show_tree(slowest="sort_key")
    rec.trace.show_tree(slowest="Table.sort_key")

    first, second = (row for row in capsys.readouterr().out.splitlines() if row.startswith("call "))
    assert "<locals>.sort_key, " in first and ": Table.sort_key, " in second


@pytest.mark.parametrize(
    "asked", [["--slowest", "own_work"], ["--span", "request"], ["--call", "0"]], ids=" ".join
)
def test_one_call_for_a_program(recording, capsys, asked):
    assert main(["tree", recording, *asked, "--json", "--limit", "2"]) == 0

    answer = json.loads(capsys.readouterr().out)
    json_schema.conform(answer)
    call, *inside = answer["rows"]
    calls = eventprof.open(recording).calls
    row = int(call["handle"].removeprefix("c-"))
    children = np.flatnonzero(np.ma.filled(calls["parent"], -1) == row)
    assert call["depth"] == 0 and call["total"] == int(calls["duration"][row])
    assert [branch["depth"] for branch in inside] == [1] * min(2, len(inside))
    assert sum(branch["total"] for branch in inside) <= int(calls["duration"][children].sum())
    assert answer["left_out"] or sum(branch["calls"] for branch in inside) == len(children)
    main(["tree", recording, "--call", call["handle"]])
    assert f"call {row}: {call['name']}" in capsys.readouterr().out


@pytest.mark.usefixtures("nothing_is_small")
def test_trees_of_several_recordings_are_added(recording, capsys):
    assert main(["tree", recording, recording]) == 0
    captured = capsys.readouterr()
    assert main(["tree", recording]) == 0
    alone = capsys.readouterr().out

    events = len(eventprof.open(recording).events)
    assert captured.out.startswith(f"{2 * events:,} events in 2 recordings, peaks ")
    calls, doubled = (
        [int(number) for number in re.findall(r"(\d+) +[^\w\n]*[\w.]*own_work", text)]
        for text in (alone, captured.out)
    )
    assert calls and doubled == [2 * number for number in calls]
    for option in (["--json"], ["--node", "n-1"], ["--call", "0"]):
        assert main(["tree", recording, recording, *option]) == 2
        assert "go with one recording" in capsys.readouterr().err


def test_open_calls_for_a_program(recording, capsys):
    calls = eventprof.open(recording).calls
    time = int(calls["start"][len(calls) // 2])

    assert main(["tree", recording, "--at", str(time), "--json"]) == 0

    answer = json.loads(capsys.readouterr().out)
    json_schema.conform(answer)
    is_open = (calls["start"] <= time) & (calls["start"] + calls["duration"] > time)
    rows = [int(row["handle"].removeprefix("c-")) for row in answer["rows"]]
    assert sorted(rows) == np.flatnonzero(is_open).tolist() and rows


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--slowest", "own_wrk"], "did you mean 'own_work'"),
        (["--call", "999999999"], "there are calls 0 to"),
        (["--at", "999s"], "at must be from 0 to"),
        (["--limit", "0"], "1 or more"),
    ],
)
def test_tree_says_what_there_is_not(recording, capsys, arguments, message):
    assert main(["tree", recording, *arguments]) == 2

    assert message in capsys.readouterr().err
