"""Calls and memory at an instant, in an interval, or while a function was open."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .._words import printable
from ..base.quantities import parse_duration
from ..tables.by_function import (
    Function,
    answer_table,
    by_function,
    find_function,
    row_numbers,
    sum_by,
)
from ..tables.column import Array
from ..tables.table import Table
from .holders import groups_table

if TYPE_CHECKING:
    from ..trace.recorded import Recorded


@dataclass(frozen=True, repr=False)
class Instant:
    """The open calls and the live memory at one instant.

    Attributes
    ----------
    time : int
        The instant, in ns since the window's start.
    open : Table
        The open calls of every thread, outermost first: thread, depth, function, name, start,
        open_for (ns so far), caller_line.
    live : Table
        The live blocks by function, the most first: function, name, module, bytes, blocks.
    live_bytes, live_blocks : int
        The sums. Blocks older than the window are not in them.
    loss : str
        What is missing and may falsify the answer, in words; empty: nothing.
    """

    time: int
    open: Table
    live: Table
    live_bytes: int
    live_blocks: int
    loss: str = ""

    def __repr__(self) -> str:
        return (
            f"<at {self.time:,} ns: {len(self.open):,} calls open, {self.live_bytes:,} bytes in "
            f"{self.live_blocks:,} blocks alive{self.loss}>\n{self.open!r}\n{self.live!r}"
        )


@dataclass(frozen=True, repr=False)
class Interval:
    """The events between two instants.

    Attributes
    ----------
    start, end : int
        The instants, in ns since the window's start; the end is not in it.
    events : Table
        The rows of `Trace.events` in it.
    calls : Table
        The rows of `Trace.calls` that were open at some time in it; their times are not cut off.
    allocations : Table
        The rows of `Trace.allocations` that were made in it.
    functions : Table
        By function, the most self time first: function, name, module, calls (begun in it), self
        (ns in it), allocated_self (bytes in it, by itself), blocks_self.
    allocated, freed : int
        Bytes.
    loss : str
        What is missing and may falsify the answer, in words; empty: nothing.
    """

    start: int
    end: int
    events: Table
    calls: Table
    allocations: Table
    functions: Table
    allocated: int
    freed: int
    loss: str = ""

    def __repr__(self) -> str:
        return (
            f"<{self.start:,} to {self.end:,} ns: {len(self.events):,} events, "
            f"{self.allocated:,} bytes allocated, {self.freed:,} freed{self.loss}>\n"
            f"{self.functions!r}"
        )


@dataclass(frozen=True, repr=False)
class Within:
    """The events while a function was open.

    Attributes
    ----------
    function : int
        Its row in `Trace.functions`.
    name : str
        Its qualified name.
    calls : Table
        Its rows of `Trace.calls`.
    below : Table
        By function, itself included, the most self time first: function, name, module, calls, self
        (ns while it was open), allocated_self, freed_self (bytes, by itself), blocks_self.
    total : int
        How long it was open, in ns; of recursive calls the outermost.
    loss : str
        What is missing and may falsify the answer, in words; empty: nothing.
    """

    function: int
    name: str
    calls: Table
    below: Table
    total: int
    loss: str = ""

    def __repr__(self) -> str:
        name = printable(self.name)
        head = f"during {name}: {len(self.calls):,} calls, {self.total:,} ns{self.loss}"
        return f"<{head}>\n{self.below!r}"


def _checked_time(trace: Recorded, name: str, given: int | str) -> int:
    is_negative = isinstance(given, (int, np.integer)) and given < 0
    time = int(given) if is_negative else parse_duration(name, given)
    if not 0 <= time <= trace.duration:
        raise ValueError(
            f"{name}: {time} ns is outside of the trace, which goes from 0 to {trace.duration}"
        )
    return time


def instant(trace: Recorded, time: int | str) -> Instant:
    """Answer `Trace.at`."""
    now = _checked_time(trace, "time", time)
    core = trace._core
    start, duration = core.calls("start"), core.calls("duration")
    rows = np.flatnonzero((start <= now) & (now < start + duration))
    thread, depth = core.calls("thread")[rows], core.calls("depth")[rows]
    order = np.lexsort((depth, thread))
    rows, thread, depth = rows[order], thread[order], depth[order]
    function = core.calls("function")[rows]
    opened = answer_table(
        trace,
        "open calls",
        {
            "thread": thread,
            "depth": depth,
            **by_function(trace, function),
            "start": start[rows],
            "open_for": now - start[rows],
            "caller_line": row_numbers(core.calls("caller_line")[rows]),
        },
    )
    groups = core.alive(core.moment(now), "function")
    live = groups_table(trace, "live memory", groups, "function")
    return Instant(now, opened, live, int(groups[1].sum()), int(groups[2].sum()), trace._title(""))


def between(trace: Recorded, start: int | str, end: int | str) -> Interval:
    """Answer `Trace.between`."""
    first_ns, last_ns = _checked_time(trace, "start", start), _checked_time(trace, "end", end)
    if last_ns < first_ns:
        raise ValueError(f"end: {last_ns} ns is before the start, {first_ns} ns")
    core = trace._core
    first, last = np.searchsorted(core.events("time"), (first_ns, last_ns))
    began, duration = core.calls("start"), core.calls("duration")
    calls = np.flatnonzero((began < last_ns) & (began + duration > first_ns))
    born = core.allocations("start")
    blocks = np.flatnonzero((born >= first_ns) & (born < last_ns))
    died = core.allocations("end")
    dead = (died >= first_ns) & (died < last_ns) & (died >= 0)
    sizes = core.allocations("size")
    return Interval(
        first_ns,
        last_ns,
        trace.events[first:last],
        trace.calls[calls],
        trace.allocations[blocks],
        _function_sums(trace, calls, blocks, first_ns, last_ns),
        int(sizes[blocks].sum()),
        int(sizes[dead].sum()),
        trace._title(""),
    )


def _function_sums(trace: Recorded, calls: Array, blocks: Array, start: int, end: int) -> Table:
    """Sum by function the calls, and the blocks made, between two instants."""
    core = trace._core
    began, duration = core.calls("start")[calls], core.calls("duration")[calls]
    inside = np.minimum(began + duration, end) - np.maximum(began, start)
    of_call = np.zeros(len(core.calls("start")), dtype=np.int64)
    of_call[calls] = inside
    parent = core.calls("parent")[calls]
    np.subtract.at(of_call, parent[parent >= 0], inside[parent >= 0])
    function = core.calls("function")[calls]
    count = len(trace.functions)
    self_time = sum_by(function, of_call[calls], count)
    ones = ((began >= start) & (began < end)).astype(np.int64)
    begun = sum_by(function, ones, count)
    owner = block_functions(trace)[blocks]
    allocated = sum_by(owner, core.allocations("size")[blocks], count)
    made = sum_by(owner, np.ones(len(blocks), dtype=np.int64), count)
    rows = np.flatnonzero((self_time != 0) | (begun != 0) | (made != 0))
    rows = rows[np.argsort(-self_time[rows], kind="stable")].astype(np.int32)
    return answer_table(
        trace,
        "functions",
        {
            **by_function(trace, rows),
            "calls": begun[rows],
            "self": self_time[rows],
            "allocated_self": allocated[rows],
            "blocks_self": made[rows],
        },
    )


def block_functions(trace: Recorded) -> Array:
    """Return the function that each block counts for: that of its call, or else of its site."""
    core = trace._core
    call = core.allocations("call")
    by_call = core.calls("function")
    if len(by_call) == 0:
        return core.allocations("function")
    return np.where(call >= 0, by_call[call], core.allocations("function"))


def during(trace: Recorded, function: Function) -> Within:
    """Answer `Trace.during`."""
    row = find_function(trace, function)
    core = trace._core
    functions, parent, depth = (core.calls(c) for c in ("function", "parent", "depth"))
    chosen = functions == row
    below = chosen.copy()
    outermost = chosen.copy()
    # Level by level: a call lies below if its parent does. Each call is visited once.
    order = np.argsort(depth, kind="stable")
    bounds = np.searchsorted(depth[order], np.arange(depth.max(initial=0) + 2))
    for first, last in itertools.pairwise(bounds[1:]):
        level = order[first:last]
        inside = below[parent[level]]
        outermost[level] &= ~inside
        below[level] |= inside
    duration = core.calls("duration")
    calls = np.flatnonzero(below)
    count = len(trace.functions)
    own = functions[calls]
    self_time = sum_by(own, core.calls("self")[calls], count)
    times = sum_by(own, np.ones(len(calls), dtype=np.int64), count)
    allocated, freed, blocks = (
        sum_by(own, core.calls(column)[calls].astype(np.int64), count)
        for column in ("allocated_self", "freed_self", "blocks_self")
    )
    rows = np.flatnonzero(times)
    rows = rows[np.argsort(-self_time[rows], kind="stable")].astype(np.int32)
    name = trace.functions["name"][row]
    table = answer_table(
        trace,
        f"during {name}",
        {
            **by_function(trace, rows),
            "calls": times[rows],
            "self": self_time[rows],
            "allocated_self": allocated[rows],
            "freed_self": freed[rows],
            "blocks_self": blocks[rows],
        },
    )
    total = int(duration[outermost].sum())
    return Within(row, name or "", trace.calls[chosen], table, total, trace._title(""))
