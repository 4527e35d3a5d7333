"""Reading a log file while the program still writes it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from ..tables.table import Table
from ..trace import Trace

#: So many records at the end of a live log are read later: a hook may still remove them.
_HELD_BACK = 4
_SHORTEST_WAIT_S = 0.1
#: The share of time that reading may take: a longer log is read less often.
_READING_SHARE = 0.2


class Follower:
    """The events of a program that is still being recorded, as they come; made by `open`.

    Iterate over it: each item is a table of new events, with the columns of `Trace.events`, and is
    never empty. The iteration ends when the recording ends.

    Parameters
    ----------
    load : callable
        Reads the file anew.

    Attributes
    ----------
    trace : Trace
        The trace that was read last.
    missed : int
        Events that a ring overwrote before they were read.
    """

    trace: Trace
    missed: int

    def __init__(self, load: Callable[[], Trace]) -> None:
        self._load = load
        self._ended = False
        self._given: dict[int, int] = {}
        self.missed = 0
        self.trace = load()

    @property
    def ended(self) -> bool:
        """Whether no more events can come."""
        return self._ended

    def poll(self) -> Table:
        """Read the events since the last time.

        Returns
        -------
        Table
            New rows of `Trace.events`; row numbers of functions and threads are those of `trace`.

        Raises
        ------
        OSError, FormatError
            The file cannot be read any more.
        """
        self.trace = trace = self._load()
        events = trace.events
        facts = trace.file or {}
        live = bool(facts.get("live"))
        self._ended = not live
        threads = events["thread"]
        fresh: NDArray[np.bool_] = np.zeros(len(events), dtype=bool)
        for row, (native_id, lost) in enumerate(
            zip(trace.threads["native_id"], trace.threads["lost"], strict=True)
        ):
            rows = np.flatnonzero(threads == row)
            if live:
                rows = rows[: max(len(rows) - _HELD_BACK, 0)]
            # The events of a thread are counted from its first one, also the lost ones.
            key = int(native_id)
            given = self._given.get(key, 0)
            skipped = max(given - int(lost), 0)
            self.missed += max(int(lost) - given, 0)
            fresh[rows[skipped:]] = True
            self._given[key] = max(given, int(lost) + len(rows))
        return events[np.flatnonzero(fresh)]

    def __iter__(self) -> Iterator[Table]:
        while True:
            began = time.monotonic()
            rows = self.poll()
            took = time.monotonic() - began
            if len(rows) > 0:
                yield rows
            if self._ended:
                return
            time.sleep(max(_SHORTEST_WAIT_S, took * (1 - _READING_SHARE) / _READING_SHARE))
