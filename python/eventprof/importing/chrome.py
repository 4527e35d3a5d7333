"""Chrome trace JSON, as VizTracer, Perfetto, eventprof and other tools write it."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from . import Unreadable
from ._build import BEGINS, C_CALL, CALL, NAME_KINDS, NEVER, NOT_TOLD, SAMPLED, Builder, native_id

#: VizTracer's names of Python functions: "name (file:line)".
_PLACE = re.compile(r"(.*) \((.*):(\d+)\)", re.DOTALL)
#: Keys of otherData that export/chrome.py writes and that are not facts of the run.
_NOT_KEPT = (
    "loss", "memory", "functions", "start_ns", "start_monotonic_ns", "duration_ns",
    "clock_frequency_hz", "damaged_chunks", "exported_by", "filtered", "imported",
)  # fmt: skip
_FLOWS = {"s": 0, "t": 1, "f": 2}
#: The category of py-spy's events.
_PY_SPY = "py-spy"


class _Row:
    """A call of a thread; `order` decides between calls of equal times.

    Attributes
    ----------
    around : _Row or None
        Of a begin with an end: the innermost begin that was open.
    """

    __slots__ = ("around", "end", "event", "order", "start")

    def __init__(
        self, start: int, end: int, order: int, event: dict[str, Any], around: _Row | None
    ) -> None:
        self.start, self.end, self.order = start, end, order
        self.event, self.around = event, around


class _Text(str):
    """A decimal number, as text."""

    __slots__ = ()


def _argument(event: dict[str, Any], name: str) -> Any:
    """Return an argument of an event; None: it has none."""
    arguments = event.get("args")
    return arguments.get(name) if isinstance(arguments, dict) else None


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
    position = begin + 1
    while begin >= 0:
        while position < len(text) and text[position] in " \t\r\n,":
            position += 1
        try:
            event, position = decoder.raw_decode(text, position)
        except ValueError:
            break
        events.append(event)
    if not events:
        raise Unreadable(str(error))
    return events


#: The types of otherData's facts of a run, by key, and of its options. Others are for people.
_TEXT = (str, type(None))
_TYPES: dict[str, tuple[type, ...]] = {
    "argv": (tuple,), "backend": _TEXT, "boot": _TEXT, "clock": _TEXT, "displaced": (tuple,),
    "eventprof": _TEXT, "flight": (dict, type(None)), "gil": (bool,), "hostname": _TEXT,
    "locks": _TEXT, "merged": (tuple,), "options": (dict,), "overhead": (dict, type(None)),
    "pid": (int,), "platform": _TEXT, "processes": (tuple,), "python": _TEXT,
    "ancestors": (tuple, type(None)), "clocks": _TEXT,
}  # fmt: skip
_TEXT_OPTIONS = ("audit", "domains", "events", "exclude", "include")


def _is_sound(key: str, value: Any) -> bool:
    """Whether a fact has the type that reports expect."""
    if key in _TYPES and not isinstance(value, _TYPES[key]):
        return False
    if key == "pid":
        return native_id(value) > 0
    if key == "options":
        return all(
            isinstance(value.get(name, ()), tuple)
            and all(isinstance(item, str) for item in value.get(name, ()))
            for name in _TEXT_OPTIONS
        )
    if key in ("argv", "displaced"):
        return all(isinstance(item, str) for item in value)
    if key in ("merged", "processes"):
        return all(isinstance(item, dict) for item in value)
    return True


def _is_place(entry: Any) -> bool:
    """Whether a row of otherData's functions is a name and the five facts of a function."""
    if not isinstance(entry, list) or len(entry) != 6:
        return False
    texts, line = (*entry[:4], entry[5]), entry[4]
    return (
        isinstance(entry[0], str)
        and all(text is None or isinstance(text, str) for text in texts)
        and (line is None or (type(line) is int and -1 <= line < 1 << 31))
        and entry[5] in NAME_KINDS
    )


