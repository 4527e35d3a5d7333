"""The tables of what is neither a function's call nor a block: user events, objects, the collector.

They are made of rows of `events` and `calls`, which hold all that was recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .. import _core
from .._words import did_you_mean
from .table import Array, Column, Table, Words

if TYPE_CHECKING:
    from .trace import Trace

_NUMBERS = {row[1]: row[0] for row in _core.kind_table()}
_PHASES = ("begin", "step", "end")
_LOOSE = 3  # the phase of a flow that is an end of a span: source_marks.c
_OPEN_AT_START, _OPEN_AT_END = 1, 2
_GENERATION = "gc generation "


class Points:
    """What a trace knows of marks, spans, counters, flows, the collector, audit events, objects."""

    # ---- User events -----------------------------------------------------------------------------

    @property
    def marks(self) -> Table:
        """Every `eventprof.mark`.

        Returns
        -------
        Table
            ``time`` int64, ns since the window's start. ``thread`` int32, row of `threads`.
            ``name`` text. ``caller`` int32, row of `functions`, and ``caller_line`` int32: where it
            was made; null where unknown.
        """
        return _table(self, "marks", _rows(self, "MARK"))

    @property
    def counters(self) -> Table:
        """Every `eventprof.counter`.

        Returns
        -------
        Table
            As `marks`, and ``value`` float64.
        """
        rows = _rows(self, "COUNTER")
        return _table(self, "counters", rows, {"value": _words(self)[rows].view(np.float64)})

    @property
    def flows(self) -> Table:
        """Every station of every `eventprof.flow`.

        Returns
        -------
        Table
            As `marks`, and ``id`` int64, the same at all stations of one flow, and ``phase`` text:
            begin, step or end.
        """
        rows = _rows(self, "FLOW")
        words = _words(self)[rows]
        rows, words = rows[words & 3 != _LOOSE], words[words & 3 != _LOOSE]
        phases = Column(
            "phase",
            lambda: (words & 3).astype(np.int8),
            null="never",
            words=Words(lambda: _PHASES),
            doc="its first, a further or its last station",
        )
        return _table(self, "flows", rows, {"id": (words >> 2).astype(np.int64)}, [phases])

    @property
    def spans(self) -> Table:
        """Every `eventprof.span`, in order of start.

        Returns
        -------
        Table
            ``start`` and ``duration`` int64, ns. ``thread`` int32, row of `threads`. ``name`` text.
            ``call`` int32, its row in `calls`; null for one that need not nest in the calls around
            it: in a generator or coroutine, or entered by an ExitStack. ``caller`` int32, row of
            `functions`, and ``caller_line`` int32: where it began. ``flags`` uint8, as in `calls`:
            1 it began before the window, or its begin was lost; 2 open when the window ended; 16
            its end was not seen. The duration is a lower bound then.
        """
        return _spans(cast("Trace", self))

    # ---- The interpreter's -----------------------------------------------------------------------

    @property
    def audit(self) -> Table:
        """Every audit event that was asked for, of ``record(audit=...)``.

        Returns
        -------
        Table
            As `marks`. Arguments of events are not kept.
        """
        return _table(self, "audit", _rows(self, "AUDIT"))

    @property
    def gc(self) -> Table:
        """Every run of the garbage collector, of ``record(gc=True)``.

        Returns
        -------
        Table
            ``start`` and ``duration`` int64, ns. ``thread`` int32, row of `threads`.
            ``generation`` int32. ``collected`` and ``uncollectable`` int64, objects; null where the
            end was not recorded. ``freed`` int64, bytes that the thread gave back in the run;
            ``live_before`` and ``live_after`` int64, bytes, of blocks made in the window: null
            where memory was not recorded. ``call`` int32, row of `calls`. ``caller`` int32, row of
            `functions`, and ``caller_line`` int32: where it was set off. ``flags`` uint8, as in
            `calls`.
        """
        return _gc(cast("Trace", self))

    # ---- Objects ---------------------------------------------------------------------------------

    @property
    def objects(self) -> Table:
        """Objects that came and went, by type, of ``record(refs=True)`` on Python 3.13 and later.

        Returns
        -------
        Table
            One row a type, the most created first: ``name`` and ``module`` text; int64 ``created``
            in the window; ``destroyed`` in the window, of them ``older`` ones, created before it;
            ``churn``, created and destroyed in it; ``unseen``, whose end the interpreter did not
            report: their address was given out again; ``live``, created in it and there at its end,
            as far as is known.

        Notes
        -----
        What the interpreter reports is not all that happens: see the page on objects.
        """
        return _Objects(cast("Trace", self)).table()

    def objects_over_time(self, count: int = 100, types: Iterable[str] | None = None) -> Table:
        """Give how many objects of a type were live, in bins of equal length.

        Parameters
        ----------
        count : int
            Of bins.
        types : iterable of str, optional
            Names of types, or module and name with a dot between; the ten that were created most
            without.

        Returns
        -------
        Table
            One row a type and bin: ``time`` int64, ns, of the bin's start; ``name`` and ``module``
            text; int64 ``created`` and ``destroyed`` in the bin (those created in the window), and
            ``live`` at its end.

        Raises
        ------
        ValueError
            There is no bin, or no such type.
        """
        if count < 1:
            raise ValueError(f"count: at least one bin, not {count}")
        return _Objects(cast("Trace", self)).over_time(count, types)


# ---- Rows of events ------------------------------------------------------------------------------


def event_kinds(trace: Trace) -> Array:
    """Give the kinds of all events: those of spans that are recorded as flows are the spans'."""
    kinds: Array = trace._core.events("kind")
    flow = _NUMBERS["FLOW"]
    if not any(flow in recorded for *_, recorded, _lost in trace._thread_rows):
        return kinds
    rows = np.flatnonzero(kinds == flow)
    words = _words(trace)[rows]
    rows, words = rows[words & 3 == _LOOSE], words[words & 3 == _LOOSE]
    kinds = kinds.copy()
    kinds[rows] = np.where(words >> 2 & 1, _NUMBERS["SPAN_END"], _NUMBERS["SPAN_BEGIN"])
    return kinds


