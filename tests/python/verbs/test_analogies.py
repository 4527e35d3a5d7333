"""What people try who know other tools: it works, or the error names what to write."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import eventprof
from eventprof.tables.table import Table


def work():
    return sorted([3, 1, 2])


def names(trace):
    return trace.calls["name"].tolist()


# ---- Recording -------------------------------------------------------------------------------------


def test_record_decorates_without_parentheses():
    @eventprof.record
    def area(width, height):
        return sorted([width, height])

    assert area(3, height=2) == [2, 3]
    assert area.__name__ == "area"
    assert "sorted" in names(area.recorder.trace)


def test_count_decorates_without_parentheses():
    @eventprof.count
    def area(width, height):
        return sorted([width, height])

    assert area(3, height=2) == [2, 3]
    assert area.counter.get_call_counts()["sorted"] == 1


def test_record_without_parentheses_is_for_functions_alone():
    with pytest.raises(TypeError, match="decorates functions and methods, not the class Shape"):

        @eventprof.record
        class Shape:
            pass

    with pytest.raises(TypeError, match="not 'run.epr': write eventprof.record.*output='run.epr'"):
        eventprof.record("run.epr")
    with pytest.raises(TypeError, match="takes its arguments by name"):
        eventprof.count(True)


@pytest.mark.parametrize("backend", ["auto", "profile"])
def test_async_with_records_what_with_does(backend):
    async def plain(recorder):
        with recorder as given:
            work()
            await asyncio.sleep(0)
        return given

    async def asynchronous(recorder):
        async with recorder as given:
            work()
            await asyncio.sleep(0)
        return given

    traces = []
    for main in (plain, asynchronous):
        recorder = eventprof.record(memory=False, backend=backend)
        assert asyncio.run(main(recorder)) is recorder
        assert recorder.state == "stopped"
        assert recorder.trace.verify().ok
        traces.append(recorder.trace)

    # Calls that were open at the start have no recorded begin.
    inside = [trace.events[trace.events["name"] == "work"] for trace in traces]
    assert inside[0]["event"].tolist() == inside[1]["event"].tolist()
    assert inside[0]["event"].tolist()[0] == "call"
    for each in ("__aenter__", "__aexit__", "__enter__", "__exit__", "_done"):
        assert each not in names(traces[1])
    found = [{name for name in names(trace) if "<locals>" not in name} for trace in traces]
    assert found[0] == found[1]


def test_async_with_stops_at_an_exception_and_lets_it_through():
    recorder = eventprof.record()

    async def main():
        async with recorder:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        asyncio.run(main())
    assert recorder.state == "stopped"


def test_async_with_is_for_all_that_starts_and_stops(tmp_path):
    async def main():
        async with (
            eventprof.count() as counter,
            eventprof.flight_recorder(folder=tmp_path) as flight,
        ):
            assert counter.state == flight.recorder.state == "running"
        return counter, flight

    counter, flight = asyncio.run(main())

    assert counter.state == flight.recorder.state == "stopped"


# ---- Names that there are elsewhere ----------------------------------------------------------------


@pytest.fixture(scope="module")
def trace():
    with eventprof.record(memory=False) as recorder:
        work()
    return recorder.trace


@pytest.mark.parametrize(
    ("name", "written"),
    [("load", "eventprof.open"), ("Profiler", "eventprof.record"), ("start", "rec.start()")],
)
def test_the_module_names_what_to_write(name, written):
    with pytest.raises(AttributeError, match=f"has no attribute '{name}': write ") as error:
        getattr(eventprof, name)

    assert written in str(error.value)


@pytest.mark.parametrize("make", [eventprof.record, eventprof.count])
def test_recorders_and_counters_name_what_to_write(make):
    for name, written in (("enable", "start()"), ("disable", "stop()")):
        with pytest.raises(AttributeError, match=f"'{name}': write ") as error:
            getattr(make(), name)
        assert written in str(error.value)
    with pytest.raises(AttributeError, match="object has no attribute 'stopp'$"):
        _ = make().stopp


def test_a_recorder_names_what_its_trace_has():
    with pytest.raises(AttributeError, match=r"'save': write rec\.trace\.save\(path\)"):
        _ = eventprof.record().save


@pytest.mark.parametrize(
    ("name", "written"), [("view", "trace.show()"), ("to_pandas", "trace.calls.to_pandas()")]
)
def test_a_trace_names_what_to_write(trace, name, written):
    with pytest.raises(AttributeError, match=f"'{name}': write ") as error:
        getattr(trace, name)

    assert written in str(error.value)


def test_names_that_are_only_answered_are_not_listed(trace):
    assert not {"enable", "save"} & set(dir(eventprof.record()))
    assert "trace" not in dir(eventprof.count())
    assert "view" not in dir(trace)
    assert not hasattr(trace, "view")


# ---- Tables ----------------------------------------------------------------------------------------


@pytest.fixture
def table():
    grams = np.ma.MaskedArray([51, 0, 7, 51, 40], mask=[0, 1, 0, 0, 0])
    return Table.from_columns(
        "fruit", {"name": ["plum", "fig", None, "apple", "fig"], "grams": grams}
    )


def test_head_has_the_first_rows(table):
    assert table.head(2)["name"].tolist() == ["plum", "fig"]
    assert len(table.head()) == 5
    assert len(table.head(99)) == 5


def test_sort_puts_unknown_values_last_and_keeps_the_order_of_equal_ones(table):
    assert table.sort("grams")["name"].tolist() == [None, "fig", "plum", "apple", "fig"]
    assert table.sort("grams", descending=True)["name"].tolist() == [
        "plum", "apple", "fig", None, "fig",
    ]  # fmt: skip
    assert table.sort("name")["name"].tolist() == ["apple", "fig", "fig", "plum", None]
    assert table.sort("name", descending=True)["grams"].tolist() == [51, None, 40, 51, 7]
    assert table.head(0).sort("name")["name"].tolist() == []


def test_sort_of_a_column_that_there_is_not(table):
    with pytest.raises(KeyError, match="did you mean 'grams'"):
        table.sort("gram")


def test_a_sorted_table_can_be_compensated():
    with eventprof.record(memory=False, overhead=True) as recorder:
        work()
    calls = recorder.trace.calls

    assert len(calls.sort("duration").compensated()) == len(calls)


@pytest.mark.parametrize(
    ("name", "written"),
    [("sort_values", "table.sort("), ("tail", "table[-5:]"), ("iloc", "table[0]")],
)
def test_a_table_names_what_to_write(table, name, written):
    with pytest.raises(AttributeError, match=f"'{name}': write ") as error:
        getattr(table, name)

    assert written in str(error.value)
