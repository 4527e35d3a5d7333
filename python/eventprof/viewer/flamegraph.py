"""The page with a flame graph alone: of one recording, or of two that are compared."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._words import plural, show_bytes, show_ns
from ..answers.own import find_areas
from ..answers.tree import OTHER, Tree
from .data import find_title, notes_of
from .page import assemble
from .picture import COLOURS, clean, fit
from .planes import compress

if TYPE_CHECKING:
    from ..tables.column import Array
    from ..trace import Trace

MODULES = (
    "state.js", "text.js", "colour.js", "lod.js", "unpack.js", "tree.js", "flame.js", "graph.js",
)  # fmt: skip
#: The most nodes of a page; of a recording with more nodes, the smallest become "other".
MOST_NODES = 60_000

#: The units: a word of the page and a figure of `Tree.own`.
UNITS = (
    ("self", "self"), ("waited", "waited_self"), ("calls", "calls"), ("allocated", "allocated"),
    ("blocks", "blocks"), ("at_peak", "at_peak"), ("live", "live"),
)  # fmt: skip
#: By unit: the figure of a node alone, and the one that is summed up with the nodes below it.
_FIGURES = {
    unit: (own, {"self": "total", "waited_self": "waited"}.get(own, own)) for unit, own in UNITS
}
_OF_MEMORY = {"allocated", "blocks", "at_peak", "live"}
_NOBODY = ("(unknown)", None, None, None, "python")
_OTHERS = ("other (many small calls)", None, None, None, "python")


class Stacks:
    """The stacks of one recording, or of two, in one tree: a node is a function below its caller.

    Functions of two recordings are the same if their names and modules are equal, whatever their
    files are called; without a module, if their names and files are. Their lines may differ.

    Parameters
    ----------
    traces : sequence of Trace
        One, or two: before and after.

    Attributes
    ----------
    functions : list of tuple
        Name, module, file, line and kind.
    parent, function : list of int
        One item for each node; node 0 is the root. Parents come before their children.
    values : dict of str to list of list of int
        By unit: a list for each recording, with the value of each node alone.
    table : dict of str to list of list of list of int
        By unit: for each recording, the value of each function alone, and with the calls inside.
        They are of the whole recordings, whose smallest nodes may be "other" here.
    """

    def __init__(self, traces: Sequence[Trace]) -> None:
        self.functions: list[tuple[Any, ...]] = []
        self.parent, self.function = [-1], [-1]
        units = [
            unit
            for unit in UNITS
            if (
                unit[0] not in _OF_MEMORY
                or any(each._tree.leaves["blocks"].any() for each in traces)
            )
            and (unit[0] != "waited" or any(each.has_lock for each in traces))
        ]
        self.values: dict[str, list[list[int]]] = {unit: [] for unit, _ in units}
        self._known: dict[Any, int] = {}
        self._alone = len(traces) == 1
        nodes: dict[tuple[int, int], int] = {}
        merged = []
        for trace in traces:
            tree = trace._tree
            if tree.count > MOST_NODES:
                tree = Tree(trace, MOST_NODES)
            merged.append((tree, self._merge(tree, nodes)))
        for tree, merged_at in merged:
            for unit, figure in units:
                sums = [0] * len(self.parent)
                if unit != "waited" or tree.has_lock:
                    for node, value in zip(merged_at, tree.own(figure).tolist(), strict=True):
                        sums[node] += value
                self.values[unit].append(sums)
        # A single thread never waits, and a choice that shows nothing is none.
        if not any(any(sums) for sums in self.values.get("waited", [])):
            self.values.pop("waited", None)
        numbers = [self._numbers(trace._tree) for trace in traces]
        self.table = {
            unit: [
                self._sum_up(trace, unit, number)
                for trace, number in zip(traces, numbers, strict=True)
            ]
            for unit in self.values
        }

    def _number(self, tree: Tree, function: int) -> int:
        """Return the number of a function of a tree."""
        if function >= 0:
            row = tree.functions[function]
        else:
            row = _OTHERS if function == OTHER else _NOBODY
        # Of one recording, two functions of one name are two, as in its tables.
        key = function if self._alone else _key_of(row)
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self.functions)
            self.functions.append(row)
        return number

    def _numbers(self, tree: Tree) -> Array:
        """Return the number of each node's function; -1 for the root."""
        functions, node = np.unique(tree.function[1:], return_inverse=True)
        numbers = [self._number(tree, function) for function in functions.tolist()]
        found: Array = np.append(-1, np.array(numbers, dtype=np.int32)[node]).astype(np.int32)
        return found

    def _sum_up(self, trace: Trace, unit: str, numbers: Array) -> list[list[int]]:
        """Return the values of each function, alone and with the calls inside."""
        tree = trace._tree
        alone, below = np.zeros((2, len(self.functions)), dtype=np.int64)
        if unit != "waited" or tree.has_lock:
            outer = np.flatnonzero(tree.outermost(numbers))
            outer = outer[outer > 0]
            np.add.at(alone, numbers[1:], tree.own(_FIGURES[unit][0])[1:])
            np.add.at(below, numbers[outer], tree.below(_FIGURES[unit][1])[outer])
        return [alone.tolist(), below.tolist()]

    def _merge(self, tree: Tree, nodes: dict[Any, int]) -> list[int]:
        """Add a tree; give the common node of each of its nodes."""
        merged_node = [0] * tree.count
        rows = zip(tree.parent.tolist(), tree.function.tolist(), strict=True)
        for n, (above, function) in enumerate(rows):
            if n == 0:
                continue
            number = self._number(tree, function)
            pair = merged_node[above], number
            node = nodes.get(pair)
            if node is None:
                node = nodes[pair] = len(self.parent)
                self.parent.append(pair[0])
                self.function.append(number)
            merged_node[n] = node
        return merged_node

    def totals(self, unit: str, side: int) -> list[int]:
        """Return the values of a unit, of each node with all nodes below it."""
        total = list(self.values[unit][side])
        for node in range(len(total) - 1, 0, -1):
            total[self.parent[node]] += total[node]
        return total


