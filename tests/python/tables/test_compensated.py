"""Times without what recording cost: against a replay in plain Python, with costs that no machine has."""

from __future__ import annotations

import math
import random
import re

import nasty
import numpy as np
import pytest
import raw

import eventprof
from eventprof.recording import costs


def odd_costs(seed):
    draw = random.Random(seed)
    return {sort: draw.choice([0, 7, 0.5, 123.25]) for sort in costs.SORTS}


def replayed(trace, given):
    """Shares of durations and of self times, event by event."""
    parent = trace._core.calls("parent").tolist()
    in_self = [0.0] * len(parent)
    cost = {}
    for kind, word in raw.WORD.items():
        python = {"call": "call", "return": "call", "unwind": "call"}
        sort = {**python, "c_call": "c_call", "c_return": "c_call", "c_exception": "c_call"}
        sort |= {"yield": "resume", "resume": "resume", "throw": "resume"}
        sort |= {"malloc": "malloc", "calloc": "malloc", "free": "malloc"}
        cost[kind] = given[sort.get(word, "realloc")]
    call_kinds = trace._core.calls("kind").tolist()
    events = zip(
        trace._core.events("kind").tolist(), trace._core.events("call").tolist(), strict=True
    )
    for kind, call in events:
        if call < 0 or raw.WORD[kind] == "task":  # its cost is not measured
            continue
        if raw.DOMAIN[kind] is not None:
            in_self[call] += cost[kind]
            continue
        # An end costs as much as the opening of its call: they were measured together.
        half = cost[call_kinds[call]] / 2
        in_self[call] += half
        if parent[call] >= 0:
            in_self[parent[call]] += half
    in_all = list(in_self)
    for call in range(len(parent) - 1, -1, -1):  # parents come first
        if parent[call] >= 0:
            in_all[parent[call]] += in_all[call]
    return in_all, in_self


@pytest.fixture(scope="module")
def busy():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(costs, "_known", {})
        with eventprof.record(buffer="64 MiB", on_full="grow") as rec:
            nasty.run()
            sorted(range(50), key=lambda n: [n, bytearray(n)])
        return rec.trace


@pytest.mark.parametrize("seed", range(5))
def test_times_of_calls_lack_the_cost_of_every_event_inside(busy, seed):
    given = odd_costs(seed)

    table = busy.calls.compensated(given)

    in_all, in_self = replayed(busy, given)
    for name, share in (("duration", in_all), ("self", in_self)):
        raw_times = busy.calls[name].tolist()
        wanted = [max(0, t - s) for t, s in zip(raw_times, share, strict=True)]
        assert np.allclose(table[name], wanted, atol=0.51), name
        assert (table[name] >= 0).all()
    for name in set(busy.calls.columns) - {"duration", "self"}:
        assert table._column(name).items() == busy.calls._column(name).items()
    assert "without overhead" in repr(table)


def test_without_costs_nothing_changes(busy):
    nothing = dict.fromkeys(costs.SORTS, 0)
    for table in (busy.calls, busy.functions):
        for other in (table.compensated(nothing), table.compensated({})):
            assert len(other) == len(table)
            for name in table.columns:
                assert other._column(name).items() == table._column(name).items(), name


def test_functions_are_summed_up_from_compensated_calls(busy):
    given = {"call": 40, "c_call": 30, "malloc": 20}

    table = busy.functions.compensated(given)

    calls = busy.calls.compensated(given)
    function = np.ma.filled(busy.calls["function"], -1)
    flags = busy.calls["flags"]
    some = 0
    for row in range(len(table)):
        is_row = function == row
        whole = np.sort(calls["duration"][is_row & (flags & (1 | 2 | 16) == 0)])
        assert table["total"][row] == calls["duration"][is_row & (flags & 32 == 0)].sum()
        assert table["self"][row] == calls["self"][is_row].sum()
        if len(whole) == 0:
            assert table["p50"].mask[row]
            continue
        some += 1
        assert table["mean"][row] == pytest.approx(whole.mean())
        assert (table["min"][row], table["max"][row]) == (whole[0], whole[-1])
        for percent in (50, 95, 99):
            wanted = whole[math.ceil(len(whole) * percent / 100) - 1]
            found = table[f"p{percent}"][row]  # exact below 128 ns, else within 1 %
            assert found == wanted if wanted < 128 else abs(found - wanted) * 100 < wanted
    assert some > 20


def test_parts_and_every_form_can_be_compensated(busy):
    given = {"call": 1e6, "c_call": 1e6, "malloc": 1e6, "realloc": 1e6, "resume": 1e6}
    part = busy.calls[busy.calls["duration"] > 0][["name", "duration", "self"]][2:7]
    assert part["duration"].sum() > 0

    whole = part.compensated(given)

    assert len(whole) == 5
    assert whole.columns == ("name", "duration", "self")
    assert whole["self"].tolist() == [0] * 5
    assert part.to_pandas(compensate=given)["self"].tolist() == [0] * 5
    assert part.to_polars(compensate=given)["self"].to_list() == [0] * 5
    assert part.to_arrow(compensate=given)["self"].to_pylist() == [0] * 5
    assert part.to_numpy(compensate=given)["self"].tolist() == [0] * 5
    assert part.to_pandas()["self"].tolist() == part["self"].tolist()
    assert part.compensated(False) is part


def test_costs_that_are_not_known_are_asked_for(busy):
    assert "overhead" not in busy.metadata
    for table in (busy.calls, busy.functions):
        with pytest.raises(ValueError, match=r"record\(overhead=True\)"):
            table.to_pandas(compensate=True)
        with pytest.raises(ValueError, match="overhead of call must be ns"):
            table.to_pandas(compensate={"call": -1})
    with pytest.raises(ValueError, match="only calls and functions"):
        busy.events.to_pandas(compensate={"call": 1})


@pytest.mark.parametrize("wrong", [3, 0, None, "yes", [50.0]], ids=repr)
def test_what_is_no_costs_is_refused_by_name(busy, wrong):
    message = f"compensate must be True, False, or a mapping.*not {re.escape(repr(wrong))}$"
    for table in (busy.calls, busy.functions, busy.calls[:2]):
        with pytest.raises(TypeError, match=message):
            table.to_pandas(compensate=wrong)
        with pytest.raises(TypeError, match=message):
            table.compensated(wrong)


def test_what_the_metadata_say_is_taken(busy):
    busy.metadata["overhead"] = {"call": 50.0, "spread": {}, "measured": {}}
    try:
        table = busy.calls.compensated()
    finally:
        del busy.metadata["overhead"]

    assert table["duration"].tolist() == busy.calls.compensated({"call": 50.0})["duration"].tolist()
