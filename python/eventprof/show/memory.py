"""The sections of a report on memory: which functions and lines it went to, when, what stayed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.console import RenderableType
from rich.table import Table as Grid
from rich.text import Text

from ..trace import Trace
from ..trace.column import Array
from .drawing import (
    SIDE,
    Curve,
    Name,
    short_path,
    show_bytes,
    show_count,
    show_ns,
    show_percent,
)
from .layout import ALL_DOMAINS, BLOCK_BITS, KINDS, Layout


def memory(page: Layout) -> Iterator[RenderableType]:
    """Say which functions and lines memory went to, when, and what stayed."""
    title = "Where the memory went"
    if not page.kinds & BLOCK_BITS:
        return
    core = page.trace._core
    peak_time, peak, peak_blocks, _ = core.peak(ALL_DOMAINS)
    if peak_time < 0:
        yield from page.section(title, Text("Nothing was allocated.", style=SIDE))
        return
    statistics = page.trace._function_figures
    sums = {name: int(column.sum()) for name, column in statistics.items() if name != "mean"}
    yield from page.section(
        title,
        _totals(page, sums, (peak_time, peak, peak_blocks)),
        "",
        *_by_function(page, statistics, sums["allocated_self"]),
    )
    if peak > 0:
        yield from page.section(
            "Memory over time",
            Curve(
                lambda count: core.bins(ALL_DOMAINS, count)[:2],
                page.trace.duration,
                (peak_time, peak),
                known_from=page.known_from,
                plain=page.plain,
            ),
            side="live bytes, allocated in the recording"
            + (f"; {'?' if page.plain else '░'} is lost" if page.known_from > 0 else ""),
        )
    places = _Places(page.trace)
    allocated, blocks = sums["allocated_self"], sums["blocks_self"]
    yield from _sites(
        page,
        "Hot allocation sites",
        "lines, by the bytes they allocated",
        "allocated",
        places.all(),
        allocated,
    )
    alive = f"{show_bytes(sums['live_self'])} in {show_count(sums['alive_blocks'], 'block')}"
    yield from _sites(
        page,
        "Alive at the end",
        f"{alive}: results, caches and leaks",
        "alive",
        places.of(*core.alive(-1, "site")),
        sums["live_self"],
    )
    temporary = sums["temporary_self"]
    yield from _sites(
        page,
        "Temporary blocks",
        f"{show_bytes(temporary)} in {show_count(sums['temporary_blocks'], 'block')}, "
        f"{show_percent(sums['temporary_blocks'], blocks)} of all",
        "temporary",
        places.of(*core.temporary("site")),
        temporary,
        "freed in the call that made them, or before their thread's next allocation",
    )


def _totals(page: Layout, sums: dict[str, int], peak: tuple[int, int, int]) -> Grid:
    peak_time, peak_bytes, peak_blocks = peak
    grid = Grid.grid(padding=(0, 2, 0, 0))
    grid.add_column(style=SIDE, no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")

    def row(head: str, size: int, said: str) -> None:
        grid.add_row(head, show_bytes(size), Text(said))

    domains = _domains(page)
    row(
        "allocated",
        sums["allocated_self"],
        f"in {show_count(sums['blocks_self'], 'block')}{f' ({domains})' if domains else ''}",
    )
    frees = show_count(sum(_number(page, word) for word in ("free", "realloc_free")), "free")
    row("freed", sums["freed_self"], f"by {frees}")
    row("peak", peak_bytes, f"in {show_count(peak_blocks, 'block')} at {show_ns(peak_time)}")
    row("at the end", sums["live_self"], f"in {show_count(sums['alive_blocks'], 'block')}")
    return grid


def _number(page: Layout, word: str) -> int:
    return sum(n for kind, n in page.recorded.items() if KINDS[kind][0] == word)


def _domains(page: Layout) -> str:
    """Give what was allocated by domain, if there are several."""
    core = page.trace._core
    sizes = core.allocations("size")
    sums = np.bincount(core.allocations("domain"), weights=sizes, minlength=5).tolist()
    words = ("raw", "mem", "obj", "numpy", "libc")
    parts = [f"{w} {show_bytes(n)}" for w, n in zip(words, sums, strict=True) if n]
    return ", ".join(parts) if len(parts) > 1 else ""


def _by_function(
    page: Layout, statistics: dict[str, Array], whole: int
) -> Iterator[RenderableType]:
    allocated = statistics["allocated_self"][:-1]
    known = np.flatnonzero(allocated > 0)
    shown = known[np.argsort(-allocated[known], kind="stable")[: page.few]]
    grid = page.grid("allocated", "share", "blocks", "at peak", "at end", "function")
    for row in shown.tolist():
        grid.add_row(
            show_bytes(int(allocated[row])),
            *page.share(allocated[row], whole),
            f"{statistics['blocks_self'][row]:,}",
            show_bytes(int(statistics["at_peak_self"][row])),
            show_bytes(int(statistics["live_self"][row])),
            page.function(row),
        )
    yield grid
    if len(known) > len(shown):
        rest = whole - int(allocated[shown].sum())
        yield page.more(
            len(known) - len(shown),
            "functions",
            show_bytes(rest),
            show_percent(rest, whole),
        )


def _sites(
    page: Layout, title: str, side: str, head: str, places: _Sums, whole: int, legend: str = ""
) -> Iterator[RenderableType]:
    functions, lines, sizes, blocks = places
    if not len(sizes):
        return
    grid = page.grid(head, "share", "blocks", "where", "function")
    shown = slice(0, page.few)
    for function, line, size, count in zip(
        functions[shown].tolist(),
        lines[shown].tolist(),
        sizes[shown].tolist(),
        blocks[shown].tolist(),
        strict=True,
    ):
        grid.add_row(
            show_bytes(size),
            *page.share(size, whole),
            f"{count:,}",
            _where(page, function, line),
            _bare(page, function),
        )
    content: list[RenderableType] = [grid]
    if len(sizes) > page.few:
        rest = int(sizes[page.few :].sum())
        content.append(
            page.more(
                len(sizes) - page.few,
                "lines",
                show_bytes(rest),
                show_percent(rest, whole),
            )
        )
    if legend:
        content.append(Text(legend, style=SIDE))
    yield from page.section(title, *content, side=side)


def _where(page: Layout, function: int, line: int) -> Name:
    file = page.trace.functions[function : function + 1]["file"][0] if function >= 0 else None
    if file is None:
        return Name("(no Python code)", plain=page.plain, style=SIDE)
    at = f":{line}" if line >= 0 else ""
    return Name(short_path(file) + at, plain=page.plain, path=True)


def _bare(page: Layout, function: int) -> Name:
    """Name a function whose file is beside it."""
    if function < 0:
        return Name("", plain=page.plain)
    name = page.trace.functions[function : function + 1]["name"][0]
    return Name(name or "(no name)", plain=page.plain)


_Sums = tuple[Array, Array, Array, Array]  # function, line, bytes, blocks: the most bytes first


class _Places:
    """Bytes and blocks by function and line: several sites may lie on one line."""

    def __init__(self, trace: Trace) -> None:
        self.core = trace._core

    def all(self) -> _Sums:
        """Sum all blocks."""
        core = self.core
        return self._sum(core.allocations("function"), core.allocations("line"),
                         core.allocations("size"), None)  # fmt: skip

    def of(self, sites: Array, sizes: Array, blocks: Array) -> _Sums:
        """Sum what is summed by site; site 0 is unknown."""
        functions, _, lines = self.core.sites()
        known = sites > 0
        return self._sum(
            np.where(known, functions[sites], -1), np.where(known, lines[sites], -1), sizes, blocks
        )

    @staticmethod
    def _sum(functions: Array, lines: Array, sizes: Array, blocks: Array | None) -> _Sums:
        if not len(functions):
            return functions, lines, sizes, functions
        # Number the lines of a function from its least to its most: no sorting, which for ten
        # million blocks takes eight times as long. Row -1 is the unknown function, the last.
        count = int(functions.max()) + 2
        functions, lines = functions.astype(np.intp), lines.astype(np.int32, copy=False)
        least = np.full(count, np.iinfo(np.int32).max, dtype=np.int32)
        most = np.full(count, -2, dtype=np.int32)
        np.minimum.at(least, functions, lines)  # fast with equal types only
        np.maximum.at(most, functions, lines)
        span = np.maximum(most.astype(np.int64) - least + 1, 0)
        first = np.cumsum(span) - span
        keys = (first - least)[functions] + lines
        # Sums of float64 are exact up to 2**53, nine petabytes.
        size_sums = np.bincount(keys, weights=sizes).astype(np.int64)
        block_sums = np.bincount(keys, weights=blocks).astype(np.int64)
        found = np.flatnonzero(block_sums)
        found = found[np.argsort(-size_sums[found], kind="stable")]
        # A function without blocks has no keys: the last that begins here is the one.
        owners = np.searchsorted(first, found, side="right") - 1
        owner_lines = found - first[owners] + least[owners]
        owners[owners == count - 1] = -1
        return owners, owner_lines, size_sums[found], block_sums[found]
