"""All tables as an SQLite file. Columns such as function and parent refer to the column ``row``.

SQLite makes the file and fills the small tables. A table of many rows is left empty there, and its
pages are made here (`_sqlite_pages`): a row through SQLite takes ten times as long.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from . import TABLES
from ._sqlite_pages import PAGE, Pages, longest_record
from ._view import AT_A_TIME, utf8

if TYPE_CHECKING:
    from ..trace.column import Array, Column
    from ..trace.table import Table
    from . import Options
    from ._view import View

#: From so many rows on, pages are made here.
_MANY = 1000


def write(view: View, out: IO[bytes], options: Options) -> None:
    """Write the tables, and a table ``metadata`` with facts of the run as JSON."""
    large = []
    done, total = 0, sum(len(view.table(name)) for name in TABLES)
    with contextlib.closing(sqlite3.connect(options.path)) as base:
        base.execute(f"pragma page_size={PAGE}")
        base.execute("pragma journal_mode=off")
        base.execute("pragma synchronous=off")
        for name in TABLES:
            table = view.table(name)
            _create(base, name, table)
            if len(table) >= _MANY and longest_record(table) is not None:
                large.append(name)
                continue
            marks = ", ".join("?" * (1 + len(table.columns)))
            parts = numbered(view, name, done, total)
            base.executemany(f'insert into "{name}" values ({marks})', _rows(table, parts))
            done += len(table)
        base.execute("create table metadata (key text primary key, value text)")
        base.executemany(
            "insert into metadata values (?, ?)",
            [(key, json.dumps(value, default=str)) for key, value in facts(view).items()],
        )
        base.commit()
        roots = dict(base.execute("select name, rootpage from sqlite_master where type = 'table'"))
    if large:
        with open(options.path, "r+b") as file, Pages(file) as pages:
            for name in large:
                pages.fill(roots[name], numbered(view, name, done, total))
                done += len(view.table(name))


def facts(view: View) -> dict[str, Any]:
    """Give the facts of the run."""
    return {**view.trace.metadata, "loss": view.loss}


def numbered(view: View, name: str, before: int, total: int) -> Iterator[Table]:
    """Yield parts of a table with a first column ``row``: the row numbers in the whole trace.

    Parameters
    ----------
    view : View
        The chosen calls.
    name : str
        The table.
    before, total : int
        Rows of the tables before it, and of all tables, for the progress.
    """
    chosen = view.rows if name == "calls" else None
    first = 0
    for part in view.parts_of_table(view.table(name), AT_A_TIME, before=before, total=total):
        rows = np.arange(first, first + len(part), dtype=np.int64)
        yield with_rows(part, rows if chosen is None else chosen[rows])
        first += len(part)


def with_rows(part: Table, rows: Array) -> Table:
    """Give a table with its row numbers as a first column."""
    from ..trace.column import Column
    from ..trace.table import Table

    row = Column("row", lambda: rows, np.int64)
    return Table(part.name, [row, *part._columns.values()], len(part))


def _create(base: sqlite3.Connection, name: str, table: Table) -> None:
    kinds = [f'"{column.name}" {_kind(column)}' for column in table._columns.values()]
    base.execute(f'create table "{name}" ({", ".join(["row integer primary key", *kinds])})')


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
