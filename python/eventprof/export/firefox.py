"""Firefox Profiler's processed profile, version 70: a sample for each begin and end of a call.

The weight of a sample is the time until the next sample. Memory is a counter; its values are
differences. The columns are described in src/types/profile.ts of the Firefox Profiler.

Threads of all processes are one list, and each says its process. (Nested `processes` are of Gecko's
own format, not of processed profiles.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from .. import _core
from ._lists import Column, column, write_json
from ._tree import fold
from ._view import AT_A_TIME, Steps, utf8
from .chrome import CHANGES_MAX, live_bytes

if TYPE_CHECKING:
    from ..tables.column import Array
    from . import Options
    from ._view import View

_VERSION = 70
_GECKO_VERSION = 36
_CATEGORIES = [
    {"name": "Python", "color": "yellow", "subcategories": ["Other"]},
    {"name": "Native", "color": "blue", "subcategories": ["Other"]},
    {"name": "GC / CC", "color": "orange", "subcategories": ["Other"]},
    {"name": "Interpreter lock", "color": "purple", "subcategories": ["Other"]},
    {"name": "Other", "color": "grey", "subcategories": ["Other"]},
]
_PYTHON, _NATIVE, _GC, _LOCK, _OTHER = range(len(_CATEGORIES))
_INSTANT, _INTERVAL = 0, 1  # phases of a marker

#: At most so many tenures of the interpreter's lock become markers: the longest.
_TENURES_MAX = 20_000

_FIELDS = {
    "mark": [("line", "Line", "integer")],
    "span": [("line", "Line", "integer")],
    "gc": [("line", "Line", "integer")],
    "lock": [("events", "Events", "integer")],
}


def write(view: View, out: IO[bytes], options: Options) -> None:
    """Write the profile as JSON. Times are milliseconds since the window's start."""
    strings: dict[str, int] = {}
    stacks = _Stacks(view, strings)
    markers = _markers(view, options)
    document = {
        "meta": _meta(view),
        "libs": [],
        "pages": [],
        "counters": iter(_counters(view)),
        "threads": _threads(view, stacks, markers),  # each is made when it is written
        "shared": _shared(stacks, strings),
    }
    write_json(document, out)


def _text(text: str) -> str:
    return utf8(text).decode()


def _meta(view: View) -> dict[str, Any]:
    metadata = view.trace.metadata
    return {
        "interval": 0.001,
        "startTime": metadata["start_ns"] / 1e6,
        "oscpu": str(metadata.get("platform") or ""),
        "platform": str(metadata.get("platform") or ""),
        "processType": 0,
        "extensions": {"id": [], "name": [], "baseURL": [], "length": 0},
        "categories": _CATEGORIES,
        "product": _text(view.title) + (f" (with loss: {view.loss})" if view.loss else ""),
        "stackwalk": 1,
        "debug": False,
        "version": _GECKO_VERSION,
        "preprocessedProfileVersion": _VERSION,
        "importedFrom": f"eventprof {_core.VERSION}",
        "symbolicated": True,
        "symbolicationNotSupported": True,
        "usesOnlyOneStackType": True,
        "sourceCodeIsNotOnSearchfox": True,
        "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns"},
        "markerSchema": [
            {
                "name": name,
                "display": ["marker-chart", "marker-table", "timeline-overview"],
                "tooltipLabel": "{marker.name}",
                "tableLabel": "{marker.name}",
                "chartLabel": "{marker.name}",
                "fields": [
                    {"key": key, "label": label, "format": form} for key, label, form in fields
                ],
            }
            for name, fields in _FIELDS.items()
        ],
    }


# ---- Memory --------------------------------------------------------------------------------------


def _counters(view: View) -> Iterator[dict[str, Any]]:
    if not view.has_memory:
        return
    for weight, (domain, (time, live)) in enumerate(live_bytes(view, CHANGES_MAX)[0].items()):
        meaning = f"live bytes of the domain {domain}"
        yield _counter(view, meaning, f"Live: {domain}", 20 + weight, time, live)
    resident = view.trace.resident
    chosen = view.times(resident["time"])
    time, size = (np.asarray(resident[name])[chosen] for name in ("time", "bytes"))
    if len(time):
        yield _counter(view, "resident set", "Resident set", 30, time, size)


