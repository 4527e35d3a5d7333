"""Two runs of a program beside each other, by function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..tables.by_function import answer_table, masked
from ..tables.facts import Facts
from ..tables.table import Table

if TYPE_CHECKING:
    from ..trace.recorded import Recorded

_DIFFED = ("calls", "total", "self", "allocated", "allocated_self")


def diff(trace: Recorded, other: Recorded) -> Table:
    """Answer `Trace.diff`."""
    if not isinstance(other, Facts):
        raise TypeError(f"diff() takes another trace, not {other!r}")
    clocks = trace.metadata.get("clock"), other.metadata.get("clock")
    if clocks[0] != clocks[1]:
        raise ValueError(
            f"other: its clock is {clocks[1]!r}, this trace's is {clocks[0]!r}; record both "
            "with the same clock="
        )
    before, after = _keyed_functions(trace), _keyed_functions(other)
    keys = list(dict.fromkeys([*before, *after]))
    columns: dict[str, Any] = {
        "name": [key[0] for key in keys],
        "module": [key[1] for key in keys],
        "file": [key[2] for key in keys],
        "status": [
            "both" if k in before and k in after else "gone" if k in before else "new" for k in keys
        ],
    }
    for index, what in enumerate(_DIFFED):
        pair = []
        for side, values in (("before", before), ("after", after)):
            known = np.array([key in values for key in keys], dtype=bool)
            column = np.array([values[k][index] if k in values else 0 for k in keys], np.int64)
            columns[f"{what}_{side}"] = masked(column, ~known)
            pair.append(column)
        columns[f"{what}_change"] = pair[1] - pair[0]
    table = answer_table(trace if trace.loss else other, "difference", columns)
    return table[np.argsort(-np.abs(columns["self_change"]), kind="stable")]


def _keyed_functions(trace: Recorded) -> dict[tuple[Any, Any, Any], list[int]]:
    """Return the compared figures by name, module and file, which runs have in common."""
    table = trace.functions
    result: dict[tuple[Any, Any, Any], list[int]] = {}
    numbers = [np.ma.filled(table[what], 0).tolist() for what in _DIFFED]
    keys = zip(table["name"], table["module"], table["file"], strict=True)
    for key, *values in zip(keys, *numbers, strict=True):
        so_far = result.setdefault(key, [0] * len(_DIFFED))
        for row, value in enumerate(values):
            so_far[row] += value
    return result
