"""What export() chooses, the files that it writes, and its verb."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import stat

import exported
import pytest
from exported import names_of, sums_of
from exporting import require

import eventprof
from eventprof.cli import main
from eventprof.export import FORMATS, by_extension

# ---- What is chosen ------------------------------------------------------------------------------


def test_one_thread(nasty, tmp_path):
    path = tmp_path / "one.speedscope.json"

    nasty.export(path, threads="odd*")

    profiles = [p for p in exported.read_json(path)["profiles"] if p["type"] == "evented"]
    assert [profile["name"] for profile in profiles] == ['odd "name";\n\x1b[0m']


def test_between_cuts_calls(nasty, tmp_path):
    path = tmp_path / "part.json"
    low, high = nasty.duration // 4, nasty.duration // 2

    nasty.export(path, between=(low, high))

    events = json.loads(path.read_bytes(), parse_float=str)["traceEvents"]
    calls = [event for event in events if event["ph"] == "X"]
    assert calls
    for event in calls:
        start = exported.chrome_ns(event["ts"])
        assert low <= start and start + exported.chrome_ns(event["dur"]) <= high
    interval = nasty.between(low, high)
    assert sum(e["args"].get("allocated", 0) for e in calls) <= interval.allocated


def test_function_keeps_what_is_inside(nasty, tmp_path):
    path = tmp_path / "some.collapsed"

    nasty.export(path, functions="*raising", weight="calls")

    names = set(path.read_text().replace("\n", " ").split())
    assert names
    stacks = [line.rpartition(" ")[0] for line in path.read_text().splitlines()]
    assert all(stack.startswith("exported.raising") for stack in stacks)
    assert sum(int(line.rpartition(" ")[2]) for line in path.read_text().splitlines()) == 10


def test_own_gives_others_time_to_the_caller(tmp_path):
    with eventprof.record(memory=False) as rec:
        json.dumps({"a": [1, 2, 3]})
        exported.nasty_work()
    path = tmp_path / "own.collapsed"

    rec.trace.export(path, own=True)

    lines = path.read_text().splitlines()
    assert not any("json" in line for line in lines)
    whole = sums_of(rec.trace)
    outermost = next(n for n in names_of(rec.trace) if "test_own_gives" in n)
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == whole.total[outermost]


def test_tables_are_chosen_from_too(nasty, tmp_path):
    path = tmp_path / "some.jsonl"

    nasty.export(path, functions="*raising")

    names = [json.loads(line)["name"] for line in path.read_text().splitlines()]
    assert names.count("raising") == 10 and set(names) <= {"raising", "LookupError"}


# ---- Files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", FORMATS)
def test_each_ending_says_its_format(word):
    for ending in FORMATS[word].extensions:
        assert by_extension(f"/some.dir/x{ending}") == word
    assert by_extension("x.json.gz") == "chrome"
    assert by_extension("callgrind.out.4711") == "callgrind"
    assert by_extension("x.txt") is None


@pytest.mark.parametrize("word", FORMATS)
def test_a_file_is_replaced_whole_or_not_at_all(word, tmp_path):
    require(word)
    path = tmp_path / f"there{FORMATS[word].extensions[0]}"
    path.write_bytes(b"what was there")
    path.chmod(0o640)
    trace = exported.zero_length()

    class Broken(Exception):
        pass

    module = __import__(f"eventprof.export.{FORMATS[word].module}", fromlist=["write"])
    whole = module.write

    def breaks(view, out, options):
        whole(view, out, options)
        raise Broken

    module.write = breaks
    try:
        with pytest.raises(Broken):
            trace.export(path, force=True)
    finally:
        module.write = whole
    assert path.read_bytes() == b"what was there"
    assert os.listdir(tmp_path) == [path.name]

    trace.export(path, force=True)

    assert path.read_bytes() != b"what was there"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == [path.name]


def test_gz_is_compressed(nasty, tmp_path):
    nasty.export(tmp_path / "a.json")
    nasty.export(tmp_path / "a.json.gz")

    assert (
        gzip.decompress((tmp_path / "a.json.gz").read_bytes()) == (tmp_path / "a.json").read_bytes()
    )


def test_a_stream_is_written_to(nasty):
    out = io.BytesIO()

    nasty.export(out, "collapsed")

    assert out.getvalue().count(b"\n") > 10


@pytest.mark.parametrize(
    "word", ["perfetto", "chrome", "firefox", "speedscope", "csv", "jsonl", "parquet", "sqlite"]
)
def test_it_says_how_far_it_is(nasty, tmp_path, word, monkeypatch):
    require(word)
    for module in ("_view", "_rows", "sqlite"):
        monkeypatch.setattr(f"eventprof.export.{module}.AT_A_TIME", 100)
    steps = []

    nasty.export(tmp_path / "x", word, progress=lambda done, total: steps.append((done, total)))

    assert steps
    assert all(0 <= done <= total for done, total in steps)
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert len({total for _, total in steps}) == 1


def test_no_space_leaves_nothing_behind(nasty, tmp_path):
    path = tmp_path / "nowhere" / "x.json"

    with pytest.raises(FileNotFoundError) as found:
        nasty.export(path)

    assert found.value.filename == str(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "x.txt"}, "x.txt: no format has this ending; give format=, one of perfetto, "),
        ({"path": "x", "format": "perfeto"}, "did you mean 'perfetto'"),
        ({"path": "x.csv", "table": "cals"}, "did you mean 'calls'"),
        ({"path": "x.json", "table": "calls"}, "chrome has none; csv, jsonl, parquet, arrow do"),
        ({"path": "x.collapsed", "weight": "sel"}, "did you mean 'self'"),
        ({"path": "x.json", "threads": "none"}, "there is no such thread; there are only"),
        (
            {"path": "x.json", "functions": "outre"},
            "functions: no function of this recording matches 'outre'; did you mean 'outer'",
        ),
        ({"path": "x.json", "between": (5, 2)}, "5 ns is after 2 ns"),
    ],
)
def test_what_cannot_be_is_said(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ValueError, match=re.escape(message)):
        exported.zero_length().export(**options)

    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("word", ["sqlite", "duckdb"])
def test_a_base_needs_a_file_of_its_own(word):
    with pytest.raises(ValueError, match=f"{word} needs a file of its own"):
        exported.zero_length().export(io.BytesIO(), word)


@pytest.mark.parametrize("name", ["x.json", "x.pftrace", "x.speedscope.json", "x.parquet"])
def test_save_refuses_the_name_of_another_format(nasty, tmp_path, name):
    with pytest.raises(ValueError, match="save\\(\\) writes an archive; name it .epr, or export"):
        nasty.save(tmp_path / name)

    assert os.listdir(tmp_path) == []


# ---- The command line ----------------------------------------------------------------------------


@pytest.fixture
def saved(nasty, tmp_path):
    path = tmp_path / "run.epr"
    nasty.save(path)
    return path


def test_the_verb_writes_beside_the_recording(saved, capsys):
    assert main(["export", str(saved), "--format", "speedscope"]) == 0

    path = saved.with_suffix(".trace.speedscope.json")
    assert capsys.readouterr().out.startswith(f"{path}: speedscope, ")
    assert exported.sums_of_speedscope(path) == sums_of(eventprof.open(saved))


def test_the_verb_writes_to_a_pipe(saved, capfdbinary):
    assert main(["export", str(saved), "--format", "jsonl", "--table", "threads", "-o", "-"]) == 0

    rows = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [row["name"] for row in rows][0] == "MainThread"


def test_the_verb_chooses(saved, tmp_path, capsys):
    out = tmp_path / "out.collapsed"
    arguments = [
        "export",
        str(saved),
        "-o",
        str(out),
        "--thread",
        "MainThread",
        "--weight",
        "calls",
    ]

    assert main([*arguments, "--function", "*raising", "--between", "0", "10s", "--own"]) == 0

    assert sum(int(line.rpartition(" ")[2]) for line in out.read_text().splitlines()) == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the format is unknown: give --format"),
        (["-o", "x.what"], "the format is unknown: give --format"),
        (["--format", "perfeto"], "did you mean 'perfetto'"),
        (["-o", "x.json", "--between", "1", "soon"], "--between: a time is a number and a unit"),
        (["-o", "x.json", "--table", "calls"], "table: chrome has none"),
        (["-o", "x.json", "--thread", "none"], "there is no such thread"),
    ],
)
def test_the_verb_says_what_is_wrong(saved, capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    try:
        status = main(["export", str(saved), *arguments])
    except SystemExit as ended:
        status = ended.code

    assert status == 2
    assert message in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["run.epr"]
