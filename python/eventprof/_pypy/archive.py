"""The .epr archive, version 1.4 (doc/epr-archive.rst), without the C core.

What the compiler and the garbage collector told is no event of that version: it is in the metadata,
under ``runtime_events``.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from typing import TYPE_CHECKING, Any

from ..export._proto import varint
from ..export.saving import write
from . import decode
from .core import VERSION

if TYPE_CHECKING:
    from .trace import Trace

RECORDING, METADATA, STRINGS, NAMES, SITES, THREADS, OPEN, RESIDENT, EVENTS, INDEX = range(1, 11)
MINOR = 4
_MAGIC = b"EVPARCH\n\x89\r\n\x1a"
_SECTION_ROWS = 1 << 18  # events of a section
_GOAL = 1 << 20  # raw bytes of a section of items; a larger item makes a larger one
_LIMIT = 64 << 20  # bytes of a section
_NAME_BYTES = 63  # of a thread; the core's EP_THREAD_NAME_BYTES less the zero
_U32 = (1 << 32) - 1
_NAME_KINDS = ("python", "c", "type", "object", "user", "gc", "audit", "hpy")
_FULL = {None: 0, "limit": 1, "memory": 2, "disk": 3}


def _numbers(*values: int) -> bytes:
    return b"".join(map(varint, values))


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _text(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


# ---- Writing -------------------------------------------------------------------------------------


class _Writer:
    """Sections, one after the other."""

    def __init__(self) -> None:
        version = VERSION.encode()[:15].ljust(16, b"\0")
        head = (
            _MAGIC + struct.pack("<HH", 1, MINOR) + b"0.1.0".ljust(16, b"\0") + version + bytes(12)
        )
        self.parts = [head + struct.pack("<I", zlib.crc32(head))]
        self.offset = 64
        self.index: list[bytes] = []

    def section(self, kind: int, items: int, raw: bytes) -> None:
        """Add a section."""
        stored, codec = zlib.compress(raw, 6), 1
        if len(stored) >= len(raw) or len(raw) > len(stored) * 1100 + 4096:
            stored, codec = raw, 0
        header = struct.pack("<IB3xQQQQI", kind, codec, len(raw), len(stored), items, 0,
                             zlib.crc32(stored))  # fmt: skip
        header += struct.pack("<I", zlib.crc32(header))
        self.index.append(struct.pack("<Q", self.offset) + header)
        self.parts += (header, stored)
        self.offset += len(header) + len(stored)

    def items(self, kind: int, items: list[bytes]) -> None:
        """Add items, in as many sections as they take."""
        position = 0
        while position < len(items):
            first, size = position, 0
            while position < len(items) and size < _GOAL:
                size += len(items[position])
                position += 1
            self.section(kind, position - first, b"".join(items[first:position]))

    def finish(self) -> list[bytes]:
        """Add index and trailer; give the file's bytes in pieces."""
        offset, count = self.offset, len(self.index)
        self.section(INDEX, count, b"".join(self.index[:count]))
        trailer = struct.pack("<QQ4x8s", offset, self.offset, b"EVPAREND")
        self.parts.append(trailer + struct.pack("<I", zlib.crc32(trailer)))
        return self.parts


def _runtime_events(data: decode.Data) -> dict[str, Any]:
    rows = []
    for note in data.notes:
        where = data.functions[note.function] if note.function >= 0 else None
        rows.append(
            [note.time, note.event, note.thread, where and where.name, where and where.module,
             where and where.file, note.line, note.details]
        )  # fmt: skip
    columns = ["time", "event", "thread", "name", "module", "file", "line", "details"]
    return {"columns": columns, "rows": rows, "lost": data.notes_lost}


def _metadata(trace: Trace) -> bytes:
    metadata = dict(trace._recorder_metadata)
    data = trace._data
    if trace.stats is not None:
        metadata["jit_stats"] = trace.stats._asdict()
    if data.notes or data.notes_lost:
        metadata["runtime_events"] = _runtime_events(data)
    packed = json.dumps(metadata, default=str, separators=(",", ":")).encode("ascii")
    if len(packed) <= _LIMIT:
        return packed
    # Operations are what can be so much.
    for row in metadata["runtime_events"]["rows"]:
        row[-1] = {key: value for key, value in row[-1].items() if key != "operations"}
    metadata["runtime_events"]["operations_left_out"] = True
    packed = json.dumps(metadata, default=str, separators=(",", ":")).encode("ascii")
    if len(packed) <= _LIMIT:
        return packed
    lost = metadata["runtime_events"]
    lost["lost"] += len(lost["rows"])
    lost["rows"] = []
    return json.dumps(metadata, default=str, separators=(",", ":")).encode("ascii")


