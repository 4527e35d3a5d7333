"""Where it goes: the own lines with the most working time, and with the most bytes at the peak.

`analyze` says that in any case, also where no rule finds anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .findings import Case
from .first import OwnLine, of_lines, whole_of, working_time
from .tree import Tree

if TYPE_CHECKING:
    from ..tables.column import Array

#: How many lines of each sort, and how many functions that a line calls.
_LINES, _BELOW = 3, 3


class Called(NamedTuple):
    """A function that an own line called; its ns or bytes are with all that it called."""

    name: str
    calls: int
    value: int


@dataclass(frozen=True)
class Spot:
    """An own line that much goes to.

    Attributes
    ----------
    sort : str
        ``time``: values are ns of work; ``peak``: bytes at the peak.
    line : OwnLine
        The line, with its value and share.
    calls : int
        How often the line called something; of a function itself, how often that was called.
    waited : int
        ns in which the line waited, beside its work; of ``time`` alone.
    called : tuple of Called
        What it called, the largest value first.
    """

    sort: str
    line: OwnLine
    calls: int
    waited: int
    called: tuple[Called, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the spot as a JSON object."""
        return {
            "sort": self.sort, **self.line.as_dict(), "calls": self.calls, "waited": self.waited,
            "called": [each._asdict() for each in self.called],
        }  # fmt: skip


def _called(tree: Tree, line: OwnLine, figure: Array) -> tuple[Called, ...]:
    if line.line is None:
        return ()
    made = (tree.caller == line.function) & (tree.line == line.line)
    outer = np.flatnonzero(tree.outermost(np.where(made, tree.function, -1)))
    functions, group = np.unique(tree.function[outer], return_inverse=True)
    values, calls = np.zeros((2, len(functions)), np.int64)
    np.add.at(values, group, figure[outer])
    np.add.at(calls, group, tree.own("calls")[outer])
    order = np.argsort(-values, kind="stable")[:_BELOW]
    return tuple(
        Called(tree.functions[functions[row]][0] or "(no name)", int(calls[row]), int(values[row]))
        for row in order.tolist()
        if values[row] > 0 and functions[row] >= 0
    )


def find_spots(case: Case) -> list[Spot]:
    """Find the own lines with the most working time, then those with the most bytes at the peak.

    Returns
    -------
    list of Spot
        At most three of each sort.
    """
    tree, lines = case.tree, case.lines
    time, spots = working_time(lines), []
    waits = lines["waited"] + lines["blocked"]
    calls_of_functions = tree.by_function()["calls"]
    for sort, values, whole, figure in (
        ("time", time, whole_of(tree, time), "total"),
        ("peak", lines["at_peak"], int(tree.facts["peak"]), "at_peak"),
    ):
        for line in of_lines(tree, lines, values, whole, _LINES):
            number = -1 if line.line is None else line.line
            row = (lines["function"] == line.function) & (lines["line"] == number)
            of_itself = line.line is None
            calls = calls_of_functions[line.function] if of_itself else lines["calls"][row][0]
            waited = int(waits[row][0]) if sort == "time" else 0
            called = _called(tree, line, tree.below(figure))
            spots.append(Spot(sort, line, int(calls), waited, called))
    return spots
