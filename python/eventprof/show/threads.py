"""The section "Threads" of a report."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from rich.console import RenderableType

from .._words import plural, show_bytes, show_ns
from .drawing import Name, draw_lane
from .layout import BLOCK_BITS, Layout


def threads(page: Layout) -> Iterator[RenderableType]:
    """Yield the section: events, time in calls, bytes and active time of each thread."""
    trace, table = page.trace, page.trace.threads
    if not len(table):
        return
    recorded, lost, sums = table["recorded"], table["lost"], trace._tree.threads
    with_calls, with_blocks = page.has_calls(), page.kinds & BLOCK_BITS
    heads = ["events"]
    columns: list[Callable[[int], RenderableType]] = [lambda row: f"{recorded[row]:,}"]
    if trace.loss:
        heads.append("lost")
        columns.append(lambda row: f"{lost[row]:,}")
    if with_calls:
        heads.append("in calls")
        columns.append(lambda row: show_ns(int(sums["in_calls"][row])))
    if with_blocks:
        heads.append("allocated")
        columns.append(lambda row: show_bytes(int(sums["allocated"][row])))
    order = np.argsort(-(recorded + lost), kind="stable")
    shown = order[: page.few].tolist()
    firsts, lasts = table["first"], table["last"]
    lane = 2 * page.bar_width
    grid = page.grid(*heads, "active", "thread")
    for row in shown:
        active: RenderableType = ""
        if recorded[row]:
            active = draw_lane(firsts[row], lasts[row], trace.duration, lane, plain=page.plain)
        grid.add_row(*(column(row) for column in columns), active, _thread(page, row))
    content: list[RenderableType] = [grid]
    if len(table) > len(shown):
        rest = int(recorded[order[page.few :]].sum())
        content.append(page.more(len(table) - len(shown), "threads", plural(rest, "event")))
    yield from page.section("Threads", *content)


def _thread(page: Layout, row: int) -> Name:
    part = page.trace.threads[row : row + 1]
    name, native_id = part["name"][0], np.ma.filled(part["native_id"], 0)[0]
    known = name or "(no name)"
    return Name(f"{known} ({native_id})" if native_id else known, plain=page.plain)
