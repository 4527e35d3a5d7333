"""Who waited for whom: waits by place, and what those who ended them were doing meanwhile."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import _core
from ..tables.column import Column, Words
from ..tables.event_rows import text_of_functions
from ..tables.waits import columns_of_waits, table_of_waits
from .own import find_own

if TYPE_CHECKING:
    from ..tables.column import Array
    from ..tables.table import Table
    from ..trace.recorded import Recorded

#: Of the waits at a place, the longest so many tell what their wakers did.
_LONGEST = 2000


class KindWords(NamedTuple):
    """The words for a kind of wait."""

    what: str  #: After "waits for".
    doing: str  #: After "the thread was".
    sums: str  #: After a time, that of all such waits: "3 ms ...".


WORDS = {
    "gil": KindWords("the GIL", "waiting for the GIL", "for the GIL"),
    "lock": KindWords("a lock", "waiting for a lock", "for locks"),
    "sleep": KindWords("a time", "asleep", "asleep"),
    "io": KindWords("I/O", "in I/O", "in I/O"),
    "process": KindWords("a process", "waiting for a process", "for processes"),
    "processor": KindWords("a processor", "without a processor", "for a processor"),
    "greenlet": KindWords(
        "other greenlets", "switched out for other greenlets", "for other greenlets"
    ),
    "critical": KindWords(
        "an object that another thread uses", "waiting for an object", "for objects"
    ),
    "world": KindWords(
        "all threads to stop and go on", "stopped with all threads", "with all threads stopped"
    ),
    "other": KindWords(
        "something that is not known",
        "waiting for something that is not known",
        "for something else",
    ),
}


class Place(NamedTuple):
    """Where something waited, and for what."""

    kind: str
    name: str | None
    file: str | None
    line: int | None
    type: str | None = None

    @property
    def what(self) -> str:
        """What it waits for, after "waits for"."""
        of_type = "" if self.type is None else f" (of type {self.type})"
        return WORDS[self.kind].what + of_type


class Waits(NamedTuple):
    """All waits for one thing at one place.

    Attributes
    ----------
    place : Place
        Where, and for what: the own line that waited, or called what waited. If no own call was
        open, where it waited.
    through : Place or None
        Where it waited, if that is in code that is not own, below `place`.
    is_own : bool
        Whether `place` is an own line.
    total, longest : int
        ns.
    times : int
        How often.
    at_once : int
        How many threads waited there at the same time, at the most.
    threads : tuple of str
        The names of those that waited, the one that waited longest first.
    wakers : tuple of (str, int)
        The threads that let these go on, and how long these had waited, in ns; the most first.
    meanwhile : tuple of (Place, int)
        Where those threads waited themselves in that time, and how long, in ns.
    """

    place: Place
    through: Place | None
    is_own: bool
    total: int
    longest: int
    times: int
    at_once: int
    threads: tuple[str, ...]
    wakers: tuple[tuple[str, int], ...]
    meanwhile: tuple[tuple[Place, int], ...]

    @property
    def is_lock_of_own(self) -> bool:
        """Whether an own line waits for a lock itself, and not in a library's queue or event."""
        return self.place.kind == "lock" and self.is_own and self.through is None


class _Columns:
    """The columns of waits, and the places."""

    def __init__(self, trace: Recorded) -> None:
        own = find_own(trace._core.functions(), trace._own_patterns)
        self.table = table = columns_of_waits(trace, own[:-1])
        self.start, self.duration = table["start"], table["duration"]
        self.end = self.start + self.duration
        self.thread, self.waker = table["thread"], table["waker"]
        names = ("kind", "own_caller", "own_line", "caller", "caller_line", "type")
        keys, place = np.unique(
            np.stack([table[name].astype(np.int64) for name in names]), axis=1, return_inverse=True
        )
        self.place = place.reshape(-1)
        self.keys = keys
        name_of, file_of = (trace.functions._column(word).items() for word in ("name", "file"))

        def place_of(kind: int, function: int, line: int, type_: int) -> Place:
            known_line = None if line < 0 else line
            known_type = None if type_ < 0 else name_of[type_]
            if function < 0:
                return Place(_core.WAIT_WORDS[kind], None, None, known_line, known_type)
            name, file = name_of[function], file_of[function]
            return Place(_core.WAIT_WORDS[kind], name, file, known_line, known_type)

        self.places: list[Place] = []
        self.through: list[Place | None] = []
        self.is_own = (keys[1] >= 0).tolist()
        for kind, own_caller, own_line, caller, line, type_ in keys.T.tolist():
            waited = place_of(kind, caller, line, type_)
            place_of_own = (
                place_of(kind, own_caller, own_line, type_) if own_caller >= 0 else waited
            )
            self.places.append(place_of_own)
            self.through.append(None if place_of_own == waited else waited)
        self.of_thread = {
            row: np.flatnonzero(self.thread == row) for row in np.unique(self.thread).tolist()
        }

    def during(self, row: int) -> Counter[int]:
        """Count for how long the waker of a wait waited itself meanwhile, in ns by place."""
        own = self.of_thread.get(int(self.waker[row]))
        found: Counter[int] = Counter()
        if own is None:
            return found
        # Waits of one thread follow each other: those that overlap are neighbours.
        first = np.searchsorted(self.end[own], self.start[row], side="right")
        last = np.searchsorted(self.start[own], self.end[row], side="left")
        for other in own[first:last].tolist():
            overlap = min(self.end[other], self.end[row]) - max(self.start[other], self.start[row])
            found[int(self.place[other])] += int(overlap)
        return found


