"""Columns of numbers as planes of bytes, as the page stores them; data.js reads them.

A section holds columns of some rows, one column after the other. A column of width w is w planes: a
plane has one byte of each row, the lowest byte first.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..tables.column import Array

#: Rows of a section; a multiple of the 4096 calls that the largest node of lod.js has.
TILE = 1 << 18

#: What the head says of a tile, and the tile's section.
Packed = tuple[dict[str, Any], bytes]


def zigzag(values: Array) -> Array:
    """Map signed numbers to unsigned ones: 0, -1, 1, -2 to 0, 1, 2, 3."""
    values = values.astype(np.int64, copy=False)
    return (values << 1) ^ (values >> 63)


def _planes(values: Array) -> tuple[int, bytes]:
    """Return the width of a column of unsigned numbers, and its planes."""
    most = int(values.max()) if len(values) else 0
    width = (most.bit_length() + 7) // 8
    raw = np.ascontiguousarray(values.astype("<u8", copy=False)).view(np.uint8)
    return width, raw.reshape(len(values), 8)[:, :width].T.tobytes()


def section(columns: Sequence[Array]) -> tuple[list[int], bytes]:
    """Return the widths of some columns of unsigned numbers, and all of them compressed."""
    made = [_planes(values) for values in columns]
    return [width for width, _ in made], compress(b"".join(raw for _, raw in made))


def pack(low: bytes, times: bytes, rest: bytes) -> bytes:
    """Compress three parts into one gzip stream.

    Low bits of times are noise, which is stored as it is. If there are some, the differences of
    times hardly repeat; to compress these as runs alone (RLE) is twice as fast, and the result is
    smaller.
    """
    made, crc, size = [b"\x1f\x8b\x08\0\0\0\0\0\0\xff"], 0, 0
    # A flush ends a part at a whole byte, so that the next part can follow.
    for raw, level, strategy, end in (
        (low, 0, zlib.Z_DEFAULT_STRATEGY, zlib.Z_FULL_FLUSH),
        (times, *((1, zlib.Z_RLE) if low else (5, zlib.Z_DEFAULT_STRATEGY)), zlib.Z_FULL_FLUSH),
        # Level 6 takes 1.6 times as long as level 5, and the page is 1.7 % smaller.
        (rest, 5, zlib.Z_DEFAULT_STRATEGY, zlib.Z_FINISH),
    ):
        packer = zlib.compressobj(level, zlib.DEFLATED, -15, 8, strategy)
        made += [packer.compress(raw), packer.flush(end)]
        crc, size = zlib.crc32(raw, crc), size + len(raw)
    made.append(crc.to_bytes(4, "little") + (size & 0xFFFFFFFF).to_bytes(4, "little"))
    return b"".join(made)


def compress(raw: bytes) -> bytes:
    """Compress data by gzip. The same data gives the same bytes."""
    return pack(b"", b"", raw)


def wide(raw: bytes) -> bytes:
    """Return data as UTF-16 (little endian) with 15 bits in a character; unpack.js reads it.

    The characters are U+4000 to U+BFFF: HTML changes none of them, and none is half of a pair. The
    first one says how many bytes at the end are no data. Then come the low 15 bits of each word of
    16 bits, and at last the high bits: bit k of character i is that of word k * n + i, if there are
    n such characters.
    """
    spare = -len(raw) % 30
    words = np.frombuffer(raw + bytes(spare), dtype="<u2").reshape(15, -1)
    made = np.empty((16, words.shape[1]), dtype="<u2")
    made[:15] = words & 0x7FFF
    made[15] = 0
    for bit, row in enumerate(words):
        made[15] |= (row >> 15) << bit
    made += 0x4000
    return np.array(0x4000 + spare, dtype="<u2").tobytes() + made.tobytes()
