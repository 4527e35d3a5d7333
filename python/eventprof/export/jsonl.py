"""One table as JSON, an object a line; unknown is null."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from ._rows import render
from ._view import json_text

if TYPE_CHECKING:
    from . import Options
    from ._view import View


def write(view: View, out: IO[bytes], options: Options) -> None:
    """Write it."""
    table = view.table(options.table)
    before = [
        f"{'{' if at == 0 else ','}{json_text(name)}:".encode()
        for at, name in enumerate(table.columns)
    ]
    for rows in render(table, before, b"}\n", b"null", lambda text: json_text(text).encode()):
        out.write(rows)
