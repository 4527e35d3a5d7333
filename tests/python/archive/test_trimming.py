"""A part of a recording as a file of its own, and other names for what is in it."""

import json
import os
import random
import stat
import threading

import children
import numpy as np
import pytest

import eventprof
from eventprof import cli
from eventprof.files.pseudonyms import Pseudonyms

SECRETS = ("customer", "invoice_total", "hidden-worker", "phase of secrets", "secret-task")


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """A recording with threads, labels, spans, exceptions, generators and blocks."""
    path = tmp_path_factory.mktemp("whole") / "whole.epr"

    def invoice_total(depth):
        if depth:
            return [object() for _ in range(3)] and invoice_total(depth - 1)
        return sum(len(str(n)) for n in range(5))

    def work():
        for number in range(20):
            with eventprof.label(user=f"customer {number % 3} of many"):
                invoice_total(number % 5)
        with pytest.raises(ValueError):
            int("customer")

    with eventprof.record(gc=True, exceptions=True, lines=True) as recorder:
        other = threading.Thread(target=work, name="hidden-worker")
        other.start()
        work()
        other.join()
        with eventprof.span("phase of secrets"):
            eventprof.mark("customer came")
            work()
    recorder.trace.save(path)
    return path


def rows(trace):
    """Event, thread, time and size of each row; a free of an older block has no size."""
    columns = [np.ma.filled(trace.events[name], -1) for name in ("event", "thread", "time", "size")]
    columns[3] = np.where(np.char.endswith(columns[0].astype(str), "free"), -1, columns[3])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def kept(trace, first, last):
    """The rows between two times; those of labels stay from the start on, as what they say holds."""
    for event, thread, time, size in rows(trace):
        if time <= last and (time >= first or event in ("label", "label_text")):
            yield event, thread, max(time - first, 0), size


FORKED = """
import os, sys
import numpy as np
import eventprof
from eventprof import _core

_core.columns_in_memory(0)
trace = eventprof.open(sys.argv[1])
names = ("time", "kind", "thread")
before = [trace._core.events(name).copy() for name in names]
print(_core.give_back() > 0)
half, forks = trace.duration // 2, []
for work in (lambda core: core.trim(half, 2 * half, (), 0), lambda core: core.trim(0, half, (), 0)):
    if (pid := os.fork()) == 0:
        work(trace._core)
        os._exit(0 if 0 < len(trace._core.events("time")) < len(before[0]) else 1)
    print(os.waitpid(pid, 0)[1])
print(all(map(np.array_equal, before, map(trace._core.events, names))))
trace._core.trim(half, 2 * half, (), 0)
print(len(trace._core.events("time")) == (before[0] >= half).sum())
"""


def test_a_forked_child_that_trims_leaves_its_parents_columns_alone(tmp_path):
    path = tmp_path / "many.epr"
    with eventprof.record(output=path, memory=False, on_full="grow"):
        for _ in range(200_000):
            len("")
    done = children.program(FORKED, path, TMPDIR="/var/tmp")
    lines = done.stdout.split()
    if lines[0] == "False":
        pytest.skip("this system has no columns in files")
    assert lines == ["True", "0", "0", "True", "True"]


def test_a_part_has_the_events_of_its_time(recording, tmp_path):
    whole = eventprof.open(recording)
    chosen = random.Random(7)
    for number in range(12):
        first, last = sorted(chosen.sample(range(whole.duration), 2))
        part = eventprof.trim(recording, tmp_path / f"{number}.epr", between=(first, last))
        used = sorted({thread for _, thread, *_ in kept(whole, first, last)})
        if len(part.threads) == len(whole.threads):
            assert rows(part) == list(kept(whole, first, last))
        assert len(part.events) == len(list(kept(whole, first, last)))
        assert len(part.threads) >= len(used)
        assert part.duration == last - first
        assert part.metadata["start_ns"] == whole.metadata["start_ns"] + first
        assert part.verify().ok, part.verify(all=True)


def test_calls_that_were_open_then_are_open_at_the_start(recording, tmp_path):
    whole = eventprof.open(recording)
    chosen = random.Random(11)
    for number in range(8):
        start = chosen.randrange(whole.duration)
        part = eventprof.trim(
            recording, tmp_path / f"{number}.epr", between=(start, whole.duration)
        )
        calls = whole.calls
        ends = calls["start"] + calls["duration"]
        is_open = (calls["start"] < start) & (ends >= start)
        began = part.calls["start"] == 0
        opened = (part.calls["flags"] & 1) == 1
        assert sorted(part.calls["name"][opened]) == sorted(calls["name"][is_open])
        assert began[opened].all()
        # The rest is as long as it was.
        later = calls["start"] >= start
        assert part.calls["duration"][~opened].tolist() == calls["duration"][later].tolist()


def test_labels_hold_from_the_start_of_a_part(recording, tmp_path):
    whole = eventprof.open(recording)
    calls = whole.calls
    first = int(calls["start"][np.flatnonzero(np.ma.filled(calls["user"], "") != "")[-3]])
    part = eventprof.trim(recording, tmp_path / "part.epr", between=(first, whole.duration))
    later = calls["start"] >= first
    opened = (part.calls["flags"] & 1) == 1
    assert part.calls["user"][~opened].tolist() == calls["user"][later].tolist()


