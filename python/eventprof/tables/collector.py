"""The table of the garbage collector's runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import _core
from .event_rows import calls_of_kind, event_words, number, rows_of_kind
from .table import Table

if TYPE_CHECKING:
    from ..trace.recorded import Recorded

_GENERATION = "gc generation "


def gc_table(trace: Recorded) -> Table:
    """Make `Trace.gc`."""
    calls = calls_of_kind(trace, "GC_START")
    load = trace._core.calls
    count = len(calls)
    start, duration = (load(name)[calls] if count else np.empty(0, np.int64)
                       for name in ("start", "duration"))  # fmt: skip
    numbers = {name: load(name)[calls] if count else np.empty(0, np.int32)
               for name in ("thread", "function", "caller", "caller_line")}  # fmt: skip
    flags = load("flags")[calls] if count else np.empty(0, np.uint8)
    names = trace.functions["name"]
    generations = np.array(
        [int(str(names[f]).removeprefix(_GENERATION)) for f in numbers["function"].tolist()],
        dtype=np.int32,
    )
    collected = np.full((2, count), -1, dtype=np.int64)
    rows = rows_of_kind(trace, "GC_COLLECTED")
    if len(rows):
        # The innermost call around it is the run that it belongs to.
        words, call = event_words(trace, rows), trace._core.events("call")[rows]
        place = np.searchsorted(calls, call)
        known = (
            (place < count) & (calls[np.minimum(place, count - 1)] == call) if count else call < -1
        )
        collected[0, place[known]] = (words[known] & 0xFFFFFFFF).astype(np.int64)
        collected[1, place[known]] = (words[known] >> 32).astype(np.int64)
    freed, before, after = (np.full(count, -1, dtype=np.int64) for _ in range(3))
    if count and trace._core.facts()["kinds"] & _memory_bits():
        time, live, _ = trace._core.curve((1 << 5) - 1)
        live = np.append(live, np.int64(0))  # index -1: before the first change
        before = live[np.searchsorted(time, start, side="left") - 1]
        after = live[np.searchsorted(time, start + duration, side="right") - 1]
        freed = trace._core.calls("freed")[calls]

    return Table(
        trace._title("gc"),
        [
            number("start", start, "ns", "since the window's start"),
            number("duration", duration, "ns", "from start to end"),
            number("thread", numbers["thread"], "", "row of threads"),
            number("generation", generations, "", "0 is the youngest"),
            number("collected", collected[0], "", "objects", "negative"),
            number("uncollectable", collected[1], "", "objects", "negative"),
            number("freed", freed, "bytes", "by the thread in the run", "negative"),
            number("live_before", before, "bytes", "of the window's blocks", "negative"),
            number("live_after", after, "bytes", "of the window's blocks", "negative"),
            number("call", calls.astype(np.int32), "", "row of calls"),
            number("caller", numbers["caller"], "", "row of functions", "negative"),
            number("caller_line", numbers["caller_line"], "", "where it was set off", "negative"),
            number("flags", flags, "", "as of calls"),
        ],
        count,
    )  # fmt: skip


def _memory_bits() -> int:
    return sum(1 << row[0] for row in _core.kind_table() if row[4] in ("alloc", "free"))
