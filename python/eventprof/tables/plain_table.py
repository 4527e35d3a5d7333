"""What tables have in common with NumPy and without it: names, rows' numbers, and what people see.

`Table` stands on it, and so does the table on PyPy.
"""

from __future__ import annotations

import operator
from collections import namedtuple
from collections.abc import Sequence
from typing import Any, Self

from .._words import did_you_mean, printable

SHOWN = 5  # rows of a repr at either end
_TEXT_WIDTH = 40  # of a cell in a repr

#: What people write who know other tables, and what there is.
_INSTEAD = {
    "tail": "table[-5:]",
    "iloc": "table[0] or table[:10]",
    "loc": "table[mask], as in table[table['name'] == 'sorted']",
    "filter": "table[mask], as in table[table['name'] == 'sorted']",
    "query": "table[mask], as in table[table['name'] == 'sorted'], or trace.sql(query)",
    "select": "table[['name', 'calls']]",
    "sort_values": "table.sort(column), or table.sort(column, descending=True)",
    "sort_by": "table.sort(column), or table.sort(column, descending=True)",
    "nlargest": "table.top(column, count)",
    "groupby": "table.to_pandas().groupby(...)",
    "group_by": "table.to_polars().group_by(...)",
    "shape": "len(table) and len(table.columns)",
    "dtypes": "table.describe()",
    "info": "table.describe()",
    "to_csv": "table.to_pandas().to_csv(path)",
}


def shorten(text: str) -> str:
    """Return a text as a cell of a repr."""
    text = text.encode("utf-8", "backslashreplace").decode()
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= _TEXT_WIDTH else "..." + text[3 - _TEXT_WIDTH :]


class PlainTable:
    """Named columns of equal length.

    A column has ``name``; ``unit``, ``doc`` and ``nullable``;
    ``type_word``, its type for people; ``left``, whether its cells stand at the left; and
    ``show()``, which gives the cells.
    """

    __slots__ = ("__weakref__", "_columns", "_length", "_row_type", "name")

    def __init__(self, name: str, columns: Sequence[Any], length: int) -> None:
        self.name = name
        self._columns = {column.name: column for column in columns}
        self._length = length
        self._row_type: Any = None

    def __len__(self) -> int:
        return self._length

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(self._columns)

    def __getitem__(self, key: Any) -> Any:
        raise NotImplementedError

    def head(self, count: int = 5) -> Self:
        """Return the first rows as a table.

        Parameters
        ----------
        count : int
            How many rows, at most.

        Returns
        -------
        Table
            ``table[:count]``.
        """
        rows: Self = self[:count]
        return rows

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def _ipython_key_completions_(self) -> list[str]:
        """Return what IPython completes between the brackets."""
        return list(self._columns)

    def _column(self, name: str) -> Any:
        """Return a column."""
        if name not in self._columns:
            raise KeyError(
                f"{self.name} has no column {name!r}{did_you_mean(name, self._columns)} "
                f"(it has: {', '.join(self._columns)})"
            )
        return self._columns[name]

    def __getattr__(self, name: str) -> Any:
        """Return a column whose name nothing else of the table has; ``table[name]`` gives any."""
        known = () if name == "_columns" else self._columns
        if name in known:
            return self[name]
        if name in _INSTEAD:
            text = f"a table has no attribute {name!r}: write {_INSTEAD[name]}"
            raise AttributeError(text, name=name, obj=self)
        public = [each for each in dir(type(self)) if not each.startswith("_")]
        message = f"a table has no attribute {name!r}{did_you_mean(name, [*known, *public])}"
        raise AttributeError(message, name=name, obj=self)

    def __dir__(self) -> list[str]:
        return sorted(
            {*super().__dir__(), *(name for name in self._columns if name.isidentifier())}
        )

    def _make_row_type(self) -> Any:
        """Make the type of rows."""
        return namedtuple("Row", self._columns, rename=True)  # type: ignore[misc,unused-ignore]

    def _row(self, key: Any) -> int:
        """Return the number of a row, counted from the first one."""
        try:
            row = operator.index(key)
        except TypeError:
            raise TypeError(
                f"{self.name}[...] takes a column's name, a row's number, a slice, a mask or a "
                f"list of row numbers, not {type(key).__name__}"
            ) from None
        if not -self._length <= row < self._length:
            raise IndexError(f"{self.name} has {self._length} rows; there is no row {row}")
        return row % self._length

    def _described(self) -> dict[str, list[Any]]:
        """Return the columns of `describe`."""
        columns = self._columns.values()
        return {
            "column": [c.name for c in columns],
            "type": [c.type_word for c in columns],
            "unit": [c.unit or None for c in columns],
            "nullable": [c.nullable for c in columns],
            "meaning": [c.doc or None for c in columns],
        }

    # ---- For people ------------------------------------------------------------------------------

    def _shown(self) -> tuple[list[str], list[Any], list[list[str]]]:
        """Return row labels, columns and cells (by column) of the first and last rows."""
        rows = list(range(min(self._length, 2 * SHOWN + 1)))
        if self._length > 2 * SHOWN + 1:
            rows = [*range(SHOWN), *range(self._length - SHOWN, self._length)]
        columns = list(self[rows]._columns.values())
        return [f"{row:,}" for row in rows], columns, [column.show() for column in columns]

    def _headline(self) -> str:
        rows = "1 row" if self._length == 1 else f"{self._length:,} rows"
        count = len(self._columns)
        return f"{printable(self.name)}: {rows}, {'1 column' if count == 1 else f'{count} columns'}"

    def __repr__(self) -> str:
        if self._length == 0:
            return f"{self._headline()}: {', '.join(self._columns)}"
        labels, columns, cells = self._shown()
        blocks = [[" " * len(labels[-1]), *(label.rjust(len(labels[-1])) for label in labels)]]
        for column, shown in zip(columns, cells, strict=True):
            head = f"{column.name} [{column.unit}]" if column.unit else column.name
            width = max(len(head), *map(len, shown))
            blocks.append(
                [x.ljust(width) if column.left else x.rjust(width) for x in (head, *shown)]
            )
        lines = ["  ".join(cell).rstrip() for cell in zip(*blocks, strict=True)]
        if self._length > len(labels):
            lines.insert(1 + SHOWN, "...")
        return "\n".join([self._headline(), *lines])
