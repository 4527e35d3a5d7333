"""Tables of Python objects: named columns of equal length, without NumPy.

The same things can be asked of them as of the tables on CPython. A column is a list, or where NumPy
is there an array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .._optional import require
from ..tables.plain_table import PlainTable, shorten


def numpy() -> Any:
    """Return NumPy, or None where there is none."""
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

    @property
    def left(self) -> bool:
        """Whether a repr has the cells at the left."""
        return self.kind in ("text", "object")

    @property
    def type_word(self) -> str:
        """The type, for people."""
        return self.kind

    def values(self) -> list[Any]:
        """Return the values, computed once; not to be changed."""
        if self._values is None:
            self._values = self._load()
        return self._values

    def array(self, np: Any) -> Any:
        """Return what `table[name]` gives."""
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
        """Return the same column with some of the rows."""

        def load() -> list[Any]:
            values = self.values()
            return values[rows] if isinstance(rows, slice) else [values[row] for row in rows]

        return Column(
            self.name, load, self.kind, nullable=self.nullable, unit=self.unit, doc=self.doc,
        )  # fmt: skip

    def show(self) -> list[str]:
        """Return the cells of a repr; "-" where unknown."""
        if self.kind in ("text", "object"):
            return ["-" if value is None else shorten(str(value)) for value in self.values()]
        spec = ",.6g" if self.kind == "float" else ","
        return ["-" if value is None else format(value, spec) for value in self.values()]


class Table(PlainTable):
    """Named columns of equal length.

    ``table["time"]`` is a list, or an array where NumPy is there; unknown values are None, or
    masked. A slice, a mask or a list of row numbers between the brackets gives a table of those
    rows, a list of names one of those columns, a single number one row as a named tuple.
    """

    __slots__ = ()

    _columns: dict[str, Column]

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
                raise ValueError(
                    f"column {key!r}: {len(values)} values, the other columns have {length}"
                )
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

    def describe(self) -> Table:
        """Report what the columns are: column, type, unit, nullable, meaning."""
        return Table.from_columns(f"columns of {self.name}", self._described())

    def sort(self, column: str, *, descending: bool = False) -> Table:
        """Return a table with the rows in the order of a column; unknown values are last."""
        values = self._column(column).values()
        known = [row for row, value in enumerate(values) if value is not None]
        known.sort(key=values.__getitem__, reverse=descending)
        rows = known + [row for row, value in enumerate(values) if value is None]
        return self._select(rows, len(rows))

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
        return next(iter(self._select([self._row(key)], 1)))

    def _rows(self, key: Any) -> list[int]:
        items = [getattr(item, "item", lambda item=item: item)() for item in key]
        if items and all(isinstance(item, bool) or item is None for item in items):
            if len(items) != self._length:
                raise IndexError(f"a mask of {len(items)} for {self.name} of {self._length} rows")
            return [row for row, item in enumerate(items) if item]
        if any(isinstance(item, bool) or not hasattr(item, "__index__") for item in items):
            raise TypeError(f"{self.name}[...] takes a mask or row numbers, not {key!r}")
        return [self._row(item) for item in items]

    def _select(self, rows: slice | list[int], length: int) -> Table:
        return Table(self.name, [c.select(rows) for c in self._columns.values()], length)

    def __iter__(self) -> Iterator[Any]:
        """Go through the rows as named tuples."""
        if self._row_type is None:
            self._row_type = self._make_row_type()
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
        """Return a pandas dataframe; numbers that may be unknown have pandas' nullable types.

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
