"""Builds a trace from calls, blocks and points, which a reader adds one by one."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import numpy as np

from .. import _core
from .._words import plural
from ..tables.descriptions import described
from ..tables.table import Table
from ..trace import Trace

_KINDS = {name: number for number, name, *_ in _core.kind_table()}
NAME_KINDS = ("python", "c", "type", "object", "user", "gc", "audit", "hpy")
CALL, RETURN, UNWIND, YIELD = (_KINDS[k] for k in ("CALL", "RETURN", "UNWIND", "YIELD"))
C_CALL, C_RETURN, C_EXCEPTION = (_KINDS[k] for k in ("C_CALL", "C_RETURN", "C_EXCEPTION"))
#: The kinds of a call's end: a return, and an exception.
_ENDS = {
    C_CALL: (C_RETURN, C_EXCEPTION),
    _KINDS["SPAN_BEGIN"]: (_KINDS["SPAN_END"],) * 2,
    _KINDS["GC_START"]: (_KINDS["GC_STOP"],) * 2,
    _KINDS["HPY_CALL"]: (_KINDS["HPY_RETURN"],) * 2,
}
#: The kinds of a call's begin, by the text of the column kind.
BEGINS = {
    "call": CALL, "resume": _KINDS["RESUME"], "throw": _KINDS["THROW"], "c_call": C_CALL,
    "span": _KINDS["SPAN_BEGIN"], "gc": _KINDS["GC_START"], "hpy": _KINDS["HPY_CALL"],
}  # fmt: skip

_UINT64 = (1 << 64) - 1

#: The end of a call that does not end.
NEVER = 1 << 62
#: What a headline says of loss. No format of samples says what happened between them.
SAMPLED = "sampled: what ran only between samples is not in it"
NOT_TOLD = "whether events were lost is unknown: the file does not say it"


def native_id(value: Any) -> int:
    """Return the number of a thread or process; 0 if it is none."""
    return value if type(value) is int and 0 < value < 1 << 63 else 0


class Thread:
    """One thread's events, in order; made by `Builder.thread`."""

    __slots__ = ("_builder", "depth", "kinds", "last", "refs", "row", "stack", "times", "words")

    def __init__(self, builder: Builder, row: int) -> None:
        self._builder = builder
        self.row = row
        self.times: list[int] = []
        self.kinds: list[int] = []
        self.refs: list[int] = []
        # (address, size) of the events that have them.
        self.words: list[tuple[int, int]] = []
        self.stack: list[tuple[int, int]] = []
        self.last = 0

    def _add(self, time: int, kind: int, ref: int) -> None:
        self.last = max(time, self.last)
        self.times.append(self.last)
        self.kinds.append(kind)
        self.refs.append(ref)

    def begin(self, time: int, function: int, line: int = -1, kind: int = CALL) -> None:
        """Begin a call. A time before that of the last event is moved to it."""
        caller = self.stack[-1][0] if self.stack else -1
        self._add(time, kind, self._builder.site(function, caller, line))
        self.stack.append((function, kind))

    def end(self, time: int, *, raised: bool = False, yielded: bool = False) -> None:
        """End the innermost call. If no call is open, the end is counted as unmatched."""
        if not self.stack:
            self._builder.unmatched += 1
            return
        function, kind = self.stack.pop()
        usual = YIELD if yielded else UNWIND if raised else RETURN
        ends = _ENDS.get(kind)
        self._add(time, usual if ends is None else ends[raised], function)

    def end_all(self, time: int) -> None:
        """End every call."""
        while self.stack:
            self.end(time)

    def mark(self, time: int, name: str) -> None:
        """Add a mark."""
        self._add(time, _KINDS["MARK"], self._point(name))

    def counter(self, time: int, name: str, value: float) -> None:
        """Add a counter's value."""
        self._add(time, _KINDS["COUNTER"], self._point(name))
        self.words.append((struct.unpack("<Q", struct.pack("<d", value))[0], -1))

    def flow(self, time: int, name: str, number: int, phase: int) -> None:
        """Add a step of a flow; phase: 0 begin, 1 step, 2 end."""
        self._add(time, _KINDS["FLOW"], self._point(name))
        self.words.append(((number << 2 | phase) & _UINT64, -1))

    def block(
        self, time: int, what: str, address: int, size: int, function: int = -1, line: int = -1
    ) -> None:
        """Add an event of an allocator, such as MALLOC_LIBC or FREE_OBJ; a free has size -1."""
        self._add(time, _KINDS[what], self._builder.site(-1, function, line))
        self.words.append((address & _UINT64, size))

    def _point(self, name: str) -> int:
        caller = self.stack[-1][0] if self.stack else -1
        return self._builder.site(self._builder.function(name, kind="user"), caller, -1)

    def spans(self, found: Iterable[tuple[int, int, int, int, int, bool, bool, int]]) -> None:
        """Add calls in order of start, parents before their children.

        Parameters
        ----------
        found : iterable of tuples
            (start, end, function, line, kind, raised, yielded, depth). The end may be NEVER. With
            depth -1 the times say which call a call is in.
        """
        open_calls: list[tuple[int, bool, bool]] = []

        def close() -> None:
            end, raised, yielded = open_calls.pop()
            self.end(end, raised=raised, yielded=yielded)

        for start, end, function, line, kind, raised, yielded, depth in found:
            if depth >= 0:
                while len(open_calls) > depth:
                    close()
            else:
                while open_calls and open_calls[-1][0] <= start:
                    close()
            if open_calls and end > open_calls[-1][0]:
                # An inner call cannot end after the outer call. Such times come from rounding, or
                # from two stacks in one thread.
                if end - open_calls[-1][0] > 1 and end != NEVER:
                    self._builder.overlaps += 1
                end = open_calls[-1][0]
            self.begin(start, function, line, kind)
            open_calls.append((end, raised, yielded))
        while open_calls and open_calls[-1][0] != NEVER:
            close()


