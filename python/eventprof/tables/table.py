"""Recorded: named columns of equal length, each computed when first asked for.

tables.py defines the tables of a trace; the extension makes Arrow's structs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast, overload

import numpy as np

from .. import _core
from .._optional import require
from .column import Array, Column, Mask, Null, Words, encode
from .plain_table import SHOWN, PlainTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: True: what the trace knows of its overhead; or ns an event by sort, of `eventprof.overhead`.
Compensate: TypeAlias = "bool | Mapping[str, float]"

_ROWS_AT_A_TIME = 4096  # of an iteration


def _constant(array: Array) -> Callable[[], Array]:
    return lambda: array


def _rebuild(name: str, length: int, columns: list[tuple[Any, ...]]) -> Table:
    """Make a table of what `Table.__reduce__` gave."""

    def column(
        title: str, values: Array, dtype: Any, nulls: Mask | None, texts: tuple[str, ...] | None,
        unit: str, doc: str, hexadecimal: bool,
    ) -> Column:  # fmt: skip
        words = None if texts is None else Words(lambda: texts)
        null: Null = "never" if nulls is None else _constant(nulls)
        return Column(title, _constant(values), dtype, null=null, words=words, unit=unit, doc=doc,
                      hexadecimal=hexadecimal)  # fmt: skip

    return Table(name, [column(*each) for each in columns], length)


def _values_and_nulls(given: Any) -> tuple[Array, Mask | None]:
    """Return views of an array, or an array of a sequence; text as objects."""
    if isinstance(given, np.ma.MaskedArray):
        return given.data.view(), np.ma.getmaskarray(given).copy()
    if isinstance(given, np.ndarray):
        return given.view(), None
    items = list(given)
    values = np.array(items) if items else np.empty(0, np.int64)
    return (np.array(items, dtype=object) if values.dtype.kind in "OU" else values), None


class Table(PlainTable):
    """Named columns of equal length.

    ``table["size"]`` is a NumPy array that is not copied; it is read-only, because the table keeps
    it. Columns that may hold unknown values are masked arrays, always, so that their type does not
    depend on the run; texts are arrays of str and None. A slice, a mask or an array of row numbers
    between the brackets gives a table of those rows, a list of names one of those columns, a single
    number one row as a named tuple. A column or row that there is not is a KeyError or IndexError.

    A table can be handed to what speaks Arrow (pyarrow, Polars, DuckDB, ...) as it is; numbers are
    not copied.

    Examples
    --------
    >>> table = Table.from_columns("fruit", {"name": ["fig", None, "fig"], "grams": [40, 7, 51]})
    >>> table["grams"]
    array([40,  7, 51])
    >>> table[table["grams"] > 10]
    fruit: 2 rows, 2 columns
       name  grams
    0  fig      40
    1  fig      51
    >>> table[1]
    Row(name=None, grams=7)
    """

    __slots__ = ("_compensate",)

    _columns: dict[str, Column]

    def __init__(
        self,
        name: str,
        columns: Iterable[Column],
        length: int,
        compensate: Callable[[Compensate], Table] | None = None,
    ) -> None:
        super().__init__(name, list(columns), length)
        self._compensate = compensate

    @classmethod
    def from_columns(
        cls,
        name: str,
        columns: Mapping[str, Any],
        *,
        units: Mapping[str, str] | None = None,
    ) -> Self:
        """Make a table of arrays.

        Parameters
        ----------
        name : str
            What it is called.
        columns : mapping
            Of names to sequences of one length. Masked arrays keep their nulls; sequences of str
            and None become text columns.
        units : mapping, optional
            Of names to units.

        Returns
        -------
        Table
            Arrays of numbers are not copied; leave them as they are.

        Raises
        ------
        ValueError
            The columns differ in length.
        """
        made = []
        length = None
        for key, given in columns.items():
            values, nulls = _values_and_nulls(given)
            if values.ndim != 1 or length not in (None, len(values)):
                raise ValueError(
                    f"column {key!r}: {values.shape} values, the other columns have {length}"
                )
            length = len(values)
            unit = (units or {}).get(key, "")
            if values.dtype.kind in "OU":
                codes, words = encode(values.tolist())
                made.append(Column(key, _constant(codes), words=words, unit=unit))
            else:
                null: Null = "never" if nulls is None else _constant(nulls)
                made.append(Column(key, _constant(values), values.dtype, null=null, unit=unit))
        return cls(name, made, length or 0)

    # ---- What is in it ---------------------------------------------------------------------------

    if TYPE_CHECKING:

        def _column(self, name: str) -> Column: ...

        def __getattr__(self, name: str) -> Array: ...

    def __reduce__(self) -> tuple[Callable[..., Table], tuple[Any, ...]]:
        """Copy all columns into a pickle; the trace that the table is of is not in it."""
        return _rebuild, (
            self.name,
            self._length,
            [
                (
                    c.name,
                    c.values(),
                    c.dtype,
                    c.nulls(),
                    None if c.words is None else c.words.texts(),
                    c.unit,
                    c.doc,
                    c.hexadecimal,
                )
                for c in self._columns.values()
            ],
        )

    def _text_column(self, name: str) -> tuple[Column, Words]:
        column = self._column(name)
        if column.words is None:
            raise ValueError(f"column {name!r} of {self.name} is not text")
        return column, column.words

    def codes(self, name: str) -> Array:
        """Return the codes of a text column.

        Parameters
        ----------
        name : str
            The column.

        Returns
        -------
        ndarray, shape (len(self),), int8, int16 or int32
            Indices into `categories`, -1 where unknown; read-only, not copied.

        Raises
        ------
        KeyError
            There is no such column.
        ValueError
            It is not a text column.
        """
        return self._text_column(name)[0].values()

    def categories(self, name: str) -> tuple[str, ...]:
        """Return the distinct texts that a text column's codes stand for.

        Parameters
        ----------
        name : str
            The column.

        Returns
        -------
        tuple of str
            Each once; some may not occur in this part of a table.

        Raises
        ------
        KeyError
            There is no such column.
        ValueError
            It is not a text column.
        """
        return self._text_column(name)[1].texts()

    def describe(self) -> Table:
        """Report what the columns are.

        Returns
        -------
        Table
            One row a column: column, type (``text``, or NumPy's), unit (null: none), nullable,
            meaning.
        """
        return Table.from_columns(f"columns of {self.name}", self._described())

    def top(self, column: str, count: int = 10) -> Table:
        """Return the rows with the largest values of a column, the largest first.

        Parameters
        ----------
        column : str
            Of numbers.
        count : int
            How many rows, at most.

        Returns
        -------
        Table
            With all columns; rows whose value is unknown are left out.

        Raises
        ------
        KeyError
            There is no such column.
        ValueError
            It is a text column, or `count` is less than 1.

        Examples
        --------
        >>> table = Table.from_columns("fruit", {"name": ["fig", "pear"], "grams": [40, 70]})
        >>> table.top("grams", 1)["name"].tolist()
        ['pear']
        """
        chosen = self._column(column)
        if chosen.words is not None:
            raise ValueError(f"column {column!r} of {self.name} is text: top() takes numbers")
        if count < 1:
            raise ValueError(f"count must be 1 or more, not {count}")
        values, nulls = chosen.values(), chosen.nulls()
        rows = np.arange(self._length) if nulls is None else np.flatnonzero(~nulls)
        keys = values[rows]
        if keys.dtype.kind == "u":
            order = np.argsort(keys.max(initial=0) - keys, kind="stable")
        else:
            order = np.argsort(-keys, kind="stable")
        return self[rows[order[:count]].astype(np.int64)]

    def sort(self, column: str, *, descending: bool = False) -> Table:
        """Return a table with the rows in the order of a column.

        Parameters
        ----------
        column : str
            Of numbers or of text.
        descending : bool
            The largest values first.

        Returns
        -------
        Table
            Rows with the same value keep their order; those whose value is unknown are last.

        Raises
        ------
        KeyError
            There is no such column.

        Examples
        --------
        >>> table = Table.from_columns("fruit", {"name": ["pear", "fig"], "grams": [70, 40]})
        >>> table.sort("name")["grams"].tolist()
        [40, 70]
        """
        chosen = self._column(column)
        values, nulls = chosen.values(), chosen.nulls()
        if chosen.words is not None:
            texts = chosen.words.texts()
            ranks = np.empty(len(texts), np.int64)
            ranks[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
            nulls = values < 0
            values = np.where(nulls, -1, ranks.take(values, mode="clip") if texts else -1)
        unknown = np.zeros(self._length, bool) if nulls is None else nulls
        known = np.flatnonzero(~unknown)
        keys = values[known]
        if descending:  # turned round twice, so that equal rows keep their order
            order = len(keys) - 1 - np.argsort(keys[::-1], kind="stable")[::-1]
        else:
            order = np.argsort(keys, kind="stable")
        return self[np.concatenate([known[order], np.flatnonzero(unknown)])]

    # ---- Parts of it -----------------------------------------------------------------------------

    @overload
    def __getitem__(self, key: str) -> Array: ...
    @overload
    def __getitem__(self, key: int) -> Any: ...
    @overload
    def __getitem__(self, key: slice | list[str] | Array) -> Table: ...
    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self._column(key).array()
        if isinstance(key, slice):
            return self._select(lambda values: values[key], len(range(*key.indices(len(self)))))
        if isinstance(key, (list, tuple)) and key and all(isinstance(name, str) for name in key):
            names = list(key)
            return Table(
                self.name, [self._column(name) for name in names], self._length,
                self._compensated_part(lambda table: table[names]),
            )  # fmt: skip
        if isinstance(key, (bool, np.bool_)):
            raise TypeError(
                f"{self.name}[{key}]: a mask has a value for each row; compare a column, as in "
                f"table[table['name'] == 'sorted'] (table.name is the table's own name)"
            )
        is_number = isinstance(key, np.generic)  # which has __array__, too
        if isinstance(key, (np.ndarray, list, tuple)) or (
            hasattr(key, "__array__") and not is_number
        ):
            rows = self._rows(key)
            return self._select(lambda values: values.take(rows), len(rows))
        row = self._row(key)
        return next(iter(self[row : row + 1]))

    def _rows(self, key: Any) -> NDArray[np.intp]:
        mask = np.ma.filled(key, False) if isinstance(key, np.ma.MaskedArray) else np.asarray(key)
        if mask.ndim != 1 or mask.dtype.kind not in "biu":
            if mask.size == 0 and mask.ndim == 1:
                return np.empty(0, np.intp)
            raise TypeError(
                f"{self.name}[...] takes a mask or row numbers of one dimension, not an array of "
                f"{mask.dtype} with {mask.ndim}"
            )
        if mask.dtype.kind == "b":
            if len(mask) != self._length:
                raise IndexError(f"a mask of {len(mask)} for {self.name} of {self._length} rows")
            return np.flatnonzero(mask)
        rows = mask.astype(np.intp)
        outside = (rows < -self._length) | (rows >= self._length)
        if outside.any():
            raise IndexError(
                f"{self.name} has {self._length} rows; there is no row {rows[outside][0]}"
            )
        rows[rows < 0] += self._length
        return rows

    def _select(self, pick: Callable[[Array], Array], length: int) -> Table:
        return Table(
            self.name, [c.select(pick) for c in self._columns.values()], length,
            self._compensated_part(lambda table: table._select(pick, length)),
        )  # fmt: skip

    def _compensated_part(
        self, part: Callable[[Table], Table]
    ) -> Callable[[Compensate], Table] | None:
        whole = self._compensate
        return None if whole is None else lambda compensate: part(whole(compensate))

    def compensated(self, overhead: Compensate = True) -> Table:
        """Return the table without the recorder's share of its times; never below 0.

        Parameters
        ----------
        overhead : bool or mapping
            What an event costs: True, what the trace's metadata say; or ns by sort, as
            `eventprof.overhead` gives them. False: the table itself.

        Returns
        -------
        Table
            Of `Trace.calls` with other ``duration`` and ``self``, of `Trace.functions` with
            other times: without the events of the call itself and of all calls inside.

        Raises
        ------
        TypeError
            `overhead` is neither a bool nor a mapping.
        ValueError
            The table has no such times, or the trace does not know what its events cost.
        """
        if overhead is False:
            return self
        if self._compensate is None:
            raise ValueError(
                f"{self.name}: only calls and functions of a trace can be compensated, and parts "
                "of them, once"
            )
        return self._compensate(overhead)

    def _numbered(self) -> Table:
        """Return the table with the numbers of its rows as a first column."""
        row = Column("row", lambda: np.arange(self._length, dtype=np.int64), np.int64)
        return Table(self.name, [row, *self._columns.values()], self._length)

    def __iter__(self) -> Iterator[Any]:
        """Go through the rows as named tuples; for small tables, columns are faster."""
        if self._row_type is None:
            self._row_type = self._make_row_type()
        for start in range(0, self._length, _ROWS_AT_A_TIME):
            part = self[start : start + _ROWS_AT_A_TIME]
            yield from map(
                self._row_type._make, zip(*(c.items() for c in part._columns.values()), strict=True)
            )

    # ---- As something else -----------------------------------------------------------------------

    def to_numpy(self, *, compensate: Compensate = False) -> Array:
        """Copy it into a structured array.

        Parameters
        ----------
        compensate : bool or mapping
            Give times without the recorder's share, see `compensated`.

        Returns
        -------
        ndarray or MaskedArray, shape (len(self),)
            One field a column; texts are objects, None where unknown. Masked if any column may hold
            unknown values.
        """
        if compensate is not False:
            return self.compensated(compensate).to_numpy()
        columns = list(self._columns.values())
        text = np.dtype(object)
        kinds = [(c.name, text if c.words is not None else c.type()) for c in columns]
        masked = [c for c in columns if c.nullable and c.words is None]
        for taken in {c.taken for c in columns if c.taken is not None}:
            fields = len(columns) if masked else 0
            taken.take(np.dtype(kinds, align=True).itemsize + fields)
        # zeros: empty puts None into every text, which takes ten times as long.
        result = np.zeros(self._length, dtype=np.dtype(kinds, align=True))
        mask = np.zeros(self._length if masked else 0, dtype=[(c.name, bool) for c in columns])
        # Some rows at a time: each column by itself would go through all of the memory again.
        for start in range(0, self._length, _ROWS_AT_A_TIME):
            rows = slice(start, start + _ROWS_AT_A_TIME)
            for column in columns:
                values = column.values()[rows]
                if column.words is not None:
                    values = column.words.objects().take(values, mode="wrap")
                result[column.name][rows] = values
            for column in masked:
                mask[column.name][rows] = cast(Mask, column.nulls())[rows]
        return np.ma.MaskedArray(result, mask=mask, copy=False) if masked else result

    def to_pandas(self, *, copy: bool = False, compensate: Compensate = False) -> Any:
        """Return a pandas dataframe.

        Parameters
        ----------
        copy : bool
            Whether to copy the columns. Without, they share the table's memory and cannot be
            assigned into; whole columns can always be replaced.
        compensate : bool or mapping
            Give times without the recorder's share, see `compensated`.

        Returns
        -------
        pandas.DataFrame
            Texts are categoricals; numbers that may be unknown have pandas' nullable types.

        Raises
        ------
        ModuleNotFoundError
            pandas is not installed.
        """
        if compensate is not False:
            return self.compensated(compensate).to_pandas(copy=copy)
        pd = require("pandas", "pandas", "to_pandas()")
        data = {column.name: column.pandas(pd) for column in self._columns.values()}
        return pd.DataFrame(data, index=pd.RangeIndex(self._length), copy=copy)

    def to_polars(self, *, compensate: Compensate = False) -> Any:
        """Return a Polars dataframe; texts are categoricals.

        Parameters
        ----------
        compensate : bool or mapping
            Give times without the recorder's share, see `compensated`.

        Returns
        -------
        polars.DataFrame
            Numbers are not copied.

        Raises
        ------
        ModuleNotFoundError
            Polars is not installed.
        """
        return require("polars", "polars", "to_polars()").DataFrame(self.compensated(compensate))

    def to_arrow(self, *, compensate: Compensate = False) -> Any:
        """Return a pyarrow table; texts are dictionaries.

        Parameters
        ----------
        compensate : bool or mapping
            Give times without the recorder's share, see `compensated`.

        Returns
        -------
        pyarrow.Table
            Numbers are not copied.

        Raises
        ------
        ModuleNotFoundError
            pyarrow is not installed.
        """
        return require("pyarrow", "arrow", "to_arrow()").table(self.compensated(compensate))

    def __arrow_c_schema__(self) -> Any:
        """Return the schema as a PyCapsule, for what reads Arrow."""
        return _core.arrow_schema([c.arrow_type() for c in self._columns.values()], 0)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return a fresh stream of the rows as a PyCapsule, for what reads Arrow.

        Parameters
        ----------
        requested_schema : PyCapsule, optional
            Not looked at, as the protocol allows: the table's own types are given.

        Returns
        -------
        PyCapsule
            ``arrow_array_stream``: one batch of all rows. Numbers are not copied, the batch keeps
            them alive. Surrogates in texts, which UTF-8 cannot hold, are backslash escapes.
        """
        return _core.arrow_stream([c.arrow() for c in self._columns.values()], self._length)

    # ---- For people ------------------------------------------------------------------------------

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        import html  # 2 ms that an import of eventprof need not take

        labels, columns, cells = self._shown() if self._length else ([], [], [])
        columns = columns or list(self._columns.values())

        def row(tag: str, items: Iterable[str]) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(x)}</{tag}>" for x in items) + "</tr>"

        heads = [f"{c.name} [{c.unit}]" if c.unit else c.name for c in columns]
        body = [row("td", line) for line in zip(labels, *cells, strict=True)]
        if self._length > len(labels):
            body.insert(SHOWN, row("td", ["..."] * (len(columns) + 1)))
        return (
            f"<table><caption>{html.escape(self._headline())}</caption>"
            f"<thead>{row('th', ['', *heads])}</thead><tbody>{''.join(body)}</tbody></table>"
        )
