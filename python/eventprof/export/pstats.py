"""pstats' files, as cProfile writes them: functions and their callers."""

from __future__ import annotations

import marshal
from collections import defaultdict
from typing import IO, TYPE_CHECKING, Any

from ._tree import Tree
from ._view import one_line

if TYPE_CHECKING:
    from . import Options
    from ._view import View

_Key = tuple[str, int, str]


def write(view: View, out: IO[bytes], options: Options) -> None:
    """Write calls, primitive calls, own and total seconds, by function and by caller."""
    tree = Tree(view)
    keys = keys_of(view)
    functions: dict[_Key, list[Any]] = {}
    callers: dict[_Key, dict[_Key, list[Any]]] = defaultdict(dict)
    inclusive = tree.inclusive(tree.self).tolist()
    rows = zip(
        tree.parent.tolist(),
        tree.function.tolist(),
        tree.calls.tolist(),
        tree.self.tolist(),
        strict=True,
    )
    paths: list[frozenset[Any]] = []
    for node, (parent, row, calls, own) in enumerate(rows):
        key = keys[row]
        above = paths[parent] if parent >= 0 else frozenset()
        edge = (keys[tree.function[parent]], key) if parent >= 0 else None
        _add(functions, key, calls, own, inclusive[node], key not in above)
        if edge is not None:
            _add(callers[key], edge[0], calls, own, inclusive[node], edge not in above)
        grown = {key, edge} - above
        paths.append(above | grown if grown else above)
    stats = {
        # For callers all calls come before primitive calls, as in cProfile's files.
        key: (
            *_row(found),
            {
                caller: (calls, primitive, own, total)
                for caller, (primitive, calls, own, total) in (
                    (caller, _row(of)) for caller, of in callers[key].items()
                )
            },
        )
        for key, found in functions.items()
    }
    out.write(marshal.dumps(stats))
    if view.has_memory:
        options.notes.append("pstats has no memory")


def keys_of(view: View) -> list[_Key]:
    """Give pstats' key of each function: file, line, name. pstats prints them to a terminal."""
    table = view.trace.functions
    keys = []
    for row, name in enumerate([*table["name"], None]):
        file = view.files[row]
        if file is None:
            keys.append(("~", 0, one_line(view.names[row])))
        else:
            shown = one_line(name or "(unknown)")
            keys.append((one_line(file), view.first_lines[row] or 0, shown))
    return keys


def _add(
    into: dict[_Key, list[Any]], key: _Key, calls: int, own: int, total: int, first: bool
) -> None:
    found = into.setdefault(key, [0, 0, 0, 0])
    found[1] += calls
    found[2] += own
    if first:  # not inside a call of the same function
        found[0] += calls
        found[3] += total


def _row(found: list[Any]) -> tuple[int, int, float, float]:
    return found[0], found[1], found[2] / 1e9, found[3] / 1e9
