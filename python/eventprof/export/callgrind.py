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


def write(view: View, out: IO[bytes], options: Options) -> None:
    """Write ns, ns waited for the interpreter's lock, allocated bytes and blocks.

    Readers compute the inclusive cost of a function as its own cost plus the costs of the calls
    that it made. So the cost of a call inside a recursion is without the function's own cost, which
    would count twice.
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
    first = tree.first_of_function()

    def edge(node: int) -> list[Any]:
        caller = function[parents[node]]
        known = edges[caller].setdefault((function[node], lines[node]), [0, 0])
        return known

    for node, parent in enumerate(parents):
        own[function[node]] += costs[node]
        if parent < 0:
            continue
        found = edge(node)
        found[0] += calls[node]
        if first[parent]:
            found[1] = found[1] + inclusive[node]
        if not first[node]:
            # The function has this own cost already: take it out of the outermost call's cost.
            step = node
            while not (function[parents[step]] == function[node] and first[parents[step]]):
                step = parents[step]
            through = edge(step)
            through[1] = through[1] - costs[node]
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
    names = [_name(view, row) for row in range(len(view.names))]
    files = [one_line(file) if file is not None else "~" for file in view.files]
    starts = [line or 0 for line in view.first_lines]
    for row, cost in own.items():
        lines += ["", f"fl={files[row]}", f"fn={names[row]}", f"{starts[row]} {_join(cost)}"]
        for (callee, line), (calls, through) in edges[row].items():
            at = line if line >= 0 else starts[row]
            if isinstance(through, int):  # all of them are calls inside a recursion
                through = np.zeros(1 + len(words), np.int64)
            lines += [
                f"cfi={files[callee]}",
                f"cfn={names[callee]}",
                f"calls={calls} {starts[callee]}",
                f"{at} {_join(through)}",
            ]
    out.write(utf8("\n".join([*lines, "", f"totals: {_join(total)}", ""])))


def _name(view: View, row: int) -> str:
    # Readers take "(1) name" for a numbered name.
    name = one_line(view.names[row])
    return f" {name}" if name.startswith("(") and not name.startswith("(unknown)") else name


def _join(costs: Any) -> str:
    return " ".join(str(cost) for cost in costs.tolist())
