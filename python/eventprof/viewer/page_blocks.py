"""The blocks of the page: births and deaths in order of time, and the holders of live bytes.

A birth is an allocation, a death is a free. A holder is a function, a line, or an own line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..trace.column import Array
from .page_calls import Calls
from .planes import TILE, find_order

if TYPE_CHECKING:
    from ..trace import Trace

#: How many holders have a band of their own in the picture of memory.
BANDS = 12
#: The kinds of holders: the function of the innermost call, the line that was executing, the own
#: line that the block is charged to.
HOLDERS = ("function", "line", "own")
_BINS = 1024
#: With at most so many pairs of a function and a line, a table of all possible pairs numbers them.
_MOST_PAIRS = 1 << 26


def _wide_pair(function: Any, line: Any) -> Any:
    """Give one number for a function and a line."""
    return (np.asarray(function, dtype=np.int64) + 1 << 32) | (np.asarray(line, np.int64) + 1)


class Places:
    """Lines in which blocks were allocated, numbered from 1; 0: unknown function and line.

    Parameters
    ----------
    functions : int
        The number of functions.
    pairs : sequence of (array, array)
        Functions and lines, -1: unknown.
    """

    def __init__(self, functions: int, pairs: Sequence[tuple[Array, Array]]) -> None:
        # A table with room for each pair needs no sorting. Row 0 is for no function.
        self._lines = 2 + max((int(line.max(initial=-1)) for _, line in pairs), default=-1)
        if self._lines * (functions + 1) > _MOST_PAIRS:
            self._lines = 0
            keys = [_wide_pair(*pair) for pair in pairs]
            used = np.unique(np.concatenate([*keys, [_wide_pair(-1, -1)]]))
            self._keys = used
            self.function, self.line = (used >> 32) - 1, (used & 0xFFFFFFFF) - 1
            return
        table = np.zeros(self._lines * (functions + 1), dtype=bool)
        table[0] = True
        for function, line in pairs:
            table[self._pair(function, line)] = True
        at = np.flatnonzero(table)
        self._number = np.empty(len(table), dtype=np.int32)
        self._number[at] = np.arange(len(at), dtype=np.int32)
        #: Function and line of each place.
        self.function, self.line = at // self._lines - 1, at % self._lines - 1

    def _pair(self, function: Array, line: Array) -> Array:
        pair: Array = (function.astype(np.int32) + 1) * np.int32(self._lines) + (line + 1)
        return pair

    def of(self, function: Array, line: Array) -> Array:
        """Give the numbers of some pairs, which must be among those given before."""
        numbers: Array
        if self._lines:
            numbers = self._number[self._pair(function, line)]
        else:
            numbers = np.searchsorted(self._keys, _wide_pair(function, line))
        return numbers


class Blocks:
    """Births and deaths of blocks, in order of time.

    Parameters
    ----------
    trace : Trace
        The trace that has the blocks.
    calls : Calls
        Its calls, in the order of the page.
    own : array of bool
        From `find_own`: which functions are own code, and False at the end.
    grain : int
        Nanoseconds in a unit of time.
    """

    def __init__(self, trace: Trace, calls: Calls, own: Array, grain: int) -> None:
        table = trace.allocations

        def column(name: str) -> Array:
            return table._column(name).values()

        # In order of birth. By the clock, an allocation may be earlier than the one before it.
        start = np.maximum.accumulate(column("start"))
        end = column("end")
        self.count = len(start)
        dead = np.flatnonzero(end >= 0).astype(np.int32)
        died = np.maximum(end[dead], start[dead])
        order = np.argsort(died, kind="stable")
        dead, died = dead[order], died[order]
        before = np.searchsorted(start, died, side="right").astype(np.int32)
        total = self.count + len(dead)
        self.events = total

        # Columns are merged by a mask, which goes through memory in order: that is fast.
        is_death = np.zeros(total, dtype=bool)
        is_death[before + np.arange(len(dead), dtype=np.int64)] = True
        is_birth = ~is_death

        def merged(of_births: Any, of_deaths: Any, dtype: Any = np.int32) -> Array:
            column = np.empty(total, dtype=dtype)
            column[is_birth], column[is_death] = of_births, of_deaths
            return column

        self.time = merged(start, died, np.int64)
        self.ref = merged(0, before - dead)  # of a death: how many births ago its block was born
        #: How many births there are up to each event, itself included.
        self.births_before = np.cumsum(is_birth, dtype=np.int32)
        self.size = np.maximum(column("size"), 0)
        function = trace._block_functions()
        self.function = function + 1
        executing, line, call = column("function"), column("line"), column("call")
        of, at = calls.owners(own)
        call = np.where(call >= 0, calls.place[call], -1) if calls.count else call
        is_own = own[np.maximum(executing, -1)]
        owner = np.where(is_own, executing, of[call])
        owner_line = np.where(is_own, line, at[call])
        self.places = Places(len(own) - 1, [(executing, line), (owner, owner_line)])
        #: The holder of each block, by kind of holder: a function (-1: unknown), or a place.
        self.keys = {
            "function": function,
            "line": self.places.of(executing, line),
            "own": self.places.of(owner, owner_line),
        }
        self.start, self.end, self.dead, self.died = start, end, dead, died
        self._weights: tuple[int, Array, Array] | None = None  # what bands() sums, kept
        if grain != 1:
            self.time //= grain
        self._link(calls, column, merged, dead)

    def _link(self, calls: Calls, column: Any, merged: Any, dead: Array) -> None:
        """Give the call of each event by its thread and depth.

        data.js finds the call by these and the time. `astray` are the events for which it would
        find another call.
        """
        thread = merged(column("thread"), np.maximum(column("free_thread")[dead], 0))
        self.depth = np.zeros(self.events, dtype=np.int32)  # of the call, plus 1; 0: no call
        if calls.count:
            call = merged(column("call"), column("freed_in")[dead])
            place = np.where(call >= 0, calls.place[call], -1)
            known = place >= 0
            row = calls.row_at[place]
            depth_of = np.array([depth + 1 for _, depth, *_ in calls.rows], dtype=np.int32)
            thread_of = np.array([thread for thread, *_ in calls.rows], dtype=np.int32)
            self.depth = depth_of[row]
            self.depth[~known] = 0
            np.copyto(thread, thread_of[row], where=known)
            wrong = np.flatnonzero(known & ~calls.found(place, row, self.time))
            self.astray, self.astray_to = wrong, place[wrong]
        else:
            self.astray = self.astray_to = np.empty(0, dtype=np.int64)
        self.thread = thread

    def tiles(self) -> Iterator[tuple[dict[str, Any], list[Array]]]:
        """Give each tile: what the head says of it, and the columns of its events and births."""
        step = np.diff(self.time, prepend=0)
        for at in range(0, self.events, TILE):
            end = min(at + TILE, self.events)
            part = slice(at, end)
            first = int(self.births_before[at - 1]) if at else 0
            born = slice(first, int(self.births_before[end - 1]))
            steps = step[part].copy()
            steps[0] = 0
            # Sorted by the kind of both events: two births are nearer to each other than a death
            # and a birth, so like times stand together.
            made = self.ref[part] == 0
            order = find_order(made * 2 + np.r_[False, made[:-1]])
            yield (
                {"start": int(self.time[at]), "births": born.stop - first},
                [
                    steps[order],
                    *(each[part] for each in (self.ref, self.thread, self.depth)),
                    *(
                        each[born]
                        for each in (self.size, self.function, self.keys["line"], self.keys["own"])
                    ),
                ],
            )

    def bands(self, by: str, peak: int, duration: int) -> list[int]:
        """Choose the holders that get a band.

        The first half hold the most at the peak, the others have the most bytes times duration.
        """
        keys, least = self.keys[by], 0 if by == "function" else 1
        if self._weights is None or self._weights[0] != peak:
            live = (self.start <= peak) & ((self.end < 0) | (self.end > peak))
            life = np.where(self.end >= 0, self.end, duration) - self.start
            self._weights = peak, np.flatnonzero(live), self.size.astype(float) * life
        _, at_peak, weights = self._weights
        # Shifted by one, because an unknown holder is -1.
        held = np.bincount(keys[at_peak] + 1, weights=self.size[at_peak])[least + 1 :]
        area = np.bincount(keys + 1, weights=weights)[least + 1 :]
        held = np.r_[np.zeros(least), held]
        area = np.r_[np.zeros(least), area]
        held.resize(len(area))
        most = [int(key) for key in np.argsort(-held, kind="stable")[:BANDS] if held[key] > 0]
        over_time = [int(key) for key in np.argsort(-area, kind="stable")[:BANDS] if area[key] > 0]
        half = most[: BANDS // 2]
        return list(dict.fromkeys([*half, *over_time, *most]))[:BANDS]

    def bins(self, by: str, bands: Sequence[int], duration: int) -> list[list[int]]:
        """Give the live bytes of each band, and of all others, at the end of each bin."""
        keys = self.keys[by]
        rows = len(bands) + 1
        band = np.full(int(keys.max(initial=-1)) + 2, rows - 1, dtype=np.int16)
        for number, key in enumerate(bands):
            band[key] = number
        of = band[keys]  # the key -1 gives the last item, which is "all others"
        sums = np.zeros((_BINS, rows), dtype=np.float64)
        # Bin k ends at exactly (k + 1) * length / bins: Python's whole numbers have any size.
        length = max(duration, 1)
        edges = [-(-(n + 1) * length // _BINS) for n in range(_BINS - 1)]
        for times, sign, rows_of in ((self.start, 1.0, None), (self.died, -1.0, self.dead)):
            ends = np.searchsorted(times, np.array(edges, dtype=np.int64), side="left")
            bin_of = np.repeat(
                np.arange(_BINS, dtype=np.int32) * rows, np.diff(np.r_[0, ends, len(times)])
            )
            bin_of += of if rows_of is None else of[rows_of]
            sizes = self.size if rows_of is None else self.size[rows_of]
            found = np.bincount(bin_of, weights=sizes, minlength=_BINS * rows)
            sums += sign * found.reshape(_BINS, rows)
        curve = np.cumsum(sums, axis=0)
        return [[int(value) for value in column] for column in curve.T]
