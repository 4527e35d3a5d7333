"""The tables of what was recorded: events, calls, allocations, functions, lines, threads.

columns.def of the core lists them: name, where the values are, type, which are null, unit and
meaning. The numbers come from the extension, which computes them step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np

from .. import _core
from .column import Array, Column, Null, Words, code_type
from .descriptions import Description, Loader, described, number, strings
from .event_rows import event_codes, label_columns
from .kinds import CALL_WORDS, DOMAINS, WORDS
from .processes import process_of, text_column, with_process
from .table import Compensate, Table

if TYPE_CHECKING:
    from ..trace.recorded import Recorded


def events_table(trace: Recorded) -> Table:
    """Make `Trace.events`."""
    return Table(
        trace._title("events"),
        with_process(trace, _described(trace, "events", trace._core.events)),
        trace._facts["events"],
    )


def calls_table(trace: Recorded) -> Table:
    """Make `Trace.calls`."""
    load = trace._core.calls
    columns = _described(trace, "calls", load)
    columns += label_columns(trace, columns, lambda: trace._labels_of_calls)
    return Table(
        trace._title("calls"),
        with_process(trace, columns),
        len(load("parent")),
        partial(_compensate_calls, trace),
    )


def allocations_table(trace: Recorded) -> Table:
    """Make `Trace.allocations`."""
    load = trace._core.allocations
    return Table(
        trace._title("allocations"),
        with_process(trace, _described(trace, "allocations", load)),
        len(load("previous")),
    )


def _described(trace: Recorded, table: str, load: Loader) -> list[Column]:
    """Return the columns of a table as columns.def describes them."""
    made: dict[str, Column] = {}
    for description in described(table):
        made[description.name] = _described_column(trace, description, load, made)
    return list(made.values())


def _described_column(
    trace: Recorded, description: Description, load: Loader, before: Mapping[str, Column]
) -> Column:
    if description.reading == "event":
        return _kind_column(
            description.name, lambda code: event_codes(trace, code), description.meaning
        )
    if description.reading == "call":
        return _kind_column(
            description.name,
            lambda code: _core.gather(code, load("kind")),
            description.meaning,
            CALL_WORDS,
        )
    if description.reading == "domain":
        return _domain_column(load, description.meaning)
    if description.reading == "string" and description.name in ("name", "file"):
        return _text_of_function(trace, description.name, before["function"], description.meaning)
    if description.reading == "string":
        return strings(description, load, trace._strings_of(description.table, description.name))
    return number(description, load, recorded(trace))


def recorded(trace: Recorded) -> set[str]:
    """Of lines and memory, what was recorded; "lock", if the interpreter had one; "waits"."""
    words = {WORDS[kind] for kind in WORDS if trace._facts["kinds"] >> kind & 1}
    recorded = {"lines"} if "line" in words else set()
    if not words.isdisjoint(("malloc", "calloc", "realloc")):
        recorded.add("memory")
    if trace._knows_waited:
        recorded.add("lock")
    if trace._has_waits:
        recorded.add("waits")
    return recorded


def _text_of_function(trace: Recorded, name: str, function: Column, doc: str) -> Column:
    texts = trace.functions._column(name)
    return Column(
        name,
        lambda: _map(texts.values(), function.values()),
        words=texts.words,
        doc=doc,
    )


def _kind_column(
    name: str, codes: Callable[[Array], Array], doc: str, words: Mapping[int, str] = WORDS
) -> Column:
    """Return a column of words; `codes` gives those of the rows, from the code of each kind."""
    texts = tuple(dict.fromkeys(words.values()))
    code = np.full(max(words) + 2, -1, dtype=code_type(len(texts)))
    for kind, word in words.items():
        code[kind] = texts.index(word)
    return Column(
        name,
        lambda: codes(code),
        null="never",
        words=Words(lambda: texts),
        doc=doc,
    )


def functions_table(trace: Recorded) -> Table:
    """Make `Trace.functions`."""
    rows = trace._core.functions()
    names, modules, files, lines, kinds = zip(*rows, strict=True) if rows else ((),) * 5
    line_values = np.array([-1 if line is None else line for line in lines], dtype=np.int32)

    texts = {"name": names, "module": modules, "file": files, "kind": kinds}

    def load(name: str) -> Array:
        return line_values if name == "line" else _figure(trace, name)[: len(rows)]

    return Table(
        trace._title("functions"),
        [
            text_column(
                description.name,
                texts[description.name],
                description.meaning,
                null=cast("Null", description.null),
            )
            if description.name in texts
            else number(description, load, recorded(trace))
            for description in described("functions")
        ],
        len(rows),
        partial(_compensate_functions, trace),
    )


def _compensate_calls(trace: Recorded, compensate: Compensate) -> Table:
    from .compensation import calls

    return calls(trace, trace.calls, compensate)


def _compensate_functions(trace: Recorded, compensate: Compensate) -> Table:
    from .compensation import functions

    return functions(trace, trace.functions, compensate)


def lines_table(trace: Recorded) -> Table:
    """Make `Trace.lines`."""
    load = trace._core.lines
    return Table(trace._title("lines"), _described(trace, "lines", load), len(load("line")))


def threads_table(trace: Recorded) -> Table:
    """Make `Trace.threads`."""
    rows = trace._thread_rows
    names, native_ids, firsts, lasts, recorded, lost = (
        zip(*rows, strict=True) if rows else ((),) * 6
    )
    recorded_sums = np.array([sum(counts.values()) for counts in recorded], dtype=np.int64)
    silent = recorded_sums == 0
    values = {
        "native_id": np.array(native_ids, dtype=np.int64),
        "first": np.where(silent, -1, np.array(firsts, dtype=np.int64)),
        "last": np.where(silent, -1, np.array(lasts, dtype=np.int64)),
        "recorded": recorded_sums,
        "lost": np.array([sum(counts.values()) for counts in lost], dtype=np.int64),
    }
    return Table(
        "threads",
        [
            text_column(description.name, names, description.meaning)
            if description.reading == "string"
            else number(description, values.__getitem__)
            for description in described("threads")
        ]
        + process_of(trace, lambda: np.arange(len(rows), dtype=np.int32)),
        len(rows),
    )


def _figure(trace: Recorded, name: str) -> Array:
    """Return a column of `functions`, and after its rows one for what belongs to no function."""
    sums = trace._function_figures
    return sums[name] if name in sums else trace._percentiles[name]


def _domain_column(load: Loader, doc: str) -> Column:
    # uint8 or int8: none is -1 in both.
    return Column(
        "domain", lambda: load("domain").view(np.int8), words=Words(lambda: DOMAINS), doc=doc
    )


def _map(codes: Array, rows: Array) -> Array:
    """Return codes[rows], and -1 for row -1."""
    return _core.gather(np.append(codes, codes.dtype.type(-1)), rows)
