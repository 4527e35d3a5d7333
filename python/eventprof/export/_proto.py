"""Protobuf messages as bytes: as much of the encoding as the exporters need."""

from __future__ import annotations

import struct
from collections.abc import Iterable

_ONE_BYTE = [bytes([value]) for value in range(128)]


def varint(value: int) -> bytes:
    """Encode a number; a negative one takes ten bytes."""
    if 0 <= value < 128:
        return _ONE_BYTE[value]
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer(field: int, value: int) -> bytes:
    """Encode a field that is a whole number, a bool or an enum."""
    return varint(field << 3) + varint(value)


def fixed64(field: int, value: int) -> bytes:
    """Encode a field that is a number of eight bytes."""
    return varint(field << 3 | 1) + struct.pack("<Q", value & (1 << 64) - 1)


def double(field: int, value: float) -> bytes:
    """Encode a field that is a floating-point number."""
    return varint(field << 3 | 1) + struct.pack("<d", value)


def message(field: int, *parts: bytes) -> bytes:
    """Encode a field that is a message, or bytes."""
    body = b"".join(parts)
    return varint(field << 3 | 2) + varint(len(body)) + body


def text(field: int, value: str) -> bytes:
    """Encode a field that is text; surrogates and NUL become backslash escapes.

    trace_processor ends a text at a NUL.
    """
    return message(field, value.encode("utf-8", "backslashreplace").replace(b"\0", b"\\x00"))


def packed(field: int, values: Iterable[int]) -> bytes:
    """Encode a field that is several whole numbers."""
    return message(field, b"".join(map(varint, values)))