#: In `Trace.waits`: the waker waited for nothing, for most of the time.
_WORK = "work"


def waits_table(trace: Recorded) -> Table:
    """Make `Trace.waits`: with what the waker did meanwhile, and in which own line."""
    columns = _Columns(trace)

    @cache
    def meanwhile() -> Array:
        """Return what wakers did, and the rows of functions and the lines: 60 us a wait."""
        doing, function, line = found = np.full((3, len(columns.start)), -1, np.int32)
        for row in np.flatnonzero(columns.waker >= 0).tolist():
            most = columns.during(row).most_common(1)
            doing[row] = len(_core.WAIT_WORDS)
            if most and 2 * most[0][1] >= columns.duration[row]:
                kind, own, own_line, caller, caller_line, _ = columns.keys[:, most[0][0]].tolist()
                doing[row] = kind
                function[row], line[row] = (own, own_line) if own >= 0 else (caller, caller_line)
        return found

    words = Words(lambda: (*_core.WAIT_WORDS, _WORK))
    return table_of_waits(
        trace,
        columns.table,
        [
            Column("meanwhile", lambda: meanwhile()[0], words=words,
                   doc="what the waker did most of that time: another wait, or work"),
            text_of_functions(trace, "meanwhile_name", "name", lambda: meanwhile()[1], "and where"),
            Column("meanwhile_line", lambda: meanwhile()[2], np.int32, null="negative",
                   doc="the line there"),
        ],
    )  # fmt: skip


def by_place(trace: Recorded) -> list[Waits]:
    """Return the waits by place and kind, the longest in all first."""
    columns = _Columns(trace)
    names = trace.threads["name"]
    called = [names[row] or f"thread {row}" for row in range(len(trace.threads))]
    found = []
    for number, place in enumerate(columns.places):
        rows = np.flatnonzero(columns.place == number)
        wakers: Counter[int] = Counter()
        meanwhile: Counter[int] = Counter()
        for row in rows[np.argsort(-columns.duration[rows], kind="stable")][:_LONGEST].tolist():
            if columns.waker[row] >= 0:
                wakers[int(columns.waker[row])] += int(columns.duration[row])
                meanwhile += columns.during(row)
        found.append(
            Waits(
                place,
                columns.through[number],
                columns.is_own[number],
                int(columns.duration[rows].sum()),
                int(columns.duration[rows].max()),
                len(rows),
                _at_once(columns.start[rows], columns.end[rows]),
                tuple(called[row] for row in _most(columns.thread[rows], columns.duration[rows])),
                tuple((called[row], time) for row, time in wakers.most_common()),
                tuple((columns.places[at], time) for at, time in meanwhile.most_common()),
            )
        )
    return sorted(found, key=lambda one: -one.total)


def _at_once(start: Array, end: Array) -> int:
    """Return how many of some times overlap at the most."""
    changes = np.concatenate([np.ones(len(start), np.int64), np.full(len(end), -1)])
    # What ends at an instant is over before what begins then.
    order = np.lexsort((changes, np.concatenate([start, end])))
    return int(np.cumsum(changes[order]).max(initial=0))


def _most(threads: Array, durations: Array) -> list[int]:
    sums: Any = np.bincount(threads, weights=durations)
    return [row for row in np.argsort(-sums, kind="stable").tolist() if sums[row] > 0]
