"""Tables of many rows as pages of an SQLite file (https://www.sqlite.org/fileformat2.html).

::

    root (a page that SQLite made)      interior pages: keys and numbers of the pages below
      interior    interior  ...
        leaf leaf leaf leaf ...         leaf pages: rows in order of their key, the column row

Pages are appended to the file. The root comes last, when all pages below it are known.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, Self

import numpy as np

from .. import _core
from ._view import Texts, utf8

if TYPE_CHECKING:
    from ..trace.column import Column, Words
    from ..trace.table import Table

PAGE = 4096
#: Of a longer record, SQLite keeps a part in overflow pages, which are not made here.
_RECORD_MAX = PAGE - 35
#: SQLite locks a byte of this page and keeps nothing there.
_LOCKED = (1 << 30) // PAGE + 1
_INTERIOR = 0x05
#: Pages below an interior page, each with at most 15 bytes.
_BELOW = 250
_PAGE_COUNT_AT = 28


def longest_record(table: Table) -> int | None:
    """Give how long the record of a row may be; None: longer than a page can hold."""
    length = 12
    for column in table._columns.values():
        length += 12
        if column.words is not None:
            length += max((len(utf8(word)) for word in column.words.texts()), default=0)
    return length if length <= _RECORD_MAX else None


class Pages:
    """Appends pages to a file of SQLite that nobody else has open.

    Parameters
    ----------
    file : binary file
        The file, open for reading and writing.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._texts: dict[int, tuple[Words, Texts]] = {}
        file.seek(0, 2)
        self._next = file.tell() // PAGE + 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.seek(_PAGE_COUNT_AT)
        self._file.write(struct.pack(">I", self._next - 1))

    def fill(self, root: int, parts: Iterator[Table]) -> None:
        """Fill an empty table.

        Parameters
        ----------
        root : int
            The number of its page.
        parts : iterator of Table
            Its rows. The first column is the key.
        """
        numbers, keys = array("q"), array("q")
        only = b""
        for part in parts:
            key, *columns = part._columns.values()
            pages, last = _core.sqlite_leaves(
                np.ascontiguousarray(key.values(), np.int64),
                (None, *(self._column(column) for column in columns)),
            )
            if not numbers and len(part) and len(pages) == PAGE and not only:
                only = pages  # a table of one page has it as its root
                keys.frombytes(last)
                continue
            if only:
                numbers.extend(self._append(only))
                only = b""
            numbers.extend(self._append(pages))
            keys.frombytes(last)
        while len(numbers) > _BELOW:
            numbers, keys = self._level(numbers, keys)
        self._file.seek((root - 1) * PAGE)
        self._file.write(only or _interior(numbers, keys))

    def _column(self, column: Column) -> tuple[Any, ...]:
        values = column.values()
        if column.words is not None:
            known = self._texts.get(id(column.words))
            if known is None:
                texts = Texts([utf8(word) for word in column.words.texts()])
                known = self._texts[id(column.words)] = column.words, texts
            return known[1].part(values)
        nulls = column.nulls()
        if nulls is not None:
            nulls = np.ascontiguousarray(nulls)
        if values.dtype.kind == "f":
            return "real", np.ascontiguousarray(values, np.float64), nulls
        # SQLite's integers are signed: larger numbers become negative.
        return "int", np.ascontiguousarray(values).astype(np.int64), nulls

    def _append(self, pages: bytes) -> Sequence[int]:
        """Append pages; give their numbers."""
        self._file.seek(0, 2)
        first, count = self._next, len(pages) // PAGE
        before = _LOCKED - first
        if not 0 <= before < count:
            self._file.write(pages)
            self._next += count
            return range(first, self._next)
        self._file.write(pages[: before * PAGE])
        self._file.write(bytes(PAGE))
        self._file.write(pages[before * PAGE :])
        self._next += count + 1
        return [*range(first, _LOCKED), *range(_LOCKED + 1, self._next)]

    def _level(self, numbers: array[int], keys: array[int]) -> tuple[array[int], array[int]]:
        """Append interior pages above pages; give their numbers and last keys."""
        above, last = array("q"), array("q")
        groups = -(-len(numbers) // _BELOW)
        for group in range(groups):
            # Of even size: an interior page has at least two pages below.
            part = slice(len(numbers) * group // groups, len(numbers) * (group + 1) // groups)
            above.extend(self._append(_interior(numbers[part], keys[part])))
            last.append(keys[part][-1])
        return above, last


def _interior(numbers: Sequence[int], keys: Sequence[int]) -> bytes:
    """Give an interior page: a cell for each page below but the last, which its head has."""
    page = bytearray(PAGE)
    at = PAGE
    for cell, (number, key) in enumerate(zip(numbers[:-1], keys[:-1], strict=True)):
        content = struct.pack(">I", number) + _varint(key)
        at -= len(content)
        page[at : at + len(content)] = content
        struct.pack_into(">H", page, 12 + 2 * cell, at)
    struct.pack_into(">BHHHBI", page, 0, _INTERIOR, 0, len(numbers) - 1, at, 0, numbers[-1])
    return bytes(page)


def _varint(value: int) -> bytes:
    """Give a varint, the most significant seven bits first."""
    groups = [value & 127]
    while value := value >> 7:
        groups.append(value & 127 | 128)
    return bytes(reversed(groups))
