"""Two runs of a program beside each other, by function; there may be several recordings of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..tables.by_function import answer_table, masked
from ..tables.facts import Facts
from ..tables.table import Table

if TYPE_CHECKING:
    from ..trace.recorded import Recorded

_DIFFED = ("calls", "total", "self", "allocated", "allocated_self")
#: A function, by what runs have in common: its name, module and file.
_Key: TypeAlias = tuple[Any, Any, Any]


def diff(trace: Recorded, after: Sequence[Recorded], beside: Sequence[Recorded]) -> Table:
    """Answer `Trace.diff`."""
    if not after:
        raise TypeError("diff() takes the later trace")
    before = (trace, *beside)
    for each in (*before, *after):
        if not isinstance(each, Facts):
            raise TypeError(f"diff() takes another trace, not {each!r}")
    clock = trace.metadata.get("clock")
    for each in (*before, *after):
        if (other := each.metadata.get("clock")) != clock:
            raise ValueError(
                f"other: its clock is {other!r}, this trace's is {clock!r}; record both "
                "with the same clock="
            )
    sides = [list(map(_keyed_functions, traces)) for traces in (before, after)]
    keys = list(dict.fromkeys(key for side in sides for values in side for key in values))
    known = [np.array([any(key in v for v in side) for key in keys], dtype=bool) for side in sides]
    columns: dict[str, Any] = {
        "name": [key[0] for key in keys],
        "module": [key[1] for key in keys],
        "file": [key[2] for key in keys],
        "status": np.where(known[0] & known[1], "both", np.where(known[0], "gone", "new")).tolist(),
    }
    none = [0] * len(_DIFFED)
    # [recording, function, figure]; of what a recording lacks nothing was called.
    figures = [
        np.array([[v.get(key, none) for key in keys] for v in side], np.int64).reshape(
            len(side), len(keys), len(_DIFFED)
        )
        for side in sides
    ]
    for index, what in enumerate(_DIFFED):
        earlier, later = (side[:, :, index] for side in figures)
        middle = [np.median(side, axis=0).astype(np.int64) for side in (earlier, later)]
        columns[f"{what}_before"] = masked(middle[0], ~known[0])
        columns[f"{what}_after"] = masked(middle[1], ~known[1])
        columns[f"{what}_change"] = middle[1] - middle[0]
        if len(before) + len(after) > 2:
            columns[f"{what}_apart"] = (later.min(0) > earlier.max(0)) | (
                later.max(0) < earlier.min(0)
            )
    lossy = next((each for each in (*before, *after) if each.loss), after[0])
    table = answer_table(lossy, "difference", columns)
    return table[np.argsort(-np.abs(columns["self_change"]), kind="stable")]


def _keyed_functions(trace: Recorded) -> dict[_Key, list[int]]:
    table = trace.functions
    result: dict[_Key, list[int]] = {}
    numbers = [np.ma.filled(table[what], 0).tolist() for what in _DIFFED]
    keys = zip(table["name"], table["module"], table["file"], strict=True)
    for key, *values in zip(keys, *numbers, strict=True):
        so_far = result.setdefault(key, [0] * len(_DIFFED))
        for row, value in enumerate(values):
            so_far[row] += value
    return result
