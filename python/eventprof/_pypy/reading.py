"""eventprof.open() on PyPy: archives of calls, in Python."""

from __future__ import annotations

import json
import os
import struct
import warnings
import zlib
from typing import Any

from ..tables.kinds import WORDS
from . import decode, log, runtime
from .archive import (
    _FULL,
    _MAGIC,
    _NAME_KINDS,
    EVENTS,
    INDEX,
    METADATA,
    MINOR,
    NAMES,
    OPEN,
    RECORDING,
    SITES,
    STRINGS,
    THREADS,
    Context,
    close,
)  # fmt: skip
from .core import FormatError, UnsupportedError
from .trace import Trace


class _Bytes:
    """Bytes that are read from the front; reading past the end is a FormatError."""

    __slots__ = ("data", "offset", "path")

    def __init__(self, data: bytes, path: str) -> None:
        self.data = data
        self.offset = 0
        self.path = path

    def take(self, count: int) -> bytes:
        if self.offset + count > len(self.data):
            raise FormatError(f"{self.path}: a part of it ends too early")
        self.offset += count
        return self.data[self.offset - count : self.offset]

    def byte(self) -> int:
        return self.take(1)[0]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def zigzag(self) -> int:
        value = self.varint()
        return value >> 1 if value % 2 == 0 else -(value >> 1) - 1


def open(path: str | os.PathLike[str], *, follow: bool = False) -> Trace:
    """Open an archive that was saved with PyPy, or with CPython if it has calls alone.

    Parameters
    ----------
    path : str or path-like
        What `Trace.save` wrote.
    follow : bool
        Not on PyPy.

    Returns
    -------
    Trace
        With the tables of the one that was saved.

    Raises
    ------
    FormatError
        It is no such file, or it is damaged.
    UnsupportedError
        A newer eventprof wrote it; or it is compressed by zstd, has allocations, or is a log.
    OSError
        The system refused.
    """
    source = os.fspath(path)
    elsewhere = "open it with CPython"
    if follow:
        raise UnsupportedError(
            f"follow=True is not available on PyPy: only the C core writes log files; {elsewhere}"
        )
    with os.fdopen(os.open(source, os.O_RDONLY | os.O_CLOEXEC), "rb") as file:
        content = file.read()
    if content.startswith(b"EVPLOG"):
        raise UnsupportedError(
            f"{source}: a log of a program cannot be read on PyPy, that needs the C core; "
            f"{elsewhere}, or 'eventprof save' it there"
        )
    if content[:12] != _MAGIC:
        raise FormatError(f"{source}: it is not an archive of eventprof (offset 0)")
    try:
        return _read(content, source)
    except (struct.error, zlib.error, IndexError, KeyError, UnicodeDecodeError) as error:
        raise FormatError(f"{source}: it is damaged ({error!r})") from None


def _sections(content: bytes, source: str) -> tuple[list[tuple[int, int, int, bytes]], str]:
    """Return (type, items, allocator events, raw bytes) of each, and what is missing."""
    major, minor = struct.unpack_from("<HH", content, 12)
    if zlib.crc32(content[:60]) != struct.unpack_from("<I", content, 60)[0]:
        raise FormatError(f"{source}: its header's checksum is wrong (offset 60)")
    if major != 1:
        writer = content[16:32].rstrip(b"\0").decode("ascii", "replace")
        raise UnsupportedError(
            f"{source}: it has format {major}, and this eventprof reads format 1: "
            f"use eventprof {writer} or later"
        )
    if minor < MINOR:
        raise UnsupportedError(
            f"{source}: it has format 1.{minor}, and this eventprof reads format 1.{MINOR}"
        )
    position = 64
    found: list[tuple[int, int, int, bytes]] = []
    while True:
        header = content[position : position + 48]
        if len(header) < 48 or zlib.crc32(header[:44]) != struct.unpack_from("<I", header, 44)[0]:
            return found, f"its part {len(found) + 1}, at offset {position}, is damaged or missing"
        kind, codec, raw, stored, items, blocks, crc = struct.unpack_from("<IB3xQQQQI", header)
        if kind == INDEX:
            return found, ""
        body = content[position + 48 : position + 48 + stored]
        if len(body) < stored or zlib.crc32(body) != crc:
            return found, f"its part {len(found) + 1}, at offset {position}, is damaged or cut off"
        if codec == 2:
            raise UnsupportedError(
                f"{source}: it is compressed by zstd, which PyPy's standard library lacks; open "
                "it with CPython"
            )
        body = zlib.decompress(body) if codec == 1 else body
        if len(body) != raw:
            return found, f"its part {len(found) + 1}, at offset {position}, has another size"
        found.append((kind, items, blocks, body))
        position += 48 + stored


