"""Who holds memory: at the peak, at the end, and for a short time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from .by_function import ALL_DOMAINS, answer_table, by_function, row_numbers, sum_by, texts_of
from .column import Array
from .table import Table
from .tables import Tables

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
    by_stack: Table
    loss: str = ""

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

    def _groups(self, title: str, groups: tuple[Array, Array, Array], by: By) -> Table:
        keys, sizes, blocks = groups
        columns: dict[str, Any]
        if by == "function":
            columns = by_function(self, keys)
        elif by == "site":
            functions, _, lines = self._core.sites()
            rows = np.where(keys > 0, functions[keys], -1).astype(np.int32)
            line = np.where(keys > 0, lines[keys], -1).astype(np.int32)
            # Several instructions of one line are shown as one line.
            (rows, line), group = np.unique(np.stack([rows, line]), axis=1, return_inverse=True)
            group = group.reshape(-1)
            sizes, blocks = (sum_by(group, values, len(rows)) for values in (sizes, blocks))
            order = np.argsort(-sizes, kind="stable")
            rows, line, sizes, blocks = rows[order], line[order], sizes[order], blocks[order]
            columns = {
                **by_function(self, rows),
                "file": texts_of(self, "file", rows),
                "line": row_numbers(line),
            }
        else:
            columns = {"stack": [self._stack_text(int(key)) for key in keys]}
        columns |= {"bytes": sizes, "blocks": blocks}
        return answer_table(self, title, columns)

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
        time, live, blocks, moment = self._core.peak(ALL_DOMAINS)
        tables = {
            by: self._groups(f"alive at the peak, by {by}", self._core.alive(moment, by), by)
            for by in ("function", "site", "stack")
        }
        return Peak(
            time if time >= 0 else None, live, blocks, tables["function"], tables["site"],
            tables["stack"], self._title(""),
        )  # fmt: skip

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
        return self._groups(f"alive at the end, by {by}", self._core.alive(-1, by), by)

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
        return self._groups(f"temporary, by {by}", self._core.temporary(by), by)
