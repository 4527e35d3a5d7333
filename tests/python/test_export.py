"""Every format, read back by a reader that is not ours: equal calls, times and bytes."""

from __future__ import annotations

import collections
import csv
import gzip
import io
import json
import marshal
import os
import pstats
import re
import shutil
import sqlite3
import stat
import subprocess

import exported
import numpy as np
import pytest
from exported import TRACES, names_of, sums_of, text

import eventprof
from eventprof.cli import main
from eventprof.export import FORMATS, TABLES, by_extension

#: What some formats need.
NEEDS = {
    "parquet": ("pyarrow",), "arrow": ("pyarrow",), "duckdb": ("duckdb", "pyarrow"),
    "otlp": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.common"),
}  # fmt: skip


def require(word):
    for module in NEEDS.get(word, ()):
        pytest.importorskip(module)


@pytest.fixture(scope="module", params=TRACES)
def any_trace(request):
    return TRACES[request.param]()


@pytest.fixture(scope="module")
def nasty():
    return exported.nasty()


def export(trace, tmp_path, word, **options):
    path = tmp_path / f"out.{word}"
    trace.export(path, word, **options)
    return path


# ---- Timelines -----------------------------------------------------------------------------------


def test_chrome_has_every_call(any_trace, tmp_path):
    assert exported.sums_of_chrome(export(any_trace, tmp_path, "chrome")) == sums_of(any_trace)


def test_speedscope_has_every_call(any_trace, tmp_path):
    path = export(any_trace, tmp_path, "speedscope")

    assert exported.sums_of_speedscope(path) == sums_of(any_trace)


def test_firefox_has_every_call(any_trace, tmp_path):
    path = export(any_trace, tmp_path, "firefox")

    assert exported.sums_of_firefox(path) == sums_of(any_trace)


def test_perfetto_has_every_call(any_trace, tmp_path):
    pytest.importorskip("perfetto")

    read = exported.PerfettoReader(export(any_trace, tmp_path, "perfetto"))

    assert read.sums == sums_of(any_trace, depth_max=512)


def test_perfetto_counts_what_its_importer_drops(tmp_path):
    notes = exported.deep().export(tmp_path / "deep.pftrace")

    assert notes == ["88 calls are deeper than 512, which Perfetto does not show"]


def test_perfetto_carries_lines_memory_and_points(nasty, tmp_path):
    pytest.importorskip("perfetto")
    calls = nasty.calls

    read = exported.PerfettoReader(export(nasty, tmp_path, "perfetto"))

    files = [None, *nasty.functions["file"]]
    places = zip(
        np.ma.filled(calls["caller"], -1).tolist(),
        np.ma.filled(calls["caller_line"], -1).tolist(),
        strict=True,
    )
    expected = collections.Counter(
        (files[caller + 1] or "", line) for caller, line in places if caller >= 0 and line >= 0
    )
    assert read.lines == expected
    for domain in ("raw", "mem", "obj"):
        curve = nasty.memory_of(domain)
        assert read.counters.get(f"live {domain}", []) == list(
            zip(curve["time"].tolist(), curve["live"].tolist(), strict=True)
        )
    resident = nasty.resident
    assert read.counters["resident"] == list(
        zip(resident["time"].tolist(), resident["bytes"].tolist(), strict=True)
    )
    assert [value for _, value in read.counters["a counter"]] == [1.5]
    assert [name for _, name, _ in read.instants] == ["a mark; of mine", "a flow", "a flow"]
    assert read.flows == {7: ["on", "end"]}


def test_perfetto_takes_less_than_fifteen_bytes_an_event(tmp_path):
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    with eventprof.record(memory=False) as rec:
        fib(16)
    path = export(rec.trace, tmp_path, "perfetto")

    assert os.path.getsize(path) / len(rec.trace.events) < 15


