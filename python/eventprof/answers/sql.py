"""Questions in SQL, which DuckDB answers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .._optional import require
from ..tables import TABLES

if TYPE_CHECKING:
    from ..trace import Trace


def ask(trace: Trace, query: str) -> Any:
    """Answer `Trace.sql`."""
    duckdb = require("duckdb", "duckdb", "sql()")
    connection = duckdb.connect()
    words = set(re.findall(r"\w+", query.lower()))
    for name in TABLES:
        if name in words:
            connection.register(name, getattr(trace, name)._numbered())
    return connection.sql(query)
