"""What a test called and allocated, counted from its trace.

An *owner* is a Python function that is not in the standard library. Only calls that owners make are
counted. What happens inside of the standard library depends on more than the program: the length of
a path, a signal handler, the patch release. So calls inside of it are not counted, and its memory
counts for the line of the owner that called it. Nothing that pytest and its plugins do is counted.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .. import _core
from ..answers.own import Row as Function
from ..answers.own import find_areas
from .limits import COUNTS

if TYPE_CHECKING:
    from ..trace import Trace

#: What a line of an owner did: ``(callee, calls, 1 if the callee is not in Python, else 0, 0)`` for
#: calls, and ``("", bytes, blocks, bytes that were not freed)`` for memory.
Row = tuple[str, int, int, int]
#: File and line.
Place = tuple[str, int]


@dataclass
class Counts:
    """The counts of one run.

    Parameters
    ----------
    sums : dict of str to int
        The sums of the run, by the words of COUNTS.
    functions : dict of str to list of Row
        The rows of each owner, in the order of its lines.
    places : dict of str to list of Place
        The place of each of these rows.
    lost : int
        The number of lost events; if it is not 0, the counts are too small.
    """

    sums: dict[str, int] = field(default_factory=dict)
    functions: dict[str, list[Row]] = field(default_factory=dict)
    places: dict[str, list[Place]] = field(default_factory=dict)
    lost: int = 0


_OTHER, _OWNER, _TOOL = 0, 1, 2
#: The row of an owner in `functions`, and a line of it.
_Line = tuple[int, int]


_INSTALLED, _STDLIB, _MADE, _NATIVE = map(
    _core.AREAS.index, ("installed", "stdlib", "other", "native")
)


def _kinds(functions: list[Function], tools: Iterable[str]) -> list[int]:
    """Return which functions are owners, and which belong to pytest and its plugins."""
    tools = tuple(f"{tool}." for tool in tools)
    kinds = []
    for function, area in zip(functions, find_areas(functions).tolist(), strict=True):
        if area in (_INSTALLED, _MADE) and f"{function[1]}.".startswith(tools):
            kinds.append(_TOOL)
        else:
            kinds.append(_OTHER if area >= _NATIVE or area == _STDLIB else _OWNER)
    return kinds


def name_of(function: Function) -> str:
    """Name a function by its module and its qualified name."""
    name, module, file, _, _ = function
    if module is None and file is not None:
        module = os.path.basename(file)
    return f"{module}.{name}" if module not in (None, "builtins") else str(name)


def count(trace: Trace, tools: Iterable[str] = ()) -> Counts:
    """Count what a trace recorded.

    Parameters
    ----------
    trace : Trace
        The recording of one run.
    tools : iterable of str
        Modules whose functions are not counted, nor what these call.

    Returns
    -------
    Counts
        The counts of all owners.
    """
    tree = trace._tree
    functions = tree.functions
    names = [name_of(function) for function in functions]
    kind_of = _kinds(functions, tools)
    sums = dict.fromkeys(COUNTS, 0)
    owner = [-1] * tree.count  # of each node: the nearest owner around it or itself; -1: none
    through: list[_Line | None] = [None] * tree.count  # the call of that owner that it is inside of
    called: dict[tuple[int, int, str, bool], int] = defaultdict(int)
    nodes = zip(
        tree.parent.tolist(),
        tree.function.tolist(),
        tree.line.tolist(),
        tree.own("calls").tolist(),
        strict=True,
    )
    for node, (parent, row, line, calls) in enumerate(nodes):
        kind = kind_of[row] if row >= 0 else _OTHER
        caller, outer = owner[parent], through[parent]
        if kind == _TOOL or (kind == _OTHER and caller < 0):
            continue
        if kind == _OWNER:
            owner[node] = row
        else:
            owner[node] = caller
            if outer is not None:
                through[node] = outer
                continue
            through[node] = caller, line
        is_python = row >= 0 and functions[row][4] == "python"
        sums["calls" if is_python else "c_calls"] += calls
        if caller >= 0 and calls:
            callee = names[row] if row >= 0 else "(other)"
            called[caller, outer[1] if outer else line, callee, not is_python] += calls
    memory: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    leaves = zip(
        tree.leaf_node.tolist(),
        tree.leaf_line.tolist(),
        *(tree.leaves[name].tolist() for name in ("allocated", "blocks", "live", "at_peak")),
        strict=True,
    )
    for node, line, size, blocks, live, at_peak in leaves:
        if owner[node] < 0:
            continue
        for name, value in (("bytes", size), ("allocations", blocks), ("retained", live)):
            sums[name] += value
        sums["peak"] += at_peak
        outer = through[node]
        found = memory[owner[node], outer[1] if outer else line]
        for index, value in enumerate((size, blocks, live)):
            found[index] += value
    rows: dict[str, list[tuple[int, Row, str]]] = defaultdict(list)
    for (function, line, callee, is_c), number in called.items():
        row_of_call = (callee, number, int(is_c), 0)
        rows[names[function]].append((line, row_of_call, functions[function][2] or ""))
    for (function, line), (size, blocks, live) in memory.items():
        row_of_line = ("", size, blocks, live)
        rows[names[function]].append((line, row_of_line, functions[function][2] or ""))
    counts = Counts(sums, lost=trace.loss.total)
    for name in sorted(rows):
        ordered = sorted(rows[name])
        counts.functions[name] = [row for _, row, _ in ordered]
        counts.places[name] = [(file, line) for line, _, file in ordered]
    return counts
