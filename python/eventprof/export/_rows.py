"""Rows of a table as text, by the extension."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import _core
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
    known: dict[tuple[str, ...], Texts] = {}

    def texts_of(words: tuple[str, ...]) -> Texts:
        """Return the words as they are written, and the null last; most parts have the same."""
        if words not in known:
            known[words] = Texts([*map(row.text, words), row.null])
        return known[words]

    def take(part: Table) -> None:
        parts: list[Any] = []
        for prefix, column in zip(row.before, part._columns.values(), strict=True):
            parts += [prefix, _column(column, row.null, texts_of)]
        out.write(_core.render_rows(len(part), (*parts, row.after)))

    # The text of a row is several hundred bytes.
    view.each_part(name, max(AT_A_TIME // 4, 1), take)


def _column(column: Column, null: bytes, texts_of: Callable[[tuple[str, ...]], Texts]) -> Any:
    """Return the part of rows that is a column's values."""
    values, nulls = column.values(), column.nulls()
    if column.words is not None:
        words = column.words.texts()
        return texts_of(words).part(np.where(values < 0, len(words), values.astype(np.int32)))
    # Merged traces have flow numbers that int64 cannot hold.
    is_large = values.dtype == np.uint64 and values.max(initial=0) > np.iinfo(np.int64).max
    if values.dtype.kind in "fb" or is_large:
        distinct, code = np.unique(values, return_inverse=True)
        code = code.reshape(-1).astype(np.int32)
        if nulls is not None:
            code = np.where(nulls, np.int32(len(distinct)), code)
        return Texts([*(_spell(value, null) for value in distinct.tolist()), null]).part(code)
    numbers = np.ascontiguousarray(values, np.int64)
    if nulls is None:
        return "int", numbers
    return "masked", numbers, np.ascontiguousarray(nulls), null


def _spell(value: Any, null: bytes) -> bytes:
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, int):
        return b"%d" % value
    if not np.isfinite(value):
        return null if value != value else repr(value).encode()
    return repr(value).encode()
