"""pprof's protobuf, compressed by gzip: a sample for each node of the tree."""

from __future__ import annotations

import gzip
from typing import IO, TYPE_CHECKING

import numpy as np

from ._proto import integer, message, packed
from ._tree import Tree
from ._view import one_line, utf8

if TYPE_CHECKING:
    from . import Options
    from ._view import View

COMPRESSED = True

_UNITS = {
    "waited": "nanoseconds", "allocated": "bytes", "blocks": "count", "at_peak": "bytes",
    "live": "bytes",
}  # fmt: skip


def write(view: View, out: IO[bytes], options: Options) -> None:
    """Write calls, ns, ns waited, bytes and blocks allocated, bytes at the peak and at the end."""
    tree = Tree(view, sites=True, threads=len(view.thread_names) > 1)
    columns = {"calls": tree.calls, "wall": tree.self, **tree.own(*_UNITS)}
    strings: dict[bytes, int] = {b"": 0}

    def string(text: str) -> int:
        # pprof prints names to a terminal.
        return strings.setdefault(utf8(one_line(text)), len(strings))

    units = {"calls": "count", "wall": "nanoseconds", **_UNITS}
    parts = [
        message(1, integer(1, string(word)), integer(2, string(units[word]))) for word in columns
    ]
    parts += _samples(view, tree, list(columns.values()), string)
    for row in np.unique(tree.function).tolist():
        # Without a system name (field 3): pprof would take away <lambda> as a parameter of C++.
        parts.append(
            message(
                5,
                integer(1, row + 1),
                integer(2, string(view.names[row])),
                integer(4, string(view.files[row] or "")),
                integer(5, view.first_lines[row] or 0),
            )
        )
    metadata = view.trace.metadata
    parts.append(integer(9, metadata["start_ns"]))
    parts.append(integer(10, view.trace.duration))
    parts.append(message(11, integer(1, string("wall")), integer(2, string("nanoseconds"))))
    parts.append(integer(12, 1))
    for comment in filter(None, [view.title, view.loss and f"with loss: {view.loss}"]):
        parts.append(integer(13, string(comment)))
    parts.append(integer(14, string("wall")))
    parts += [message(6, text) for text in strings]
    out.write(gzip.compress(b"".join(parts), 6, mtime=0))


def _samples(view: View, tree: Tree, columns: list, string) -> list[bytes]:  # type: ignore[no-untyped-def, type-arg]
    """Give the samples and their locations. A location is a function and a line."""
    parts = []
    locations: dict[tuple[int, int], int] = {}
    function, parents, lines = (
        column.tolist() for column in (tree.function, tree.parent, tree.line)
    )
    values = list(zip(*(column.tolist() for column in columns), strict=True))
    thread_label = string("thread")

    def location(row: int, line: int) -> int:
        if line < 0:
            line = view.first_lines[row] or 0
        return locations.setdefault((row, line), len(locations) + 1)

    stacks: list[list[int]] = []
    for node, parent in enumerate(parents):
        # The innermost comes first. The others are at the lines of their calls.
        above = []
        if parent >= 0:
            above = [location(function[parent], lines[node]), *stacks[parent][1:]]
        stacks.append([location(function[node], -1), *above])
        if not any(values[node]):
            continue
        label = []
        if tree.thread[node] >= 0:
            name = string(view.thread_names[tree.thread[node]])
            label = [message(3, integer(1, thread_label), integer(2, name))]
        parts.append(message(2, packed(1, stacks[node]), packed(2, values[node]), *label))
    for (row, line), number in locations.items():
        parts.append(
            message(4, integer(1, number), message(4, integer(1, row + 1), integer(2, line)))
        )
    return parts