def _rows(trace: Any, kind: str) -> Array:
    """Give the rows of events of a kind."""
    number = _NUMBERS[kind]
    if not trace._core.facts()["kinds"] >> number & 1:
        return np.empty(0, np.intp)
    return np.flatnonzero(trace._core.events("kind") == number)


def _words(trace: Any) -> Array:
    """Give the values of all events as they were recorded, uint64."""
    words: Array = trace._core.events("word")
    return words


def _text(trace: Any, functions: Array) -> Column:
    names = trace.functions._column("name")
    codes = np.append(names.values(), names.values().dtype.type(-1))
    return Column("name", lambda: codes[functions], words=names.words, doc="what it is called")


def _number(name: str, values: Array, unit: str = "", doc: str = "", null: Any = "never") -> Column:
    return Column(name, lambda: values, values.dtype, null=null, unit=unit, doc=doc)


def _table(
    trace: Any,
    title: str,
    rows: Array,
    numbers: dict[str, Array] | None = None,
    others: Iterable[Column] = (),
) -> Table:
    """Give time, thread, name, more, and where it was made, of rows of events."""

    def load(column: str) -> Array:
        values: Array = trace._core.events(column)
        return values[rows]

    return Table(
        trace._title(title),
        [
            _number("time", load("time"), "ns", "since the window's start"),
            _number("thread", load("thread"), "", "row of threads"),
            _text(trace, load("function")),
            *(_number(name, values) for name, values in (numbers or {}).items()),
            *others,
            _number("caller", load("caller"), "", "row of functions", "negative"),
            _number("caller_line", load("caller_line"), "", "where it was made", "negative"),
        ],
        len(rows),
    )