class Builder:
    """Collects the events of a file.

    Attributes
    ----------
    lacks : list of str
        What files of this format never have, for the metadata.
    notes : list of str
        What was in this file and is not in the trace.
    missing : list of str
        What should be in this file, but is not.
    lost : list of str
        What the recording's tool says that it lost.
    loss_unknown : str or None
        Why nobody can say that nothing was lost, for the headline; None: the file says it.
    samples : int or None
        How many samples were taken; None: unknown, or the calls were not sampled.
    unit : str or None
        What the numbers count that stand for times; None: they are ns. Empty: unknown.
    metadata : dict
        The facts of the run that the file has.
    start_ns : int
        When the recording began, in ns since 1970; 0: unknown.
    """

    def __init__(self, format: str, path: str, size: int) -> None:
        self.format = format
        self.lacks: list[str] = []
        self.notes: list[str] = []
        self.missing: list[str] = []
        self.metadata: dict[str, Any] = {}
        self.lost: list[str] = []
        self.loss_unknown: str | None = NOT_TOLD
        self.samples: int | None = None
        self.unit: str | None = None
        self.start_ns = 0
        self.monotonic_ns = 0
        self.duration: int | None = None
        self.unmatched = 0
        self.overlaps = 0
        self.statistics: Table | None = None
        self._path, self._size = path, size
        self._functions: dict[tuple[Any, ...], int] = {}
        self._sites: dict[tuple[int, int, int], int] = {}
        self._threads: dict[Any, Thread] = {}
        self._thread_names: list[tuple[str | None, int]] = []

    def function(
        self,
        name: str | None,
        module: str | None = None,
        file: str | None = None,
        line: int | None = None,
        kind: str = "python",
    ) -> int:
        """Return the row of a function."""
        key = (name, module, file, line, kind)
        found = self._functions.get(key)
        if found is None:
            found = self._functions[key] = len(self._functions)
        return found

    def site(self, callee: int, caller: int, line: int) -> int:
        """Return the number of a site."""
        key = (callee, caller, line)
        found = self._sites.get(key)
        if found is None:
            found = self._sites[key] = len(self._sites)
        return found

    def thread(self, key: Any, name: str | None = None, native_id: int = 0) -> Thread:
        """Return the thread of a key. The first name that is given becomes its name."""
        found = self._threads.get(key)
        if found is None:
            found = self._threads[key] = Thread(self, len(self._threads))
            self._thread_names.append((name, native_id))
        elif name is not None and self._thread_names[found.row][0] is None:
            self._thread_names[found.row] = name, native_id
        return found

    # ---- Making it -------------------------------------------------------------------------------

    def trace(self) -> Trace:
        """Make the trace of everything that was added."""
        threads = [t for t in self._threads.values() if t.times]
        rows = {thread.row: place for place, thread in enumerate(threads)}
        times = np.concatenate(
            [np.empty(0, np.int64), *(np.array(t.times, np.int64) for t in threads)]
        )
        counts = [len(t.times) for t in threads]
        order = np.argsort(times, kind="stable")  # events of one thread keep their order
        kinds = np.concatenate(
            [np.empty(0, np.uint8), *(np.array(t.kinds, np.uint8) for t in threads)]
        )
        refs = np.concatenate(
            [np.empty(0, np.int32), *(np.array(t.refs, np.int32) for t in threads)]
        )
        thread = np.repeat(np.arange(len(threads), dtype=np.int32), counts)
        first = int(times.min()) if len(times) else 0
        base = min(first, 0)
        words = [word for t in threads for word in t.words]
        address = np.array([word[0] for word in words], np.uint64)
        size = np.array([word[1] for word in words], np.int64)
        # Of the events of these kinds, the n-th has the n-th address and size.
        family = np.zeros(1 + max(row[0] for row in _core.kind_table()), bool)
        family[
            [n for n, _, _, _, f, *_ in _core.kind_table() if f in ("alloc", "free", "value")]
        ] = True
        with_words = family[kinds]
        number = np.cumsum(with_words) - 1
        word_order = number[order][with_words[order]]
        last = int(times.max()) - base if len(times) else 0
        duration = last if self.duration is None else max(self.duration, last)
        kinds_seen = 0
        for kind in np.unique(kinds).tolist():
            kinds_seen |= 1 << kind
        core = _core.make_trace(
            list(self._functions),
            list(self._sites),
            [(_bytes(self._thread_names[row][0]), self._thread_names[row][1]) for row in rows],
            (times[order] - base, kinds[order], thread[order], refs[order], address[word_order],
             size[word_order]),
            (duration, self.start_ns, self.monotonic_ns, int(self.metadata.get("pid") or 0),
             kinds_seen),
        )  # fmt: skip
        if self.unmatched:
            self.notes.append(f"{self.unmatched:,} ends of calls without a begin")
        if self.overlaps:
            self.notes.append(f"{self.overlaps:,} calls that overlap were cut off")
        lost = [*self.lost, *self.missing]
        unsure = self.loss_unknown
        if self.samples is not None:
            unsure = f"{plural(self.samples, 'sample')}: what ran only between them is not in it"
        elif lost and unsure == NOT_TOLD:
            unsure = None
        metadata = {
            **self.metadata,
            "imported": {
                "format": self.format,
                "lost": tuple(lost),
                "unsure": unsure,
                "unit": self.unit,
                "lacks": tuple(self.lacks),
                "notes": (*self.lost, *self.missing, *self.notes),
            },
        }
        facts = {
            "path": self._path,
            "format": self.format,
            "version": "of another tool",
            "bytes": self._size,
            "unfinished": False,
            "live": False,
            "missing": list(self.missing),
            "missing_count": len(self.missing),
        }
        trace = Trace(core, metadata, lambda: facts)
        if self.statistics is not None:
            # The source has only sums: they become the table of functions.
            trace.__dict__["functions"] = self.statistics
        return trace


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogatepass")


