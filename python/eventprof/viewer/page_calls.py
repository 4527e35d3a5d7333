"""The calls of the page: in rows of equal thread and depth, and by asyncio's tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .. import _core
from .._words import plural
from ..tables.column import Array
from ..tables.kinds import CALL_WORDS
from . import planes
from .planes import Packed, pack, zigzag

if TYPE_CHECKING:
    from ..trace import Trace

#: How many calls a row of the coarse section summarises; it is shown until their tile is decoded.
COARSE = 256
#: How many tasks of asyncio have a lane of their own.
TASKS = 12
_NEVER = (1 << 63) - 1


class Calls:
    """Calls in the order of the page.

    Parameters
    ----------
    trace : Trace
        The trace that has the calls.
    own : array of bool
        Which functions are own code.
    grain : int
        Nanoseconds in a unit of time.
    """

    def __init__(self, trace: Trace, own: Array, grain: int) -> None:
        self.kinds = list(dict.fromkeys(CALL_WORDS.values()))
        codes = bytearray(256)
        for kind, word in CALL_WORDS.items():
            codes[kind] = self.kinds.index(word)
        #: The core's part of the page: of calls and of blocks.
        self.data = _core.PageData(
            trace._core, own.tobytes(), bytes(codes), grain, planes.TILE, COARSE, trace.duration
        )
        self.count, *_ = self.data.counts()
        #: Thread, depth, first call and number of calls of each row of the picture.
        columns = (column.tolist() for column in self.data.rows())
        self.rows = list(zip(*columns, strict=True))
        self.tasks: list[str] = []
        self._trace, self._grain = trace, grain
        self._task: Array | None = None
        if self.data.has_tasks():
            tasks = trace.calls._column("task")
            assert tasks.words is not None
            self.tasks = list(tasks.words.texts())
            self._task = tasks.values().astype(np.int32)
            self.data.set_tasks(self._task)

    def tile_count(self) -> int:
        """Return the number of tiles."""
        return -(-self.count // planes.TILE)

    def tile(self, number: int) -> Packed:
        """Make a tile, and give what the head says of it, and its section."""
        ((widths, rows, low), parts), begins, starts, signed = self.data.call_tile(number)
        head = {"begins": begins, "starts": starts, "signed": signed}
        return {**head, "widths": widths, "rows": rows, "low": low}, pack(*parts)

    def orphans(self) -> tuple[Array, Array]:
        """Return the calls whose parent data.js cannot find by time and depth, and the parents."""
        calls, parents = self.data.orphans()
        return calls.astype(np.int64), parents.astype(np.int64)

    def usual_kind(self) -> list[int]:
        """Return the most frequent kind of each function's calls; the first is no function's."""
        usual: list[int] = self.data.usual().tolist()
        return usual

    def longest(self, wanted: Sequence[tuple[int, int | None, int | None]]) -> list[int]:
        """Return the longest call of each of some functions, callers and lines; -1: none."""
        return self.data.longest(
            [
                (function, -2 if caller is None else caller, -2 if line is None else line)
                for function, caller, line in wanted
            ]
        )

    def steps(self) -> tuple[list[tuple[str, int]], list[Array]]:
        """Return the steps of asyncio's tasks: the calls of a task that no call of the task made.

        Returns
        -------
        lanes : list of (str, int)
            Tasks and their numbers of steps: those that ran longest, then all others as one lane.
        columns : list of array
            Of the steps, lane by lane: start (as a difference), duration, function and call.
        """
        if self._task is None:
            return [], [np.empty(0, dtype=np.int64)] * 4
        order = self.data.order()
        rows = np.flatnonzero(self._task[order] >= 0)
        call = order[rows]
        parent = self._trace.calls._column("parent").values()[call]
        step = self._task[call] != np.where(parent >= 0, self._task[parent], -1)
        rows, call = rows[step], call[step]
        task = self._task[call]
        begun, lasted, function = (
            self._trace.calls._column(name).values()[call]
            for name in ("start", "duration", "function")
        )
        start = begun // self._grain
        length = np.maximum((begun + lasted) // self._grain - start, 0)
        tasks = np.unique(task)
        spent = np.bincount(task, weights=length)[tasks]
        first = np.full(len(self.tasks), _NEVER)
        np.minimum.at(first, task, start)
        chosen = tasks[np.argsort(-spent, kind="stable")[:TASKS]]
        chosen = chosen[np.argsort(first[chosen], kind="stable")]
        others = len(tasks) - len(chosen)
        lane_of = np.full(len(self.tasks), len(chosen))
        lane_of[chosen] = np.arange(len(chosen))
        lane = lane_of[task]
        order = np.lexsort((start, lane))
        rows, lane, function = rows[order], lane[order], function[order]
        start, length = start[order], length[order]
        # Tasks of one name may run on several threads at once, but the steps of a lane may not
        # overlap: a step is cut off where the next one begins.
        after = np.where(lane[1:] == lane[:-1], start[1:] - start[:-1], _NEVER)
        np.minimum(length[:-1], after, out=length[:-1])
        counts = np.bincount(lane).tolist()
        names = [f"task {self.tasks[task]}" for task in chosen]
        if others:
            names.append(plural(others, "other task"))
        columns = [zigzag(np.diff(start, prepend=0)), length, function + 1, rows]
        return list(zip(names, counts, strict=True)), columns

    def coarse(self) -> list[Array]:
        """Return a summary of each `COARSE` calls of a row.

        Returns
        -------
        list of array
            Start and duration of the summary, function and duration of its longest call, and the
            sum of all durations.
        """
        start, end, function, longest, total = self.data.coarse()
        return [zigzag(np.diff(start, prepend=0)), end - start, function + 1, longest, total]