def pack(trace: Trace) -> list[bytes]:
    """Return the bytes of an archive, in pieces."""
    data = trace._data
    writer = _Writer()
    start = data.start
    writer.section(
        RECORDING,
        1,
        struct.pack(
            "<QQqqqdQQQqQQIIQQQ", data.kinds_asked, start.ticks, start.monotonic_ns,
            start.realtime_ns, start.boottime_ns, data.frequency_hz, 0, data.process,
            data.filtered, data.duration, len(data.times), data.damaged, _FULL[data.full], 0,
            0, 0, 0,
        ),
    )  # fmt: skip
    writer.section(METADATA, 1, _metadata(trace))

    # Sites, and the names and texts that they mention, are numbered in order of use.
    names: dict[int, int] = {}
    sites: dict[tuple[int, int, int, int], int] = {}

    def name(function: int) -> int:
        return 0 if function < 0 else names.setdefault(function, len(names) + 1)

    def site(function: int, caller: int, offset: int, line: int) -> int:
        key = (name(function), name(caller), offset, line)
        return sites.setdefault(key, len(sites) + 1)

    open_calls = []
    for row, thread in enumerate(data.threads):
        for kind, function, caller in thread.open:
            open_calls.append(_numbers(row, kind, site(function, caller, -1, -1)))
    ids = []
    for kind, function, caller, offset, line in zip(
        data.kinds, data.functions_of, data.callers, data.offsets, data.caller_lines, strict=True
    ):
        opens = kind in decode.OPENING
        ids.append(site(function, caller, offset, line) if opens else name(function))

    strings: dict[str, int] = {}

    def string(text: str | None) -> int:
        return 0 if text is None else strings.setdefault(text, len(strings) + 1)

    name_items = []
    for function in names:
        one = data.functions[function]
        texts = map(string, (one.name, one.module, one.file))
        line = _zigzag(-1 if one.line is None else one.line)
        name_items.append(_numbers(*texts, line, _NAME_KINDS.index(one.kind)))
    site_items = [
        _numbers(callee, caller, _zigzag(offset), _zigzag(line))
        for callee, caller, offset, line in sites
    ]
    encoded = map(_text, strings)
    writer.items(STRINGS, [varint(len(text)) + text for text in encoded])
    writer.items(NAMES, name_items)
    writer.items(SITES, site_items)
    writer.items(THREADS, [_thread(thread) for thread in data.threads])
    writer.items(OPEN, open_calls)
    callees = [0, *(key[0] for key in sites)]
    for first in range(0, len(ids), _SECTION_ROWS):
        rows = range(first, min(first + _SECTION_ROWS, len(ids)))
        writer.section(EVENTS, len(rows), _block(data, ids, callees, rows))
    return writer.finish()


def _thread(thread: decode.Thread) -> bytes:
    text = _text(thread.name or "")[:_NAME_BYTES]
    if thread.name:
        text = text.decode("utf-8", "ignore").encode()  # cut between characters
    item = _numbers(1 | (2 if text else 0), thread.number, thread.native_id, len(text)) + text
    item += _numbers(_zigzag(thread.first or 0), _zigzag(thread.last or 0))
    for counts in (thread.recorded, thread.lost):
        item += varint(len(counts))
        for kind, count in sorted(counts.items()):
            item += _numbers(kind, count)
    return item


class Context:
    """What a section has of the events before one, by which writer and reader guess it."""

    def __init__(self) -> None:
        self._after_two, self._after_one = [0] * (1 << 16), [0] * (1 << 12)
        self._history: dict[int, tuple[int, int]] = {}
        self._stacks: dict[int, list[int]] = {}

    def stack(self, thread: int) -> list[int]:
        """Return the functions that are open on a thread, outermost first; to be changed."""
        return self._stacks.setdefault(thread, [])

    def guess(self, thread: int) -> tuple[int, int]:
        """Return the symbols that followed the thread's last two symbols, and its last one."""
        two, one = self._places(thread)
        return self._after_two[two], self._after_one[one]

    def note(self, thread: int, symbol: int) -> None:
        """Take notice of the next symbol of a thread."""
        two, one = self._places(thread)
        self._after_two[two] = self._after_one[one] = symbol
        self._history[thread] = symbol, self._history.get(thread, (0, 0))[0]

    def _places(self, thread: int) -> tuple[int, int]:
        before, before_that = self._history.get(thread, (0, 0))
        hashed = before * 0x9E3779B1 & _U32
        return (hashed ^ before_that * 0x85EBCA6B & _U32) >> 16, hashed >> 20


def close(stack: list[int], function: int) -> None:
    """End the innermost of the last eight calls that is of a function, and those in it."""
    for depth in range(1, min(8, len(stack)) + 1):
        if stack[-depth] == function:
            del stack[-depth:]
            return


def _block(data: decode.Data, ids: list[int], callees: list[int], rows: range) -> bytes:
    threads, times, long_times = bytearray(), bytearray(), bytearray()
    kinds, numbers = bytearray(), bytearray()
    context = Context()
    before_time = data.times[rows[0]]
    run_thread, run = -1, 0
    for row in rows:
        thread = data.threads_of[row]
        if thread != run_thread:
            if run:
                threads += _numbers(run_thread, run)
            run_thread, run = thread, 0
        run += 1
        passed, before_time = data.times[row] - before_time, data.times[row]
        if passed < 192:
            times.append(passed)
        elif passed < 192 + (63 << 8):
            times.append(192 + (passed - 192 >> 8))
            long_times.append(passed - 192 & 255)
        else:
            times.append(255)
            long_times += varint(passed - 192 - (63 << 8))
        kind, number = data.kinds[row], ids[row]
        stack = context.stack(thread)
        if kind in decode.OPENING:
            stack.append(callees[number])
        else:
            closed = number
            number = 0 if stack and stack[-1] == closed else closed + 1
            close(stack, closed)
        symbol = kind | number << 6
        after_two, after_one = context.guess(thread)
        if symbol == after_two:
            kinds.append(0)
        elif symbol == after_one:
            kinds.append(1)
        else:
            kinds.append(2 * kind + (1 if number else 0))
            if number:
                numbers += varint(number)
        context.note(thread, symbol)
    threads += _numbers(run_thread, run)
    streams = (threads, times, long_times, kinds, numbers, b"", b"", b"")
    head = struct.pack("<IIqq", len(rows), 0, data.times[rows[0]], before_time)
    lengths = struct.pack("<8I", *map(len, streams))
    return head + lengths + b"".join(bytes(stream) for stream in streams)


def save(trace: Trace, path: str | os.PathLike[str], force: bool = False) -> None:
    """Write a trace to a file; see `Trace.save`."""

    def put(fd: int) -> None:
        with open(fd, "wb", closefd=False) as file:
            file.writelines(pack(trace))

    write(put, path, force)
