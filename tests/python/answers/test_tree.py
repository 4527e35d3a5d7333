"""The calling-context tree: folds against the tables."""

from __future__ import annotations

import io
import sys
import threading
import tracemalloc

import numpy as np
import pytest
import tree_reference
from amounts import amount
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replay import Replay
from tree_programs import PROGRAMS, Machine

import eventprof
from eventprof.answers.adding import AddedTree
from eventprof.answers.holders import grouped, stack_text
from eventprof.answers.tree import OTHER, Tree

# ---- Random programs -----------------------------------------------------------------------------


@pytest.mark.thorough
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(PROGRAMS)
def test_fold_equals_the_tables_for_random_programs(program):
    with eventprof.record() as rec:
        Machine().run(program)

    tree_reference.compare(rec.trace)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(PROGRAMS, min_size=2, max_size=4))
def test_fold_equals_the_tables_with_threads(programs):
    machines = [Machine() for _ in programs]
    threads = [
        threading.Thread(target=machine.run, args=(program * 3,))
        for machine, program in zip(machines, programs, strict=True)
    ]
    with eventprof.record() as rec:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        machines.clear()

    tree_reference.compare(rec.trace)


@pytest.mark.thorough
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(PROGRAMS)
def test_fold_equals_the_tables_where_the_ring_lost_its_head(program):
    machine = Machine()
    with eventprof.record(buffer="1 MiB") as rec:
        for number in range(20_000):
            bytes(number % 50)
        machine.run(program)

    tree_reference.compare(rec.trace)


@pytest.mark.parametrize(
    "options", [{"memory": False}, {"calls": False, "c_calls": False}, {"c_calls": False}]
)
def test_fold_equals_the_tables_without_part_of_the_events(options):
    with eventprof.record(**options) as rec:
        Machine().run([("call", [("keep", 100), ("other", [("keep", 9)])]), ("drop", 0)])

    tree_reference.compare(rec.trace)


def test_bound_folds_the_smallest_into_other_and_loses_nothing():
    space: dict = {}
    lines = [
        f"def f{n}(depth):\n    return bytes({n}) if depth == 0 else f{n}(depth - 1)\n"
        for n in range(300)
    ]
    exec("".join(lines), space)
    with eventprof.record() as rec:
        kept = [space[f"f{n}"](3) for n in range(300)]
    whole = rec.trace._tree

    small = Tree(rec.trace, 100)

    assert len(kept) == 300
    assert whole.count > 1200 and small.count < 400
    assert small.facts["folded"] > 0
    assert (small.function == OTHER).any()
    for name in ("self", "calls", "allocated", "blocks", "live", "at_peak", "temporary", "freed"):
        assert small.below(name)[0] == whole.below(name)[0], name
    assert small.below("total")[0] == whole.below("total")[0]
    assert {key: value for key, value in small.facts.items() if key != "folded"} == {
        key: value for key, value in whole.facts.items() if key != "folded"
    }


# ---- Several traces ------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(PROGRAMS, min_size=1, max_size=3))
def test_trees_of_processes_add_up_by_path(programs):
    traces = []
    for program in programs:
        with eventprof.record() as rec:
            Machine().run(program * 2)
        traces.append(rec.trace)

    added = AddedTree([Tree(trace) for trace in traces])

    merged = Tree(eventprof.merge(traces))
    assert by_names(added) == by_names(merged)
    assert added.facts["peak"] == sum(trace.peak().bytes for trace in traces)
    assert added.facts["peak"] >= merged.facts["peak"]
    assert added.below("at_peak")[0] == added.facts["peak"] == sum(added.domains_at_peak)
    assert added.facts["live"] == merged.facts["live"]
    with pytest.raises(ValueError, match="no common time"):
        added.live_bins(3)


def by_names(tree):
    """{path by functions: figures} of what depends neither on other processes nor on their time."""
    names = ("calls", "resumes", "raised", "total", "self", "longest", "shortest", "freed")
    paths, found = [()], {}

    def function(row):
        return tree.functions[row] if row >= 0 else row

    for node in range(tree.count):
        if node:
            key = function(tree.function[node]), function(tree.caller[node]), int(tree.line[node])
            paths.append((paths[tree.parent[node]], key))
        found[paths[node]] = [int(tree.nodes[name][node]) for name in names]
    for leaf in range(len(tree.leaf_node)):
        key = paths[tree.leaf_node[leaf]], function(tree.leaf_function[leaf])
        found[key, int(tree.leaf_line[leaf])] = [
            int(tree.leaves[name][leaf])
            for name in ("allocated", "blocks", "live", "live_blocks", "temporary")
        ]
    return found


