"""The tree of calls as text: the heaviest branches, own code first."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from .._words import did_you_mean, show_bytes, show_ns
from ..tables.column import Array
from ..tables.kinds import unknown_kinds
from .reserved import reserved_at_peak
from .tree import OTHER, Tree

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
    if pending.any():  # the nearest visible node above; each round doubles how far `at` points
        at = np.where(visible, np.arange(tree.count), tree.parent).astype(np.int64)
        while True:
            further = at[at]
            if np.array_equal(further, at):
                break
            at = further
        up = at[tree.parent]
    figures = {name: tree.below(name) for name in ("total", "lock_waited", "allocated", "at_peak")}
    self_time = np.zeros(tree.count, dtype=np.int64)
    keepers = np.flatnonzero(visible)
    at = np.where(visible, np.arange(tree.count), up)
    np.add.at(self_time, at, tree.own("self"))
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
    """Say where a node was called, or else where its function begins."""
    from ..base.text import short_path

    functions = tree.functions
    caller, line = int(tree.caller[node]), int(tree.line[node])
    if caller >= 0 and line > 0 and functions[caller][2]:
        return f"{short_path(str(functions[caller][2]))}:{line}"
    function = int(tree.function[node])
    if function >= 0 and functions[function][2] and functions[function][3]:
        return f"{short_path(str(functions[function][2]))}:{functions[function][3]}"
    return ""


def percent(part: float, whole: float) -> str:
    """Give a share, without decimals."""
    return f"{100 * part / whole:3.0f} %" if whole > 0 else "    -"


def text_lines(tree: Tree, top: Branch, width: int, plain: bool) -> list[str]:
    """Give the branches as lines of text."""
    has_time = top.total > 0
    has_waited = tree.has_lock and len(tree.threads["in_calls"]) > 1 and top.waited > 0
    has_memory = bool(tree.facts["peak"]) or top.allocated > 0
    heads = []
    if has_time:
        heads += ["time", "", "self"]
    if has_waited:
        heads += ["waited"]
    has_allocated = has_memory and width >= 100
    heads += ["allocated"] if has_allocated else []
    heads += ["at peak"] if has_memory else []
    heads += ["calls"]
    whole = top.total
    rows: list[tuple[list[str], str, str, str]] = []  # numbers, lead, name, place
    tees = ("|- ", "`- ", "|  ", "   ") if plain else ("├ ", "└ ", "│ ", "  ")
    # A stack instead of recursion: the tree may be deeper than Python's limit.
    stack: list[tuple[Branch | str, str, str]] = [(top, "", "")]
    while stack:
        what, lead, below = stack.pop()
        if isinstance(what, str):
            rows.append((["" for _ in heads], lead, what, ""))
            continue
        cells = []
        if has_time:
            cells += [show_ns(what.total), percent(what.total, whole), show_ns(what.self)]
        if has_waited:
            cells += [show_ns(what.waited) if what.waited else ""]
        if has_allocated:
            cells += [show_bytes(what.allocated)]
        if has_memory:
            cells += [show_bytes(what.at_peak)]
        cells += [f"{what.calls:,}" if what.node else ""]
        rows.append((cells, lead, tree.name(what.node), place_of(tree, what.node)))
        items: list[Branch | str] = list(what.children)
        if what.folded:
            small = f"{what.folded:,} more: {show_ns(what.folded_total)}" if has_time else (
                f"{what.folded:,} more"
            )  # fmt: skip
            items.append(f"... {small}" if plain else f"… {small}")
        for at, item in reversed(list(enumerate(items))):
            last = at == len(items) - 1
            stack.append((item, below + tees[1 if last else 0], below + tees[3 if last else 2]))
    widths = [
        max(map(len, column)) for column in zip(heads, *(row[0] for row in rows), strict=True)
    ]
    room = max(width - sum(widths) - 2 * len(widths), 20)
    lines = []
    for cells, lead, name, place in ((heads, "", "", ""), *rows):
        numbers = "  ".join(c.rjust(w) for c, w in zip(cells, widths, strict=True))
        lines.append(f"{numbers}  {fit(lead, name, place, room, plain)}".rstrip())
    return lines


def fit(lead: str, name: str, place: str, room: int, plain: bool) -> str:
    """Fit a branch into the room: leave out the place, then shorten the lead, then the name."""
    dots = "..." if plain else "…"
    if len(lead) > room // 2:
        lead = dots + lead[len(dots) - room // 2 :]
    if len(lead) + len(name) > room:
        name = dots + name[len(dots) + len(lead) - room :]
    text = f"{lead}{name}"
    return f"{text}  {place}" if len(text) + 2 + len(place) <= room else text


def own_or_all(trace: Trace, tree: Tree, all: bool, patterns: Sequence[str] | None) -> Array | None:
    """Give the own functions; None if all are to be shown, or if no own function was called."""
    return chosen_own(tree, all, patterns if patterns else trace._own_patterns)


def chosen_own(tree: Tree, all: bool, patterns: Sequence[str] | None) -> Array | None:
    """Do the same for patterns alone; without patterns, folders of libraries are not own."""
    if all:
        return None
    own = tree.is_own(patterns or None)
    used = own[np.maximum(tree.function[1:], -1)].any() or own[np.maximum(tree.caller, -1)].any()
    return own if used else None


def headline(trace: Trace, tree: Tree) -> str:
    """Say in one line what was recorded, and what is missing."""
    parts = [f"{trace._facts['events']:,} events in {show_ns(trace.duration)}"]
    if tree.facts["peak"]:
        parts.append(f"peak {show_bytes(tree.facts['peak'])} at {show_ns(tree.facts['peak_time'])}")
        reserved = reserved_at_peak(trace, tree)
        if reserved:
            parts[-1] += f" ({show_bytes(reserved)} of it reserved, never touched)"
    parts.append(said_of_loss(trace) or "nothing lost")
    if tree.facts["folded"]:
        parts.append(f"{tree.facts['folded']:,} small nodes are folded into 'other'")
    return ", ".join(parts)


def show_added(
    traces: Sequence[Trace],
    file: IO[str],
    *,
    all: bool,
    own: Sequence[str],
    limit: int,
    width: int | None,
) -> None:
    """Print the trees of several recordings as one."""
    from .adding import AddedTree

    tree = AddedTree([trace._tree for trace in traces])
    events = sum(trace._facts["events"] for trace in traces)
    parts = [f"{events:,} events in {len(traces)} recordings"]
    if tree.facts["peak"]:
        parts.append(f"peaks {show_bytes(tree.facts['peak'])} together, each at its own time")
    losses = [f"{trace.file['path']}: {said_of_loss(trace)}" if trace.file else said_of_loss(trace)
              for trace in traces if said_of_loss(trace)]  # fmt: skip
    parts += losses or ["nothing lost"]
    show_summed(tree, ", ".join(parts), file, all=all, own=own, limit=limit, width=width)


def show_summed(
    tree: Tree,
    headline: str,
    file: IO[str],
    *,
    all: bool,
    own: Sequence[str],
    limit: int,
    width: int | None,
) -> None:
    """Print a tree of several recordings below a line about them."""
    if limit < 1:
        raise ValueError(f"limit must be 1 or more, not {limit}")
    top = build(tree, chosen_own(tree, all, own), limit)
    columns = width if width is not None else shutil.get_terminal_size((100, 25)).columns
    print(headline, file=file)
    print("\n".join(text_lines(tree, top, columns, is_plain(file))), file=file)


def said_of_loss(trace: Trace) -> str:
    """Say what is missing; empty if nothing is."""
    loss = trace.loss.total
    parts = [f"{loss:,} EVENTS LOST: all numbers are too small"] if loss else []
    parts += (trace.file or {}).get("missing", ())
    unknown = unknown_kinds(trace.file or {})
    if unknown:
        parts.append(unknown.partition(";")[0])
    return ", ".join(parts)


def tree_rows(tree: Tree, top: Branch) -> list[dict[str, Any]]:
    """Give the branches as JSON objects."""
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


def is_plain(file: IO[str]) -> bool:
    """Whether to write only ASCII."""
    encoding = (getattr(file, "encoding", None) or "utf-8").lower().replace("-", "")
    return not encoding.startswith("utf")


def show_tree(
    trace: Trace,
    file: IO[str] | None,
    wanted: Mapping[str, Any],
    *,
    all: bool,
    own: Sequence[str] | str,
    limit: int,
    width: int | None,
) -> None:
    """Print the tree, or one call; see `Trace.show_tree`."""
    file = sys.stdout if file is None else file
    own = (own,) if isinstance(own, str) else tuple(own)
    asked = {name: value for name, value in wanted.items() if value is not None}
    if len(asked) > 1:
        raise ValueError(f"one of {' and '.join(asked)} at a time")
    if limit < 1:
        raise ValueError(f"limit must be 1 or more, not {limit}")
    columns = width if width is not None else shutil.get_terminal_size((100, 25)).columns
    plain = is_plain(file)
    if asked and asked.keys() != {"node"}:
        from .one_call import find_call, open_at, show_call

        if "at" in asked:
            lines = open_at(trace, asked["at"], columns)
        else:
            lines = show_call(trace, find_call(trace, asked), limit, columns, plain)
        missing = said_of_loss(trace)
        print("\n".join([*([missing] if missing else []), *lines]), file=file)
        return
    tree = trace._tree
    top = build(tree, own_or_all(trace, tree, all, own), limit, root_of(tree, asked.get("node")))
    print(headline(trace, tree), file=file)
    print("\n".join(text_lines(tree, top, columns, plain)), file=file)


def root_of(tree: Tree, node: int | None) -> int:
    """Give the branch to begin with; None: the root."""
    if node is None:
        return 0
    if not 0 <= node < tree.count:
        raise ValueError(f"node: there are branches 0 to {tree.count - 1:,}, not {node:,}")
    return node


def unknown_name(name: str, known: Sequence[str], what: str) -> ValueError:
    """Make the error for a name that does not occur."""
    near = did_you_mean(name, list(dict.fromkeys(known))[:20000])
    return ValueError(f"there is no {what} {name!r}{near}")
