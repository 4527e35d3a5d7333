"""Datasets of recordings: the answers of each engine are those of the traces, to the unit."""

import contextlib
import gc
import importlib.util
import json
import shutil
import sys
import weakref
from collections import Counter, defaultdict

import children
import numpy as np
import pytest
from amounts import amount

import eventprof
from eventprof.answers.adding import AddedTree
from eventprof.answers.tree import Tree
from eventprof.datasets import compacting, engines, parts, writing
from eventprof.datasets.writing import recordings_in
from eventprof.files import opening

pytest.importorskip("pyarrow")

#: Datasets are made from recordings, the same on each Python.
ENGINES = {"duckdb": "duckdb", "polars": "polars", "dask": "dask.dataframe"}

PROGRAM = """
import json, sys, threading

class Node:
    def __init__(self, depth):
        self.below = [Node(depth - 1) for _ in range(2)] if depth else []

def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)

def numbers(n):
    for i in range(n):
        yield str(i) * 20

def main(k):
    kept = [json.loads('{"a": [1, 2.5], "b": "x"}') for _ in range(20 * k)]
    tree = Node(k)
    fib(6 + k)
    thread = threading.Thread(target=list, args=(numbers(50 * k),), name=f"t{k}")
    thread.start()
    thread.join()
    return kept, tree

kept = main(int(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Recordings of three processes, one of which lost events."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "program.py").write_text(PROGRAM)
    for k in (1, 2, 3):
        size = ["--buffer", "1MiB"] if k == 3 else []
        children.eventprof(
            *("run", "--no-waits", "-o", folder / f"k{k}.epr", *size, folder / "program.py", k)
        )  # as the last one is, of record()
    with pytest.warns(eventprof.EventsLostWarning), eventprof.record(buffer="1 MiB") as rec:
        for _ in range(60_000):
            len(str(1))
    rec.trace.save(folder / "lossy.epr")
    return folder


@pytest.fixture(scope="module")
def made(recorded, tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "DS"
    assert eventprof.write_dataset(recorded, path, events=True) == []
    return path


@pytest.fixture(scope="module")
def traces(recorded):
    return [eventprof.open(path) for path in recordings_in([recorded])]


@pytest.fixture(scope="module")
def added(traces):
    return AddedTree([Tree(trace) for trace in traces])


@pytest.fixture(params=ENGINES)
def dataset(request, made):
    return open_with(request.param, made)


def open_with(engine, path):
    pytest.importorskip(ENGINES[engine])
    # The threads of Dask's own pool would outlive the test.
    return eventprof.dataset(path, engine, scheduler="synchronous" if engine == "dask" else None)


def keyed(table, key, names):
    """Return rows by the texts that identify them; those of one key are added."""
    found = defaultdict(Counter)
    columns = [table[name].tolist() for name in key]
    figures = [np.ma.filled(table[name], 0).tolist() for name in names]
    for row, texts in enumerate(zip(*columns, strict=True)):
        for name, values in zip(names, figures, strict=True):
            found[texts][name] += values[row]
    return {key: dict(sums) for key, sums in found.items()}


# ---- The answers ---------------------------------------------------------------------------------


def test_functions_are_the_sums_of_the_traces(dataset, traces):
    key = ("name", "module", "file", "line", "kind")
    names = ("calls", "resumes", "recursive", "total", "self", "waited", "allocated",
             "allocated_self", "blocks", "freed", "live", "temporary", "at_peak", "at_peak_self")  # fmt: skip
    expected = defaultdict(Counter)
    for trace in traces:
        for texts, sums in keyed(trace.functions, key, names).items():
            expected[texts].update(sums)
    found = keyed(dataset.functions, key, names)

    assert found == {texts: dict(sums) for texts, sums in expected.items()}
    assert "missing" in dataset.functions.name  # one recording lost events


def test_files_say_the_units_of_their_columns(made):
    parquet = pytest.importorskip("pyarrow.parquet")

    found = {}
    for folder in made.iterdir():
        for path in list(folder.glob("*.parquet"))[:1] if folder.is_dir() else ():
            metadata = parquet.ParquetFile(path).metadata.metadata
            units = found[folder.name] = json.loads(metadata[b"eventprof.units"])
            names = parquet.read_schema(path).names
            assert set(units) <= set(names)
    assert found["slowest"]["duration"] == found["functions"]["self"] == "ns"
    assert found["functions"]["allocated"] == found["allocations"]["size"] == "bytes"
    assert (found["lengths"]["low"], found["memory"]["low"]) == ("ns", "bytes")
    assert "calls" not in found["functions"] and found["loss"] == {}


def test_a_trace_has_the_same_functions(dataset, traces):
    there = {row.name for trace in traces for row in trace.functions}

    assert {row.name for row in dataset.functions} == there


def test_extremes_and_percentiles_are_those_of_all_calls(dataset, traces):
    table, lengths = dataset.functions, defaultdict(list)
    names = ("name", "module", "file", "line", "kind")
    for trace in traces:
        keys = list(zip(*(trace.functions._column(name).items() for name in names), strict=True))
        calls = trace.calls
        whole = np.asarray(calls["flags"]) & (1 | 2 | 16) == 0
        rows = zip(
            calls["function"][whole].tolist(), calls["duration"][whole].tolist(), strict=True
        )
        for function, duration in rows:
            lengths[keys[function]].append(duration) if function is not None else None
    found = list(zip(*(table._column(name).items() for name in names), strict=True))
    assert len(found) > 50
    for row, key in enumerate(found):
        exact = sorted(lengths[key])
        figures = {
            name: table._column(name).items()[row] for name in ("min", "max", "p50", "p95", "p99")
        }
        assert (figures["min"], figures["max"]) == (
            (exact[0], exact[-1]) if exact else (None, None)
        ), key
        for percent in (50, 95, 99) if exact else ():
            wanted = exact[(len(exact) * percent + 99) // 100 - 1]
            assert abs(figures[f"p{percent}"] - wanted) <= (wanted / 100 if wanted >= 128 else 0), (
                key
            )


def test_the_tree_is_that_of_the_traces_added_up(dataset, added):
    def rows(tree):
        found = {}
        functions = [*tree.functions, ("other",), ("unknown",)]
        paths = [()] * tree.count
        for node in range(1, tree.count):
            step = (functions[tree.function[node]], functions[tree.caller[node]], tree.line[node])
            paths[node] = (*paths[tree.parent[node]], step)
        for name in ("calls", "total", "self", "waited", "longest", "shortest"):
            found[name] = dict(zip(paths, tree.nodes[name].tolist(), strict=True))
        for name in ("allocated", "at_peak", "live"):
            found[name] = dict(zip(paths, tree.below(name).tolist(), strict=True))
        return found

    assert dataset._tree.count == added.count
    assert rows(dataset._tree) == rows(added)
    assert len(dataset.tree) == added.count
    assert int(dataset.tree["total"][0]) == int(added.nodes["total"][0])


def test_own_lines_are_those_of_the_traces(dataset, traces):
    names = ("calls", "total", "self", "waited", "allocated", "live", "at_peak")
    expected = defaultdict(Counter)
    for trace in traces:
        for place, sums in keyed(trace.own, ("name", "file", "line"), names).items():
            expected[place].update(sums)

    found = keyed(dataset.own(), ("name", "file", "line"), names)
    assert found == {place: dict(sums) for place, sums in expected.items()}


def test_holders_add_up_to_the_peaks(dataset, traces):
    peaks = sum(trace._tree.facts["peak"] for trace in traces)
    for by in ("function", "line", "stack"):
        assert int(dataset.holders(by)["bytes"].sum()) == peaks
    assert sorted(dataset.holders("process")["peak"].tolist()) == sorted(
        trace._tree.facts["peak"] for trace in traces
    )
    live = sum(trace._tree.facts["live"] for trace in traces)
    assert int(dataset.holders("line", at="end")["bytes"].sum()) == live


def test_slowest_calls_are_those_of_the_traces(dataset, traces):
    every = sorted((n for trace in traces for n in trace.calls["duration"].tolist()), reverse=True)
    assert dataset.slowest(50)["duration"].tolist() == every[:50]
    fibs = sorted(
        (
            duration
            for trace in traces
            for name, duration in zip(
                trace.calls["name"], trace.calls["duration"].tolist(), strict=True
            )
            if name == "fib"
        ),
        reverse=True,
    )
    for count in (5, 11, 40, len(fibs) + 1):  # in slowest of each; of slices, too; of slices alone
        assert dataset.slowest(count, "__main__.fib")["duration"].tolist() == fibs[:count]


def test_slices_are_read_only_where_slowest_does_not_suffice(made, monkeypatch):
    pytest.importorskip("duckdb")
    found = eventprof.dataset(made)
    asked = []
    rows = found._engine.rows

    def noted(table, *words, **options):
        asked.append((table, options.get("where", ())))
        return rows(table, *words, **options)

    monkeypatch.setattr(found._engine, "rows", noted)
    assert len(found.slowest(3 * parts.SLOWEST_OF_FUNCTION, "fib")) == 3 * parts.SLOWEST_OF_FUNCTION
    slices = [where for table, where in asked if table == "slices"]
    assert all(any(column == "magnitude" for column, _, _ in where) for where in slices)
    asked.clear()
    assert len(found.slowest(parts.SLOWEST_OF_FUNCTION + 1, "__main__.main")) == 3
    assert {table for table, _ in asked} == {"slowest"}


def test_only_the_files_of_a_recording_are_read(dataset, made):
    process = int(dataset.processes["process"][0])
    name = f"{process & 0xFFFF_FFFF_FFFF_FFFF:016x}.parquet"
    for where, files in (([], 4), ([("process", "in", [process])], 1), ([("process", "==", 7)], 4)):
        found, left = engines._files(made, "slices", where)
        assert len(found) == files
        assert left == ([] if files == 1 else where)
    assert engines._files(made, "slices", [("process", "==", process)])[0][0].name == name
    assert set(dataset.only(process).rows("slices", ("process",))["process"]) == {process}
    assert len(dataset.rows("slices", ("process",), [("process", "==", 7)])) == 0


def test_rows_of_a_recording_are_its_calls_and_blocks(dataset, traces):
    processes = dataset.processes
    for trace in traces:
        row = processes["file"].tolist().index(trace.file["path"])
        only = dataset.only(processes["process"][row])
        assert len(only.processes) == 1
        slices = only.rows("slices", ("call", "start", "duration", "self", "thread", "allocated"))
        order = np.argsort(slices["call"])
        for name in ("start", "duration", "self", "thread", "allocated"):
            assert (slices[name][order] == trace.calls[name]).all(), name
        blocks = only.rows("allocations", ("start", "size", "domain"))
        assert sorted(blocks["size"].tolist()) == sorted(trace.allocations["size"].tolist())
        assert Counter(blocks["domain"]) == Counter(trace.allocations["domain"])
        events = only.rows("events", ("time", "event"))
        assert events["time"].tolist() == trace.events["time"].tolist()
        assert only.functions["calls"].sum() == trace.functions["calls"].sum()


def test_slices_are_sorted_so_that_long_ones_are_found_by_statistics(made):
    import pyarrow.parquet

    for path in (made / "slices").iterdir():
        rows = pyarrow.parquet.read_table(path, partitioning=None)
        keys = list(
            zip(*(rows[name].to_pylist() for name in ("magnitude", "thread", "start")), strict=True)
        )
        assert keys == sorted(keys, key=lambda key: (-key[0], key[1], key[2]))
        for duration, magnitude in zip(
            rows["duration"].to_pylist(), rows["magnitude"].to_pylist(), strict=True
        ):
            assert magnitude == duration.bit_length()


@pytest.mark.parametrize(("threads", "most", "ordered"), [
    (3, 1 << 20, True), (3, 1 << 20, False), (5000, 1 << 20, True), (3, 1 << 62, True),
])  # fmt: skip
def test_rows_are_sorted_and_chosen_as_by_all_keys(threads, most, ordered, monkeypatch):
    monkeypatch.setattr(parts, "SLOWEST_SHARE", 100)
    monkeypatch.setattr(parts, "GROUP_ROWS", 1000)  # it is looked at in parts
    rng = np.random.default_rng(12347)
    count = 7919
    # As many of each magnitude; and ends of each.
    duration = rng.integers(1, most, count) >> rng.integers(0, most.bit_length(), count)
    duration[:7] = (0, 1, 2, most - 1, most // 2, most // 2 - 1, 3)
    thread = rng.integers(0, threads, count).astype(np.int32)
    start = rng.integers(0, 2000, count)
    start = np.sort(start) if ordered else start
    # Of two thirds of the calls more are kept than of any function.
    function = np.maximum(rng.integers(-80, 40, count), -1).astype(np.int32)

    magnitude = parts._magnitude(duration)
    assert magnitude.tolist() == [each.bit_length() for each in duration.tolist()]
    expected = np.lexsort((start, thread, -magnitude))
    assert (parts._falling(duration, thread, start) == expected).all()
    assert (parts._falling(duration, None, start) == np.lexsort((start, -magnitude))).all()

    order = np.argsort(-duration, kind="stable")
    kept = set(order[: parts.SLOWEST].tolist())
    for each in range(-1, 40):
        calls = order[function[order] == each]
        most = max(parts.SLOWEST_OF_FUNCTION, len(calls) // parts.SLOWEST_SHARE)
        kept.update(calls[:most].tolist())
    expected = [row for row in order.tolist() if row in kept]
    bins = Counter(zip(function.tolist(), (duration >> 3 << 3).tolist(), strict=True))
    lengths = dict(zip(("function", "low"), np.array(list(bins)).T, strict=True))
    lengths["calls"] = np.array(list(bins.values()))
    assert parts._longest(duration, function, lengths).tolist() == expected
    none = {name: values[:0] for name, values in lengths.items()}
    wrong = {**lengths, "low": lengths["low"] * 2}  # as if calls were longer than they are
    for other in (none, wrong):
        assert parts._longest(duration, function, other).tolist() == expected
    assert parts._longest(duration[:0], function[:0], none).tolist() == []


@pytest.mark.parametrize("resident", [64 << 10, 256 << 10, 1 << 20])
def test_rows_all_over_a_column_are_taken_in_pieces_that_map_little(resident, monkeypatch):
    monkeypatch.setattr(parts, "RESIDENT_BYTES", resident)
    rows = np.random.default_rng(12347).integers(0, 1 << 20, 5003).astype(np.int32)

    pieces, back = parts._near(rows)

    assert np.concatenate([part for part, _ in pieces])[back].tolist() == rows.tolist()
    for part, mapped in pieces:
        assert len(set((part >> 13).tolist())) << 16 == mapped <= resident
    near, unchanged = parts._near(np.sort(rows)[:30])
    assert [part.tolist() for part, _ in near] == [np.sort(rows)[:30].tolist()]
    assert unchanged is None


def test_rows_that_are_taken_in_pieces_are_those_of_one_piece(
    made, recorded, tmp_path, monkeypatch
):
    import pyarrow.parquet

    monkeypatch.setattr(parts, "RESIDENT_BYTES", 64)
    monkeypatch.setattr(parts, "MAPPED_BITS", 2)
    monkeypatch.setattr(parts, "MAPPED_BYTES", 32)
    some = recordings_in([recorded])[:2]
    assert writing.write_dataset(some, tmp_path / "pieces", events=True) == []

    for table in (*parts.ROWS, *parts.EVENTS):
        found = [*(tmp_path / "pieces" / table).iterdir()]
        assert len(found) == len(some), table
        for path in found:
            whole = pyarrow.parquet.read_table(made / table / path.name)
            assert pyarrow.parquet.read_table(path).equals(whole), table


def test_recordings_with_waits_and_without_keep_their_own_rule(tmp_path):
    (tmp_path / "nap.py").write_text("import time\ndef nap():\n    time.sleep(0.03)\nnap()\n")
    for name, words in (("with", []), ("without", ["--no-waits"])):
        path = tmp_path / f"{name}.epr"
        children.eventprof("run", *words, "-o", path, tmp_path / "nap.py", cwd=tmp_path)
    traces = [eventprof.open(tmp_path / f"{name}.epr") for name in ("with", "without")]
    if not traces[0]._has_waits:
        pytest.skip("waits are not recorded here")
    assert eventprof.write_dataset(tmp_path, tmp_path / "DS") == []
    dataset = eventprof.dataset(tmp_path / "DS", next(filter(importlib.util.find_spec, ENGINES)))

    for figure in ("blocked", "lock_waited"):
        expected = sum(int(trace._tree.own(figure).sum()) for trace in traces)
        assert int(AddedTree([trace._tree for trace in traces]).own(figure).sum()) == expected
        assert int(dataset._tree.own(figure).sum()) == expected
        assert expected > 25_000_000
    expected = sum(int(trace.own["waited"].sum()) for trace in traces)
    assert int(dataset.own()["waited"].sum()) == expected


def test_memory_bounds_the_live_bytes(dataset, traces):
    for trace in traces:
        row = dataset.processes["file"].tolist().index(trace.file["path"])
        process = dataset.processes["process"][row]
        for count in parts.RESOLUTIONS:
            found = dataset.only(process).rows("memory", (), [("parts", "==", count)])
            low, high = trace._tree.live_bins(count)
            assert found["low"].tolist() == low.tolist()
            assert found["high"].tolist() == high.tolist()
            assert found["end"][-1] == trace.duration


def test_loss_is_that_of_all(dataset, traces):
    lost = Counter()
    for trace in traces:
        lost.update(trace.loss.by_kind)
    assert lost
    assert dict(zip(dataset.loss["event"], dataset.loss["lost"].tolist(), strict=True)) == dict(
        lost
    )
    assert f"{sum(lost.values()):,} events were lost" in dataset.headline()


def test_the_tree_is_printed(dataset, capsys):
    dataset.show_tree(limit=100)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("4 recordings")
    assert any("main" in line for line in printed[1:])
    dataset.show_tree(limit=1)
    assert len(capsys.readouterr().out.splitlines()) < len(printed)


def test_the_engines_own_tables_are_given(made):
    duckdb = pytest.importorskip("duckdb")
    found = eventprof.dataset(made)
    assert isinstance(found.scan("slices"), duckdb.DuckDBPyRelation)
    (rows,) = found.sql("SELECT count(*) FROM slices JOIN processes USING (process)").fetchall()[0]
    assert rows == len(found.rows("slices", ("call",)))
    polars = pytest.importorskip("polars")
    lazy = eventprof.dataset(made, "polars").scan("slices")
    assert lazy.select(polars.len()).collect().item() == rows
    with pytest.raises(ValueError, match="needs engine='duckdb'"):
        eventprof.dataset(made, "polars").sql("SELECT 1")


def test_dask_adds_up_without_a_shuffle(made):
    pytest.importorskip("dask.dataframe")
    engine = open_with("dask", made)._engine
    frame = engine.grouped("nodes", ("node", "parent"), ("calls",), ("shortest",), ("longest",), ())
    steps = {type(step).__name__ for step in frame.optimize(fuse=False).expr.walk()}
    assert any("Tree" in step or "Aggregate" in step or "Reduce" in step for step in steps)
    assert not any("Shuffle" in step for step in steps), steps


@pytest.mark.slow
def test_a_cluster_of_dask_gives_the_same(made, tmp_path):
    pytest.importorskip("distributed")
    pytest.importorskip("dask.dataframe")
    done = children.program(CLUSTER, made, tmp_path, flags=["-W", "ignore"])
    alone = open_with("dask", made)
    by_client, by_address, by_tasks = json.loads(done.stdout.splitlines()[-1])
    functions = alone.functions
    assert by_client == [functions[name].tolist() for name in ("function", "self", "p95")]
    assert by_address == alone.slowest(20)["duration"].tolist()
    assert by_tasks == [[], 8, [8]]  # problems, recordings, calls


CLUSTER = """
import json, os, sys
import distributed, eventprof

