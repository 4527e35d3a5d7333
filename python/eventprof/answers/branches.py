"""Which branches of the tree of calls are shown: the heaviest, own code first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .._words import did_you_mean
from ..tables.column import Array
from .tree import OTHER, Tree, ends_of

if TYPE_CHECKING:
    from ..trace import Trace

#: A branch with a smaller share of the time and of the bytes is folded: only its time is shown.
SMALLEST = 0.01


@dataclass
class Branch:
    """A node as it is shown, with the children that are shown below it; ns and bytes."""

    node: int
    total: int
    self: int
    waited: int
    allocated: int
    at_peak: int
    calls: int
    children: list[Branch] = field(default_factory=list)
    folded: int = 0  # how many children are not shown
    folded_total: int = 0  # the time of these


def visible_nodes(tree: Tree, own: Array) -> Array:
    """Mark the nodes to show: own functions, and the functions that they call directly."""
    is_own = own[np.maximum(tree.function, -1)]
    called = own[np.maximum(tree.caller, -1)]
    visible: Array = is_own | called
    outermost = (tree.parent == 0) & ~is_own
    # The functions that start a thread are shown only if no own code runs below them.
    below = np.zeros(tree.count, dtype=np.int64)
    below[is_own] = 1
    from .. import _core

    has_own = _core.tree_below(tree.parent, below) > 0
    visible |= outermost & ~has_own
    visible[0] = True
    return visible


def build(tree: Tree, own: Array | None, limit: int, root: int = 0) -> Branch:
    """Choose the branches to show.

    Parameters
    ----------
    tree : Tree
        The tree to show.
    own : array of bool or None
        Which functions are own code; None: show all functions.
    limit : int
        The most branches.
    root : int
        The node to begin with.

    Returns
    -------
    Branch
        The root, with its children, the heaviest first.
    """
    visible = np.ones(tree.count, dtype=bool) if own is None else visible_nodes(tree, own)
    visible[root] = True
    up = np.where(visible[tree.parent], tree.parent, 0).astype(np.int64)
    pending = ~visible[tree.parent]
    if pending.any():  # the nearest visible node above
        near = np.where(visible, np.arange(tree.count), tree.parent).astype(np.int64)
        up = ends_of(near)[tree.parent]
    figures = {name: tree.below(name) for name in ("total", "lock_waited", "allocated", "at_peak")}
    self_time = np.zeros(tree.count, dtype=np.int64)
    keepers = np.flatnonzero(visible)
    shown_at = np.where(visible, np.arange(tree.count), up)
    np.add.at(self_time, shown_at, tree.own("self"))
    calls = tree.own("calls")
    whole = max(int(figures["total"][root]), 1)
    bytes_whole = max(int(figures["at_peak"][root]), 1)
    made_whole = max(int(figures["allocated"][root]), 1)
    weight = figures["total"] / whole
    if figures["total"][root] == 0:
        weight = np.maximum(figures["at_peak"] / bytes_whole, figures["allocated"] / made_whole)
    order = np.argsort(up[keepers], kind="stable")
    keepers = keepers[order]
    parents = up[keepers]
    starts = np.searchsorted(parents, np.arange(tree.count))
    ends = np.searchsorted(parents, np.arange(tree.count), side="right")

    def branch(node: int) -> Branch:
        return Branch(
            node, int(figures["total"][node]), int(self_time[node]),
            int(figures["lock_waited"][node]),
            int(figures["allocated"][node]), int(figures["at_peak"][node]), int(calls[node]),
        )  # fmt: skip

    import heapq

    top = branch(root)
    heap: list[tuple[float, int, Branch]] = []

    def open_branch(parent: Branch) -> None:
        for node in keepers[starts[parent.node] : ends[parent.node]].tolist():
            if node == parent.node:
                continue
            share = max(float(weight[node]), float(figures["at_peak"][node]) / bytes_whole)
            if share < SMALLEST or len(heap) > 10 * limit:
                parent.folded += 1
                parent.folded_total += int(figures["total"][node])
            else:
                heapq.heappush(heap, (-share, node, parent))

    open_branch(top)
    shown = 1
    while heap:
        _, node, parent = heapq.heappop(heap)
        if shown >= limit:
            parent.folded += 1
            parent.folded_total += int(figures["total"][node])
            continue
        child = branch(node)
        parent.children.append(child)
        shown += 1
        open_branch(child)
    stack = [top]
    while stack:
        now = stack.pop()
        now.children.sort(key=lambda child: (-child.total, -child.at_peak, child.node))
        stack += now.children
    return top


def place_of(tree: Tree, node: int) -> str:
    """Report where a node was called, or else where its function begins."""
    from ..base.text import short_path

    functions = tree.functions
    caller, line = int(tree.caller[node]), int(tree.line[node])
    if caller >= 0 and line > 0 and functions[caller][2]:
        return f"{short_path(str(functions[caller][2]))}:{line}"
    function = int(tree.function[node])
    if function >= 0 and functions[function][2] and functions[function][3]:
        return f"{short_path(str(functions[function][2]))}:{functions[function][3]}"
    return ""


def own_or_all(trace: Trace, tree: Tree, all: bool, patterns: Sequence[str] | None) -> Array | None:
    """Return the own functions; None if all are to be shown, or if no own function was called."""
    return chosen_own(tree, all, patterns if patterns else trace._own_patterns)


def chosen_own(tree: Tree, all: bool, patterns: Sequence[str] | None) -> Array | None:
    """Do the same for patterns alone; without patterns, folders of libraries are not own."""
    if all:
        return None
    own = tree.is_own(patterns or None)
    used = own[np.maximum(tree.function[1:], -1)].any() or own[np.maximum(tree.caller, -1)].any()
    return own if used else None


def tree_rows(tree: Tree, top: Branch) -> list[dict[str, Any]]:
    """Return the branches as JSON objects."""
    rows = []
    stack: list[tuple[Branch, int]] = [(top, 0)]
    while stack:
        branch, depth = stack.pop()
        function = int(tree.function[branch.node])
        known = tree.functions[function] if function >= 0 else (None, None, None, None, None)
        rows.append({
            "handle": f"n-{branch.node}", "node": branch.node, "depth": depth,
            "name": "other" if function == OTHER else known[0], "module": known[1],
            "file": known[2], "line": known[3],
            "caller_line": int(tree.line[branch.node]) if tree.line[branch.node] > 0 else None,
            "calls": branch.calls, "total": branch.total, "self": branch.self,
            "waited": branch.waited if tree.has_lock else None,
            "allocated": branch.allocated, "at_peak": branch.at_peak,
            "folded": branch.folded, "folded_total": branch.folded_total,
        })  # fmt: skip
        stack += [(child, depth + 1) for child in reversed(branch.children)]
    return rows


def root_of(tree: Tree, node: int | None) -> int:
    """Return the branch to begin with; None: the root."""
    if node is None:
        return 0
    if not 0 <= node < tree.count:
        raise ValueError(f"node: there are branches 0 to {tree.count - 1:,}, not {node:,}")
    return node


def unknown_name(name: str, known: Sequence[str], what: str) -> ValueError:
    """Make the error for a name that does not occur."""
    near = did_you_mean(name, list(dict.fromkeys(known))[:20000])
    return ValueError(f"there is no {what} {name!r}{near}")
