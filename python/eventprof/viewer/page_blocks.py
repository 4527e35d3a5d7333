"""The blocks of the page: births and deaths in order of time, and the holders of live bytes.

A birth is an allocation, a death is a free. A holder is a function, a line, or an own line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..trace.column import Array
from .page_calls import Calls
from .planes import Tile, find_order, pieces, zigzag

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
    lines : int
        The largest line.
    pairs : iterable of (array, array)
        Functions and lines, -1: unknown.
    """

    def __init__(self, functions: int, lines: int, pairs: Iterable[tuple[Array, Array]]) -> None:
        # A table with room for each pair needs no sorting. Row 0 is for no function.
        self._lines = 2 + lines
        if self._lines * (functions + 1) > _MOST_PAIRS:
            self._lines = 0
            keys = [np.unique(_wide_pair(*pair)) for pair in pairs]
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

        names = ("function", "line", "call", "thread", "free_thread", "freed_in", "size")
        self._given = {name: column(name) for name in names}
        self._calls, self._grain = calls, grain
        # In order of birth. By the clock, an allocation may be earlier than the one before it.
        self.start, self.end = column("start"), column("end")
        self.count = len(self.start)
        if self.count and (self.start[1:] < self.start[:-1]).any():
            self.start = np.maximum.accumulate(self.start)
        #: Blocks that were freed, in order of the free, and its time.
        self.dead = np.flatnonzero(self.end >= 0).astype(np.int32)
        self.died = np.maximum(self.end[self.dead], self.start[self.dead])
        order = np.argsort(self.died, kind="stable")
        self.dead, self.died = self.dead[order], self.died[order]
        del order
        self.events = self.count + len(self.dead)
        #: The position of each death among all events, behind the births before it.
        self.death_at = np.empty(len(self.dead), dtype=np.int32 if self.events < 1 << 31 else int)
        for part in pieces(len(self.dead)):
            died = self.died[part]
            low, high = np.searchsorted(self.start, died[[0, -1]], side="right")
            before = np.searchsorted(self.start[low:high], died, side="right")
            self.death_at[part] = before + low + np.arange(part.start, part.stop)
        self._find_holders(own)
        #: Events for which a search by thread, depth and time would find another call, and that
        #: call. Each tile adds its own.
        self._astray: dict[int, tuple[Array, Array]] = {}
        self._depth_of = np.array([depth + 1 for _, depth, *_ in calls.rows], dtype=np.int32)
        self._thread_of = np.array([thread for thread, *_ in calls.rows], dtype=np.int32)

    def _find_holders(self, own: Array) -> None:
        """Give each block its holders."""
        calls, given = self._calls, self._given
        of, at = calls.owners(own)
        by_call = np.r_[calls.function, np.int32(-1)]
        line = int(max(given["line"].max(initial=-1), at.max(initial=-1)))
        function = np.empty(self.count, dtype=np.int32)
        owner, owner_line = np.empty_like(function), np.empty_like(function)

        def pairs() -> Iterator[tuple[Array, Array]]:
            for part in pieces(self.count):
                call, executing = self._place(given["call"][part]), given["function"][part]
                function[part] = np.where(call >= 0, by_call[call], executing)
                is_own = own[np.maximum(executing, -1)]
                owner[part] = np.where(is_own, executing, of[call])
                owner_line[part] = np.where(is_own, given["line"][part], at[call])
                yield executing, given["line"][part]
                yield owner[part], owner_line[part]

        self.places = Places(len(own) - 1, line, pairs())
        places = np.empty_like(function)
        for part in pieces(self.count):
            places[part] = self.places.of(given["function"][part], given["line"][part])
            owner[part] = self.places.of(owner[part], owner_line[part])
        #: The holder of each block, by kind of holder: a function (-1: unknown), or a place.
        self.keys = {"function": function, "line": places, "own": owner}

    def _place(self, call: Array) -> Array:
        """Give the places on the page of rows of `trace.calls`; -1: none."""
        if not self._calls.count:
            return np.full(len(call), -1, dtype=np.int32)
        place: Array = np.where(call >= 0, self._calls.place[call], -1)
        return place

    def tiles(self) -> Iterator[Callable[[], Tile]]:
        """Give for each tile a job that makes it: the columns of its events and births."""
        for part in pieces(self.events):
            yield partial(self._tile, part)

    def _tile(self, part: slice) -> Tile:
        given, at = self._given, part.start
        # Numbers of another type would make NumPy convert the whole column.
        edges = np.array((at, part.stop), dtype=self.death_at.dtype)
        deaths = slice(*np.searchsorted(self.death_at, edges).tolist())
        born = slice(at - deaths.start, part.stop - deaths.stop)
        # Columns are merged by a mask, which goes through memory in order: that is fast.
        made = np.ones(part.stop - at, dtype=bool)
        made[self.death_at[deaths] - at] = False
        dying = ~made
        dead = self.dead[deaths]

        def merged(of_births: Any, of_deaths: Any, dtype: Any = np.int32) -> Array:
            column = np.empty(len(made), dtype=dtype)
            column[made], column[dying] = of_births, of_deaths
            return column

        time = merged(self.start[born], self.died[deaths], np.int64) // self._grain
        # Of a death: how many births ago its block was born.
        births = self.death_at[deaths] - np.arange(deaths.start, deaths.stop)
        ref = merged(0, births - dead)
        thread = merged(given["thread"][born], np.maximum(given["free_thread"][dead], 0))
        call = self._place(merged(given["call"][born], given["freed_in"][dead]))
        thread, depth = self._link(call, thread, time, at)
        # Sorted by the kinds of both events, because times compress better beside similar ones: two
        # births are nearer to each other than a death and a birth.
        order = find_order(made * 2 + np.r_[False, made[:-1]])
        return {"start": int(time[0]), "births": born.stop - born.start}, [
            np.diff(time, prepend=time[0])[order],
            ref,
            thread,
            zigzag(np.diff(depth, prepend=0)),
            np.maximum(given["size"][born], 0),
            self.keys["function"][born] + 1,
            self.keys["line"][born],
            self.keys["own"][born],
        ]

    def _link(self, call: Array, thread: Array, time: Array, at: int) -> tuple[Array, Array]:
        """Give the thread of each event, and the depth of its call plus 1; 0: no call.

        data.js finds the call by these and the time.
        """
        calls = self._calls
        if not calls.count:
            return thread, np.zeros(len(call), dtype=np.int32)
        known = call >= 0
        row = calls.row_at[call]
        depth = self._depth_of[row]
        depth[~known] = 0
        np.copyto(thread, self._thread_of[row], where=known)
        wrong = np.flatnonzero(known & ~calls.found(call, row, time))
        self._astray[at] = wrong + at, call[wrong].astype(np.int64)
        return thread, depth

    def astray(self) -> tuple[Array, Array]:
        """Give the events whose call data.js would not find, and the calls; after all tiles."""
        found = [self._astray[at] for at in sorted(self._astray)]
        nothing = np.empty(0, dtype=np.int64)
        events, calls = zip((nothing, nothing), *found, strict=True)
        return np.concatenate(events), np.concatenate(calls)

    def bands(self, by: str, peak: int, duration: int) -> list[int]:
        """Choose the holders that get a band.

        The first half hold the most at the peak, the others have the most bytes times duration.
        """
        keys, least = self.keys[by], 0 if by == "function" else 1
        # Shifted by one, because an unknown holder is -1.
        held, area = np.zeros((2, int(keys.max(initial=-1)) + 2))
        for part in pieces(self.count):
            start, end, size = self.start[part], self.end[part], self._given["size"][part]
            key, size = keys[part] + 1, np.maximum(size, 0)
            live = np.flatnonzero((start <= peak) & ((end < 0) | (end > peak)))
            held += np.bincount(key[live], weights=size[live], minlength=len(held))
            life = np.where(end >= 0, end, duration) - start
            area += np.bincount(key, weights=size.astype(float) * life, minlength=len(area))
        held, area = held[1:], area[1:]
        held[:least], area[:least] = 0, 0
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
        sums = np.zeros((_BINS, rows), dtype=np.float64)
        # Bin k ends at exactly (k + 1) * length / bins: Python's whole numbers have any size.
        length = max(duration, 1)
        edges = np.array([-(-(n + 1) * length // _BINS) for n in range(_BINS - 1)], dtype=np.int64)
        for times, sign, dead in ((self.start, 1.0, None), (self.died, -1.0, self.dead)):
            ends = np.r_[0, np.searchsorted(times, edges, side="left"), len(times)]
            for part in pieces(len(times)):
                bin_of = np.repeat(
                    np.arange(_BINS, dtype=np.int32) * rows,
                    np.diff(np.clip(ends, part.start, part.stop)),
                )
                which = part if dead is None else dead[part]
                # The key -1 gives the last item of `band`, which is "all others".
                bin_of += band[keys[which]]
                sizes = np.maximum(self._given["size"][which], 0)
                found = np.bincount(bin_of, weights=sizes, minlength=_BINS * rows)
                sums += sign * found.reshape(_BINS, rows)
        curve = np.cumsum(sums, axis=0)
        return [[int(value) for value in column] for column in curve.T]
