"""The section "What was recorded" of a report: the program, the events, and the hooks."""

from __future__ import annotations

import time
from collections.abc import Iterator

from rich.table import Table as Grid
from rich.text import Text

from .._words import plural, show_ns, three_digits
from ..base.text import clean
from ..tables.facts import labels_shown
from .drawing import SIDE
from .layout import BLOCK_BITS, BLOCK_WORDS, C_WORDS, CALL_BITS, KINDS, PYTHON_WORDS, Layout


def recorded(page: Layout) -> Grid:
    """Return the rows of the section."""
    trace, metadata = page.trace, page.trace.metadata
    grid = Grid.grid(padding=(0, 2, 0, 0))
    grid.add_column(style=SIDE, no_wrap=True)
    grid.add_column(overflow="fold")

    def row(head: str, text: str) -> None:
        if text:
            grid.add_row(head, Text(clean(text, plain=page.plain)))

    row("program", " ".join(metadata.get("argv", ())))
    row("worker", str(metadata.get("worker") or ""))
    row("labels", labels_shown(metadata))
    started = time.localtime(metadata["start_ns"] / 1e9)
    when = time.strftime("%Y-%m-%d %H:%M:%S", started)
    threads = plural(len(trace.threads), "thread")
    row("duration", f"{show_ns(trace.duration)} from {when}, {threads}")
    events = sum(page.recorded.values())
    total = events + trace.loss.total
    kept = f"{events:,} of {total:,}" if trace.loss else f"{events:,}"
    row("events", f"{kept}{_rate(page, total)}" if total else "none")
    for head, families in (
        ("  calls", ("call",)),
        ("  memory", ("alloc", "free")),
        ("  others", ("point", "value")),
    ):
        row(head, ", ".join(_counts(page, families)))
    row("left out", ", ".join(_left_out(page)))
    row("recorded by", ", ".join(_how(page)))
    return grid


def _rate(page: Layout, events: int) -> str:
    duration = page.trace.duration
    if duration < 1e6:  # the rate of less than a millisecond says nothing
        return ""
    rate = events / duration * 1e9
    for unit, size in ((" million", 1e6), ("", 1.0)):
        if rate >= size:
            return f", {three_digits(rate, size) if unit else f'{rate:,.0f}'}{unit} a second"
    return ""


def _counts(page: Layout, families: tuple[str, ...]) -> list[str]:
    """Return the counts of events by word, of some families."""
    sums: dict[str, int] = {}
    for kind, (word, family) in KINDS.items():
        if family in families and kind in page.recorded:
            sums[word] = sums.get(word, 0) + page.recorded[kind]
    return [f"{count:,} {word}" for word, count in sums.items()]


def _left_out(page: Layout) -> Iterator[str]:
    words = {KINDS[kind][0] for kind in KINDS if page.kinds >> kind & 1}
    for what, some in (
        ("calls of Python functions", PYTHON_WORDS),
        ("calls of other functions", C_WORDS),
        ("allocations", BLOCK_WORDS),
    ):
        if words.isdisjoint(some):
            yield what


def _how(page: Layout) -> Iterator[str]:
    metadata = page.trace.metadata
    backends = {"monitoring": "sys.monitoring", "profile": "PyEval_SetProfile"}
    if page.kinds & CALL_BITS and metadata.get("backend"):
        yield backends.get(metadata["backend"], metadata["backend"])
    if page.kinds & BLOCK_BITS:
        yield "allocator hooks"
    clock = {"counter": "processor counter", "monotonic": "monotonic clock"}
    name = clock.get(metadata.get("clock", ""), "")
    if name:
        frequency = metadata["clock_frequency_hz"] / 1e9
        yield f"{name} of {frequency:.3g} GHz" if name == "processor counter" else name
    if metadata.get("python"):
        yield metadata["python"]
