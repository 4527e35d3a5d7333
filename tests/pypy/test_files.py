"""Tables without NumPy, archives, and the command line on PyPy."""

import json
import os
import subprocess
import sys
from importlib import util

import programs
import pytest

import eventprof
from eventprof import cli
from eventprof._pypy import archive, decode, runtime, tables
from eventprof._pypy.tables import Table
from eventprof.tables.kinds import WORDS

QUIET = {"jit": False, "gc": False}
REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def reader():
    """The independent reader of archives, beside the other tests."""
    path = os.path.join(REPOSITORY, "tests", "python", "helpers", "read_archive.py")
    spec = util.spec_from_file_location("read_archive", path)
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---- Tables --------------------------------------------------------------------------------------


@pytest.fixture
def fruit():
    return Table.from_columns("fruit", {"name": ["fig", None, "plum"], "grams": [40, 7, 51]})


def test_a_column_a_row_a_slice_a_mask_and_rows(fruit):
    assert list(fruit["grams"]) == [40, 7, 51]
    assert tuple(fruit[1]) == (None, 7)
    assert tuple(fruit[-1]) == ("plum", 51)
    assert list(fruit[1:]["grams"]) == [7, 51]
    assert list(fruit[[True, False, True]]["name"]) == ["fig", "plum"]
    assert list(fruit[[2, 0]]["grams"]) == [51, 40]
    assert fruit[["grams"]].columns == ("grams",)
    assert (len(fruit), fruit.columns, "name" in fruit) == (3, ("name", "grams"), True)


def test_what_is_not_there_is_said(fruit):
    with pytest.raises(KeyError, match="did you mean 'grams'"):
        fruit["gram"]
    with pytest.raises(IndexError, match="there is no row 3"):
        fruit[3]
    with pytest.raises(IndexError, match="a mask of 1"):
        fruit[[True]]
    with pytest.raises(TypeError, match="not float"):
        fruit[1.5]


def test_without_numpy_columns_are_lists(fruit, monkeypatch):
    monkeypatch.setattr(tables, "numpy", lambda: None)

    assert fruit["grams"] == [40, 7, 51] and fruit["name"] == ["fig", None, "plum"]


def test_a_table_shows_its_first_and_last_rows():
    shown = repr(Table.from_columns("numbers", {"n": list(range(100))}))

    assert shown.startswith("numbers: 100 rows, 1 column")
    assert "..." in shown and shown.endswith("99  99")


def test_pandas_is_asked_for_where_it_is_missing(fruit):
    if util.find_spec("pandas"):
        pytest.skip("pandas is here")
    with pytest.raises(ModuleNotFoundError, match="to_pandas.. needs pandas"):
        fruit.to_pandas()


# ---- Archives ------------------------------------------------------------------------------------


@pytest.fixture
def trace():
    with eventprof.record(**QUIET) as rec:
        programs.everything()
    return rec.trace


def test_the_specification_reads_what_is_written(trace, tmp_path):
    path = tmp_path / "run.epr"
    trace.save(path)

    known = reader().read(path)

    kinds = {word: kind for kind, word in WORDS.items()}
    names = [name[0] for name in known["names"]]
    sites = known["sites"]
    rows = [
        (time, kind, thread, names[sites[number][0] if kind in (1, 4, 5, 7) else number])
        for time, thread, kind, number, _, _ in known["events"]
    ]
    expected = [(e.time, kinds[e.event], e.thread, e.name) for e in trace.events]
    assert rows == expected
    assert known["recording"][9:11] == (trace.duration, len(expected))
    assert known["threads"][0]["name"] == "MainThread"
    assert sum(known["threads"][0]["recorded"].values()) == len(expected)
    lines = [sites[number][3] for _, _, kind, number, _, _ in known["events"] if kind == 7]
    assert lines == [e.caller_line for e in trace.events if e.event == "c_call"]


