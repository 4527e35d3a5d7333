"""eventprof guide: what it says of other verbs is what these verbs do."""

from __future__ import annotations

import json
import re
import shlex
import sys

import children
import pytest
from json_schema import conform, conform_event

import eventprof
from eventprof import cli
from eventprof.cli.verbs import guide

PICTURES = ("view", "flamegraph", "heatmap")
PROGRAM = """
import eventprof, time
time.sleep(0.001)
def part(count):
    return [bytearray(100) for _ in range(count)]
with eventprof.request("part"):
    kept = [part(50) for _ in range(20)]
"""


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guide")
    (folder / "script.py").write_text(PROGRAM)
    command = guide.STEPS[0][0].replace("FILE", "run.epr").split()[1:]
    command.insert(1, "--waits")
    children.run(sys.executable, "-P", "-m", "eventprof", *command, cwd=folder)
    return str(folder / "run.epr")


def asked(capsys, *words):
    status = cli.main(list(words))
    found = capsys.readouterr()
    assert (status, found.err) == (0, "")
    return found.out


@pytest.mark.parametrize("step", [command for command, _ in guide.STEPS[1:]])
def test_every_step_answers(recording, capsys, step):
    words = shlex.split(step.replace("FILE", recording))

    out = asked(capsys, *words[1:])

    assert out
    if "--json" in words:
        conform(json.loads(out))


def asked_rows(capsys, recording, verb, *more):
    """Ask a verb for JSON; give its document, or None, and its rows."""
    files = {
        "diff": [recording] * 2,
        "save": [recording, "-o", f"{recording}.save", "-f"],
        "merge": [recording, "-o", f"{recording}.merge", "-f"],
        "trim": [recording, "-o", f"{recording}.trim", "-f"],
        "export": [recording, "-o", f"{recording}.json"],
        **{verb: [recording, "-o", f"{recording}.html", "-f"] for verb in PICTURES},
        "dataset": [f"{recording}.dataset"],
    }.get(verb, [recording])
    if verb == "dataset":
        pytest.importorskip("duckdb")
        eventprof.write_dataset(recording, *files)
    out = asked(capsys, verb, *files, "--json", *more)
    if verb == "events":
        return None, [json.loads(line) for line in out.splitlines()]
    document = json.loads(out)
    return document, document["rows"]


@pytest.mark.parametrize("verb", guide.FIELDS)
def test_answers_follow_the_schema_and_have_the_fields_of_the_guide(recording, capsys, verb):
    document, rows = asked_rows(capsys, recording, verb)

    _, fields = guide.FIELDS[verb]
    if document is None:
        for row in rows:
            conform_event(row)
    else:
        conform(document)
        assert document["verb"] == verb and document["left_out"] >= 0
    assert rows or verb == "analyze"
    if verb == "dataset":
        assert set(rows[0]) & set(fields) >= {"function", "name", "calls", "total", "self"}
    elif verb in ("verify", "diff"):  # the most telling of them
        assert set(fields) <= set(rows[0])
    elif verb in (
        "report",
        "save",
        "merge",
        "trim",
        "export",
        *PICTURES,
    ):  # each row has some of them
        assert all(set(row) <= set(fields) for row in rows)
    else:
        assert all(tuple(row) == fields for row in rows)


@pytest.mark.thorough
@pytest.mark.parametrize("verb", ["report", "tree"])
@pytest.mark.parametrize("budget", [60, 150, 400, 100_000])
@pytest.mark.parametrize("form", [["--json"], []])
def test_budget_is_kept_and_says_what_is_left_out(recording, capsys, verb, budget, form):
    whole = asked(capsys, verb, recording, *form)

    out = asked(capsys, verb, recording, "--budget", str(budget), *form)

    if len(whole) <= budget * 4:
        assert out == whole
        return
    if form:
        document = json.loads(out)
        conform(document)
        assert document["left_out"] > 0
        smallest = {"report": 0, "tree": 1}[verb]
        assert len(out) <= budget * 4 + 1 or len(document["rows"]) == smallest
    else:
        assert "left out: --budget" in out or " more: " in out
        assert len(out) <= budget * 4 + 1 or len(out.splitlines()) <= 4


def test_every_verb_with_json_is_in_it():
    with_json = {
        verb
        for verb in cli.VERBS
        if any(
            "--json" in action.option_strings
            for action in cli.make_parser(verb, cli.load(verb))._actions
        )
    }

    assert with_json == set(guide.FIELDS)


@pytest.mark.parametrize("verb", ["analyze", "report", "tree", "stats", "events"])
def test_handles_are_the_same_each_time(recording, capsys, verb):
    answers = [
        [row.get("handle") for row in asked_rows(capsys, recording, verb)[1]] for _ in range(2)
    ]

    assert answers[0] == answers[1]


def test_handles_are_rows_of_the_tables(recording, capsys):
    trace = eventprof.open(recording)
    tables = {
        "tree": ("n-", trace.tree["name"]),
        "stats": ("fn-", trace.functions["name"]),
        "events": ("e-", trace.events["event"]),
    }
    for verb, (letters, column) in tables.items():
        _, rows = asked_rows(capsys, recording, verb)
        for row in rows[:50]:
            word = row["event"] if verb == "events" else row["name"]
            assert column[int(row["handle"].removeprefix(letters))] == word


def test_handles_are_taken_back(recording, capsys):
    _, stats = asked_rows(capsys, recording, "stats")
    _, branches = asked_rows(capsys, recording, "tree")

    _, one = asked_rows(capsys, recording, "stats", "--function", stats[1]["handle"])
    _, events = asked_rows(capsys, recording, "events", "--function", stats[1]["handle"])
    _, below = asked_rows(capsys, recording, "tree", "--node", branches[1]["handle"])
    text = asked(capsys, "tree", recording, "--call", "c-0")

    assert one == [stats[1]]
    assert {row["name"] for row in events} == {stats[1]["name"]}
    assert below[0]["handle"] == branches[1]["handle"]
    assert below[0]["total"] == branches[1]["total"]
    assert text.startswith("call 0: ")


def test_every_option_that_it_names_is_one():
    text = guide.text()
    known = {
        option
        for verb in cli.VERBS
        for action in cli.make_parser(verb, cli.load(verb))._actions
        for option in action.option_strings
    }

    assert set(re.findall(r"(?<![\w-])--[a-z]+", text)) <= known
    assert max(map(len, text.splitlines())) <= 100
