"""Firefox Profiler's processed profile, version 48, as JSON: a sample a step of a thread.

A sample lasts until the next one; its weight is that time. Memory is a counter, whose values are
differences.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from .. import _core
from ._tree import Tree
from ._view import AT_A_TIME, Texts, microseconds, utf8
from .chrome import CHANGES_MAX, live_bytes

if TYPE_CHECKING:
    from ..trace.column import Array
    from . import Options
    from ._view import View

_VERSION = 48
_GECKO_VERSION = 27
_CATEGORIES = [
    {"name": "Python", "color": "yellow", "subcategories": ["Other"]},
    {"name": "Native", "color": "blue", "subcategories": ["Other"]},
    {"name": "GC / CC", "color": "orange", "subcategories": ["Other"]},
    {"name": "Other", "color": "grey", "subcategories": ["Other"]},
]
_PYTHON, _NATIVE, _GC, _OTHER = range(4)
_GC_CALL = 42
_INSTANT, _INTERVAL = 0, 1  # phases of a marker

#: Its begin and end (None: an instant), name, schema, line and category.
_Marker = tuple[int, int | None, str, str, int | None, int]


def write(view: View, out: IO[bytes], options: Options) -> None:
    """Write it; times are milliseconds from the window's start."""
    out.write(b'{"meta":' + _json(_meta(view)) + b',"libs":[],"pages":[],"counters":[')
    _write_counters(view, out)
    out.write(b'],"threads":[')
    first = True
    shared = _Shared(view)
    for thread, steps in enumerate(view.steps):
        if view.thread_mask[thread]:
            out.write(b"\n" if first else b",\n")
            first = False
            _Thread(shared, thread, steps).write(out)
    out.write(b"]}\n")


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def _text(text: str) -> str:
    return utf8(text).decode()


def _meta(view: View) -> dict[str, Any]:
    from .. import __version__

    metadata = view.trace.metadata
    fields = [{"key": "line", "label": "Line", "format": "integer"}]
    return {
        "interval": 0.001,
        "startTime": metadata["start_ns"] / 1e6,
        "abi": "",
        "misc": "",
        "oscpu": str(metadata.get("platform") or ""),
        "platform": str(metadata.get("platform") or ""),
        "processType": 0,
        "extensions": {"id": [], "name": [], "baseURL": [], "length": 0},
        "categories": _CATEGORIES,
        "product": _text(view.title) + (f" (with loss: {view.loss})" if view.loss else ""),
        "stackwalk": 1,
        "debug": False,
        "toolkit": "",
        "version": _GECKO_VERSION,
        "preprocessedProfileVersion": _VERSION,
        "importedFrom": f"eventprof {__version__}",
        "symbolicated": True,
        "usesOnlyOneStackType": True,
        "doesNotUseFrameImplementation": True,
        "sourceCodeIsNotOnSearchfox": True,
        "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns"},
        "markerSchema": [
            {
                "name": name,
                "display": ["marker-chart", "marker-table", "timeline-overview"],
                "tooltipLabel": "{marker.name}",
                "tableLabel": "{marker.name}",
                "chartLabel": "{marker.name}",
                "fields": fields,
                "data": fields,
            }
            for name in ("mark", "span", "gc")
        ],
    }


def _times(times: Array) -> tuple[Any, ...]:
    """Give the parts of a time in ms: all of its ns are there."""
    return microseconds(times), b"e-3"


def _list(out: IO[bytes], rows: int, parts: Any) -> None:
    """Write a JSON list; `parts` gives the parts of some of its rows."""
    out.write(b"[")
    for first in range(0, rows, AT_A_TIME):
        part = slice(first, min(first + AT_A_TIME, rows))
        text = _core.render_rows(part.stop - first, (*parts(part), b","))
        out.write(text if part.stop < rows else text[:-1])
    out.write(b"]")