def _read(content: bytes, source: str) -> Trace:
    sections, wrong = _sections(content, source)
    if any(blocks for _, _, blocks, _ in sections):
        raise UnsupportedError(
            f"{source}: it has allocations, whose tables need the C core; open it with CPython"
        )
    data = decode.Data()
    metadata: dict[str, Any] = {}
    strings: list[str | None] = [None]
    sites = [(0, 0, -1, -1)]
    threads_with_open: list[tuple[int, int, int]] = []
    has_recording = False
    for kind, items, _, raw in sections:
        section = _Bytes(raw, source)
        if kind == RECORDING:
            fields = struct.unpack_from("<QQqqqdQQQqQQII", raw)
            data.kinds_asked, data.frequency_hz = fields[0], fields[5]
            data.start = log.Anchor(fields[1], fields[2], fields[3], fields[4])
            data.process, data.filtered, data.duration = fields[7:10]
            data.damaged = fields[11]
            data.full = {number: word for word, number in _FULL.items()}.get(fields[12])
            has_recording = True
        elif kind == METADATA:
            found = json.loads(raw or b"{}")
            metadata = found if isinstance(found, dict) else {}
        for _ in range(items if kind in (STRINGS, NAMES, SITES, THREADS, OPEN) else 0):
            if kind == STRINGS:
                strings.append(section.take(section.varint()).decode("utf-8", "surrogatepass"))
            elif kind == NAMES:
                texts = [strings[section.varint()] for _ in range(3)]
                line = section.zigzag()
                data.functions.append(
                    decode.Function(
                        texts[0], texts[1], texts[2], None if line < 0 else line,
                        _NAME_KINDS[section.varint()],
                    )
                )  # fmt: skip
            elif kind == SITES:
                sites.append(
                    (section.varint(), section.varint(), section.zigzag(), section.zigzag())
                )
            elif kind == THREADS:
                data.threads.append(_thread(section))
            else:
                threads_with_open.append((section.varint(), section.varint(), section.varint()))
    if not has_recording:
        raise FormatError(f"{source}: {wrong or 'what it says about its recording is missing'}")
    for row, kind, site in threads_with_open:
        callee, caller = sites[site][:2]
        data.threads[row].open.append((kind, callee - 1, caller - 1))
    for kind, _items, _, raw in sections:
        if kind == EVENTS:
            _block(raw, sites, data, source)
    if wrong:
        warnings.warn(f"{source}: {wrong}; what is before it can be read", RuntimeWarning,
                      stacklevel=4)  # fmt: skip
    _notes(data, metadata.pop("runtime_events", None))
    stats = metadata.pop("jit_stats", None)
    file = {"path": source, "format": "archive", "version": struct.unpack_from("<HH", content, 12),
            "bytes": len(content), "missing": [wrong] if wrong else []}  # fmt: skip
    return Trace(data, metadata, None if stats is None else runtime.Stats(**stats), file)


def _counts(data: _Bytes) -> dict[int, int]:
    return {data.varint(): data.varint() for _ in range(data.varint())}


def _thread(data: _Bytes) -> decode.Thread:
    flags, number, native_id = data.varint(), data.varint(), data.varint()
    name = data.take(data.varint()).decode("utf-8", "surrogatepass")
    thread = decode.Thread(name if flags & 2 else None, number, native_id)
    first, last = data.zigzag(), data.zigzag()
    thread.recorded, thread.lost = _counts(data), _counts(data)
    if thread.recorded:
        thread.first, thread.last = first, last
    return thread


def _block(
    raw: bytes, sites: list[tuple[int, int, int, int]], data: decode.Data, path: str
) -> None:
    head = struct.unpack_from("<IIqq8I", raw)
    count, time = head[0], head[2]
    streams, position = [], 56
    for length in head[4:]:
        streams.append(_Bytes(raw[position : position + length], path))
        position += length
    threads, times, long_times, kinds, numbers = streams[:5]
    context = Context()
    row = 0
    while row < count:
        thread, run = threads.varint(), threads.varint()
        stack = context.stack(thread)
        for _ in range(run):
            t = times.byte()
            if t < 192:
                time += t
            elif t < 255:
                time += 192 + ((t - 192) << 8) + long_times.byte()
            else:
                time += 192 + (63 << 8) + long_times.varint()
            k = kinds.byte()
            if k < 2:
                symbol = context.guess(thread)[k]
            else:
                kind = (k - 2) // 2 + 1
                number = numbers.varint() if k % 2 else 0
                symbol = kind & 63 | number << 6 | kind >> 6 << 31
            context.note(thread, symbol)
            kind, number = symbol & 63 | symbol >> 31 << 6, symbol >> 6 & 0x1FFFFFF
            if kind not in WORDS:
                raise UnsupportedError(
                    f"{path}: it has events of kind {kind}; open it with CPython"
                )
            if kind in decode.OPENING:
                callee, caller, offset, line = sites[number]
                stack.append(callee)
            else:
                callee = number - 1 if number else stack[-1] if stack else 0
                caller, offset, line = 0, -1, -1
                close(stack, callee)
            data.times.append(time)
            data.kinds.append(kind)
            data.threads_of.append(thread)
            data.functions_of.append(callee - 1)
            data.callers.append(caller - 1)
            data.offsets.append(offset)
            data.caller_lines.append(line)
        row += run


def _notes(data: decode.Data, found: Any) -> None:
    if not isinstance(found, dict):
        return
    data.notes_lost = found["lost"]
    rows = {(f.name, f.module, f.file): row for row, f in enumerate(data.functions)}
    for time, event, thread, name, module, file, line, details in found["rows"]:
        function = -1
        if name is not None:
            key = name, module, file
            if key not in rows:
                rows[key] = len(data.functions)
                data.functions.append(decode.Function(name, module, file, None, "python"))
            function = rows[key]
        data.notes.append(decode.Note(time, thread, event, function, line, details))
