"""Random programs are rebuilt exactly: the call tree against a model, the statistics against plain
Python over the events, the block lives against a replay."""

from __future__ import annotations

import gc
import os
import sys
import threading
import tracemalloc
from collections import defaultdict

import numpy as np
import programs
import pytest
import raw
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eventprof


class Boom(Exception):
    pass


def call_0(node):
    body(node)


def call_1(node):
    body(node)


def body(node):
    for child in node["children"]:
        try:
            if child["kind"] == "generator":
                run = generate(child)
                for _ in range(child["taken"]):
                    next(run, None)
                run.close()
            else:
                (call_0, call_1)[child["which"]](child)
        except Boom:
            pass
    node["kept"] = [bytearray(size) for size in node["sizes"]]
    if node["raises"]:
        raise Boom


def generate(node):
    for child in node["children"]:
        try:
            (call_0, call_1)[child["which"]](child)
        except Boom:
            pass
        yield child


def nodes(depth):
    children = st.lists(nodes(depth - 1), max_size=3) if depth else st.just([])
    return st.fixed_dictionaries(
        {
            "kind": st.sampled_from(["call", "call", "generator"]),
            "which": st.integers(0, 1),
            "children": children,
            "raises": st.booleans(),
            "taken": st.integers(0, 4),
            "sizes": st.lists(st.integers(600, 20000), max_size=3),
        }
    )


def expected_call(node, events, name):
    """What calling call_0 or call_1 emits."""
    end = "unwind" if node["raises"] else "return"
    events += [("call", name), ("call", "body")]
    for child in node["children"]:
        if child["kind"] == "generator":
            expected_generator(child, events)
        else:
            expected_call(child, events, f"call_{child['which']}")
    events += [(end, "body"), (end, name)]


def expected_generator(node, events):
    count = len(node["children"])
    for step in range(node["taken"]):
        if step > count:
            break
        events.append(("call" if step == 0 else "resume", "generate"))
        if step < count:
            child = node["children"][step]
            expected_call(child, events, f"call_{child['which']}")
            events.append(("yield", "generate"))
        else:
            events.append(("return", "generate"))
    # close() throws into what waits at a yield; 3.11 also into what never began, and 3.13 not where
    # nothing could catch it.
    waits = 0 < node["taken"] <= count and raw.CLOSE_UNWINDS
    if waits or (node["taken"] == 0 and sys.version_info < (3, 12)):
        events += [("throw", "generate"), ("unwind", "generate")]


def interesting(trace):
    """The events of the functions above, without their modules' own."""
    known = {"call_0", "call_1", "body", "generate"}
    table = trace.events
    return [
        (event, name)
        for event, name in zip(table["event"], table["name"], strict=True)
        if name in known and not event.startswith(("malloc", "calloc", "realloc", "free"))
    ]


quick = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


@pytest.mark.thorough
@given(node=nodes(3))
@quick
def test_events_of_a_random_program_are_those_of_the_model(node):
    node["raises"] = False
    expected = []
    expected_call(node, expected, "call_0")

    for backend in dict.fromkeys(("auto", raw.BACKENDS[-1])):
        with eventprof.record(c_calls=False, memory=False, backend=backend) as recorder:
            call_0(node)
        assert interesting(recorder.trace) == expected


@pytest.mark.thorough
@given(node=nodes(3))
@quick
def test_calls_nest_and_self_times_add_up(node):
    node["raises"] = False
    with eventprof.record() as recorder:
        call_0(node)
    calls = recorder.trace.calls
    start, duration, own = calls["start"], calls["duration"], calls["self"]
    parent = np.ma.filled(calls["parent"], -1)
    has = parent >= 0

    assert (start[has] >= start[parent[has]]).all()
    assert (start[has] + duration[has] <= start[parent[has]] + duration[parent[has]]).all()
    assert (calls["depth"][has] == calls["depth"][parent[has]] + 1).all()
    children = np.zeros(len(calls), dtype=np.int64)
    np.add.at(children, parent[has], duration[has])
    assert (own == duration - children).all()
    ends = {}
    for row in range(len(calls)):
        assert start[row] >= ends.get(parent[row], 0)  # siblings do not overlap
        ends[parent[row]] = start[row] + duration[row]


def reference_statistics(trace):
    """Calls, total and self by function row, in plain Python from the events."""
    calls, total, own = defaultdict(int), defaultdict(int), defaultdict(int)
    stacks = defaultdict(list)
    opens = {"call": 0, "c_call": 1, "resume": 0, "throw": 0}
    rows = zip(*(np.ma.filled(trace.events[c], -1).tolist() for c in ("time", "thread", "function")),
               trace.events["event"], strict=True)  # fmt: skip
    open_count = defaultdict(int)

    def close(stack, time):
        function, began, inside = stack.pop()
        own[function] += time - began - inside
        open_count[function] -= 1
        if open_count[function] == 0:
            total[function] += time - began
        if stack:
            stack[-1][2] += time - began

    # Calls open at the start are rows of `calls`, outermost first.
    table = trace.calls
    flags = table["flags"]
    for row in np.flatnonzero(flags & 1).tolist():
        function = int(np.ma.filled(table["function"], -1)[row])
        stacks[int(table["thread"][row])].append([function, 0, 0])
        open_count[function] += 1
    for time, thread, function, event in rows:
        stack = stacks[thread]
        if event in opens:
            calls[function] += event in ("call", "c_call")
            stack.append([function, time, 0])
            open_count[function] += 1
        elif event in ("return", "yield", "unwind", "c_return", "c_exception"):
            if any(entry[0] == function for entry in stack):
                while stack[-1][0] != function:
                    close(stack, time)
                close(stack, time)
    for stack in stacks.values():
        while stack:
            close(stack, trace.duration)
    return calls, total, own


