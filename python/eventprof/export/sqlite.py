"""All tables as an SQLite file. Columns such as function and parent refer to the column ``row``."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from . import TABLES
from ._view import AT_A_TIME, utf8

if TYPE_CHECKING:
    from ..trace.column import Column
    from ..trace.table import Table
    from . import Options
    from ._view import View


def write(view: View, out: IO[bytes], options: Options) -> None:
    """Write the tables, and a table ``metadata`` with facts of the run as JSON."""
    with contextlib.closing(sqlite3.connect(options.path)) as base:
        base.execute("pragma journal_mode=off")
        base.execute("pragma synchronous=off")
        tables = {name: numbered(view, name) for name in TABLES}
        total, done = sum(map(len, tables.values())), 0
        for name, table in tables.items():
            _write_table(
                base, name, table, view.parts_of_table(table, AT_A_TIME, before=done, total=total)
            )
            done += len(table)
        base.execute("create table metadata (key text primary key, value text)")
        base.executemany(
            "insert into metadata values (?, ?)",
            [(key, json.dumps(value, default=str)) for key, value in facts(view).items()],
        )
        base.commit()


def facts(view: View) -> dict[str, Any]:
    """Give the facts of the run."""
    return {**view.trace.metadata, "loss": view.loss}


def numbered(view: View, name: str) -> Table:
    """Add a column ``row``: the row numbers in the whole trace."""
    from ..trace.column import Column
    from ..trace.table import Table

    chosen = view.rows
    if name == "calls" and chosen is not None:
        found = view.table(name)
        rows = Column("row", lambda: chosen.astype(np.int64), np.int64)
        return Table(name, [rows, *found._columns.values()], len(found))
    return view.table(name)._numbered()


def _write_table(base: sqlite3.Connection, name: str, table: Table, parts: Iterator[Table]) -> None:
    columns = list(table._columns.values())
    kinds = ", ".join(
        f'"{column.name}" {"integer primary key" if column.name == "row" else _kind(column)}'
        for column in columns
    )
    base.execute(f'create table "{name}" ({kinds})')
    marks = ", ".join("?" * len(columns))
    base.executemany(f'insert into "{name}" values ({marks})', _rows(table, parts))


def _kind(column: Column) -> str:
    if column.words is not None:
        return "text"
    return "real" if column.type().kind == "f" else "integer"


def _rows(table: Table, parts: Iterator[Table]) -> Iterator[tuple[Any, ...]]:
    texts = {
        name: [*(utf8(word).decode() for word in column.words.texts()), None]
        for name, column in table._columns.items()
        if column.words is not None
    }
    for part in parts:
        items = []
        for name, column in part._columns.items():
            if name in texts:
                words = texts[name]
                items.append([words[code] for code in column.values().tolist()])
            elif column.type() == np.uint64:
                # SQLite's integers are signed: larger numbers become negative.
                items.append([None if x is None else x - (x >> 63 << 64) for x in column.items()])
            else:
                items.append(column.items())
        yield from zip(*items, strict=True)
