"""Print the table of functions."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from . import rows

if TYPE_CHECKING:
    from ..tables.table import Table

#: The columns to sort by, grouped by the way in which they are shown.
_TIMES = ("total", "self", "waited", "waited_self", "mean", "min", "max", "p50", "p95", "p99")
_MEMORY = ("allocated", "freed", "net", "live", "churn", "temporary", "at_peak")
BYTES = tuple(name + end for name in _MEMORY for end in ("", "_self"))
BLOCKS = ("blocks", "blocks_self")
_COUNTS = ("calls", "resumes", "recursive", *BLOCKS)
_TEXTS = ("name", "module", "file", "line", "kind")
COLUMNS = (*_COUNTS, *_TIMES, *BYTES, *_TEXTS)
_SHOWN = ("calls", "total", "self", "mean", "allocated", "allocated_self", "blocks_self")


def write_first(table: Table, sort: str, limit: int) -> None:
    """Print the first functions in an order."""
    order = order_of(table, sort)
    write(table[order[:limit].astype(np.int64)], sort)
    if len(table) > limit:
        print(f"and {len(table) - limit:,} more")


def order_of(table: Table, name: str) -> Any:
    """Return the rows in the order of a column: texts from A, numbers from the largest."""
    if name in ("name", "module", "file", "kind"):
        texts = np.array([text or "" for text in table[name]], dtype=object)
        return np.argsort(texts, kind="stable")
    values = np.ma.filled(table[name].astype(np.float64), -np.inf)
    return np.argsort(-values, kind="stable")


def write(table: Table, sort: str) -> None:
    """Print the functions; the column of the order comes first if it is not shown anyway."""
    from .._words import show_bytes, show_ns
    from ..base.text import short_path

    names = list(_SHOWN)
    if sort not in names and sort not in _TEXTS:
        names.insert(0, sort)

    def shown(name: str, value: Any) -> str:
        if name in _TIMES:
            return rows.cell(show_ns, value)
        if name in BYTES:
            return rows.cell(show_bytes, value)
        return rows.cell("{:,}".format, value)

    columns = {name: table._column(name).items() for name in (*names, *_TEXTS)}
    lines = []
    for number in range(len(table)):
        row = {name: column[number] for name, column in columns.items()}
        file = row["file"]
        place = "" if file is None else f"{rows.printable(short_path(file))}:{row['line']}"
        function = rows.full_name(row["name"], row["module"])
        lines.append([*(shown(name, row[name]) for name in names), function, place])
    rows.write_text(lines, [*names, "function", "where"], sys.stdout, left=2)
