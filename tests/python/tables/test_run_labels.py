"""Labels of whole recordings: `record(labels=...)` and `eventprof run --label`."""

import json
import sys

import children
import pytest
from dev import shell

import eventprof
from eventprof import cli
from eventprof.viewer.data import notes_of


def run(folder, *arguments, **environment):
    return children.eventprof(*arguments, cwd=folder, **environment).stdout


def labels_of(path):
    return eventprof.open(path).metadata.get("labels")


def test_labels_stand_in_metadata_tables_report_and_info(tmp_path, capsys):
    with eventprof.record(output=tmp_path / "a.epr", labels={"release": "A", "build": 7}):
        sorted([2, 1])
    trace = eventprof.open(tmp_path / "a.epr")
    trace.save(tmp_path / "a2.epr")
    saved = eventprof.open(tmp_path / "a2.epr")

    for each in (trace, saved):
        assert each.metadata["labels"] == {"release": "A", "build": "7"}
        assert json.loads(each.processes["labels"][0]) == {"release": "A", "build": "7"}
        assert "labels" not in each.metadata["options"]
    for words in (["report"], ["report", "--short"], ["info"]):
        assert cli.main([*words, str(tmp_path / "a.epr")]) == 0
        assert "release=A, build=7" in capsys.readouterr().out
    assert "release=A, build=7" in notes_of(trace)["facts"]


def test_without_labels_nothing_is_said_of_them(tmp_path, capsys):
    with eventprof.record(output=tmp_path / "a.epr") as rec:
        pass
    assert cli.main(["report", "--short", str(tmp_path / "a.epr")]) == 0
    assert "\nlabels " not in capsys.readouterr().out
    assert "labels" not in rec.trace.metadata
    assert rec.trace.processes["labels"][0] is None


def test_children_have_the_labels_of_the_command_line(tmp_path):
    (tmp_path / "p.py").write_text(
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'pass'], check=True)\n"
    )
    run(
        tmp_path,
        "run",
        "-q",
        "-o",
        "p.epd",
        "--label",
        "release=A",
        "--label",
        "host = eu 1",
        "p.py",
    )

    files = [path for path in (tmp_path / "p.epd").iterdir() if path.suffix == ".epr"]
    assert len(files) == 2
    assert [labels_of(path) for path in files] == [{"release": "A", "host": "eu 1"}] * 2
    texts = eventprof.open(tmp_path / "p.epd").processes["labels"]
    assert [json.loads(text) for text in texts] == [{"release": "A", "host": "eu 1"}] * 2


def test_the_environment_gives_labels(tmp_path):
    (tmp_path / "p.py").write_text("pass\n")
    children.run(
        sys.executable, "p.py",
        cwd=tmp_path, EVENTPROF="label=release=B,memory=0",
        EVENTPROF_OUTPUT=str(tmp_path / "e.epr"),
    )  # fmt: skip
    assert labels_of(tmp_path / "e.epr") == {"release": "B"}


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        ("release=A", TypeError, "must map names to values"),
        ({"a b": "x"}, ValueError, "a name is a letter"),
        ({3: "x"}, ValueError, "a name is a letter"),
        ({"a": "x" * 5000}, ValueError, "4,096 characters"),
    ],
)
def test_a_wrong_label_is_refused(labels, error, message):
    with pytest.raises(error, match=message):
        eventprof.record(labels=labels)


