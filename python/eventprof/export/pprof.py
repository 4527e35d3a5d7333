"""pprof's protobuf, compressed by gzip: a sample for each node of the tree."""

from __future__ import annotations

import gzip
from typing import IO, TYPE_CHECKING

import numpy as np

from ._proto import integer, message, packed, varint
from ._tree import Tree
from ._view import one_line, utf8

if TYPE_CHECKING:
    from . import Options
    from ._view import View

COMPRESSED = True

_NUMBER = varint(1 << 3)  # the tag of a location's id

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
    locations: dict[tuple[int, int], bytes] = {}
    starts = [line or 0 for line in view.first_lines]
    rows = zip(
        *(column.tolist() for column in (tree.parent, tree.function, tree.line, tree.thread)),
        zip(*(column.tolist() for column in columns), strict=True),
        strict=True,
    )
    functions = tree.function.tolist()
    labels: dict[int, bytes] = {-1: b""}
    thread_label = string("thread")

    def location(row: int, line: int) -> bytes:
        place = row, line if line >= 0 else starts[row]
        return locations.get(place) or locations.setdefault(place, varint(len(locations) + 1))

    # The innermost comes first. The others are at the lines of their calls.
    callers: list[bytes] = []
    for parent, function, line, thread, values in rows:
        above = b""
        if parent >= 0:
            above = location(functions[parent], line) + callers[parent]
        callers.append(above)
        if not any(values):
            continue
        if thread not in labels:
            name = string(view.thread_names[thread])
            labels[thread] = message(3, integer(1, thread_label), integer(2, name))
        stack = message(1, location(function, -1), above)
        parts.append(message(2, stack, packed(2, values), labels[thread]))
    for (row, line), number in locations.items():
        place = message(4, integer(1, row + 1), integer(2, line))
        parts.append(message(4, _NUMBER, number, place))
    return parts
