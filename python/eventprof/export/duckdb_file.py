"""All tables as a DuckDB file; ``row`` is what columns such as function and parent refer to."""

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
    """Write it; ``metadata`` holds what is known of the run, as JSON by key."""
    duckdb = require("duckdb", "duckdb", "a DuckDB file")
    pyarrow = require("pyarrow", "arrow", "a DuckDB file")
    os.unlink(options.path)  # an empty file is no database to it
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
