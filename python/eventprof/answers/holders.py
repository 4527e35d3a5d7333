"""Who holds memory: at the peak, at the end, and for a short time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from ..tables.by_function import ALL_DOMAINS, answer_table, by_function, row_numbers, texts_of
from ..tables.column import Array
from ..tables.table import Table

if TYPE_CHECKING:
    from ..trace.recorded import Recorded

By: TypeAlias = Literal["function", "site", "stack"]


@dataclass(frozen=True, repr=False)
class Peak:
    """The first instant at which the most bytes were alive.

    Attributes
    ----------
    time : int or None
        In ns since the window's start; None: nothing was ever alive.
    bytes, blocks : int
        The blocks of the window that were alive then.
    by_function, by_site, by_stack : Table
        The same by function, site or stack, the most first.
    loss : str
        What is missing and may falsify the answer, in words; empty: nothing.
    """

    time: int | None
    bytes: int
    blocks: int
    by_function: Table
    by_site: Table
    _by_stack: Callable[[], Table] | None = field(compare=False)
    loss: str = ""

    @cached_property
    def by_stack(self) -> Table:
        """Whose it was, by the open calls."""
        assert self._by_stack is not None  # only a copy has none, and it has the table
        return self._by_stack()

    def __getstate__(self) -> dict[str, object]:
        """Return what a copy in another process needs, which has no trace to ask."""
        return {**self.__dict__, "by_stack": self.by_stack, "_by_stack": None}

    def __repr__(self) -> str:
        if self.time is None:
            return f"<no peak: nothing was allocated{self.loss}>"
        return (
            f"<peak at {self.time:,} ns: {self.bytes:,} bytes in {self.blocks:,} blocks"
            f"{self.loss}>\n"
            f"{self.by_site!r}"
        )


def _check_by(by: object) -> None:
    if not isinstance(by, str):
        raise TypeError(f"by must be 'site', 'function' or 'stack', not {by!r}")


def _held(trace: Recorded, title: str, name: str, by: By) -> Table:
    """Make a table of who holds live, at_peak or temporary blocks."""
    tree = trace._tree
    if by == "function":
        sums = tree.by_function()
        function = np.append(np.arange(len(tree.functions)), -1)
        held = sums[f"{name}_self"], sums[f"{name}_blocks"]
        function, _, sizes, blocks = tree.summed(function, np.full(len(function), -1), *held)
        return _table(trace, title, function, None, sizes, blocks)
    if tree.facts["folded"]:  # what was folded is on no line
        return groups_table(trace, title, grouped(trace, name, by), by)
    if by == "stack":
        stacks, sizes, blocks = tree.by_stack(name)
        columns = {"stack": stacks, "bytes": sizes, "blocks": blocks}
        return answer_table(trace, title, columns)
    function, line, sizes, blocks = tree.by_place(name)
    return _table(trace, title, function, line, sizes, blocks)


def grouped(trace: Recorded, name: str, by: By) -> tuple[Array, Array, Array]:
    """Return keys, bytes and blocks from the rows of all blocks."""
    if name == "temporary":
        return trace._core.temporary(by)
    return trace._core.alive(-1 if name == "live" else trace._core.peak(ALL_DOMAINS)[3], by)


def _table(
    trace: Recorded, title: str, function: Array, line: Array | None, sizes: Array, blocks: Array
) -> Table:
    columns = by_function(trace, function)
    if line is not None:
        columns["file"] = texts_of(trace, "file", function)
        columns["line"] = row_numbers(line)
    return answer_table(trace, title, columns | {"bytes": sizes, "blocks": blocks})


def groups_table(trace: Recorded, title: str, groups: tuple[Array, Array, Array], by: By) -> Table:
    """Make a table of groups of blocks, each by a key."""
    keys, sizes, blocks = groups
    if by == "stack":
        stacks = [stack_text(trace, int(key)) for key in keys]
        columns = {"stack": stacks, "bytes": sizes, "blocks": blocks}
        return answer_table(trace, title, columns)
    if by == "function":
        return _table(trace, title, keys, None, sizes, blocks)
    functions, _, lines = trace._core.sites()
    rows = np.where(keys > 0, functions[keys], -1).astype(np.int32)
    line = np.where(keys > 0, lines[keys], -1).astype(np.int32)
    # Several instructions of one line are shown as one line.
    summed = trace._tree.summed(rows, line, sizes, blocks)
    return _table(trace, title, *summed)


def stack_text(trace: Recorded, stack: int) -> str | None:
    """Return the calls of a stack, outermost first, as ``a;b;c``."""
    parents, sites, _ = trace._core.stacks()
    functions, _, _ = trace._core.sites()
    names = trace.functions["name"]
    parts = []
    while stack >= 0:
        row = functions[sites[stack]]
        parts.append(names[row] if row >= 0 and names[row] is not None else "?")
        stack = parents[stack]
    return ";".join(reversed(parts)) if parts else None


def peak(trace: Recorded) -> Peak:
    """Answer `Trace.peak`."""
    facts = trace._tree.facts
    time = facts["peak_time"]
    return Peak(
        time if time >= 0 else None,
        facts["peak"],
        facts["peak_blocks"],
        _held(trace, "live at the peak, by function", "at_peak", "function"),
        _held(trace, "live at the peak, by site", "at_peak", "site"),
        lambda: _held(trace, "live at the peak, by stack", "at_peak", "stack"),
        trace._title(""),
    )


def leaks(trace: Recorded, by: By = "site") -> Table:
    """Answer `Trace.leaks`."""
    _check_by(by)
    return _held(trace, f"live at the end, by {by}", "live", by)


def temporary(trace: Recorded, by: By = "site") -> Table:
    """Answer `Trace.temporary`."""
    _check_by(by)
    return _held(trace, f"temporary, by {by}", "temporary", by)
