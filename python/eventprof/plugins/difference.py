"""What changed between two counts of a test: by function, with the line of the call."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from .._words import show_bytes
from .counts import Counts, Place, Row

_LINES = 15


class Change(NamedTuple):
    """A row of an owner that changed."""

    function: str
    place: Place | None
    before: Row | None
    after: Row | None
    is_cause: bool  # the function itself was called as often as before
    compared: bool = True  # there was something before

    def by(self, kind: str) -> int:
        """Return how much this row changed a count."""
        row = self.after or self.before
        if row is None or kind not in _kinds_of(row):
            return 0
        index = {"allocations": 1, "retained": 2}.get(kind, 0)
        before, after = (side[1:] if side else (0, 0, 0) for side in (self.before, self.after))
        return after[index] - before[index]

    def __str__(self) -> str:
        file, line = self.place or ("", 0)
        where = f"{file.rpartition('/')[2]}:{line}" if line > 0 else file.rpartition("/")[2]
        what = f"{self.function}, {where}" if where else f"{self.function}, a line that is gone"
        row = self.after or self.before
        tell = _memory if row is None or row[0] == "" else _calls
        if self.compared:
            return f"{what}: {tell(self.before, self.after)}"
        return f"{what}: {re.sub('0(?: B)? -> ', '', tell(None, self.after))}"


def _kinds_of(row: Row) -> tuple[str, ...]:
    """Return the counts to which a row contributes."""
    if row[0]:
        return ("c_calls",) if row[2] else ("calls",)
    return ("allocations", "bytes", "peak", "retained")


def _calls(before: Row | None, after: Row | None) -> str:
    callee = (after or before or ("",))[0]
    numbers = (before[1] if before else 0), (after[1] if after else 0)
    return f"calls {callee} {numbers[0]:,} -> {numbers[1]:,} times"


def _memory(before: Row | None, after: Row | None) -> str:
    sizes = [(row[1], row[2], row[3]) if row else (0, 0, 0) for row in (before, after)]
    text = f"allocates {show_bytes(sizes[0][0])} -> {show_bytes(sizes[1][0])}"
    text += f" in {sizes[0][1]:,} -> {sizes[1][1]:,} blocks"
    if sizes[0][2] != sizes[1][2]:
        text += f", keeps {show_bytes(sizes[0][2])} -> {show_bytes(sizes[1][2])}"
    return text


def aligned(before: Sequence[Row], after: Sequence[Row]) -> Iterator[tuple[int | None, int | None]]:
    """Pair the old rows of a function with the new ones; None stands for a missing partner.

    Notes
    -----
    The order of the callees is compared, not the line numbers: any edit above changes these.
    """
    # Equal rows are paired first: of two calls of one function, one may not have changed.
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for word, a0, a1, b0, b1 in matcher.get_opcodes():
        if word == "equal":
            yield from zip(range(a0, a1), range(b0, b1), strict=True)
            continue
        callees = [row[0] for row in before[a0:a1]], [row[0] for row in after[b0:b1]]
        within = difflib.SequenceMatcher(None, *callees, autojunk=False)
        for inner, c0, c1, d0, d1 in within.get_opcodes():
            if inner == "equal":
                pairs = zip(range(c0, c1), range(d0, d1), strict=True)
                yield from ((a0 + c, b0 + d) for c, d in pairs)
            else:
                yield from ((a0 + c, None) for c in range(c0, c1))
                yield from ((None, b0 + d) for d in range(d0, d1))


def changes(before: Mapping[str, Sequence[Row]] | None, now: Counts) -> list[Change]:
    """Find the rows that changed.

    Parameters
    ----------
    before : mapping of str to sequence of Row, optional
        The rows of the committed counts.
    now : Counts
        The counts of this run.

    Returns
    -------
    list of Change
        The changed rows, in the order of functions and lines.
    """
    compared, before = before is not None, before or {}
    times = _times(before), _times(now.functions)
    found = []
    for name in sorted({*before, *now.functions}):
        old, new = before.get(name, ()), now.functions.get(name, ())
        places = now.places.get(name, ())
        for a, b in aligned(old, new):
            rows = (None if a is None else old[a]), (None if b is None else new[b])
            if rows[0] != rows[1]:
                place = None if b is None else places[b]
                is_cause = not compared or times[0][name] == times[1][name]
                found.append(Change(name, place, *rows, is_cause, compared))
    return found


def _times(functions: Mapping[str, Sequence[Row]]) -> Counter[str]:
    """Return how often each function was called by owners."""
    found: Counter[str] = Counter()
    for rows in functions.values():
        for callee, number, *_ in rows:
            if callee:
                found[callee] += number
    return found


def explain(
    heads: Sequence[str], kinds: Sequence[str], found: Sequence[Change], end: Sequence[str]
) -> str:
    """Report what changed, in 15 lines.

    Parameters
    ----------
    heads : sequence of str
        The first lines, which say what counts changed.
    kinds : sequence of str
        The words of these counts.
    found : sequence of Change
        All changes.
    end : sequence of str
        The last lines.

    Returns
    -------
    str
        The text. Functions that were called as often as before come first: these have changed, and
        others are only called more often by them.
    """

    def weight(change: Change) -> tuple[bool, int]:
        # By the first changed count to which this row contributes.
        for index, kind in enumerate(kinds):
            if value := abs(change.by(kind)):
                return (not change.is_cause, index * 10**15 - value)
        return (not change.is_cause, 10**18)

    changed = sorted((each for each in found if any(map(each.by, kinds))), key=weight)
    room = _LINES - len(heads) - len(end)
    lines = [f"  {change}" for change in changed[:room]]
    if len(changed) > room:
        lines[room - 1 :] = [f"  ... and {len(changed) - room + 1:,} more lines of functions"]
    return "\n".join([*heads, *lines, *end])
