"""eventprof guide: what it says of other verbs is what these verbs do."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys

import pytest

import eventprof
from eventprof import cli
from eventprof.cli import guide

PROGRAM = """
def part(count):
    return [bytearray(100) for _ in range(count)]
kept = [part(50) for _ in range(20)]
"""


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guide")
    (folder / "script.py").write_text(PROGRAM)
    command = guide.STEPS[0][0].replace("FILE", "run.epr").split()[1:]
    subprocess.run(
        [sys.executable, "-P", "-m", "eventprof", *command], cwd=folder, check=True, timeout=120
    )
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
        assert all(json.loads(part) for part in ([out] if words[1] == "info" else out.splitlines()))


@pytest.mark.parametrize("verb", guide.FIELDS)
def test_the_fields_of_json_are_those_that_are_printed(recording, capsys, verb):
    files = [recording] * (2 if verb == "diff" else 1)

    out = asked(capsys, verb, *files, "--json")

    form, fields = guide.FIELDS[verb]
    rows = [json.loads(part) for part in ([out] if verb == "info" else out.splitlines())]
    if verb in ("verify", "diff"):  # the most telling of them
        assert set(fields) <= set(rows[0])
    else:
        assert all(tuple(row) == fields for row in rows)
    assert (len(rows) == 1) == (form in ("one document", "a line a file"))


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


def test_handles_are_the_same_each_time(recording, capsys):
    for verb, name in (("tree", "node"), ("analyze", "handle")):
        answers = []
        for _ in range(2):
            rows = [
                json.loads(line) for line in asked(capsys, verb, recording, "--json").splitlines()
            ]
            answers.append(
                [row[name] for row in (rows[0]["findings"] if verb == "analyze" else rows)]
            )
        assert answers[0] == answers[1]
    nodes = eventprof.open(recording).tree
    tree = asked(capsys, "tree", recording, "--json").splitlines()
    for row in map(json.loads, tree):
        assert nodes["name"][row["node"]] == row["name"]


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