def _calls_of(trace: Trace, kind: str) -> Array:
    number = _NUMBERS[kind]
    if not trace._core.facts()["kinds"] >> number & 1:
        return np.empty(0, np.intp)
    return np.flatnonzero(trace._core.calls("kind") == number)


# ---- Spans ---------------------------------------------------------------------------------------

_SPAN_COLUMNS = ("start", "duration", "thread", "function", "caller", "caller_line", "flags")


def _spans(trace: Trace) -> Table:
    rows = _calls_of(trace, "SPAN_BEGIN")
    nested = {name: trace._core.calls(name)[rows] for name in _SPAN_COLUMNS}
    nested["flags"] = nested["flags"] & ~np.uint8(32)  # recursive: of functions
    nested["call"] = rows.astype(np.int32)
    parts = [nested, _loose_spans(trace), _unmatched_ends(trace)]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in nested}
    order = np.argsort(columns["start"], kind="stable")
    columns = {name: values[order] for name, values in columns.items()}
    return Table(
        trace._title("spans"),
        [
            _number("start", columns["start"], "ns", "since the window's start"),
            _number("duration", columns["duration"], "ns", "from start to end"),
            _number("thread", columns["thread"], "", "row of threads"),
            _text(trace, columns["function"]),
            _number("call", columns["call"], "", "row of calls", "negative"),
            _number("caller", columns["caller"], "", "row of functions", "negative"),
            _number("caller_line", columns["caller_line"], "", "where it began", "negative"),
            _number("flags", columns["flags"], "", "as of calls"),
        ],
        len(order),
    )


def _span_columns(found: list[tuple[int, ...]]) -> dict[str, Array]:
    """Turn tuples of _SPAN_COLUMNS into arrays."""
    kinds = (np.int64, np.int64, np.int32, np.int32, np.int32, np.int32, np.uint8)
    columns = zip(*found, strict=True) if found else ((),) * len(_SPAN_COLUMNS)
    made = {
        name: np.array(values, dtype=kind)
        for name, values, kind in zip(_SPAN_COLUMNS, columns, kinds, strict=True)
    }
    made["call"] = np.full(len(found), -1, np.int32)
    return made


def _loose_spans(trace: Trace) -> dict[str, Array]:
    """Pair the ends of spans that need not nest: the last begin of a name and span with an end."""
    rows = _rows(trace, "FLOW")
    words = _words(trace)[rows] if len(rows) else np.empty(0, np.uint64)
    rows, words = rows[words & 3 == _LOOSE], words[words & 3 == _LOOSE]
    load = trace._core.events
    columns = [load(name)[rows].tolist() if len(rows) else [] for name in
               ("time", "thread", "function", "caller", "caller_line")]  # fmt: skip
    begun: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    found: list[tuple[int, ...]] = []
    for word, time, thread, function, caller, line in zip(words.tolist(), *columns, strict=True):
        is_end, span = word >> 2 & 1, word >> 3
        stack = begun.setdefault((function, span), [])
        if not is_end:
            stack.append((time, thread, caller, line))
        elif stack:
            start, *rest = stack.pop()
            found.append((start, time - start, rest[0], function, *rest[1:], 0))
        else:
            found.append((0, time, thread, function, -1, -1, _OPEN_AT_START))
    for (function, _), stack in begun.items():
        for start, thread, caller, line in stack:
            rest_of_window = trace.duration - start
            found.append((start, rest_of_window, thread, function, caller, line, _OPEN_AT_END))
    return _span_columns(found)


def _unmatched_ends(trace: Trace) -> dict[str, Array]:
    """Give the spans of which only the end was recorded."""
    rows = _rows(trace, "SPAN_END")
    load = trace._core.events
    if len(rows):
        rows = rows[load("call")[rows] < 0]
    if not len(rows):
        return _span_columns([])
    ends = zip(*(load(name)[rows].tolist() for name in ("time", "thread", "function")), strict=True)
    return _span_columns([(0, time, thread, f, -1, -1, _OPEN_AT_START) for time, thread, f in ends])


# ---- The collector -------------------------------------------------------------------------------