@pytest.mark.thorough
@given(node=nodes(3))
@quick
def test_statistics_agree_with_plain_python(node):
    node["raises"] = False
    with eventprof.record(memory=False) as recorder:
        call_0(node)
    trace = recorder.trace
    calls, total, own = reference_statistics(trace)

    functions = trace.functions
    for row in range(len(functions)):
        assert functions["calls"][row] == calls[row], functions["name"][row]
        assert functions["total"][row] == total[row], functions["name"][row]
        assert functions["self"][row] == own[row], functions["name"][row]


def replay(trace):
    """Live bytes and blocks after each change, from the events alone."""
    alive, live, curve = {}, 0, []
    events = trace.events
    columns = [events["event"], *(np.ma.filled(events[c], 0).tolist()
                                  for c in ("time", "address", "size"))]  # fmt: skip
    for event, time, address, size in zip(*columns, strict=True):
        if event in ("malloc", "calloc", "realloc"):
            assert address not in alive
            alive[address] = size
            live += size
            curve.append((time, live, len(alive)))
        elif event in ("free", "realloc_free"):
            size = alive.pop(address, None)
            if size is not None:
                live -= size
                curve.append((time, live, len(alive)))
    return curve


def total(column):
    """Without a row, numpy's sum of a masked column is masked, too."""
    return column.sum() if len(column) else 0


@pytest.mark.thorough
@given(node=nodes(3))
@quick
def test_memory_over_time_is_that_of_a_replay(node):
    node["raises"] = False
    with eventprof.record() as recorder:
        call_0(node)
        for child in node["children"]:
            child.pop("kept", None)
    trace = recorder.trace
    curve = replay(trace)

    memory = trace.memory
    assert list(zip(*(memory[c].tolist() for c in memory.columns), strict=True)) == curve
    peak = trace.peak()
    assert peak.bytes == max((live for _, live, _ in curve), default=0)
    assert total(peak.by_site["bytes"]) == peak.bytes
    assert total(trace.leaks()["bytes"]) == (curve[-1][1] if curve else 0)
    assert trace.functions["allocated_self"].sum() == total(trace.allocations["size"])
    assert trace.calls["allocated_self"].sum() <= total(trace.allocations["size"])


def test_threads_are_rebuilt_each_by_itself():
    node = {"kind": "call", "which": 0, "children": [], "raises": False, "taken": 0, "sizes": [700]}
    tree = dict(node, children=[dict(node) for _ in range(20)])
    expected = []
    expected_call(tree, expected, "call_0")
    with eventprof.record(c_calls=False, memory=False) as recorder:
        threads = [threading.Thread(target=call_0, args=(tree,), name=f"w{i}") for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    trace = recorder.trace

    names = trace.threads["name"].tolist()
    for i in range(4):
        rows = trace.events[trace.events["thread"] == names.index(f"w{i}")]
        known = {"call_0", "body"}
        got = [(e, n) for e, n in zip(rows["event"], rows["name"], strict=True) if n in known]
        assert got == expected


# ---- Programs that nobody here wrote -------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(programs.PYPERFORMANCE))
def test_the_peak_is_tracemalloc_s(name):
    run = programs.program(name)
    run()
    gc.collect()
    recorder = eventprof.record(calls=False, c_calls=False)
    tracemalloc.start()
    try:
        with recorder:
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            run()
            _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert not recorder.trace.loss
    assert recorder.trace.peak().bytes == peak - before


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(programs.PYPERFORMANCE))
def test_statistics_of_a_program_agree_with_plain_python(name):
    run = programs.program(name)
    run()
    with eventprof.record(memory=False) as recorder:
        run()
    trace = recorder.trace
    calls, total, own = reference_statistics(trace)

    functions = trace.functions
    rows = range(len(functions))
    assert functions["calls"].tolist() == [calls[row] for row in rows]
    assert functions["total"].tolist() == [total[row] for row in rows]
    assert functions["self"].tolist() == [own[row] for row in rows]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_resident_set_is_sampled_beside_the_memory():
    with eventprof.record(memory=False) as recorder:
        for _ in range(200_000):
            len("")
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    resident = recorder.trace.resident

    assert len(resident) > 3
    assert (np.diff(resident["time"]) >= 0).all()
    assert resident["time"][-1] <= recorder.trace.duration
    assert (resident["bytes"] > now / 3).all()
    assert (resident["bytes"] < now * 3).all()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads in /proc")
def test_no_thread_of_ours_outlives_the_recording():
    before = len(os.listdir("/proc/self/task"))
    with eventprof.record(memory=False) as recorder:
        for _ in range(300_000):
            len("")
    assert len(recorder.trace.events) >= 600_000
    assert len(os.listdir("/proc/self/task")) <= before


def test_what_loss_may_falsify_says_so():
    with eventprof.record(buffer="1 MiB") as recorder:
        for _ in range(200_000):
            len("")
    trace = recorder.trace

    assert trace.loss
    for table in (trace.calls, trace.functions, trace.allocations, trace.memory, trace.leaks(),
                  trace.callers("len"), trace.at(trace.duration).open):  # fmt: skip
        assert "loss" in repr(table).splitlines()[0]
    assert str(trace).startswith("LOSS: ")
