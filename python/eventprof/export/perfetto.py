"""Perfetto's protobuf: a packet sequence for each thread, interned names, an incremental clock.

A call is two packets of 12 to 19 bytes. Field numbers are those of Perfetto's trace_packet.proto,
track_event.proto, stack_sample.proto and others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from .. import _core
from ._proto import double, fixed64, integer, message, text
from ._tree import Tree
from .chrome import live_bytes

if TYPE_CHECKING:
    from ..trace.column import Array
    from . import Options
    from ._view import Steps, View

#: Perfetto's importer drops deeper calls.
DEPTH_MAX = 512

_REALTIME, _MONOTONIC, _INCREMENTAL = 1, 3, 64
_BYTES = 3  # CounterDescriptor.UNIT_SIZE_BYTES
_INSTANT, _COUNTER = 3, 4
_SAMPLE_BYTES = 4  # StackSample.UNIT_BYTES
_INTERPRETED = 3  # Frame.KIND_INTERPRETED
_PROCESS_TRACK = 1
_CLEARED, _NEEDED = 3, 2  # SEQ_INCREMENTAL_STATE_CLEARED | SEQ_NEEDS_..., SEQ_NEEDS_...


def write(view: View, out: IO[bytes], options: Options) -> None:
    """Write the trace. Times are of CLOCK_MONOTONIC; a snapshot relates it to CLOCK_REALTIME."""
    sequences = iter(range(1, 1 << 31))
    tracks = iter(range(_PROCESS_TRACK + 1, 1 << 62))
    out.write(_process(view, next(sequences)))
    chosen = np.flatnonzero(view.thread_mask).tolist()
    thread_tracks = {thread: next(tracks) for thread in chosen}
    # Made before the steps, so that their memory is free again when the steps need memory.
    points = _points(view, next(sequences), thread_tracks, tracks)
    _ = view.sites
    left_out = 0
    done = 0
    for thread, steps in enumerate(view.steps):
        if thread not in thread_tracks:
            continue
        writer = _Thread(view, thread, thread_tracks[thread], next(sequences))
        out.write(writer.head(steps))
        for part in steps.parts():
            if view.progress is not None:
                view.progress(done, 2 * len(view))
            out.write(writer.slices(part))
            done += len(part)
        left_out += writer.left_out
    if left_out:
        options.notes.append(
            f"{left_out:,} calls are deeper than {DEPTH_MAX}, which Perfetto does not show"
        )
    out.write(points)
    for name, time, values in _memory(view):
        out.write(_counter(view, name, time, values, next(tracks), next(sequences)))
    if view.has_memory:
        _write_stacks(view, out, next(sequences))


def _packet(sequence: int, *parts: bytes) -> bytes:
    return message(1, *parts, integer(10, sequence))


def _snapshot(view: View, *clocks: bytes) -> bytes:
    """Give a ClockSnapshot: the clocks at the window's start."""
    metadata = view.trace.metadata
    return message(
        6,
        message(1, integer(1, _MONOTONIC), integer(2, metadata["start_monotonic_ns"])),
        message(1, integer(1, _REALTIME), integer(2, metadata["start_ns"])),
        *clocks,
        integer(2, _MONOTONIC),
    )


def _descriptor(track: int, name: str, *parts: bytes, parent: int | None = None) -> bytes:
    above = b"" if parent is None else integer(5, parent)
    return message(60, integer(1, track), text(2, name), above, *parts)


def _process(view: View, sequence: int) -> bytes:
    process = message(3, integer(1, view.process), text(6, view.title))
    loss = f" (with loss: {view.loss})" if view.loss else ""
    return _packet(sequence, _snapshot(view)) + _packet(
        sequence, integer(13, 1), _descriptor(_PROCESS_TRACK, view.title + loss, process)
    )


