"""callgrind's format: costs by function, and costs of calls between functions by line."""

from __future__ import annotations

from collections import defaultdict
from typing import IO, TYPE_CHECKING

import numpy as np

from .. import _core
from .._words import escaped
from ._tree import Tree, add_up
from ._view import intern, utf8

if TYPE_CHECKING:
    from . import Options
    from ._view import View

_EVENTS = {"waited": "Waited", "allocated": "Allocated", "blocks": "Blocks"}

_MEANINGS = {
    "waited": "Nanoseconds in which another thread had the interpreter's lock",
    "allocated": "Bytes allocated",
    "blocks": "Blocks allocated",
}


#: Stands for the caller of outermost calls, which was not recorded.
_OUTSIDE = -1


def write(view: View, out: IO[bytes], options: Options) -> None:
    """Write ns, ns waited for the interpreter's lock, allocated bytes and blocks.

    Some readers compute the inclusive cost of a function as its own cost plus the costs of the
    calls that it made, others as the costs of the calls of it. Both are right, except for functions
    that call each other in turn: those have the first sum. So a function that calls itself does
    it at no cost, and an inner call of a recursion is without the function's own cost.
    """
    tree = Tree(view, sites=True)
    figures = tree.own(*_EVENTS)
    costs = [tree.self, *figures.values()]
    function, inner = tree.function, tree.parent >= 0
    caller = np.where(inner, function[tree.parent], _OUTSIDE)
    edge, of_edge = intern([caller, function, np.where(inner, tree.line, 0)])
    calls = add_up(len(of_edge[0]), edge, tree.calls)
    first = tree.first_of(function)
    # The outermost of the calls that directly call themselves.
    outer, through = (
        np.frombuffer(found, np.int32)
        for found in _core.recursion(tree.parent, function, first.view(np.uint8))
    )
    counts = np.flatnonzero(~inner | ((caller != function) & first[outer[tree.parent]]))
    # The function has this own cost already: take it out of the outermost call's cost.
    again = np.flatnonzero(through >= 0)
    of_edges, of_functions = [], []
    for cost in costs:
        of_functions.append(add_up(len(view.names), function, cost))
        of_edges.append(
            add_up(len(calls), edge[counts], tree.inclusive(cost)[counts])
            - add_up(len(calls), edge[through[again]], cost[again])
        )
    own = {row: [cost[row] for cost in of_functions] for row in np.unique(function).tolist()}
    called = np.unique(of_edge[1][of_edge[0] != _OUTSIDE])
    edges: dict[int, list[list[int]]] = defaultdict(list)
    shown = (of_edge[0] != _OUTSIDE) | np.isin(of_edge[1], called)
    columns = np.stack([*of_edge, calls, *of_edges])[:, shown]
    for above, *rest in columns.T.tolist():
        edges[above].append(rest)
    if _OUTSIDE in edges:
        own[_OUTSIDE] = [0 for _ in costs]
    _write(view, out, list(figures), own, edges)


def _write(
    view: View,
    out: IO[bytes],
    words: list[str],
    own: dict[int, list[int]],
    edges: dict[int, list[list[int]]],
) -> None:
    events = " ".join(["ns", *(_EVENTS[word] for word in words)])
    total = [sum(costs) for costs in zip(*own.values(), strict=True)] or [0] * (1 + len(words))
    lines = [
        "# callgrind format",
        "version: 1",
        "creator: eventprof",
        f"pid: {view.process}",
        f"cmd: {view.title}",
        *([f"desc: Loss: {view.loss}"] if view.loss else []),
        "positions: line",
        "event: ns : Nanoseconds",
        *(f"event: {_EVENTS[word]} : {_MEANINGS[word]}" for word in words),
        f"events: {events}",
        f"summary: {_join(total)}",
    ]
    names = [*(_name(view, row) for row in range(len(view.names))), "(not recorded)"]
    files = [*(escaped(file) if file is not None else "~" for file in view.files), "~"]
    starts = [*(line or 0 for line in view.first_lines), 0]
    for row, cost in own.items():
        lines += ["", f"fl={files[row]}", f"fn={names[row]}", f"{starts[row]} {_join(cost)}"]
        for callee, line, calls, *through in edges[row]:
            first_line = line if line >= 0 else starts[row]
            lines += [
                f"cfi={files[callee]}",
                f"cfn={names[callee]}",
                # Calls that were open at the begin are not counted. Without a call, readers take
                # the cost for the caller's own.
                f"calls={max(calls, 1)} {starts[callee]}",
                f"{first_line} {_join(through)}",
            ]
    out.write(utf8("\n".join([*lines, "", f"totals: {_join(total)}", ""])))


def _name(view: View, row: int) -> str:
    # Readers take "(1) name" for a numbered name, and spaces alone for no name.
    name = escaped(view.names[row])
    if name.isspace():
        return name.replace(" ", "\\x20")
    return f" {name}" if name.startswith("(") and not name.startswith("(unknown)") else name


def _join(costs: list[int]) -> str:
    return " ".join(map(str, costs))
