"""Ids that are equal in all recordings: 64-bit hashes of what they stand for.

No file needs the dictionary of another: rows of one function, or of one path of calls, have the
same id wherever they were recorded. Of a million paths two have the same id with a probability of
3e-8.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..answers.tree import Tree
    from ..tables.column import Array

#: The ids of an unknown function, and of a node "other", which stands for many small nodes.
UNKNOWN, OTHER = 0, 1
#: Of the root of all trees.
ROOT = 0


def text_id(*parts: str | int | None) -> int:
    """Hash texts and numbers to a signed 64-bit number, by BLAKE2b."""
    digest = hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def file_name(process: int) -> str:
    """Return the name of the files of a process: its id in 16 hexadecimal digits."""
    return f"{process & 0xFFFF_FFFF_FFFF_FFFF:016x}.parquet"


def function_ids(functions: list[tuple[Any, ...]]) -> Array:
    """Return the ids of functions: of name, module, file, first line and kind.

    Parameters
    ----------
    functions : list of tuple
        As `Tree.functions` has them.

    Returns
    -------
    array of int64
        One a function, and after them those of rows -2 (other) and -1 (unknown).
    """
    return np.array([*(text_id(*row) for row in functions), OTHER, UNKNOWN], dtype=np.int64)


def node_ids(tree: Tree, functions: Array) -> Array:
    """Return the ids of a tree's nodes: of the path of calls from the root.

    Parameters
    ----------
    tree : Tree
        Of a recording.
    functions : array of int64
        From `function_ids`.

    Returns
    -------
    array of int64
        The root's is `ROOT`. Functions that no name, file or line tells apart share their nodes.
    """
    place = _mixed(functions[tree.function].view(np.uint64))
    place = _mixed(place + functions[tree.caller].view(np.uint64))
    place = _mixed(place + tree.line.astype(np.int64).view(np.uint64))
    ids = np.zeros(tree.count, dtype=np.uint64)
    order = np.argsort(tree.depth, kind="stable")
    bounds = np.searchsorted(tree.depth[order], np.arange(1, int(tree.depth.max()) + 2))
    first = 1
    for last in bounds[1:].tolist():  # by depth: a parent's id comes before its children's
        rows = order[first:last]
        ids[rows] = _mixed(ids[tree.parent[rows]] + place[rows])
        first = last
    return ids.view(np.int64)


def _mixed(values: Array) -> Array:
    """Mix the bits of uint64 numbers: the finalizer of splitmix64 (Steele, Lea and Flood 2014)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = values ^ (values >> np.uint64(31))
    return mixed
