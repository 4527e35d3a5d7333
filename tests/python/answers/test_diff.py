"""`eventprof diff` of several recordings a side, for pull requests, and with a limit that fails."""

import json
import re

import children
import pytest

import eventprof

PROGRAM = """
def leaf(number):
    return [number] * 50

def work(calls):
    for number in range(calls):
        leaf(number)

def rare(calls):
    leaf(calls)
"""
#: The functions of the program; those below which it was called are there, too.
OURS = ("leaf", "work", "rare")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Recordings: three of a program, three of one that calls more, and one with a new function."""
    folder = tmp_path_factory.mktemp("diff")
    amounts = {"a1": 100, "a2": 102, "a3": 98, "b1": 101, "b2": 200, "b3": 201, "c1": 150}
    program = {"__name__": "__main__"}
    exec(PROGRAM, program)
    for name, calls in amounts.items():
        with eventprof.record(output=folder / f"{name}.epr", c_calls=False):
            program["work"](calls)
            if name == "c1":
                program["rare"](1)
    return folder


@pytest.fixture
def run(folder, monkeypatch):
    monkeypatch.chdir(folder)

    def run(*arguments, status=0):
        done = children.here("diff", *arguments)
        assert done.returncode == status
        return done.stdout + done.stderr

    return run


A, B = ("a1.epr", "a2.epr", "a3.epr"), ("b1.epr", "b2.epr", "b3.epr")


def test_values_of_several_recordings_are_medians(run):
    answer = json.loads(run(*A, "--to", *B, "--json"))
    row = next(row for row in answer["rows"] if row["name"] == "leaf")

    assert (row["calls_before"], row["calls_after"], row["calls_change"]) == (100, 200, 100)
    assert answer["sums"]["calls"] == [101, 201]
    assert answer["grown"] == []


def test_a_change_is_told_from_noise(run):
    noisy = json.loads(run(*A, "--to", *B, "--json"))["rows"]
    sure = json.loads(run(*A, "--to", "b2.epr", "b3.epr", "--json"))["rows"]

    assert [row["calls_apart"] for row in noisy if row["name"] == "leaf"] == [False]
    assert [row["calls_apart"] for row in sure if row["name"] == "leaf"] == [True]
    assert "calls_apart" not in json.loads(run("a1.epr", "b2.epr", "--json"))["rows"][0]
    assert "~+100" in run(*A, "--to", *B)
    assert "~" not in run("a1.epr", "b2.epr")


def test_the_api_takes_several_recordings(folder):
    traces = [eventprof.open(folder / f"{name}.epr") for name in ("a1", "a2", "a3", "b2", "b3")]

    table = traces[0].diff(*traces[3:], beside=traces[1:3])

    found = {
        row.name: (row.calls_before, row.calls_after, row.calls_apart)
        for row in table
        if row.name in OURS
    }
    assert found == {"leaf": (100, 200, True), "work": (1, 1, False)}
    with pytest.raises(TypeError, match="takes the later trace"):
        traces[0].diff()


@pytest.mark.parametrize(
    ("arguments", "grown"),
    [
        (("a1.epr", "b1.epr", "--sort", "calls", "--fail-above", "10%"), []),
        (("a1.epr", "c1.epr", "--sort", "calls", "--fail-above", "60%"), []),
        (("a1.epr", "c1.epr", "--sort", "calls", "--fail-above", "40%"), ["the whole", "leaf"]),
        (("a1.epr", "c1.epr", "--sort", "calls", "--fail-above", "51"), ["the whole"]),
        ((*A, "--to", *B, "--sort", "calls", "--fail-above", "10%"), []),
        ((*A, "--to", *B[1:], "--sort", "calls", "--fail-above", "10%"), ["the whole", "leaf"]),
        (("a1.epr", "b2.epr", "--sort", "allocated", "--fail-above", "1 KiB"),
         ["the whole", "work", "leaf"]),
        (("a1.epr", "b2.epr", "--fail-above", "1min"), []),
    ],
)  # fmt: skip
def test_a_limit_fails_where_something_has_grown(run, arguments, grown):
    status = int(bool(grown))
    found = json.loads(run(*arguments, "--json", status=status))["grown"]
    assert {name for name in found if name in (*OURS, "the whole")} == set(grown)
    last = run(*arguments, status=status).splitlines()[-1]
    assert ("nothing has grown" in last) == (not grown)
    assert all(name in last for name in grown)


def test_a_function_that_is_a_small_part_does_not_fail_in_percent(run):
    # rare() is new, one call of 153.
    grown = json.loads(
        run("a1.epr", "c1.epr", "--sort", "calls", "--fail-above", "0%", "--json", status=1)
    )["grown"]

    assert "rare" not in grown
    assert "leaf" in grown


def test_markdown_is_a_table_with_the_sums_above_it(run):
    lines = run("a1.epr", "c1.epr", "--format", "markdown", "--sort", "calls").splitlines()

    assert re.match(r"The whole: time in calls .*; calls 153, \+52 \(\+51%\); allocated ", lines[0])
    heads = [cell.strip() for cell in lines[2].strip("|").split("|")]
    assert heads == ["function", "self", "change", "total", "change", "allocated", "change",
                     "calls", "change", ""]  # fmt: skip
    assert lines[3].count("|") == lines[2].count("|") == len(heads) + 1
    found = {line.split("|")[1].strip(): line.split("|")[-2].strip() for line in lines[4:6]}
    assert found == {"`leaf`": "", "`rare`": "new"}


@pytest.mark.parametrize(
    ("name", "code"),
    [("<lambda>", "`<lambda>`"), ("a|b", "`a\\|b`"), ("`x`", "`` `x` ``")],
)
def test_a_name_is_code_in_markdown(name, code):
    from eventprof.cli.verbs.diff import _code

    assert _code(name) == code


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a1.epr",), "there is nothing to compare a1.epr with"),
        (("a1.epr", "a2.epr", "b1.epr"), "which of them are the later ones? write --to"),
        (("a1.epr", "b1.epr", "--fail-above", "5MiB"), "of self: a time is a number and a unit"),
        (
            ("a1.epr", "b1.epr", "--fail-above", "5ms", "--sort", "allocated"),
            "of allocated: a size",
        ),
        (("a1.epr", "b1.epr", "--fail-above", "5ms", "--sort", "calls"), "a whole number"),
        (("a1.epr", "b1.epr", "--fail-above", "much"), "a limit is such as 10% or 5ms"),
        (("a1.epr", "b1.epr", "--csv", "--format", "markdown"), "not allowed with"),
    ],
)
def test_wrong_use_names_the_remedy(run, arguments, message):
    assert message in run(*arguments, status=2)


def test_csv_is_a_format(run):
    assert run("a1.epr", "b1.epr", "--format", "csv") == run("a1.epr", "b1.epr", "--csv")
