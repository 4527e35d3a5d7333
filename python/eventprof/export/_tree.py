"""The calling-context tree of the exported calls.

The tree comes from the core's fold, which reads the recording once, in memory for the nodes and the
live blocks. Only where calls are cut off at two times is it made from the table of calls.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .. import _core
from ..answers.tree import OUTSIDE
from ._view import intern, parts_of_rows

if TYPE_CHECKING:
    from ..tables.column import Array
    from ._view import View

_OPEN_BEFORE = 1  # flag of a call that was open when the window began
#: Memory figures of a node without its children.
MEMORY = ("allocated", "blocks", "at_peak", "live")


class _Nodes(NamedTuple):
    """Nodes before merging: siblings may have the same function and line."""

    parent: Array
    function: Array
    line: Array
    thread: Array
    figures: dict[str, Array]


class Tree:
    """The tree. A node is a function below its parent; with `sites`, called from one line.

    Parameters
    ----------
    view : View
        The calls.
    sites : bool
        Calls from different lines are different nodes.
    threads : bool
        Calls of different threads are different nodes, if there are several.

    Attributes
    ----------
    parent : array of int32
        The parent of each node; -1: none. Parents come before their children.
    function, line, thread : array of int32
        Of each node the function (the last of the view's names stands for unknown), the line of
        the call and the thread. -1: unknown, or not asked for.

    Notes
    -----
    Blocks that were allocated outside all calls belong to an outermost node of the function that
    was executing; such a node has no calls. With filters these blocks are left out.
    """

    def __init__(self, view: View, *, sites: bool = False, threads: bool = False) -> None:
        nodes = _nodes(view, sites, threads)
        threads = threads and len(view.thread_names) > 1
        columns = [np.where(nodes.function < 0, len(view.names) - 1, nodes.function)]
        columns += [nodes.line] if sites else []
        columns += [nodes.thread] if threads else []
        node, self.parent, found = fold(nodes.parent, columns)
        self.function: Array = found[0]
        unknown = np.full(len(self), -1, np.int32)
        self.line: Array = found[1] if sites else unknown
        self.thread: Array = found[-1] if threads else unknown
        self._figures = {
            name: add_up(len(self), node, values) for name, values in nodes.figures.items()
        }

    def __len__(self) -> int:
        return len(self.parent)

    @property
    def calls(self) -> Array:
        """Calls and resumes of each node that began in the window."""
        return self._figures["calls"]

    @property
    def self(self) -> Array:
        """Time of each node without its children, in ns."""
        return self._figures["self"]

    def own(self, *names: str) -> dict[str, Array]:
        """Return figures of the nodes without their children; figures not recorded are left out.

        Parameters
        ----------
        *names : str
            ``waited`` (ns; needs several threads and the interpreter's lock), or of `MEMORY`.
        """
        return {name: self._figures[name] for name in names if name in self._figures}

    def weigh(self, weight: str) -> Array:
        """Return a figure of the nodes without their children.

        Parameters
        ----------
        weight : str
            One of `export.WEIGHTS`.

        Raises
        ------
        ValueError
            It was not recorded.
        """
        found = self._figures.get(weight)
        if found is None:
            lacks = "several threads and a lock" if weight == "waited" else "allocations"
            raise ValueError(f"weight: {weight} needs {lacks}, which were not recorded")
        return found

    @cached_property
    def _parents(self) -> Array:
        """Parents as the core wants them: node 0 is the parent of all outermost nodes."""
        return np.concatenate([[0], self.parent + 1]).astype(np.uint32)

    def inclusive(self, own: Array) -> Array:
        """Add to each node the figures of all nodes below it."""
        values = np.concatenate([[0], own]).astype(np.int64)
        below: Array = _core.tree_below(self._parents, values)[1:]
        return below

    def first_of(self, keys: Array) -> Array:
        """Return a mask of the nodes that have no ancestor with the same key."""
        of_all = np.concatenate([[-1], keys]).astype(np.int32)
        found: Array = _core.tree_outermost(self._parents, of_all)[1:].astype(bool)
        return found


def fold(
    parent: Array, columns: list[Array], *, overwrite: bool = False
) -> tuple[Array, Array, list[Array]]:
    """Merge rows that have the same parent node and the same values into one node.

    Parameters
    ----------
    parent : array of int32
        The parent row of each row; -1: none. Parents come before their children.
    columns : list of array of int32
        Rows with different values become different nodes. The list is emptied, so that columns
        that nobody else has are freed before the nodes need memory.
    overwrite : bool
        The last column may be written over; see `intern`.

    Returns
    -------
    array of int32, array of int32, list of arrays of int32
        The node of each row; the parent of each node; the columns by node.
    """
    columns[:] = [column.astype(np.int32, copy=False) for column in columns]
    key, distinct = intern(columns, overwrite=overwrite)
    columns.clear()
    node, above, keys = _core.fold_calls(np.ascontiguousarray(parent, np.int32), key)
    found = np.frombuffer(keys, np.int32)
    return (
        np.frombuffer(node, np.int32),
        np.frombuffer(above, np.int32),
        [column[found] for column in distinct],
    )


def add_up(count: int, node: Array, weights: Array) -> Array:
    """Sum int64 weights by node; exact."""
    sums = np.zeros(count, np.int64)
    for rows in parts_of_rows(len(node)):
        np.add.at(sums, node[rows], weights[rows])
    return sums


def _nodes(view: View, sites: bool, threads: bool) -> _Nodes:
    """Return the nodes of the chosen calls, which need not be distinct."""
    if view.between is not None:
        return _of_calls(view, sites, threads)
    by_thread = threads or view.chosen or bool(view.trace._tree.facts["folded"])
    tree = view.trace._thread_tree if by_thread else view.trace._tree
    figures = {
        "calls": tree.own("calls") + tree.own("resumes"),
        "self": tree.own("self"),
        **({"waited": tree.own("waited_self")} if view.has_waited else {}),
        **({name: tree.own(name) for name in MEMORY} if view.has_memory else {}),
    }
    above = 1 + (len(tree.threads["in_calls"]) if by_thread else 0)
    nodes = _Nodes(
        np.maximum(tree.parent[above:].astype(np.int64) - above, -1).astype(np.int32),
        tree.function[above:],
        tree.line[above:],
        _threads_of(tree.parent, above) if by_thread else np.full(tree.count - 1, -1, np.int32),
        {name: values[above:] for name, values in figures.items()},
    )
    if not by_thread:
        return nodes
    if view.chosen:
        return _choose(view, nodes)
    if len(view.thread_names) > 1:
        return _outside_last(nodes)
    return nodes._replace(line=np.maximum(nodes.line, -1))


def _threads_of(parent: Array, above: int) -> Array:
    """Return the thread of each node from row `above` on; rows 1 to above - 1 are threads."""
    thread = parent.astype(np.int32)
    thread[:above] = np.arange(above)
    while True:  # each round looks twice as far up
        further = thread[thread]
        if np.array_equal(further, thread):
            return thread[above:] - 1
        thread = further


def _outside_last(nodes: _Nodes) -> _Nodes:
    """Put nodes of blocks outside all calls last, in order of functions; they have no line."""
    outside = nodes.line == OUTSIDE
    rows = np.flatnonzero(outside & (nodes.figures.get("blocks", outside) > 0))
    rows = rows[np.lexsort((nodes.thread[rows], nodes.function[rows]))]
    order = np.concatenate([np.flatnonzero(~outside), rows])
    number_of = np.full(len(outside) + 1, -1, np.int32)
    number_of[order] = np.arange(len(order), dtype=np.int32)
    return _Nodes(
        number_of[nodes.parent[order]],
        nodes.function[order],
        np.maximum(nodes.line[order], -1),
        nodes.thread[order],
        {name: values[order] for name, values in nodes.figures.items()},
    )


def _choose(view: View, nodes: _Nodes) -> _Nodes:
    """Keep the chosen nodes. Others, but for their calls, count for the nearest one above."""
    keep = nodes.line != OUTSIDE
    keep &= view.keep_nodes(nodes.function, nodes.parent, nodes.thread)
    rows = np.flatnonzero(keep)
    parent = np.ascontiguousarray(nodes.parent, np.int32)
    of_node = _core.number_marked_calls(parent, keep)
    around = parent[rows]
    above = np.where(around < 0, np.int32(-1), of_node[np.maximum(around, 0)])
    known = of_node >= 0
    figures = {
        name: values[rows] if name == "calls" else add_up(len(rows), of_node[known], values[known])
        for name, values in nodes.figures.items()
    }
    return _Nodes(above, nodes.function[rows], nodes.line[rows], nodes.thread[rows], figures)


def _of_calls(view: View, sites: bool, threads: bool) -> _Nodes:
    """Make nodes from the table of calls, which are cut off at two times."""
    columns = [view.function]
    columns += [view.line] if sites else []
    columns += [view.thread] if threads else []
    node, parent, found = fold(view.parent, columns)
    count = len(parent)
    calls, flags = np.zeros(count, np.int64), view.take("flags")
    for rows in parts_of_rows(len(view)):
        np.add.at(calls, node[rows][flags[rows] & _OPEN_BEFORE == 0], 1)
    figures = {
        "calls": calls,
        "self": add_up(count, node, view.own_times()),
    }
    if view.has_waited:
        figures["waited"] = add_up(count, node, view.own_waited())
    if view.has_memory:
        allocated, _, blocks = view.memory
        live, at_peak = view.living
        for name, values in zip(MEMORY, (allocated, blocks, at_peak, live), strict=True):
            figures[name] = add_up(count, node, values)
    unknown = np.full(count, -1, np.int32)
    return _Nodes(
        parent,
        found[0],
        found[1] if sites else unknown,
        found[-1] if threads else unknown,
        figures,
    )
