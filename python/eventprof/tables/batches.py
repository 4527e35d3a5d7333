"""Rows of `Trace.events` in batches: in memory for a batch, the open calls and the live blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .descriptions import described
from .kinds import NUMBERS
from .tables import events_table

if TYPE_CHECKING:
    from ..trace.recorded import Recorded
    from .column import Array
    from .table import Table

_ALL_TIMES = np.iinfo(np.int64)


class _Batch:
    """What `events_table` asks of a trace, of some of its events."""

    def __init__(self, trace: Recorded, columns: dict[str, Array]) -> None:
        self._trace = trace
        self._columns = columns
        self._facts = {**trace._facts, "events": len(columns["row"])}

    @property
    def _core(self) -> _Batch:  # no attribute: a circle would keep batches until a collection
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trace, name)

    def events(self, name: str) -> Array:
        """Return a column."""
        return self._columns[name]


def in_batches(trace: Recorded) -> bool:
    """Whether `read_events` can read its events: it is of a file, and has no columns yet."""
    return trace._again is not None and not trace._core.has_columns()


def read_events(
    trace: Recorded,
    take: Callable[[Table, Array], bool],
    *,
    start: int | None = None,
    end: int | None = None,
    kinds: int | None = None,
    functions: Array | None = None,
    threads: Array | None = None,
) -> None:
    """Read a recording once more, and give its events away in batches.

    Parameters
    ----------
    trace : Recorded
        The recording (`in_batches`), of which the functions are known.
    take : callable
        Called with each batch, a part of `Trace.events`, and the numbers of its rows there; returns
        whether it wants more.
    start, end : int, optional
        Only events from the one time on and before the other, in ns.
    kinds : int, optional
        Only events of these kinds, a bit each.
    functions, threads : array of bool, optional
        Only events of these rows of `functions` and `threads`.
    """
    known = [column.name for column in described("events") if column.name not in ("event", "name")]
    every = (1 << 128) - 1 if kinds is None else kinds

    def give(columns: dict[str, Array]) -> bool:
        batch = cast("Recorded", _Batch(trace, columns))
        return take(events_table(batch), columns["row"])

    # The file is opened a second time: what reads it is locked meanwhile.
    assert trace._again is not None
    trace._again().rows(
        _ALL_TIMES.min if start is None else start,
        _ALL_TIMES.max if end is None else end,
        every,
        None if functions is None else functions.astype(np.uint8).tobytes(),
        None if threads is None else threads.astype(np.uint8).tobytes(),
        (*known, "kind", *(["word"] if trace._facts["kinds"] >> NUMBERS["FLOW"] & 1 else [])),
        give,
    )
