"""One table as an Arrow IPC file, written by pyarrow. Text columns are dictionaries."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from .._optional import require

if TYPE_CHECKING:
    from . import Options
    from ._view import View

_ROWS = 1 << 17


def write(view: View, out: IO[bytes], options: Options) -> None:
    """Write the table."""
    pyarrow = require("pyarrow", "arrow", "Arrow IPC")
    ipc = require("pyarrow.ipc", "arrow", "Arrow IPC")
    schema = pyarrow.table(view.part_of_table(options.table, 0, 0)).schema
    with ipc.new_file(out, schema) as writer:
        for part in view.parts_of_table(options.table, _ROWS):
            writer.write_table(pyarrow.table(part), max_chunksize=_ROWS)