def _begin(view: View, track: int, sequence: int) -> bytes:
    """Begin a sequence of events on one track; its clock starts at the window's start."""
    clock = message(
        1,
        integer(1, _INCREMENTAL),
        integer(2, view.trace.metadata["start_monotonic_ns"]),
        integer(3, 1),
    )
    defaults = message(59, message(11, integer(11, track)), integer(58, _INCREMENTAL))
    return _packet(sequence, integer(13, _CLEARED), defaults) + _packet(
        sequence, integer(13, _NEEDED), _snapshot(view, clock)
    )


class _Thread:
    """Writes the calls of one thread, a part at a time."""

    def __init__(self, view: View, thread: int, track: int, sequence: int) -> None:
        self._view = view
        self._thread = thread
        self._track = track
        self._sequence = sequence
        self._depth = 0
        self._last_ns = 0
        self.left_out = 0

    def head(self, steps: Steps) -> bytes:
        """Describe the thread, and intern the names and call sites of its calls."""
        view = self._view
        thread = message(
            4,
            integer(1, view.process),
            integer(2, view.thread_ids[self._thread]),
            text(5, view.thread_names[self._thread]),
        )
        site, places = view.sites
        used = np.zeros(len(view.names) + 1, bool)
        used_sites = np.zeros(len(places) + 1, bool)
        for part in steps.parts():
            begun = part[part >= 0]
            used[view.function[begun]] = True  # -1 is the last element
            used_sites[site[begun]] = True
        used[-2] |= used[-1]
        interned = [
            message(2, integer(1, row + 1), text(2, view.names[row]))
            for row in np.flatnonzero(used[:-1]).tolist()
        ]
        for number in np.flatnonzero(used_sites).tolist():
            if number > 0:
                caller, line = places[number - 1]
                interned.append(
                    message(
                        4,
                        integer(1, number),
                        text(2, view.files[caller] or ""),
                        text(3, view.names[caller]),
                        integer(4, line),
                    )
                )
        descriptor = _descriptor(
            self._track, view.thread_names[self._thread], thread, parent=_PROCESS_TRACK
        )
        return (
            _begin(view, self._track, self._sequence)
            + _packet(self._sequence, integer(13, _NEEDED), descriptor)
            + _packet(self._sequence, integer(13, _NEEDED), message(12, *interned))
        )

    def slices(self, steps: Array) -> bytes:
        """Give the packets of a part of the steps."""
        view = self._view
        packets, self._depth, self._last_ns, left_out = _core.perfetto_slices(
            steps,
            view.start,
            view.duration,
            view.function,
            view.sites[0],
            len(view.names),
            self._sequence,
            self._depth,
            DEPTH_MAX,
            self._last_ns,
        )
        self.left_out += left_out
        return packets


def _counter(view: View, name: str, time: Array, values: Array, track: int, sequence: int) -> bytes:
    describe = _descriptor(track, name, message(8, integer(3, _BYTES)), parent=_PROCESS_TRACK)
    head = _begin(view, track, sequence)
    packets, _ = _core.perfetto_counters(time, values, sequence, 0)
    return head + _packet(sequence, integer(13, _NEEDED), describe) + packets


def _memory(view: View) -> Iterator[tuple[str, Array, Array]]:
    """Yield every change of live memory by domain, and the resident set."""
    if not view.has_memory:
        return
    for domain, (time, live) in live_bytes(view, 1 << 62)[0].items():
        yield f"live {domain}", time, live
    resident = view.trace.resident
    chosen = view.times(resident["time"])
    time, size = (np.ascontiguousarray(resident[c][chosen]) for c in ("time", "bytes"))
    yield "resident", time, size


