"""Chrome trace JSON, as VizTracer, Perfetto, eventprof and other tools write it."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

from . import Unreadable
from ._build import BEGINS, C_CALL, CALL, Builder

#: VizTracer's names of Python functions: "name (file:line)".
_PLACE = re.compile(r"(.*) \((.*):(\d+)\)", re.DOTALL)
#: Keys of otherData that export/chrome.py writes and that are not facts of the run.
_NOT_KEPT = (
    "loss", "memory", "functions", "start_ns", "start_monotonic_ns", "duration_ns",
    "clock_frequency_hz", "damaged_chunks", "exported_by", "filtered", "imported",
)  # fmt: skip
_FLOWS = {"s": 0, "t": 1, "f": 2}


class _Text(str):
    """A decimal number, as text."""

    __slots__ = ()


def _floats(value: Any) -> Any:
    """Return a JSON value as metadata of traces have it: decimals as floats, lists as tuples."""
    if isinstance(value, _Text):
        return float(value)
    if isinstance(value, list):
        return tuple(map(_floats, value))
    if isinstance(value, dict):
        return {key: _floats(item) for key, item in value.items()}
    return value


def _ns(text: Any) -> int:
    """Turn microseconds into ns, exactly: a double might not hold all digits."""
    if isinstance(text, int):
        return text * 1000
    if "e" in text or "E" in text:
        return round(float(text) * 1000)
    whole, _, rest = text.partition(".")
    ns = int(whole or 0) * 1000
    part = round(float(f"0.{rest or 0}") * 1000)
    return ns - part if text.startswith("-") else ns + part


def read(path: str, data: bytes, builder: Builder) -> None:
    """Fill the builder."""
    try:
        # Decimal numbers are kept as text: a double has only 53 bits.
        given = json.loads(data, parse_float=_Text)
    except ValueError as error:
        given = _cut(data, error)
        builder.missing.append("the end of the file: it was cut off")
    whole = given if isinstance(given, dict) else {"traceEvents": given}
    events = whole.get("traceEvents")
    if not isinstance(events, list):
        raise Unreadable("traceEvents is not a list")
    builder.lacks += ["allocations", "exceptions"]
    _Reader(builder, whole).read([e for e in events if isinstance(e, dict)])


def _cut(data: bytes, error: ValueError) -> Any:
    """Read a list of events that was cut off, as the format allows."""
    text = data.decode("utf-8", "replace")
    begin = text.find("[")
    decoder = json.JSONDecoder(parse_float=_Text)
    events = []
    at = begin + 1
    while begin >= 0:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        try:
            event, at = decoder.raw_decode(text, at)
        except ValueError:
            break
        events.append(event)
    if not events:
        raise Unreadable(str(error))
    return events


class _Reader:
    def __init__(self, builder: Builder, whole: dict[str, Any]) -> None:
        self._builder = builder
        other = whole.get("otherData")
        self._ours = isinstance(other, dict) and ("exported_by" in other or "eventprof" in other)
        self._known: dict[str, tuple[Any, ...]] = {}
        self._rows: dict[tuple[str, str], int] = {}
        if self._ours:
            assert isinstance(other, dict)
            builder.metadata.update({k: _floats(v) for k, v in other.items() if k not in _NOT_KEPT})
            builder.start_ns = int(other.get("start_ns") or 0)
            builder.monotonic_ns = int(other.get("start_monotonic_ns") or 0)
            builder.duration = int(other.get("duration_ns") or 0)
            for name, *place in other.get("functions") or ():
                self._known.setdefault(name, tuple(place))
            if other.get("loss"):
                builder.notes.append(f"with loss: {other['loss']}")
        if "viztracer_metadata" in whole:
            builder.metadata["recorded_by"] = (
                f"viztracer {whole['viztracer_metadata'].get('version')}"
            )

    def _function(self, name: str, category: str) -> int:
        row = self._rows.get((name, category))
        if row is None:
            row = self._rows[name, category] = self._new_function(name, category)
        return row

    def _new_function(self, name: str, category: str) -> int:
        builder = self._builder
        if name in self._known:
            qualname, module, file, line, kind = self._known[name]
            return builder.function(qualname, module, file, line, kind)
        place = _PLACE.fullmatch(name)
        if place is not None:
            return builder.function(place[1], None, place[2], int(place[3]))
        kind = "gc" if category == "gc" else "user" if category == "span" else "c"
        return builder.function(name, kind=kind if category != "call" else "python")

    def _kind(self, name: str, category: str) -> int:
        if self._ours:
            return BEGINS.get(category, CALL)
        return CALL if _PLACE.fullmatch(name) or category not in ("fee", "FEE") else C_CALL

    def read(self, events: list[dict[str, Any]]) -> None:
        """Add all events, thread by thread."""
        builder = self._builder
        spans: dict[Any, list[dict[str, Any]]] = defaultdict(list)
        points: dict[Any, list[dict[str, Any]]] = defaultdict(list)
        left_out: Counter[str] = Counter()
        first: int | None = None
        pids = Counter(e.get("pid") for e in events if e.get("ph") in ("X", "B"))
        several = len(pids) > 1
        for event in events:
            phase = event.get("ph")
            key = event.get("pid"), event.get("tid")
            if phase == "M":
                if event.get("name") == "thread_name":
                    self._name_thread(key, event, several)
                elif event.get("name") == "process_name" and not self._ours:
                    builder.metadata.setdefault("argv", (str(event["args"].get("name")),))
                continue
            if phase in ("X", "B", "E"):
                spans[key].append(event)
            elif phase in ("i", "I", "C", "s", "t", "f"):
                points[key].append(event)
            else:
                left_out[str(phase)] += 1
                continue
            time = _ns(event["ts"])
            first = time if first is None else min(first, time)
        if pids and not self._ours:
            builder.metadata["pid"] = pids.most_common(1)[0][0]
        self._base = 0 if self._ours or first is None else first
        if left_out:
            kinds = ", ".join(f"{count:,} of phase {phase}" for phase, count in left_out.items())
            builder.notes.append(f"events that have no place in a trace: {kinds}")
        for key in {**spans, **points}:
            native = key[1] if isinstance(key[1], int) and key[1] > 0 else 0
            thread = builder.thread(key, None, native)
            mine = points.get(key, [])
            if key in spans:
                self._read_spans(thread, spans[key])
            if mine:
                self._read_points(key, sorted(mine, key=lambda e: _ns(e["ts"])))

    def _name_thread(self, key: Any, event: dict[str, Any], several: bool) -> None:
        name = str(event["args"].get("name"))
        native = key[1] if isinstance(key[1], int) and key[1] > 0 else 0
        self._builder.thread(key, f"{key[0]} {name}" if several else name, native)

    def _read_spans(self, thread: Any, events: list[dict[str, Any]]) -> None:
        if any(event["ph"] != "X" for event in events):
            self._read_steps(thread, events)
            return
        rows = []
        for at, event in enumerate(events):
            start = _ns(event["ts"]) - self._base
            rows.append((start, start + _ns(event.get("dur", 0)), at))
        in_order = all(a[0] <= b[0] for a, b in pairwise(rows))
        # VizTracer writes a call when it ends: inner calls come first.
        rows.sort(key=lambda row: (row[0], -row[1], row[2] if in_order else -row[2]))
        if in_order and self._ours:
            rows.sort(key=lambda row: row[2])
        thread.spans(self._span(events[at], start, end) for start, end, at in rows)

    def _span(self, event: dict[str, Any], start: int, end: int) -> Any:
        name, category = str(event.get("name", "?")), str(event.get("cat", ""))
        arguments = event.get("args") if self._ours else None
        arguments = arguments if isinstance(arguments, dict) else {}
        line = arguments.get("line")
        return (
            start,
            end,
            self._function(name, category),
            line if isinstance(line, int) else -1,
            self._kind(name, category),
            bool(arguments.get("raised")),
            bool(arguments.get("yielded")),
            int(arguments.get("depth", 0)) - 1,
        )

    def _read_steps(self, thread: Any, events: list[dict[str, Any]]) -> None:
        """Add begins and ends of calls; a complete event among them is a begin and an end."""
        steps: list[tuple[int, int, int, dict[str, Any]]] = []
        for at, event in enumerate(events):
            time = _ns(event["ts"]) - self._base
            if event["ph"] == "X":
                end = time + _ns(event.get("dur", 0))
                steps.append((time, 1, at, event))
                steps.append((end, 0, -at, event))
            else:
                steps.append((time, int(event["ph"] == "B"), at, event))
        # Events with equal times keep the file's order.
        if all(event["ph"] != "X" for event in events):
            steps.sort(key=lambda step: (step[0], step[2]))
        else:
            steps.sort(key=lambda step: step[:3])
        for time, begins, _, event in steps:
            if begins:
                name, category = str(event.get("name", "?")), str(event.get("cat", ""))
                thread.begin(time, self._function(name, category), -1, self._kind(name, category))
            else:
                thread.end(time)

    def _read_points(self, key: Any, events: list[dict[str, Any]]) -> None:
        # The builder wants the events of a thread in order of time, but points lie between calls
        # that were added before. So they get a thread of their own.
        name = "(counters)" if key[1] is None else f"(points of {key[1]})"
        thread = self._builder.thread((key, "points"), name)
        for event in events:
            time, phase = _ns(event["ts"]) - self._base, event["ph"]
            name = str(event.get("name", "?"))
            if phase in _FLOWS:
                number = event.get("id", 0)
                number = number if isinstance(number, int) else abs(hash(number)) & 0xFFFFFFFF
                thread.flow(time, name, number, _FLOWS[phase])
            elif phase == "C":
                for series, value in (event.get("args") or {}).items():
                    if not isinstance(value, (str, int, float)):
                        continue
                    label = name if series in ("value", "bytes") else f"{name} {series}"
                    thread.counter(time, label, float(value))
            else:
                thread.mark(time, name)
