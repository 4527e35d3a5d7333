"""All tables as an SQLite file. Columns such as function and parent refer to the column ``row``."""

from __future__ import annotations

import contextlib
import itertools
import json
import sqlite3
from collections.abc import Iterator
from functools import cache
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from ..tables import TABLES
from ._view import AT_A_TIME, utf8

if TYPE_CHECKING:
    from ..tables.column import Array, Column
    from ..tables.table import Table
    from . import Options
    from ._view import View

#: Rows of a statement: with one row in each, exports take about a quarter more of the processor.
_ROWS = 256


def write(view: View, out: IO[bytes], options: Options) -> None:
    """Write the tables, and a table ``metadata`` with facts of the run as JSON."""
    done, total = 0, sum(map(view.length, TABLES))
    with contextlib.closing(sqlite3.connect(options.path)) as base:
        # The file has another name until it is complete, and is dropped if that fails.
        base.execute("pragma journal_mode=off")
        base.execute("pragma synchronous=off")
        for name in TABLES:
            none = view.part_of_table(name, 0, 0)
            _insert(base, name, none, numbered(view, name, done, total))
            done += view.length(name)
        base.execute("create table metadata (key text primary key, value text)")
        base.executemany(
            "insert into metadata values (?, ?)",
            [(key, json.dumps(value, default=str)) for key, value in facts(view).items()],
        )
        base.commit()


def facts(view: View) -> dict[str, Any]:
    """Return the facts of the run."""
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
    for part in view.parts_of_table(name, AT_A_TIME, before=before, total=total):
        rows = np.arange(first, first + len(part), dtype=np.int64)
        yield with_rows(part, rows if chosen is None else chosen[rows])
        first += len(part)


def with_rows(part: Table, rows: Array) -> Table:
    """Return a table with its row numbers as a first column."""
    from ..tables.column import Column
    from ..tables.table import Table

    row = Column("row", lambda: rows, np.int64)
    return Table(part.name, [row, *part._columns.values()], len(part))


def _insert(base: sqlite3.Connection, name: str, table: Table, parts: Iterator[Table]) -> None:
    """Make a table, and put the rows of parts with numbers into it."""
    kinds = [f"{_quoted(column.name)} {_kind(column)}" for column in table._columns.values()]
    base.execute(f'create table "{name}" ({", ".join(["row integer primary key", *kinds])})')
    marks = f"({', '.join('?' * (1 + len(kinds)))})"
    most = base.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER) // (1 + len(kinds))
    rows = _rows(parts)
    while some := list(itertools.islice(rows, min(most, _ROWS))):
        insert = f'insert into "{name}" values {", ".join([marks] * len(some))}'
        base.execute(insert, list(itertools.chain.from_iterable(some)))


def _quoted(name: str) -> str:
    """Return a column's name for a statement. Labels have names of the program's own."""
    return '"' + utf8(name).decode().replace('"', '""').replace("\0", "\\x00") + '"'


def _kind(column: Column) -> str:
    if column.words is not None:
        return "text"
    return "real" if column.type().kind == "f" else "integer"


def _rows(parts: Iterator[Table]) -> Iterator[tuple[Any, ...]]:
    @cache
    def texts(words: tuple[str, ...]) -> list[str | None]:
        return [*(utf8(word).decode() for word in words), None]

    for part in parts:
        items = []
        for column in part._columns.values():
            if column.words is not None:
                words = texts(column.words.texts())
                items.append([words[code] for code in column.values().tolist()])
            elif column.type() == np.uint64:
                # SQLite's integers are signed: larger numbers become negative.
                items.append([None if x is None else x - (x >> 63 << 64) for x in column.items()])
            else:
                items.append(column.items())
        yield from zip(*items, strict=True)
