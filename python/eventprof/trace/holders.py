"""Who holds memory: at the peak, at the end, and for a short time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

import numpy as np

from .by_function import ALL_DOMAINS, answer_table, by_function, row_numbers, texts_of
from .column import Array
from .table import Table
from .tables import Tables

if TYPE_CHECKING:
    from .trace import Trace

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
        """Give what a copy in another process needs, which has no trace to ask."""
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


class Holders(Tables):
    """Blocks by the function, line or stack that allocated them."""

    def _held(self, title: str, name: str, by: By) -> Table:
        """Make a table of who holds live, at_peak or temporary blocks."""
        tree = cast("Trace", self)._tree
        if tree.facts["folded"]:  # what was folded is on no line
            return self._groups(title, self._grouped(name, by), by)
        if by == "stack":
            stacks, sizes, blocks = tree.by_stack(name)
            columns = {"stack": stacks, "bytes": sizes, "blocks": blocks}
            return answer_table(self, title, columns)
        if by == "site":
            function, line, sizes, blocks = tree.by_place(name)
        else:
            owner = tree.function[tree.leaf_node]
            nowhere = np.full(len(owner), -1, dtype=np.int32)
            held = tree.leaves[name], tree.leaves[f"{name}_blocks"]
            function, line, sizes, blocks = tree.summed(owner, nowhere, *held)
        return self._table(title, function, line if by == "site" else None, sizes, blocks)

    def _grouped(self, name: str, by: By) -> tuple[Array, Array, Array]:
        """Give keys, bytes and blocks from the rows of all blocks."""
        if name == "temporary":
            return self._core.temporary(by)
        return self._core.alive(-1 if name == "live" else self._core.peak(ALL_DOMAINS)[3], by)

    def _table(
        self, title: str, function: Array, line: Array | None, sizes: Array, blocks: Array
    ) -> Table:
        columns = by_function(self, function)
        if line is not None:
            columns["file"] = texts_of(self, "file", function)
            columns["line"] = row_numbers(line)
        return answer_table(self, title, columns | {"bytes": sizes, "blocks": blocks})

    def _groups(self, title: str, groups: tuple[Array, Array, Array], by: By) -> Table:
        keys, sizes, blocks = groups
        if by == "stack":
            stacks = [self._stack_text(int(key)) for key in keys]
            columns = {"stack": stacks, "bytes": sizes, "blocks": blocks}
            return answer_table(self, title, columns)
        if by == "function":
            return self._table(title, keys, None, sizes, blocks)
        functions, _, lines = self._core.sites()
        rows = np.where(keys > 0, functions[keys], -1).astype(np.int32)
        line = np.where(keys > 0, lines[keys], -1).astype(np.int32)
        # Several instructions of one line are shown as one line.
        summed = cast("Trace", self)._tree.summed(rows, line, sizes, blocks)
        return self._table(title, *summed)

    def _stack_text(self, stack: int) -> str | None:
        """Give the calls of a stack, outermost first, as ``a;b;c``."""
        parents, sites, _ = self._core.stacks()
        functions, _, _ = self._core.sites()
        names = self.functions["name"]
        parts = []
        while stack >= 0:
            row = functions[sites[stack]]
            parts.append(names[row] if row >= 0 and names[row] is not None else "?")
            stack = parents[stack]
        return ";".join(reversed(parts)) if parts else None

    def peak(self) -> Peak:
        """Say when the most memory was alive, and which functions held it.

        Returns
        -------
        Peak
            Of what was allocated in the window, in all recorded domains.
        """
        facts = cast("Trace", self)._tree.facts
        time = facts["peak_time"]
        return Peak(
            time if time >= 0 else None,
            facts["peak"],
            facts["peak_blocks"],
            self._held("alive at the peak, by function", "at_peak", "function"),
            self._held("alive at the peak, by site", "at_peak", "site"),
            lambda: self._held("alive at the peak, by stack", "at_peak", "stack"),
            self._title(""),
        )

    def leaks(self, by: By = "site") -> Table:
        """Say which blocks were allocated in the window and were alive at its end.

        Parameters
        ----------
        by : {'site', 'function', 'stack'}
            The line that allocated it; the function; the open calls.

        Returns
        -------
        Table
            The most bytes first: function, name, module, and by site file and line, or by stack the
            stack as ``outermost;...;innermost``; bytes, blocks.

        Raises
        ------
        TypeError, ValueError
            `by` is none of these.
        """
        _check_by(by)
        return self._held(f"alive at the end, by {by}", "live", by)

    def temporary(self, by: By = "site") -> Table:
        """Say which blocks were freed in the call that made them, or before the next allocation.

        Parameters
        ----------
        by : {'site', 'function', 'stack'}
            As in `leaks`.

        Returns
        -------
        Table
            As `leaks`.

        Raises
        ------
        TypeError, ValueError
            `by` is none of these.
        """
        _check_by(by)
        return self._held(f"temporary, by {by}", "temporary", by)
