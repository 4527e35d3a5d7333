"""Tables as others have them: the same numbers, nulls and texts in NumPy, pandas, Polars, pyarrow, DuckDB, pickles."""

from __future__ import annotations

import asyncio
import ctypes
import functools
import gc
import pickle
import sys
import threading
import weakref

import children
import numpy as np
import pytest
from tables_program import TABLES, escaped, leaf, lists

import eventprof
from eventprof import Table, _core
from eventprof.tables.column import Column, Words

# ---- As something else ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLES)
def test_rows(any_trace, name):
    table = getattr(any_trace, name)
    plain = lists(table)
    assert [tuple(row) for row in table] == list(zip(*plain.values(), strict=True))


def test_pandas_has_tasks_as_categories_and_counts():
    pytest.importorskip("pandas")

    async def inner():
        await asyncio.sleep(0)

    async def main():
        await asyncio.create_task(inner(), name="one")

    with eventprof.record(memory=False) as rec:
        asyncio.run(main())
    frame = rec.trace.calls[["name", "task"]].to_pandas()
    assert str(frame.dtypes["task"]) == "category"
    assert set(frame[frame.name.str.endswith("inner")].task) == {"one"}

    with eventprof.count() as counting:
        leaf(1)
    frame = counting.functions.to_pandas()
    assert frame.loc[frame["name"] == "leaf", "calls"].tolist() == [1]


@pytest.mark.parametrize("name", TABLES)
def test_numpy(any_trace, name):
    table = getattr(any_trace, name)
    plain = lists(table)

    structured = table.to_numpy()

    assert structured.dtype.names == table.columns
    for column, values in plain.items():
        field = structured[column]
        mask = np.ma.getmaskarray(field)
        assert [
            None if m else v for v, m in zip(np.ma.getdata(field).tolist(), mask, strict=True)
        ] == values


@pytest.mark.parametrize("name", TABLES)
def test_pandas(any_trace, name):
    pd = pytest.importorskip("pandas")
    table = getattr(any_trace, name)
    plain = escaped(lists(table))

    frame = table.to_pandas()

    assert list(frame.columns) == list(table.columns)
    assert len(frame) == len(table)
    for column, values in plain.items():
        got = frame[column].astype(object)
        assert [None if pd.isna(v) else v for v in got] == values, column


@pytest.mark.parametrize("name", ["events", "calls", "allocations"])
def test_pandas_shares_memory(trace, name):
    pd = pytest.importorskip("pandas")
    table = getattr(trace, name)
    frame = table.to_pandas()
    copied = table.to_pandas(copy=True)
    for column in table.columns:
        values = table._column(column).values()
        array = frame[column].array
        if isinstance(frame[column].dtype, pd.CategoricalDtype):
            inner = array._codes
        else:
            inner = getattr(array, "_data", None)
            inner = inner if isinstance(inner, np.ndarray) else frame[column].to_numpy()
        assert np.shares_memory(inner, values), column
    assert not np.shares_memory(copied["start" if name != "events" else "time"].to_numpy(),
                                table["start" if name != "events" else "time"])  # fmt: skip


def test_a_dataframe_can_be_worked_with(trace):
    pytest.importorskip("pandas")
    frame = trace.events.to_pandas()
    frame["time"] = frame["time"] / 1e9
    by_name = frame.groupby("name", observed=True)["size"].sum()
    assert by_name["leaf"] > 0
    assert len(frame.sort_values("size").query("event == 'malloc'")) > 0
    assert frame.merge(trace.functions.to_pandas(), left_on="function", right_index=True).size > 0


@pytest.mark.parametrize("name", TABLES)
def test_polars(any_trace, name):
    pytest.importorskip("polars")
    table = getattr(any_trace, name)

    frame = table.to_polars()

    assert frame.columns == list(table.columns)
    assert frame.to_dict(as_series=False) == escaped(lists(table))


@pytest.mark.parametrize("name", TABLES)
def test_arrow(any_trace, name):
    pa = pytest.importorskip("pyarrow")
    table = getattr(any_trace, name)

    arrow = table.to_arrow()

    arrow.validate(full=True)
    assert arrow.column_names == list(table.columns)
    assert arrow.to_pydict() == escaped(lists(table))
    assert arrow.schema == pa.schema(table)
    for column in table.columns if len(table) else ():
        chunk = arrow.column(column).chunk(0)
        # Codes of a column with nulls are copied: other readers refuse our -1 in the null slots.
        is_copied = pa.types.is_dictionary(chunk.type) and chunk.null_count
        chunk = chunk.indices if pa.types.is_dictionary(chunk.type) else chunk
        given = table._column(column).values().ctypes.data
        assert is_copied or chunk.buffers()[1].address == given
        assert arrow.schema.field(column).nullable == table._column(column).nullable