def _gc(trace: Trace) -> Table:
    calls = _calls_of(trace, "GC_START")
    load = trace._core.calls
    count = len(calls)
    start, duration = (load(name)[calls] if count else np.empty(0, np.int64)
                       for name in ("start", "duration"))  # fmt: skip
    numbers = {name: load(name)[calls] if count else np.empty(0, np.int32)
               for name in ("thread", "function", "caller", "caller_line")}  # fmt: skip
    flags = load("flags")[calls] if count else np.empty(0, np.uint8)
    names = trace.functions["name"]
    generations = np.array(
        [int(str(names[f]).removeprefix(_GENERATION)) for f in numbers["function"].tolist()],
        dtype=np.int32,
    )
    collected = np.full((2, count), -1, dtype=np.int64)
    rows = _rows(trace, "GC_COLLECTED")
    if len(rows):
        # The innermost call around it is the run that it belongs to.
        words, of = _words(trace)[rows], trace._core.events("call")[rows]
        at = np.searchsorted(calls, of)
        known = (at < count) & (calls[np.minimum(at, count - 1)] == of) if count else of < -1
        collected[0, at[known]] = (words[known] & 0xFFFFFFFF).astype(np.int64)
        collected[1, at[known]] = (words[known] >> 32).astype(np.int64)
    freed, before, after = (np.full(count, -1, dtype=np.int64) for _ in range(3))
    if count and trace._core.facts()["kinds"] & _memory_bits():
        time, live, _ = trace._core.curve((1 << 5) - 1)
        live = np.append(live, np.int64(0))  # index -1: before the first change
        before = live[np.searchsorted(time, start, side="left") - 1]
        after = live[np.searchsorted(time, start + duration, side="right") - 1]
        freed = trace._call_memory(True)[1][calls]

    return Table(
        trace._title("gc"),
        [
            _number("start", start, "ns", "since the window's start"),
            _number("duration", duration, "ns", "from start to end"),
            _number("thread", numbers["thread"], "", "row of threads"),
            _number("generation", generations, "", "0 is the youngest"),
            _number("collected", collected[0], "", "objects", "negative"),
            _number("uncollectable", collected[1], "", "objects", "negative"),
            _number("freed", freed, "bytes", "by the thread in the run", "negative"),
            _number("live_before", before, "bytes", "of the window's blocks", "negative"),
            _number("live_after", after, "bytes", "of the window's blocks", "negative"),
            _number("call", calls.astype(np.int32), "", "row of calls"),
            _number("caller", numbers["caller"], "", "row of functions", "negative"),
            _number("caller_line", numbers["caller_line"], "", "where it was set off", "negative"),
            _number("flags", flags, "", "as of calls"),
        ],
        count,
    )  # fmt: skip


def _memory_bits() -> int:
    return sum(1 << row[0] for row in _core.kind_table() if row[4] in ("alloc", "free"))


# ---- Objects -------------------------------------------------------------------------------------