def test_chrome_carries_memory_marks_flows_and_facts(nasty, tmp_path):
    whole = exported.read_json(export(nasty, tmp_path, "chrome"))
    events = whole["traceEvents"]

    calls = [event for event in events if event["ph"] == "X"]
    assert sum(e["args"].get("allocated", 0) for e in calls) == int(
        nasty.calls["allocated_self"].sum()
    )
    assert sum(e["args"].get("freed", 0) for e in calls) == int(nasty.calls["freed_self"].sum())
    lines = [event["args"]["line"] for event in calls]
    assert lines == [
        None if line < 0 else line for line in np.ma.filled(nasty.calls["caller_line"], -1).tolist()
    ]
    live = [e["args"]["bytes"] for e in events if e["name"] == "live obj"]
    assert live == nasty.memory_of("obj")["live"].tolist()
    assert [e["name"] for e in events if e["ph"] == "i"] == ["a mark; of mine"]
    assert [e["ph"] for e in events if e.get("cat") == "flow"] == ["s", "f"]
    threads = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert threads == set(nasty.threads["name"])
    assert whole["otherData"]["pid"] == os.getpid()


def test_firefox_keeps_its_invariants(nasty, tmp_path):
    profile = exported.read_json(export(nasty, tmp_path, "firefox"))

    assert profile["meta"]["preprocessedProfileVersion"] == 48
    greys = [c for c in profile["meta"]["categories"] if c["color"] == "grey"]
    assert len(greys) == 1
    for thread in profile["threads"]:
        for name in ("samples", "markers", "stackTable", "frameTable", "funcTable"):
            table = thread[name]
            columns = {len(c) for c in table.values() if isinstance(c, list)}
            assert columns == {table["length"]}
        for stack, prefix in enumerate(thread["stackTable"]["prefix"]):
            assert prefix is None or prefix < stack
        assert max(thread["frameTable"]["func"], default=0) <= thread["funcTable"]["length"]
        assert len(set(thread["stringArray"])) == len(thread["stringArray"])
        times = thread["samples"]["time"]
        assert times == sorted(times)
        own = sum(thread["samples"]["weight"])
        assert own == pytest.approx(times[-1] - times[0] if times else 0)
        assert isinstance(thread["pid"], str)
    markers = [(t["stringArray"][n]) for t in profile["threads"] for n in t["markers"]["name"]]
    assert {"a mark; of mine", "a span"} <= set(markers)
    counted = {
        c["description"].split()[-1]: sum(c["samples"]["count"]) for c in profile["counters"]
    }
    for domain, left in counted.items():
        assert left == int(nasty.memory_of(domain)["live"][-1])


def test_speedscope_has_bytes_by_stack(nasty, tmp_path):
    whole = exported.read_json(export(nasty, tmp_path, "speedscope"))

    sums = {p["name"]: sum(p["weights"]) for p in whole["profiles"] if p["type"] == "sampled"}

    in_calls = nasty.allocations["call"].mask == False  # noqa: E712
    blocks = nasty.allocations[in_calls]
    assert sums["allocated"] == int(blocks["size"].sum())
    assert sums["live at the end"] == int(blocks["size"][blocks["end"].mask].sum())
    for profile in whole["profiles"]:
        assert profile["type"] in ("evented", "sampled")
        assert profile["unit"] in ("nanoseconds", "bytes")
        if profile["type"] == "sampled":
            assert len(profile["samples"]) == len(profile["weights"])


# ---- Trees ---------------------------------------------------------------------------------------


def as_collapsed(name):
    name = text(name)
    if not name.isprintable():
        name = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
    return name.replace(";", "\\x3b")


def test_collapsed_has_all_own_time(any_trace, tmp_path):
    path = export(any_trace, tmp_path, "collapsed")
    expected = sums_of(any_trace)

    own, total = collections.Counter(), collections.Counter()
    for line in path.read_bytes().split(b"\n")[:-1]:
        stack, _, weight = line.decode().rpartition(" ")
        assert int(weight) > 0
        assert line.decode().isprintable()
        frames = stack.split(";")
        own[frames[-1]] += int(weight)
        for frame in set(frames):
            total[frame] += int(weight)

    assert own == {as_collapsed(n): v for n, v in expected.own.items() if v}
    assert total == {as_collapsed(n): v for n, v in expected.total.items() if v}