@pytest.mark.parametrize("name", TABLES)
def test_duckdb(any_trace, name):
    duckdb = pytest.importorskip("duckdb")
    eventprof_table = getattr(any_trace, name)
    assert eventprof_table is not None  # DuckDB finds it by its name in the query

    rows = duckdb.sql("select * from eventprof_table").fetchall()

    assert rows == list(zip(*escaped(lists(eventprof_table)).values(), strict=True))


def test_sql_has_every_table_by_its_name():
    pytest.importorskip("duckdb")
    with eventprof.record(lines=True, gc=True, threads="current") as rec:
        for n in range(7):
            leaf(n)
        eventprof.mark("m")
        with eventprof.span("s"):
            eventprof.counter("c", 2.5)
        eventprof.flow("f", 1, "begin")
    trace = rec.trace
    tables = sorted(
        name
        for kind in type(trace).__mro__
        for name, member in vars(kind).items()
        if not name.startswith("_")
        and isinstance(member, (property, functools.cached_property))
        and isinstance(getattr(trace, name), Table)
    )
    assert {"lines", "resident", "events", "marks", "runtime"} <= set(tables)

    for name in tables:
        ((rows,),) = trace.sql(f"select count(*) from {name}").fetchall()
        assert rows == len(getattr(trace, name)), name
    query = "select hits from LINES where name = 'leaf'"
    assert trace.sql(query).fetchall() == [(7,)]
    query = "select count(*), sum(value) from counters, marks, spans, flows"
    assert trace.sql(query).fetchall() == [(1, 2.5)]


def test_sql_makes_no_table_that_is_not_named(trace, monkeypatch):
    pytest.importorskip("duckdb")
    made = []
    for name in ("lines", "calls", "gc"):
        monkeypatch.setattr(
            eventprof.Trace,
            name,
            property(lambda self, name=name: made.append(name)),
            raising=False,
        )

    assert trace.sql("select count(*) as deadlines from events").fetchall() == [
        (len(trace.events),)
    ]
    assert made == []


@pytest.mark.slow
def test_ten_million_rows():
    duckdb, pd = pytest.importorskip("duckdb"), pytest.importorskip("pandas")
    n = 10_000_000
    size = np.ma.array(np.arange(n), mask=np.arange(n) % 3 == 0)
    codes = (np.arange(n) % 300 - 1).astype(np.int16)
    words = Words(lambda: [f"w{i}" for i in range(299)])
    made = Table.from_columns("big", {"time": np.arange(n), "size": size, "a": np.arange(n)})
    columns = [*made._columns.values(), Column("name", lambda: codes, words=words)]
    big = Table("big", columns, n)
    total, nulls = int(size.sum()), int((codes < 0).sum())

    frame, polars, arrow = big.to_pandas(), big.to_polars(), big.to_arrow()
    query = "select count(*), sum(size), count(*) - count(name), count(distinct name) from big"

    assert len(frame) == polars.height == arrow.num_rows == n
    assert (frame["size"].sum(), int(pd.isna(frame["name"]).sum())) == (total, nulls)
    assert (polars["size"].sum(), polars["name"].null_count()) == (total, nulls)
    assert arrow["name"].null_count == nulls
    assert duckdb.sql(query).fetchall() == [(n, total, nulls, 299)]


# ---- Arrow's protocol ----------------------------------------------------------------------------


def capsule_name(capsule):
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    return name(capsule)


def test_capsules_and_fresh_streams(trace):
    pa = pytest.importorskip("pyarrow")
    table = trace.events
    assert capsule_name(table.__arrow_c_schema__()) == b"arrow_schema"
    assert capsule_name(table.__arrow_c_stream__()) == b"arrow_array_stream"
    one, two = (pa.RecordBatchReader.from_stream(table) for _ in range(2))
    assert one.read_all() == two.read_all()
    asked = pa.schema([("time", pa.int32())]).__arrow_c_schema__()
    assert table.__arrow_c_stream__(asked) is not None


def test_unread_capsules_give_everything_back():
    array = np.arange(12347)
    field = ("x", array, np.zeros(12347, bool), True, None)
    count = sys.getrefcount(array)

    capsules = [_core.arrow_stream([field], 12347), _core.arrow_stream([field] * 3, 12347)]
    assert sys.getrefcount(array) > count
    del capsules

    assert sys.getrefcount(array) == count


