"""Rows of a table as text, by the extension."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import _core
from ..tables.batches import in_batches
from ._view import AT_A_TIME, Texts

if TYPE_CHECKING:
    from ..tables.column import Column
    from ..tables.table import Table
    from ._view import View


class Row(NamedTuple):
    """How a row is written.

    Attributes
    ----------
    before : list of bytes
        The text before the value of each column.
    after : bytes
        The text after the last value of a row.
    null : bytes
        The text for an unknown value.
    text : callable
        Encodes a text value.
    """

    before: list[bytes]
    after: bytes
    null: bytes
    text: Callable[[str], bytes]


def write_rows(view: View, out: IO[bytes], name: str, row: Row) -> None:
    """Write the chosen rows of a table as text, and report the progress."""
    in_parts = name == "events" and in_batches(view.trace)

    def take(table: Table) -> None:
        for rows in _render(table, row, None if in_parts else view.progress):
            out.write(rows)

    view.each_part(name, take)


def _render(table: Table, row: Row, progress: Callable[[int, int], None] | None) -> Iterator[bytes]:
    columns = [_column(column, row.null, row.text) for column in table._columns.values()]
    # The text of a row is several hundred bytes.
    step = max(AT_A_TIME // 4, 1)
    for first in range(0, len(table), step):
        if progress is not None:
            progress(first, len(table))
        rows = slice(first, min(first + step, len(table)))
        parts: list[Any] = []
        for prefix, column in zip(row.before, columns, strict=True):
            parts.append(prefix)
            parts.append(column(rows))
        parts.append(row.after)
        yield _core.render_rows(rows.stop - rows.start, tuple(parts))


def _column(column: Column, null: bytes, text: Callable[[str], bytes]) -> Callable[[slice], Any]:
    values = column.values()
    if column.words is not None:
        words = column.words.texts()
        # The last text is the null; render_rows() writes nothing for the code -1.
        texts = Texts([*map(text, words), null])
        return lambda rows: texts.part(
            np.where(values[rows] < 0, len(words), values[rows].astype(np.int32))
        )
    nulls = column.nulls()
    if values.dtype.kind in "fb":
        # Such columns have few distinct values.
        distinct, code = np.unique(values, return_inverse=True)
        code = code.reshape(-1).astype(np.int32)
        spelt = Texts([*(_spell(value, null) for value in distinct.tolist()), null])
        if nulls is not None:
            code = np.where(nulls, np.int32(len(distinct)), code)
        return lambda rows: spelt.part(code[rows])
    if values.dtype == np.uint64 and len(values) and values.max() > np.iinfo(np.int64).max:
        # Merged traces have flow numbers that int64 cannot hold.
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