class _Reader:
    def __init__(self, builder: Builder, whole: dict[str, Any]) -> None:
        self._builder = builder
        other = whole.get("otherData")
        self._ours = isinstance(other, dict) and ("exported_by" in other or "eventprof" in other)
        self._known: dict[str, tuple[Any, ...]] = {}
        self._rows: dict[tuple[str, str, str], int] = {}
        if self._ours:
            assert isinstance(other, dict)
            self._read_facts(other)
        viztracer = whole.get("viztracer_metadata")
        if isinstance(viztracer, dict):
            builder.metadata["recorded_by"] = f"viztracer {viztracer.get('version')}"
            if viztracer.get("overflow"):
                builder.lost.append(
                    "EVENTS LOST: VizTracer's buffer was full, and the oldest were overwritten "
                    "(how many is not known; --tracer_entries makes it larger)"
                )
            elif "overflow" in viztracer:
                builder.loss_unknown = None

    def _read_facts(self, other: dict[str, Any]) -> None:
        """Take the facts of the run that export/chrome.py wrote; note those of a wrong type."""
        builder = self._builder
        wrong = []
        for key, value in other.items():
            if key in _NOT_KEPT:
                continue
            value = _floats(value)
            if _is_sound(key, value):
                builder.metadata[key] = value
            else:
                wrong.append(key)
        numbers = {}
        for key in ("start_ns", "start_monotonic_ns", "duration_ns"):
            value = other.get(key) or 0
            sound = type(value) is int and 0 <= value < NEVER
            numbers[key] = value if sound else 0
            if not sound:
                wrong.append(key)
        builder.start_ns, builder.monotonic_ns = numbers["start_ns"], numbers["start_monotonic_ns"]
        builder.duration = numbers["duration_ns"]
        functions = other.get("functions") or []
        for entry in functions if isinstance(functions, list) else ():
            if _is_place(entry):
                self._known.setdefault(entry[0], tuple(entry[1:]))
            else:
                wrong.append("functions")
        loss = other.get("loss")
        if isinstance(loss, str) and loss in (NOT_TOLD, SAMPLED):
            builder.loss_unknown = loss  # a file of another tool, which was exported again
        elif loss:
            builder.lost.append(f"with loss: {loss}")
        elif "loss" in other:
            builder.loss_unknown = None
        if wrong:
            builder.notes.append(
                f"otherData is damaged: left out {', '.join(map(str, dict.fromkeys(wrong)))}"
            )

    def _function(self, event: dict[str, Any], name: str, category: str) -> int:
        file = _argument(event, "filename") if category == _PY_SPY else None
        file = file if isinstance(file, str) else ""
        row = self._rows.get((name, category, file))
        if row is None:
            row = self._rows[name, category, file] = self._new_function(name, category, file)
        return row

    def _new_function(self, name: str, category: str, file: str) -> int:
        builder = self._builder
        if file:
            return builder.function(name, None, file)
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
        if any(event.get("cat") == _PY_SPY for event in events):
            builder.metadata["recorded_by"] = "py-spy"
            builder.lacks.append("counts of calls: it was sampled")
            builder.loss_unknown = SAMPLED
        pids = Counter(e.get("pid") for e in events if e.get("ph") in ("X", "B"))
        several = len(pids) > 1 and not self._ours  # ours have it in their names
        for event in events:
            phase = event.get("ph")
            key = event.get("pid"), event.get("tid")
            if phase == "M":
                name = _argument(event, "name")
                if name is None:
                    continue
                if event.get("name") == "thread_name":
                    thread_name = f"{key[0]} {name}" if several else str(name)
                    builder.thread(key, thread_name, native_id(key[1]))
                elif event.get("name") == "process_name" and not self._ours:
                    builder.metadata.setdefault("argv", (str(name),))
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
            pid = pids.most_common(1)[0][0]
            if native_id(pid):  # a text names a group of threads, not a process
                builder.metadata["pid"] = pid
        self._base = 0 if self._ours or first is None else first
        if left_out:
            kinds = ", ".join(f"{count:,} of phase {phase}" for phase, count in left_out.items())
            builder.notes.append(f"events that have no place in a trace: {kinds}")
        for key in {**spans, **points}:
            thread = builder.thread(key, None, native_id(key[1]))
            points_of_track = points.get(key, [])
            if key in spans:
                self._read_spans(thread, spans[key])
            if points_of_track:
                self._read_points(key, sorted(points_of_track, key=lambda e: _ns(e["ts"])))

    def _read_spans(self, thread: Any, events: list[dict[str, Any]]) -> None:
        if all(event["ph"] != "X" for event in events):
            self._read_steps(thread, events)
            return
        complete = [event for event in events if event["ph"] == "X"]
        rows: list[_Row] = []
        for event in complete:
            start = _ns(event["ts"]) - self._base
            rows.append(_Row(start, start + _ns(event.get("dur", 0)), len(rows), event, None))
        in_order = all(a.start <= b.start for a, b in pairwise(rows))
        if not in_order:  # VizTracer writes a call when it ends: inner calls come first
            for row in rows:
                row.order = -row.order
        others = self._paired([event for event in events if event["ph"] != "X"], len(rows))
        rows += others
        rows.sort(key=lambda row: (row.start, -row.end, row.order))
        if in_order and self._ours and not others:
            rows.sort(key=lambda row: row.order)
        thread.spans(self._spans(rows, bool(others)))

    def _paired(self, events: list[dict[str, Any]], first: int) -> list[_Row]:
        """Make a row of each begin and its end. Begins without an end never end."""
        rows: list[_Row] = []
        open_rows: list[_Row] = []
        for event in sorted(events, key=lambda event: _ns(event["ts"])):
            time = _ns(event["ts"]) - self._base
            if event["ph"] == "B":
                around = open_rows[-1] if open_rows else None
                open_rows.append(_Row(time, NEVER, first + len(rows), event, around))
                rows.append(open_rows[-1])
            elif open_rows:
                open_rows.pop().end = time
            else:
                self._builder.unmatched += 1
        return rows

    def _spans(self, rows: list[_Row], nested: bool) -> Iterator[Any]:
        """Yield the rows as `Thread.spans` wants them; `nested`: some are begins with an end.

        A call ends before the next begins at the same time, but not if both are begins, and the
        next came before the end.
        """
        inside: list[_Row] = []
        for row in rows:
            span = self._span(row.event, row.start, row.end)
            if nested and span[-1] < 0:
                while inside and inside[-1].end <= row.start and inside[-1] is not row.around:
                    inside.pop()
                span = (*span[:-1], len(inside))
                inside.append(row)
            yield span

    def _span(self, event: dict[str, Any], start: int, end: int) -> Any:
        name, category = str(event.get("name", "?")), str(event.get("cat", ""))
        arguments = event.get("args") if self._ours else None
        arguments = arguments if isinstance(arguments, dict) else {}
        line = arguments.get("line")
        return (
            start,
            end,
            self._function(event, name, category),
            line if isinstance(line, int) else -1,
            self._kind(name, category),
            bool(arguments.get("raised")),
            bool(arguments.get("yielded")),
            int(arguments.get("depth", 0)) - 1,
        )

    def _read_steps(self, thread: Any, events: list[dict[str, Any]]) -> None:
        """Add begins and ends of calls; those with equal times keep the file's order."""
        lines = [-1]  # of each open call: where it calls the next
        for event in sorted(events, key=lambda event: _ns(event["ts"])):
            time = _ns(event["ts"]) - self._base
            if event["ph"] == "B":
                name, category = str(event.get("name", "?")), str(event.get("cat", ""))
                function = self._function(event, name, category)
                thread.begin(time, function, lines[-1], self._kind(name, category))
                line = _argument(event, "line") if category == _PY_SPY else None
                lines.append(line if isinstance(line, int) else -1)
            else:
                thread.end(time)
                if len(lines) > 1:
                    lines.pop()

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
