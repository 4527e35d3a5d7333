"""An archive read by the letter of doc/epr-archive.rst, without eventprof.

Slow and strict: everything that the page does not allow is an AssertionError.
"""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

RECORDING, METADATA, STRINGS, NAMES, SITES, THREADS, OPEN, RESIDENT, EVENTS, INDEX = range(1, 11)
TASKS, WINDOWS, KINDS, OWN = 11, 12, 13, 14
OPENS, CLOSES = {1, 4, 5, 7, 40, 42, 44}, {2, 3, 6, 8, 9, 41, 43, 45}
POINTS, VALUES = {*range(46, 54)}, {*range(54, 61), *range(64, 72)}
WITHOUT_ADDRESS = VALUES - {59, 60}  # their word is a value
ALLOCATIONS, FREES = {*range(10, 25), *range(35, 40)}, {*range(25, 35)}
MEM, OBJ = 1, 2
U32, U64 = (1 << 32) - 1, (1 << 64) - 1


class Bytes:
    """Bytes that are read from the front."""

    def __init__(self, data):
        self.data, self.offset = data, 0

    def take(self, count):
        assert self.offset + count <= len(self.data)
        self.offset += count
        return self.data[self.offset - count : self.offset]

    def byte(self):
        return self.take(1)[0]

    def varint(self):
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                assert value <= U64
                return value

    def zigzag(self):
        value = self.varint()
        return value >> 1 if value % 2 == 0 else -(value >> 1) - 1

    def unpack(self, layout):
        return struct.unpack("<" + layout, self.take(struct.calcsize("<" + layout)))

    def is_empty(self):
        return self.offset == len(self.data)


def h1(a, bits):
    return (a * 0x9E3779B1 & U32) >> (32 - bits)


def h2(a, b, bits):
    return (a * 0x9E3779B1 & U32 ^ b * 0x85EBCA6B & U32) >> (32 - bits)


def decompress(codec, stored, raw_bytes):
    if codec == 1:
        stored = zlib.decompress(stored)
    elif codec == 2:
        import zstandard

        stored = zstandard.ZstdDecompressor().decompress(stored, max_output_size=raw_bytes)
    else:
        assert codec == 0
    assert len(stored) == raw_bytes
    return stored


def sections(data):
    """[(type, items, allocator events, raw bytes)] of a whole file."""
    assert data[:12] == b"EVPARCH\n\x89\r\n\x1a"
    assert struct.unpack_from("<HH", data, 12) == (1, 4)
    assert zlib.crc32(data[:60]) == struct.unpack_from("<I", data, 60)[0]
    trailer = data[-32:]
    assert trailer[20:28] == b"EVPAREND"
    assert zlib.crc32(trailer[:28]) == struct.unpack_from("<I", trailer, 28)[0]
    index_at, trailer_at = struct.unpack_from("<QQ", trailer)
    assert trailer_at == len(data) - 32
    offset, found, headers = 64, [], []
    while offset < trailer_at:
        header = data[offset : offset + 48]
        kind, codec, raw, stored, items, blocks, crc, own = struct.unpack("<IB3xQQQQII", header)
        assert zlib.crc32(header[:44]) == own
        assert raw <= stored * 1100 + 4096
        body = data[offset + 48 : offset + 48 + stored]
        assert zlib.crc32(body) == crc
        found.append((kind, items, blocks, decompress(codec, body, raw)))
        headers.append(struct.pack("<Q", offset) + header)
        offset += 48 + stored
    assert offset == trailer_at
    assert found[-1][0] == INDEX
    assert found[-1][3] == b"".join(headers[:-1])
    assert struct.unpack_from("<Q", headers[-1])[0] == index_at
    return found


def class_of(kind, size):
    if size <= 512 and kind % 5 in (MEM, OBJ):
        number = (size + 15) // 16 if size else 1
        return number, 16 * number
    stride = 32 if size <= 24 else (size + 23) & ~15
    if stride <= 1024:
        return 31 + stride // 16, stride
    return 96 + (stride.bit_length() - 1) % 32, stride