# ---- Percentiles, stacks -------------------------------------------------------------------------


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(PROGRAMS)
def test_percentiles_of_the_fold_are_off_by_less_than_a_hundredth(program):
    with eventprof.record() as rec:
        Machine().run(program * 5)
    count = len(rec.trace._core.functions())
    exact = Replay(rec.trace).functions(count)

    found = Tree(rec.trace, lengths=True).by_function()

    for name in ("p50", "p95", "p99"):
        wanted, values = exact[name][:count], found[name][:count]
        assert (np.abs(values - wanted) <= np.where(wanted < 128, 0, wanted / 100)).all()


def test_holders_by_stack_are_those_of_the_rows_of_blocks():
    machine = Machine()
    with eventprof.record() as rec:
        machine.run([("call", [("keep", 100), ("other", [("keep", 9)])]), ("keep", 7)] * 3)
    trace = rec.trace

    for name, table in [("live", trace.leaks("stack")), ("at_peak", trace.peak().by_stack)]:
        wanted: dict = {}
        for key, size, blocks in zip(*grouped(trace, name, "stack"), strict=True):
            text = stack_text(trace, int(key))
            sums = wanted.setdefault(text, [0, 0])
            sums[0] += int(size)
            sums[1] += int(blocks)
        stacks = [None if row.stack is None else str(row.stack) for row in table]
        found = zip(stacks, table["bytes"].tolist(), table["blocks"].tolist(), strict=True)
        assert {stack: [size, blocks] for stack, size, blocks in found} == wanted
        assert sorted(table["bytes"].tolist(), reverse=True) == table["bytes"].tolist()


def assert_functions_equal_the_columns(trace):
    """Assert that the fold's sums by function are those that the events give, one by one."""
    sums, count = trace._tree.by_function(), len(trace._core.functions())
    for name, wanted in Replay(trace).functions(count).items():
        # Without a lock the tables have no such column, whatever the core counts.
        if name[0] != "p" and (trace.has_lock or not name.startswith("waited")):
            assert sums[name].tolist() == wanted.tolist(), name


@pytest.mark.thorough
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(PROGRAMS, min_size=1, max_size=3))
def test_sums_by_function_equal_the_table_of_functions(programs):
    threads = [threading.Thread(target=Machine().run, args=(program * 2,)) for program in programs]
    with eventprof.record() as rec:
        Machine().run(programs[0])
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert_functions_equal_the_columns(rec.trace)


@pytest.mark.thorough
@settings(max_examples=amount(5, 15), deadline=None, suppress_health_check=list(HealthCheck))
@given(PROGRAMS)
def test_sums_by_function_equal_the_columns_where_the_ring_lost_its_head(program):
    with eventprof.record(buffer="1 MiB") as rec:
        for _ in range(600):
            Machine().run(program[:3])
            kept = [bytes(200) for _ in range(40)]

    assert len(kept) == 40
    assert_functions_equal_the_columns(rec.trace)


@pytest.mark.parametrize(
    "options", [{"memory": False}, {"calls": False}, {"c_calls": False}], ids=str
)
def test_sums_by_function_equal_the_columns_without_part_of_the_events(options):
    program = [("call", [("keep", 100), ("raise", [("brief", 30)])]), ("drop", 0)]
    with eventprof.record(**options) as rec:
        Machine().run(program * 20)

    assert_functions_equal_the_columns(rec.trace)


