"""All tables as a DuckDB file. Columns such as function and parent refer to the column ``row``."""

from __future__ import annotations

import json
import os
from typing import IO, TYPE_CHECKING

import numpy as np

from .._optional import require
from ..tables import TABLES
from .sqlite import facts, numbered, with_rows

if TYPE_CHECKING:
    from . import Options
    from ._view import View


def write(view: View, out: IO[bytes], options: Options) -> None:
    """Write the tables, and a table ``metadata`` with facts of the run as JSON."""
    duckdb = require("duckdb", "duckdb", "a DuckDB file")
    pyarrow = require("pyarrow", "arrow", "a DuckDB file")
    os.unlink(options.path)  # DuckDB refuses an empty file
    # A thread of DuckDB collects rows of its own before it writes them: one needs the least memory.
    settings = {"threads": 1, "memory_limit": "24MiB", "preserve_insertion_order": True}
    base = duckdb.connect(options.path, config=settings)
    try:
        done, total = 0, sum(map(view.length, TABLES))
        for name in TABLES:
            none = view.part_of_table(name, 0, 0)
            schema = pyarrow.table(with_rows(none, np.arange(0))).schema
            parts = (pyarrow.table(part) for part in numbered(view, name, done, total))
            batches = (batch for part in parts for batch in part.to_batches())
            base.register("given", pyarrow.RecordBatchReader.from_batches(schema, batches))
            base.execute(f'create table "{name}" as select * from given')
            base.unregister("given")
            done += view.length(name)
        base.execute("create table metadata (key text primary key, value text)")
        for key, value in facts(view).items():
            base.execute(
                "insert into metadata values (?, ?)", [key, json.dumps(value, default=str)]
            )
    finally:
        base.close()
