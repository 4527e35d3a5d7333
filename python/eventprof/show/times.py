"""The section "Where the time went" of a report."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from .._words import show_ns
from .drawing import SIDE, show_percent
from .layout import Layout


def times(page: Layout) -> Iterator[RenderableType]:
    """Yield the section: the functions with the most self time."""
    title = "Where the time went"
    if not page.has_calls():
        return
    statistics = page.trace._function_figures
    own, total = statistics["self"], statistics["total"]
    known = np.flatnonzero((own + statistics["calls"] + statistics["resumes"])[:-1] > 0)
    if not len(known):
        yield from page.section(title, Text("No call was recorded.", style=SIDE))
        return
    whole = int(own.sum())
    shown = known[np.argsort(-own[known], kind="stable")[: page.limit]]
    grid = page.grid("self", "share", "total", "calls", "mean", "function")
    for row in shown.tolist():
        calls, resumes = int(statistics["calls"][row]), int(statistics["resumes"][row])
        mean = float(statistics["mean"][row])
        grid.add_row(
            show_ns(int(own[row])),
            *page.share(own[row], whole),
            show_ns(int(total[row])),
            f"{calls:,}+{resumes:,}" if resumes else f"{calls:,}",
            show_ns(mean) if mean >= 0 else "-",
            page.function(row),
        )
    content: list[RenderableType] = [grid]
    if len(known) > len(shown):
        rest = whole - int(own[shown].sum())
        content.append(
            page.more(
                len(known) - len(shown),
                "functions",
                show_ns(rest),
                show_percent(rest, whole),
            )
        )
    legend = "self: without the calls inside; total: with them; mean: per call"
    if statistics["resumes"][shown].any():
        legend += " or resume; 1+2: calls+resumes"
    content.append(Text(legend, style=SIDE))
    threads = len(page.trace.threads)
    where = f"in calls, of {threads} threads" if threads > 1 else "in calls"
    yield from page.section(title, *content, side=f"by self time; {show_ns(whole)} {where}")
