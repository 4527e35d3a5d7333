"""callgrind's format: costs by function, and costs of calls between functions by line."""

from __future__ import annotations

from collections import defaultdict
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from ._tree import Tree
from ._view import one_line, utf8

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
    words = list(figures)
    costs = np.stack([tree.self, *figures.values()], axis=1)
    own: dict[int, Any] = defaultdict(lambda: np.zeros(costs.shape[1], np.int64))
    # (caller, callee, line) -> calls and inclusive costs
    edges: dict[int, dict[tuple[int, int], list[Any]]] = defaultdict(dict)
    inclusive = np.stack([tree.inclusive(c) for c in np.ascontiguousarray(costs.T)], axis=1)
    function, parents, lines = tree.function.tolist(), tree.parent.tolist(), tree.line.tolist()
    calls = tree.calls.tolist()
    first = tree.first_of(tree.function)
    # The outermost of the calls that directly call themselves.
    outer: list[int] = []
    outside: dict[int, list[Any]] = {}

    def edge(node: int) -> list[Any]:
        caller = function[parents[node]]
        known = edges[caller].setdefault((function[node], lines[node]), [0, 0])
        return known

    for node, parent in enumerate(parents):
        own[function[node]] += costs[node]
        again = parent >= 0 and function[parent] == function[node]
        outer.append(outer[parent] if again else node)
        found = outside.setdefault(function[node], [0, 0]) if parent < 0 else edge(node)
        found[0] += calls[node]
        if not again and (parent < 0 or first[outer[parent]]):
            found[1] = found[1] + inclusive[node]
        if not first[outer[node]]:
            # The function has this own cost already: take it out of the outermost call's cost.
            step = outer[node]
            while not (function[parents[step]] == function[node] and first[outer[parents[step]]]):
                step = parents[step]
            through = edge(step)
            through[1] = through[1] - costs[node]
    called = {callee for of in edges.values() for callee, _ in of}
    known = {(row, 0): found for row, found in outside.items() if row in called}
    if known:
        own[_OUTSIDE] += 0
        edges[_OUTSIDE] = known
    _write(view, out, words, own, edges)


def _write(view: View, out: IO[bytes], words: list[str], own: Any, edges: Any) -> None:
    events = " ".join(["ns", *(_EVENTS[word] for word in words)])
    total = sum(own.values(), start=np.zeros(1 + len(words), np.int64))
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
    files = [*(one_line(file) if file is not None else "~" for file in view.files), "~"]
    starts = [*(line or 0 for line in view.first_lines), 0]
    for row, cost in own.items():
        lines += ["", f"fl={files[row]}", f"fn={names[row]}", f"{starts[row]} {_join(cost)}"]
        for (callee, line), (calls, through) in edges[row].items():
            at = line if line >= 0 else starts[row]
            if isinstance(through, int):  # all of them are calls inside a recursion
                through = np.zeros(1 + len(words), np.int64)
            lines += [
                f"cfi={files[callee]}",
                f"cfn={names[callee]}",
                # Calls that were open at the begin are not counted. Without a call, readers take
                # the cost for the caller's own.
                f"calls={max(calls, 1)} {starts[callee]}",
                f"{at} {_join(through)}",
            ]
    out.write(utf8("\n".join([*lines, "", f"totals: {_join(total)}", ""])))


def _name(view: View, row: int) -> str:
    # Readers take "(1) name" for a numbered name, and spaces alone for no name.
    name = one_line(view.names[row])
    if name.isspace():
        return name.replace(" ", "\\x20")
    return f" {name}" if name.startswith("(") and not name.startswith("(unknown)") else name


def _join(costs: Any) -> str:
    return " ".join(str(cost) for cost in costs.tolist())
