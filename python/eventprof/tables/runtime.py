"""Events of PyPy's compiler and garbage collector.

They are in the metadata of an archive, under ``runtime_events``, because they are rare and differ
much from each other: readers that do not know them can read everything else.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .table import Table

_FIRST = ("time", "event", "thread", "name", "module", "file", "line", "details")
_INT32 = ("thread", "line")


def table(found: object) -> Table:
    """Make the table.

    Parameters
    ----------
    found : object
        The value in the metadata of a file: parts that are not as expected are left out.

    Returns
    -------
    Table
        See `Trace.runtime`.
    """
    import json  # only traces of PyPy need it

    rows = _rows(found)
    columns: dict[str, Any] = {}
    for index, name in enumerate(_FIRST[:-1]):
        columns[name] = _column(name, [row[index] for row in rows])
    columns["details"] = [json.dumps(row[-1]) for row in rows] or _column("details", [])
    for name in dict.fromkeys(key for row in rows for key in row[-1]):
        values = [row[-1].get(name) for row in rows]
        if name not in columns and all(isinstance(v, (int, str, type(None))) for v in values):
            columns[name] = _column(name, values)
    units = dict.fromkeys(("time", "duration", "duration_min", "duration_max"), "ns")
    return Table.from_columns("runtime", columns, units=units)


def _rows(found: object) -> list[tuple[Any, ...]]:
    rows = found.get("rows") if isinstance(found, dict) else None
    if not isinstance(rows, (list, tuple)):
        return []
    return [tuple(row) for row in rows if _is_row(row)]


def _is_row(row: object) -> bool:
    if not isinstance(row, (list, tuple)) or len(row) != len(_FIRST):
        return False
    time, event, thread, *texts, line, details = row
    return (
        isinstance(time, int)
        and isinstance(event, str)
        and isinstance(thread, int)
        and all(text is None or isinstance(text, str) for text in texts)
        and (line is None or isinstance(line, int))
        and isinstance(details, dict)
    )


def _column(name: str, values: list[Any]) -> Any:
    if any(isinstance(value, str) for value in values):
        return [None if value is None else str(value) for value in values]
    if all(value is None for value in values) and name not in ("time", *_INT32):
        return np.array(values, dtype=object)
    if name in ("time", "thread"):
        return np.array(values, dtype=np.int64 if name == "time" else np.int32)
    nulls = [value is None for value in values]
    kind = np.int32 if name in _INT32 else np.int64
    limit = 2**31 if kind is np.int32 else 2**63
    numbers = np.zeros(len(values), dtype=kind)
    for row, value in enumerate(values):
        # A file may hold anything; values that do not fit are unknown.
        if value is None or abs(value) >= limit:
            nulls[row] = True
        else:
            numbers[row] = value
    return np.ma.MaskedArray(numbers, mask=nulls)