def _write_counters(view: View, out: IO[bytes]) -> None:
    if not view.has_memory:
        return
    first = True
    for domain, (time, live) in live_bytes(view, CHANGES_MAX)[0].items():
        head = {
            "name": "malloc",
            "category": "Memory",
            "description": f"live bytes of the domain {domain}",
            "color": "orange",
            "pid": str(view.process),
            "mainThreadIndex": 0,
        }
        changes = np.diff(live, prepend=0)
        out.write(b"" if first else b",")
        first = False
        out.write(_json(head)[:-1] + b',"samples":{"length":%d,"time":' % len(time))
        _list(out, len(time), lambda rows, time=time: _times(time[rows]))
        out.write(b',"count":')
        _list(out, len(time), lambda rows, changes=changes: (("int", changes[rows].copy()),))
        out.write(b"}}")


class _Shared:
    """What is computed once, for all threads."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.columns = {name: view.take(name) for name in ("caller_line", "kind", "flags")}
        # By call: its number among the calls of its thread, and its node there; last, for none.
        self.number = np.full(len(view) + 1, -1, np.int32)
        self.node = np.full(len(view) + 1, -1, np.int32)
        self.markers: dict[int, list[_Marker]] = defaultdict(list)
        for mark in view.table("marks"):
            at = mark.time
            self.markers[mark.thread].append(
                (at, None, mark.name or "?", "mark", mark.caller_line, _OTHER)
            )
        for what, category in (("span", _OTHER), ("gc", _GC)):
            for row in view.table("spans" if what == "span" else "gc"):
                name = f"gc generation {row.generation}" if what == "gc" else row.name or "?"
                end = row.start + row.duration
                self.markers[row.thread].append(
                    (row.start, end, name, what, row.caller_line, category)
                )


class _Thread:
    def __init__(self, shared: _Shared, thread: int, steps: Array) -> None:
        self._shared = shared
        self._view = shared.view
        self._number = thread
        self._steps = steps
        self._strings: dict[str, int] = {}

    def _string(self, text: str) -> int:
        return self._strings.setdefault(_text(text), len(self._strings))

    def write(self, out: IO[bytes]) -> None:
        """Write the thread: who it is, its samples, and the tables that they refer to."""
        view = self._view
        name = view.thread_names[self._number]
        head = {
            "processType": "default",
            "processStartupTime": 0,
            "processShutdownTime": None,
            "registerTime": 0,
            "unregisterTime": None,
            "pausedRanges": [],
            "name": _text(name),
            "isMainThread": name == "MainThread",
            "processName": _text(view.title),
            "pid": str(view.process),
            "tid": view.thread_ids[self._number],
        }
        out.write(_json(head)[:-1])
        tables = self._tables()
        self._write_samples(out)
        tables["markers"] = self._markers()
        for key, table in tables.items():
            out.write(b',"%s":' % key.encode() + _json(table))
        out.write(b',"stringArray":' + _json(list(self._strings)) + b"}")

    def _tables(self) -> dict[str, Any]:
        view = self._view
        # The tree of this thread's calls alone.
        rows = np.sort(self._steps[self._steps >= 0])
        number = self._shared.number
        number[rows] = np.arange(len(rows), dtype=np.int32)
        part = _Part(self._shared, rows, number[view.parent[rows]])
        tree = Tree(part, sites=True)  # type: ignore[arg-type]
        self._node = self._shared.node
        self._node[rows] = tree._node
        self._nodes = len(tree)
        unknown = len(view.names) - 1
        function = np.where(tree.function < 0, unknown, tree.function)
        functions, func = np.unique(function, return_inverse=True)
        functions_list = functions.tolist()
        kinds = [*view.trace.functions["kind"], "object"]
        category = [
            _PYTHON if kinds[row] == "python" else _GC if kinds[row] == "gc" else _NATIVE
            for row in functions_list
        ]
        func_list = func.reshape(-1).tolist()
        count, nodes = len(functions_list), len(tree)
        parents = tree.parent.tolist()
        return {
            "stackTable": {
                "length": nodes,
                "frame": list(range(nodes)),
                "prefix": [None if parent < 0 else parent for parent in parents],
                "category": [category[at] for at in func_list],
                "subcategory": [0] * nodes,
            },
            "frameTable": {
                "length": nodes,
                "address": [-1] * nodes,
                "inlineDepth": [0] * nodes,
                "category": [category[at] for at in func_list],
                "subcategory": [0] * nodes,
                "func": func_list,
                "nativeSymbol": [None] * nodes,
                "innerWindowID": [0] * nodes,
                "implementation": [None] * nodes,
                "line": [None if line < 0 else line for line in tree.line.tolist()],
                "column": [None] * nodes,
            },
            "funcTable": {
                "length": count,
                "name": [self._string(view.names[row]) for row in functions_list],
                "isJS": [False] * count,
                "relevantForJS": [False] * count,
                "resource": [-1] * count,
                "fileName": [
                    None if view.files[row] is None else self._string(view.files[row] or "")
                    for row in functions_list
                ],
                "lineNumber": [view.first_lines[row] for row in functions_list],
                "columnNumber": [None] * count,
            },
            "resourceTable": {"length": 0, "lib": [], "name": [], "host": [], "type": []},
            "nativeSymbols": {
                "length": 0, "libIndex": [], "address": [], "name": [], "functionSize": [],
            },
        }  # fmt: skip

    def _write_samples(self, out: IO[bytes]) -> None:
        view, steps, node = self._view, self._steps, self._node
        top = self._nodes
        numbers = Texts([*(b"%d," % at for at in range(top)), b"null,"])

        def stacks() -> Iterator[bytes]:
            for part, _ in view.parts_of(steps):
                # After a begin the call runs, after an end what it lies in.
                stack = node[np.where(part >= 0, part, view.parent[np.maximum(~part, 0)])]
                yield _core.render_rows(len(part), (numbers.part(np.where(stack < 0, top, stack)),))

        def times() -> Iterator[bytes]:
            for part, time in view.parts_of(steps):
                yield _core.render_rows(len(part), (*_times(time), b","))

        def weights() -> Iterator[bytes]:
            last = None
            for part, time in view.parts_of(steps):
                weight = np.diff(time, prepend=time[:1] if last is None else last)
                # That of the last step is not known before the next comes: it is none.
                yield _core.render_rows(
                    len(part) - (last is None), (*_times(weight[int(last is None) :]), b",")
                )
                last = time[-1:]
            if last is not None:
                yield b"0,"

        out.write(b',"samples":{"length":%d,"weightType":"tracing-ms"' % len(steps))
        for key, rows in (("stack", stacks), ("time", times), ("weight", weights)):
            out.write(b',"%s":[' % key.encode())
            kept = b""
            for text in rows():
                out.write(kept)
                kept = text
            out.write(kept[:-1])  # without its comma
            out.write(b"]")
        out.write(b"}")

    def _markers(self) -> dict[str, Any]:
        """Give marks, spans and runs of the collector on this thread, as markers."""
        found = self._shared.markers[self._number]
        found.sort(key=lambda marker: marker[0])
        return {
            "length": len(found),
            "name": [self._string(marker[2]) for marker in found],
            "startTime": [marker[0] / 1e6 for marker in found],
            "endTime": [None if marker[1] is None else marker[1] / 1e6 for marker in found],
            "phase": [_INSTANT if marker[1] is None else _INTERVAL for marker in found],
            "category": [marker[5] for marker in found],
            "data": [
                {"type": marker[3], **({} if marker[4] is None else {"line": marker[4]})}
                for marker in found
            ],
        }


class _Part:
    """Some calls of a view, as `Tree` wants them."""

    def __init__(self, shared: _Shared, rows: Array, parent: Array) -> None:
        self._columns, self._rows = shared.columns, rows
        self.parent = np.ascontiguousarray(parent, np.int32)
        self.function = shared.view.function[rows]
        self.line = self.take("caller_line")

    def take(self, column: str) -> Array:
        """As of a view."""
        return self._columns[column][self._rows]

    def own_times(self) -> Array:
        """Not looked at here."""
        return np.zeros(len(self.parent), np.int64)
