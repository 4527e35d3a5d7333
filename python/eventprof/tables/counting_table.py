"""The counts of a counter as a table. recording/counting.py is separate: it imports no NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .column import Column, Null, encode
from .table import Table

_TEXTS = (
    ("name", 0, "qualified name"),
    ("module", 1, "where it was defined"),
    ("file", 2, "source file"),
    ("kind", 4, "python, c, type or object"),
)
_NUMBERS = (
    ("calls", 5, "", "begun while it counted"),
    ("resumes", 6, "", "slices begun by resume or throw"),
    ("recursive", 7, "", "calls and resumes that began while it was already running"),
    ("total", 8, "ns", "with the function open"),
    ("self", 9, "ns", "with the function innermost"),
    ("mean", 11, "ns", "of a call"),
    ("min", 12, "ns", "of a call"),
    ("max", 13, "ns", "of a call"),
    ("allocated_self", 14, "bytes", "by itself"),
    ("blocks_self", 15, "", "allocated: by itself"),
)


def table(rows: Sequence[tuple[Any, ...]]) -> Table:
    """Make the table of functions.

    Parameters
    ----------
    rows : sequence of tuple
        Of `_core.Counter._read`.

    Returns
    -------
    Table
        See `Counter.functions`.
    """
    columns = list(zip(*rows, strict=True)) if rows else [()] * 16

    def text(name: str, index: int, doc: str) -> Column:
        codes, words = encode(columns[index])
        null: Null = "never" if name == "kind" else "negative"
        return Column(name, lambda: codes, null=null, words=words, doc=doc)

    def number(name: str, index: int, unit: str, doc: str) -> Column:
        dtype = np.dtype(np.float64 if name == "mean" else np.int64)
        values = np.array(columns[index], dtype=dtype)
        null: Null = "negative" if name in ("mean", "min", "max") else "never"
        return Column(name, lambda: values, dtype, null=null, unit=unit, doc=doc)

    lines = np.array(columns[3], dtype=np.int32)
    made = [text(*each) for each in _TEXTS]
    made.insert(3, Column("line", lambda: lines, np.int32, null="negative", doc="its first"))
    made += [number(*each) for each in _NUMBERS]
    return Table("functions", made, len(rows))