def test_a_column_outlives_table_and_batch_and_is_released_anywhere():
    pa = pytest.importorskip("pyarrow")
    table = Table.from_columns("t", {"a": np.arange(12347), "b": ["x", None] * 6173 + ["y"]})
    values = table._column("a").values()
    gone = weakref.ref(values)
    kept = [table.to_arrow().column("a"), table.to_arrow().column("b")]
    del table, values
    gc.collect()
    assert kept[0][12346].as_py() == 12346
    assert kept[1].to_pylist()[-2:] == [None, "y"]

    def release():
        kept.clear()

    thread = threading.Thread(target=release)
    thread.start()
    thread.join()
    pa.default_memory_pool().release_unused()
    gc.collect()

    assert gone() is None


def test_arrow_at_the_end_of_the_interpreter():
    pytest.importorskip("pyarrow")

    code = (
        "import builtins, eventprof, pyarrow, threading\n"
        "with eventprof.record() as rec: sorted('text')\n"
        "builtins.kept = [rec.trace.events.to_arrow(), rec.trace.events.__arrow_c_stream__()]\n"
        "pyarrow.kept = rec.trace.functions.to_arrow()\n"
    )
    done = children.program(code)
    assert done.stderr == ""


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 63, 64, 65, 511, 512, 513, 12347])
def test_validity_bits(rows):
    pytest.importorskip("pyarrow")
    random = np.random.default_rng(rows)
    values = np.ma.array(random.integers(-9, 9, rows), mask=random.random(rows) < 0.3)
    flags = np.ma.array(random.random(rows) < 0.5, mask=random.random(rows) < 0.5)
    table = Table.from_columns("t", {"v": values, "f": flags, "b": flags.data})

    arrow = table.to_arrow()

    arrow.validate(full=True)
    assert arrow.to_pydict() == lists(table)
    assert arrow["v"].null_count == values.mask.sum()
    assert arrow.slice(rows // 3).to_pydict() == lists(table[rows // 3 :])


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (("x", np.arange(3), None, True, None), "4 numbers"),
        (("x", np.arange(8)[::2], None, True, None), "contiguous"),
        (("x", np.array(["a"] * 4), None, True, None), "numbers of a type"),
        (("x", np.arange(4), np.zeros(3, bool), True, None), "nulls"),
        (("x", np.arange(4), None, True, (np.arange(4), b"")), "offsets"),
        ((7, np.arange(4), None, True, None), "str"),
    ],
)
def test_bad_arrow_fields(field, message):
    with pytest.raises((TypeError, ValueError), match=message):
        _core.arrow_stream([field], 4)


# ---- Pickles -------------------------------------------------------------------------------------


def same_tables(one, other):
    assert one.columns == other.columns
    for name in one.columns:
        assert one._column(name).items() == other._column(name).items()
    assert repr(one) == repr(other)
    assert list(one.describe()) == list(other.describe())


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_table_comes_out_of_a_pickle_as_it_went_in(protocol):
    with eventprof.record() as rec:
        [bytearray(12347) for _ in range(3)]
        sorted([3, 1, 2])
    trace = rec.trace

    for table in (trace.events, trace.calls, trace.allocations, trace.functions[:1], trace.threads):
        copied = pickle.loads(pickle.dumps(table, protocol))
        same_tables(copied, table)
        same_tables(copied[copied[copied.columns[0]] == 0], table[table[table.columns[0]] == 0])


def test_a_trace_comes_out_of_a_pickle_as_it_went_in():
    with eventprof.record() as rec:
        [bytearray(12347) for _ in range(3)]
    trace = rec.trace

    copied = pickle.loads(pickle.dumps(trace))

    for name in ("events", "calls", "allocations", "functions", "threads"):
        same_tables(getattr(copied, name), getattr(trace, name))
    assert copied.metadata == trace.metadata
    assert copied.loss.total == trace.loss.total
    assert copied.file is None
    same_tables(pickle.loads(pickle.dumps(trace.peak())).by_site, trace.peak().by_site)


def test_the_file_of_a_trace_is_known_out_of_a_pickle(tmp_path):
    with eventprof.record(output=tmp_path / "log.epr"):
        len("text")
    trace = eventprof.open(tmp_path / "log.epr")

    assert pickle.loads(pickle.dumps(trace)).file == trace.file


def test_a_running_recorder_is_no_part_of_a_pickle():
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(eventprof.record())