def test_functions_with_all_that_they_called():
    def leaf(size):
        return [None] * (size // 8)  # no call of a builtin: the bytes are its own

    def branch(size):
        kept = [leaf(size), leaf(size)]
        del kept[0]
        return kept

    with eventprof.record() as rec:
        kept = [branch(50_000) for _ in range(3)]

    functions = rec.trace.functions
    names = [name.rpartition(".")[2] for name in functions["name"]]
    by_name = {name: functions[names.index(name)] for name in ("leaf", "branch")}
    assert len(kept) == 3
    assert by_name["leaf"].allocated_self >= 6 * 50_000 > by_name["branch"].allocated_self
    assert (
        by_name["branch"].allocated >= by_name["leaf"].allocated >= by_name["leaf"].allocated_self
    )
    for name in ("live", "at_peak"):
        own, whole = (getattr(by_name["branch"], name + end) for end in ("_self", ""))
        assert own < 50_000 <= whole // 3, name
    assert by_name["branch"].freed >= 3 * 50_000 > 0
    assert by_name["branch"].blocks >= by_name["leaf"].blocks >= by_name["leaf"].blocks_self
    assert by_name["branch"].net == by_name["branch"].allocated - by_name["branch"].freed
    assert int(functions["allocated_self"].sum()) <= int(rec.trace.allocations["size"].sum())


def test_calls_with_all_that_they_called():
    def inner():
        return bytes(70_001)

    def outer():
        return [inner(), inner()]

    with eventprof.record() as rec:
        kept = outer()

    calls = rec.trace.calls
    call = calls[[name.endswith("outer") for name in calls["name"]]]
    assert len(kept) == 2 and len(call) == 1
    assert call["allocated"][0] >= 2 * 70_001 > call["allocated_self"][0]


def test_recursion_is_counted_once_by_function():
    def down(depth):
        return [bytes(1000 + depth)] + (down(depth - 1) if depth else [])

    with eventprof.record() as rec:
        kept = down(5)

    tree = rec.trace._tree
    sums = tree.by_function()
    row = next(
        number for number, known in enumerate(tree.functions) if known[0].endswith("<locals>.down")
    )
    assert len(kept) == 6 and sums["calls"][row] == 6
    own = rec.trace._core.calls("function") == row
    assert sums["total"][row] == rec.trace._core.calls("duration")[own].max()
    assert sums["allocated"][row] == tree.below("allocated")[tree.function == row].max()
    assert sums["allocated"][row] >= sum(1000 + depth for depth in range(6))
    assert sums["allocated"][row] <= tree.below("allocated")[0]


def test_recursion_100_000_deep():
    code = "def down(n):\n    return 0 if n == 0 else 1 + down(n - 1)\n"
    space: dict = {}
    exec(code, space)
    depth = 100_000 if sys.version_info < (3, 12) else 20_000
    limit = sys.getrecursionlimit()
    found = []

    def work():
        with eventprof.record(threads="current", memory=False) as rec:
            found.append(space["down"](depth))
        found.append(rec)

    sys.setrecursionlimit(depth + 1000)
    size = threading.stack_size(512 << 20)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(size)
        sys.setrecursionlimit(limit)
    trace = found[1].trace

    assert found[0] == depth
    assert int(trace.tree["depth"].max()) >= depth
    text = io.StringIO()
    trace.show_tree(file=text, all=True)
    assert len(text.getvalue().splitlines()) <= 60


# ---- Memory by line, against tracemalloc ---------------------------------------------------------


def allocate_lines(kept):
    kept.append(bytes(10_007))
    kept.append([bytes(n) for n in range(50)])
    kept.append(bytearray(20_011))
    del kept[0]
    kept.append([str(n) * 3 for n in range(100)])


def test_live_bytes_by_line_are_those_of_tracemalloc():
    kept: list = []
    allocate_lines([])
    tracemalloc.start()
    try:
        with eventprof.record(threads="current") as rec:
            allocate_lines(kept)
            snapshot = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()

    tree = rec.trace._tree
    own = {}
    for leaf, function in enumerate(tree.leaf_function.tolist()):
        if function >= 0 and (tree.functions[function][0] or "").startswith("allocate_lines"):
            line = int(tree.leaf_line[leaf])
            own[line] = own.get(line, 0) + int(tree.leaves["live"][leaf])
    first = allocate_lines.__code__.co_firstlineno
    wanted = {
        stat.traceback[0].lineno: stat.size
        for stat in snapshot.statistics("lineno")
        if stat.traceback[0].filename == __file__ and first < stat.traceback[0].lineno <= first + 5
    }
    assert wanted
    if sys.version_info < (3, 12):
        # There a comprehension is a function of its own, in which tracemalloc sees one block more.
        for line in (first + 2, first + 5):
            assert 0 <= wanted.pop(line) - own.pop(line) < 100
    if sys.version_info >= (3, 14):
        # At the return the interpreter allocates a block for the hook: without a recorder tracemalloc does
        # not have it, and the recorder leaves it out.
        assert wanted.pop(first + 5) - own.pop(first + 5) in (0, 32)
    assert {line: size for line, size in own.items() if size} == wanted