def _counter(
    view: View, meaning: str, label: str, weight: int, time: Array, values: Array
) -> dict[str, Any]:
    # Live bytes of several processes are one curve. The viewer shows no counter of a process
    # without threads, so it is one of the first process.
    chosen = np.flatnonzero(view.thread_mask)
    pid = view.pids[chosen[0]] if len(chosen) else view.process
    if len(view.processes) > 1:
        meaning, label = f"{meaning}, all processes", f"{label} (all processes)"
    return {
        "name": "malloc",
        "category": "Memory",
        "description": meaning,
        "pid": str(pid),
        "mainThreadIndex": 0,
        "display": {
            "graphType": "line-accumulated",
            "unit": "bytes",
            "color": "orange",
            "markerSchemaLocation": "timeline-memory",
            "sortWeight": weight,
            "label": label,
            "tooltipRows": [
                {
                    "type": "value",
                    "source": "accumulated",
                    "format": {"unit": "bytes"},
                    "label": meaning,
                },
                {
                    "type": "value",
                    "source": "count-range",
                    "format": {"unit": "bytes"},
                    "label": "range in the shown part",
                },
            ],
        },
        "samples": {
            "length": len(time),
            "time": column(time, ns=True),
            "count": column(np.diff(values, prepend=0)),
        },
    }


# ---- Stacks --------------------------------------------------------------------------------------


class _Stacks:
    """The tables that all threads share.

    Attributes
    ----------
    of_call : array of int32
        The stack while each call runs.
    """

    def __init__(self, view: View, strings: dict[str, int]) -> None:
        self._view = view
        self._strings = strings
        self.of_call, parent, (function, line) = fold(
            view.parent, [view.function, view.line], overwrite=True
        )
        function = np.where(function < 0, len(view.names) - 1, function)
        of_node, self._prefix, functions, lines = _stacks(
            parent.tolist(), function.tolist(), line.tolist()
        )
        stacks = np.array(of_node, np.int32)
        # In place: the nodes are not needed any more, and another array of all calls is much.
        for first in range(0, len(self.of_call), AT_A_TIME):
            part = self.of_call[first : first + AT_A_TIME]
            part[:] = stacks[part]
        self._functions, func = np.unique(np.array(functions, np.int32), return_inverse=True)
        # A frame is a function and a line (-1: unknown).
        places = func.reshape(-1).astype(np.int64) << 32 | (np.array(lines, np.int64) + 1)
        frames, frame = np.unique(places, return_inverse=True)
        self._frame = frame.reshape(-1)
        self._frame_func, self._frame_line = frames >> 32, (frames & 0xFFFFFFFF) - 1

    def string(self, text: str) -> int:
        """Return the number of a text."""
        return self._strings.setdefault(_text(text), len(self._strings))

    def tables(self) -> dict[str, Any]:
        """Return the tables of stacks, frames, functions and files."""
        view = self._view
        kinds = [*view.trace.functions["kind"], "object"]
        rows = self._functions.tolist()
        category = np.array(
            [
                _PYTHON if kinds[row] == "python" else _GC if kinds[row] == "gc" else _NATIVE
                for row in rows
            ],
            np.int32,
        )
        files = [view.files[row] for row in rows]
        sources = {file: number for number, file in enumerate(dict.fromkeys(filter(None, files)))}
        count, frames = len(rows), len(self._frame_func)

        def frame_column(value: int) -> Column:
            return column(np.full(frames, value, np.int32))

        nulls = np.full(frames, -1, np.int32)
        return {
            "stackTable": {
                "length": len(self._frame),
                "frame": column(self._frame),
                "prefixOffset": column(
                    np.arange(len(self._frame)) - np.array(self._prefix, np.int64)
                ),
            },
            "frameTable": {
                "length": frames,
                "address": frame_column(-1),
                "lib": frame_column(-1),
                "inlineDepth": frame_column(0),
                "category": column(category[self._frame_func]),
                "subcategory": frame_column(0),
                "func": column(self._frame_func),
                "nativeSymbol": column(nulls, nullable=True),
                "innerWindowID": frame_column(0),
                "line": column(self._frame_line, nullable=True),
                "column": column(nulls, nullable=True),
                "originalLocation": column(nulls, nullable=True),
            },
            "funcTable": {
                "length": count,
                "name": [self.string(view.names[row]) for row in rows],
                "isJS": [False] * count,
                "relevantForJS": [False] * count,
                "resource": [-1] * count,
                "source": [sources.get(file or "") for file in files],
                "lineNumber": [view.first_lines[row] for row in rows],
                "columnNumber": [None] * count,
                "originalLocation": [None] * count,
            },
            "sources": {
                "length": len(sources),
                "id": [None] * len(sources),
                "filename": [self.string(file) for file in sources],
                "startLine": [1] * len(sources),
                "startColumn": [1] * len(sources),
                "sourceMapURL": [None] * len(sources),
                "content": [None] * len(sources),
            },
            "resourceTable": {"length": 0, "name": [], "host": [], "type": []},
            "nativeSymbols": {
                "length": 0, "libIndex": [], "address": [], "name": [], "functionSize": [],
            },
            "sourceLocationTable": {"length": 0, "source": [], "line": [], "column": []},
        }  # fmt: skip


