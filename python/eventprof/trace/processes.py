"""The processes of a trace: one, or those of the recordings that it was merged of."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from .. import _core
from .column import Array, Column, Null, encode
from .facts import Facts
from .table import Table


class Processes(Facts):
    """The table of processes, and the columns that refer to it."""

    @cached_property
    def processes(self) -> Table:
        """Every process of the trace: several, if it was merged, or opened from a folder.

        Returns
        -------
        Table
            ``pid`` int64; ``parent`` int32, row of this table, null if the parent is not in the
            trace; ``name`` text, the program and its arguments, and ``host`` text, null where
            unknown. ``start`` and ``end`` int64, ns since the trace's start, of its recording;
            ``state`` text: ended, running, or unfinished (killed, or ended by ``os._exit`` or
            ``os.exec*``). ``events`` and ``lost`` int64; ``file`` text, null if there is none.

        Notes
        -----
        `events`, `calls`, `allocations` and `threads` of a merged trace have a column ``process``
        int32, row of this table.
        """
        rows = self._process_rows

        def numbers(name: str) -> Array:
            return np.array([row[name] for row in rows], dtype=np.int64)

        parents = [-1 if row["parent"] is None else row["parent"] for row in rows]
        texts = {
            "name": tuple(shlex.join(row["command"]) or None for row in rows),
            "host": tuple(row["host"] for row in rows),
            "state": tuple(row["state"] for row in rows),
            "file": tuple(row["file"] for row in rows),
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
            ],
            len(rows),
        )  # fmt: skip

    @property
    def _process_rows(self) -> Sequence[Mapping[str, Any]]:
        """What is known of each process; see files/merging.py."""
        known: Sequence[Mapping[str, Any]] = self._recorder_metadata.get("processes") or ()
        if known:
            return known
        metadata, file = self.metadata, self._file() if self._file is not None else {}
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
                "end": self.duration,
                "state": state,
                "events": self._facts["events"],
                "lost": self.loss.total,
                "file": None if path is None else os.path.basename(path),
            },
        )

    def _process_of(self, threads: Callable[[], Array]) -> list[Column]:
        """Give the column of processes, of rows of `threads`; none if the trace was not merged."""
        if not self._recorder_metadata.get("processes"):
            return []

        def load() -> Array:
            of_thread = self._process_of_threads
            return _core.gather(np.append(of_thread, np.int32(-1)), threads())

        return [
            Column("process", load, np.dtype(np.int32), null="negative", doc="row of processes")
        ]

    @property
    def _process_of_threads(self) -> Array:
        """The process of each thread."""
        known = self._recorder_metadata.get("processes")
        if not known:
            return np.zeros(len(self._thread_rows), dtype=np.int32)
        return np.repeat(np.arange(len(known), dtype=np.int32), [each["threads"] for each in known])

    def _with_process(self, columns: list[Column]) -> list[Column]:
        thread = next(column for column in columns if column.name == "thread")
        return columns + self._process_of(thread.values)


def tell_processes(core: _core.Trace, metadata: Mapping[str, Any]) -> None:
    """Tell the extension's part of an archive which threads are of which process."""
    rows = metadata.get("processes")
    if not isinstance(rows, tuple) or not all(isinstance(row, dict) for row in rows):
        return
    counts = tuple(row.get("threads") for row in rows)
    if all(isinstance(count, int) and 0 <= count < 1 << 31 for count in counts):
        core.set_processes(counts)


def text_column(
    name: str, texts: tuple[str | None, ...], doc: str, *, null: Null = "negative"
) -> Column:
    """Give a column of texts, None where unknown."""
    codes, words = encode(texts)
    return Column(name, lambda: codes, null=null, words=words, doc=doc)
