"""The small picture of a trace: as SVG for notebooks, and by matplotlib (plots.py).

`slices` and `live` reduce the tables of a trace to what a picture of a given width can show.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .. import _core
from .._words import plural, show_bytes, show_ns
from ..answers.own import find_areas
from ..tables.column import Array
from ..tables.loss import loss_of_others

if TYPE_CHECKING:
    from ..trace import Trace

#: The colour of each of the core's areas; colour.js has the same for light pages.
COLOURS = ("#f5c173", "#7bbbe3", "#86dcc3", "#ece196", "#c9ccd3", "#cf8bb9", "#f29b75")
_LINE, _TEXT, _FILL = "#5a626e", "#15181d", "#8fb6dc"
_NATIVE = _core.AREAS.index("native")
_ROW, _DEEPEST, _MOST_THREADS = 12, 5, 8
_GUTTER, _MEMORY = 110, 60


class Slice(NamedTuple):
    """A call that is drawn; times in ns."""

    thread: int
    depth: int
    start: int
    duration: int
    name: str
    area: int


def clean(text: str) -> str:
    """Replace characters by their codes if they are invisible or change the text's direction."""
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


def fit(text: str, letters: int) -> str:
    """Cut a text to a number of letters; empty if there is no room for anything useful."""
    if len(text) <= letters:
        return text
    return f"{text[: letters - 1]}\u2026" if letters >= 4 else ""


def slices(trace: Trace, columns: int) -> list[Slice]:
    """Return the calls to draw: of the calls that begin in one column, only the longest.

    Parameters
    ----------
    trace : Trace
        The trace to draw.
    columns : int
        The width of the picture, about one for each pixel.

    Returns
    -------
    list of Slice
        Calls of the first eight threads, five levels of each; by thread, depth and start. The first
        level is the outermost that changes: in a notebook the cell, not the kernel around it.
    """
    calls = trace.calls

    def column(name: str) -> Array:
        return calls._column(name).values()

    depth, thread = np.maximum(column("depth"), 0), column("thread")
    threads = np.unique(thread)[:_MOST_THREADS]
    is_whole = (column("start") <= 0) & (column("duration") >= trace.duration)
    level = np.full(len(depth), -1)
    for each_thread in threads:
        chosen = thread == each_thread
        whole = int(np.count_nonzero(is_whole & chosen))
        level[chosen] = depth[chosen] - min(whole, int(depth[chosen].max()))
    rows = np.flatnonzero((level >= 0) & (level < _DEEPEST))
    start, duration = column("start")[rows], column("duration")[rows]
    each = max(trace.duration / columns, 1)
    # Each row has one call for each column: the longest that begins there.
    bins = np.minimum((start / each).astype(np.int64), columns - 1)
    key = (np.searchsorted(threads, thread[rows]) * _DEEPEST + level[rows]) * columns + bins
    order = np.lexsort((duration, key))
    last = np.r_[key[order][1:] != key[order][:-1], True] if len(order) else np.empty(0, bool)
    kept = rows[np.sort(order[last])]
    functions = trace._core.functions()
    areas = [*find_areas(functions, trace._own_patterns).tolist(), _NATIVE]
    found = [
        Slice(
            int(thread[row]), int(depth[row]), int(column("start")[row]),
            int(column("duration")[row]),
            clean((functions[f][0] if f >= 0 else None) or "(no name)"),
            areas[f],
        )
        for row, f in zip(kept.tolist(), column("function")[kept].tolist(), strict=True)
    ]  # fmt: skip
    return sorted(found)


def live(trace: Trace, columns: int) -> tuple[Array, Array]:
    """Return the start of each column and its most live bytes; empty if memory was not recorded."""
    if not len(trace.allocations):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    bins = trace.memory_bins(columns)
    return bins._column("time").values(), bins._column("max").values()


def thread_name(trace: Trace, row: int) -> str:
    """Name a thread as the page does."""
    name, native = trace.threads["name"][row], trace.threads["native_id"][row]
    return clean(name) if name is not None else f"thread {native or row}"


