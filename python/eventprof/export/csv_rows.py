"""Comma-separated values of one table. Unknown values are empty."""

from __future__ import annotations

from functools import cache
from typing import IO, TYPE_CHECKING

from .._words import escaped
from ._rows import Row, write_rows
from ._view import utf8

if TYPE_CHECKING:
    from . import Options
    from ._view import View

#: A spreadsheet runs cells with such a first character as formulas.
_FORMULA = ("=", "+", "-", "@")


def write(view: View, out: IO[bytes], options: Options) -> None:
    """Write the table with a heading."""
    columns = getattr(view.trace, options.table).columns
    out.write(b",".join(map(cell, columns)) + b"\n")  # labels have names of the program's
    before = [b"" if column == 0 else b"," for column in range(len(columns))]
    write_rows(view, out, options.table, Row(before, b"\n", b"", cache(cell)))


def cell(text: str) -> bytes:
    """Quote a text, so that neither a terminal nor a spreadsheet executes it."""
    text = escaped(text)
    if text.startswith(_FORMULA):
        text = "'" + text
    if any(c in text for c in ',"') or text == "":
        text = '"' + text.replace('"', '""') + '"'
    return utf8(text)