@pytest.mark.parametrize("weight", ["calls", "allocated", "blocks", "at_peak", "live"])
def test_collapsed_by_another_weight(nasty, tmp_path, weight):
    path = export(nasty, tmp_path, "collapsed", weight=weight)
    found = sum(int(line.rpartition(b" ")[2]) for line in path.read_bytes().splitlines())

    blocks = nasty.allocations[~nasty.allocations["call"].mask]
    functions = nasty.functions
    expected = {
        "calls": functions["calls"].sum() + functions["resumes"].sum(),
        "allocated": blocks["size"].sum(),
        "blocks": len(blocks),
        "live": blocks["size"][blocks["end"].mask].sum(),
    }
    if weight == "at_peak":
        peak = nasty.peak()
        assert 0 < found <= peak.bytes
        assert peak.bytes - found == sum(r.bytes for r in peak.by_stack if r.stack is None)
    else:
        assert found == int(expected[weight])


def test_memory_that_was_not_recorded_is_no_weight(tmp_path):
    with pytest.raises(ValueError, match="weight: live needs allocations, which were not recorded"):
        exported.zero_length().export(tmp_path / "x.collapsed", weight="live")


def read_callgrind(path):
    """Own and inclusive costs by function, as callgrind_annotate computes them, and calls."""
    own, inclusive, calls = (collections.defaultdict(lambda: [0, 0, 0]) for _ in range(3))
    function, callee, count = None, None, 0
    for line in path.read_text().split("\n"):
        if line.startswith("fn="):
            function = line[3:]
        elif line.startswith("cfn="):
            callee = line[4:]
        elif line.startswith("calls="):
            count = int(line[6:].split()[0])
        elif re.fullmatch(r"\d+( -?\d+)+", line):
            costs = list(map(int, line.split()[1:]))
            for at, cost in enumerate(costs):
                inclusive[function][at] += cost
                if callee is None:
                    own[function][at] += cost
            if callee is not None:
                calls[callee][0] += count
                callee = None
    return own, inclusive, calls


def test_callgrind_has_all_times(any_trace, tmp_path):
    own, inclusive, _ = read_callgrind(export(any_trace, tmp_path, "callgrind"))
    expected = sums_of(any_trace)

    def spelt(name):
        name = as_collapsed(name).replace("\\x3b", ";")
        return f" {name}" if name.startswith("(1") else name

    assert {n: c[0] for n, c in own.items() if c[0]} == {
        spelt(n): v for n, v in expected.own.items() if v
    }
    assert {n: c[0] for n, c in inclusive.items() if c[0]} == {
        spelt(n): v for n, v in expected.total.items() if v
    }


def test_callgrind_annotate_reads_it(nasty, tmp_path):
    if shutil.which("callgrind_annotate") is None:
        pytest.skip("valgrind's callgrind_annotate is not installed")
    path = export(nasty, tmp_path, "callgrind")

    said = subprocess.run(
        ["callgrind_annotate", "--threshold=100", "--inclusive=yes", path],
        capture_output=True, text=True, check=True, errors="replace",
    ).stdout  # fmt: skip

    expected = sums_of(nasty)
    total = re.search(r"^\s*([\d,]+).*PROGRAM TOTALS", said, re.MULTILINE)
    assert int(total[1].replace(",", "")) == sum(expected.own.values())
    name = next(n for n in names_of(nasty) if n.endswith("nasty_work.<locals>.fib"))
    row = re.search(rf"^\s*([\d,]+) .*{re.escape(name)}( |$)", said, re.MULTILINE)
    assert int(row[1].replace(",", "")) == expected.total[name]


def test_callgrind_has_bytes(nasty, tmp_path):
    own, _, _ = read_callgrind(export(nasty, tmp_path, "callgrind"))

    assert sum(c[1] for c in own.values()) == int(nasty.calls["allocated_self"].sum())
    assert sum(c[2] for c in own.values()) == int(nasty.calls["blocks_self"].sum())


