"""Perfetto's protobuf: track events, which are slices, instants and counters."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from typing import Any

from .._words import plural
from . import Unreadable
from ._build import CALL, Builder

_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
_CLEARED = 1
_BUILTIN_MONOTONIC, _BUILTIN_REALTIME, _BUILTIN_BOOTTIME = 3, 1, 6
#: Fields of a packet that are read, and fields that are not events.
_SILENT = {6, 8, 10, 12, 13, 35, 41, 42, 58, 59, 60, 87}

_STATS, _DROPPED = 35, 42  # trace_stats, previous_packet_dropped
#: Fields of BufferStats that count what was lost.
_LOSSES = {
    3: "chunks that were overwritten", 18: "chunks that were discarded",
    19: "packets of a writer without room",
}  # fmt: skip

Field = tuple[int, Any]


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data):
            raise Unreadable("it ends in the middle of a number")
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
        if shift > 63:
            raise Unreadable(f"offset {position}: a number that does not end")


def fields(data: bytes) -> Iterator[Field]:
    """Yield the fields of a message: numbers, or bytes."""
    position, end = 0, len(data)
    while position < end:
        tag, position = _varint(data, position)
        wire = tag & 7
        if wire == 0:
            value: Any
            value, position = _varint(data, position)
        elif wire == 2:
            size, position = _varint(data, position)
            value = data[position : position + size]
            if len(value) != size:
                raise Unreadable("it ends in the middle of a message")
            position += size
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            value = data[position : position + size]
            if len(value) != size:
                raise Unreadable("it ends in the middle of a number")
            position += size
        else:
            raise Unreadable(f"offset {position}: there is no wire type {wire}")
        yield tag >> 3, value


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


class _Sequence:
    """The state of a packet sequence: interned names, defaults, clocks."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.lines: dict[int, int] = {}
        self.categories: dict[int, str] = {}
        self.clock = 0
        self.track = 0
        self.clocks: dict[int, tuple[int, int, bool]] = {}  # time, ns of a tick, incremental
        self.thread: tuple[int, int] | None = None


class _Track:
    def __init__(self) -> None:
        self.name: str | None = None
        self.parent: int | None = None
        self.thread: tuple[int, int] | None = None
        self.process: tuple[int, str] | None = None
        self.is_counter = False
        self.incremental = False
        self.total = 0


def read(path: str, data: bytes, builder: Builder) -> None:
    """Fill the builder."""
    _Reader(builder).read(data)
    builder.lacks += ["allocations", "exceptions"]


