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


def _section(columns: Sequence[Array]) -> tuple[list[int], bytes]:
    """Give the widths of some columns, and all of them compressed."""
    widths, parts = [], []
    for values in columns:
        width, raw = _planes(values)
        widths.append(width)
        parts.append(raw)
    return widths, compress(b"".join(parts))


def compress(raw: bytes) -> bytes:
    """Give base64 of gzip; the same bytes for the same data."""
    packer = zlib.compressobj(1 if len(raw) > 1 << 16 else 6, zlib.DEFLATED, 31)
    return base64.b64encode(packer.compress(raw) + packer.flush())


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
        self.row = np.empty(self.count, dtype=np.uint16 if len(self.rows) < 1 << 16 else np.int32)
        self.row[order] = np.repeat(np.arange(len(self.rows)), [n for *_, n in self.rows])
        self.place = np.empty(self.count, dtype=np.int64)
        self.place[order] = np.arange(self.count)
        end = (start + column("duration"))[order] // grain
        self.exact_start = start[order]
        self.start = self.exact_start // grain
        self.duration = np.maximum(end - self.start, 0)
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
        found = np.full(self.count, -1, dtype=np.int64)
        for thread, depth, first, count in self.rows:
            if depth:
                part = slice(first, first + count)
                found[part] = self.sought(thread, depth - 1, self.start[part])
        wrong = np.flatnonzero(found != self.parent)
        return wrong, self.parent[wrong]

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
        # A table with room for each function's lines, from its first to its last: no sorting.
        low, high = np.full(functions + 1, 1 << 31), np.full(functions + 1, -2)
        for function, line in pairs:
            np.minimum.at(low, function, line)
            np.maximum.at(high, function, line)
        room = np.maximum(high - low + 1, 0)
        self._offset = np.r_[0, np.cumsum(room)[:-1]] - low
        used = np.zeros(int(room.sum()), dtype=bool)
        for function, line in pairs:
            used[self._offset[function] + line] = True
        none = self._offset[-1] - 1 if low[-1] <= -1 <= high[-1] else -1
        if none >= 0:
            used[none] = False
        self._number = np.cumsum(used, dtype=np.int32)
        if none >= 0:
            self._number[none] = 0
        at = np.flatnonzero(used)
        function = np.repeat(np.arange(functions + 1), room)[at]
        #: Function and line of each place.
        self.function = np.r_[-1, np.where(function == functions, -1, function)]
        self.line = np.r_[-1, at - self._offset[function]]

    def of(self, function: Array, line: Array) -> Array:
        """Give the numbers of some of the pairs."""
        numbers: Array = self._number[self._offset[function] + line]
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
        dead = np.flatnonzero(end >= 0)
        died = np.maximum(end, start)[dead]
        order = np.argsort(died, kind="stable")
        dead, died = dead[order], died[order]
        before = np.searchsorted(start, died, side="right")
        deaths = np.arange(len(dead)) + before
        total = self.count + len(dead)
        self.events = total

        # By a mask: in order, which the processor reads ahead.
        is_death = np.zeros(total, dtype=bool)
        is_death[deaths] = True
        is_birth = ~is_death
        del deaths

        def merged(of_births: Any, of_deaths: Any, dtype: Any = np.int32) -> Array:
            column = np.empty(total, dtype=dtype)
            column[is_birth], column[is_death] = of_births, of_deaths
            return column

        self.time = merged(start, died, np.int64)
        self.ref = merged(0, before - dead)  # of a death: how many births ago its block was born
        self.size = merged(np.maximum(column("size"), 0), 0, np.int64)
        function = trace._block_functions()
        self.function = merged(function + 1, 0)
        self.sizes = np.maximum(column("size"), 0)
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
        self.line = merged(self.keys["line"], 0)
        self.own = merged(self.keys["own"], 0)
        self.start, self.end = start, end
        self._link(calls, column, merged, dead, grain)
        self.time //= grain

    def _link(self, calls: _Calls, column: Any, merged: Any, dead: Array, grain: int) -> None:
        """Name the call of each event by its thread and depth, and those that this misses."""
        made, freed = column("call"), column("freed_in")[dead]
        thread = merged(column("thread"), np.maximum(column("free_thread")[dead], 0))
        call = merged(made, freed)
        known = np.flatnonzero(call >= 0)
        self.depth = np.zeros(self.events, dtype=np.int32)  # of the call, and 1; 0: no call
        if calls.count and len(known):
            call = call[known]
            row = calls.row[call]
            self.depth[known] = np.array([depth + 1 for _, depth, *_ in calls.rows])[row]
            thread[known] = np.array([thread for thread, *_ in calls.rows])[row]
            times = self.time[known] // grain
            found = np.empty(len(known), dtype=np.int64)
            order = np.argsort(row, kind="stable")
            edges = np.searchsorted(row[order], np.arange(len(calls.rows) + 1))
            for n, (of_thread, depth, _, _) in enumerate(calls.rows):
                part = order[edges[n] : edges[n + 1]]
                if len(part):
                    found[part] = calls.sought(of_thread, depth, times[part])
            place = calls.place[call]
            wrong = np.flatnonzero(found != place)
            self.astray, self.astray_to = known[wrong], place[wrong]
        else:
            self.astray = self.astray_to = np.empty(0, dtype=np.int64)
        self.thread = thread

    def tiles(self) -> Iterator[tuple[dict[str, Any], list[Array]]]:
        """Give what the head says of each tile, and its columns."""
        step = np.diff(self.time, prepend=0)
        for at in range(0, self.events, TILE):
            part = slice(at, min(at + TILE, self.events))
            steps = step[part].copy()
            steps[0] = 0
            columns = [
                self.ref, self.size, self.function, self.line, self.own, self.thread, self.depth
            ]  # fmt: skip
            yield {"start": int(self.time[at])}, [steps, *(each[part] for each in columns)]

    def bands(self, by: str, peak: int, duration: int) -> list[int]:
        """Give who has a band: half by what they hold at the peak, the rest by bytes and time."""
        keys, least = self.keys[by], 0 if by == "function" else 1
        known = keys >= least
        live = known & (self.start <= peak) & ((self.end < 0) | (self.end > peak))
        life = np.where(self.end >= 0, self.end, duration) - self.start
        held = np.bincount(keys[live], weights=self.sizes[live])
        area = np.bincount(keys[known], weights=self.sizes[known].astype(float) * life[known])
        held.resize(len(area))
        most = [int(key) for key in np.argsort(-held, kind="stable")[:BANDS] if held[key] > 0]
        over_time = [int(key) for key in np.argsort(-area, kind="stable")[:BANDS] if area[key] > 0]
        half = most[: BANDS // 2]
        return list(dict.fromkeys([*half, *over_time, *most]))[:BANDS]

    def bins(self, by: str, bands: Sequence[int], duration: int) -> list[list[int]]:
        """Give the live bytes of each band, and of all others, at the end of each bin."""
        keys = self.keys[by]
        rows = len(bands) + 1
        band = np.full(int(keys.max(initial=-1)) + 2, rows - 1, dtype=np.int64)
        for number, key in enumerate(bands):
            band[key] = number
        of = band[keys]  # -1: the last, which is none of the bands
        sums = np.zeros(_BINS * rows, dtype=np.float64)
        length = max(duration, 1)
        for times, sign, part in (
            (self.start, 1.0, slice(None)),
            (self.end[self.end >= 0], -1.0, self.end >= 0),
        ):
            # Exact: a division of whole numbers, as bin k ends at (k + 1) * length / bins.
            at = (
                np.minimum((times.astype(object) * _BINS // length).astype(np.int64), _BINS - 1)
                if length > 1 << 52
                else np.minimum(times * _BINS // length, _BINS - 1)
            )
            sums += sign * np.bincount(
                at * rows + of[part], weights=self.sizes[part], minlength=_BINS * rows
            )
        curve = np.cumsum(sums.reshape(_BINS, rows), axis=0)
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


def _area(kind: str | None, file: str | None) -> int:
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
    area = [_area(k, f) for k, f in zip(texts["kind"], texts["file"], strict=True)]
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


def _told(trace: Trace) -> dict[str, Any]:
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


def _title(trace: Trace) -> str:
    argv = trace.metadata.get("argv")
    if isinstance(argv, (list, tuple)) and argv and isinstance(argv[0], str):
        return argv[0].rpartition("/")[2] or "eventprof"
    return "eventprof"


def sections(
    trace: Trace, title: str | None = None, grain: int = 1
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
        for letter, source in (("c", calls.tiles()), ("m", blocks.tiles())):
            for number, (head, columns) in enumerate(source):
                heads[letter].append(head)
                job = submit(_section, columns)
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
        "title": _title(trace) if title is None else title,
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
        "told": _told(trace),
        **_points(trace),
        "tiles": heads,
        **extra,
        "coarse": {"widths": widths, "size": COARSE},
    }
    return compress(json.dumps(head, separators=(",", ":")).encode()), coarse, tiles
