"""One table as Parquet, by pyarrow; texts are dictionaries."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from .._optional import require

if TYPE_CHECKING:
    from . import Options
    from ._view import View

#: Of a row group: what readers work on at a time.
_ROWS = 1 << 17


def write(view: View, out: IO[bytes], options: Options) -> None:
    """Write it, compressed by zstd."""
    pyarrow = require("pyarrow", "arrow", "Parquet")
    parquet = require("pyarrow.parquet", "arrow", "Parquet")
    table = pyarrow.table(view.table(options.table))
    with parquet.ParquetWriter(out, table.schema, compression="zstd") as writer:
        for first in range(0, len(table), _ROWS):
            writer.write_table(table.slice(first, _ROWS), row_group_size=_ROWS)
