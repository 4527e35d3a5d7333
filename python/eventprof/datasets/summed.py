"""One tree of the trees of all recordings of a dataset."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..answers.tree import OTHER as OTHER_FUNCTION
from ..answers.tree import Tree
from .ids import OTHER, UNKNOWN
from .parts import LEAF_SUMS, NODE_SUMS


class SummedTree(Tree):
    """The trees of several recordings, added by path of calls.

    Parameters
    ----------
    nodes, leaves, names, threads : pyarrow.Table
        Rows of ``nodes`` and ``leaves``, added up by their ids; the functions' names; of each
        thread ``in_calls`` and ``allocated``.
    facts : dict of str to int
        Sums of the recordings' facts: ``peak``, ``live``, ``folded``.
    has_lock : bool
        Whether each of the interpreters had its lock.
    waits : dict of str to int, optional
        What threads waited for, in ns; None: not each of the recordings has waits.

    Notes
    -----
    As `AddedTree`: each recording has its peak at a time of its own, and the peak of the tree is
    the sum of these.
    """

    def __init__(
        self,
        nodes: Any,
        leaves: Any,
        names: Any,
        threads: Any,
        facts: dict[str, int],
        has_lock: bool,
        waits: dict[str, int] | None,
    ) -> None:
        self._below = {}
        self.has_lock = has_lock
        self.has_waits = waits is not None
        self.waits = waits or {}
        self.node_waits = {}  # not known by node
        self.facts = {**facts, "peak_time": -1}
        self.threads = {name: threads[name].to_numpy() for name in ("in_calls", "allocated")}
        self._set_names(names)
        self._set_nodes(nodes)
        self._set_leaves(leaves)

    def _set_names(self, names: Any) -> None:
        """Keep the functions, and their rows by id."""
        columns = ("name", "module", "file", "line", "kind")
        rows = list(zip(*(names[name].to_pylist() for name in columns), strict=True))
        ids = names["function"].to_numpy()
        order = np.argsort(ids, kind="stable")
        order = order[ids[order] != UNKNOWN]
        self._ids, self._rows = ids[order], np.arange(len(order))
        self.functions = [rows[row] for row in order.tolist()]

    def _row_of(self, ids: Any) -> Any:
        """Return the rows of functions by their ids: -2 other, -1 unknown."""
        places = np.minimum(np.searchsorted(self._ids, ids), max(len(self._ids) - 1, 0))
        found = np.full(len(ids), -1, dtype=np.int32)
        if len(self._ids):
            found = np.where(self._ids[places] == ids, self._rows[places], -1).astype(np.int32)
        return np.where(ids == OTHER, OTHER_FUNCTION, found).astype(np.int32)

    def _set_nodes(self, nodes: Any) -> None:
        ids, parents = nodes["node"].to_numpy(), nodes["parent"].to_numpy()
        depth = nodes["depth"].to_numpy()
        order = np.lexsort((ids, depth))  # parents before their children, the root first
        self._node_ids = ids[order]
        by_id = np.argsort(self._node_ids, kind="stable")
        self._by_id = by_id
        self.count = len(order)
        places = np.searchsorted(self._node_ids[by_id], parents[order])
        self.parent = by_id[places].astype(np.uint32)
        self.function = self._row_of(nodes["function"].to_numpy()[order])
        self.caller = self._row_of(nodes["caller"].to_numpy()[order])
        self.line = nodes["line"].to_numpy()[order].astype(np.int32)
        self.nodes = {name: nodes[name].to_numpy()[order] for name in NODE_SUMS}
        for name in ("longest", "shortest"):
            values = nodes[name].fill_null(-1).to_numpy()
            self.nodes[name] = values[order].astype(np.int64)

    def _set_leaves(self, leaves: Any) -> None:
        ids = leaves["node"].to_numpy()
        sorted_ids = self._node_ids[self._by_id]
        self.leaf_node = self._by_id[np.searchsorted(sorted_ids, ids)].astype(np.uint32)
        self.leaf_function = self._row_of(leaves["function"].to_numpy())
        self.leaf_line = leaves["line"].to_numpy().astype(np.int32)
        self.leaves = {name: leaves[name].to_numpy() for name in LEAF_SUMS}

    def live_bins(self, count: int) -> Any:
        """Raise: the recordings have no common time."""
        raise ValueError("the trees of a dataset have no common time; its table memory has each's")
