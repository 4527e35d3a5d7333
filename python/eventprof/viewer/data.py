"""The data of the page: tables as byte planes of columns, in gzip, in base64.

A section is the columns of some rows, one after the other; a column of width w is w planes of one
byte a row, the lowest byte first. Widths, and how many rows there are, stand in the head, which is
JSON. Times are whole numbers of grains.

Calls are sorted by thread, then depth, then start: a row of the picture is a range of calls, and a
tile is `TILE` of them. Blocks are a stream of births and deaths in order of time. data.js reads all
this, and nothing else knows of it.
"""

from __future__ import annotations

import base64
import json
import math
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import __version__
from .._words import plural, show_ns
from ..answers.own import find_own
from ..trace.column import Array
from .source import find_source

if TYPE_CHECKING:
    from ..trace import Trace

#: Rows of a section; a multiple of the 4096 calls that the largest node of lod.js has.
TILE = 1 << 17
#: Calls that one coarse row stands for until their tile is decoded.
COARSE = 256
#: Holders that have a band of their own in the picture of memory.
BANDS = 12
#: By what memory can be shown: the function of the innermost call, the line that was executing, the
#: own line that it is charged to.
HOLDERS = ("function", "line", "own")
_BINS = 1024
_NEVER = (1 << 63) - 1
#: Up to so many pairs of a function and a line they are numbered by a table of them all.
_MOST_PAIRS = 1 << 26

#: What a call is, by the word of its kind: colour.js has one colour for each.
_SPECIAL = {"span": "span", "gc": "gc", "hpy": "native"}
AREAS = ("own", "installed", "stdlib", "native", "span", "gc")

_SITE = re.compile(r"/(site|dist)-packages/")
_STDLIB = re.compile(r"^<frozen |/lib(64)?/(python|pypy)\d\.\d+t?/|/lib-python/|/lib_pypy/")


# ---- Bytes ---------------------------------------------------------------------------------------


def _zigzag(values: Array) -> Array:
    """Map signed numbers to unsigned ones, small to small: 0, -1, 1, -2."""
    values = values.astype(np.int64, copy=False)
    return (values << 1) ^ (values >> 63)


def _planes(values: Array) -> tuple[int, bytes]:
    """Give the width of a column of unsigned numbers, and its planes."""
    most = int(values.max()) if len(values) else 0
    width = (most.bit_length() + 7) // 8
    raw = np.ascontiguousarray(values.astype("<u8", copy=False)).view(np.uint8)
    return width, raw.reshape(len(values), 8)[:, :width].T.tobytes()


def _section(columns: Sequence[Array], times: int = 0) -> tuple[list[int], bytes]:
    """Give the widths of some columns, and all of them compressed.

    Parameters
    ----------
    columns : sequence of array
        Of unsigned numbers.
    times : int
        How many columns at the beginning hold times.
    """
    widths, parts = [], []
    for values in columns:
        width, raw = _planes(values)
        widths.append(width)
        parts.append(raw)
    return widths, _gzip(b"".join(parts[:times]), b"".join(parts[times:]))


def _gzip(times: bytes, rest: bytes) -> bytes:
    """Give base64 of one gzip of two parts.

    Differences of times hardly repeat: to look for runs alone is twice as fast there, and what
    comes out is smaller.
    """
    made, crc, size = [b"\x1f\x8b\x08\0\0\0\0\0\0\xff"], 0, 0
    # A flush ends a part at a whole byte, so that the next one may stand behind it.
    for raw, level, strategy, end in (
        (times, 1, zlib.Z_RLE, zlib.Z_FULL_FLUSH),
        (rest, 4, zlib.Z_DEFAULT_STRATEGY, zlib.Z_FINISH),
    ):
        packer = zlib.compressobj(level, zlib.DEFLATED, -15, 8, strategy)
        made += [packer.compress(raw), packer.flush(end)]
        crc, size = zlib.crc32(raw, crc), size + len(raw)
    made.append(crc.to_bytes(4, "little") + (size & 0xFFFFFFFF).to_bytes(4, "little"))
    return base64.b64encode(b"".join(made))


def compress(raw: bytes) -> bytes:
    """Give base64 of gzip; the same bytes for the same data."""
    return _gzip(b"", raw)


