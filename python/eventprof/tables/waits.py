"""The table of waits: when threads stopped, what for, and who let them go on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from .column import Array, Column, Words
from .event_rows import name_column, number, text_of_functions
from .kinds import NUMBERS
from .processes import process_of_threads
from .table import Table

if TYPE_CHECKING:
    from ..trace.recorded import Recorded

_BEGIN, _END, _WAKER, _OBJECT, _WRITE = (
    NUMBERS[name] for name in ("WAIT_BEGIN", "WAIT", "WAKER", "WAIT_OBJECT", "PIPE_WRITE")
)
_PIPE, _PROCESS = (_core.WAIT_OBJECTS.index(word) for word in ("pipe", "process"))
_GIL, _LOCK, _PROCESSOR, _OTHER, _CRITICAL = (
    _core.WAIT_WORDS.index(word) for word in ("gil", "lock", "processor", "other", "critical")
)
_KINDS = sum(1 << kind for kind in (_BEGIN, _END, _WAKER, _OBJECT, _WRITE))
#: Of a wait that went on when the window ended; as in the column flags of calls.
OPEN_AT_END = 2
#: The interpreter waits for its lock 5 ms at a time, and without that lock a thread spins before it
#: waits for another one: what follows after less is the same wait.
_SAME_WAIT_NS = 100_000
#: A process may begin to wait between the event of a write to its pipe and the write itself.
_LATE_NS = 1_000_000
#: The low bits of the value of a wait say what for, or which sort of object; the rest is a number.
_WHAT_BITS, _WHAT = 4, 15

_COLUMNS = ("time", "thread", "kind", "word", "function", "caller", "caller_line")


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
    is_write = events["kind"] == _WRITE
    writes = {name: events[name][is_write] for name in ("time", "thread", "word")}
    events = {name: values[~is_write] for name, values in events.items()}
    kind, thread, time, word = (events[name] for name in ("kind", "thread", "time", "word"))
    # Of a damaged file, or of a later version's, it may be none that is known.
    what = (word & _WHAT).astype(np.int8)
    what[what >= len(_core.WAIT_WORDS)] = _OTHER
    is_end = kind == _END
    row = np.flatnonzero(is_end)
    before = _before(kind, thread, row, 1)
    # What is known of a wait lies between its begin and its end: object, waker.
    waker = np.where(before == _WAKER, word[row - 1], 0)
    after_object = row - (before == _WAKER)
    has_object = _before(kind, thread, after_object, 1) == _OBJECT
    object_word = np.where(has_object, word[after_object - 1], 0)
    begin = after_object - has_object - 1
    has_begin = _before(kind, thread, begin + 1, 1) == _BEGIN
    # A begin without an end: the window ended.
    is_open = kind == _BEGIN
    is_open[begin[has_begin]] = False
    opened = np.flatnonzero(is_open)
    # Only the parts of a spin for a lock have no begin and no object.
    is_part = (what[row] == _LOCK) & ~has_begin & (waker == 0) & ~has_object
    end = time[row]
    duration = np.minimum((word[row] >> _WHAT_BITS).astype(np.int64), end)
    order = np.argsort(np.concatenate([row, opened]), kind="stable")

    def with_open(of_ended: Array, of_open: Any) -> Array:
        of_open = np.broadcast_to(np.asarray(of_open, of_ended.dtype), opened.shape)
        return np.concatenate([of_ended, of_open])[order]

    columns = {
        "start": with_open(end - duration, time[opened]),
        "duration": with_open(duration, trace.duration - time[opened]),
        "kind": with_open(what[row], what[opened]),
        "object": with_open(object_word, 0),
        "flags": with_open(np.zeros(len(row), np.uint8), OPEN_AT_END),
        "spins": with_open(is_part, False),
    }
    for name in ("thread", "caller", "caller_line", "around", "own_caller", "own_line"):
        columns[name] = with_open(events[name][row], events[name][opened])
    # The events have the name of the kind, or of the type of the object.
    columns["type"] = with_open(events["function"][row], events["function"][opened])
    columns["type"][columns["kind"] != _CRITICAL] = -1
    columns["waker"] = _wakers(trace, with_open(waker, 0), columns)
    if len(trace.processes) > 1:
        _find_processes(trace, columns, writes)
    return columns


def _before(kind: Array, thread: Array, row: Array, steps: int) -> Array:
    """Return the kinds of the events before some rows, in the same thread; 0: there is none."""
    if not len(row):
        return kind[:0]
    found = np.maximum(row - steps, 0)
    same = (row >= steps) & (thread[found] == thread[np.minimum(row, len(thread) - 1)])
    return np.where(same, kind[found], 0)


def _find_processes(trace: Recorded, columns: dict[str, Array], writes: dict[str, Array]) -> None:
    """Find wakers in other processes: who wrote to the pipe, and the process that ended."""
    word, waker = columns["object"], columns["waker"]
    sort, unknown = word & _WHAT, waker < 0
    process = process_of_threads(trace)
    first_thread = np.searchsorted(process, np.arange(len(trace.processes))).tolist()
    pids = np.ma.filled(trace.processes["pid"], 0).tolist()
    thread_of = dict(zip(pids, first_thread, strict=True))
    for row in np.flatnonzero(unknown & (word != 0) & (sort == _PROCESS)).tolist():
        waker[row] = thread_of.get(int(word[row] >> _WHAT_BITS), -1)
    order = np.lexsort((writes["time"], writes["word"]))
    pipe, time, writer = (writes[name][order] for name in ("word", "time", "thread"))
    for row in np.flatnonzero(unknown & (word != 0) & (sort == _PIPE)).tolist():
        low, high = np.searchsorted(pipe, [word[row], word[row] + 1]).tolist()
        start = columns["start"][row]
        first = low + int(np.searchsorted(time[low:high], start))
        if first < high and time[first] <= start + columns["duration"][row]:
            waker[row] = writer[first]
        elif first > low and start - time[first - 1] < _LATE_NS:
            waker[row] = writer[first - 1]


def _wakers(trace: Recorded, native: Array, columns: dict[str, Array]) -> Array:
    """Return the rows of threads that had these numbers of the system then; -1: none.

    Greenlets of a thread have the thread's number, as have threads that lived one after the other:
    it is the one that had events around that time, and did not wait itself: a greenlet that is
    switched out waits.
    """
    threads = trace.threads
    id_of, first, last = (np.ma.filled(threads[name], 0) for name in ("native_id", "first", "last"))
    start, kind = columns["start"], columns["kind"]
    end = start + columns["duration"]
    is_exact = (kind != _GIL) & (kind != _PROCESSOR) & (kind != _OTHER)
    found = np.full(len(native), -1, np.int32)
    for native_id in np.unique(native[native > 0]):
        wanted = np.flatnonzero(native == native_id)
        time = end[wanted]
        for row in np.flatnonzero(id_of == native_id).tolist():
            out = np.flatnonzero((columns["thread"] == row) & is_exact)
            before = np.searchsorted(start[out], time, "right") - 1
            is_out = (before >= 0) & (time < np.append(end[out], -1)[before])
            is_it = (first[row] <= time) & (time <= last[row]) & ~is_out
            found[wanted[is_it | ((first[row] <= time) & (found[wanted] < 0))]] = row
    return found


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
    joined |= {name: columns[name][last] for name in ("flags", "waker", "object")}
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


def _calls_around(trace: Recorded, columns: dict[str, Array]) -> Array:
    """Return the row of calls in which each wait lies; -1: outside of all. It pairs all calls."""
    thread = trace._core.calls("thread")
    order = np.argsort(thread, kind="stable")  # by start already
    first = np.searchsorted(thread, np.arange(len(trace.threads) + 1), sorter=order)
    number = columns["around"] - 1  # among the calls of its thread
    found = np.full(len(number), -1, np.int32)
    known = number >= 0
    found[known] = order[first[columns["thread"][known]] + number[known]]
    return found


def table_of_waits(trace: Recorded, columns: dict[str, Array], more: Iterable[Column]) -> Table:
    """Make a table of `columns_of_waits`, with more columns at the end."""
    word = columns["object"]
    count = len(word)
    numbers: dict[str, tuple[str, str, Any]] = {
        "start": ("ns", "since the window's start", "never"),
        "duration": ("ns", "how long it was", "never"),
        "thread": ("", "row of threads", "never"),
        "waker": ("", "row of threads: which let it go on", "negative"),
        "caller": ("", "row of functions: where it waited", "negative"),
        "caller_line": ("", "the line there", "negative"),
        "own_caller": ("", "row of functions: the innermost own code there", "negative"),
        "own_line": ("", "the line there", "negative"),
        "flags": ("", "2: it went on when the window ended", "never"),
    }
    made = {name: number(name, columns[name], *about) for name, about in numbers.items()}
    kind = Column("kind", lambda: columns["kind"], null="never",
                  words=Words(lambda: _core.WAIT_WORDS), doc="what it waited for")  # fmt: skip
    object_words = Words(lambda: _core.WAIT_OBJECTS)
    known = np.minimum(word & _WHAT, len(_core.WAIT_OBJECTS) - 1).astype(np.int8)
    sort = np.where(word != 0, known, np.int8(-1))
    no_number = word >> _WHAT_BITS == 0
    of_table = [
        *(made[name] for name in ("start", "duration", "thread")),
        kind,
        Column("object", lambda: sort, words=object_words, doc="and of which sort that is"),
        Column("object_id", lambda: word >> _WHAT_BITS, np.uint64, null=lambda: no_number,
               hexadecimal=True, doc="its inode, process number, or address / 8"),
        text_of_functions(trace, "type", "name", lambda: columns["type"], "of an object: its type"),
        made["waker"],
        name_column(trace, columns["caller"]),
        text_of_functions(trace, "file", "file", lambda: columns["caller"], "its file"),
        *(made[name] for name in ("caller_line", "caller", "own_caller", "own_line", "flags")),
        Column("call", lambda: _calls_around(trace, columns), np.int32, null="negative",
               doc="row of calls: the innermost call in which it waited"),
        *more,
    ]  # fmt: skip
    return Table(trace._title("waits"), of_table, count)
