"""The columns of a trace's tables, as columns.def describes them, made of the core's values."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from functools import cache, cached_property
from typing import NamedTuple, TypeAlias, cast

import numpy as np

from .. import _core
from .column import Array, Column, Mask, Null, Words, code_type
from .event_rows import parts_of_rows

#: Gives values, or the codes of texts, by the column's name.
Loader: TypeAlias = Callable[[str], Array]


class Description(NamedTuple):
    """A row of columns.def, which says what the fields are."""

    table: str
    name: str
    type: str
    reading: str
    null: str
    null_if: str
    unit: str
    meaning: str
    more: str


@cache
def described(table: str) -> tuple[Description, ...]:
    """Return the descriptions of a table's columns, in order."""
    return tuple(Description(*row) for row in _core.column_table() if table == row[0])


def number(description: Description, load: Loader, recorded: Container[str] = ()) -> Column:
    """Return a column of numbers.

    Parameters
    ----------
    description : Description
        What it is.
    load : callable
        Gives its values.
    recorded : container of str
        Of "lines", "memory", "lock" and "waits", what was recorded: columns of the others are null
        throughout.
    """
    null: Null
    if description.null.startswith("no "):
        known = description.null.removeprefix("no ") in recorded

        def nulls() -> Mask:
            # One value for all rows: a stride of 0.
            return np.broadcast_to(np.bool_(not known), len(load(description.name)))

        null = nulls
    else:
        null = cast("Null", description.null)
    return Column(
        description.name,
        lambda: load(description.name),
        np.dtype(description.type),
        null=null,
        unit=description.unit,
        doc=description.meaning,
        hexadecimal=description.reading == "address",
    )


class Strings:
    """The texts of a column whose values are ids of the core's strings; -1: none.

    Parameters
    ----------
    parts : callable
        Yields the values of all rows, in parts.
    """

    def __init__(self, parts: Callable[[], Iterable[Array]]) -> None:
        self._parts = parts

    @property
    def words(self) -> Words:
        """The distinct texts, in order of their ids."""
        # No attribute: a circle would keep the rows until a collection.
        return Words(lambda: self._texts)

    @cached_property
    def _texts(self) -> tuple[str, ...]:
        return tuple(_core.text(string) or "" for string in self._found[1].tolist())

    @cached_property
    def _found(self) -> tuple[Array, Array]:
        """The code by id, of none last; the id by code."""
        used = np.zeros(1, bool)
        for ids in self._parts():
            counts = np.bincount(ids + 1, minlength=len(used))
            used = np.append(used, np.zeros(len(counts) - len(used), bool)) | (counts > 0)
        known = np.flatnonzero(used[1:])
        codes = np.full(int(known[-1]) + 2 if len(known) else 1, -1, code_type(len(known)))
        codes[known] = np.arange(len(known))
        return codes, known

    def codes(self, ids: Array) -> Array:
        """Return the codes of some rows."""
        return _core.gather(self._found[0], ids)


def strings(description: Description, load: Loader, whole: Strings | None = None) -> Column:
    """Return a column of texts, whose values are ids of the core's strings.

    Parameters
    ----------
    description : Description
        What it is.
    load : callable
        Gives the ids.
    whole : Strings, optional
        Of the table of which these rows are a part; without, they are the table.
    """

    @cache
    def ids() -> Array:
        return load(description.name)

    of_all = whole or Strings(lambda: (ids()[rows] for rows in parts_of_rows(len(ids()))))
    return Column(
        description.name,
        lambda: of_all.codes(ids()),
        words=of_all.words,
        doc=description.meaning,
    )