def _stacks(
    parents: list[int], functions: list[int], call_lines: list[int]
) -> tuple[list[int], list[int], list[int], list[int]]:
    """Return the stack of each node; prefix, function and line of each stack.

    A node has a stack without a line, because the line that runs is not known. It has another stack
    for each line with a call: the prefix of the called function's stack. The prefix of an outermost
    stack is the stack itself.
    """
    of_node: list[int] = []
    prefixes: list[int] = []
    stack_functions: list[int] = []
    lines: list[int] = []

    def add(prefix: int | None, function: int, line: int) -> int:
        row = len(lines)
        prefixes.append(row if prefix is None else prefix)
        stack_functions.append(function)
        lines.append(line)
        return row

    calling: dict[tuple[int, int], int] = {}
    for parent, function, line in zip(parents, functions, call_lines, strict=True):
        prefix = of_node[parent] if parent >= 0 else None
        if prefix is not None and line >= 0:
            known = calling.get((parent, line))
            if known is None:
                above = prefixes[prefix]
                known = add(None if above == prefix else above, functions[parent], line)
                calling[parent, line] = known
            prefix = known
        of_node.append(add(prefix, function, -1))
    return of_node, prefixes, stack_functions, lines


def _shared(stacks: _Stacks, strings: dict[str, int]) -> dict[str, Any]:
    def known() -> Iterator[str]:
        yield from strings  # read late: threads add strings while they are written

    return {**stacks.tables(), "stringArray": known()}


# ---- Threads -------------------------------------------------------------------------------------

#: Begin and end (None: an instant), name, schema, data and category.
_Marker = tuple[int, int | None, str, str, dict[str, Any], int]


