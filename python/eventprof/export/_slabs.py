"""A JSON document with long columns: as JSON, or as a JSON-slabs container (JSLB).

::

    0   DC DF 4A 53 4C 42 01 00   magic
    8   u32 version = 1, u32 slabs, u32 which of them is the document
    20  u32 type, u32 offset, u32 bytes   of each slab
    .   the slabs, each at a multiple of eight

In the document ``{"$s": n}`` stands for slab n. All numbers are little-endian; the container is
described in FORMAT.md of github.com/mstange/json-slabs.
"""

from __future__ import annotations

import json
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from .. import _core
from ._view import AT_A_TIME, microseconds, number

if TYPE_CHECKING:
    from ..trace.column import Array

_MAGIC = b"\xdc\xdfJSLB\x01\x00"
_VERSION = 1
_JSON = 0x0A
_TYPES = {"u1": 0x01, "i4": 0x04, "f8": 0x07}
_ALIGNMENT = 8
_LARGEST = (1 << 32) - 1


@dataclass
class Column:
    """A list of numbers.

    Attributes
    ----------
    chunks : callable
        Returns an iterator over arrays of whole numbers. It is called once for each writing.
    slab : str
        The type of the typed array: ``u1``, ``i4`` or ``f8``. Empty: readers want a JSON list.
    ns : bool
        The numbers are ns and are written as ms. JSON has all digits.
    nullable : bool
        Negative numbers are written as null.
    """

    chunks: Callable[[], Iterator[Array]]
    slab: str = ""
    ns: bool = False
    nullable: bool = False

    def write_json(self, out: IO[bytes]) -> None:
        """Write it as a JSON list."""
        out.write(b"[")
        kept = b""
        for values in self.chunks():
            for first in range(0, len(values), AT_A_TIME):
                out.write(kept)
                kept = self._text(values[first : first + AT_A_TIME])
        out.write(kept[:-1])  # without the last comma
        out.write(b"]")

    def _text(self, values: Array) -> bytes:
        if self.ns:
            return _core.render_rows(len(values), (microseconds(values), b"e-3,"))
        if not self.nullable:
            return _core.render_rows(len(values), (number(values), b","))
        nulls = np.ascontiguousarray(values < 0)
        known = np.ascontiguousarray(values, np.int64)
        return _core.render_rows(len(values), (("masked", known, nulls, b"null"), b","))

    def write_slab(self, out: IO[bytes]) -> None:
        """Write it as the bytes of a typed array."""
        for values in self.chunks():
            out.write((values / 1e6 if self.ns else values).astype(f"<{self.slab}").data)


def column(values: Array, slab: str = "", *, ns: bool = False, nullable: bool = False) -> Column:
    """Make a column of an array."""
    return Column(lambda: iter([values] if len(values) else []), slab, ns, nullable)


def write_json(document: Any, out: IO[bytes]) -> None:
    """Write a document as JSON."""
    _write(document, out, lambda found: found.write_json(out))


def write_slabs(document: Any, out: IO[bytes]) -> None:
    """Write a document as a container. The slabs are collected in a temporary file first.

    Raises
    ------
    ValueError
        The document is larger than 4 GiB.
    """
    slabs: list[tuple[int, int, int]] = []
    with tempfile.TemporaryFile() as data, tempfile.TemporaryFile() as root:

        def add(kind: int, write: Callable[[IO[bytes]], object]) -> int:
            data.write(bytes(-data.tell() % _ALIGNMENT))
            first = data.tell()
            write(data)
            slabs.append((kind, first, data.tell() - first))
            return len(slabs) - 1

        def put(found: Column) -> None:
            kind = _TYPES.get(found.slab, _JSON)
            at = add(kind, found.write_slab if found.slab else found.write_json)
            root.write(b'{"$s":%d}' % at)

        _write(document, root, put)
        root.seek(0)
        at = add(_JSON, lambda to: shutil.copyfileobj(root, to))
        head = _MAGIC + struct.pack("<III", _VERSION, len(slabs), at)
        start = len(head) + 12 * len(slabs)
        start += -start % _ALIGNMENT
        if start + data.tell() > _LARGEST:
            raise ValueError("format: a JSLB file holds no more than 4 GiB; firefox has no bound")
        table = b"".join(struct.pack("<III", kind, start + at, size) for kind, at, size in slabs)
        out.write((head + table).ljust(start, b"\0"))
        data.seek(0)
        shutil.copyfileobj(data, out)


def _write(value: Any, out: IO[bytes], put: Callable[[Column], None]) -> None:
    if isinstance(value, Column):
        put(value)
    elif isinstance(value, dict):
        out.write(b"{")
        for at, (key, inner) in enumerate(value.items()):
            out.write(b"," if at else b"")
            out.write(_json(key) + b":")
            _write(inner, out, put)
        out.write(b"}")
    elif isinstance(value, Iterator):
        # A list whose items are made while it is written.
        out.write(b"[")
        for at, inner in enumerate(value):
            out.write(b",\n" if at else b"\n")
            _write(inner, out, put)
        out.write(b"]")
    else:
        out.write(_json(value))


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")
