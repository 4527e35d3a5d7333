"""The calls of the page: in rows of equal thread and depth, and by asyncio's tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from .._words import plural
from ..trace.column import Array
from .planes import TILE, Tile, find_order, pieces, zigzag

if TYPE_CHECKING:
    from ..trace import Trace

#: How many calls a row of the coarse section summarises; it is shown until their tile is decoded.
COARSE = 256
#: How many tasks of asyncio have a lane of their own.
TASKS = 12
_NEVER = (1 << 63) - 1
#: Flags of calls that were not recorded from start to end.
_CUT = 1 | 2 | 16


class Calls:
    """Calls in the order of the page.

    Parameters
    ----------
    trace : Trace
        The trace that has the calls.
    grain : int
        Nanoseconds in a unit of time.
    """

    def __init__(self, trace: Trace, grain: int) -> None:
        table = trace.calls
        self.count = len(table)

        def column(name: str) -> Array:
            return table._column(name).values()

        #: Columns in the order of `trace.calls`; a tile takes its part of them.
        names = ("flags", "caller", "caller_line", "function", "duration")
        self._given = {name: column(name) for name in names}
        thread, depth = column("thread"), column("depth")
        deepest = int(depth.max(initial=0)) + 1
        key = thread * np.int64(deepest)
        key += np.maximum(depth, 0)
        #: The row of `trace.calls` of each call, in the order of the page.
        self.order = find_order(key)
        found = np.bincount(key)
        del key
        used = np.flatnonzero(found)
        counts = found[used]
        #: Thread, depth, first call and number of calls of each row of the picture.
        self.rows = [
            (int(at) // deepest, int(at) % deepest, int(end - count), int(count))
            for at, count, end in zip(used, counts, np.cumsum(counts), strict=True)
        ]
        self.row_of = {(thread, depth): n for n, (thread, depth, _, _) in enumerate(self.rows)}
        #: Row of the picture of each call, in the order of the page.
        self.row_at = np.repeat(
            np.arange(len(self.rows), dtype=np.uint16 if len(self.rows) < 1 << 16 else np.int32),
            counts,
        )
        self._end = np.cumsum(counts)
        #: Place on the page of each row of `trace.calls`.
        self.place = np.empty(self.count, dtype=np.int32)
        self.place[self.order] = np.arange(self.count, dtype=np.int32)
        #: Of each call, in the order of the page; times in grains.
        self.start = np.empty(self.count + 1, dtype=np.int64)  # the last item is no call's
        self.start[-1] = _NEVER
        self.duration = np.empty(self.count, dtype=np.int64)
        self.function = np.empty(self.count, dtype=np.int32)
        self.parent = np.empty(self.count, dtype=np.int32)
        start, duration = column("start"), self._given["duration"]
        function, parent = self._given["function"], column("parent")
        for part in pieces(self.count):
            of = self.order[part]
            begun, lasted = start[of], duration[of]
            if grain != 1:
                begun, lasted = begun // grain, (begun + lasted) // grain - begun // grain
            self.start[part], self.duration[part] = begun, np.maximum(lasted, 0)
            self.function[part] = function[of]
            by = parent[of]
            self.parent[part] = np.where(by >= 0, self.place[by], -1)
        kinds, tasks = table._column("kind"), table._column("task")
        assert kinds.words is not None and tasks.words is not None
        self.kinds, self.tasks = list(kinds.words.texts()), list(tasks.words.texts())
        self._kind, self._task = kinds.values(), tasks.values()
        self._usual = self._find_usual(function)

    def given(self, name: str, part: slice | Array) -> Array:
        """Give flags, callers or their lines of some calls, in the order of the page."""
        values: Array = self._given[name][self.order[part]]
        return values

    def tasks_of(self, part: slice | Array) -> Array:
        """Give the tasks of some calls, numbered from 1; 0: none."""
        task: Array = self._task[self.order[part]] + 1
        return task

    def orphans(self) -> tuple[Array, Array]:
        """Give the calls whose parent data.js would not find by time and depth, and the parents."""
        wrong = []
        for thread, depth, first, count in self.rows:
            above = self.row_of.get((thread, depth - 1))
            for part in pieces(first + count, first):
                parent, start = self.parent[part], self.start[part]
                found = self.found(parent, above, start)
                nobody = parent < 0
                if above is None:
                    found |= nobody
                elif nobody.any():  # found if no call above had begun by then
                    found |= nobody & (start < self.start[self.rows[above][2]])
                wrong.append(np.flatnonzero(~found) + part.start)
        rows = np.concatenate(wrong) if wrong else np.empty(0, dtype=np.int64)
        return rows, self.parent[rows].astype(np.int64)

    def found(self, call: Array, row: int | Array | None, times: Array) -> Array:
        """Say whether a search by row and time finds each call, as data.js searches.

        Parameters
        ----------
        call : array
            Places of calls; less than 0: never found.
        row : int, array or None
            The row that is searched for each call.
        times : array
            The time that is searched for, in grains.

        Returns
        -------
        array of bool
            One item for each call.
        """
        if row is None:
            return np.zeros(len(call), dtype=bool)
        known = np.maximum(call, 0)
        at = self.row_at[known]
        found: Array = at == row
        found &= call >= 0
        found &= self.start[known] <= times
        # A search by a time before the next call of the row finds this call.
        after = known + 1
        found &= (times < self.start[after]) | (after == self._end[at])
        return found

    def owners(self, own: Array) -> tuple[Array, Array]:
        """Give function and line of the own line that each call is charged to; -1: there is none.

        The rules are those of `Tree.owners`: an own function has its own row and line -1.
        """
        function, line = (np.full(self.count + 1, -1, dtype=np.int32) for _ in range(2))
        for _, _, first, count in sorted(self.rows, key=lambda row: row[1]):
            for part in pieces(first + count, first):
                of, caller = self.function[part], self.given("caller", part)
                at = self.given("caller_line", part)
                above = self.parent[part]  # -1 without a parent: the last item, without an owner
                is_own, called = own[np.maximum(of, -1)], own[np.maximum(caller, -1)]
                function[part] = np.where(is_own, of, np.where(called, caller, function[above]))
                line[part] = np.where(is_own, -1, np.where(called, at, line[above]))
        return function, line

    def tiles(self) -> Iterator[Callable[[], Tile]]:
        """Give for each tile a job that makes it."""
        firsts = np.array([first for _, _, first, _ in self.rows], dtype=np.int64)
        for part in pieces(self.count):
            # The head has the start of the first call of each row and of each tile.
            inside = firsts[np.searchsorted(firsts, part.start, "right") :]
            begins = np.r_[part.start, inside[inside < part.stop]]
            yield partial(self._tile, part, begins)

    def _tile(self, part: slice, begins: Array) -> Tile:
        start, duration = self.start[part], self.duration[part]
        gap = start.copy()
        gap[1:] -= start[:-1] + duration[:-1]
        gap[begins - part.start] = 0
        function, kind = self.function[part] + 1, self._kind[self.order[part]]
        signed = bool((gap < 0).any())
        # Calls of one function are similar: columns sorted by function compress 10 % better.
        order = find_order(function)
        head = {"begins": begins.tolist(), "starts": self.start[begins].tolist(), "signed": signed}
        return head, [
            (zigzag(gap) if signed else gap)[order],
            duration[order],
            function,
            np.where(kind == np.array(self._usual)[function], 0, kind + 1)[order],
            self.given("flags", part)[order],
            np.maximum(self.given("caller_line", part), 0),
            self.tasks_of(part),
        ]

    def _find_usual(self, function: Array) -> list[int]:
        kinds = len(self.kinds)
        functions = int(function.max(initial=-1)) + 2
        found = np.zeros(functions * kinds, dtype=np.int64)
        for part in pieces(self.count):
            pairs = (function[part] + 1).astype(np.int64) * kinds + self._kind[part]
            found += np.bincount(pairs, minlength=len(found))
        usual: list[int] = found.reshape(functions, kinds).argmax(axis=1).tolist()
        return usual

    def usual_kind(self) -> list[int]:
        """Give the most frequent kind of each function's calls; the first item is no function's."""
        return self._usual

    def medians(self, functions: int) -> list[int]:
        """Give the median of each function's calls, as ``p50`` of `Trace.functions`; -1: none.

        That column would also make all other sums and percentiles, which takes ten times as long.
        """
        function, duration = self._given["function"], self._given["duration"]
        key = np.where(self._given["flags"] & _CUT, -1, function)
        key[key < 0] = functions
        ends = np.cumsum(np.bincount(key, minlength=functions + 1)).tolist()
        sorted_by = duration[find_order(key)]
        found = []
        for first, end in zip([0, *ends], ends[:functions], strict=False):
            middle = (end - first + 1) // 2 - 1
            found.append(
                int(np.partition(sorted_by[first:end], middle)[middle]) if end > first else -1
            )
        return found

    def steps(self) -> tuple[list[tuple[str, int]], list[Array]]:
        """Give the steps of asyncio's tasks: the calls of a task that no call of the task made.

        Returns
        -------
        lanes : list of (str, int)
            Tasks and their numbers of steps: those that ran longest, then all others as one lane.
        columns : list of array
            Of the steps, lane by lane: start (as a difference), duration, function and call.
        """
        if (self._task < 0).all():
            return [], [np.empty(0, dtype=np.int64)] * 4
        task = self.tasks_of(slice(None))
        rows = np.flatnonzero(task)
        parent = self.parent[rows]
        outer = np.where(parent >= 0, task[parent], 0)
        rows = rows[task[rows] != outer]
        tasks = np.unique(task[rows])
        spent = np.bincount(task[rows], weights=self.duration[rows])[tasks]
        begun = np.full(len(self.tasks) + 1, _NEVER)
        np.minimum.at(begun, task[rows], self.start[rows])
        chosen = tasks[np.argsort(-spent, kind="stable")[:TASKS]]
        chosen = chosen[np.argsort(begun[chosen], kind="stable")]
        others = len(tasks) - len(chosen)
        lane_of = np.full(len(self.tasks) + 1, len(chosen))
        lane_of[chosen] = np.arange(len(chosen))
        lane = lane_of[task[rows]]
        order = np.lexsort((self.start[rows], lane))
        rows, lane = rows[order], lane[order]
        start, length = self.start[rows], self.duration[rows].copy()
        # Tasks of one name may run on several threads at once, but the steps of a lane may not
        # overlap: a step is cut off where the next one begins.
        after = np.where(lane[1:] == lane[:-1], start[1:] - start[:-1], _NEVER)
        np.minimum(length[:-1], after, out=length[:-1])
        counts = np.bincount(lane).tolist()
        names = [f"task {self.tasks[task - 1]}" for task in chosen]
        if others:
            names.append(plural(others, "other task"))
        columns = [zigzag(np.diff(start, prepend=0)), length, self.function[rows] + 1, rows]
        return list(zip(names, counts, strict=True)), columns

    def coarse(self) -> list[Array]:
        """Give a summary of each `COARSE` calls of a row.

        Returns
        -------
        list of array
            Start and duration of the summary, function and duration of its longest call, and the
            sum of all durations.
        """
        starts = [
            np.arange(first, first + count, COARSE, dtype=np.int64)
            for _, _, first, count in self.rows
        ]
        at = np.concatenate(starts) if starts else np.empty(0, dtype=np.int64)
        if not len(at):
            return [at] * 5
        last = np.r_[at[1:], self.count] - 1
        longest = np.maximum.reduceat(self.duration, at)
        which = np.empty(len(at), dtype=np.int64)
        for groups in pieces(len(at), size=TILE // COARSE):
            lengths = np.diff(np.r_[at[groups], last[groups.stop - 1] + 1])
            first = at[groups.start]
            duration = self.duration[first : first + lengths.sum()]
            hits = np.flatnonzero(duration == np.repeat(longest[groups], lengths))[::-1]
            of_group = np.repeat(np.arange(groups.start, groups.stop), lengths)
            which[of_group[hits]] = hits + first  # the first of several
        start = self.start[at]
        return [
            zigzag(np.diff(start, prepend=0)),
            self.start[last] + self.duration[last] - start,
            self.function[which] + 1,
            longest,
            np.add.reduceat(self.duration, at),
        ]