class Block:
    """The state of one block of events."""

    def __init__(self, raw, callees):
        self.callees = callees
        head = Bytes(raw)
        self.count, self.blocks, self.time, self.last_time = head.unpack("IIqq")
        lengths = head.unpack("8I")
        self.streams = [Bytes(head.take(length)) for length in lengths]
        assert head.is_empty()
        self.after_two, self.after_one, self.size, self.ago = {}, {}, {}, {}
        self.last, self.freed = {}, {}
        self.freed_last = self.far = 0
        self.made = [None]  # (class, address) by number
        self.stacks, self.history = {}, {}

    def rows(self):
        threads, times, long_times = self.streams[:3]
        row = 0
        while row < self.count:
            thread, run = threads.varint(), threads.varint()
            for _ in range(run):
                t = times.byte()
                if t < 192:
                    self.time += t
                elif t < 255:
                    self.time += 192 + ((t - 192) << 8) + long_times.byte()
                else:
                    self.time += 192 + (63 << 8) + long_times.varint()
                yield (self.time, thread, *self.event(thread))
            row += run
        assert row == self.count
        assert self.time == self.last_time
        assert all(stream.is_empty() for stream in self.streams)

    def event(self, thread):
        _, _, _, kinds, ids, _, _, _ = self.streams
        before, before_that = self.history.get(thread, (0, 0))
        two, one = h2(before, before_that, 16), h1(before, 12)
        k = kinds.byte()
        if k == 0:
            symbol = self.after_two[two]
        elif k == 1:
            symbol = self.after_one[one]
        else:
            kind, number = (k - 2) // 2 + 1, ids.varint() if k % 2 else 0
            symbol = kind & 63 | number << 6 | kind >> 6 << 31
        kind, number = symbol & 63 | symbol >> 31 << 6, symbol >> 6 & 0x1FFFFFF
        address = size = None
        stack = self.stacks.setdefault(thread, [])
        if kind in OPENS:
            stack.append(self.callees[number])
        elif kind in CLOSES:
            number = number - 1 if number else stack[-1] if stack else 0
            for depth in range(1, min(8, len(stack)) + 1):
                if stack[-depth] == number:
                    del stack[-depth:]
                    break
        elif kind in ALLOCATIONS:
            address, size = self.allocation(kind, symbol, before)
        elif kind in VALUES:
            slot = h2(symbol, before, 14)
            address = self.size[slot] = (self.size.get(slot, 0) + self.streams[5].zigzag()) & U64
        elif kind not in POINTS:
            assert kind in FREES
            address = self.free(symbol, before)
        self.after_two[two] = self.after_one[one] = symbol
        self.history[thread] = symbol, before
        return kind, number, address, size

    def allocation(self, kind, symbol, before):
        *_, sizes, places, addresses = self.streams
        slot = h2(symbol, before, 14)
        s = sizes.varint()
        size = self.size[slot] = s - 1 if s else self.size.get(slot, 0)
        number, stride = class_of(kind, size)
        last, freed = self.last.get(number, 0), self.freed.setdefault(number, [])
        p = places.byte()
        if p < 32:
            address = freed.pop(-1 - p)
        elif p == 32:
            address = last + stride
        elif p == 33:
            address = self.freed_last
        elif p == 34:
            address = last + 16 * addresses.zigzag()
        else:
            assert p == 35
            (address,) = addresses.unpack("Q")
        address &= U64
        self.last[number] = address
        self.made.append((number, address))
        return address, size

    def free(self, symbol, before):
        *_, places, addresses = self.streams
        slot = h2(symbol, before, 12)
        q = places.varint()
        if q == 1:
            address = self.far = (self.far + 16 * addresses.zigzag()) & U64
        elif q == 2:
            (address,) = addresses.unpack("Q")
            self.far = address
        else:
            ago = q - 2 if q else self.ago[slot]
            self.ago[slot] = ago
            assert 1 <= ago <= 65536
            number, address = self.made[-ago]
            freed = self.freed.setdefault(number, [])
            freed.append(address)
            del freed[:-32]
        self.freed_last = address
        return address


def counts(data):
    return {data.varint(): data.varint() for _ in range(data.varint())}


def read(path):
    """A dictionary of all that the file holds."""
    found = sections(Path(path).read_bytes())
    known = {"metadata": None, "strings": [None], "names": [(None,) * 5], "sites": [(0, 0, -1, -1)],
             "threads": [], "open": [], "resident": [], "events": [], "tasks": [], "windows": [],
             "kinds": [], "recorder": []}  # fmt: skip
    for kind, items, _, raw in found:
        data = Bytes(raw)
        if kind == RECORDING:
            known["recording"] = data.unpack("QQqqqdQQQqQQII")
            if not data.is_empty():
                known["left_out"] = data.unpack("QQQ")
        elif kind == METADATA:
            known["metadata"] = json.loads(data.take(len(raw)))
        elif kind == EVENTS:
            continue
        elif kind < INDEX or kind in (TASKS, WINDOWS, KINDS, OWN):
            for _ in range(items):
                known[LISTS[kind]].append(READERS[kind](data, known))
        else:
            continue
        assert data.is_empty()
    callees = [callee for callee, *_ in known["sites"]]
    for kind, items, blocks, raw in found:
        if kind == EVENTS:
            block = Block(raw, callees)
            assert (block.count, block.blocks) == (items, blocks)
            known["events"] += block.rows()
    return known


def string(data, known):
    return known["strings"][data.varint()]


LISTS = {STRINGS: "strings", NAMES: "names", SITES: "sites", THREADS: "threads", OPEN: "open",
         RESIDENT: "resident", TASKS: "tasks", WINDOWS: "windows", KINDS: "kinds",
         OWN: "recorder"}  # fmt: skip
READERS = {
    STRINGS: lambda data, known: data.take(data.varint()).decode("utf-8", "surrogatepass"),
    NAMES: lambda data, known: (
        string(data, known),
        string(data, known),
        string(data, known),
        data.zigzag(),
        ("python", "c", "type", "object", "user", "gc", "audit", "hpy", "wait")[data.varint()],
    ),
    SITES: lambda data, known: (data.varint(), data.varint(), data.zigzag(), data.zigzag()),
    THREADS: lambda data, known: {
        "flags": data.varint(),
        "number": data.varint(),
        "native_id": data.varint(),
        "name": data.take(data.varint()).decode("utf-8", "surrogatepass"),
        "first": data.zigzag(),
        "last": data.zigzag(),
        "recorded": counts(data),
        "lost": counts(data),
    },
    OPEN: lambda data, known: (data.varint(), data.varint(), data.varint()),
    RESIDENT: lambda data, known: (data.zigzag(), data.zigzag()),
    OWN: lambda data, known: (data.varint(), data.varint()),
    TASKS: lambda data, known: (data.varint(), string(data, known)),
    WINDOWS: lambda data, known: (data.varint(), data.zigzag(), data.zigzag()),
    KINDS: lambda data, known: (
        *(data.varint() for _ in range(5)),
        data.take(data.varint()).decode(),
    ),
}