def _markers(view: View, options: Options) -> dict[int, list[_Marker]]:
    """Yield marks, spans, runs of the collector and tenures of the lock, by thread."""
    found: dict[int, list[_Marker]] = defaultdict(list)

    def line(row: Any) -> dict[str, Any]:
        return {} if row.caller_line is None else {"line": row.caller_line}

    for mark in view.table("marks"):
        found[mark.thread].append((mark.time, None, mark.name or "?", "mark", line(mark), _OTHER))
    for what, category in (("span", _OTHER), ("gc", _GC)):
        for row in view.table("spans" if what == "span" else "gc"):
            name = f"gc generation {row.generation}" if what == "gc" else row.name or "?"
            end = row.start + row.duration
            found[row.thread].append((row.start, end, name, what, line(row), category))
    if view.has_waited:
        columns = view.trace._core.tenures()
        chosen = np.flatnonzero(view.thread_mask[columns["thread"]] & view.times(columns["start"]))
        if len(chosen) > _TENURES_MAX:
            options.notes.append(
                f"of {len(chosen):,} tenures of the interpreter's lock the longest "
                f"{_TENURES_MAX:,} are markers"
            )
            length = columns["end"][chosen] - columns["start"][chosen]
            chosen = np.sort(chosen[np.argsort(-length, kind="stable")[:_TENURES_MAX]])
        names = ("thread", "start", "end", "events")
        for thread, start, end, events in zip(
            *(columns[name][chosen].tolist() for name in names), strict=True
        ):
            found[thread].append(
                (start, end, "holds the interpreter lock", "lock", {"events": events}, _LOCK)
            )
    return found


def _threads(
    view: View, stacks: _Stacks, markers: dict[int, list[_Marker]]
) -> Iterator[dict[str, Any]]:
    chosen = np.flatnonzero(view.thread_mask).tolist()
    titles, has_main = dict(view.processes), set[int]()
    for thread in chosen:
        pid = view.pids[thread]
        facts = _facts(titles[pid], pid, view.thread_names[thread], view.thread_ids[thread])
        # Of several processes the name begins with the process.
        facts["isMainThread"] = facts["name"].split()[-1:] == ["MainThread"] and pid not in has_main
        has_main |= {pid} if facts["isMainThread"] else set()
        yield facts | _events(view, stacks, view.steps[thread], markers[thread])
    if not chosen:
        # The viewer opens no profile without a thread.
        none = Steps(view.parent, None, 0)
        yield _facts(view.title, view.process, "(no events)", 0) | _events(view, stacks, none, [])


def _facts(process: str, pid: int, name: str, number: int) -> dict[str, Any]:
    """Return the facts of a thread."""
    return {
        "processType": "default",
        "processStartupTime": 0,
        "processShutdownTime": None,
        "registerTime": 0,
        "unregisterTime": None,
        "pausedRanges": [],
        "name": _text(name),
        "isMainThread": False,
        "processName": _text(process),
        "pid": str(pid),
        "tid": number,
    }


def _events(view: View, stacks: _Stacks, steps: Steps, markers: list[_Marker]) -> dict[str, Any]:
    """Return the samples and markers of a thread."""
    markers.sort(key=lambda marker: marker[0])

    def stack() -> Iterator[Array]:
        for part, _ in view.parts_of(steps, tell=True):
            # After a begin the call runs, after an end the call around it (-1: none).
            call = np.where(part >= 0, part, view.parent[np.maximum(~part, 0)])
            yield np.where(call >= 0, stacks.of_call[call], -1)

    def time() -> Iterator[Array]:
        for _, times in view.parts_of(steps):
            yield times

    def weight() -> Iterator[Array]:
        last = None
        for times in time():
            weights = np.diff(times, prepend=times[:1] if last is None else last)
            # The weight of a step is known when the next step comes. The last one's is 0.
            yield weights[int(last is None) :]
            last = times[-1:]
        if last is not None:
            yield np.zeros(1, np.int64)

    starts = np.array([marker[0] for marker in markers], np.int64)
    ends = [marker[0] if marker[1] is None else marker[1] for marker in markers]
    return {
        "samples": {
            "length": len(steps),
            "weightType": "tracing-ms",
            "stack": Column(stack, nullable=True),
            "time": Column(time, ns=True),
            "weight": Column(weight, ns=True),
        },
        "markers": {
            "length": len(markers),
            "name": [stacks.string(marker[2]) for marker in markers],
            "startTime": column(starts, ns=True),
            "endTime": column(np.array(ends, np.int64), ns=True),
            "phase": [_INSTANT if marker[1] is None else _INTERVAL for marker in markers],
            "category": [marker[5] for marker in markers],
            "data": [{"type": marker[3], **marker[4]} for marker in markers],
        },
    }