def test_only_some_threads(recording, tmp_path):
    whole = eventprof.open(recording)
    native = int(whole.threads["native_id"][whole.threads["name"] == "hidden-worker"][0])
    for number, wanted in enumerate(("hidden-worker", "hidden*", native)):
        part = eventprof.trim(recording, tmp_path / f"{number}.epr", threads=[wanted])
        assert part.threads["name"].tolist() == ["hidden-worker"]
        row = whole.threads["name"].tolist().index("hidden-worker")
        assert len(part.events) == int((whole.events["thread"] == row).sum())
        assert part.verify().ok
    assert b"MainThread" not in (tmp_path / "0.epr").read_bytes()
    with pytest.raises(
        ValueError, match="there is no 'nobody'; some are MainThread, hidden-worker"
    ):
        eventprof.trim(recording, tmp_path / "none.epr", threads=["nobody"])
    assert not (tmp_path / "none.epr").exists()


def test_only_some_functions(recording, tmp_path):
    part = eventprof.trim(recording, tmp_path / "part.epr", functions=["*invoice_total"])
    of_calls = part.calls["kind"] == "call"
    names = {name.rpartition(".")[2] for name in part.calls["name"][of_calls]}
    assert names == {"invoice_total"}
    assert part.verify().ok


@pytest.mark.parametrize(
    ("word", "gone"),
    [
        ("calls", {"call", "return", "yield", "resume", "c_call", "c_return", "unwind"}),
        ("blocks", {"malloc", "calloc", "realloc", "free", "realloc_free"}),
        ("lines", {"line"}),
        ("exceptions", {"raise", "handled"}),
        ("marks", {"mark", "span_begin", "span_end", "label", "label_text"}),
    ],
)
def test_a_sort_of_events_is_dropped(recording, tmp_path, word, gone):
    whole = eventprof.open(recording)
    part = eventprof.trim(recording, tmp_path / "part.epr", drop=[word])
    before, after = set(whole.events["event"]), set(part.events["event"])
    assert before & gone
    assert not after & gone
    assert [row for row in rows(whole) if row[0] in after] == rows(part)
    assert part.verify().ok


# ---- Other names ---------------------------------------------------------------------------------


def texts_of(path):
    """Every text that a reader of an archive can get at."""
    trace = eventprof.open(path)
    found = [json.dumps(trace.metadata, default=str)]
    for name in (
        "functions",
        "threads",
        "marks",
        "spans",
        "labels",
        "calls",
        "events",
        "exceptions",
    ):
        table = getattr(trace, name, None)
        for column in getattr(table, "columns", ()):
            values = table[column]
            if values.dtype.kind in "OUT":
                found += [str(value) for value in values]
    return "\n".join(found)


def test_no_name_of_the_program_is_left(recording, tmp_path):
    here = os.path.basename(os.path.dirname(__file__))
    words = (*SECRETS[:4], "test_trimming", f"/{here}/", f'"{os.uname().nodename}"')
    before = texts_of(recording)
    assert all(word in before for word in SECRETS[:4])
    target = tmp_path / "other.epr"
    part = eventprof.trim(recording, target, anonymise=True)
    after = texts_of(target)
    assert [word for word in words if word in after] == []
    raw = target.read_bytes()
    assert [word for word in words if word.encode() in raw] == []
    # Nothing but the names is another one.
    whole = eventprof.open(recording)
    assert rows(part) == rows(whole)
    for column in ("calls", "self", "total", "allocated", "line"):
        assert part.functions[column].tolist() == whole.functions[column].tolist()
    assert part.calls["caller_line"].tolist() == whole.calls["caller_line"].tolist()
    assert part.verify().ok


def test_equal_texts_have_equal_names_and_others_have_others(recording, tmp_path):
    whole = eventprof.open(recording)
    part = eventprof.trim(recording, tmp_path / "other.epr", anonymise=True)
    for table, column in (("functions", "name"), ("functions", "file"), ("labels", "value")):
        before = getattr(whole, table)[column].tolist()
        after = getattr(part, table)[column].tolist()
        pairs = set(zip(before, after, strict=True))
        assert len(pairs) == len(set(before)) == len(set(after)), (table, column)
    # Python's own names are everybody's.
    assert {"len", "sum"} <= set(part.functions["name"])
    assert "MainThread" in part.threads["name"].tolist()


@pytest.mark.parametrize("mib", [0, 1], ids=["for the archive", "for the mapping"])
def test_a_full_disk_leaves_neither_archive_nor_mapping(recording, tmp_path, mib):
    mapping = tmp_path / "names.json"
    # What each name was given before is in it: 2 MiB.
    mapping.write_text(json.dumps({"name": {f"n{n}": f"x{n}" for n in range(100_000)}}))
    before = mapping.read_bytes()
    words = ["trim", recording, "-o", tmp_path / "x.epr", "--anonymise", "--mapping", mapping]

    done = children.program(
        """
        import resource, signal, sys
        from eventprof import cli
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        most = int(sys.argv[1]) << 20 or 1000
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        sys.exit(cli.main(sys.argv[2:]))
        """,
        mib, *words, status=1,
    )  # fmt: skip

    full = tmp_path / ("names.json" if mib else "x.epr")
    assert f"{full}: File too large; nothing was written: make room, or name a file" in done.stderr
    assert mapping.read_bytes() == before
    assert os.listdir(tmp_path) == ["names.json"]


