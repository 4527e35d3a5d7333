"""Perfetto's protobuf: a packet sequence for each thread, interned names, an incremental clock.

A call is two packets, of 12 to 17 bytes and of 10 to 12; a change of live bytes is one of 15 or 16.
Field numbers are those of Perfetto's trace_packet.proto, track_event.proto, stack_sample.proto and
others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from .. import _core
from ._proto import double, fixed64, integer, message, text
from ._tree import Tree
from ._view import intern, parts_of_rows
from .chrome import live_bytes

if TYPE_CHECKING:
    from ..tables.column import Array
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
    process_tracks = {pid: next(tracks) for pid, _ in view.processes}
    if len(process_tracks) == 1:
        process_tracks = {view.process: _PROCESS_TRACK}
    out.write(_process(view, next(sequences), process_tracks))
    chosen = np.flatnonzero(view.thread_mask).tolist()
    thread_tracks = {thread: next(tracks) for thread in chosen}
    # Made before the steps, so that their memory is free again when the steps need memory.
    points = _points(view, next(sequences), thread_tracks, tracks)
    _ = view.sites
    left_out = 0
    for thread, steps in enumerate(view.steps):
        if thread not in thread_tracks:
            continue
        parent = process_tracks[view.pids[thread]]
        writer = _Thread(view, thread, thread_tracks[thread], parent, next(sequences))
        out.write(writer.head(steps))
        for part in steps.parts():
            view.tell(len(part))
            out.write(writer.slices(part))
        left_out += writer.left_out
    if left_out:
        options.notes.append(
            f"{left_out:,} calls are deeper than {DEPTH_MAX}, which Perfetto does not show"
        )
    out.write(points)
    for name, time, values in _memory(view):
        for packets in _counter(view, name, time, values, next(tracks), next(sequences)):
            out.write(packets)
    if view.has_memory:
        _write_stacks(view, out, next(sequences))


def _packet(sequence: int, *parts: bytes) -> bytes:
    return message(1, *parts, integer(10, sequence))


def _snapshot(view: View, *clocks: bytes) -> bytes:
    """Return a ClockSnapshot: the clocks at the window's start."""
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


def _process(view: View, sequence: int, tracks: dict[int, int]) -> bytes:
    """Describe the process; of several, each, and a track of what is of all of them."""
    loss = f" (with loss: {view.loss})" if view.loss else ""
    found = [_packet(sequence, _snapshot(view))]
    flags = integer(13, 1)
    if len(view.processes) > 1:
        whole = _descriptor(_PROCESS_TRACK, "(all processes)" + loss)
        found.append(_packet(sequence, flags, whole))
        loss, flags = "", integer(13, 0)
    for pid, title in view.processes:
        process = message(3, integer(1, pid), text(6, title))
        found.append(_packet(sequence, flags, _descriptor(tracks[pid], title + loss, process)))
    return b"".join(found)


def _begin(view: View, sequence: int, *defaults: bytes) -> bytes:
    """Begin a sequence with defaults of its packets; its clock starts at the window's start."""
    clock = message(
        1,
        integer(1, _INCREMENTAL),
        integer(2, view.trace.metadata["start_monotonic_ns"]),
        integer(3, 1),
    )
    all_defaults = message(59, *defaults, integer(58, _INCREMENTAL))
    return _packet(sequence, integer(13, _CLEARED), all_defaults) + _packet(
        sequence, integer(13, _NEEDED), _snapshot(view, clock)
    )


def _on_track(track: int) -> bytes:
    """Return the default of events that are on one track."""
    return message(11, integer(11, track))


class _Thread:
    """Writes the calls of one thread, a part at a time."""

    def __init__(self, view: View, thread: int, track: int, parent: int, sequence: int) -> None:
        self._view = view
        self._thread = thread
        self._track = track
        self._parent = parent
        self._sequence = sequence
        self._depth = 0
        self._last_ns = 0
        self.left_out = 0

    def head(self, steps: Steps) -> bytes:
        """Describe the thread, and intern the names and call sites of its calls."""
        view = self._view
        thread = message(
            4,
            integer(1, view.pids[self._thread]),
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
            self._track, view.thread_names[self._thread], thread, parent=self._parent
        )
        return (
            _begin(view, self._sequence, _on_track(self._track))
            + _packet(self._sequence, integer(13, _NEEDED), descriptor)
            + _packet(self._sequence, integer(13, _NEEDED), message(12, *interned))
        )

    def slices(self, steps: Array) -> bytes:
        """Return the packets of a part of the steps."""
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


