"""Print the table of functions."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from ..tables.descriptions import described
from . import rows

if TYPE_CHECKING:
    from ..tables.table import Table

COLUMNS = tuple(column.name for column in described("functions"))
_SHOWN = ("calls", "total", "self", "mean", "allocated", "allocated_self", "blocks_self")


def write_first(table: Table, limit: int) -> None:
    """Print the functions with the most time of their own."""
    order = order_of(table, "self")
    write(table[order[:limit].astype(np.int64)], "self")
    if len(table) > limit:
        print(f"and {len(table) - limit:,} more")


def order_of(table: Table, name: str) -> Any:
    """Return the rows in the order of a column: texts from A, numbers from the largest."""
    if table._column(name).words is not None:
        texts = np.array([text or "" for text in table[name]], dtype=object)
        return np.argsort(texts, kind="stable")
    values = np.ma.filled(table[name].astype(np.float64), -np.inf)
    return np.argsort(-values, kind="stable")


def write(table: Table, sort: str) -> None:
    """Print the functions; the column of the order comes first if it is not shown anyway."""
    from .._words import show_bytes, show_ns
    from ..base.text import short_path

    names = list(_SHOWN)
    if sort not in (*names, "line") and table._column(sort).words is None:
        names.insert(0, sort)
    show = {"ns": show_ns, "bytes": show_bytes}

    def shown(name: str, value: Any) -> str:
        return rows.cell(show.get(table._column(name).unit, "{:,}".format), value)

    columns = {
        name: table._column(name).items() for name in (*names, "name", "module", "file", "line")
    }
    lines = []
    for number in range(len(table)):
        row = {name: column[number] for name, column in columns.items()}
        file = row["file"]
        place = "" if file is None else f"{rows.printable(short_path(file))}:{row['line']}"
        function = rows.full_name(row["name"], row["module"])
        lines.append([*(shown(name, row[name]) for name in names), function, place])
    rows.write_text(lines, [*names, "function", "where"], sys.stdout, left=2)
