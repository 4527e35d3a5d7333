"""Tables in formats of others, read by their readers: every row."""

from __future__ import annotations

import csv
import json
import re
import sqlite3

import pytest
from exported import names_of, text
from exporting import export, require

import eventprof
from eventprof.tables import TABLES


def python_rows(table):
    return [tuple(text(x) if isinstance(x, str) else x for x in row) for row in table]


@pytest.mark.parametrize("word", ["csv", "jsonl"])
@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"own": True},
        {"functions": "*raising"},
        {"threads": "MainThread"},
        {"between": (0, 10**6)},
    ],
    ids=str,
)
def test_events_of_a_file_are_written_while_they_are_read(nasty, tmp_path, word, chosen):
    nasty.save(tmp_path / "run.epr")
    trace = eventprof.open(tmp_path / "run.epr")

    of_file = export(trace, tmp_path, word, table="events", **chosen).read_bytes()

    assert not trace._core.has_columns()
    assert of_file == export(nasty, tmp_path, word, table="events", **chosen).read_bytes()


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
    column = heading.index("name")
    names = {row[column] for row in rows}
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


@pytest.mark.thorough
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


@pytest.mark.thorough
def test_duckdb_has_every_table(any_trace, tmp_path):
    require("duckdb")
    import duckdb

    path = export(any_trace, tmp_path, "duckdb")

    with duckdb.connect(str(path), read_only=True) as base:
        for name in TABLES:
            assert base.sql(f'select count(*) from "{name}"').fetchall()[0][0] == len(
                getattr(any_trace, name)
            )
        names = base.sql("select name from functions order by row").fetchall()
        assert [text(n) for (n,) in names] == [text(n) for n in any_trace.functions["name"]]


def test_parquet_is_read_by_duckdb_and_polars(any_trace, tmp_path):
    require("parquet")
    path = export(any_trace, tmp_path, "parquet", table="calls")
    calls = any_trace.calls
    expected = (len(calls), int(calls["duration"].sum()), int(calls["allocated"].sum()))

    duckdb = pytest.importorskip("duckdb")
    polars = pytest.importorskip("polars")
    query = (
        f"select count(*), coalesce(sum(duration), 0), coalesce(sum(allocated), 0) from '{path}'"
    )
    assert duckdb.sql(query).fetchall() == [expected]
    frame = polars.read_parquet(path)
    assert (len(frame), frame["duration"].sum(), frame["allocated"].sum()) == expected
    assert frame["name"].cast(str).to_list() == [text(n) for n in calls["name"]]


def test_arrow_is_read_by_pyarrow(any_trace, tmp_path):
    require("arrow")
    from pyarrow import ipc

    path = export(any_trace, tmp_path, "arrow", table="events")

    with ipc.open_file(path) as reader:
        table = reader.read_all()
    assert table.equals(any_trace.events.to_arrow())


def test_otlp_has_a_span_a_call(any_trace, tmp_path):
    require("otlp")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = ExportTraceServiceRequest()
    request.ParseFromString(export(any_trace, tmp_path, "otlp").read_bytes())

    spans = [s for r in request.resource_spans for scope in r.scope_spans for s in scope.spans]
    calls, names = any_trace.calls, names_of(any_trace)
    assert len(spans) == len(calls)
    start = any_trace.metadata["start_ns"]
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
