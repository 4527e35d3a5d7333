"""Parts of answers: tables that name the loss, sums by function, functions by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .._words import did_you_mean
from .column import Array
from .table import Table

if TYPE_CHECKING:
    from ..trace.recorded import Recorded

#: A function: its row in `functions`, its name (qualified, or with its module), or itself.
Function: TypeAlias = "int | str | Callable[..., Any]"

ALL_DOMAINS = 31
_UNITS = {
    "bytes": "bytes", "allocated": "bytes", "freed": "bytes", "net": "bytes", "total": "ns",
    "self": "ns", "start": "ns", "open_for": "ns", "total_before": "ns", "total_after": "ns",
    "total_change": "ns", "self_before": "ns", "self_after": "ns", "self_change": "ns",
    "allocated_before": "bytes", "allocated_after": "bytes", "allocated_change": "bytes",
    "allocated_self": "bytes", "freed_self": "bytes",
    "allocated_self_before": "bytes", "allocated_self_after": "bytes",
    "allocated_self_change": "bytes",
}  # fmt: skip


def answer_table(trace: Recorded, name: str, columns: dict[str, Any]) -> Table:
    """Make an answer; if events were lost, its name says so."""
    return Table.from_columns(trace._title(name), columns, units=_UNITS)


def masked(values: Array, unknown: Array) -> Array:
    """Return values of which some are unknown."""
    return np.ma.MaskedArray(values, mask=unknown)


def row_numbers(values: Array) -> Array:
    """Mark -1 as unknown."""
    return masked(values, values < 0)


def texts_of(trace: Recorded, column: str, functions: Array) -> list[str | None]:
    """Return a text column of `functions` for rows of it; None for row -1."""
    words = trace.functions[column]
    return [None if row < 0 else words[row] for row in functions.tolist()]


def by_function(trace: Recorded, functions: Array) -> dict[str, Any]:
    """Return the columns that say which function."""
    return {
        "function": row_numbers(functions),
        "name": texts_of(trace, "name", functions),
        "module": texts_of(trace, "module", functions),
    }


def sum_by(keys: Array, weights: Array, count: int) -> Array:
    """Sum int64 weights by key; key -1 is dropped. Exact, unlike bincount's floats."""
    sums = np.zeros(count, dtype=np.int64)
    known = keys >= 0
    np.add.at(sums, keys[known], weights[known])
    return sums


def find_function(trace: Recorded, function: Function) -> int:
    """Return the row of a function.

    Raises
    ------
    ValueError
        No function, or more than one, matches; the message lists them.
    """
    table = trace.functions
    if isinstance(function, (int, np.integer)) and not isinstance(function, bool):
        if 0 <= function < len(table):
            return int(function)
        raise ValueError(
            f"function: {function} is not a row of functions, which has {len(table)} rows"
        )
    names, modules = table["name"], table["module"]
    if isinstance(function, str):
        rows = [
            row
            for row, (name, module) in enumerate(zip(names, modules, strict=True))
            if function in (name, f"{module}.{name}")
        ]
        what = repr(function)
    else:
        code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
        what = getattr(function, "__qualname__", repr(function))
        if code is not None:
            key = (code.co_qualname, code.co_filename, code.co_firstlineno)
            places = zip(names, table["file"], np.ma.filled(table["line"], -1), strict=True)
        else:
            key = (getattr(function, "__qualname__", None), None, -1)
            places = zip(names, [None] * len(table), [-1] * len(table), strict=True)
        rows = [row for row, place in enumerate(places) if place == key]
    if len(rows) == 1:
        return rows[0]
    if not rows:
        hint = did_you_mean(what.strip("'"), [name for name in names if name is not None])
        raise ValueError(f"function: {what} does not occur in this trace{hint}")
    found = ", ".join(f"{row}: {modules[row]}.{names[row]}" for row in rows[:8])
    raise ValueError(f"function: {what} may mean several; give its row or its module ({found})")