def test_what_is_opened_is_what_was_saved(tmp_path):
    with eventprof.record() as rec:
        programs.fib(20)
        runtime._on_trace_too_long("pypyjit", (programs.fib.__code__, 4, False))
        runtime._on_trace_too_long("other", "a key \udc80")
    trace, path = rec.trace, tmp_path / "run.epr"
    trace.save(path)

    again = eventprof.open(path)

    # Functions are numbered anew; all else is the same.
    for name in ("events", "calls", "jit", "gc", "threads"):
        table, other = getattr(trace, name), getattr(again, name)
        for column in set(table.columns) - {"function", "caller"}:
            assert list(other[column]) == list(table[column]), (name, column)
    functions = {(row.name, row.file): row for row in trace.functions if row.calls}
    assert {(row.name, row.file): row for row in again.functions if row.calls} == functions
    assert again.metadata["python"] == trace.metadata["python"]
    assert again.stats == trace.stats
    assert len(trace.jit) >= 2


def test_a_large_archive_has_several_sections(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "_SECTION_ROWS", 100)
    with eventprof.record(**QUIET) as rec:
        programs.everything()
    rec.trace.save(tmp_path / "run.epr")

    assert len(reader().read(tmp_path / "run.epr")["events"]) == len(rec.trace.events)
    assert list(eventprof.open(tmp_path / "run.epr").calls["name"]) == list(rec.trace.calls["name"])


def test_times_of_all_lengths(tmp_path):
    data = decode.Data()
    data.functions = [decode.Function("f\udc80", None, None, None, "python")]
    thread = decode.Thread("a name", 1, 7)
    data.threads = [thread]
    time = 0
    for passed in (0, 191, 192, 447, 448, 192 + (63 << 8) - 1, 192 + (63 << 8), 1 << 40):
        time += passed
        for kind in (1, 2):
            data.times.append(time)
            data.kinds.append(kind)
            data.threads_of.append(0)
            data.functions_of.append(0)
            data.callers.append(-1)
            data.offsets.append(-1)
            data.caller_lines.append(-1)
            thread.recorded[kind] = thread.recorded.get(kind, 0) + 1
    data.duration = thread.last = time
    thread.first = 0
    eventprof.Trace(data, {}).save(tmp_path / "run.epr")

    assert [row[0] for row in reader().read(tmp_path / "run.epr")["events"]] == data.times
    again = eventprof.open(tmp_path / "run.epr")
    assert list(again.events["time"]) == data.times
    assert set(again.events["name"]) == {"f\udc80"}


def test_nothing_is_replaced_unasked(trace, tmp_path):
    path = tmp_path / "run.epr"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="force=True"):
        trace.save(path)
    assert path.read_text() == "mine"

    trace.save(path, force=True)

    assert len(eventprof.open(path).events) == len(trace.events)
    assert os.listdir(tmp_path) == ["run.epr"]


def test_a_cut_file_opens_as_far_as_it_is_whole(trace, tmp_path):
    path = tmp_path / "run.epr"
    trace.save(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) - 400])

    with pytest.warns(RuntimeWarning, match="damaged or"):
        again = eventprof.open(path)

    assert again.duration == trace.duration


@pytest.mark.parametrize("content", [b"", b"no archive", b"EVPARCH\n\x89\r\n\x1a" + bytes(60)])
def test_what_is_no_archive_is_refused(content, tmp_path):
    path = tmp_path / "x.epr"
    path.write_bytes(content)
    with pytest.raises(eventprof.FormatError, match=r"x\.epr: "):
        eventprof.open(path)


@pytest.mark.parametrize(
    ("name", "message"), [("archive-1.4-zstd.epr", "zstd"), ("archive-1.4-zlib.epr", "allocations")]
)
def test_what_needs_the_core_is_said(name, message):
    with pytest.raises(eventprof.UnsupportedError, match=f"{message}.*CPython"):
        eventprof.open(os.path.join(REPOSITORY, "tests", "data", name))