def _write_stacks(view: View, out: IO[bytes], sequence: int) -> None:
    """Write bytes by stack, as StackSamples: bytes allocated, at the peak, and at the end.

    A frame has the line of the call that it makes. The innermost frame has no line.
    """
    trace = view.trace
    start = int(trace.metadata["start_monotonic_ns"])
    end = start + trace.duration
    tree = Tree(view, sites=True)
    measures = [
        ("allocated", "bytes allocated", end),
        ("at_peak", "bytes that live at the peak", start + (trace.peak().time or 0)),
        ("live", "bytes that live at the end", end),
    ]
    figures = tree.own(*(word for word, _, _ in measures))
    described = [
        message(50, integer(1, at), text(2, told), integer(3, _SAMPLE_BYTES))
        for at, (_, told, _) in enumerate(measures, 1)
    ]
    defaults = message(59, message(100, text(1, "eventprof")), integer(58, _MONOTONIC))
    out.write(_packet(sequence, integer(13, _CLEARED), defaults))
    out.write(_packet(sequence, integer(13, _NEEDED), message(12, *described)))
    task = message(1, integer(2, view.process))
    frames: dict[tuple[int, int], int] = {}
    named: set[int] = set()
    new: list[bytes] = []  # interned by the next packet

    def frame(function: int, line: int) -> int:
        found = frames.get((function, line))
        if found is not None:
            return found
        if function not in named:
            named.add(function)
            new.append(message(5, integer(1, function + 1), text(2, view.names[function])))
            new.append(message(18, integer(1, function + 1), text(2, view.files[function] or "")))
        found = frames[function, line] = len(frames) + 1
        at_line = integer(6, line) if line >= 0 else b""
        parts = (integer(field, function + 1) for field in (2, 5))
        new.append(message(6, integer(1, found), *parts, at_line, integer(7, _INTERPRETED)))
        return found

    functions, parents, lines = (
        column.tolist() for column in (tree.function, tree.parent, tree.line)
    )
    values = list(zip(*(column.tolist() for column in figures.values()), strict=True))
    calling: list[tuple[int, ...]] = []  # the frames around each node
    for node, parent in enumerate(parents):
        around: tuple[int, ...] = ()
        if parent >= 0:
            around = (*calling[parent], frame(functions[parent], lines[node]))
        calling.append(around)
        if not any(values[node]):
            continue
        stack = b"".join(integer(2, number) for number in (*around, frame(functions[node], -1)))
        new.append(message(7, integer(1, node + 1), stack))
        for at, ((_, _, time), value) in enumerate(zip(measures, values[node], strict=True), 1):
            if value:
                sample = message(
                    135, task, integer(6, node + 1), integer(10, at), integer(11, value)
                )
                interned = message(12, *new) if new else b""
                new.clear()
                out.write(
                    _packet(sequence, integer(8, time), integer(13, _NEEDED), interned, sample)
                )


def _points(
    view: View, sequence: int, thread_tracks: dict[int, int], tracks: Iterator[int]
) -> bytes:
    """Give the program's marks, counters and flows."""
    start = int(view.trace.metadata["start_monotonic_ns"])

    def packet(time: int, *event: bytes) -> bytes:
        return _packet(
            sequence,
            integer(8, start + time),
            integer(58, _MONOTONIC),
            message(11, *event),
        )

    found: list[bytes] = []
    for mark in view.table("marks"):
        track = thread_tracks.get(mark.thread, _PROCESS_TRACK)
        found.append(
            packet(mark.time, integer(9, _INSTANT), integer(11, track), text(23, mark.name or "?"))
        )
    for flow in view.table("flows"):
        track = thread_tracks.get(flow.thread, _PROCESS_TRACK)
        field = 48 if flow.phase == "end" else 47
        found.append(
            packet(
                flow.time,
                integer(9, _INSTANT),
                integer(11, track),
                text(23, flow.name or "?"),
                fixed64(field, flow.id),
            )
        )
    counters: dict[Any, int] = {}
    for counter in view.table("counters"):
        if counter.name not in counters:
            counters[counter.name] = next(tracks)
            describe = _descriptor(
                counters[counter.name], counter.name or "?", message(8), parent=_PROCESS_TRACK
            )
            found.append(_packet(sequence, describe))
        found.append(
            packet(
                counter.time,
                integer(9, _COUNTER),
                integer(11, counters[counter.name]),
                double(44, counter.value),
            )
        )
    return b"".join(found)
