"""All tables as an SQLite file; ``row`` is what columns such as function and parent refer to."""

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
    """Write it; ``metadata`` holds what is known of the run, as JSON by key."""
    with contextlib.closing(sqlite3.connect(options.path)) as base:
        base.execute("pragma journal_mode=off")
        base.execute("pragma synchronous=off")
        for name in TABLES:
            _write_table(base, name, numbered(view, name))
        base.execute("create table metadata (key text primary key, value text)")
        base.executemany(
            "insert into metadata values (?, ?)",
            [(key, json.dumps(value, default=str)) for key, value in facts(view).items()],
        )
        base.commit()


def facts(view: View) -> dict[str, Any]:
    """Give what is known of the run."""
    return {**view.trace.metadata, "loss": view.loss}


def numbered(view: View, name: str) -> Table:
    """Give a table with its rows' numbers in the whole trace."""
    from ..trace.column import Column
    from ..trace.table import Table

    if name == "calls" and view.chosen:
        found = view.table(name)
        rows = Column("row", lambda: view.rows.astype(np.int64), np.int64)
        return Table(name, [rows, *found._columns.values()], len(found))
    return view.table(name)._numbered()


def _write_table(base: sqlite3.Connection, name: str, table: Table) -> None:
    columns = list(table._columns.values())
    kinds = ", ".join(
        f'"{column.name}" {"integer primary key" if column.name == "row" else _kind(column)}'
        for column in columns
    )
    base.execute(f'create table "{name}" ({kinds})')
    marks = ", ".join("?" * len(columns))
    base.executemany(f'insert into "{name}" values ({marks})', _rows(table))


def _kind(column: Column) -> str:
    if column.words is not None:
        return "text"
    return "real" if column.type().kind == "f" else "integer"


def _rows(table: Table) -> Iterator[tuple[Any, ...]]:
    texts = {
        name: [*(utf8(word).decode() for word in column.words.texts()), None]
        for name, column in table._columns.items()
        if column.words is not None
    }
    for first in range(0, len(table), AT_A_TIME):
        part = table[first : first + AT_A_TIME]
        items = []
        for name, column in part._columns.items():
            if name in texts:
                words = texts[name]
                items.append([words[code] for code in column.values().tolist()])
            elif column.type() == np.uint64:
                # SQLite's integers are signed; so is what it gives back for these.
                items.append([None if x is None else x - (x >> 63 << 64) for x in column.items()])
            else:
                items.append(column.items())
        yield from zip(*items, strict=True)
