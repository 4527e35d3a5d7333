"""The binary files of profiling.sampling (Python 3.15): samples of stacks, with their times."""

from __future__ import annotations

import importlib
import struct
import sys
from collections.abc import Iterator
from typing import Any

from .._optional import require
from . import Unreadable, expanded, expanded_bytes_max, within
from ._build import Builder, Thread

_ZSTD = 1
#: Files of the sampler's own frames in the sampled program. Its reports leave them out, too.
_OWN_FILES = ("_sync_coordinator.py",)
_REPEAT, _FULL, _SUFFIX, _POP_PUSH = range(4)


class _Bytes:
    def __init__(self, data: bytes, order: str) -> None:
        self.data = data
        self.offset = 0
        self._order = order

    def unpack(self, layout: str) -> Any:
        found = struct.unpack_from(self._order + layout, self.data, self.offset)
        self.offset += struct.calcsize(self._order + layout)
        return found

    def byte(self) -> int:
        self.offset += 1
        return self.data[self.offset - 1]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise Unreadable(f"offset {self.offset}: a number that does not end")

    def signed(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)


def read(path: str, data: bytes, builder: Builder) -> None:
    """Fill the builder. A sample lasts until the next sample of its thread."""
    order = "<" if data[:4] == b"HCAT" else ">"
    if len(data) < 96:
        raise Unreadable("it is shorter than its header and footer")
    version = struct.unpack_from(order + "I", data, 4)[0]
    python = tuple(data[8:11])
    start, interval, count = struct.unpack_from(order + "QQQ", data, 12)
    strings_at, frames_at = struct.unpack_from(order + "QQ", data, 40)
    compression = struct.unpack_from(order + "I", data, 56)[0]
    if not 64 <= strings_at <= frames_at <= len(data) - 32:
        raise Unreadable("its tables lie outside of it; was the program killed?")
    frames = _frames(data, order, strings_at, frames_at)
    body = data[64:strings_at]
    if compression == _ZSTD:
        body = _decompress(path, body)
    elif compression:
        raise Unreadable(f"compression {compression} is not known")
    builder.start_ns = start * 1000
    builder.metadata.update(
        python=".".join(map(str, python)),
        recorded_by=f"profiling.sampling, format {version}",
        sampling_interval_ns=interval * 1000,
    )
    builder.lacks += ["counts of calls: it was sampled", "allocations", "exceptions"]
    seen = _read_samples(_Bytes(body, order), builder, frames, interval * 1000)
    builder.samples = seen
    if seen != count:
        builder.missing.append(f"{count - seen:,} of {count:,} samples")


def _frames(data: bytes, order: str, strings_at: int, frames_at: int) -> list[tuple[str, str, int]]:
    count, frame_count = struct.unpack_from(order + "II", data, len(data) - 32)
    reader = _Bytes(data, order)
    reader.offset = strings_at
    strings = []
    for _ in range(count):
        size = reader.varint()
        strings.append(data[reader.offset : reader.offset + size].decode("utf-8", "replace"))
        reader.offset += size
    reader.offset = frames_at
    frames = []
    for _ in range(frame_count):
        file, name = reader.varint(), reader.varint()
        line = reader.signed()
        for _ in range(3):  # last line, first and last column
            reader.signed()
        reader.byte()  # the opcode
        frames.append((strings[file], strings[name], line))
    return frames


def _decompress(path: str, body: bytes) -> bytes:
    if sys.version_info >= (3, 14):
        zstd = importlib.import_module("compression.zstd")
        return expanded(zstd.ZstdDecompressor(), body)
    zstandard = require("zstandard", "zstd", f"{path}: compressed by zstd, it")
    most = expanded_bytes_max(body)
    with zstandard.ZstdDecompressor().stream_reader(body) as reader:
        return within(body, reader.read(most + 1))


def _own(frames: list[tuple[str, str, int]]) -> set[int]:
    """Return the numbers of the sampler's own frames."""
    return {number for number, (file, _, _) in enumerate(frames) if file.endswith(_OWN_FILES)}


def samples(reader: _Bytes) -> Iterator[tuple[Any, int, list[int]]]:
    """Yield each sample: thread, time in ns, and frames, innermost first.

    The list is the same object while the stack does not change.
    """
    # Time and stack of each thread.
    states: dict[Any, list[Any]] = {}
    while reader.offset < len(reader.data):
        key = reader.unpack("QI")
        encoding = reader.byte()
        state = states.setdefault(key, [0, []])
        if encoding == _REPEAT:
            for _ in range(reader.varint()):
                state[0] += reader.varint() * 1000
                reader.byte()  # the thread's state
                yield key, state[0], state[1]
            continue
        state[0] += reader.varint() * 1000
        reader.byte()
        before = state[1]
        if encoding == _FULL:
            kept: list[int] = []
            new = reader.varint()
        elif encoding == _SUFFIX:
            shared, new = reader.varint(), reader.varint()
            kept = before[len(before) - shared :]
        elif encoding == _POP_PUSH:
            popped, new = reader.varint(), reader.varint()
            kept = before[popped:]
        else:
            raise Unreadable(
                f"offset {reader.offset} of its samples: there is no encoding {encoding}"
            )
        state[1] = [reader.varint() for _ in range(new)] + kept
        yield key, state[0], state[1]


def _read_samples(
    reader: _Bytes, builder: Builder, frames: list[tuple[str, str, int]], interval: int
) -> int:
    functions = [
        (builder.function(name, None, None if file in ("", "~") else file), line)
        for file, name, line in frames
    ]
    own = _own(frames)
    last: dict[Any, tuple[int, list[int]]] = {}
    seen = 0
    for key, time, stack in samples(reader):
        seen += 1
        now = stack if own.isdisjoint(stack) else [frame for frame in stack if frame not in own]
        thread = builder.thread(key, f"thread {key[0]}", 0)
        _sample(thread, time, last.get(key, (0, []))[1], now, functions)
        last[key] = time, now
    for key, (time, _) in last.items():
        builder.thread(key).end_all(time + interval)
    return seen


def _sample(
    thread: Thread, time: int, before: list[int], now: list[int], functions: list[tuple[int, int]]
) -> None:
    """End the calls that are not in the new sample, and begin the calls that are new in it.

    A call goes on if the function is the same, also at another line.
    """
    same = 0
    while (
        same < min(len(before), len(now))
        and functions[before[-1 - same]][0] == functions[now[-1 - same]][0]
    ):
        same += 1
    while len(thread.stack) > same:
        thread.end(time)
    for depth in range(len(thread.stack), len(now)):
        # The line of the call is the line of the frame around it.
        line = functions[now[len(now) - depth]][1] if depth > 0 else -1
        thread.begin(time, functions[now[-1 - depth]][0], max(line, -1))