def svg(trace: Trace, width: int = 900, alone: bool = False) -> str:
    """Draw the calls of each thread over live memory.

    Parameters
    ----------
    trace : Trace
        The trace to draw.
    width : int
        In pixels; the picture shrinks where there is less room.
    alone : bool
        Whether it is a file of its own, with a background.

    Returns
    -------
    str
        An ``<svg>`` element that needs no other file. In a page, the words beside the calls have
        the colour of the text around: light in a dark notebook.
    """
    room = width - _GUTTER
    drawn = slices(trace, room)
    rows = sorted({(each.thread, each.depth) for each in drawn})
    top: dict[tuple[int, int], float] = {}
    y = 4.0
    parts = []
    for n, row in enumerate(rows):
        if n == 0 or rows[n - 1][0] != row[0]:
            y += 4
            name = html.escape(fit(thread_name(trace, row[0]), 17))
            parts.append(f'<text x="4" y="{y + 9:.0f}">{name}</text>')
        top[row] = y
        y += _ROW
    scale = room / max(trace.duration, 1)
    for each in drawn:
        x, wide = _GUTTER + each.start * scale, max(each.duration * scale, 0.5)
        parts.append(
            f'<rect x="{x:.2f}" y="{top[each.thread, each.depth]:.0f}" width="{wide:.2f}" '
            f'height="{_ROW - 1}" fill="{COLOURS[each.area]}">'
            f"<title>{html.escape(each.name)}: {show_ns(each.duration)}</title></rect>"
        )
        name = fit(each.name, int((wide - 6) / 6))
        if name:
            parts.append(
                f'<text x="{x + 3:.2f}" y="{top[each.thread, each.depth] + 9:.0f}" '
                f'fill="{_TEXT}">{html.escape(name)}</text>'
            )
    _, most = live(trace, room)
    if len(most) and most.max() > 0:
        y += 6
        parts.append(f'<text x="4" y="{y + 9:.0f}">live memory</text>')
        parts.append(f'<text x="4" y="{y + 22:.0f}">{show_bytes(int(most.max()))}</text>')
        parts.append(f'<path fill="{_FILL}" d="{"".join(_curve(most, y))}"/>')
        y += _MEMORY
    high = int(y + 18)
    parts.append(
        f'<path stroke="{_LINE}" d="M{_GUTTER} {y + 2:.0f}H{width}"/>'
        f'<text x="{_GUTTER}" y="{high - 4}">0</text>'
        f'<text x="{width - 4}" y="{high - 4}" text-anchor="end">{show_ns(trace.duration)}</text>'
    )
    paper = f'<rect width="{width}" height="{high}" fill="#fff"/>' if alone else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {high}" width="{width}" '
        f'height="{high}" style="max-width:100%;height:auto" role="img" aria-label="timeline" '
        f'font-family="sans-serif" font-size="10" fill="{_TEXT if alone else "currentColor"}">'
        f"{paper}{''.join(parts)}</svg>"
    )


def _curve(most: Array, y: float) -> Iterator[str]:
    """Yield the path of live memory, a column for each pixel."""
    bottom, peak = y + _MEMORY, int(most.max())
    yield f"M{_GUTTER} {bottom:.1f}"
    for x, value in enumerate(most.tolist()):
        yield f"L{_GUTTER + x} {bottom - _MEMORY * value / peak:.1f}"
        yield f"H{_GUTTER + x + 1}"
    yield f"V{bottom:.1f}Z"


def summary(trace: Trace) -> str:
    """Return what a notebook shows of a trace, as HTML: a line of facts and the small picture."""
    loss = trace.loss
    text = (
        f"{plural(trace._facts['events'], 'event')} of {plural(len(trace.threads), 'thread')} "
        f"in {show_ns(trace.duration)}"
    )
    unsure = ", ".join(loss_of_others(trace))
    lost = f"{plural(loss.total, 'event')} lost" if loss else unsure or "nothing lost"
    peak = trace.peak().bytes if len(trace.allocations) else 0
    held = f", at most {show_bytes(peak)} live" if peak else ""
    return (
        f"<div><strong>eventprof</strong> {html.escape(text + held)}, {html.escape(lost)}; "
        f"<code>.show()</code> opens the page</div>{svg(trace)}"
    )