def statistics(
    rows: list[tuple[str, str | None, str | None, int | None, str]],
    sums: dict[str, list[int] | None],
) -> Table:
    """Make the table of functions for a source that has only sums.

    Parameters
    ----------
    rows : list of tuples
        Name, module, file, line and kind of each function.
    sums : dict
        Values by column. None or no entry: unknown.
    """
    columns: dict[str, Any] = {
        "name": [row[0] for row in rows],
        "module": [row[1] for row in rows],
        "file": [row[2] for row in rows],
        "line": np.ma.MaskedArray(
            np.array([row[3] or 0 for row in rows], np.int32),
            mask=np.array([row[3] is None for row in rows], bool),
        ),
        "kind": [row[4] for row in rows],
    }
    units = {}
    for description in described("functions"):
        if description.name in columns:
            continue
        given = sums.get(description.name)
        if given is not None:
            columns[description.name] = np.array(given, description.type)
        else:
            columns[description.name] = np.ma.MaskedArray(
                np.zeros(len(rows), description.type), mask=np.ones(len(rows), bool)
            )
        units[description.name] = description.unit
    return Table.from_columns("functions", columns, units=units)


def of_samples(builder: Builder, sums: dict[tuple[str, str], tuple[int, int]]) -> Table:
    """Make the table of functions for a source that counted samples; add to ``builder.lacks``.

    Parameters
    ----------
    builder : Builder
        The builder of the trace.
    sums : dict
        Own and total time in ns, by file and name.
    """
    builder.lacks += [
        "events", "calls", "counts of calls: it was sampled", "threads", "allocations",
        "the total of recursive functions, which is counted by line",
    ]  # fmt: skip
    return statistics(
        [(name, None, None if file == "~" else file, None, "python") for file, name in sums],
        {
            "self": [own for own, _ in sums.values()],
            "total": [total for _, total in sums.values()],
        },
    )