def work(n):
    return str(n)

def task(n, folder):
    file = os.path.join(folder, f"{n}.epr")
    with eventprof.record(output=file):
        work(n)
    return eventprof.write_dataset(file, os.path.join(folder, "DS"))

if __name__ == "__main__":
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster, distributed.Client(cluster) as client:
        functions = eventprof.dataset(sys.argv[1], "dask", scheduler=client).functions
        by_address = eventprof.dataset(sys.argv[1], "dask", scheduler=cluster.scheduler_address)
        slowest = by_address.slowest(20)["duration"].tolist()
        rows = [functions[name].tolist() for name in ("function", "self", "p95")]
        tasks = client.map(task, range(8), folder=sys.argv[2], pure=False)
        problems = sum(client.gather(tasks), [])
        made = eventprof.dataset(os.path.join(sys.argv[2], "DS"), "dask", scheduler=client)
        calls = made.functions["calls"][made.functions["name"] == "work"].tolist()
        print(json.dumps([rows, slowest, [problems, len(made.processes), calls]]))
"""


# ---- Making them ---------------------------------------------------------------------------------


def test_a_recording_that_is_there_is_replaced(recorded, tmp_path):
    path = tmp_path / "DS"
    first = recordings_in([recorded])[:2]
    eventprof.write_dataset(first, path)
    once = sorted(str(each.relative_to(path)) for each in path.rglob("*.parquet"))
    eventprof.write_dataset(first[0], path)
    assert sorted(str(each.relative_to(path)) for each in path.rglob("*.parquet")) == once
    eventprof.write_dataset(first, path, rows=False)  # and its rows go
    assert not any((path / "slices").iterdir())


def test_functions_of_a_recording_have_percentiles_and_slowest_calls_names(made, traces):
    import pyarrow.parquet

    for trace in traces:
        name = f"{process_id(trace):016x}.parquet"
        functions = pyarrow.parquet.read_table(made / "functions" / name).to_pylist()
        known = {each.pop("function"): each for each in functions}
        for percentile in ("p50", "p95", "p99"):
            expected = Counter(trace.functions._column(percentile).items())
            given = Counter(row[percentile] for row in functions)
            assert given == expected
        slowest = pyarrow.parquet.read_table(made / "slowest" / name).to_pylist()
        assert slowest
        for row in slowest:
            of_function = known[row["function"]]
            for word in ("name", "file", "line"):
                assert row[word] == of_function[word], word


def process_id(trace):
    return parts.Recording(trace).process & 0xFFFF_FFFF_FFFF_FFFF


# ---- One file of many ----------------------------------------------------------------------------


def answers(found):
    """What a dataset answers, to be compared."""
    tables = [found.functions, found.tree, found.holders(), found.slowest(40), found.loss]
    tables += [found.slowest(30, "fib"), found.processes, found.own()]
    fast = [{name: table._column(name).items() for name in table.columns} for table in tables]
    one = found.only(int(found.processes["process"][1]))
    memory = sorted(map(tuple, found.rows("memory")))  # some rows have one process and start
    return [*fast, memory, one.functions["self"].tolist(), found.headline(), found.problems]


def files(path):
    return sorted(str(each.relative_to(path)) for each in path.rglob("*.parquet"))


@pytest.fixture(scope="module")
def compacted(made, tmp_path_factory):
    path = tmp_path_factory.mktemp("compacted") / "DS"
    shutil.copytree(made, path)
    before, after = writing.compact_files(path)
    assert (before, after) == (len(files(made)), len(files(path))) == (4 * 12, 12)
    return path


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ENGINES)
def test_one_file_of_many_answers_the_same(engine, made, compacted):
    assert answers(open_with(engine, compacted)) == answers(open_with(engine, made))


def test_files_of_many_say_their_units_and_are_private(compacted):
    import pyarrow.parquet

    for path in compacted.rglob("*.parquet"):
        assert path.stat().st_mode & 0o777 == 0o600
        schema = pyarrow.parquet.read_schema(path)
        assert json.loads(schema.metadata[parts.UNITS]) == parts.units(
            path.parent.name, schema.names
        )


def test_long_calls_are_found_by_statistics_in_a_file_of_many(made, compacted):
    import pyarrow.parquet

    def groups(paths):
        found = []
        for path in paths:
            file = pyarrow.parquet.ParquetFile(path)
            place = file.schema_arrow.names.index("magnitude")
            for group in range(file.num_row_groups):
                known = file.metadata.row_group(group).column(place).statistics
                found.append((known.min, known.max, file.metadata.row_group(group).num_rows))
        return sorted(found)

    one, many = (sorted((path / "slices").iterdir()) for path in (compacted, made))
    assert groups(one) == groups(many)


@pytest.mark.thorough
def test_recordings_are_added_to_a_file_of_many_and_nothing_is_there_twice(
    recorded, made, tmp_path
):
    path = tmp_path / "DS"
    every = recordings_in([recorded])
    eventprof.write_dataset(every[:2], path, events=True, compact=True)
    assert len(files(path)) == 12

    assert eventprof.write_dataset(every[0], path, events=True) == []  # it is there already
    assert len(files(path)) == 12
    assert eventprof.write_dataset(every, path, events=True) == []
    assert len(files(path)) == 12 + 2 * 12

    pytest.importorskip("duckdb")
    assert answers(eventprof.dataset(path)) == answers(eventprof.dataset(made))
    found = eventprof.dataset(path)
    assert found.compact() == (36, 12)
    assert answers(eventprof.dataset(path)) == answers(eventprof.dataset(made))


def test_a_recording_that_is_converted_otherwise_replaces_its_rows(recorded, compacted, tmp_path):
    pytest.importorskip("duckdb")
    path = tmp_path / "DS"
    shutil.copytree(compacted, path)
    first = recordings_in([recorded])[0]

    assert eventprof.write_dataset(first, path, rows=False) == []

    found = eventprof.dataset(path)
    process = process_id(eventprof.open(first))
    assert len(found.processes) == len(set(found.processes["process"])) == 4
    assert len(files(path)) == 12 + len(parts.PARTIALS)
    slices = found.rows("slices", ("process",))["process"]
    assert process not in [each & 0xFFFF_FFFF_FFFF_FFFF for each in slices.tolist()]
    assert len(set(slices.tolist())) == 3
    assert (
        found.functions["calls"].tolist()
        == eventprof.dataset(compacted).functions["calls"].tolist()
    )
    assert found.problems == eventprof.dataset(compacted).problems


def test_fewer_events_do_not_replace_what_a_file_of_many_has(
    recorded, compacted, tmp_path, monkeypatch
):
    path = tmp_path / "DS"
    shutil.copytree(compacted, path)
    first = recordings_in([recorded])[0]
    held = compacting.held
    monkeypatch.setattr(
        compacting, "held",
        lambda *words: ({**held(*words)[0], "events": 10**9}, held(*words)[1]),
    )  # fmt: skip

    (problem,) = eventprof.write_dataset(first, path)

    assert "the dataset has more events of this process, from " in problem
    assert files(path) == files(compacted)


@pytest.mark.parametrize("done", [0, 1, 5, 13])
def test_an_interrupted_exchange_loses_and_doubles_nothing(done, made, tmp_path, monkeypatch):
    pytest.importorskip("duckdb")
    path = tmp_path / "DS"
    shutil.copytree(made, path)
    put = type(path).replace
    count = [0]

    def interrupted(*words):
        if count[0] == done:
            raise KeyboardInterrupt
        count[0] += 1
        return put(*words)

    with monkeypatch.context() as patch:
        patch.setattr(type(path), "replace", interrupted)
        with contextlib.suppress(KeyboardInterrupt):
            writing.compact_files(path)
    expected = eventprof.dataset(made)
    for _ in range(2):
        found = eventprof.dataset(path)
        assert found.functions["calls"].tolist() == expected.functions["calls"].tolist()
        assert len(found.rows("slices", ("process",))) == len(expected.rows("slices", ("process",)))
        assert len(found.processes) == 4
        writing.compact_files(path)  # ends it

    assert len(files(path)) == 12
    assert eventprof.dataset(path).problems == expected.problems
    assert {each.name for each in path.iterdir() if each.is_file()} == {"dataset.json", ".lock"}


#: Kills itself at the N-th change of the dataset's folder; ends with how many there are.
KILLED = """
import itertools, os, pathlib, shutil, signal, sys, traceback
import pyarrow.parquet
from eventprof.datasets import compacting, parts, writing