def test_a_mapping_gives_the_same_names_again(recording, tmp_path):
    mapping = tmp_path / "names.json"
    first = eventprof.trim(recording, tmp_path / "1.epr", anonymise=True, mapping=mapping)
    assert stat.S_IMODE(mapping.stat().st_mode) == 0o600
    again = eventprof.trim(recording, tmp_path / "2.epr", anonymise=True, mapping=mapping)
    assert again.functions["name"].tolist() == first.functions["name"].tolist()
    names = json.loads(mapping.read_text())["name"]
    back = {other: text for text, other in names.items()}
    whole = eventprof.open(recording)
    row = next(
        n for n, name in enumerate(whole.functions["name"]) if name.endswith("invoice_total")
    )
    translated = ".".join(back.get(part, part) for part in first.functions["name"][row].split("."))
    assert translated == whole.functions["name"][row]


def test_names_of_the_standard_library_stay():
    names = Pseudonyms()
    row = (
        "JSONDecoder.decode",
        "json.decoder",
        "/home/me/lib/python3.13/json/decoder.py",
        3,
        "python",
    )
    assert names.function(row)[:3] == (
        "JSONDecoder.decode", "json.decoder", "/lib/python3.13/json/decoder.py",
    )  # fmt: skip
    assert names.function(("len", "builtins", None, None, "c"))[0] == "len"
    installed = (
        "Mine.go",
        "mine.it",
        "/home/me/lib/python3.13/site-packages/mine/it.py",
        3,
        "python",
    )
    name, module, file, line, _ = names.function(installed)
    assert (name, module, line) == ("name1.name2", "name3.name4", 3)
    assert file == "/name5/name6/lib/python3.13/site-packages/name3/name4.py"
    assert names.function(("f", "json_like", None, None, "c"))[:2] == ("name7", "name8")


# ---- Mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"between": (5, 2)}, "between: 5 to 2 ns is no part of the recording's"),
        ({"between": (1 << 60, 1 << 61)}, "is no part of the recording's"),
        ({"drop": ["block"]}, "drop: there is no 'block'; did you mean 'blocks'?"),
        ({"mapping": "m.json"}, "mapping: it goes with anonymise"),
    ],
)
def test_wrong_arguments_are_named(recording, tmp_path, given, message):
    with pytest.raises(ValueError) as error:
        eventprof.trim(recording, tmp_path / "part.epr", **given)
    assert message in str(error.value)
    assert not (tmp_path / "part.epr").exists()


def test_what_exists_stays(recording, tmp_path):
    target = tmp_path / "part.epr"
    target.write_text("mine")
    with pytest.raises(FileExistsError):
        eventprof.trim(recording, target)
    assert target.read_text() == "mine"
    bad = tmp_path / "names.json"
    bad.write_text('["no mapping"]')
    with pytest.raises(ValueError, match=r"names.json: it is not a mapping"):
        eventprof.trim(recording, target, anonymise=True, mapping=bad, force=True)
    assert target.read_text() == "mine"
    assert bad.read_text() == '["no mapping"]'
    eventprof.trim(recording, target, force=True)
    assert len(eventprof.open(target).events) == len(eventprof.open(recording).events)


def test_several_processes_are_trimmed_one_by_one(recording, tmp_path):
    both = eventprof.merge([eventprof.open(recording), eventprof.open(recording)])
    both.save(tmp_path / "both.epr")
    with pytest.raises(ValueError, match="holds several processes; trim the file of each"):
        eventprof.trim(tmp_path / "both.epr", tmp_path / "part.epr")
    with pytest.raises(ValueError, match="is a folder of several recordings"):
        eventprof.trim(tmp_path, tmp_path / "part.epr")


def test_the_report_says_that_it_is_a_part(recording, tmp_path):
    part = eventprof.trim(recording, tmp_path / "part.epr", between=(0, 1000), drop=["blocks"])
    assert "'eventprof trim' made it of a recording of" in str(part)
    assert "0 ns to 1.00 us, no blocks" in str(part)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--thread", "nobody"], "threads: there is no 'nobody'; some are MainThread"),
        (["--between", "9ms", "5ms"], "between: 9,000,000 to 5,000,000 ns is no part of"),
        (["--between", "5", "9ms"], "--between: a time is a number and a unit"),
        (["--mapping", "m.json"], "--mapping goes with --anonymise"),
    ],
)
def test_a_mistake_at_the_command_line_is_one_line(recording, tmp_path, capsys, words, message):
    status = cli.main(["trim", str(recording), "-o", str(tmp_path / "part.epr"), *words])
    errors = capsys.readouterr().err
    assert status == 2
    assert errors.startswith("eventprof trim: ")
    assert message in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "part.epr").exists()
