"""The sections of a report on memory: what allocated, live bytes over time, what was not freed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.console import RenderableType
from rich.table import Table as Grid
from rich.text import Text

from .._words import plural, show_bytes, show_ns
from ..base.text import short_path
from ..tables.column import Array
from .drawing import SIDE, Curve, Name, show_percent
from .layout import BLOCK_BITS, KINDS, Layout


def memory(page: Layout) -> Iterator[RenderableType]:
    """Yield the sections on memory: functions, live bytes over time, and lines."""
    title = "Where the memory went"
    if not page.kinds & BLOCK_BITS:
        return
    tree = page.trace._tree
    peak_time, peak, peak_blocks = (
        int(tree.facts[name]) for name in ("peak_time", "peak", "peak_blocks")
    )
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
                tree.live_bins,
                page.trace.duration,
                (peak_time, peak),
                known_from=page.known_from,
                plain=page.plain,
            ),
            side="live bytes, allocated in the recording"
            + (f"; {'?' if page.plain else '░'} is lost" if page.known_from > 0 else ""),
        )
    allocated, blocks = sums["allocated_self"], sums["blocks_self"]
    yield from _sites(
        page,
        "Hot allocation sites",
        "lines, by the bytes they allocated",
        "allocated",
        _by_place(page, "allocated"),
        allocated,
    )
    live = f"{show_bytes(sums['live_self'])} in {plural(sums['live_blocks'], 'block')}"
    yield from _sites(
        page,
        "Live at the end",
        f"{live}: results, caches and leaks",
        "live",
        _by_place(page, "live"),
        sums["live_self"],
    )
    temporary = sums["temporary_self"]
    yield from _sites(
        page,
        "Temporary blocks",
        f"{show_bytes(temporary)} in {plural(sums['temporary_blocks'], 'block')}, "
        f"{show_percent(sums['temporary_blocks'], blocks)} of all",
        "temporary",
        _by_place(page, "temporary"),
        temporary,
        "freed in the call that made them, or before their thread's next allocation",
    )


def _totals(page: Layout, sums: dict[str, int], peak: tuple[int, int, int]) -> Grid:
    peak_time, peak_bytes, peak_blocks = peak
    grid = Grid.grid(padding=(0, 2, 0, 0))
    grid.add_column(style=SIDE, no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")

    def row(head: str, size: int, text: str) -> None:
        grid.add_row(head, show_bytes(size), Text(text))

    domains = _domains(page)
    row(
        "allocated",
        sums["allocated_self"],
        f"in {plural(sums['blocks_self'], 'block')}{f' ({domains})' if domains else ''}",
    )
    frees = plural(sum(_number(page, word) for word in ("free", "realloc_free")), "free")
    row("freed", sums["freed_self"], f"by {frees}")
    row("peak", peak_bytes, f"in {plural(peak_blocks, 'block')} at {show_ns(peak_time)}")
    row("at the end", sums["live_self"], f"in {plural(sums['live_blocks'], 'block')}")
    return grid


def _number(page: Layout, word: str) -> int:
    return sum(n for kind, n in page.recorded.items() if KINDS[kind][0] == word)


def _domains(page: Layout) -> str:
    """Return the allocated bytes of each domain, if there are several domains."""
    sums = page.trace._tree.domains_allocated
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
    place = f":{line}" if line >= 0 else ""
    return Name(short_path(file) + place, plain=page.plain, path=True)


def _bare(page: Layout, function: int) -> Name:
    """Name a function whose file is beside it."""
    if function < 0:
        return Name("", plain=page.plain)
    name = page.trace.functions[function : function + 1]["name"][0]
    return Name(name or "(no name)", plain=page.plain)


_Sums = tuple[Array, Array, Array, Array]  # function, line, bytes, blocks: the most bytes first


def _by_place(page: Layout, name: str) -> _Sums:
    """Return bytes and blocks by line: from the tree, or from the table of blocks.

    The tree does not have all lines if its smallest nodes were folded into "other".
    """
    tree, core = page.trace._tree, page.trace._core
    if not tree.facts["folded"]:
        return tree.by_place(name)
    if name == "allocated":
        places = core.allocations("function"), core.allocations("line")
        sizes = core.allocations("size")
        blocks = np.ones(len(sizes), dtype=np.int64)
    else:
        groups = core.alive(-1, "site") if name == "live" else core.temporary("site")
        sites, sizes, blocks = groups
        functions, _, lines = core.sites()
        known = sites > 0
        places = np.where(known, functions[sites], -1), np.where(known, lines[sites], -1)
    function, line = places
    return tree.summed(function, line, sizes, blocks)
