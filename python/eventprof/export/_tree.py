"""The calling-context tree of what is exported: the one place that knows how it is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import _core
from ._view import intern

if TYPE_CHECKING:
    from ..trace.column import Array
    from ._view import View

_RESUME, _THROW = 4, 5


class Tree:
    """A node is a function under its parent: called from one line, if `sites` are told apart.

    Parameters
    ----------
    view : View
        The calls.
    sites : bool
        Tell calls from different lines apart.
    threads : bool
        Tell threads apart.

    Attributes
    ----------
    parent : array of int32
        Of each node; -1: outermost. Parents come before their children.
    function, line, thread : array of int32
        Of each node: the function, the line that called it, the thread; -1: unknown, or not told
        apart.
    calls, resumes, total, self : array of int64
        Of each node; times in ns.
    """

    def __init__(self, view: View, *, sites: bool = False, threads: bool = False) -> None:
        self._view = view
        columns = [view.function]
        if sites:
            columns.append(view.line)
        if threads:
            columns.append(view.thread)
        key, self._keys = intern(columns)
        node, parent, keys = _core.fold_calls(view.parent, key)
        self._node = np.frombuffer(node, np.int32)
        self.parent: Array = np.frombuffer(parent, np.int32)
        found = np.frombuffer(keys, np.int32)
        self.function: Array = self._keys[0][found]
        unknown = np.full(len(found), -1, np.int32)
        self.line: Array = self._keys[1][found] if sites else unknown
        self.thread: Array = self._keys[-1][found] if threads else unknown
        kind = view.take("kind")
        slices = (kind == _RESUME) | (kind == _THROW)
        begun = view.take("flags") & 1 == 0  # in the window
        self.calls: Array = self._count(~slices & begun)
        self.resumes: Array = self._count(slices & begun)
        self.self: Array = self.sum(view.own_times())

    def __len__(self) -> int:
        return len(self.parent)

    def _count(self, mask: Array) -> Array:
        return np.bincount(self._node[mask], minlength=len(self)).astype(np.int64)

    def sum(self, weights: Array) -> Array:
        """Sum int64 weights of calls by node; exact."""
        order = np.zeros(len(self), np.int64)
        np.add.at(order, self._node, weights)
        return order

    def inclusive(self, own: Array) -> Array:
        """Sum what nodes have themselves with what is below them."""
        total: Array = own.copy()
        # By depth, the deepest first: nodes of one depth have no parents among each other.
        depth = self.depth
        order = np.argsort(-depth, kind="stable")
        bounds = np.flatnonzero(np.diff(depth[order])) + 1
        for nodes in np.split(order, bounds):
            above = self.parent[nodes]
            inner = above >= 0
            np.add.at(total, above[inner], total[nodes[inner]])
        return total

    @property
    def depth(self) -> Array:
        """How many nodes enclose each."""
        parent = self.parent.tolist()
        depth = [0] * len(parent)
        for node, above in enumerate(parent):
            if above >= 0:
                depth[node] = depth[above] + 1
        return np.array(depth, np.int32)

    def first_of_function(self) -> Array:
        """Give a mask of the nodes with no node of the same function around them."""
        parent, function = self.parent.tolist(), self.function.tolist()
        first = np.ones(len(parent), bool)
        for node, above in enumerate(parent):
            while above >= 0:
                if function[above] == function[node]:
                    first[node] = False
                    break
                above = parent[above]
        return first

    def memory(self) -> dict[str, Array]:
        """Give bytes and blocks of each node itself, by word; empty if none were recorded."""
        if not self._view.has_memory:
            return {}
        allocated, freed, blocks = self._view.memory
        live, at_peak = self._view.living
        return {
            "allocated": self.sum(allocated),
            "freed": self.sum(freed),
            "blocks": self.sum(blocks),
            "at_peak": self.sum(at_peak),
            "live": self.sum(live),
        }
