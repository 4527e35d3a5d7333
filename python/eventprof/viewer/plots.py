"""Pictures by matplotlib, which is imported when a picture is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._optional import require
from .._words import show_bytes, show_ns
from .picture import COLOURS, fit, slices, thread_name

if TYPE_CHECKING:
    from ..tables.table import Table
    from ..trace import Trace

_COLUMNS = 1500


def _axes(given: Any, user: str, height: float) -> Any:
    """Return the axes that the caller gave, or new axes in a new figure."""
    if given is not None:
        return given
    figure = require("matplotlib.figure", "plot", user).Figure(
        figsize=(9, height), layout="constrained"
    )
    return figure.add_subplot()


def _show_units(axis: Any, show: Any, user: str) -> None:
    ticker = require("matplotlib.ticker", "plot", user)
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: show(max(value, 0))))


def memory(table: Table, axes: Any = None) -> Any:
    """Draw live bytes over time: see `MemoryTable.plot`."""
    user = "trace.memory.plot()"
    axes = _axes(axes, user, 3)
    time, live = table._column("time").values(), table._column("live").values()
    if len(time) > 4 * _COLUMNS:
        bins = (time - time[0]) * _COLUMNS // (int(time[-1] - time[0]) + 1)
        first = np.flatnonzero(np.r_[True, bins[1:] != bins[:-1]])
        last = np.r_[first[1:], len(time)] - 1
        most = np.maximum.reduceat(live, first)
        time = np.stack([time[first], time[last]], axis=1).reshape(-1)
        live = np.stack([most, live[last]], axis=1).reshape(-1)
    axes.step(time, live, where="post", linewidth=1)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("time")
    axes.set_ylabel("live bytes")
    _show_units(axes.xaxis, show_ns, user)
    _show_units(axes.yaxis, show_bytes, user)
    return axes


def timeline(trace: Trace, axes: Any = None) -> Any:
    """Draw the calls of each thread: see `Trace.plot`."""
    user = "trace.plot()"
    drawn = slices(trace, _COLUMNS)
    rows = sorted({(each.thread, each.depth) for each in drawn})
    axes = _axes(axes, user, 1 + 0.22 * max(len(rows), 3))
    place = {row: -n for n, row in enumerate(rows)}
    for row in rows:
        calls = [each for each in drawn if (each.thread, each.depth) == row]
        axes.broken_barh(
            [(each.start, each.duration) for each in calls],
            (place[row] - 0.45, 0.9),
            facecolors=[COLOURS[each.area] for each in calls],
        )
    span = max(trace.duration, 1)
    for each in drawn:
        name = fit(each.name, int(each.duration / span * 110) - 1)
        if name:
            axes.text(
                each.start + each.duration / 2, place[each.thread, each.depth],
                name.replace("$", r"\$"), ha="center", va="center", fontsize=7, clip_on=True,
            )  # fmt: skip
    outer = [row for n, row in enumerate(rows) if n == 0 or rows[n - 1][0] != row[0]]
    names = [thread_name(trace, thread).replace("$", r"\$") for thread, _ in outer]
    axes.set_yticks([place[row] for row in outer], names)
    axes.set_xlim(0, span)
    axes.set_xlabel("time")
    _show_units(axes.xaxis, show_ns, user)
    return axes
