"""One table as JSON lines: an object for each row. Unknown values are null."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from ._rows import render
from ._view import json_text

if TYPE_CHECKING:
    from . import Options
    from ._view import View


def write(view: View, out: IO[bytes], options: Options) -> None:
    """Write the table."""
    table = view.table(options.table)
    before = [
        f"{'{' if column == 0 else ','}{json_text(name)}:".encode()
        for column, name in enumerate(table.columns)
    ]

    def text(value: str) -> bytes:
        return json_text(value).encode()

    for rows in render(table, before, b"}\n", b"null", text, view.progress):
        out.write(rows)
