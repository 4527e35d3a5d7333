"""merge(): several traces on one time line."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

import eventprof


def leaf(n):
    return n


def branch(n):
    return leaf(n) + leaf(n)


def recorded(times, **options):
    with eventprof.record(**options) as rec:
        for n in range(times):
            branch(n)
    return rec.trace


def test_rows_of_all_traces_in_order_of_time():
    traces = [recorded(5), recorded(7)]

    merged = eventprof.merge(traces)

    assert len(merged.events) == sum(len(trace.events) for trace in traces)
    assert (np.diff(merged.events["time"]) >= 0).all()
    calls = dict(zip(merged.functions["name"], merged.functions["calls"], strict=True))
    assert (calls["branch"], calls["leaf"]) == (12, 24)
    assert merged.duration > max(trace.duration for trace in traces)


def test_the_order_given_does_not_matter():
    first, second = recorded(3), recorded(4)

    one, other = eventprof.merge([first, second]), eventprof.merge([second, first])

    assert list(one.events["name"]) == list(other.events["name"])
    assert list(one.events["time"]) == list(other.events["time"])
    assert one.metadata["start_ns"] == other.metadata["start_ns"] == first.metadata["start_ns"]


def test_blocks_of_two_processes_at_one_address_are_two():
    with eventprof.record(calls=False, c_calls=False) as rec:
        bytearray(12347)
    trace = rec.trace

    merged = eventprof.merge([trace, trace])

    assert len(merged.allocations) == 2 * len(trace.allocations)
    assert merged.peak().bytes == 2 * trace.peak().bytes
    assert set(merged.allocations["address"] >> np.uint64(48)) == {0, 1}


def test_threads_are_named_after_their_process():
    merged = eventprof.merge([recorded(1)])

    assert list(merged.threads["name"]) == [f"{os.getpid()} MainThread"]


def test_what_is_known_of_each_is_kept():
    traces = [recorded(1), recorded(1)]

    merged = eventprof.merge(traces)

    assert merged.metadata["merged"] == [trace.metadata for trace in traces]
    assert "events" in str(merged)


def test_loss_is_that_of_all():
    traces = [recorded(60_000, buffer=1 << 20, memory=False) for _ in range(2)]

    merged = eventprof.merge(traces)

    assert merged.loss.total == sum(trace.loss.total for trace in traces) > 0


@pytest.mark.parametrize(
    ("given", "error"), [([], ValueError), (["trace.epr"], TypeError), ([None], TypeError)]
)
def test_what_is_no_trace_is_refused(given, error):
    with pytest.raises(error, match="merge"):
        eventprof.merge(given)


def test_calls_open_at_the_end_of_one_process_end_with_it(tmp_path):
    def record():
        rec = eventprof.record(memory=False, c_calls=False)
        inner(rec)
        return rec.trace

    def inner(rec):
        rec.start()
        leaf(1)
        rec.stop()

    first = record()
    time.sleep(0.2)
    last = record()
    (before,) = [call for call in first.calls if call.name.endswith("inner")]

    merged = eventprof.merge([first, last])
    merged.save(tmp_path / "merged.epr")

    for trace in (merged, eventprof.open(tmp_path / "merged.epr")):
        calls = [call for call in trace.calls if call.name.endswith("inner")]
        assert [call.duration for call in calls] == [
            before.duration,
            *(call.duration for call in last.calls if call.name.endswith("inner")),
        ]
        assert trace.duration > 200_000_000
        assert trace.verify().ok
