"""pstats' files, as cProfile writes them: functions and their callers."""

from __future__ import annotations

import marshal
from collections import defaultdict
from typing import IO, TYPE_CHECKING

import numpy as np

from .._words import escaped
from ._tree import Tree
from ._view import intern

if TYPE_CHECKING:
    from ..tables.column import Array
    from . import Options
    from ._view import View

_Key = tuple[str, int, str]
_Row = tuple[int, int, float, float]


def write(view: View, out: IO[bytes], options: Options) -> None:
    """Write calls, primitive calls, own and total seconds, by function and by caller."""
    tree = Tree(view)
    keys = keys_of(view)
    # Several functions can have one key.
    numbers: dict[_Key, int] = {}
    number_of = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int32)
    key = number_of[tree.function]
    _, rows_of = _sums(tree, key)
    callers: dict[int, dict[_Key, _Row]] = defaultdict(dict)
    named = list(numbers)
    inner = tree.parent >= 0
    caller = np.where(inner, key[tree.parent], -1)
    edge, pairs = intern([caller, key])
    edges, rows_of_edge = _sums(tree, edge)
    for edge_row, (primitive, calls, own, total) in zip(edges.tolist(), rows_of_edge, strict=True):
        above, below = int(pairs[0][edge_row]), int(pairs[1][edge_row])
        if above >= 0:
            # Here all calls come before primitive calls, as in cProfile's files.
            callers[below][named[above]] = calls, primitive, own, total
    stats = {
        named[number]: (*row, callers[number])
        for number, row in zip(np.unique(key).tolist(), rows_of, strict=True)
    }
    out.write(marshal.dumps(stats))
    if view.has_memory:
        options.notes.append("pstats has no memory")


def keys_of(view: View) -> list[_Key]:
    """Return pstats' key of each function: file, line, name. pstats prints them to a terminal."""
    table = view.trace.functions
    keys = []
    for row, name in enumerate([*table["name"], None]):
        file = view.files[row]
        if file is None:
            keys.append(("~", 0, escaped(view.names[row])))
        else:
            shown = escaped(name or "(unknown)")
            keys.append((escaped(file), view.first_lines[row] or 0, shown))
    return keys


def _sums(tree: Tree, number: Array) -> tuple[Array, list[_Row]]:
    """Return the numbers and, for each, primitive calls, calls, own and total seconds."""
    distinct, place = np.unique(number, return_inverse=True)
    place = place.reshape(-1)
    first = tree.first_of(number)  # not inside a call with the same number
    sums = np.zeros((4, len(distinct)), np.int64)
    np.add.at(sums[0], place[first], tree.calls[first])
    np.add.at(sums[1], place, tree.calls)
    np.add.at(sums[2], place, tree.self)
    np.add.at(sums[3], place[first], tree.inclusive(tree.self)[first])
    return distinct, [
        (primitive, calls, own / 1e9, total / 1e9)
        for primitive, calls, own, total in zip(*sums.tolist(), strict=True)
    ]
