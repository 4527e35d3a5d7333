"""The processes of a trace: one, or those of the recordings that it was merged of."""

from __future__ import annotations

import fnmatch
import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .. import _core
from .column import Array, Column, Null, encode
from .facts import Facts
from .table import Table


def is_thread(wanted: str | int, name: str | None, native_id: int) -> bool:
    """Whether a thread is a wanted one: by its native id, as text, too, or a glob of its name."""
    return str(wanted) == str(native_id) or (
        isinstance(wanted, str) and fnmatch.fnmatchcase(name or "", wanted)
    )


def processes_table(trace: Facts) -> Table:
    """Make `Trace.processes`."""
    rows = _process_rows(trace)

    def numbers(name: str) -> Array:
        return np.array([row[name] for row in rows], dtype=np.int64)

    parents = [-1 if row["parent"] is None else row["parent"] for row in rows]
    texts = {
        "name": tuple(shlex.join(row["command"]) or None for row in rows),
        "host": tuple(row["host"] for row in rows),
        "state": tuple(row["state"] for row in rows),
        "file": tuple(row["file"] for row in rows),
        "labels": tuple(labels_text(row.get("labels")) for row in rows),
        "worker": tuple(row.get("worker") for row in rows),
    }

    def number_column(name: str, unit: str, doc: str) -> Column:
        return Column(name, lambda: numbers(name), np.dtype(np.int64), null="never",
                      unit=unit, doc=doc)  # fmt: skip

    return Table(
        "processes",
        [
            number_column("pid", "", "the system's"),
            Column("parent", lambda: np.array(parents, dtype=np.int32), np.dtype(np.int32),
                   null="negative", doc="row of this table; null: not in the trace"),
            text_column("name", texts["name"], "the program and its arguments"),
            text_column("host", texts["host"], "where it ran"),
            number_column("start", "ns", "of its recording, since the trace's start"),
            number_column("end", "ns", "of its recording, since the trace's start"),
            text_column("state", texts["state"], "ended, running or unfinished"),
            number_column("events", "events", "recorded"),
            number_column("lost", "events", "without room"),
            text_column("file", texts["file"], "of its recording, in the folder"),
            text_column("labels", texts["labels"], "of its recording, as a JSON object"),
            text_column("worker", texts["worker"], "what a pool or a server calls it"),
        ],
        len(rows),
    )  # fmt: skip


def labels_text(labels: object) -> str | None:
    """Return the labels of a recording as a table has them; None: there are none."""
    return (
        json.dumps(labels, ensure_ascii=False) if isinstance(labels, Mapping) and labels else None
    )


def _process_rows(trace: Facts) -> Sequence[Mapping[str, Any]]:
    """Return what is known of each process; see files/merging.py."""
    known: Sequence[Mapping[str, Any]] = trace._recorder_metadata.get("processes") or ()
    if known:
        return known
    metadata, file = trace.metadata, trace._file() if trace._file is not None else {}
    path = file.get("path")
    state = "ended"
    if file.get("unfinished"):
        state = "running" if file.get("live") else "unfinished"
    return (
        {
            "pid": metadata.get("pid") or 0,
            "parent": None,
            "command": tuple(map(str, metadata.get("argv") or ())),
            "host": metadata.get("hostname"),
            "start": 0,
            "end": trace.duration,
            "state": state,
            "events": trace._facts["events"],
            "lost": trace.loss.total,
            "file": None if path is None else os.path.basename(path),
            "labels": metadata.get("labels"),
            "worker": metadata.get("worker"),
        },
    )


def process_of(trace: Facts, threads: Callable[[], Array]) -> list[Column]:
    """Return the column of processes for rows of `threads`; none of an unmerged trace."""
    if not trace._recorder_metadata.get("processes"):
        return []

    def load() -> Array:
        of_thread = process_of_threads(trace)
        return _core.gather(np.append(of_thread, np.int32(-1)), threads())

    return [Column("process", load, np.dtype(np.int32), null="negative", doc="row of processes")]


def process_of_threads(trace: Facts) -> Array:
    """Return the process of each thread."""
    known = trace._recorder_metadata.get("processes")
    if not known:
        return np.zeros(len(trace._thread_rows), dtype=np.int32)
    return np.repeat(np.arange(len(known), dtype=np.int32), [each["threads"] for each in known])


def with_process(trace: Facts, columns: list[Column]) -> list[Column]:
    """Add the column of processes, if the trace was merged."""
    thread = next(column for column in columns if column.name == "thread")
    return columns + process_of(trace, thread.values)


def tell_processes(core: _core.Trace, metadata: Mapping[str, Any]) -> None:
    """Set which threads are of which process in the extension's part of an archive."""
    rows = metadata.get("processes")
    if not isinstance(rows, tuple) or not all(isinstance(row, dict) for row in rows):
        return
    counts = tuple(row.get("threads") for row in rows)
    if all(isinstance(count, int) and 0 <= count < 1 << 31 for count in counts):
        core.set_processes(counts)


def text_column(
    name: str, texts: tuple[str | None, ...], doc: str, *, null: Null = "negative"
) -> Column:
    """Return a column of texts, None where unknown."""
    codes, words = encode(texts)
    return Column(name, lambda: codes, null=null, words=words, doc=doc)