def test_pstats_has_calls_and_times(any_trace, tmp_path):
    path = export(any_trace, tmp_path, "pstats")
    if not len(any_trace.calls):
        assert marshal.loads(path.read_bytes()) == {}  # pstats takes no file without functions
        return
    stats = pstats.Stats(str(path))

    calls, own, total, recursive = (collections.Counter() for _ in range(4))
    for (_, _, name), (primitive, count, own_s, total_s, _) in stats.stats.items():
        calls[name] += count
        recursive[name] += count - primitive
        own[name] += round(own_s * 1e9)
        total[name] += round(total_s * 1e9)
    functions = any_trace.functions
    expected = collections.Counter()
    expected_own = collections.Counter()
    for row, shown in enumerate(names_of(any_trace)):
        name = shown if functions["file"][row] is None else text(functions["name"][row])
        expected[name] += int(functions["calls"][row] + functions["resumes"][row])
        expected_own[name] += int(functions["self"][row])
    assert +calls == +expected
    assert sum(recursive.values()) == int(functions["recursive"].sum())
    if any_trace.duration < 1 << 50:  # seconds in a double
        assert {n: v for n, v in own.items() if v} == {n: v for n, v in expected_own.items() if v}
    stats.stream = io.StringIO()
    stats.sort_stats("tottime").print_stats()
    stats.print_callers()


def test_pstats_agrees_with_cprofile_on_callers(tmp_path):
    import cProfile

    def leaf():
        pass

    def one():
        leaf()
        leaf()

    def two(n):
        leaf()
        if n:
            two(n - 1)

    def run():
        one()
        two(3)

    profile = cProfile.Profile()
    profile.runcall(run)
    with eventprof.record(memory=False, c_calls=False) as rec:
        run()
    path = export(rec.trace, tmp_path, "pstats")

    def callers(stats):
        names = {leaf.__name__, one.__name__, two.__name__}
        return {
            (caller[2].split(".")[-1], callee[2].split(".")[-1]): counts[:2]
            for callee, (_, _, _, _, of) in stats.stats.items()
            if callee[2].split(".")[-1] in names
            for caller, counts in of.items()
        }

    found, expected = callers(pstats.Stats(str(path))), callers(pstats.Stats(profile))
    assert found == expected


def read_pprof(path):
    """Samples of a profile: stacks of names, leaf first, and values by type."""
    from eventprof.importing.perfetto import fields

    whole = collections.defaultdict(list)
    for field, value in fields(gzip.decompress(path.read_bytes())):
        whole[field].append(value)
    strings = [value.decode() for value in whole[6]]
    assert strings[0] == ""

    def numbers(data):
        found = []
        at = shift = value = 0
        for byte in data:
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                found.append(value)
                value = shift = 0
            at += 1
        return found

    functions, locations = {}, {}
    for message in whole[5]:
        known = dict(fields(message))
        assert known[1] > 0
        functions[known[1]] = strings[known[2]]
    for message in whole[4]:
        known = dict(fields(message))
        locations[known[1]] = functions[dict(fields(known[4]))[1]]
    types = [strings[dict(fields(message))[1]] for message in whole[1]]
    samples = []
    for message in whole[2]:
        known = dict(fields(message))
        stack = [locations[number] for number in numbers(known[1])]
        samples.append((stack, dict(zip(types, numbers(known[2]), strict=True))))
    return samples


def test_pprof_has_all_times(any_trace, tmp_path):
    samples = read_pprof(export(any_trace, tmp_path, "pprof"))
    expected = sums_of(any_trace)

    own, total = collections.Counter(), collections.Counter()
    calls = 0
    for stack, values in samples:
        own[stack[0]] += values["wall"]
        calls += values["calls"]
        for name in set(stack):
            total[name] += values["wall"]

    assert +own == +expected.own
    assert +total == +expected.total
    functions = any_trace.functions
    assert calls == int(functions["calls"].sum() + functions["resumes"].sum())


def test_pprof_has_bytes(nasty, tmp_path):
    samples = read_pprof(export(nasty, tmp_path, "pprof"))

    blocks = nasty.allocations[~nasty.allocations["call"].mask]
    assert sum(v["allocated"] for _, v in samples) == int(blocks["size"].sum())
    assert sum(v["blocks"] for _, v in samples) == len(blocks)
    assert sum(v["live"] for _, v in samples) == int(blocks["size"][blocks["end"].mask].sum())


