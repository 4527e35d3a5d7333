"""One table as Parquet, written by pyarrow. Text columns are dictionaries."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from .._optional import require

if TYPE_CHECKING:
    from . import Options
    from ._view import View

#: Rows of a row group. pyarrow holds the columns of a row group until it is complete: twice as many
#: rows take 20 MiB more, and make the file no smaller.
_ROWS = 1 << 15


def write(view: View, out: IO[bytes], options: Options) -> None:
    """Write the table, compressed by zstd."""
    pyarrow = require("pyarrow", "arrow", "Parquet")
    parquet = require("pyarrow.parquet", "arrow", "Parquet")
    schema = pyarrow.table(view.part_of_table(options.table, 0, 0)).schema
    with parquet.ParquetWriter(out, schema, compression="zstd") as writer:
        for part in view.parts_of_table(options.table, _ROWS):
            writer.write_table(pyarrow.table(part), row_group_size=_ROWS)
