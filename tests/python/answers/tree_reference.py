"""The calling-context tree in plain Python, from the tables; what the fold gives must equal it."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

CUT = 1 | 2 | 16
OPEN_AT_START = 1
TEMPORARY = 16 | 32
FREE_LOST = 2
NOT_UNDER_LOCK = {"raw", "libc"}


def of_tables(trace):
    """{path: figures} of nodes and {(path, function, line): figures} of leaves, from calls and blocks."""
    core = trace._core
    column = {
        name: core.calls(name).tolist()
        for name in (
            "parent",
            "function",
            "caller",
            "caller_line",
            "kind",
            "duration",
            "self",
            "flags",
        )
    }
    nodes: dict = defaultdict(lambda: defaultdict(int))
    paths = []
    for row, parent in enumerate(column["parent"]):
        above = paths[parent] if parent >= 0 else ()
        key = (column["function"][row], column["caller"][row], column["caller_line"][row])
        path = (above, key)
        paths.append(path)
        sums = nodes[path]
        flags = column["flags"][row]
        if not flags & OPEN_AT_START:
            sums["resumes" if column["kind"][row] in (4, 5) else "calls"] += 1
        sums["raised"] += bool(flags & 8)
        sums["total"] += column["duration"][row]
        sums["self"] += column["self"][row]
        if not flags & CUT:
            length = column["duration"][row]
            sums["longest"] = max(sums.get("longest", length), length)
            sums["shortest"] = min(sums.get("shortest", length), length)
    leaves: dict = defaultdict(lambda: defaultdict(int))
    block = {
        name: core.allocations(name).tolist()
        for name in ("call", "function", "line", "size", "end", "flags")
    }
    for row, call in enumerate(block["call"]):
        function = block["function"][row]
        path = paths[call] if call >= 0 else ((), (function, -1, -1))
        sums = leaves[path, function, block["line"][row]]
        sums["allocated"] += block["size"][row]
        sums["blocks"] += 1
        if block["end"][row] < 0:
            sums["live"] += block["size"][row]
            sums["live_blocks"] += 1
        if block["flags"][row] & TEMPORARY:
            sums["temporary"] += block["size"][row]
            sums["temporary_blocks"] += 1
    return nodes, leaves


def of_tree(tree):
    """Return the nodes and leaves of a Tree, as `of_tables` does of tables."""
    paths: list = [()]
    nodes: dict = {}
    figures = {
        name: tree.own(name).tolist()
        for name in ("calls", "resumes", "raised", "self", "longest", "shortest")
    }
    figures["total"] = tree.nodes["total"].tolist()
    for node in range(1, tree.count):
        key = (int(tree.function[node]), int(tree.caller[node]), int(tree.line[node]))
        path = (paths[int(tree.parent[node])], key)
        paths.append(path)
        assert path not in nodes
        nodes[path] = {name: figures[name][node] for name in figures}
    leaves = {}
    names = ("allocated", "blocks", "live", "live_blocks", "temporary", "temporary_blocks")
    for leaf in range(len(tree.leaf_node)):
        key = (
            paths[tree.leaf_node[leaf]],
            int(tree.leaf_function[leaf]),
            int(tree.leaf_line[leaf]),
        )
        assert key not in leaves
        leaves[key] = {name: int(tree.leaves[name][leaf]) for name in names}
    return nodes, leaves


def without_nothing(figures):
    """Figures that are something: 0 and, of times, -1 are none."""
    return {name: value for name, value in figures.items() if value != 0 and value != -1}


def compare(trace, tree=None):
    """Assert that the fold gives what the tables give, to the unit."""
    if tree is None:
        tree = trace._tree
    wanted_nodes, wanted_leaves = of_tables(trace)
    nodes, leaves = of_tree(tree)
    for path, figures in wanted_nodes.items():
        assert without_nothing(nodes[path]) == without_nothing(figures), path
    for path, figures in nodes.items():
        assert path in wanted_nodes or not without_nothing(figures), path
    assert {k: without_nothing(v) for k, v in leaves.items() if without_nothing(v)} == {
        k: without_nothing(v) for k, v in wanted_leaves.items() if without_nothing(v)
    }
    compare_memory(trace, tree)
    compare_functions(trace, tree)
    if tree.has_lock:
        compare_waited(trace, tree)


def compare_memory(trace, tree):
    time, live, blocks, moment = trace._core.peak(31)
    facts = tree.facts
    assert (facts["peak_time"], facts["peak"], facts["peak_blocks"]) == (time, live, blocks)
    assert int(tree.leaves["at_peak"].sum()) == live
    assert int(tree.leaves["live"].sum()) == facts["live"]
    assert int(tree.below("at_peak")[0]) == live
    assert sum(tree.domains_at_peak) == live
    if time < 0:
        return
    at_peak = np.zeros(len(tree.functions) + 1, dtype=np.int64)
    np.add.at(at_peak, tree.function[tree.leaf_node], tree.leaves["at_peak"])
    keys, held, _ = trace._core.alive(moment, "function")
    wanted = np.zeros_like(at_peak)
    wanted[keys] = held
    assert at_peak.tolist() == wanted.tolist()
    lines = defaultdict(int)
    for leaf in range(len(tree.leaf_node)):
        lines[int(tree.leaf_function[leaf]), int(tree.leaf_line[leaf])] += int(
            tree.leaves["at_peak"][leaf]
        )
    wanted_lines = defaultdict(int)
    functions, _, site_lines = trace._core.sites()
    for site, size, _ in zip(*trace._core.alive(moment, "site"), strict=True):
        wanted_lines[int(functions[site]), int(site_lines[site])] += int(size)
    assert {k: v for k, v in lines.items() if v} == {k: v for k, v in wanted_lines.items() if v}


def compare_functions(trace, tree):
    """Sums over nodes are what functions have; recursion counts once."""
    stats = trace._tree.by_function()
    outermost = tree.outermost(np.maximum(tree.function, -1).astype(np.int32))
    outermost |= tree.function < 0
    outermost[0] = False
    function = np.maximum(tree.function, -1)
    for name, figure in (("calls", "calls"), ("resumes", "resumes"), ("self", "self"), ("freed_self", "freed"),
                     ("allocated_self", "allocated"), ("blocks_self", "blocks"),
                     ("live_self", "live"), ("temporary_self", "temporary"),
                     ("at_peak_self", "at_peak")):  # fmt: skip
        sums = np.zeros(len(tree.functions) + 1, dtype=np.int64)
        np.add.at(sums, function[1:], tree.own(figure)[1:])
        assert sums[:-1].tolist() == stats[name][:-1].tolist(), name
    total = np.zeros(len(tree.functions) + 1, dtype=np.int64)
    np.add.at(total, function[outermost], tree.nodes["total"][outermost])
    assert total[:-1].tolist() == stats["total"][:-1].tolist()


def compare_waited(trace, tree):
    """Tenures and waiting, from the events."""
    core = trace._core
    words = trace.events["event"]
    domain = trace.events["domain"]
    thread = core.events("thread").tolist()
    time = core.events("time").tolist()
    call_of = core.events("call").tolist()
    under = [d is None or d not in NOT_UNDER_LOCK for d in domain]
    tenures = []
    for row in range(len(time)):
        if not under[row]:
            continue
        if tenures and tenures[-1][0] == thread[row]:
            tenures[-1][2:] = [time[row], tenures[-1][3] + 1]
        else:
            tenures.append([thread[row], time[row], time[row], 1])
    gil = trace.gil
    assert [list(row) for row in gil] == tenures
    assert len(words) == len(call_of)
    if len(time) > 30_000 or len(trace.threads) < 2:
        return
    starts, durations = core.calls("start").tolist(), core.calls("duration").tolist()
    threads = core.calls("thread").tolist()
    flags = core.calls("flags").tolist()
    # A time that is another thread's, too, says nothing of their order: those calls are left out.
    wanted = defaultdict(int)
    parents, rows = core.calls("parent").tolist(), []
    names = [core.calls(n).tolist() for n in ("function", "caller", "caller_line")]
    for row in range(len(starts)):
        above = rows[parents[row]] if parents[row] >= 0 else ()
        rows.append((above, tuple(column[row] for column in names)))
        end = starts[row] + durations[row]
        whole = sum(
            last - first
            for holder, first, last, _ in tenures
            if holder != threads[row] and first >= starts[row] and last <= end
        )
        wanted[rows[-1]] += whole
    assert len(flags) == len(starts)
    paths: list = [()]
    for node in range(1, tree.count):
        key = (int(tree.function[node]), int(tree.caller[node]), int(tree.line[node]))
        paths.append((paths[int(tree.parent[node])], key))
        assert int(tree.nodes["waited"][node]) == wanted[paths[-1]], paths[-1]
