"""The tables of objects that were created and destroyed, by type."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from .._words import did_you_mean
from .column import Array
from .event_rows import event_words, number, rows_of_kind
from .kinds import NUMBERS
from .table import Table

if TYPE_CHECKING:
    from ..trace.recorded import Recorded


def objects_table(trace: Recorded) -> Table:
    """Make `Trace.objects`."""
    return _ObjectEvents(trace).table()


def objects_over_time(
    trace: Recorded, count: int = 100, types: Iterable[str] | None = None
) -> Table:
    """Answer `Trace.objects_over_time`."""
    if count < 1:
        raise ValueError(f"count must be 1 or more, not {count}")
    return _ObjectEvents(trace).over_time(count, types)


class _ObjectEvents:
    """The events of objects, and which of them belong together."""

    def __init__(self, trace: Recorded) -> None:
        self.trace = trace
        created, destroyed = rows_of_kind(trace, "CREATE"), rows_of_kind(trace, "DESTROY")
        rows = np.sort(np.concatenate([created, destroyed]))
        load: Callable[[str], Array] = trace._core.events
        some = len(rows) > 0
        self.kind = load("kind")[rows] if some else np.empty(0, np.uint8)
        self.time = load("time")[rows] if some else np.empty(0, np.int64)
        self.type = load("function")[rows] if some else np.empty(0, np.int32)
        address = event_words(trace, rows) if some else np.empty(0, np.uint64)
        self.is_created = self.kind == NUMBERS["CREATE"]
        # By address, each in its own order: after the birth of an object comes its end, or the
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
                number("created", created[known], "", "in the window"),
                number("destroyed", destroyed[known], "", "in the window"),
                number("older", older[known], "", "of destroyed: created before the window"),
                number("churn", churn[known], "", "created and destroyed in the window"),
                number("unseen", unseen[known], "", "whose end was not reported"),
                number("live", (created - churn - unseen)[known], "", "at the end"),
            ],
            len(known),
        )

    def over_time(self, count: int, types: Iterable[str] | None) -> Table:
        functions = self.trace.functions
        chosen = self._chosen(types)
        length = max(self.trace.duration, 1)

        def bins(times: Array) -> Array:
            place: Array = np.minimum(times * count // length, count - 1)
            return place

        births = self.is_created
        ends = np.where(self.other >= 0, self.time[self.other], self.unseen_time)
        ended = births & ((self.other >= 0) | self.unseen)
        created = np.zeros((len(chosen), count), dtype=np.int64)
        destroyed = np.zeros_like(created)
        for index, row in enumerate(chosen):
            of_type = self.type == row
            created[index] = np.bincount(bins(self.time[births & of_type]), minlength=count)
            destroyed[index] = np.bincount(bins(ends[ended & of_type]), minlength=count)
        rows = np.repeat(np.array(chosen, dtype=np.intp), count)
        start = np.array([length * k // count for k in range(count)], dtype=np.int64)
        return Table(
            self.trace._title("objects over time"),
            [
                number("time", np.tile(start, len(chosen)), "ns", "the bin's start"),
                functions[rows]._column("name"),
                functions[rows]._column("module"),
                number("created", created.ravel(), "", "in the bin"),
                number("destroyed", destroyed.ravel(), "", "in the bin"),
                number("live", np.cumsum(created - destroyed, axis=1).ravel(), "", "at its end"),
            ],
            len(rows),
        )

    def _chosen(self, types: Iterable[str] | None) -> list[int]:
        """Return rows of functions."""
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
