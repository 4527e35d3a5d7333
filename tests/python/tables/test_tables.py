"""Tables: columns, rows, nulls, parts, and what is asked of them."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest
from tables_program import TABLES, gen, leaf, lists, record

import eventprof
from eventprof import Table, _core, tables
from eventprof import trace as traces
from eventprof.tables.column import Column, Words, code_type

CONTRACT = {
    "events": "time event thread function name line address size domain depth caller caller_line",
    "calls": "start duration self thread function name file line kind depth parent caller_line flags",
    "allocations": "address size domain thread start end call function name line freed_in flags",
    "functions": "name module file line kind calls resumes recursive total self mean min max p50 "
    "p95 p99 allocated freed net blocks at_peak",
    "threads": "name native_id first last recorded lost",
}


# ---- The contract --------------------------------------------------------------------------------


def test_the_list_of_tables_has_each():
    getters = {
        name: getattr(member, "fget", getattr(member, "func", None))
        for kind in eventprof.Trace.__mro__
        for name, member in vars(kind).items()
    }
    found = [
        name
        for name, getter in getters.items()
        if getter is not None and getter.__annotations__.get("return") in ("Table", "MemoryTable")
    ]

    assert sorted(found) == sorted(tables.TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_columns_are_those_of_the_contract(any_trace, name):
    table = getattr(any_trace, name)

    assert set(CONTRACT[name].split()) <= set(table.columns)
    assert all(len(table[column]) == len(table) for column in table.columns)
    assert table.describe()["meaning"].tolist().count(None) == 0


@pytest.mark.parametrize(
    ("name", "flags"),
    [("calls", traces.CALL_FLAGS), ("allocations", traces.ALLOCATION_FLAGS)],
)
def test_the_meaning_of_flags_names_every_bit(any_trace, name, flags):
    meanings = {row.column: row.meaning for row in getattr(any_trace, name).describe()}

    assert meanings["flags"] == ", ".join(f"{bit} {word}" for word, bit in flags.items())


@pytest.mark.parametrize("name", [*TABLES, "lines"])
def test_the_columns_of_a_table_are_those_of_columns_def(any_trace, name):
    described = [row[1:] for row in eventprof._core.column_table() if row[0] == name]

    rows = list(getattr(any_trace, name).describe())

    assert [row.column for row in rows] == [column[0] for column in described]
    for row, (_, kind, reading, null, null_if, unit, meaning, *_) in zip(
        rows, described, strict=True
    ):
        assert row.type == (kind if reading in ("number", "address") else "text")
        assert (row.unit or "", row.meaning) == (unit, meaning)
        assert row.nullable == (null != "never") == bool(null_if)


@pytest.mark.parametrize("name", TABLES)
def test_types_do_not_depend_on_the_run(trace, empty, name):
    full, nothing = getattr(trace, name), getattr(empty, name)
    for column in full.columns:
        assert type(full[column]) is type(nothing[column]), column
        if not full._column(column).words:
            assert full[column].dtype == nothing[column].dtype, column


def test_events_are_right(trace):
    events = trace.events
    plain = lists(events)
    rows = [i for i, name in enumerate(plain["name"]) if name == "leaf"]
    calls = [i for i in rows if plain["event"][i] == "call"]
    first_line = leaf.__code__.co_firstlineno

    assert (np.diff(events["time"]) >= 0).all()
    assert len(calls) == 1237
    assert {plain["line"][i] for i in calls} == {first_line}
    assert {plain["address"][i] for i in calls} == {None}
    assert {trace.functions["name"][plain["caller"][i]] for i in calls} == {"gen"}
    assert {plain["caller_line"][i] for i in calls} == {gen.__code__.co_firstlineno + 2}
    mallocs = [i for i in rows if plain["event"][i] == "malloc"]
    assert mallocs
    assert {plain["line"][i] for i in mallocs} == {first_line + 1}
    assert all(plain["size"][i] > 0 and plain["address"][i] for i in mallocs)
    assert {plain["caller"][i] for i in mallocs} == {None}


def test_unknown_is_null_and_never_a_number(trace):
    events = trace.events
    of_calls = np.isin(events["event"], ["call", "return", "c_call", "c_return"])
    for name in ("address", "size"):
        assert events[name].mask[of_calls].all()
    assert (events["size"].compressed() >= 0).all()
    assert (events["line"].compressed() > 0).all()
    assert (events["depth"].compressed() >= 0).all()
    c = trace.functions["kind"] != "python"
    assert trace.functions["line"].mask[c].all()
    assert set(trace.functions["file"][c]) == {None}


def test_an_empty_trace(empty):
    assert len(empty.events) == 0
    assert empty.events["time"].dtype == np.int64
    assert empty.events["size"].dtype == np.int64
    assert empty.events["address"].dtype == np.uint64
    assert list(empty.events) == []
    assert repr(empty.events).startswith("events: 0 rows, 15 columns: time, event")
    assert "<table>" in empty.events._repr_html_()


# ---- Parts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rows", [slice(None), slice(10, 20), slice(-5, None), slice(None, None, -3), slice(9, 2)]
)
def test_slices(trace, rows):
    events = trace.events
    part = events[rows]
    whole = lists(events)
    assert lists(part) == {name: values[rows] for name, values in whole.items()}
    assert len(part) == len(whole["time"][rows])


def test_slices_share_memory(trace):
    part = trace.events[10:20]
    assert np.shares_memory(part["time"], trace.events["time"])
    assert np.shares_memory(part.codes("name"), trace.events.codes("name"))


def test_masks_and_row_numbers(trace):
    events = trace.events
    mallocs = events[events["event"] == "malloc"]
    assert set(mallocs["event"]) == {"malloc"}
    large = events[events["size"] > 40]  # a masked array: unknown is not more than 40
    assert 0 < len(large) < len(events)
    assert large["size"].min() > 40
    some = events[[3, -1, 3]]
    assert [row.time for row in some] == [events[i].time for i in (3, -1, 3)]
    assert len(events[np.empty(0, int)]) == len(events[[]]) == 0
    assert events[["time", "name"]].columns == ("time", "name")


def test_some_rows_for_pandas(trace):
    pytest.importorskip("pandas")
    events = trace.events
    mallocs = events[events["event"] == "malloc"]
    assert mallocs[:1].to_pandas()["event"].tolist() == ["malloc"]


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        ("tme", KeyError, "did you mean 'time'"),
        (10**9, IndexError, "no row 1000000000"),
        (1.5, TypeError, "takes a column's name"),
        (None, TypeError, "takes a column's name"),
        (np.zeros(3, bool), IndexError, "mask of 3"),
        (np.array([10**9]), IndexError, "no row 1000000000"),
        (np.zeros((2, 2), int), TypeError, "one dimension"),
        (np.array([0.5]), TypeError, "row numbers"),
        (["time", "nme"], KeyError, "'nme'"),
    ],
)
def test_bad_keys(trace, key, error, message):
    with pytest.raises(error, match=message):
        trace.events[key]


def test_what_is_computed_is_kept_and_cannot_be_written(trace):
    events = trace.events
    assert trace.events is events
    assert events["time"] is events["time"]
    assert events["name"] is events["name"]
    for array in (events["time"], events["size"].data, events["name"], events.codes("name")):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[0]


def test_codes_and_categories(trace):
    events = trace.events
    words = np.array([*events.categories("name"), None], dtype=object)
    assert (words[events.codes("name")] == events["name"]).all()
    assert len(set(events.categories("name"))) == len(events.categories("name"))
    with pytest.raises(ValueError, match="not text"):
        events.codes("time")
    with pytest.raises(KeyError):
        events.categories("nothing")


@pytest.mark.parametrize("count", [0, 1, 126, 127, 128, 32766, 32767, 40000])
def test_codes_are_as_narrow_as_pandas_has_them(count):
    pd = pytest.importorskip("pandas")
    codes = np.arange(count, dtype=code_type(count))
    words = Words(lambda: [f"w{i}" for i in range(count)])
    table = Table("t", [Column("c", lambda: codes, words=words)], count)

    made = table.to_pandas()["c"]

    assert made.array._codes.dtype == code_type(count)
    assert count == 0 or np.shares_memory(made.array._codes, codes)
    assert pd.Categorical(["a"] * min(count, 1)).codes.dtype == np.int8


def test_surrogates(trace):
    pytest.importorskip("pandas")
    functions = trace.functions
    assert "a\udc80b" in set(functions["module"])
    assert "a file\udcff.py" in set(functions["file"])
    assert "a\\udc80b" in set(functions.to_pandas()["module"])
    assert "a\\udc80b" in repr(functions[functions["module"] == "a\udc80b"])
    functions._repr_html_().encode()


# ---- Tables of one's own -------------------------------------------------------------------------


def test_a_table_of_arrays():
    numbers = np.arange(5.0)
    table = Table.from_columns(
        "own",
        {"n": numbers, "m": np.ma.array([1, 2, 3, 4, 5], mask=[0, 1, 0, 0, 0]), "t": list("abcab")},
        units={"n": "s"},
    )
    assert np.shares_memory(table["n"], numbers)
    assert numbers.flags.writeable
    assert table.categories("t") == ("a", "b", "c")
    assert lists(table[1:3]) == {"n": [1.0, 2.0], "m": [None, 3], "t": ["b", "c"]}
    assert lists(table[[2, 1]])["m"] == [3, None]
    assert "m" in table
    with pytest.raises(ValueError, match="'b'"):
        Table.from_columns("t", {"a": [1, 2], "b": [1]})


def test_repr():
    table = Table.from_columns(
        "own",
        {
            "n": np.ma.array(np.arange(12_000), mask=np.arange(12_000) == 1),
            "text": ["x" * 50, None, "<b>", "new\nline"] * 3000,
            "f": np.linspace(0, 1, 12_000),
        },
        units={"n": "ns"},
    )
    lines = repr(table).splitlines()
    assert lines[0] == "own: 12,000 rows, 3 columns"
    assert lines[1].split() == ["n", "[ns]", "text", "f"]
    assert lines[3].split()[:3] == ["1", "-", "-"]
    assert lines[7] == "..."
    assert lines[-1].split()[:2] == ["11,999", "11,999"]
    assert "new\\nline" in lines[5]
    assert len(lines) == 13
    assert "&lt;b&gt;" in table._repr_html_()
    assert repr(Table.from_columns("t", {})) == "t: 0 rows, 0 columns: "


def test_a_missing_package_is_named(trace, monkeypatch):
    for module, extra, method in [
        ("pandas", "pandas", "to_pandas"),
        ("polars", "polars", "to_polars"),
        ("pyarrow", "arrow", "to_arrow"),
    ]:
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ModuleNotFoundError, match=rf"{method}.*eventprof\[{extra}\]"):
            getattr(trace.events, method)()


def test_tables_from_several_threads():
    trace = record(500)
    results = []

    def ask():
        results.append(lists(trace.events))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(results) == 8
    assert all(result == results[0] for result in results)


def test_gather():
    table = np.array([5, 6, -1], dtype=np.int16)
    assert _core.gather(table, np.array([0, -1, 1], dtype=np.int32)).tolist() == [5, -1, 6]
    assert _core.gather(table, np.array([1, 0], dtype=np.uint8)).tolist() == [6, 5]
    for indices in ([2], [-2], [99]):
        with pytest.raises(IndexError):
            _core.gather(table, np.array(indices, dtype=np.int32))
    with pytest.raises(TypeError):
        _core.gather(table, np.array([0]))


def test_questions_name_the_argument_that_is_wrong():
    with eventprof.record() as rec:
        pass
    trace = rec.trace

    for question in (trace.leaks, trace.temporary):
        with pytest.raises(TypeError, match="by must be 'site', 'function' or 'stack', not 3"):
            question(3)
    with pytest.raises(TypeError, match="takes another trace, not 3"):
        trace.diff(3)
    with pytest.raises(
        KeyError, match=r"has no column 'tine'; did you mean 'time'\? \(it has: time"
    ):
        trace.events["tine"]


def test_what_allocator_events_alone_have_is_null_without_them():
    with eventprof.record(memory=False) as recorder:
        leaf(1)

    events = recorder.trace.events
    structured = events.to_numpy()

    assert len(events) > 0
    for name in ("address", "size", "domain"):
        assert events._column(name).nulls().all()
        assert events[2:4]._column(name).nulls().all()
    assert structured.mask["size"].all()
    assert structured.data["size"].tolist() == [-1] * len(events)


def test_tables_do_not_depend_on_what_was_asked_for_first(tmp_path):
    with eventprof.record() as recorder:
        kept = [leaf(i) for i in range(500)]
        kept.clear()
    recorder.trace.save(tmp_path / "run.epr")

    blocks_first = eventprof.open(tmp_path / "run.epr")
    calls_first = eventprof.open(tmp_path / "run.epr")
    names = ("memory", "allocations", "calls", "events")
    found = {name: getattr(blocks_first, name) for name in names}
    expected = {name: getattr(calls_first, name) for name in reversed(names)}

    for table, other in ((found[name], expected[name]) for name in names):
        assert table.columns == other.columns and len(table) == len(other) > 0
        for name in table.columns:
            values, others = table._column(name).values(), other._column(name).values()
            assert np.array_equal(values, others, equal_nan=values.dtype.kind == "f"), name


# ---- A comparison that compares nothing ----------------------------------------------------------


def some_functions():
    with eventprof.record() as rec:
        sorted([3, 1, 2])
        len("text")
    return rec.trace.functions


def test_a_comparison_of_the_tables_name_is_no_row():
    functions = some_functions()

    for key in (functions.name == "sorted", True, np.bool_(False)):
        with pytest.raises(TypeError, match=r"table\['name'\] == 'sorted'"):
            functions[key]


@pytest.mark.parametrize("make", [list, tuple, np.array, "pandas"])
def test_a_mask_of_any_sort_gives_its_rows(make):
    functions = some_functions()
    mask = functions["name"] == "sorted"
    if make == "pandas":
        make = pytest.importorskip("pandas").Series

    assert functions[make(mask)]["name"].tolist() == ["sorted"]


def test_a_column_is_an_attribute_unless_the_table_has_another_of_that_name():
    functions = some_functions()

    assert functions.calls is functions["calls"] or (functions.calls == functions["calls"]).all()
    assert "calls" in dir(functions) and "to_pandas" in dir(functions)
    assert isinstance(functions.name, str)  # the table's own
    assert not isinstance(functions["name"], str)
    for table in (functions, functions[:1], eventprof.Table.from_columns("t", {"sum": [1, 2]})):
        for name in set(dir(table)) & set(table.columns):
            attribute = getattr(table, name)
            assert callable(attribute) or isinstance(attribute, (str, tuple, np.ndarray))


def test_an_attribute_that_there_is_not_is_an_error_that_says_which_there_is():
    functions = some_functions()

    with pytest.raises(AttributeError, match="did you mean 'columns'"):
        functions.colums
    assert not hasattr(functions, "__array__")


# ---- Loss in answers -----------------------------------------------------------------------------


def test_every_answer_that_loss_may_falsify_says_so():
    def work():
        return [bytearray(10) for _ in range(3)]

    with eventprof.record(buffer=1 << 20) as rec:
        for _ in range(40_000):
            work()
    trace = rec.trace
    assert trace.loss

    answers = {
        "peak": trace.peak(), "at": trace.at(trace.duration), "between": trace.between(0, 10),
        "during": trace.during(work), "leaks": trace.leaks(), "temporary": trace.temporary(),
        "callers": trace.callers(work), "callees": trace.callees(work), "diff": trace.diff(trace),
    }  # fmt: skip
    for name, answer in answers.items():
        assert "with loss" in repr(answer).partition("\n")[0], name
    with eventprof.record() as rec:
        work()
    whole = rec.trace
    for answer in (whole.peak(), whole.at(0), whole.between(0, 1), whole.during(work)):
        assert answer.loss == ""
        assert "with loss" not in repr(answer)


# ---- Names of before, and what helps at a prompt -------------------------------------------------


def calls_of_a_program():
    with eventprof.record(memory=False) as rec:
        sorted([3, 1, 2])
    return rec.trace


def test_calls_say_where_their_function_is_defined():
    def defined_here():
        return sorted([2, 1])

    with eventprof.record(memory=False) as rec:
        defined_here()

    calls = rec.trace.calls
    places = {row.name.rpartition(".")[2]: (row.file, row.line) for row in calls}
    assert places["defined_here"] == (__file__, defined_here.__code__.co_firstlineno)
    assert places["sorted"] == (None, None)


def test_columns_are_completed_at_a_prompt():
    table = calls_of_a_program().calls[["name", "line"]]

    assert table._ipython_key_completions_() == ["name", "line"]


@pytest.mark.parametrize("ns", [1, 1500, 10**6])
def test_times_are_numbers_or_text(ns):
    trace = calls_of_a_program()
    trace = eventprof.merge([trace])
    texts = {1: "1 ns", 1500: "1.5 us", 10**6: "1 ms"}
    inside = ns <= trace.duration

    for time in (ns, np.int64(ns), np.uint32(ns), texts[ns]):
        if inside:
            assert trace.at(time).time == ns
            assert trace.between(0, time).end == ns
        else:
            with pytest.raises(ValueError, match="outside of the trace"):
                trace.at(time)


@pytest.mark.parametrize("time", ["soon", "3", 1.5, True, None])
def test_what_is_no_time_is_refused(time):
    with pytest.raises((TypeError, ValueError), match="time must be"):
        calls_of_a_program().at(time)