made, copy = map(pathlib.Path, sys.argv[1:3])
CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "os.link", "open")

def compact_until(place):
    count = 0
    def on_event(event, words):
        nonlocal count
        if event in CHANGES and str(copy) in str(words[0]):
            count += 1
            if count == place:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(on_event)
    writing.compact_files(copy)

def content(folder):
    rows = {}
    for table in (*parts.PARTIALS, *parts.ROWS, *parts.EVENTS):
        rows[table] = sorted(
            process
            for file in compacting.files_of(folder, table)
            for process in pyarrow.parquet.read_table(
                file, columns=["process"], partitioning=None, use_threads=False
            )["process"].to_pylist()
        )
    return rows

def in_child(work, *words):
    # The parent starts no thread: its forks can do what needs some.
    child = os.fork()
    if child == 0:
        try:
            work(*words)
            os._exit(0)
        finally:
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def check():
    expected = content(made)
    assert any(expected.values())
    assert content(copy) == expected
    writing.compact_files(copy)
    assert content(copy) == expected
    left = sorted(path.name for path in copy.iterdir() if path.is_file())
    assert left == [".lock", "dataset.json"], left
    assert not (copy / ".compact").exists()
    assert all(len(compacting.files_of(copy, table)) <= 1 for table in expected)

for place in itertools.count(1, int(sys.argv[3])):
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(made, copy)
    status = in_child(compact_until, place)
    assert in_child(check) == 0, f"after a kill at change {place}"
    if status == 0:
        break
    assert status == -signal.SIGKILL