def test_diff_compares_by_a_label(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number, (release, calls) in enumerate((("A", 10), ("B", 20), ("A", 12), ("B", 21))):
        with eventprof.record(output=f"{number}.epr", labels={"release": release}):
            for _ in range(calls):
                sorted([])
    with eventprof.record(output="none.epr"):
        pass

    files = ["0.epr", "1.epr", "2.epr", "3.epr"]
    assert cli.main(["diff", "--by", "release", "--json", *files]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    (row,) = [row for row in rows if row["name"] == "sorted"]
    assert (row["calls_before"], row["calls_after"], row["calls_apart"]) == (11, 20, True)

    for arguments, message in (
        (["--by", "release", "0.epr", "2.epr"], "needs recordings with two values"),
        (["--by", "release", "0.epr", "none.epr"], "none.epr has no label release"),
        (["--by", "release", "0.epr", "--to", "1.epr"], "leave one out"),
    ):
        assert cli.main(["diff", *arguments]) == 2
        assert message in capsys.readouterr().err


def test_a_dataset_is_asked_by_label(tmp_path, capsys):
    pytest.importorskip("duckdb")
    pytest.importorskip("pyarrow")
    for release, calls in (("A", 10), ("B", 20)):
        with eventprof.record(output=tmp_path / f"{release}.epr", labels={"release": release}):
            for _ in range(calls):
                sorted([])
    made = str(tmp_path / "data")
    assert cli.main(["dataset", "-o", made, *(str(tmp_path / f"{n}.epr") for n in "AB")]) == 0
    found = eventprof.dataset(made)

    assert sorted(map(json.loads, found.processes["labels"]), key=str) == [
        {"release": "A"}, {"release": "B"}
    ]  # fmt: skip
    only = found.only(release="B")
    assert only.processes["labels"].tolist() == ['{"release": "B"}']
    assert [row.calls for row in only.functions if row.name == "sorted"] == [20]
    with pytest.raises(
        ValueError, match="no recording has release=C; there are release=A, release=B"
    ):
        found.only(release="C")
    capsys.readouterr()
    assert cli.main(["dataset", made, "--label", "release=A", "--show", "functions", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["calls"] for row in rows if row["name"] == "sorted"] == [10]
    assert cli.main(["dataset", made, "--label", "release=C"]) == 2


def test_a_dataset_is_asked_by_labels_that_are_named_as_arguments_are(tmp_path, capsys):
    pytest.importorskip("duckdb")
    pytest.importorskip("pyarrow")
    names = ("self", "processes", "labels", "zone")
    for value in ("A", "B"):
        path = tmp_path / f"{value}.epr"
        with eventprof.record(output=path, labels={**dict.fromkeys(names, value), "both": "x"}):
            pass
    made = str(tmp_path / "data")
    assert cli.main(["dataset", "-o", made, str(tmp_path / "A.epr"), str(tmp_path / "B.epr")]) == 0
    found = eventprof.dataset(made)

    for name in names:
        (labels,) = found.only(labels={name: "B"}).processes["labels"]
        assert json.loads(labels)[name] == "B"
        capsys.readouterr()
        words = ("--label", f"{name}=B", "--show", "processes", "--json")
        assert cli.main(["dataset", made, *words]) == 0
        assert len(json.loads(capsys.readouterr().out)["rows"]) == 1
    assert len(found.only(labels={"both": "x"}).processes) == 2
    assert len(found.only(labels={"self": "A"}, both="x").processes) == 1
    with pytest.raises(ValueError, match="no recording has self=A, zone=B"):
        found.only(labels={"self": "A"}, zone="B")
    with pytest.raises(TypeError, match="labels must be a mapping of names to values, not 'A'"):
        found.only(labels="A")


def test_one_query_tells_what_got_slower_by_release_and_zone(tmp_path):
    pytest.importorskip("duckdb")
    pytest.importorskip("pyarrow")
    page = (shell.ROOT / "doc" / "datasets.rst").read_text(encoding="utf-8")
    query = page[page.index("SELECT zone, name") :].partition("\n\n")[0]
    work = {
        "A": "def work():\n    len('')\n",
        "B": "def work():\n    for _ in range(200): len('')\n",
    }
    files = []
    for release, source in work.items():
        for zone in ("eu", "us"):
            exec(source, program := {"__name__": "__main__"})
            files.append(tmp_path / f"{release}-{zone}.epr")
            with eventprof.record(output=files[-1], labels={"release": release, "zone": zone}):
                for _ in range(50):
                    program["work"]()
    eventprof.write_dataset(files, tmp_path / "data")

    rows = eventprof.dataset(tmp_path / "data").sql(query).fetchall()
    worst = {(zone, name) for zone, name, before, after in rows if before and after > before}
    assert {("eu", "work"), ("us", "work")} <= worst