class _Reader:
    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._sequences: dict[int, _Sequence] = {}
        self._tracks: dict[int, _Track] = {}
        self._events: list[tuple[int, int, int, Any]] = []
        self._left_out: Counter[int] = Counter()
        self._snapshots: dict[int, int] = {}
        self._dropped = 0
        self._lost: Counter[str] = Counter()

    def read(self, data: bytes) -> None:
        """Read all packets, then add their events in order of time."""
        try:
            for field, packet in fields(data):
                if field == 1:
                    self._packet(packet)
        except Unreadable as error:
            if not self._events:
                raise
            self._builder.missing.append(f"the end of the file: {error}")
        if not self._events and not self._tracks:
            raise Unreadable("it has no track events")
        if self._left_out:
            count = sum(self._left_out.values())
            self._builder.notes.append(
                f"{count:,} packets that are not track events, of fields "
                f"{', '.join(map(str, sorted(self._left_out)))}"
            )
        if self._lost:
            what = ", ".join(f"{count:,} {word}" for word, count in self._lost.items())
            self._builder.lost.append(f"EVENTS LOST: the buffers of Perfetto lost {what}")
        elif self._dropped:
            times = plural(self._dropped, "time")
            self._builder.lost.append(f"EVENTS LOST: packets were dropped {times}")
        self._events.sort(key=lambda event: event[:2])
        first = self._events[0][0] if self._events else 0
        base = first
        monotonic = self._snapshots.get(_BUILTIN_MONOTONIC)
        if monotonic is not None and monotonic <= first:
            base = monotonic  # the recording began there
            self._builder.monotonic_ns = monotonic
            self._builder.start_ns = self._snapshots.get(_BUILTIN_REALTIME, 0)
        for time, _, kind, event in self._events:
            self._tell(time - base, kind, event)

    # ---- Packets -----------------------------------------------------------------------------

    def _packet(self, packet: bytes) -> None:
        found: dict[int, Any] = {}
        for field, value in fields(packet):
            found[field] = value
        sequence = self._sequences.setdefault(found.get(10, 0), _Sequence())
        if found.get(13, 0) & _CLEARED or found.get(41):
            clocks, thread = sequence.clocks, sequence.thread
            sequence.__init__()  # type: ignore[misc]
            sequence.clocks, sequence.thread = clocks, thread
        if 59 in found:
            self._defaults(sequence, found[59])
        if found.get(_DROPPED):
            self._dropped += 1
        if _STATS in found:
            self._read_stats(found[_STATS])
        if 12 in found:
            self._intern(sequence, found[12])
        if 6 in found:
            self._snapshot(sequence, found[6])
        if 60 in found:
            self._describe(sequence, found[60])
        if 11 in found:
            time = self._time(sequence, found)
            self._event(sequence, time, found[11])
        elif (
            8 in found and 58 not in found and sequence.clocks.get(sequence.clock, (0, 0, False))[2]
        ):
            self._time(sequence, found)  # every packet advances an incremental clock
        for field in found.keys() - _SILENT - {11}:
            self._left_out[field] += 1

    def _time(self, sequence: _Sequence, found: dict[int, Any]) -> int:
        clock = found.get(58, sequence.clock)
        time = int(found.get(8, 0))
        known = sequence.clocks.get(clock)
        if known is None or clock < 64:
            return time
        last, multiplier, incremental = known
        if not incremental:
            return last + time * multiplier
        now = last + time * multiplier
        sequence.clocks[clock] = now, multiplier, True
        return now

    def _snapshot(self, sequence: _Sequence, data: bytes) -> None:
        clocks = []
        for field, value in fields(data):
            if field == 1:
                known = dict(fields(value))
                clocks.append(known)
        builtin = {c[1]: c.get(2, 0) for c in clocks if c.get(1, 0) < 64}
        if not self._snapshots:
            self._snapshots = builtin
        anchor = builtin.get(_BUILTIN_MONOTONIC, builtin.get(_BUILTIN_BOOTTIME))
        for known in clocks:
            number = known.get(1, 0)
            if number >= 64:
                multiplier = known.get(4, 1) or 1
                incremental = bool(known.get(3))
                time_ns = known.get(2, 0) * multiplier
                if anchor is not None:
                    # The zero of this clock, as a time of the trace's clock.
                    time_ns = anchor if incremental else anchor - time_ns
                sequence.clocks[number] = time_ns, multiplier, incremental

    def _read_stats(self, data: bytes) -> None:
        """Take what the tracing service says of its buffers: its last word counts."""
        self._builder.loss_unknown = None
        self._lost.clear()
        for field, value in fields(data):
            if field == 1:  # BufferStats
                for number, count in fields(value):
                    if number in _LOSSES and count:
                        self._lost[_LOSSES[number]] += count

    def _defaults(self, sequence: _Sequence, data: bytes) -> None:
        for field, value in fields(data):
            if field == 58:
                sequence.clock = value
            elif field == 11:
                sequence.track = dict(fields(value)).get(11, sequence.track)

    def _intern(self, sequence: _Sequence, data: bytes) -> None:
        for field, value in fields(data):
            if field not in (1, 2, 4):
                continue
            entry = dict(fields(value))
            number = entry.get(1, 0)
            if field == 4:
                sequence.lines[number] = entry.get(4, -1)
            else:
                into = sequence.names if field == 2 else sequence.categories
                into[number] = _text(entry.get(2, b""))

    def _describe(self, sequence: _Sequence, data: bytes) -> None:
        known = dict(fields(data))
        track = self._tracks.setdefault(known.get(1, 0), _Track())
        name = known.get(2) or known.get(10)
        if name:
            track.name = _text(name)
        track.parent = known.get(5, track.parent)
        if 4 in known:
            thread = dict(fields(known[4]))
            track.thread = thread.get(1, 0), thread.get(2, 0)
            if 5 in thread:
                track.name = track.name or _text(thread[5])
        if 3 in known:
            process = dict(fields(known[3]))
            track.process = process.get(1, 0), _text(process.get(6, b""))
            self._builder.metadata.setdefault("pid", track.process[0])
            _, with_loss, loss = (track.name or "").partition(" (with loss: ")
            if with_loss:  # our export writes it
                self._builder.lost.append(f"with loss: {loss.removesuffix(')')}")
            if track.process[1]:
                self._builder.metadata.setdefault("argv", (track.process[1],))
        if 8 in known:
            track.is_counter = True
            track.incremental = bool(dict(fields(known[8])).get(5))

    # ---- Events ------------------------------------------------------------------------------

    def _event(self, sequence: _Sequence, time: int, data: bytes) -> None:
        kind, track, name, line, value, flow = 0, sequence.track, None, -1, 0.0, None
        category = ""
        for field, given in fields(data):
            if field == 9:
                kind = given
            elif field == 11:
                track = given
            elif field == 10:
                name = sequence.names.get(given, f"(name {given})")
            elif field == 23:
                name = _text(given)
            elif field == 34:
                line = sequence.lines.get(given, -1)
            elif field == 33:
                line = dict(fields(given)).get(4, -1)
            elif field == 22:
                category = _text(given)
            elif field == 3:
                category = sequence.categories.get(given, "")
            elif field == 30:
                value = float(_signed(given))
            elif field == 44:
                value = struct.unpack("<d", given)[0]
            elif field in (47, 48):
                flow = struct.unpack("<Q", given)[0], 2 if field == 48 else 1
            elif field in (36, 42):
                flow = given, 2 if field == 42 else 1
        event = track, name, line, value, flow, category
        self._events.append((time, len(self._events), kind, event))

    def _tell(self, time: int, kind: int, event: Any) -> None:
        builder = self._builder
        number, name, line, value, flow, _ = event
        track = self._tracks.get(number) or _Track()
        if kind == _COUNTER:
            if track.incremental:
                track.total += value
                value = track.total
            thread = builder.thread((number, "counter"), "(counters)")
            thread.counter(time, name or track.name or "?", value)
            return
        native = track.thread[1] if track.thread is not None else 0
        thread = builder.thread(number, track.name or f"track {number}", max(native, 0))
        if kind == _BEGIN:
            place = line if isinstance(line, int) else -1
            thread.begin(time, builder.function(name or "?"), place, CALL)
        elif kind == _END:
            thread.end(time)
        elif kind == _INSTANT and flow is not None:
            thread.flow(time, name or "?", *flow)
        elif kind == _INSTANT:
            thread.mark(time, name or "?")
        else:
            self._left_out[11] += 1