class _Objects:
    """The events of objects, and which of them belong together."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        created, destroyed = _rows(trace, "CREATE"), _rows(trace, "DESTROY")
        rows = np.sort(np.concatenate([created, destroyed]))
        load: Callable[[str], Array] = trace._core.events
        some = len(rows) > 0
        self.kind = load("kind")[rows] if some else np.empty(0, np.uint8)
        self.time = load("time")[rows] if some else np.empty(0, np.int64)
        self.type = load("function")[rows] if some else np.empty(0, np.int32)
        address = _words(trace)[rows] if some else np.empty(0, np.uint64)
        self.is_created = self.kind == _NUMBERS["CREATE"]
        # By address, each in its own order: what follows the birth of an object is its end, or the
        # next birth at its place.
        order = np.argsort(address, kind="stable")
        same = np.zeros(len(order), dtype=bool)
        same[:-1] = address[order][1:] == address[order][:-1]
        born = self.is_created[order]
        ends = np.zeros(len(order), dtype=bool)
        ends[:-1] = ~born[1:]
        #: Of each row: the row that is its object's other end, -1 if none was seen.
        self.other = np.full(len(order), -1, dtype=np.int64)
        paired = np.flatnonzero(born & same & ends)
        self.other[order[paired]] = order[paired + 1]
        self.other[order[paired + 1]] = order[paired]
        #: Of each birth: whether the next one at the address came without an end.
        self.unseen = np.zeros(len(order), dtype=bool)
        again = np.flatnonzero(born & same & ~ends)
        self.unseen[order[again]] = True
        self.unseen_time = np.zeros(len(order), dtype=np.int64)
        self.unseen_time[order[again]] = self.time[order[again + 1]]

    def _counts(self, rows: Array) -> Array:
        counts: Array = np.bincount(self.type[rows], minlength=len(self.trace.functions))
        return counts

    def table(self) -> Table:
        created = self._counts(self.is_created)
        destroyed = self._counts(~self.is_created)
        churn = self._counts(self.is_created & (self.other >= 0))
        older = self._counts(~self.is_created & (self.other < 0))
        unseen = self._counts(self.unseen)
        known = np.flatnonzero(created + destroyed)
        known = known[np.argsort(-created[known], kind="stable")]
        functions = self.trace.functions
        return Table(
            self.trace._title("objects"),
            [
                functions[known]._column("name"),
                functions[known]._column("module"),
                _number("created", created[known], "", "in the window"),
                _number("destroyed", destroyed[known], "", "in the window"),
                _number("older", older[known], "", "of destroyed: created before the window"),
                _number("churn", churn[known], "", "created and destroyed in the window"),
                _number("unseen", unseen[known], "", "whose end was not reported"),
                _number("live", (created - churn - unseen)[known], "", "at the end"),
            ],
            len(known),
        )

    def over_time(self, count: int, types: Iterable[str] | None) -> Table:
        functions = self.trace.functions
        chosen = self._chosen(types)
        length = max(self.trace.duration, 1)

        def bins(times: Array) -> Array:
            at: Array = np.minimum(times * count // length, count - 1)
            return at

        births = self.is_created
        ends = np.where(self.other >= 0, self.time[self.other], self.unseen_time)
        ended = births & ((self.other >= 0) | self.unseen)
        created = np.zeros((len(chosen), count), dtype=np.int64)
        destroyed = np.zeros_like(created)
        for at, row in enumerate(chosen):
            of = self.type == row
            created[at] = np.bincount(bins(self.time[births & of]), minlength=count)
            destroyed[at] = np.bincount(bins(ends[ended & of]), minlength=count)
        rows = np.repeat(np.array(chosen, dtype=np.intp), count)
        start = np.array([length * k // count for k in range(count)], dtype=np.int64)
        return Table(
            self.trace._title("objects over time"),
            [
                _number("time", np.tile(start, len(chosen)), "ns", "the bin's start"),
                functions[rows]._column("name"),
                functions[rows]._column("module"),
                _number("created", created.ravel(), "", "in the bin"),
                _number("destroyed", destroyed.ravel(), "", "in the bin"),
                _number("live", np.cumsum(created - destroyed, axis=1).ravel(), "", "at its end"),
            ],
            len(rows),
        )

    def _chosen(self, types: Iterable[str] | None) -> list[int]:
        """Give rows of functions."""
        created = self._counts(self.is_created)
        if types is None:
            order = np.argsort(-created, kind="stable")[:10]
            return [int(row) for row in order if created[row]]
        functions = self.trace.functions
        known: dict[str, int] = {}
        for row in np.flatnonzero(self._counts(slice(None))).tolist():  # type: ignore[arg-type]
            name, module = functions["name"][row], functions["module"][row]
            known.setdefault(str(name), row)
            known[f"{module}.{name}"] = row
        chosen = []
        for word in [types] if isinstance(types, str) else types:
            if word not in known:
                raise ValueError(
                    f"types: no object of {word!r} came or went{did_you_mean(word, known)}"
                )
            chosen.append(known[word])
        return chosen