def _counter(
    view: View, name: str, time: Array, values: Array, track: int, sequence: int
) -> Iterator[bytes]:
    describe = _descriptor(track, name, message(8, integer(3, _BYTES)), parent=_PROCESS_TRACK)
    head = _begin(view, sequence, _on_track(track))
    yield head + _packet(sequence, integer(13, _NEEDED), describe)
    last = 0
    for rows in parts_of_rows(len(time)):
        packets, last = _core.perfetto_counters(time[rows], values[rows], sequence, last)
        yield packets


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

    A frame has the line of the call that it makes. The innermost frame has no line. A stack names
    all of its frames, so the frames with the smallest numbers are those that most stacks have.
    """
    duration = view.trace.duration
    tree = Tree(view, sites=True)
    measures = [  # in order of time
        ("at_peak", "bytes that live at the peak", view.trace.peak().time or 0),
        ("allocated", "bytes allocated", duration),
        ("live", "bytes that live at the end", duration),
    ]
    figures = tree.own(*(word for word, _, _ in measures))
    described = [
        message(50, integer(1, number), text(2, meaning), integer(3, _SAMPLE_BYTES))
        for number, (_, meaning, _) in enumerate(measures, 1)
    ]
    task = message(48, integer(1, 1), integer(2, view.process))
    used = np.logical_or.reduce([values != 0 for values in figures.values()])
    frames, inner, calling = _frames(view, tree, used)
    source = message(100, text(1, "eventprof"))
    out.write(_begin(view, sequence, source))
    interned = message(12, *described, task, *frames)
    out.write(_packet(sequence, integer(13, _NEEDED), interned))
    stacks: list[bytes] = []  # the frames around each node
    rows = zip(tree.parent.tolist(), inner, calling, used.tolist(), strict=True)
    whole: dict[int, bytes] = {}
    for node, (parent, last, caller, wanted) in enumerate(rows):
        stacks.append(stacks[parent] + caller if parent >= 0 else b"")
        if wanted:
            whole[node] = stacks[node] + last
    numbers: dict[int, int] = {}
    now = 0
    for number, (word, _, time) in enumerate(measures, 1):
        nodes = np.flatnonzero(figures[word])
        for node, value in zip(nodes.tolist(), figures[word][nodes].tolist(), strict=True):
            new = b""
            if node not in numbers:
                numbers[node] = len(numbers) + 1
                new = message(12, message(7, integer(1, numbers[node]), whole.pop(node)))
            parts = (
                integer(2, 1),
                integer(6, numbers[node]),
                integer(10, number),
                integer(11, value),
            )
            out.write(
                _packet(
                    sequence,
                    integer(8, time - now),
                    integer(13, _NEEDED),
                    new,
                    message(135, *parts),
                )
            )
            now = time


def _frames(view: View, tree: Tree, used: Array) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """Return the interned frames, and of each node the frame as the innermost, and its caller's."""
    count = len(tree)
    outermost = tree.parent < 0
    key, (functions, lines) = intern(
        [
            np.concatenate([tree.function, tree.function[tree.parent]]),
            np.concatenate([np.full(count, -1, np.int32), tree.line]),
        ]
    )
    stacks = np.concatenate([used, np.where(outermost, 0, tree.inclusive(used))])
    uses = np.bincount(key, stacks, len(functions))
    order = np.argsort(-uses, kind="stable")
    order = order[uses[order] > 0]
    number = np.zeros(len(functions), np.int64)
    number[order] = np.arange(1, len(order) + 1)
    found = []
    for function in np.unique(functions[order]).tolist():
        found.append(message(5, integer(1, function + 1), text(2, view.names[function])))
        found.append(message(18, integer(1, function + 1), text(2, view.files[function] or "")))
    for frame, row in enumerate(order.tolist(), 1):
        function, line = int(functions[row]), int(lines[row])
        at_line = integer(6, line) if line >= 0 else b""
        parts = (integer(field, function + 1) for field in (2, 5))
        found.append(message(6, integer(1, frame), *parts, at_line, integer(7, _INTERPRETED)))
    references = [integer(2, frame) for frame in range(len(order) + 1)]
    of_node = [references[frame] for frame in number[key].tolist()]
    return found, of_node[:count], of_node[count:]


def _points(
    view: View, sequence: int, thread_tracks: dict[int, int], tracks: Iterator[int]
) -> bytes:
    """Return the program's marks, counters and flows."""
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
