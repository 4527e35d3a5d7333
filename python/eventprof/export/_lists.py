"""A JSON document with long lists of numbers, which are made while they are written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from .. import _core
from ._view import AT_A_TIME, microseconds, number

if TYPE_CHECKING:
    from ..tables.column import Array


@dataclass
class Column:
    """A list of numbers.

    Attributes
    ----------
    chunks : callable
        Returns an iterator over arrays of whole numbers.
    ns : bool
        The numbers are ns and are written as ms. JSON has all digits.
    nullable : bool
        Negative numbers are written as null.
    """

    chunks: Callable[[], Iterator[Array]]
    ns: bool = False
    nullable: bool = False

    def write(self, out: IO[bytes]) -> None:
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


def column(values: Array, *, ns: bool = False, nullable: bool = False) -> Column:
    """Make a column of an array."""
    return Column(lambda: iter([values] if len(values) else []), ns, nullable)


def write_json(value: Any, out: IO[bytes]) -> None:
    """Write a document as JSON."""
    if isinstance(value, Column):
        value.write(out)
    elif isinstance(value, dict):
        out.write(b"{")
        for index, (key, inner) in enumerate(value.items()):
            out.write(b"," if index else b"")
            out.write(_json(key) + b":")
            write_json(inner, out)
        out.write(b"}")
    elif isinstance(value, Iterator):
        # A list whose items are made while it is written.
        out.write(b"[")
        for index, inner in enumerate(value):
            out.write(b",\n" if index else b"\n")
            write_json(inner, out)
        out.write(b"]")
    else:
        out.write(_json(value))


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")
