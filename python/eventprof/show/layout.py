"""The layout of a report: sections, tables, bars and names, and figures that all sections use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from .. import _core
from .drawing import SIDE, Name, Rule, draw_bar, show_percent

if TYPE_CHECKING:
    from ..trace import Trace

ALL_DOMAINS = 31

#: The word and the family of each kind of event.
KINDS = {row[0]: (row[2], row[4]) for row in _core.kind_table()}
#: The kinds of calls of functions, without spans and runs of the collector.
CALL_BITS = sum(1 << row[0] for row in _core.kind_table() if row[4] == "call" and row[3])
BLOCK_BITS = sum(1 << n for n, (_, family) in KINDS.items() if family in ("alloc", "free"))
PYTHON_WORDS = tuple(row[2] for row in _core.kind_table() if row[7] == "python")
C_WORDS = tuple(row[2] for row in _core.kind_table() if row[7] == "c")
#: The words of events that sums of bytes need; failed requests are not among them.
BLOCK_WORDS = tuple(
    dict.fromkeys(r[2] for r in _core.kind_table() if r[7] == "block" and r[6] != "neither")
)


class Layout:
    """A page of a given width, on which the sections of a report are laid out."""

    def __init__(self, trace: Trace, width: int, limit: int, *, plain: bool) -> None:
        self.trace = trace
        self.width = width
        self.limit = limit
        self.few = (limit + 1) // 2  # rows of each table but the first
        self.plain = plain
        self.bar_width = 5 if width < 90 else 12 if width < 120 else 20
        self.kinds = trace._core.facts()["kinds"]
        self.known_from = self._known_from()
        self.recorded: dict[int, int] = {}
        self.lost: dict[int, int] = {}
        for *_, recorded, lost in trace._core.threads():
            for sums, counts in ((self.recorded, recorded), (self.lost, lost)):
                for kind, count in counts.items():
                    sums[kind] = sums.get(kind, 0) + count

    def _known_from(self) -> int:
        """Return the time from which on no thread lost events by overwriting."""
        threads = self.trace.threads
        if self.trace.loss.reason not in ("overwritten", "small_disk", "family"):
            return 0
        firsts = np.ma.filled(threads["first"], self.trace.duration)
        return int(firsts[threads["lost"] > 0].max())

    def section(
        self, title: str, *content: RenderableType, side: str = ""
    ) -> Iterator[RenderableType]:
        """Put a title over some content; the title says whether events were lost."""
        if self.trace.loss:
            side = f"with loss; {side}" if side else "with loss"
        yield ""
        yield Rule(title, side, plain=self.plain)
        yield Padding(Group(*content), (0, 0, 0, 2), expand=False)

    def grid(self, *heads: str) -> Grid:
        """Make a table: columns of numbers, of bars (after "share") and of names."""
        grid = Grid(
            box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style=SIDE, show_edge=False
        )
        for head in heads:
            if head == "share":
                grid.add_column(head, justify="right", no_wrap=True)
                grid.add_column("", width=self.bar_width, no_wrap=True)
            elif head in ("function", "where", "thread", "active"):
                grid.add_column(head, overflow="crop")
            else:
                grid.add_column(head, justify="right", no_wrap=True)
        return grid

    def share(self, part: float, whole: float) -> tuple[Text, Text]:
        """Return the two cells of the share column."""
        bar = draw_bar(part / whole if whole > 0 else 0.0, self.bar_width, plain=self.plain)
        return Text(show_percent(part, whole)), bar

    def function(self, row: int) -> Name:
        """Name a function by its module and its qualified name."""
        if row < 0:
            return Name("(unknown)", plain=self.plain, style=SIDE)
        part = self.trace.functions[row : row + 1]
        name, module = part["name"][0], part["module"][0]
        known = name or "(no name)"
        bare = module in (None, "builtins") or (module == "__main__" and known != "<module>")
        return Name(known if bare else f"{module}.{known}", plain=self.plain)

    @staticmethod
    def more(count: int, what: str, rest: str, share: str = "") -> Text:
        """Report how many rows a table leaves out, and their sum."""
        share = f" ({share})" if share else ""
        return Text(f"and {count:,} more {what}, {rest}{share}", style=SIDE)

    def has_calls(self) -> bool:
        """Whether there is a tree of calls; spans alone make one, too."""
        in_tree = (kind for kind in self.recorded if KINDS[kind][1] == "call")
        return bool(self.kinds & CALL_BITS) or next(in_tree, None) is not None
