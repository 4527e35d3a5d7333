"""Exports are the same whatever the size of their batches, and wherever their columns lie."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest
from amounts import pairs
from exporting import require

import eventprof
from eventprof import _core
from eventprof.export import FORMATS, TABLES, _lists, _rows, _view, arrow, parquet, sqlite
from eventprof.tables import event_rows

#: Formats that number functions and places in the order in which batches have them.
NUMBERED = {"perfetto", "callgrind", "pprof", "pstats"}

#: Each other format, and each table of the formats that take one.
WHAT = [
    (word, table)
    for word, known in FORMATS.items()
    if word not in NUMBERED
    for table in (TABLES if known.takes == "table" else (None,))
]


def content(path, word):
    """Return what a file says: of formats that other libraries write, the rows."""
    if word == "sqlite":
        with contextlib.closing(sqlite3.connect(path)) as base:
            return list(base.iterdump())
    if word == "duckdb":
        import duckdb

        with contextlib.closing(duckdb.connect(str(path), read_only=True)) as base:
            names = [row[0] for row in base.execute("show tables").fetchall()]
            return {
                name: repr(
                    [base.execute(f'{verb} "{name}"').fetchall() for verb in ("describe", "from")]
                )
                for name in names
            }
    if word == "parquet":
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(path)
        return repr((table.schema, table.to_pylist()))
    if word == "arrow":
        import pyarrow.ipc

        with pyarrow.ipc.open_file(path) as file:
            table = file.read_all()
        return repr((table.schema, table.to_pylist()))
    return path.read_bytes()


def rows_at_a_time(monkeypatch, rows):
    for module in (_view, _lists, _rows, sqlite, event_rows):
        monkeypatch.setattr(module, "AT_A_TIME", rows)
    for module in (arrow, parquet):
        monkeypatch.setattr(module, "_ROWS", rows)


@pytest.mark.parametrize(("what", "calls"), pairs(WHAT, ["all", "chosen", "cut"]), ids=str)
def test_any_batch_gives_the_same(nasty, tmp_path, monkeypatch, what, calls):
    word, table = what
    require(word)
    filters = {"chosen": {"own": True}, "cut": {"functions": ["*"], "between": (1, 1 << 40)}}
    given = dict(filters.get(calls, {}))
    if table is not None:
        given["table"] = table
    found = []
    for rows in (1 << 16, 7):
        rows_at_a_time(monkeypatch, rows)
        path = tmp_path / f"{rows}.x"
        nasty.export(path, word, **given)
        found.append(content(path, word))

    assert found[0] == found[1]


@pytest.fixture(scope="module")
def long_file(tmp_path_factory):
    """A file whose columns have 2 MiB and more, so that they may lie in files."""
    path = tmp_path_factory.mktemp("long") / "long.epr"

    def leaf(number):
        return [number]

    with eventprof.record(output=path, numpy=False, buffer="256 MiB"):
        for number in range(70_000):
            len(leaf(number))
    return path


@pytest.fixture
def in_files():
    before = _core.columns_in_memory(0)
    yield
    _core.columns_in_memory(before)


@pytest.mark.thorough
@pytest.mark.parametrize("word", [word for word in ("chrome", "perfetto", "firefox", "speedscope",
                                                     "csv", "jsonl", "arrow") if word in FORMATS])  # fmt: skip
def test_columns_in_files_give_the_same(long_file, tmp_path, in_files, word):
    require(word)
    eventprof.open(long_file).export(tmp_path / "in_files", word)
    trace = eventprof.open(long_file)
    len(trace.calls)
    lies_there = _core.give_back()
    _core.columns_in_memory(1 << 40)
    eventprof.open(long_file).export(tmp_path / "in_memory", word)

    assert content(tmp_path / "in_files", word) == content(tmp_path / "in_memory", word)
    if lies_there == 0:
        pytest.skip("there is no folder on a disk: columns are memory all the same")
