"""Add the trees of several recordings: of a program's processes, or of several runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._core import WAIT_WORDS
from ..tables.column import Array
from .tree import Tree

#: The two figures of a node that are not added; all other figures are.
_LONGEST, _SHORTEST = "longest", "shortest"


class AddedTree(Tree):
    """The trees of several recordings, added by path of calls.

    Parameters
    ----------
    trees : sequence of Tree
        At least one; none of them changes.

    Notes
    -----
    Two functions are the same if their names, modules, files, lines and kinds are equal. A node has
    the sums of the nodes on the same path, and the longest and the shortest call of all. The
    recordings need no common clock. So the peak is the sum of their peaks: an upper bound of what
    they held together at one instant. `at_peak` of a node is the sum of what it held at the peak of
    each recording. `eventprof.merge` gives the exact peak of recordings with a common clock.
    ``peak_time`` is -1, and `live_bins` is not available.
    """

    def __init__(self, trees: Sequence[Tree]) -> None:
        if not trees:
            raise ValueError("AddedTree takes one tree at least")
        self._core = trees[0]._core
        self._trees = trees
        self._below: dict[str, Array] = {}
        self.has_lock = all(tree.has_lock for tree in trees)
        self.has_waits = all(tree.has_waits for tree in trees)
        self.functions, to = _common_functions(trees)
        self._add_nodes(to)
        self.facts = {name: sum(tree.facts[name] for tree in trees) for name in trees[0].facts}
        self.facts["peak_time"] = -1
        self.domains_at_peak = _sums(tree.domains_at_peak for tree in trees)
        self.domains_allocated = _sums(tree.domains_allocated for tree in trees)
        self.threads = {
            name: np.concatenate([tree.threads[name] for tree in trees])
            for name in trees[0].threads
        }

    def _add_nodes(self, to: list[Array]) -> None:
        """Add the nodes and leaves of the same path; ``to[tree][function]`` is the common row."""
        places: list[tuple[int, int, int, int]] = [(0, -1, -1, -1)]
        known: dict[tuple[int, int, int, int], int] = {}
        leaves: dict[tuple[int, int, int], int] = {}
        of_nodes, of_leaves = [], []
        for tree, function_to in zip(self._trees, to, strict=True):
            rows = [0]
            columns = tree.parent, function_to[tree.function], function_to[tree.caller], tree.line
            paths = zip(*(column.tolist() for column in columns), strict=True)
            for node, (parent, *place) in enumerate(paths):
                if node:
                    key = (rows[parent], *place)
                    row = known.setdefault(key, len(places))
                    if row == len(places):
                        places.append(key)
                    rows.append(row)
            of_nodes.append(np.array(rows))
            lines = zip(tree.leaf_node.tolist(), function_to[tree.leaf_function].tolist(),
                        tree.leaf_line.tolist(), strict=True)  # fmt: skip
            leaf_of = [leaves.setdefault((rows[node], *line), len(leaves)) for node, *line in lines]
            of_leaves.append(np.array(leaf_of, dtype=np.int64))
        table = np.array(places, dtype=np.int64)
        self.count = len(table)
        self.parent = table[:, 0].astype(np.uint32)
        self.function, self.caller, self.line = table[:, 1:].T.astype(np.int32)
        keys = np.array(list(leaves), dtype=np.int64).reshape(-1, 3)
        self.leaf_node = keys[:, 0].astype(np.uint32)
        self.leaf_function, self.leaf_line = keys[:, 1:].T.astype(np.int32)
        self.nodes = {
            name: _added(name, self.count, of_nodes, [tree.own(name) for tree in self._trees])
            for name in {**self._trees[0].nodes, "blocked": None, "lock_waited": None}
            if name not in ("parent", "place")
        }
        self.node_waits = {
            word: _added(
                word,
                self.count,
                [
                    rows[: len(tree.node_waits[word])]
                    for rows, tree in zip(of_nodes, self._trees, strict=True)
                ],
                [tree.node_waits[word] for tree in self._trees],
            )
            for word in WAIT_WORDS
        }
        self.leaves = {
            name: _added(name, len(keys), of_leaves, [tree.leaves[name] for tree in self._trees])
            for name in self._trees[0].leaves
            if name not in ("node", "place")
        }

    def live_bins(self, count: int) -> tuple[Array, Array]:
        """Raise ValueError: the recordings have no common clock."""
        raise ValueError(
            "trees of several recordings that are added have no common time; eventprof.merge() "
            "gives one"
        )


def _common_functions(
    trees: Sequence[Tree],
) -> tuple[list[tuple[str | None, str | None, str | None, int | None, str]], list[Array]]:
    """Return the functions of all trees, and for each tree the rows that its functions have there.

    Each array of rows ends with -2 and -1, so that the indexes -2 (other) and -1 (unknown) map to
    themselves.
    """
    known: dict[Any, int] = {}
    to = []
    for tree in trees:
        rows = [known.setdefault(tuple(row), len(known)) for row in tree.functions]
        to.append(np.array([*rows, -2, -1], dtype=np.int32))
    return list(known), to


def _added(name: str, count: int, rows: list[Array], values: list[Array]) -> Array:
    """Add one figure of all trees; ``rows[tree][node]`` is the node's row in the sum."""
    if name == _SHORTEST:
        none = np.iinfo(np.int64).max
        smallest = np.full(count, none, dtype=np.int64)
        for place, figures in zip(rows, values, strict=True):
            np.minimum.at(smallest, place, np.where(figures < 0, none, figures))
        return np.where(smallest == none, -1, smallest)
    result = np.full(count, -1 if name == _LONGEST else 0, dtype=np.int64)
    put = np.maximum.at if name == _LONGEST else np.add.at
    for place, figures in zip(rows, values, strict=True):
        put(result, place, figures)
    return result


def _sums(parts: Any) -> tuple[int, ...]:
    """Add tuples of the same length."""
    return tuple(map(sum, zip(*parts, strict=True)))