def _key_of(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what a function of two recordings has in common: a program may have been moved."""
    name, module, file, _, kind = row
    return (name, module, kind) if module is not None else (name, None, file, kind)


def flamegraph(traces: Sequence[Trace], titles: Sequence[str | None] = (None,)) -> Iterator[bytes]:
    """Return the parts of the page of a recording, or of two beside each other.

    Parameters
    ----------
    traces : sequence of Trace
        One, or two: before and after.
    titles : sequence of str or None
        The title of each; None: the program's name.
    """
    stacks = Stacks(traces)
    names = [title or find_title(trace) for trace, title in zip(traces, titles, strict=True)]
    functions = stacks.functions
    head = {
        "titles": names,
        "times": [show_ns(trace.duration) for trace in traces],
        "summary": (
            f"{show_ns(traces[0].duration)}, {plural(traces[0]._facts['events'], 'event')}"
        ),
        "notes": [notes_of(trace) for trace in traces],
        "threads": max(len(trace._thread_rows) for trace in traces),
        "functions": {
            "name": [row[0] for row in functions],
            "module": _numbered([row[1] for row in functions]),
            "place": [
                f"{row[2]}:{row[3]}" if row[2] and row[3] else row[2] or row[1] or ""
                for row in functions
            ],
            "area": find_areas(functions, traces[0]._own_patterns).tolist(),
        },
        "parent": stacks.parent,
        "function": stacks.function,
        "values": stacks.values,
        "table": stacks.table,
    }
    raw = compress(json.dumps(head, separators=(",", ":")).encode())
    names_shown = names[0] if len(names) == 1 else f"{names[0]} and {names[1]}"
    return assemble("graph.html", MODULES, f"{names_shown}, flame graph", [("head", raw)])


def _numbered(words: list[str | None]) -> list[int]:
    number: dict[str | None, int] = {}
    return [number.setdefault(word, len(number)) for word in words]


# ---- SVG -----------------------------------------------------------------------------------------

_WIDTH, _ROW, _LEAST = 1200, 17, 0.3


def flamegraph_svg(trace: Trace, unit: str = "self") -> str:
    """Draw the flame graph of a recording.

    Parameters
    ----------
    trace : Trace
        The trace to draw.
    unit : str
        One of `UNITS`, as the page names it.

    Returns
    -------
    str
        An ``<svg>`` element that needs no other file; each rectangle has its name, value and share
        as a title.
    """
    stacks = Stacks([trace])
    total = stacks.totals(unit, 0) if unit in stacks.values else [0]
    show = show_bytes if unit in _OF_MEMORY - {"blocks"} else show_ns if unit != "calls" else str
    if unit == "blocks":
        show = str
    areas = find_areas(stacks.functions, trace._own_patterns)
    children: dict[int, list[int]] = {}
    for node in range(1, len(total)):
        if total[node] > 0:
            children.setdefault(stacks.parent[node], []).append(node)
    whole, parts, deepest = max(total[0], 1), [], 0
    waiting = [(0, 0.0, -1)]
    while waiting:
        node, x, y = waiting.pop()
        for child in sorted(children.get(node, ()), key=lambda each: -total[each]):
            wide = _WIDTH * total[child] / whole
            if wide < _LEAST:
                break
            deepest = max(deepest, y + 2)
            parts.append(
                _box(
                    stacks.functions[stacks.function[child]][0],
                    COLOURS[areas[stacks.function[child]]],
                    x,
                    y + 1,
                    wide,
                    show(total[child]),
                    100 * total[child] / whole,
                )
            )
            waiting.append((child, x, y + 1))
            x += wide
    high = (deepest + 1) * _ROW + 8
    what = {"self": "time", "at_peak": "bytes at the peak", "live": "bytes live at the end"}.get(
        unit, unit
    )
    text = f"{find_title(trace)}: {what}, {show(total[0])}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {high}" width="{_WIDTH}" '
        f'height="{high}" role="img" aria-label="flame graph" font-family="sans-serif" '
        f'font-size="11" fill="#15181d"><rect width="{_WIDTH}" height="{high}" fill="#fff"/>'
        f'<text x="4" y="12">{html.escape(clean(text))}</text>{"".join(parts)}</svg>'
    )


def _box(
    name: str | None, colour: str, x: float, y: int, wide: float, value: str, share: float
) -> str:
    """Draw a node."""
    name, top = clean(name or "(no name)"), (y + 1) * _ROW + 4
    text = fit(name, int((wide - 6) / 6.2))
    label = f'<text x="{x + 3:.2f}" y="{top + 12}">{html.escape(text)}</text>' if text else ""
    return (
        f'<rect x="{x:.2f}" y="{top}" width="{max(wide - 0.6, 0.3):.2f}" height="{_ROW - 1}" '
        f'fill="{colour}"><title>{html.escape(name)}: {value}, {share:.1f} %</title></rect>{label}'
    )
