"""The columns of a trace's tables, as columns.def describes them, made of the core's values."""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import cache
from typing import NamedTuple, TypeAlias, cast

import numpy as np

from .. import _core
from .column import Array, Column, Mask, Null, Words

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
        Of "lines", "memory" and "lock", what was recorded: columns of the others are null
        throughout.
    """
    null: Null
    if description.null.startswith("no "):
        known = description.null.removeprefix("no ") in recorded

        def nulls() -> Mask:
            return np.full(len(load(description.name)), not known)

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


def strings(description: Description, load: Loader) -> Column:
    """Return a column of texts, whose values are ids of the core's strings."""

    @cache
    def found() -> tuple[Array, Array]:
        """Rows of an array of ids, -1: none; and that."""
        ids = load(description.name) + 1
        known = np.flatnonzero(np.bincount(ids, minlength=1)[1:])
        codes = np.full(int(known[-1]) + 2 if len(known) else 1, -1, np.int32)
        codes[known + 1] = np.arange(len(known))
        return codes[ids], known

    def words() -> tuple[str, ...]:
        return tuple(_core.text(string) or "" for string in found()[1].tolist())

    return Column(description.name, lambda: found()[0], words=Words(words), doc=description.meaning)