# ---- The command line ----------------------------------------------------------------------------


def command(*arguments, directory):
    return subprocess.run(
        [sys.executable, "-m", "eventprof", *arguments],
        cwd=directory, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(
        "import sys\n"
        "def work(n):\n"
        "    return n if n < 2 else work(n - 1) + work(n - 2)\n"
        "print(work(10), sys.argv, __name__)\n"
        "sys.exit(3)\n"
    )
    return path


def test_run_records_a_script_and_ends_as_it_does(script, tmp_path):
    done = command("run", "-o", "x.epr", "script.py", "an argument", directory=tmp_path)

    assert (done.returncode, done.stdout) == (3, "55 ['script.py', 'an argument'] __main__\n")
    assert "none lost; to look at it: eventprof report x.epr" in done.stderr
    functions = {row.name: row for row in eventprof.open(tmp_path / "x.epr").functions}
    assert functions["work"].calls == 177
    assert not any("eventprof" in (row.file or "") for row in functions.values() if row.calls)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_multiprocessing_have_files_with_their_names(tmp_path, method):
    (tmp_path / "main.py").write_text(
        "import multiprocessing, sys\n"
        "def work(n): return n\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context(sys.argv[1])\n"
        "    for number in (1, 2):\n"
        "        name = f'reader {number}'\n"
        "        reader = context.Process(target=work, args=(number,), name=name)\n"
        "        reader.start()\n"
        "        reader.join()\n"
        "        assert reader.exitcode == 0\n"
    )

    done = command("run", "-o", "x.epr", "main.py", method, directory=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "worker" not in eventprof.open(tmp_path / "x.epr").metadata
    found = {}
    for path in tmp_path.glob("x-*.epr"):
        trace = eventprof.open(path)
        # One without: multiprocessing's resource tracker, which may end later than the program.
        if "worker" in trace.metadata:
            calls = [row.name for row in trace.calls]
            found[trace.metadata["worker"]] = calls.count("work")
    assert found == {"reader 1": 1, "reader 2": 1}


def test_run_replaces_nothing_unasked(script, tmp_path):
    (tmp_path / "x.epr").write_text("mine")

    done = command("run", "-o", "x.epr", "script.py", directory=tmp_path)

    assert done.returncode == 2 and "exists already; -f replaces it" in done.stderr
    assert (tmp_path / "x.epr").read_text() == "mine"


def test_run_says_what_pypy_lacks(script, tmp_path):
    done = command("run", "--memory", "script.py", directory=tmp_path)

    assert done.returncode == 2 and "not available on PyPy" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("verb", ["report", "stats"])
def test_a_page_of_an_archive(verb, trace, tmp_path, capsys):
    trace.save(tmp_path / "x.epr")

    status = cli.main([verb, str(tmp_path / "x.epr")])

    assert status == 0 and " fib (" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["info", "diff", "events", "merge"])
def test_verbs_that_need_the_core_say_so(verb, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main([verb, "x.epr", "--json"])

    assert ended.value.code == 1
    assert "not available on PyPy" in capsys.readouterr().err


def test_the_environment_records_a_program(script, tmp_path):
    code = "import eventprof.cli.environment as e; e.start(); exec(open('script.py').read())"
    environment = {**os.environ, "EVENTPROF": "c_calls=0", "EVENTPROF_OUTPUT": "e.epr"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment,
                          capture_output=True, text=True, timeout=300)  # fmt: skip

    assert done.returncode == 3, done.stderr
    names = list(eventprof.open(tmp_path / "e.epr").calls["name"])
    assert names.count("work") == 177


def test_metadata_is_json_whatever_it_holds(trace):
    trace._recorder_metadata["argv"] = ("a \udc80", b"bytes")

    assert json.loads(archive._metadata(trace))["argv"][0] == "a \udc80"
