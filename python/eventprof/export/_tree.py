"""The calling-context tree of the exported calls.

Without filters the tree comes from the core's fold, which reads the recording once. With filters,
or with a tree for each thread, it is made from the table of calls.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .. import _core
from ._view import intern

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
        Calls of different threads are different nodes.

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
        from_fold = not view.chosen and not threads and not view.trace._tree.facts["folded"]
        nodes = _of_fold(view) if from_fold else _of_calls(view, sites, threads)
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
    np.add.at(sums, node, weights)
    return sums


def _of_fold(view: View) -> _Nodes:
    """Return the nodes of the core's fold without its root."""
    tree = view.trace._tree
    figures = {
        "calls": tree.own("calls") + tree.own("resumes"),
        "self": tree.own("self"),
        **({"waited": tree.own("waited_self")} if view.has_waited else {}),
        **({name: tree.own(name) for name in MEMORY} if view.has_memory else {}),
    }
    return _Nodes(
        tree.parent[1:].astype(np.int64) - 1,
        tree.function[1:],
        tree.line[1:],
        np.full(tree.count - 1, -1, np.int32),
        {name: values[1:] for name, values in figures.items()},
    )


def _of_calls(view: View, sites: bool, threads: bool) -> _Nodes:
    """Make nodes from the table of calls, and nodes for blocks outside all calls."""
    columns = [view.function]
    columns += [view.line] if sites else []
    columns += [view.thread] if threads else []
    node, parent, found = fold(view.parent, columns)
    count = len(parent)
    begun = view.take("flags") & _OPEN_BEFORE == 0
    figures = {
        "calls": np.bincount(node[begun], minlength=count).astype(np.int64),
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
    nodes = _Nodes(
        parent,
        found[0],
        found[1] if sites else unknown,
        found[-1] if threads else unknown,
        figures,
    )
    return nodes if view.chosen or not view.has_memory else _with_outside(view, nodes, threads)


def _with_outside(view: View, nodes: _Nodes, threads: bool) -> _Nodes:
    """Add outermost nodes for blocks that were allocated outside all calls."""
    load = view.trace._core.allocations
    rows = np.flatnonzero(load("call") < 0)
    functions, moments = np.unique(
        np.stack([load("function")[rows], load("thread")[rows] if threads else rows * 0 - 1]),
        axis=1,
        return_inverse=True,
    )
    moments = moments.reshape(-1)
    count = functions.shape[1]
    size = np.maximum(load("size")[rows], 0)
    figures = {
        "allocated": size,
        "blocks": np.ones(len(rows), np.int64),
        "at_peak": np.where(view.at_peak[rows], size, 0),
        "live": np.where(load("end")[rows] < 0, size, 0),
    }
    none = np.zeros(count, np.int64)
    sums = {name: add_up(count, moments, values) for name, values in figures.items()}
    unknown = np.full(count, -1, np.int32)
    return _Nodes(
        np.concatenate([nodes.parent, unknown]),
        np.concatenate([nodes.function, functions[0].astype(np.int32)]),
        np.concatenate([nodes.line, unknown]),
        np.concatenate([nodes.thread, functions[1].astype(np.int32)]),
        {
            name: np.concatenate([values, sums.get(name, none)])
            for name, values in nodes.figures.items()
        },
    )
