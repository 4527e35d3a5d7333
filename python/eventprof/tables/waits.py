"""The table of waits: when threads stopped, what for, and who let them go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from .column import Array, Column, Words
from .event_rows import name_column, number
from .kinds import NUMBERS
from .table import Table

if TYPE_CHECKING:
    from ..trace.recorded import Recorded

_BEGIN, _END, _WAKER = (NUMBERS[name] for name in ("WAIT_BEGIN", "WAIT", "WAKER"))
_GIL, _LOCK = (_core.WAIT_WORDS.index(word) for word in ("gil", "lock"))
_KINDS = 1 << _BEGIN | 1 << _END | 1 << _WAKER
#: Of a wait that went on when the window ended; as in the column flags of calls.
OPEN_AT_END = 2
#: The interpreter waits for its lock 5 ms at a time, and without that lock a thread spins before it
#: waits for another one: what follows after less is the same wait.
_SAME_WAIT_NS = 100_000

_COLUMNS = ("time", "thread", "kind", "word", "caller", "caller_line")


def _events(trace: Recorded, own: Array | None) -> dict[str, Array]:
    """Return the events of waits, by thread and time; only these are in memory."""
    columns = (*_COLUMNS, "around", "own_caller", "own_line")
    parts: list[dict[str, Array]] = []

    def take(batch: dict[str, Array]) -> bool:
        parts.append(batch)
        return True

    if trace._has_waits:
        is_own = b"" if own is None else own.astype(np.uint8).tobytes()
        window = (0, trace.duration + 1)
        trace._core.rows(*window, _KINDS, None, None, _COLUMNS, take, None, is_own)
    if not parts:
        empty = {"time": np.int64, "word": np.uint64, "kind": np.uint8, "around": np.int64}
        return {name: np.empty(0, empty.get(name, np.int32)) for name in columns}
    joined = {name: np.concatenate([part[name] for part in parts]) for name in columns}
    order = np.argsort(joined["thread"], kind="stable")  # by time already
    return {name: values[order] for name, values in joined.items()}


def rows_of_waits(trace: Recorded, own: Array | None = None) -> dict[str, Array]:
    """Return the columns of waits, by thread. A wait for the interpreter's lock is in parts.

    Parameters
    ----------
    trace : Recorded
        The trace.
    own : array of bool, optional
        Of each function, whether it is own code. ``own_caller`` and ``own_line`` are the innermost
        own line that waited or called what waited; -1: there was none, or `own` is None.
    """
    events = _events(trace, own)
    kind, thread, time, word = (events[name] for name in ("kind", "thread", "time", "word"))
    following = np.append(thread[1:], -1) == thread
    is_end = kind == _END
    # The end of a wait follows its begin, with the waker between.
    ends = np.append(is_end[1:], False) | np.append(is_end[2:], [False, False])[: len(is_end)]
    is_open = (kind == _BEGIN) & ~(following & ends)
    row = np.flatnonzero(is_end | is_open)
    is_open = is_open[row]
    duration = np.where(is_open, trace.duration - time[row], (word[row] >> 3).astype(np.int64))
    start = np.where(is_open, time[row], np.maximum(time[row] - duration, 0))
    before = np.maximum(row - 1, 0)
    is_after = (thread[before] == thread[row]) & (before < row)
    is_woken = ~is_open & (kind[before] == _WAKER) & is_after
    # Only the parts of a spin for a lock have no begin.
    is_part = ~is_open & ~is_woken & ~((kind[before] == _BEGIN) & is_after)
    waker = np.where(is_woken, word[before], 0)
    return {
        "start": start,
        "duration": np.where(is_open, duration, time[row] - start),
        "thread": thread[row],
        # Of a damaged file, or of a later version's, it may be none that is known.
        "kind": np.minimum(word[row] & 7, _core.WAIT_WORDS.index("other")).astype(np.int8),
        "waker": _thread_rows(trace, waker),
        "caller": events["caller"][row],
        "caller_line": events["caller_line"][row],
        "flags": np.where(is_open, OPEN_AT_END, 0).astype(np.uint8),
        "spins": is_part & ((word[row] & 7) == _LOCK),
        **{name: events[name][row] for name in ("around", "own_caller", "own_line")},
    }


def _thread_rows(trace: Recorded, native: Array) -> Array:
    """Return the rows of threads with these numbers of the system; -1: none.

    Of threads that had the same number one after the other, it is the last.
    """
    rows = dict(zip(trace.threads["native_id"].tolist(), range(len(trace.threads)), strict=True))
    return np.array([rows.get(number, -1) for number in native.tolist()], np.int32)


def _joined(columns: dict[str, Array]) -> dict[str, Array]:
    """Join the parts of waits for the interpreter's lock, and spins with the waits after them."""
    start, kind, spins = columns["start"], columns["kind"], columns.pop("spins")
    end = start + columns["duration"]
    goes_on = np.zeros(len(start), bool)
    if len(start) > 1:
        goes_on[1:] = (
            ((kind[1:] == _GIL) | (spins[:-1] & _equals_before(columns, "around", "caller_line")))
            & _equals_before(columns, "thread", "kind")
            & (start[1:] - end[:-1] < _SAME_WAIT_NS)
        )
    first = np.flatnonzero(~goes_on)
    if not len(first):
        return columns
    last = np.append(first[1:], len(start)) - 1
    joined = {name: values[first] for name, values in columns.items()}
    joined["duration"] = end[last] - start[first]
    joined |= {name: columns[name][last] for name in ("flags", "waker")}
    return joined


def _equals_before(columns: dict[str, Array], *names: str) -> Array:
    """Return which rows but the first have the values of the row before."""
    same = np.ones(max(len(columns[names[0]]) - 1, 0), bool)
    for name in names:
        same &= columns[name][1:] == columns[name][:-1]
    return same


def columns_of_waits(trace: Recorded, own: Array | None = None) -> dict[str, Array]:
    """Return the columns of `Trace.waits`, in order of start; `own` as of `rows_of_waits`."""
    columns = _joined(rows_of_waits(trace, own))
    order = np.argsort(columns["start"], kind="stable")
    return {name: values[order] for name, values in columns.items()}


def waits_table(trace: Recorded) -> Table:
    """Make `Trace.waits`."""
    columns = columns_of_waits(trace)

    def text(name: str, doc: str) -> Column:
        of_functions = trace.functions._column(name)
        codes = np.append(of_functions.values(), of_functions.values().dtype.type(-1))
        return Column(name, lambda: codes[columns["caller"]], words=of_functions.words, doc=doc)

    numbers: dict[str, tuple[str, str, Any]] = {
        "start": ("ns", "since the window's start", "never"),
        "duration": ("ns", "how long it was", "never"),
        "thread": ("", "row of threads", "never"),
        "waker": ("", "row of threads: which let it go on", "negative"),
        "caller": ("", "row of functions: where it waited", "negative"),
        "caller_line": ("", "the line there", "negative"),
        "flags": ("", "2: it went on when the window ended", "never"),
    }
    made = {name: number(name, columns[name], *about) for name, about in numbers.items()}
    kind = Column("kind", lambda: columns["kind"], null="never",
                  words=Words(lambda: _core.WAIT_WORDS), doc="what it waited for")  # fmt: skip
    name = name_column(trace, columns["caller"])
    file = text("file", "its file")
    of_table = [
        *(made[name] for name in ("start", "duration", "thread")),
        *(kind, made["waker"], name, file),
        *(made[name] for name in ("caller_line", "caller", "flags")),
    ]
    return Table(trace._title("waits"), of_table, len(columns["start"]))
