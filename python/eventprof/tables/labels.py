"""Labels: for whom or what calls, spans and marks were made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .. import _core
from .._words import did_you_mean, plural, show_ns
from .by_function import by_function, sum_by
from .column import Array, Column, encode
from .event_rows import event_words, parts_of_columns
from .kinds import CALL_FLAGS, NUMBERS
from .table import Table

if TYPE_CHECKING:
    from ..trace.recorded import Recorded

_HOLDS, _DEFINES, _HELD = 0, 1, 3  # the low bits of a LABEL's word
_MORE = 128
_NONE = -1


@dataclass(frozen=True, repr=False)
class Labelled:
    """What was done with some labels.

    Attributes
    ----------
    labels : dict of str to str
        The labels that were asked for.
    spans, calls : Table
        The rows of `Trace.spans` and `Trace.calls` that began with these labels, on any thread.
    functions : Table
        By function, the most self time first: function, name, module, calls, self (ns),
        allocated_self (bytes).
    busy : int
        How long these calls were open, in ns; of calls in one another the outermost. Two threads
        at a time count twice. A task that waits is not open.
    allocated : int
        Bytes, in these calls.
    loss : str
        What is missing and may falsify the answer, in words; empty: nothing.
    """

    labels: dict[str, str]
    spans: Table
    calls: Table
    functions: Table
    busy: int
    allocated: int
    loss: str = ""

    def __repr__(self) -> str:
        named = ", ".join(f"{name}={value}" for name, value in self.labels.items())
        return (
            f"<{named}: {plural(len(self.spans), 'span')}, {plural(len(self.calls), 'call')} "
            f"in {show_ns(self.busy)}, {self.allocated:,} bytes allocated{self.loss}>\n"
            f"{self.functions!r}"
        )


class LabelSets:
    """The sets of labels of a trace, and which of them a thread had at a time.

    Attributes
    ----------
    values : list of dict
        By set: its labels, those of the sets around it included.
    names : list of str
        Of all labels, in the order in which they came.
    """

    def __init__(self, trace: Recorded) -> None:
        self.values: list[dict[str, str]] = []
        self.names: list[str] = []
        self._times: dict[int, Array] = {}
        self._sets: dict[int, Array] = {}
        if _is_recorded(trace):
            self._read(trace)

    def _read(self, trace: Recorded) -> None:
        load = trace._core.events
        kinds = load("kind")
        rows = np.flatnonzero((kinds == NUMBERS["LABEL"]) | (kinds == NUMBERS["LABEL_TEXT"]))
        rows = rows[np.argsort(load("thread")[rows], kind="stable")]
        words = event_words(trace, rows)
        is_text = kinds[rows] == NUMBERS["LABEL_TEXT"]
        numbers = self._define(trace, rows, words, is_text)
        what = words & 3
        holds = np.flatnonzero(~is_text & ((what == _HOLDS) | (what == _HELD)))
        ids = (words[holds] >> 2).tolist()
        held = np.array([numbers.get(number, _NONE) for number in ids], np.int32)
        threads, times = load("thread")[rows[holds]], load("time")[rows[holds]].copy()
        for thread in np.unique(threads).tolist():
            of_thread = np.flatnonzero(threads == thread)
            if what[holds[of_thread[0]]] == _HELD:
                times[of_thread[0]] = 0  # of a ring: the labels of its first events are dropped
            self._times[thread], self._sets[thread] = times[of_thread], held[of_thread]

    def _define(self, trace: Recorded, rows: Array, words: Array, is_text: Array) -> dict[int, int]:
        """Read what the sets are; give {id: row of values}."""
        own: dict[int, dict[str, bytes]] = {}
        around: dict[int, int] = {}
        names = trace.functions["name"]
        functions = trace._core.events("function")[rows]
        now, going_on = 0, False
        what = words & 3
        defining = np.flatnonzero(is_text | ((what != _HOLDS) & (what != _HELD)))
        for event_row, word in zip(defining.tolist(), words[defining].tolist(), strict=True):
            if not is_text[event_row]:
                if word & 3 == _DEFINES:
                    now, going_on = word >> 2, False
                    own.setdefault(now, {})
                else:
                    around[now] = word >> 2
                continue
            name = names[functions[event_row]]
            part = word.to_bytes(8, "little")[1 : 1 + (word & 7)]
            labels = own.setdefault(now, {})
            # A value may come again, in another chunk or because it was added: then it begins anew.
            labels[name] = labels.get(name, b"") + part if going_on else part
            going_on = bool(word & _MORE)
        whole: dict[int, dict[str, str]] = {}
        for number in own:
            chain: list[int] = []
            above: int | None = number
            while above is not None and above not in whole and above not in chain:
                chain.append(above)
                above = around.get(above)
            labels_above = whole.get(above, {}) if above is not None else {}
            for one in reversed(chain):
                known_parts = own.get(one, {})
                text = {name: value.decode("utf-8", "surrogatepass") if _is_text(value) else
                        value.decode("utf-8", "backslashreplace")
                        for name, value in known_parts.items()}  # fmt: skip
                labels_above = whole[one] = {**labels_above, **text}
        self.values = [whole[number] for number in own]
        self.names = list(dict.fromkeys(name for labels in self.values for name in labels))
        return {number: row for row, number in enumerate(own)}

    def rows_of(self, threads: Array, times: Array) -> Array:
        """Return the row of `values` for what began on threads at some times; -1: no labels."""
        found = np.full(len(threads), _NONE, np.int32)
        for thread, known in self._times.items():
            rows = np.flatnonzero(threads == thread)
            place = np.searchsorted(known, times[rows], side="right") - 1
            found[rows] = np.where(place >= 0, self._sets[thread][np.maximum(place, 0)], _NONE)
        return found

    def columns(self, taken: list[str], rows: Callable[[], Array]) -> list[Column]:
        """Return a text column a label; one whose name a table has already begins with label_."""

        def column(label: str) -> Column:
            codes, words = encode([labels.get(label) for labels in self.values])
            codes = np.append(codes, codes.dtype.type(-1))
            name = f"label_{label}" if label in taken else label
            return Column(name, lambda: codes[rows()], words=words, doc="a label of the program's")

        return [column(label) for label in self.names]


def _is_text(value: bytes) -> bool:
    try:
        value.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def _is_recorded(trace: Recorded) -> bool:
    label = NUMBERS["LABEL"]
    return any(label in recorded for *_, recorded, _lost in trace._thread_rows)


def of_calls(trace: Recorded) -> Array:
    """Return the row of the sets of labels that each call began with; -1: none."""
    load, sets = trace._core.calls, trace._label_sets
    count = len(load("parent"))
    if not sets.values:
        return np.broadcast_to(np.int32(_NONE), count)
    found: Array = _core.new_column(count, "int32")
    for first, (thread, start, flags) in parts_of_columns(load, "thread", "start", "flags"):
        rows = sets.rows_of(thread, start)
        rows[flags & CALL_FLAGS["open_at_start"] != 0] = _NONE  # nobody knows
        found[first : first + len(rows)] = rows
    return found


def labels_table(trace: Recorded) -> Table:
    """Make `Trace.labels`."""
    sets, core = trace._label_sets, trace._core
    count = len(sets.values)
    of_calls = trace._labels_of_calls
    spans = trace.spans
    of_spans = sets.rows_of(spans["thread"], spans["start"])
    sums = np.zeros((4, count), np.int64)
    sums[0] = sum_by(of_spans, np.ones(len(of_spans), np.int64), count)
    for first, figures in parts_of_columns(core.calls, "self", "allocated_self") if count else ():
        sets_of = of_calls[first : first + len(figures[0])]
        sums[1] += sum_by(sets_of, np.ones(len(sets_of), np.int64), count)
        for row, values in enumerate(figures, 2):
            sums[row] += sum_by(sets_of, values.astype(np.int64), count)
    rows: dict[tuple[str, str], list[int]] = {}
    for row, labels in enumerate(sets.values):
        for label in labels.items():
            rows.setdefault(label, []).append(row)
    columns: dict[str, object] = {
        "name": [name for name, _ in rows],
        "value": [value for _, value in rows],
    }
    for name, of_set in zip(("spans", "calls", "self", "allocated"), sums, strict=True):
        columns[name] = np.array([of_set[chosen].sum() for chosen in rows.values()], np.int64)
    units = {"self": "ns", "allocated": "bytes"}
    return Table.from_columns(trace._title("labels"), columns, units=units)


def where(trace: Recorded, labels: Mapping[str, object]) -> Labelled:
    """Answer `Trace.where`."""
    if not labels:
        raise TypeError("where() takes names with values: where(request_id=7)")
    sets = trace._label_sets
    for name in labels:
        if name not in sets.names:
            hint = did_you_mean(name, sets.names)
            known = ", ".join(sets.names[:8]) or "none: see eventprof.label()"
            raise ValueError(f"{name}: no such label in this trace{hint}; it has {known}")
    wanted = {name: str(value) for name, value in labels.items()}
    fits = np.array(
        [all(has.get(name) == value for name, value in wanted.items()) for has in sets.values]
        + [False]
    )
    spans = trace.spans
    of_spans = np.flatnonzero(fits[sets.rows_of(spans["thread"], spans["start"])])
    in_calls = fits[trace._labels_of_calls]
    return _labelled(trace, wanted, spans[of_spans], in_calls)


def _labelled(trace: Recorded, wanted: dict[str, str], spans: Table, in_calls: Array) -> Labelled:
    core = trace._core
    calls = np.flatnonzero(in_calls)
    function, parent = core.calls("function")[calls], core.calls("parent")[calls]
    count = len(trace.functions)
    self_ns = sum_by(function, core.calls("self")[calls], count)
    bytes_ = sum_by(function, core.calls("allocated_self")[calls].astype(np.int64), count)
    times = sum_by(function, np.ones(len(calls), np.int64), count)
    rows = np.flatnonzero(times)
    rows = rows[np.argsort(-self_ns[rows], kind="stable")].astype(np.int32)
    outermost = calls[(parent < 0) | ~in_calls[parent]]
    functions = Table.from_columns(
        trace._title("functions"),
        {
            **by_function(trace, rows),
            "calls": times[rows],
            "self": self_ns[rows],
            "allocated_self": bytes_[rows],
        },
        units={"self": "ns", "allocated_self": "bytes"},
    )
    return Labelled(
        wanted,
        spans,
        trace.calls[calls],
        functions,
        int(core.calls("duration")[outermost].sum()),
        int(bytes_.sum()),
        trace._title(""),
    )
