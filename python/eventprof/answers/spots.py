"""Where it goes: the own lines with the most working time, and with the most bytes at the peak.

`analyze` says that in any case, also where no rule finds anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._words import plural, show_bytes, show_ns
from ..base.text import short_path
from .first import OwnLine, of_lines, whole_of, working_time
from .table import own_lines
from .tree import Tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..tables.column import Array
    from ..trace import Trace

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


def find_spots(trace: Trace, own: Sequence[str] = ()) -> list[Spot]:
    """Find the own lines with the most working time, then those with the most bytes at the peak.

    Parameters
    ----------
    trace : Trace
        The trace to look at.
    own : sequence of str
        Globs: what own code is. Without any, those of `Trace.set_own`.

    Returns
    -------
    list of Spot
        At most three of each sort.
    """
    tree = trace._tree
    lines = own_lines(tree, tuple(own) or trace._own_patterns)
    calls_of = {
        (int(function), int(line)): (int(calls), int(waited))
        for function, line, calls, waited in zip(
            lines["function"], lines["line"], lines["calls"],
            lines["waited"] + lines["blocked"], strict=True,
        )
    }  # fmt: skip
    of_function = tree.by_function()["calls"]
    time, spots = working_time(lines), []
    for sort, values, whole, figure in (
        ("time", time, whole_of(tree, time), "total"),
        ("peak", lines["at_peak"], int(tree.facts["peak"]), "at_peak"),
    ):
        for line in of_lines(tree, lines, values, whole, _LINES):
            known = -1 if line.line is None else line.line
            calls, waited = calls_of[line.function, known]
            if line.line is None:
                calls = int(of_function[line.function])
            called = _called(tree, line, tree.below(figure))
            spots.append(Spot(sort, line, calls, waited if sort == "time" else 0, called))
    return spots


def spot_lines(spots: Sequence[Spot]) -> Iterator[str]:
    """Yield spots as lines of text: a head for each sort, and a line or two for each spot."""
    heads = {"time": "where the time goes, by own line", "peak": "where the peak goes, by own line"}
    shows = {"time": show_ns, "peak": show_bytes}
    for sort, head in heads.items():
        chosen = [spot for spot in spots if spot.sort == sort]
        if chosen:
            yield head
        for spot in chosen:
            line, show = spot.line, shows[sort]
            number = "" if line.line is None else f":{line.line}"
            place = f"{short_path(line.file or '?')}{number}"
            what = f"in {line.name}" if line.line else f"{line.name} itself, without its calls"
            each = f", {plural(spot.calls, 'call')}" if spot.calls else ""
            if sort == "time" and spot.calls > 1:
                each += f", {show_ns(line.value // spot.calls)} each"
            waits = f", beside {show_ns(spot.waited)} of waiting" if spot.waited else ""
            yield f"   {show(line.value)}, {line.share:.0%}  {place}  {what}{each}{waits}"
            if spot.called:
                parts = [
                    f"{each.name} {show(each.value)} ({plural(each.calls, 'call')})"
                    for each in spot.called
                ]
                yield f"      through {', '.join(parts)}"
