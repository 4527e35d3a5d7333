"""All tables as a DuckDB file. Columns such as function and parent refer to the column ``row``."""

from __future__ import annotations

import json
import os
from typing import IO, TYPE_CHECKING

from .._optional import require
from . import TABLES
from .sqlite import facts, numbered

if TYPE_CHECKING:
    from . import Options
    from ._view import View


def write(view: View, out: IO[bytes], options: Options) -> None:
    """Write the tables, and a table ``metadata`` with facts of the run as JSON."""
    duckdb = require("duckdb", "duckdb", "a DuckDB file")
    pyarrow = require("pyarrow", "arrow", "a DuckDB file")
    os.unlink(options.path)  # DuckDB refuses an empty file
    base = duckdb.connect(options.path)
    try:
        for name in TABLES:
            base.register("given", pyarrow.table(numbered(view, name)))
            base.execute(f'create table "{name}" as select * from given')
            base.unregister("given")
        base.execute("create table metadata (key text primary key, value text)")
        for key, value in facts(view).items():
            base.execute(
                "insert into metadata values (?, ?)", [key, json.dumps(value, default=str)]
            )
    finally:
        base.close()