@pytest.mark.slow  # Go builds pprof when it is first asked for
def test_go_tool_pprof_reads_it(nasty, tmp_path):
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if go is None:
        pytest.skip("Go is not installed")
    path = export(nasty, tmp_path, "pprof")

    try:
        done = subprocess.run(
            [go, "tool", "pprof", "-top", "-nodefraction=0", "-unit=ns", "-sample_index=wall", path],
            capture_output=True, text=True, timeout=200,
            env={**os.environ, "GOTOOLCHAIN": "local", "GOPROXY": "off"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        pytest.skip("Go builds its pprof when first asked for it, and was not done in 200 s")
    if done.returncode != 0 and "no such tool" in done.stderr:
        pytest.skip("this Go has no pprof")

    assert done.returncode == 0, done.stderr
    expected = sums_of(nasty)
    name = next(n for n in names_of(nasty) if n.endswith("nasty_work.<locals>.fib"))
    row = re.search(
        rf"^\s*(\d+)ns .*\s(\d+)ns\s+\S+\s+{re.escape(name)}$", done.stdout, re.MULTILINE
    )
    assert row is not None, done.stdout
    assert int(row[1]) == expected.own[name]
    assert int(row[2]) == expected.total[name]


# ---- Tables --------------------------------------------------------------------------------------


def python_rows(table):
    return [tuple(text(x) if isinstance(x, str) else x for x in row) for row in table]


@pytest.mark.parametrize("name", TABLES)
def test_jsonl_has_every_row(nasty, tmp_path, name):
    path = export(nasty, tmp_path, "jsonl", table=name)
    table = getattr(nasty, name)

    rows = [json.loads(line) for line in path.read_bytes().splitlines()]

    assert [tuple(row.values()) for row in rows] == [
        tuple(None if x != x else x for x in row) for row in python_rows(table)
    ]
    assert all(tuple(row) == table.columns for row in rows)


def test_csv_has_every_row_and_no_formula(nasty, tmp_path):
    path = export(nasty, tmp_path, "csv", table="functions")
    functions = nasty.functions

    with open(path, newline="", encoding="utf-8") as file:
        heading, *rows = csv.reader(file)

    assert tuple(heading) == functions.columns
    assert len(rows) == len(functions)
    at = heading.index("name")
    names = {row[at] for row in rows}
    assert {"'=1+1", "'@cmd", 'quote"d', "com,ma", "new\\nline", "\\x1b[31mred"} <= names
    for cell in (cell for row in rows for cell in row):
        assert cell.isprintable()
        assert not cell.startswith(("=", "+", "@")) and not re.match(r"-\D", cell)
    assert [row[heading.index("calls")] for row in rows] == [str(n) for n in functions["calls"]]
    files = [row[heading.index("line")] for row in rows]
    assert files == ["" if x is None else str(x) for x in functions._column("line").items()]


@pytest.mark.parametrize("word", ["csv", "jsonl"])
def test_text_tables_of_any_trace(any_trace, tmp_path, word):
    for table in ("calls", "events", "threads"):
        path = export(any_trace, tmp_path, word, table=table)
        lines = path.read_bytes().count(b"\n")
        assert lines == len(getattr(any_trace, table)) + (word == "csv")


def test_sqlite_has_every_table(any_trace, tmp_path):
    path = export(any_trace, tmp_path, "sqlite")

    base = sqlite3.connect(path)
    for name in TABLES:
        table = getattr(any_trace, name)
        rows = base.execute(f'select * from "{name}" order by "row"').fetchall()
        assert [row[0] for row in rows] == list(range(len(table)))
        assert [row[1:] for row in rows] == [
            tuple(None if x != x else x for x in row) for row in python_rows(table)
        ]
    joined = base.execute(
        "select f.name, count(*) from calls c join functions f on c.function = f.row group by f.row"
    ).fetchall()
    assert sum(count for _, count in joined) == len(any_trace.calls)
    assert (
        json.loads(base.execute("select value from metadata where key='duration_ns'").fetchone()[0])
        == any_trace.duration
    )
    base.close()


def test_duckdb_has_every_table(nasty, tmp_path):
    require("duckdb")
    import duckdb

    path = export(nasty, tmp_path, "duckdb")

    with duckdb.connect(str(path), read_only=True) as base:
        for name in TABLES:
            assert base.sql(f'select count(*) from "{name}"').fetchall()[0][0] == len(
                getattr(nasty, name)
            )
        names = base.sql("select name from functions order by row").fetchall()
        assert [text(n) for (n,) in names] == [text(n) for n in nasty.functions["name"]]


def test_parquet_is_read_by_duckdb_and_polars(nasty, tmp_path):
    require("parquet")
    path = export(nasty, tmp_path, "parquet", table="calls")
    calls = nasty.calls
    expected = (len(calls), int(calls["duration"].sum()), int(calls["allocated"].sum()))

    duckdb = pytest.importorskip("duckdb")
    polars = pytest.importorskip("polars")
    query = f"select count(*), sum(duration), sum(allocated) from '{path}'"
    assert duckdb.sql(query).fetchall() == [expected]
    frame = polars.read_parquet(path)
    assert (len(frame), frame["duration"].sum(), frame["allocated"].sum()) == expected
    assert frame["name"].cast(str).to_list() == [text(n) for n in calls["name"]]


def test_arrow_is_read_by_pyarrow(nasty, tmp_path):
    require("arrow")
    from pyarrow import ipc

    path = export(nasty, tmp_path, "arrow", table="events")

    with ipc.open_file(path) as reader:
        table = reader.read_all()
    assert table.equals(nasty.events.to_arrow())


def test_otlp_has_a_span_a_call(nasty, tmp_path):
    require("otlp")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = ExportTraceServiceRequest()
    request.ParseFromString(export(nasty, tmp_path, "otlp").read_bytes())

    spans = [s for r in request.resource_spans for scope in r.scope_spans for s in scope.spans]
    calls, names = nasty.calls, names_of(nasty)
    assert len(spans) == len(calls)
    start = nasty.metadata["start_ns"]
    by_id = {span.span_id: row for row, span in enumerate(spans)}
    for row, (span, function, begin, duration, parent) in enumerate(
        zip(spans, calls["function"].tolist(), calls["start"].tolist(), calls["duration"].tolist(),
            calls._column("parent").items(), strict=True)
    ):  # fmt: skip
        assert span.name == names[function]
        assert span.start_time_unix_nano == start + begin
        assert span.end_time_unix_nano == start + begin + duration
        assert by_id.get(span.parent_span_id) == parent
        assert by_id[span.span_id] == row
    allocated = sum(
        a.value.int_value for s in spans for a in s.attributes if a.key == "eventprof.allocated"
    )
    assert allocated == int(calls["allocated_self"].sum())


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
            trace.export(path)
    finally:
        module.write = whole
    assert path.read_bytes() == b"what was there"
    assert os.listdir(tmp_path) == [path.name]

    trace.export(path)

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


def test_no_space_leaves_nothing_behind(nasty, tmp_path):
    path = tmp_path / "nowhere" / "x.json"

    with pytest.raises(FileNotFoundError) as found:
        nasty.export(path)

    assert found.value.filename == str(path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"path": "x.txt"}, "x.txt: which format"),
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
def test_what_cannot_be_is_said(tmp_path, monkeypatch, options, said):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ValueError, match=re.escape(said)):
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

    path = saved.with_suffix(".speedscope.json")
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
    ("arguments", "said"),
    [
        ([], "which format? --format says it"),
        (["-o", "x.what"], "which format? --format says it"),
        (["--format", "perfeto"], "did you mean 'perfetto'"),
        (["-o", "x.json", "--between", "1", "soon"], "--between: a time is a number and a unit"),
        (["-o", "x.json", "--table", "calls"], "table: chrome has none"),
        (["-o", "x.json", "--thread", "none"], "there is no such thread"),
    ],
)
def test_the_verb_says_what_is_wrong(saved, capsys, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    try:
        status = main(["export", str(saved), *arguments])
    except SystemExit as ended:
        status = ended.code

    assert status == 2
    assert said in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["run.epr"]
