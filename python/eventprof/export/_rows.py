"""Rows of a table as text, by the extension."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from ._view import AT_A_TIME, Texts

if TYPE_CHECKING:
    from ..trace.column import Column
    from ..trace.table import Table


def render(
    table: Table, before: list[bytes], after: bytes, null: bytes, text: Callable[[str], bytes]
) -> Iterator[bytes]:
    """Give the rows of a table, some at a time.

    Parameters
    ----------
    table : Table
        The rows.
    before : list of bytes
        What comes before the value of each column.
    after : bytes
        What ends a row.
    null : bytes
        What stands for an unknown value.
    text : callable
        Gives the bytes of a text.
    """
    columns = [_column(column, null, text) for column in table._columns.values()]
    for first in range(0, len(table), AT_A_TIME):
        rows = slice(first, min(first + AT_A_TIME, len(table)))
        parts: list[Any] = []
        for prefix, column in zip(before, columns, strict=True):
            parts.append(prefix)
            parts.append(column(rows))
        parts.append(after)
        yield _core.render_rows(rows.stop - rows.start, tuple(parts))


def _column(column: Column, null: bytes, text: Callable[[str], bytes]) -> Callable[[slice], Any]:
    values = column.values()
    if column.words is not None:
        words = column.words.texts()
        # Null is the last of them: a code of -1 is nothing at all.
        texts = Texts([*map(text, words), null])
        return lambda rows: texts.part(
            np.where(values[rows] < 0, len(words), values[rows].astype(np.int32))
        )
    nulls = column.nulls()
    if values.dtype.kind in "fb":
        # Few are distinct: counters, and nothing.
        distinct, code = np.unique(values, return_inverse=True)
        code = code.reshape(-1).astype(np.int32)
        spelt = Texts([*(_spell(value, null) for value in distinct.tolist()), null])
        if nulls is not None:
            code = np.where(nulls, np.int32(len(distinct)), code)
        return lambda rows: spelt.part(code[rows])
    if values.dtype == np.uint64 and len(values) and values.max() > np.iinfo(np.int64).max:
        # Of merged traces: beyond what fits into int64.
        distinct, code = np.unique(values, return_inverse=True)
        code = code.reshape(-1).astype(np.int32)
        if nulls is not None:
            code = np.where(nulls, np.int32(len(distinct)), code)
        spelt = Texts([*(b"%d" % value for value in distinct.tolist()), null])
        return lambda rows: spelt.part(code[rows])
    if nulls is None:
        return lambda rows: ("int", np.ascontiguousarray(values[rows], np.int64))
    return lambda rows: (
        "masked",
        np.ascontiguousarray(values[rows], np.int64),
        np.ascontiguousarray(nulls[rows]),
        null,
    )


def _spell(value: Any, null: bytes) -> bytes:
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if not np.isfinite(value):
        return null if value != value else repr(value).encode()
    return repr(value).encode()
