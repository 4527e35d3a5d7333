"""Tables of Python objects: named columns of equal length, without NumPy.

The same things can be asked of them as of the tables on CPython. A column is a list, or where NumPy
is there an array.
"""

from __future__ import annotations

import operator
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .._optional import require
from .._words import did_you_mean

_SHOWN = 5  # rows of a repr at either end
_TEXT_WIDTH = 40


def numpy() -> Any:
    """Give NumPy, or None where there is none."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy


class Column:
    """One column.

    Parameters
    ----------
    name : str
        What it is called.
    load : callable
        Gives the values as a list; None where unknown.
    kind : {'int', 'float', 'text', 'object'}
        What they are.
    nullable : bool
        Whether there may be unknown ones.
    unit, doc : str
        For people.
    """

    __slots__ = ("_load", "_values", "doc", "kind", "name", "nullable", "unit")

    def __init__(
        self,
        name: str,
        load: Callable[[], list[Any]],
        kind: str = "int",
        *,
        nullable: bool = False,
        unit: str = "",
        doc: str = "",
    ) -> None:
        self.name = name
        self._load = load
        self.kind = kind
        self.nullable = nullable
        self.unit = unit
        self.doc = doc
        self._values: list[Any] | None = None

    def values(self) -> list[Any]:
        """Give the values, computed once; not to be changed."""
        if self._values is None:
            self._values = self._load()
        return self._values

    def array(self, np: Any) -> Any:
        """Give what `table[name]` gives."""
        values = self.values()
        if np is None:
            return list(values)
        if self.kind in ("text", "object"):
            array = np.empty(len(values), dtype=object)
            array[:] = values
            return array
        kind = np.int64 if self.kind == "int" else np.float64
        if not self.nullable:
            return np.array(values, dtype=kind)
        mask = [value is None for value in values]
        return np.ma.MaskedArray(
            np.array([-1 if value is None else value for value in values], dtype=kind), mask=mask
        )

    def select(self, rows: slice | list[int]) -> Column:
        """Give the same column with some of the rows."""

        def load() -> list[Any]:
            values = self.values()
            return values[rows] if isinstance(rows, slice) else [values[row] for row in rows]

        return Column(
            self.name, load, self.kind, nullable=self.nullable, unit=self.unit, doc=self.doc
        )

    def show(self) -> list[str]:
        """Give the cells of a repr; "-" where unknown."""
        if self.kind in ("text", "object"):
            return ["-" if value is None else _shorten(str(value)) for value in self.values()]
        spec = ",.6g" if self.kind == "float" else ","
        return ["-" if value is None else format(value, spec) for value in self.values()]


def _shorten(text: str) -> str:
    text = text.encode("utf-8", "backslashreplace").decode()
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= _TEXT_WIDTH else "..." + text[3 - _TEXT_WIDTH :]


class Table:
    """Named columns of equal length.

    ``table["time"]`` is a list, or an array where NumPy is there; unknown values are None, or
    masked. A slice, a mask or a list of row numbers between the brackets gives a table of those
    rows, a list of names one of those columns, a single number one row as a named tuple.
    """

    __slots__ = ("__weakref__", "_columns", "_length", "_row_type", "name")

    def __init__(self, name: str, columns: Sequence[Column], length: int) -> None:
        self.name = name
        self._columns = {column.name: column for column in columns}
        self._length = length
        self._row_type: Any = None

    @classmethod
    def from_columns(
        cls, name: str, columns: Mapping[str, Any], *, units: Mapping[str, str] | None = None
    ) -> Table:
        """Make a table of sequences of one length; a ValueError if they are not."""
        made = []
        length = None
        for key, given in columns.items():
            values = list(given)
            if length not in (None, len(values)):
                raise ValueError(f"column {key!r}: {len(values)} values, others have {length}")
            length = len(values)
            kinds = {type(value) for value in values if value is not None}
            kind = (
                "text" if str in kinds
                else "float" if float in kinds
                else "int" if (kinds <= {int, bool} and kinds) or not values
                else "object"
            )  # fmt: skip
            made.append(
                Column(
                    key,
                    lambda values=values: values,  # type: ignore[misc]
                    kind,
                    nullable=None in values,
                    unit=(units or {}).get(key, ""),
                )
            )
        return cls(name, made, length or 0)

    def __len__(self) -> int:
        return self._length

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def _column(self, name: str) -> Column:
        try:
            return self._columns[name]
        except KeyError:
            raise KeyError(
                f"{self.name} has no column {name!r}{did_you_mean(name, self._columns)} "
                f"(it has: {', '.join(self._columns)})"
            ) from None

    def describe(self) -> Table:
        """Say what the columns are: column, type, unit, nullable, meaning."""
        columns = self._columns.values()
        return Table.from_columns(
            f"columns of {self.name}",
            {
                "column": [c.name for c in columns],
                "type": [c.kind for c in columns],
                "unit": [c.unit or None for c in columns],
                "nullable": [c.nullable for c in columns],
                "meaning": [c.doc or None for c in columns],
            },
        )

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self._column(key).array(numpy())
        if isinstance(key, slice):
            length = len(range(*key.indices(self._length)))
            return self._select(key, length)
        if isinstance(key, (list, tuple)) and key and all(isinstance(one, str) for one in key):
            return Table(self.name, [self._column(one) for one in key], self._length)
        if isinstance(key, (list, tuple)) or hasattr(key, "__array__"):
            rows = self._rows(key)
            return self._select(rows, len(rows))
        try:
            row = operator.index(key)
        except TypeError:
            raise TypeError(
                f"{self.name}[...] takes a column's name, a row's number, a slice, a mask or a "
                f"list of row numbers, not {type(key).__name__}"
            ) from None
        return next(iter(self._select([self._row(row)], 1)))

    def _row(self, row: int) -> int:
        if not -self._length <= row < self._length:
            raise IndexError(f"{self.name} has {self._length} rows; there is no row {row}")
        return row % self._length

    def _rows(self, key: Any) -> list[int]:
        items = [getattr(item, "item", lambda item=item: item)() for item in key]
        if items and all(isinstance(item, bool) or item is None for item in items):
            if len(items) != self._length:
                raise IndexError(f"a mask of {len(items)} for {self.name} of {self._length} rows")
            return [row for row, item in enumerate(items) if item]
        if any(isinstance(item, bool) or not hasattr(item, "__index__") for item in items):
            raise TypeError(f"{self.name}[...] takes a mask or row numbers, not {key!r}")
        return [self._row(operator.index(item)) for item in items]

    def _select(self, rows: slice | list[int], length: int) -> Table:
        return Table(self.name, [c.select(rows) for c in self._columns.values()], length)

    def __iter__(self) -> Iterator[Any]:
        """Go through the rows as named tuples."""
        if self._row_type is None:
            self._row_type = namedtuple("Row", self._columns, rename=True)  # type: ignore[misc]
        lists = [column.values() for column in self._columns.values()]
        return map(self._row_type._make, zip(*lists, strict=True))

    def to_numpy(self) -> Any:
        """Copy it into a structured array; texts are objects, None where unknown.

        Raises
        ------
        ModuleNotFoundError
            NumPy is not installed.
        """
        np = require("numpy", "numpy", "to_numpy()")
        columns = {name: column.array(np) for name, column in self._columns.items()}
        kinds = [(name, array.dtype) for name, array in columns.items()]
        masked = any(isinstance(array, np.ma.MaskedArray) for array in columns.values())
        result = (np.ma if masked else np).zeros(self._length, dtype=kinds)
        for name, array in columns.items():
            result[name] = array
        return result

    def to_pandas(self) -> Any:
        """Give a pandas dataframe; numbers that may be unknown have pandas' nullable types.

        Raises
        ------
        ModuleNotFoundError
            pandas is not installed.
        """
        pd = require("pandas", "pandas", "to_pandas()")
        data = {}
        for name, column in self._columns.items():
            values = column.values()
            if column.kind == "text":
                data[name] = pd.Categorical(values)
            elif column.kind == "int" and column.nullable:
                data[name] = pd.array(values, dtype="Int64")
            else:
                data[name] = pd.Series(values, dtype=None if column.kind == "int" else object
                                       if column.kind == "object" else float)  # fmt: skip
        return pd.DataFrame(data, index=pd.RangeIndex(self._length))

    # ---- For people ------------------------------------------------------------------------------

    def __repr__(self) -> str:
        rows = "1 row" if self._length == 1 else f"{self._length:,} rows"
        count = len(self._columns)
        headline = f"{self.name}: {rows}, {'1 column' if count == 1 else f'{count} columns'}"
        if self._length == 0:
            return f"{headline}: {', '.join(self._columns)}"
        shown = list(range(min(self._length, 2 * _SHOWN + 1)))
        if self._length > 2 * _SHOWN + 1:
            shown = [*range(_SHOWN), *range(self._length - _SHOWN, self._length)]
        labels = [f"{row:,}" for row in shown]
        blocks = [[" " * len(labels[-1]), *(label.rjust(len(labels[-1])) for label in labels)]]
        for column in self._select(shown, len(shown))._columns.values():
            head = f"{column.name} [{column.unit}]" if column.unit else column.name
            cells = [head, *column.show()]
            width = max(map(len, cells))
            left = column.kind in ("text", "object")
            blocks.append([x.ljust(width) if left else x.rjust(width) for x in cells])
        lines = ["  ".join(cell).rstrip() for cell in zip(*blocks, strict=True)]
        if self._length > len(labels):
            lines.insert(1 + _SHOWN, "...")
        return "\n".join([headline, *lines])
