"""Profiles of the Firefox Profiler, as samply, Python 3.15's --gecko and eventprof write them.

A raw profile has tables as a schema and rows; a processed profile has a list for each column, and
in newer versions tables that all threads share.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from . import Unreadable
from ._build import SAMPLED, Builder, native_id
from .speedscope import samples


def read(path: str, data: bytes, builder: Builder) -> None:
    """Fill the builder: a thread for each of the profile's. A sample lasts until the next."""
    try:
        whole = json.loads(data)
    except ValueError as error:
        raise Unreadable(str(error)) from None
    meta = whole["meta"]
    if not isinstance(whole.get("threads"), list):
        raise Unreadable("threads is not a list")
    builder.start_ns = max(round(float(meta.get("startTime") or 0) * 1e6), 0)
    if meta.get("product"):
        builder.metadata["argv"] = (str(meta["product"]),)
    by_us = str(meta.get("importedFrom") or "").startswith("eventprof")
    builder.metadata["recorded_by"] = str(meta.get("importedFrom") or "a profile of Firefox")
    builder.lacks += [
        "counts of calls: it was sampled", "allocations", "exceptions", "lines of calls",
    ]  # fmt: skip
    builder.samples = None if by_us else 0
    builder.loss_unknown = None if by_us else SAMPLED
    _, with_loss, loss = str(meta.get("product") or "").partition(" (with loss: ")
    if with_loss and by_us:
        builder.lost.append(f"with loss: {loss.removesuffix(')')}")
    interval = round(float(meta.get("interval") or 1) * 1e6)
    _read_process(whole, builder, interval, 0.0)
    for process in whole.get("processes") or ():
        # Their times begin at their own start.
        apart = float(process["meta"].get("startTime") or 0) - float(meta.get("startTime") or 0)
        _read_process(process, builder, interval, apart)


def _read_process(whole: dict[str, Any], builder: Builder, interval: int, apart: float) -> None:
    shared = whole.get("shared") or {}
    for number, thread in enumerate(whole["threads"]):
        if not isinstance(thread, dict):
            raise Unreadable(f"threads[{number}] is not an object")
    pids = {str(thread.get("pid")) for thread in whole["threads"]}
    for number, thread in enumerate(whole["threads"]):
        try:
            _read_thread(thread, shared, builder, interval, apart, len(pids) > 1)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            what = f"{type(error).__name__}: {error}"
            raise Unreadable(f"threads[{number}] does not follow the format ({what})") from None


class _Table:
    """A table, as columns, whichever way it was written."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self._schema = table.get("schema")

    def column(self, *names: str) -> list[Any] | None:
        """Return the column of the first name that the table has; None: it has none."""
        for name in names:
            if self._schema is not None and name in self._schema:
                place = self._schema[name]
                return [row[place] if place < len(row) else None for row in self._table["data"]]
            if self._schema is None and self._table.get(name) is not None:
                found = self._table[name]
                return list(found) if isinstance(found, list) else None
        return None


def _read_thread(
    thread: dict[str, Any],
    shared: dict[str, Any],
    builder: Builder,
    interval: int,
    apart: float,
    several: bool,
) -> None:
    def table(name: str) -> _Table:
        return _Table(thread[name] if name in thread else shared[name])

    texts = (
        thread.get("stringTable") or thread.get("stringArray") or shared.get("stringArray") or []
    )
    functions = _functions(table, texts, builder)
    stack_table = table("stackTable")
    frames = stack_table.column("frame") or []
    prefixes = _prefixes(stack_table, len(frames))
    paths: dict[int, list[int]] = {}

    def path(stack: int | None) -> list[int]:
        found: list[int] = []
        if stack is None:
            return found
        if stack not in paths:
            node: int | None = stack
            seen = 0
            while node is not None:
                if seen > len(frames):
                    raise ValueError(f"stack {stack} has no end")
                found.append(functions[frames[node]])
                node, seen = prefixes[node], seen + 1
            paths[stack] = found[::-1]
        return paths[stack]

    taken = table("samples")
    stacks = taken.column("stack") or []
    times = _times(taken)
    if len(stacks) != len(times):
        raise ValueError(f"{len(stacks)} stacks and {len(times)} times of samples")
    name = str(thread.get("name") or "?")
    tid = thread.get("tid")
    pid = native_id(int(thread["pid"])) if str(thread.get("pid", "")).isdigit() else 0
    if pid:
        builder.metadata.setdefault("pid", pid)
    to = builder.thread(
        (thread.get("pid"), tid, name), f"{pid} {name}" if several else name,
        native_id(int(str(tid))) if str(tid).isdigit() else 0,
    )  # fmt: skip
    if builder.samples is not None:
        builder.samples += len(stacks)
    if not stacks:
        return
    times_ns = [round((time + apart) * 1e6) for time in times]
    weights = [max(b - a, 0) for a, b in pairwise(times_ns)]
    # Samples of the viewer's own begins and ends have no time after the last.
    weights.append(interval if builder.samples is not None else 0)
    samples(to, [path(stack) for stack in stacks], weights, times_ns[0])


def _times(taken: _Table) -> list[float]:
    times = taken.column("time")
    if times is not None:
        return [float(time) for time in times]
    found, now = [], 0.0
    for delta in taken.column("timeDeltas") or []:
        now += float(delta)
        found.append(now)
    return found


def _prefixes(table: _Table, count: int) -> list[int | None]:
    """Return the stack around each; None: it is outermost."""
    given = table.column("prefix")
    if given is not None:
        return given
    # Since version 66: how far back it is; 0: there is none.
    offsets = table.column("prefixOffset") or [0] * count
    return [row - offset if offset else None for row, offset in enumerate(offsets)]


def _functions(table: Callable[[str], _Table], texts: list[str], builder: Builder) -> list[int]:
    """Return the function of each frame."""
    frame_table = table("frameTable")
    locations = frame_table.column("location")
    if locations is not None and frame_table.column("func") is None:
        # Raw: "name (file:line)" as one text.
        return [_of_location(str(texts[text]), builder) for text in locations]
    funcs = table("funcTable")
    names = funcs.column("name") or []
    sources, files = funcs.column("source"), funcs.column("fileName")
    if sources is not None:
        filenames = table("sources").column("filename") or []
        files = [None if source is None else filenames[source] for source in sources]
    firsts = funcs.column("lineNumber") or [None] * len(names)
    rows = []
    for row, name in enumerate(names):
        file = None if files is None or files[row] is None else str(texts[files[row]])
        line = firsts[row] if type(firsts[row]) is int and 0 <= firsts[row] < 1 << 31 else None
        kind = "python" if file is not None and file.endswith((".py", ">")) else "c"
        rows.append(builder.function(str(texts[name]), None, file or None, line, kind))
    return [rows[func] for func in frame_table.column("func") or []]


def _of_location(text: str, builder: Builder) -> int:
    name, _, place = text.removesuffix(")").rpartition(" (")
    file, _, line = place.rpartition(":")
    if name and file and line.isdigit():
        return builder.function(name, None, file, int(line))
    return builder.function(text, kind="c")
