"""Comma-separated values of one table; unknown is empty."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from ._rows import render
from ._view import one_line, utf8

if TYPE_CHECKING:
    from . import Options
    from ._view import View

#: A spreadsheet takes what begins so for a formula.
_FORMULA = ("=", "+", "-", "@")


def write(view: View, out: IO[bytes], options: Options) -> None:
    """Write it, with a heading."""
    table = view.table(options.table)
    out.write(",".join(table.columns).encode() + b"\n")
    before = [b"" if at == 0 else b"," for at in range(len(table.columns))]
    for rows in render(table, before, b"\n", b"", cell):
        out.write(rows)


def cell(text: str) -> bytes:
    """Quote a text: nothing that a terminal or a spreadsheet would obey is left in it."""
    text = one_line(text)
    if text.startswith(_FORMULA):
        text = "'" + text
    if any(c in text for c in ',"') or text == "":
        text = '"' + text.replace('"', '""') + '"'
    return utf8(text)
