"""The calls of the page: in rows of equal thread and depth, and by asyncio's tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .._words import plural
from ..trace.column import Array
from .planes import TILE, find_order, zigzag

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
    grain : int
        Nanoseconds in a unit of time.
    """

    def __init__(self, trace: Trace, grain: int) -> None:
        table = trace.calls
        self.count = len(table)

        def column(name: str) -> Array:
            return table._column(name).values()

        thread, depth = column("thread"), np.maximum(column("depth"), 0)
        start = column("start")
        deepest = int(depth.max()) + 1 if self.count else 1
        key = thread.astype(np.int64) * deepest + depth
        order = find_order(key)
        sorted_key = key[order]
        first = np.flatnonzero(np.r_[True, sorted_key[1:] != sorted_key[:-1]][: self.count])
        #: Thread, depth, first call and number of calls of each row of the picture.
        self.rows = [
            (int(sorted_key[at]) // deepest, int(sorted_key[at]) % deepest, int(at), int(end - at))
            for at, end in zip(first, np.r_[first, self.count][1:], strict=True)
        ]
        self.row_of = {(thread, depth): n for n, (thread, depth, _, _) in enumerate(self.rows)}
        #: Row of the picture of each call, in the order of the page.
        self.row_at = np.repeat(
            np.arange(len(self.rows), dtype=np.uint16 if len(self.rows) < 1 << 16 else np.int32),
            [n for *_, n in self.rows],
        )
        #: Row of the picture, and place on the page, of each row of `trace.calls`.
        self.row = np.empty_like(self.row_at)
        self.row[order] = self.row_at
        self.place = np.empty(self.count, dtype=np.int64)
        self.place[order] = np.arange(self.count)
        self.exact_start = start[order]
        duration = column("duration")[order]
        if grain == 1:
            self.start, self.duration = self.exact_start, np.maximum(duration, 0)
        else:
            self.start = self.exact_start // grain
            end = (self.exact_start + duration) // grain
            self.duration = np.maximum(end - self.start, 0)
        # When the next call of a row begins: a search by an earlier time finds this call.
        self.next = np.empty(self.count, dtype=np.int64)
        self.next[:-1] = self.start[1:]
        self.next[[first + count - 1 for _, _, first, count in self.rows]] = _NEVER
        self.function = column("function")[order]
        kinds = table._column("kind")
        self.kind = kinds.values()[order]
        assert kinds.words is not None
        self.kinds = list(kinds.words.texts())
        self.flags = column("flags")[order]
        self.caller, self.caller_line = column("caller")[order], column("caller_line")[order]
        self.line = np.maximum(self.caller_line, 0)
        tasks = table._column("task")
        assert tasks.words is not None
        self.tasks = list(tasks.words.texts())
        self.task = tasks.values()[order] + 1
        parent = column("parent")[order]
        self.parent = np.where(parent >= 0, self.place[parent], -1)
        if not self.count:
            self.parent = np.empty(0, dtype=np.int64)

    def sought(self, thread: int, depth: int, times: Array) -> Array:
        """Give the last call of a row that had begun at each time, or -1, as data.js finds it."""
        row = self.row_of.get((thread, depth))
        if row is None:
            return np.full(len(times), -1, dtype=np.int64)
        _, _, first, count = self.rows[row]
        found = np.searchsorted(self.start[first : first + count], times, side="right")
        return np.where(found > 0, first + found - 1, -1)

    def orphans(self) -> tuple[Array, Array]:
        """Give the calls whose parent data.js would not find by time and depth, and the parents."""
        wrong = []
        for thread, depth, first, count in self.rows:
            part = slice(first, first + count)
            parent = self.parent[part]
            above = self.row_of.get((thread, depth - 1))
            found = self.found(parent, above, self.start[part])
            nobody = np.flatnonzero(parent < 0)
            found[nobody] = self.sought(thread, depth - 1, self.start[part][nobody]) < 0
            wrong.append(np.flatnonzero(~found) + first)
        rows = np.concatenate(wrong) if wrong else np.empty(0, dtype=np.int64)
        return rows, self.parent[rows]

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
        found: Array = self.row_at[known] == row
        found &= call >= 0
        found &= self.start[known] <= times
        found &= times < self.next[known]
        return found

    def owners(self, own: Array) -> tuple[Array, Array]:
        """Give function and line of the own line that each call is charged to; -1: there is none.

        The rules are those of `Tree.owners`: an own function has its own row and line -1.
        """
        function, line = (np.full(self.count + 1, -1, dtype=np.int32) for _ in range(2))
        for _, _, first, count in sorted(self.rows, key=lambda row: row[1]):
            part = slice(first, first + count)
            of, caller = self.function[part], self.caller[part]
            above = self.parent[part]  # -1 without a parent: the last item, which has no owner
            is_own, called = own[np.maximum(of, -1)], own[np.maximum(caller, -1)]
            function[part] = np.where(is_own, of, np.where(called, caller, function[above]))
            line[part] = np.where(is_own, -1, np.where(called, self.caller_line[part], line[above]))
        return function, line

    def tiles(self) -> Iterator[tuple[dict[str, Any], list[Array]]]:
        """Give each tile: what the head says of it, and its columns."""
        # The head has the start of the first call of each row and of each tile.
        gap = self.start.copy()
        gap[1:] -= self.start[:-1] + self.duration[:-1]
        fresh = np.zeros(self.count, dtype=bool)
        fresh[[first for _, _, first, _ in self.rows]] = True
        fresh[::TILE] = True
        gap[fresh] = 0
        usual = np.array(self.usual_kind())
        for at in range(0, self.count, TILE):
            part = slice(at, min(at + TILE, self.count))
            begins = np.flatnonzero(fresh[part]) + at
            function, kind, between = self.function[part] + 1, self.kind[part], gap[part]
            signed = bool((between < 0).any())
            # Calls of one function are alike: sorted by function they compress 10 % better.
            order = find_order(function)
            yield (
                {
                    "begins": begins.tolist(),
                    "starts": self.start[begins].tolist(),
                    "signed": signed,
                },
                [
                    (zigzag(between) if signed else between)[order],
                    self.duration[part][order],
                    function,
                    np.where(kind == usual[function], 0, kind + 1),
                    self.flags[part],
                    self.line[part],
                    self.task[part],
                ],
            )

    def usual_kind(self) -> list[int]:
        """Give the most frequent kind of each function's calls; the first item is no function's."""
        kinds = len(self.kinds)
        functions = int(self.function.max(initial=-1)) + 2
        pairs = (self.function + 1).astype(np.int64) * kinds + self.kind
        found = np.bincount(pairs, minlength=functions * kinds).reshape(functions, kinds)
        usual: list[int] = found.argmax(axis=1).tolist()
        return usual

    def steps(self) -> tuple[list[tuple[str, int]], list[Array]]:
        """Give the steps of asyncio's tasks: the calls of a task that no call of the task made.

        Returns
        -------
        lanes : list of (str, int)
            Tasks and their numbers of steps: those that ran longest, then all others as one lane.
        columns : list of array
            Of the steps, lane by lane: start (as a difference), duration, function and call.
        """
        rows = np.flatnonzero(self.task)
        parent = self.parent[rows]
        outer = np.where(parent >= 0, self.task[parent], 0)
        rows = rows[self.task[rows] != outer]
        if not len(rows):
            return [], [rows] * 4
        tasks = np.unique(self.task[rows])
        spent = np.bincount(self.task[rows], weights=self.duration[rows])[tasks]
        begun = np.full(len(self.tasks) + 1, _NEVER)
        np.minimum.at(begun, self.task[rows], self.start[rows])
        chosen = tasks[np.argsort(-spent, kind="stable")[:TASKS]]
        chosen = chosen[np.argsort(begun[chosen], kind="stable")]
        others = len(tasks) - len(chosen)
        lane_of = np.full(len(self.tasks) + 1, len(chosen))
        lane_of[chosen] = np.arange(len(chosen))
        lane = lane_of[self.task[rows]]
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
        of_group = np.repeat(np.arange(len(at)), np.diff(np.r_[at, self.count]))
        hits = np.flatnonzero(self.duration == longest[of_group])
        which = np.empty(len(at), dtype=np.int64)
        which[of_group[hits[::-1]]] = hits[::-1]  # the first of several
        start = self.start[at]
        return [
            zigzag(np.diff(start, prepend=0)),
            self.start[last] + self.duration[last] - start,
            self.function[which] + 1,
            longest,
            np.add.reduceat(self.duration, at),
        ]