print(place)
"""


@pytest.mark.thorough
def test_a_compaction_that_is_killed_leaves_a_whole_dataset(recorded, tmp_path):
    made = tmp_path / "made"
    eventprof.write_dataset(recordings_in([recorded])[:2], made)
    step = amount(23, 7)
    done = children.program(KILLED, made, tmp_path / "DS", step, OPENBLAS_NUM_THREADS="1")
    assert int(done.stdout) > 80  # changes, each a place to be killed


@pytest.mark.thorough
def test_several_processes_make_the_same(recorded, made, tmp_path):
    eventprof.write_dataset(recorded, tmp_path / "DS", jobs=3)
    pytest.importorskip("duckdb")
    one, other = eventprof.dataset(made), eventprof.dataset(tmp_path / "DS")
    assert one.functions["function"].tolist() == other.functions["function"].tolist()
    assert one.functions["self"].tolist() == other.functions["self"].tolist()


def test_partials_need_no_columns_of_events(recorded, tmp_path, monkeypatch):
    def refuse(*_):
        raise AssertionError("columns were made")

    with monkeypatch.context() as patch:
        patch.setattr(eventprof.Trace, "calls", property(refuse))
        patch.setattr(eventprof.Trace, "events", property(refuse))
        patch.setattr(eventprof.Trace, "allocations", property(refuse))
        assert eventprof.write_dataset(recorded, tmp_path / "DS", rows=False) == []
    pytest.importorskip("duckdb")
    found = eventprof.dataset(tmp_path / "DS")
    assert len(found.functions) > 50
    with pytest.raises(ValueError, match="made without slices.*--partials"):
        found.slowest()
    with pytest.raises(ValueError, match="made without events.*--events"):
        found.rows("events")


def test_one_recording_at_a_time_is_in_memory(recorded, tmp_path, monkeypatch):
    known = []
    open_ = opening.open

    def opened(path):
        assert not [each for each in known if each() is not None], "an earlier trace is still there"
        trace = open_(path)
        known.append(weakref.ref(trace))
        return trace

    monkeypatch.setattr(opening, "open", opened)
    monkeypatch.setattr(writing, "FREED_FROM", 0)  # these recordings are small
    gc.disable()
    try:
        assert eventprof.write_dataset(recorded, tmp_path / "DS") == []
    finally:
        gc.enable()
    assert len(known) == 4


def test_without_a_good_recording_no_dataset_is_left(tmp_path):
    bad = tmp_path / "bad.epr"
    bad.write_text("no recording")
    (problem,) = eventprof.write_dataset(bad, tmp_path / "DS")
    assert "bad.epr" in problem
    assert not (tmp_path / "DS").exists()
    (tmp_path / "there").mkdir()
    assert eventprof.write_dataset([bad, tmp_path / "absent.epr"], tmp_path / "there")
    assert not any((tmp_path / "there").iterdir())
    done = run(bad, "-o", tmp_path / "DS")
    assert done.returncode == 1 and "no recording could be converted" in done.stderr
    assert not (tmp_path / "DS").exists()


def test_a_dataset_stays_when_no_more_can_be_added(made, tmp_path):
    pytest.importorskip("duckdb")
    shutil.copytree(made, tmp_path / "DS")
    assert eventprof.write_dataset(tmp_path / "absent.epr", tmp_path / "DS")
    assert len(eventprof.dataset(tmp_path / "DS").processes) == 4


def test_a_bad_member_is_named_and_the_rest_is_used(recorded, tmp_path):
    good = recordings_in([recorded])[0]
    whole = open(good, "rb").read()
    (tmp_path / "cut.epr").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.epr").write_text("no recording")
    (tmp_path / "empty.epr").write_bytes(b"")
    (tmp_path / "good.epr").write_bytes(whole)

    problems = eventprof.write_dataset([tmp_path, tmp_path / "absent.epr"], tmp_path / "DS")

    for name in ("text.epr", "empty.epr", "absent.epr"):
        assert sum(name in problem for problem in problems) == 1, problems
    pytest.importorskip("duckdb")
    names = eventprof.dataset(tmp_path / "DS").processes["name"].tolist()
    assert names == ["good"]  # of one process both: the one with more events stays
    (problem,) = eventprof.write_dataset(tmp_path / "cut.epr", tmp_path / "DS")
    assert "cut.epr: the dataset has more events of this process, from " in problem
    assert eventprof.dataset(tmp_path / "DS").processes["name"].tolist() == names
    assert not list((tmp_path / "DS").glob(".part-*"))


def test_a_recording_that_is_gone_is_named(recorded, tmp_path):
    family = tmp_path / "run.epd"
    family.mkdir()
    shutil.copy(recordings_in([recorded])[0], family / "a.epr")
    listed = [{"file": "a.epr"}, {"file": "b.epr", "pid": 7, "events": 1200}]
    (family / "manifest.json").write_text(json.dumps({"format": 1, "processes": listed}))
    (problem,) = eventprof.write_dataset(tmp_path, tmp_path / "DS")
    assert problem == f"{family}/b.epr: the file is missing (process 7, 1,200 events)"
    done = run(family, "-o", tmp_path / "DS")
    assert done.returncode == 1 and "1 recording;" in done.stdout and "b.epr" in done.stderr


def test_a_full_disk_is_said_and_nothing_half_is_left(recorded, tmp_path, monkeypatch):
    from eventprof.datasets import writing

    calls = []

    def full(table, pieces, path):
        calls.append(path)
        if len(calls) == 4:
            raise OSError(28, "No space left on device", str(path))
        write(table, pieces, path)

    write = writing._write
    monkeypatch.setattr(writing, "_write", full)
    first, second = recordings_in([recorded])[:2]
    (problem,) = eventprof.write_dataset([first, second], tmp_path / "DS")
    assert "No space left" in problem and first in problem
    assert len(list((tmp_path / "DS" / "processes").iterdir())) == 1
    assert len(list((tmp_path / "DS" / "functions").iterdir())) == 1


def test_a_recording_that_is_not_whole_is_told(made, tmp_path):
    pytest.importorskip("duckdb")
    copy = tmp_path / "DS"
    shutil.copytree(made, copy)
    next((copy / "nodes").iterdir()).unlink()
    assert any("nodes lacks 1 recording" in line for line in eventprof.dataset(copy).problems)
    next((copy / "processes").iterdir()).unlink()
    problems = eventprof.dataset(copy).problems
    assert any("functions has 1 recording that" in line for line in problems), problems


def test_wrong_arguments_are_named(made, tmp_path, recorded):
    pytest.importorskip("duckdb")
    with pytest.raises(FileNotFoundError):
        eventprof.dataset(tmp_path / "absent")
    with pytest.raises(ValueError, match="not a dataset: it has no dataset.json"):
        eventprof.dataset(tmp_path)
    with pytest.raises(ValueError, match="did you mean 'duckdb'"):
        eventprof.dataset(made, "duckdbb")
    with pytest.raises(ValueError, match="scheduler goes with engine='dask'"):
        eventprof.dataset(made, scheduler="threads")
    with pytest.raises(ValueError, match="there is no recording in"):
        eventprof.write_dataset(tmp_path, tmp_path / "DS")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("x")
    with pytest.raises(ValueError, match="not a dataset"):
        eventprof.write_dataset(recorded, tmp_path / "other")
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "dataset.json").write_text('{"format": 99, "tables": {}}')
    with pytest.raises(ValueError, match="format 99"):
        eventprof.dataset(tmp_path / "later")
    found = eventprof.dataset(made)
    with pytest.raises(ValueError, match="did you mean 'slices'"):
        found.rows("slice")
    with pytest.raises(ValueError, match="did you mean 'duration'"):
        found.rows("slices", ("durations",))
    with pytest.raises(ValueError, match="did you mean 'fib'"):
        found.slowest(1, "fibb")
    with pytest.raises(ValueError, match="is not in the dataset"):
        found.only(4711)
    with pytest.raises(ValueError, match="did you mean 'stack'"):
        found.holders("stacks")


def test_a_missing_library_names_the_extra(made, recorded, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'eventprof\[dataset\]'"):
        eventprof.dataset(made)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'eventprof\[dataset\]'"):
        eventprof.write_dataset(recorded, tmp_path / "DS")


@pytest.mark.parametrize("name", ["a'b\"c", "\N{SNOWMAN} [x] *", "=1+1", "\udc80"])
def test_odd_names_stay_as_they_are(name, tmp_path):
    pytest.importorskip("duckdb")
    code = compile("def work():\n    pass\n", "odd.py", "exec")
    space = {}
    exec(code, space)
    work = space["work"]
    work.__code__ = work.__code__.replace(co_name=name, co_qualname=name)
    with eventprof.record() as rec:
        work()
    folder = tmp_path / "it's [a]"
    folder.mkdir()
    rec.trace.save(folder / "odd.epr")
    eventprof.write_dataset(folder, folder / "DS")
    shown = name.encode("utf-8", "backslashreplace").decode()
    with pytest.raises(ValueError, match="rename the folder"):
        open_with("dask", folder / "DS")
    (folder / "DS").rename(tmp_path / "it's")
    for engine in ENGINES:
        found = open_with(engine, tmp_path / "it's")
        assert shown in found.functions["name"].tolist()
        assert found.slowest(1, shown)["name"].tolist() == [shown]


# ---- The command line ----------------------------------------------------------------------------


def run(*words):
    return children.here("dataset", *words)


@pytest.mark.thorough
def test_the_verb_makes_and_asks(recorded, tmp_path):
    pytest.importorskip("duckdb")
    path = tmp_path / "DS"
    (tmp_path / "bad.epr").write_text("x")
    done = run(recorded, tmp_path / "bad.epr", "-o", path)
    assert done.returncode == 1 and "left out:" in done.stderr and "bad.epr" in done.stderr
    assert "4 recordings" in done.stdout

    printed = run(path).stdout
    assert printed.startswith("4 recordings, ") and "events were lost" in printed.splitlines()[0]
    assert "the slowest calls" in printed and "__main__.<module>" in printed
    for what in ("functions", "slowest", "processes", "memory", "tree"):
        done = run(path, "--show", what, "--limit", "3")
        assert done.returncode == 0, done.stderr
    if importlib.util.find_spec("dask"):
        # The threads of Dask's own pool would outlive the test.
        assert children.eventprof("dataset", path, "--engine", "dask").stdout == printed
    document = json.loads(run(path, "--json", "--limit", "2").stdout)
    assert document["verb"] == "dataset" and len(document["rows"]) == 2
    assert document["missing"] and document["left_out"] > 10


@pytest.mark.thorough
def test_the_verb_makes_one_file_of_many(recorded, tmp_path):
    pytest.importorskip("duckdb")
    path = tmp_path / "DS"
    assert run(recorded, "-o", path, "--compact").returncode == 0
    assert len(files(path)) == 11
    printed = run(path).stdout
    assert "p50" in printed.splitlines()[3]

    assert run(recorded, "-o", tmp_path / "other").returncode == 0
    done = run(tmp_path / "other", "--compact")
    assert done.stdout == printed and "11 files instead of 44" in done.stderr


@pytest.mark.thorough
def test_the_verb_refuses_what_makes_no_sense(recorded, tmp_path):
    for more in ((), ("--compact",)):
        done = run(tmp_path / "absent", *more)
        assert done.returncode == 1
        assert f"{tmp_path / 'absent'}: there is no such dataset; 'eventprof dataset RECO" in (
            done.stderr
        )
    assert "not a dataset" in run(recorded).stderr
    done = run(recorded, "-o", tmp_path / "DS", "--show", "tree")
    assert done.returncode == 2 and "--show is for reading a dataset" in done.stderr
    assert run(recorded, recorded).returncode == 2