# ---- Calls ---------------------------------------------------------------------------------------


class _Now:
    """A job that is done where it is asked for."""

    def __init__(self, job: Callable[..., Any], *given: Any) -> None:
        self._made = job(*given)

    def result(self) -> Any:
        """Give what came out."""
        return self._made


def _pool() -> tuple[Callable[..., Any], Callable[[], None]]:
    """Give what starts a job, on threads where there can be any, and what ends them."""
    pool = ThreadPoolExecutor(2, "eventprof page")
    try:
        pool.submit(int).result()
    except RuntimeError:  # the interpreter is about to end: `eventprof run --view`
        return _Now, lambda: None
    return pool.submit, pool.shutdown


class _Calls:
    """Calls in the order of the page.

    Parameters
    ----------
    trace : Trace
        Where they are from.
    grain : int
        Nanoseconds of a unit of time.
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
        if self.count and key.max() < 1 << 16:
            key = key.astype(np.uint16)  # NumPy sorts these by radix, ten times as fast
        order = np.argsort(key, kind="stable")
        sorted_key = key[order]
        first = np.flatnonzero(np.r_[True, sorted_key[1:] != sorted_key[:-1]][: self.count])
        #: Thread, depth, first call and number of calls of each row of the picture.
        self.rows = [
            (int(sorted_key[at]) // deepest, int(sorted_key[at]) % deepest, int(at), int(end - at))
            for at, end in zip(first, np.r_[first, self.count][1:], strict=True)
        ]
        self.row_of = {(thread, depth): n for n, (thread, depth, _, _) in enumerate(self.rows)}
        #: Row of the picture, and place in it, of each row of `trace.calls`.
        #: The former of each call in the order of the page.
        self.row_at = np.repeat(
            np.arange(len(self.rows), dtype=np.uint16 if len(self.rows) < 1 << 16 else np.int32),
            [n for *_, n in self.rows],
        )
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
        # When the next call of a row begins: until then a search by time finds this one.
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
        """Give the last call of a row that had begun at some times, or -1: as data.js looks."""
        row = self.row_of.get((thread, depth))
        if row is None:
            return np.full(len(times), -1, dtype=np.int64)
        _, _, first, count = self.rows[row]
        found = np.searchsorted(self.start[first : first + count], times, side="right")
        return np.where(found > 0, first + found - 1, -1)

    def orphans(self) -> tuple[Array, Array]:
        """Give the calls whose parent is not the one that data.js finds, and their parents."""
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
        """Say which calls a search in their row by some times finds, as data.js does it.

        Parameters
        ----------
        call : array
            Places of calls; less than 0: never found.
        row : int, array or None
            The rows that are searched.
        times : array
            Whole grains.

        Returns
        -------
        array of bool
            New.
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
        """Give function and line of the own line that each call is charged to, -1: there is none.

        As `Tree.owners` has it: of an own function it is no line, but its function and line -1.
        """
        function, line = (np.full(self.count + 1, -1, dtype=np.int32) for _ in range(2))
        for _, _, first, count in sorted(self.rows, key=lambda row: row[1]):
            part = slice(first, first + count)
            of, caller = self.function[part], self.caller[part]
            above = self.parent[part]  # of no parent -1, whose owner is none
            is_own, called = own[np.maximum(of, -1)], own[np.maximum(caller, -1)]
            function[part] = np.where(is_own, of, np.where(called, caller, function[above]))
            line[part] = np.where(is_own, -1, np.where(called, self.caller_line[part], line[above]))
        return function, line

    def tiles(self) -> Iterator[tuple[dict[str, Any], list[Array]]]:
        """Give what the head says of each tile, and its columns."""
        # Of the first call of a row, or of a tile, the head has the start: differences stay small.
        step = np.diff(self.start, prepend=0)
        fresh = np.zeros(self.count, dtype=bool)
        fresh[[first for _, _, first, _ in self.rows]] = True
        fresh[::TILE] = True
        step[fresh] = 0
        for at in range(0, self.count, TILE):
            part = slice(at, min(at + TILE, self.count))
            begins = np.flatnonzero(fresh[part]) + at
            yield (
                {"begins": begins.tolist(), "starts": self.start[begins].tolist()},
                [
                    step[part],
                    self.duration[part],
                    self.function[part] + 1,
                    self.kind[part],
                    self.flags[part],
                    self.line[part],
                    self.task[part],
                ],
            )

    def coarse(self) -> list[Array]:
        """Give a summary of each `COARSE` calls of a row.

        Returns
        -------
        list of array
            Where it starts and how long it lasts, the function and the duration of its longest
            call, and the sum of all durations.
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
            _zigzag(np.diff(start, prepend=0)),
            self.start[last] + self.duration[last] - start,
            self.function[which] + 1,
            longest,
            np.add.reduceat(self.duration, at),
        ]


# ---- Blocks --------------------------------------------------------------------------------------


def _wide_pair(function: Any, line: Any) -> Any:
    """Give one number for a function and a line."""
    return (np.asarray(function, dtype=np.int64) + 1 << 32) | (np.asarray(line, np.int64) + 1)


class _Places:
    """Lines that something was allocated in, numbered: 0 is no line of no function.

    Parameters
    ----------
    functions : int
        How many there are.
    pairs : sequence of (array, array)
        Functions and lines, -1: unknown.
    """

    def __init__(self, functions: int, pairs: Sequence[tuple[Array, Array]]) -> None:
        # A table with room for each pair: no sorting. Row 0 is of no function.
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
        """Give the numbers of some of the pairs."""
        numbers: Array
        if self._lines:
            numbers = self._number[self._pair(function, line)]
        else:
            numbers = np.searchsorted(self._keys, _wide_pair(function, line))
        return numbers


class _Blocks:
    """Births and deaths of blocks, in order of time.

    Parameters
    ----------
    trace : Trace
        Where they are from.
    calls : _Calls
        Which calls they lead to.
    own : array of bool
        Which functions are own code; the last row is of none.
    grain : int
        Nanoseconds of a unit of time.
    """

    def __init__(self, trace: Trace, calls: _Calls, own: Array, grain: int) -> None:
        table = trace.allocations

        def column(name: str) -> Array:
            return table._column(name).values()

        # In order of birth. A free that was logged late may be earlier by the clock.
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

        # By a mask: in order, which the processor reads ahead.
        is_death = np.zeros(total, dtype=bool)
        is_death[before + np.arange(len(dead), dtype=np.int64)] = True
        is_birth = ~is_death

        def merged(of_births: Any, of_deaths: Any, dtype: Any = np.int32) -> Array:
            column = np.empty(total, dtype=dtype)
            column[is_birth], column[is_death] = of_births, of_deaths
            return column

        self.time = merged(start, died, np.int64)
        self.ref = merged(0, before - dead)  # of a death: how many births ago its block was born
        #: How many births are before an event.
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
        self.places = _Places(len(own) - 1, [(executing, line), (owner, owner_line)])
        #: By whom each block is held: a function, -1: unknown; of the others a place.
        self.keys = {
            "function": function,
            "line": self.places.of(executing, line),
            "own": self.places.of(owner, owner_line),
        }
        self.start, self.end, self.dead, self.died = start, end, dead, died
        self._weights: tuple[int, Array, Array] | None = None  # what bands() counts by
        if grain != 1:
            self.time //= grain
        self._link(calls, column, merged, dead)

    def _link(self, calls: _Calls, column: Any, merged: Any, dead: Array) -> None:
        """Name the call of each event by its thread and depth, and those that this misses."""
        thread = merged(column("thread"), np.maximum(column("free_thread")[dead], 0))
        self.depth = np.zeros(self.events, dtype=np.int32)  # of the call, and 1; 0: no call
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
        """Give what the head says of each tile, and its columns: of all events, then of births."""
        step = np.diff(self.time, prepend=0)
        for at in range(0, self.events, TILE):
            end = min(at + TILE, self.events)
            part = slice(at, end)
            first = int(self.births_before[at - 1]) if at else 0
            born = slice(first, int(self.births_before[end - 1]))
            steps = step[part].copy()
            steps[0] = 0
            yield (
                {"start": int(self.time[at]), "births": born.stop - first},
                [
                    steps,
                    *(each[part] for each in (self.ref, self.thread, self.depth)),
                    *(
                        each[born]
                        for each in (self.size, self.function, self.keys["line"], self.keys["own"])
                    ),
                ],
            )

    def bands(self, by: str, peak: int, duration: int) -> list[int]:
        """Give who has a band: half by what they hold at the peak, the rest by bytes and time."""
        keys, least = self.keys[by], 0 if by == "function" else 1
        if self._weights is None or self._weights[0] != peak:
            live = (self.start <= peak) & ((self.end < 0) | (self.end > peak))
            life = np.where(self.end >= 0, self.end, duration) - self.start
            self._weights = peak, np.flatnonzero(live), self.size.astype(float) * life
        _, at_peak, weights = self._weights
        # Shifted by one: a holder that is not known is -1.
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
        of = band[keys]  # -1: the last, which is none of the bands
        sums = np.zeros((_BINS, rows), dtype=np.float64)
        # Bin k ends at (k + 1) * length / bins, exactly: by whole numbers of any size.
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


# ---- Waiting -------------------------------------------------------------------------------------


def _tenures(trace: Trace, grain: int) -> list[Array]:
    """Give who had the interpreter's lock: start, as a difference, length and thread."""
    table = trace.gil
    start, end, thread = (table._column(name).values() for name in ("start", "end", "thread"))
    start = start // grain
    return [np.diff(start, prepend=0), np.maximum(end // grain - start, 0), thread]


def _blocking(trace: Trace) -> list[int]:
    """Give the builtins that wait for something else than the lock: in them nobody wants it."""
    blocking: list[int] = np.flatnonzero(trace._tree.is_blocking[:-1]).tolist()
    return blocking


# ---- Findings ------------------------------------------------------------------------------------


def _findings(trace: Trace, calls: _Calls) -> list[dict[str, Any]]:
    """Give what `analyze` finds; each line with the longest call there, as a number of the page."""
    if not calls.count:
        return []
    tree, found = trace._tree, trace.analyze()
    function_of = {(row[0] or "(no name)", row[2]): n for n, row in enumerate(tree.functions)}
    places: list[tuple[int, int | None, int | None]] = []
    for finding in found:
        for evidence in finding.evidence:
            if evidence.node is not None:
                node = evidence.node
                places.append(
                    (int(tree.function[node]), int(tree.caller[node]), int(tree.line[node]))
                )
            else:
                places.append((function_of.get((evidence.name, evidence.file), -1), None, None))
    wanted = np.zeros(len(tree.functions) + 1, dtype=bool)
    wanted[[function for function, _, _ in places if function >= 0]] = True
    rows = np.flatnonzero(wanted[np.maximum(calls.function, -1)])
    rows = rows[np.argsort(-calls.duration[rows], kind="stable")]  # the longest first
    function, caller, line = calls.function[rows], calls.caller[rows], calls.caller_line[rows]

    def longest(of: int, by: int | None, at: int | None) -> int:
        fits = function == of
        if by is not None:
            fits &= (caller == by) & (line == at)
        return int(rows[fits.argmax()]) if of >= 0 and fits.any() else -1

    links = iter([longest(*place) for place in places])
    return [
        {
            "rule": finding.rule,
            "claim": finding.claim,
            "advice": finding.advice,
            "share": round(finding.share, 4),
            "command": finding.command,
            "evidence": [
                {"name": e.name, "place": e.place(), "calls": e.calls, "call": next(links)}
                for e in finding.evidence
            ],
            # Of one slow call it is that call itself.
            "call": int(calls.place[int(finding.numbers["call"])])
            if "call" in finding.numbers
            else -1,
        }
        for finding in found
    ]


# ---- The head ------------------------------------------------------------------------------------


def area_of(kind: str | None, file: str | None) -> int:
    """Say whose code a function is."""
    if kind == "user":
        return AREAS.index("span")
    if kind == "gc":
        return AREAS.index("gc")
    if file is None or kind != "python":
        return AREAS.index("native")
    if _SITE.search(file):
        return AREAS.index("installed")
    return AREAS.index("stdlib" if _STDLIB.search(file) else "own")


_STATISTICS = (
    "calls", "resumes", "total", "self", "p50", "max", "allocated", "freed", "blocks", "alive",
    "peak_live",
)  # fmt: skip
#: Of them, what the table calls otherwise than the page.
_COLUMNS = {
    "allocated": "allocated_self", "freed": "freed_self", "blocks": "blocks_self",
    "alive": "live_self", "peak_live": "at_peak_self",
}  # fmt: skip


def _functions(trace: Trace) -> dict[str, Any]:
    table = trace.functions
    texts = {name: list(table[name]) for name in ("name", "module", "file", "kind")}
    files = list(dict.fromkeys(texts["file"]))
    modules = list(dict.fromkeys(texts["module"]))
    number = {name: n for n, name in enumerate(files)}
    place = {name: n for n, name in enumerate(modules)}
    area = [area_of(k, f) for k, f in zip(texts["kind"], texts["file"], strict=True)]
    return {
        "name": texts["name"],
        "modules": modules,
        "module": [place[name] for name in texts["module"]],
        "files": files,
        "file": [number[name] for name in texts["file"]],
        "line": table._column("line").values().tolist(),
        "kind": texts["kind"],
        "area": area,
        **{name: table._column(_COLUMNS.get(name, name)).values().tolist() for name in _STATISTICS},
    }


def _points(trace: Trace) -> dict[str, Any]:
    """Give marks, counters and flows: few, so JSON."""
    marks, counters, flows = trace.marks, trace.counters, trace.flows
    return {
        "marks": [
            list(row)
            for row in zip(
                marks["time"].tolist(), marks["thread"].tolist(), list(marks["name"]), strict=True
            )
        ],
        "counters": [
            [time, name, value if math.isfinite(value) else None]
            for time, name, value in zip(
                counters["time"].tolist(),
                list(counters["name"]),
                counters["value"].tolist(),
                strict=True,
            )
        ],
        "flows": [
            list(row)
            for row in zip(
                flows["time"].tolist(),
                flows["thread"].tolist(),
                list(flows["name"]),
                flows["id"].tolist(),
                strict=True,
            )
        ],
    }


def told(trace: Trace) -> dict[str, Any]:
    """Give the line at the top: what was lost, left out, and what recording itself cost."""
    from ..show.layout import Layout
    from ..show.limits import limits as find_limits

    limits = [text.plain for text in find_limits(Layout(trace, 100, 1, plain=False))]
    metadata = trace.metadata
    facts = []
    if metadata.get("python"):
        facts.append(str(metadata["python"]))
    if metadata.get("clock"):
        hertz = metadata.get("clock_frequency_hz") or 0
        facts.append(f"clock {metadata['clock']}" + (f" {hertz / 1e9:.3g} GHz" if hertz else ""))
    if metadata.get("backend"):
        facts.append(f"calls by {metadata['backend']}")
    cost = metadata.get("overhead")
    facts.append(f"cost of an event: {_cost(cost)}")
    return {"limits": limits, "facts": facts, "lost": trace.loss.total, "reason": trace.loss.reason}


def _cost(known: Any) -> str:
    """Say what recording one event took, if it was measured."""
    if isinstance(known, dict):
        numbers = [
            value for value in known.values() if isinstance(value, (int, float)) and value > 0
        ]
        if numbers:
            return f"{min(numbers):.0f} to {max(numbers):.0f} ns"
    return "not measured"


def _threads(trace: Trace) -> list[dict[str, Any]]:
    table = trace.threads
    firsts, lasts = table._column("first"), table._column("last")
    silent = firsts.nulls()
    assert silent is not None
    return [
        {
            "name": name if name is not None else f"thread {native or row}",
            "native": native,
            "first": None if silent[row] else first,
            "last": None if silent[row] else last,
            "recorded": recorded,
            "lost": lost,
        }
        for row, (name, native, first, last, recorded, lost) in enumerate(
            zip(
                list(table["name"]),
                table._column("native_id").values().tolist(),
                firsts.values().tolist(),
                lasts.values().tolist(),
                table["recorded"].tolist(),
                table["lost"].tolist(),
                strict=True,
            )
        )
    ]


def find_title(trace: Trace) -> str:
    """Give the name of the program."""
    argv = trace.metadata.get("argv")
    if isinstance(argv, (list, tuple)) and argv and isinstance(argv[0], str):
        return argv[0].rpartition("/")[2] or "eventprof"
    return "eventprof"


def sections(
    trace: Trace, title: str | None = None, grain: int = 1, source: bool = False
) -> tuple[bytes, bytes, list[tuple[str, bytes]]]:
    """Give the data of the page.

    Parameters
    ----------
    trace : Trace
        What it shows.
    title : str, optional
        Without: the program's name.
    grain : int
        Times are rounded down to multiples of so many nanoseconds.
    source : bool
        With the text of the files.

    Returns
    -------
    head, coarse : bytes
        What the first picture needs.
    tiles : list of (str, bytes)
        All else, by the id of its element.
    """
    functions = _functions(trace)
    own = find_own(trace._core.functions(), trace._own_patterns)
    calls = _Calls(trace, grain)
    blocks = _Blocks(trace, calls, own, grain)
    duration = trace.duration
    peak_ns, peak_bytes, peak_blocks, _ = trace._core.peak(31) if blocks.count else (0, 0, 0, 0)
    bands = {by: blocks.bands(by, peak_ns, duration) if blocks.count else [] for by in HOLDERS}

    submit, end_jobs = _pool()
    try:
        coarse_of_calls = submit(_section, calls.coarse())
        without = calls.orphans()
        orphans = submit(_section, [_zigzag(np.diff(x, prepend=0)) for x in without])
        astray = submit(
            _section,
            [_zigzag(np.diff(x, prepend=0)) for x in (blocks.astray, blocks.astray_to)],
        )
        heads: dict[str, list[dict[str, Any]]] = {"c": [], "m": []}
        jobs = []
        for letter, found, times in (("c", calls.tiles(), 2), ("m", blocks.tiles(), 1)):
            for number, (head, columns) in enumerate(found):
                heads[letter].append(head)
                job = submit(_section, columns, times)
                jobs.append((f"{letter}{number}", head, len(columns[0]), job))
                if len(jobs) > 8:
                    jobs[-8][3].result()  # no more columns in memory than are being compressed
        tiles = []
        for name, head, rows, job in jobs:
            head["widths"], raw = job.result()
            head["rows"] = rows
            tiles.append((name, raw))
        extra = {}
        for name, future, rows in (
            ("orphans", orphans, len(without[0])),
            ("astray", astray, len(blocks.astray)),
        ):
            widths, raw = future.result()
            extra[name] = {"widths": widths, "rows": rows}
            tiles.append((name, raw))
        tenures = _tenures(trace, grain)
        widths, raw = _section(tenures)
        extra["tenures"] = {"widths": widths, "rows": len(tenures[0])}
        tiles.append(("tenures", raw))
        widths, coarse = coarse_of_calls.result()
    finally:
        end_jobs()

    resident = trace.resident
    head = {
        "format": 2,
        "version": __version__,
        "title": find_title(trace) if title is None else title,
        "summary": f"{show_ns(duration)}, {plural(trace._facts['events'], 'event')}",
        "duration": duration,
        "grain": grain,
        "calls": calls.count,
        "blocks": blocks.count,
        "events": blocks.events,
        "recorded": trace._facts["events"],
        "areas": AREAS,
        "kinds": calls.kinds,
        "tasks": calls.tasks,
        "rows": calls.rows,
        "threads": _threads(trace),
        "functions": functions,
        "bands": bands,
        "curve": {
            by: blocks.bins(by, bands[by], duration) if blocks.count else [] for by in HOLDERS
        },
        "places": [blocks.places.function.tolist(), np.maximum(blocks.places.line, 0).tolist()],
        "blocking": _blocking(trace),
        "findings": _findings(trace, calls),
        "peak": [peak_ns, peak_bytes, peak_blocks] if blocks.count and peak_bytes else None,
        "resident": [resident["time"].tolist(), resident["bytes"].tolist()],
        "told": told(trace),
        "source": find_source(trace) if source else [],
        **_points(trace),
        "tiles": heads,
        **extra,
        "coarse": {"widths": widths, "size": COARSE},
    }
    return compress(json.dumps(head, separators=(",", ":")).encode()), coarse, tiles
