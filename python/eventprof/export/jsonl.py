"""One table as JSON lines: an object for each row. Unknown values are null."""

from __future__ import annotations

from functools import cache
from typing import IO, TYPE_CHECKING

from ._rows import Row, write_rows
from ._view import json_text

if TYPE_CHECKING:
    from . import Options
    from ._view import View


def write(view: View, out: IO[bytes], options: Options) -> None:
    """Write the table."""
    before = [
        f"{'{' if column == 0 else ','}{json_text(name)}:".encode()
        for column, name in enumerate(getattr(view.trace, options.table).columns)
    ]

    @cache
    def text(value: str) -> bytes:
        return json_text(value).encode()

    write_rows(view, out, options.table, Row(before, b"}\n", b"null", text))
