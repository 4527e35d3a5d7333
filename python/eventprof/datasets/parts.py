"""What a dataset keeps of one recording: tables that are added to those of other recordings.

A *partial* comes from one pass over the file, in the memory of its tree. The rows (slices,
allocations, slowest, events) need the columns of all events in memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .._optional import require
from ..answers.tree import Tree
from .ids import function_ids, node_ids, text_id

if TYPE_CHECKING:
    from ..trace import Trace
    from ..trace.column import Array
    from ..trace.table import Table

#: Figures of a node. total and waited include the calls below the node, the others do not.
NODE_SUMS = ("calls", "resumes", "raised", "total", "self", "waited", "waited_self", "cut",
             "cut_ns", "freed")  # fmt: skip
LEAF_SUMS = ("allocated", "blocks", "live", "live_blocks", "at_peak", "at_peak_blocks",
             "temporary", "temporary_blocks")  # fmt: skip
#: Of functions, all of which add up; min and max are beside them.
FUNCTION_SUMS = (
    "calls", "resumes", "recursive", "whole", "spent", "total", "self", "waited", "waited_self",
    "blocked", "blocked_self",
    *(name + end for name in ("allocated", "freed", "blocks", "live", "temporary", "at_peak")
      for end in ("", "_self")),
)  # fmt: skip
#: Into how many parts of equal length the window is cut for `memory`.
RESOLUTIONS = (64, 512, 4096)
#: The longest calls that `slowest` keeps of a process, and of each function.
SLOWEST, SLOWEST_OF_FUNCTION = 1000, 10
#: Rows of a row group: what a reader skips by its statistics.
GROUP_ROWS = 1 << 15


#: The tables that every recording has, and those that need its columns.
PARTIALS = {
    "processes": "the recordings: host, process, command, window, loss, peak",
    "threads": "their threads",
    "loss": "events that found no room, by kind",
    "functions": "calls, times and bytes by function",
    "lengths": "how many calls of a function took how long: a log-linear histogram",
    "nodes": "calls and times by path of calls",
    "leaves": "bytes and blocks by path of calls and by line",
    "memory": "least and most live bytes in equal parts of the window",
}
ROWS = {
    "slowest": "the longest calls, of each recording and of each function",
    "slices": "all calls, by the magnitude of their duration, thread and start",
    "allocations": "all blocks, by the magnitude of their size and start",
}
EVENTS = {"events": "all events, in order of time"}


class Recording:
    """The tables of one recording.

    Parameters
    ----------
    trace : Trace
        The recording.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._arrow = require("pyarrow", "dataset", "a dataset")
        self._tree = Tree(trace, lengths=True)
        self._function_ids = function_ids(self._tree.functions)
        self._node_ids = node_ids(self._tree, self._function_ids)
        known, file = trace.metadata, trace.file or {}
        self._path = str(file.get("path", ""))
        pid = known.get("pid")
        # The tables of a recording replace those that were made of it before.
        self.process = text_id(
            known.get("hostname"), pid, known["start_ns"], known["start_monotonic_ns"],
            None if pid else os.path.basename(self._path), trace._facts["events"] if not pid else 0,
        )  # fmt: skip

    def tables(self, *, rows: bool, events: bool) -> Iterator[tuple[str, Iterator[Any]]]:
        """Give the tables, each as a name and parts of it as Arrow tables of one schema."""
        chosen = {**PARTIALS, **(ROWS if rows else {}), **(EVENTS if events else {})}
        for name in chosen:
            yield name, getattr(self, f"_make_{name}")()

    def _table(self, /, **columns: Any) -> Any:
        """Make an Arrow table, with the process in front."""
        length = len(next(iter(columns.values())))
        process = np.full(length, self.process, dtype=np.int64)
        return self._arrow.table({"process": process, **columns})

    # ---- Partials --------------------------------------------------------------------------------

    def _make_processes(self) -> Iterator[Any]:
        trace, tree, known = self._trace, self._tree, self._trace.metadata
        command = " ".join(map(str, known.get("argv") or ())) or None
        missing = (trace.file or {}).get("missing") or ()
        texts = {
            "name": os.path.splitext(os.path.basename(self._path))[0], "file": self._path,
            "host": known.get("hostname"), "python": known.get("python"), "command": command,
            "loss_reason": trace.loss.reason, "missing": "; ".join(missing) or None,
        }  # fmt: skip
        numbers = {
            "pid": known.get("pid"), "start_ns": known["start_ns"],
            "start_monotonic_ns": known["start_monotonic_ns"], "duration": trace.duration,
            "threads": len(trace.threads), "events": trace._facts["events"],
            "lost": trace.loss.total, "folded": tree.facts["folded"],
            **{name: tree.facts[name] for name in ("peak", "peak_blocks", "live", "live_blocks")},
            "peak_time": None if tree.facts["peak_time"] < 0 else tree.facts["peak_time"],
        }  # fmt: skip
        arrow = self._arrow
        made = {name: arrow.array([_utf8(text)], arrow.string()) for name, text in texts.items()}
        made |= {name: arrow.array([value], arrow.int64()) for name, value in numbers.items()}
        yield self._table(**made, has_lock=arrow.array([tree.has_lock]))

    def _make_threads(self) -> Iterator[Any]:
        table, sums = self._trace.threads, self._tree.threads
        part = self._arrow.table(table)
        yield self._table(
            thread=np.arange(len(table), dtype=np.int64),
            **{name: _plain(part[name], self._arrow) for name in table.columns},
            **{name: sums[name].astype(np.int64) for name in ("in_calls", "allocated")},
        )

    def _make_loss(self) -> Iterator[Any]:
        lost = self._trace.loss.by_kind
        yield self._table(
            event=self._arrow.array(list(lost), self._arrow.string()),
            lost=np.array(list(lost.values()), dtype=np.int64),
        )

    def _function_texts(self) -> dict[str, Any]:
        """Name the functions, and behind them what belongs to none."""
        arrow, functions = self._arrow, self._tree.functions
        rows = [*functions, ("(unknown)", None, None, None, "unknown")]
        names, modules, files, lines, kinds = zip(*rows, strict=True)
        texts = {"name": names, "module": modules, "file": files, "kind": kinds}
        return {
            "function": np.delete(self._function_ids, -2),
            **{
                name: arrow.array(map(_utf8, values), arrow.string())
                for name, values in texts.items()
            },
            "line": arrow.array(lines, arrow.int64()),
        }

    def _make_functions(self) -> Iterator[Any]:
        figures = self._tree.by_function()
        null = figures["max"] < 0
        yield self._table(
            **self._function_texts(),
            **{name: np.asarray(figures[name], dtype=np.int64) for name in FUNCTION_SUMS},
            **{name: self._arrow.array(figures[name], mask=null) for name in ("min", "max")},
        )

    def _make_lengths(self) -> Iterator[Any]:
        lengths = self._tree._lengths
        at = np.lexsort((lengths["low"], lengths["function"]))
        yield self._table(
            function=self._function_ids[lengths["function"][at]],
            low=lengths["low"][at],
            high=lengths["high"][at],
            calls=lengths["calls"][at],
        )

    def _make_nodes(self) -> Iterator[Any]:
        tree, functions = self._tree, self._function_ids
        none = {name: tree.nodes[name] < 0 for name in ("longest", "shortest")}
        yield self._table(
            node=self._node_ids,
            parent=self._node_ids[tree.parent],
            depth=tree.depth.astype(np.int64),
            function=functions[tree.function],
            caller=functions[tree.caller],
            line=tree.line.astype(np.int64),
            **{name: tree.nodes[name].astype(np.int64) for name in NODE_SUMS},
            **{name: self._arrow.array(tree.nodes[name], mask=null) for name, null in none.items()},
        )

    def _make_leaves(self) -> Iterator[Any]:
        tree = self._tree
        yield self._table(
            node=self._node_ids[tree.leaf_node],
            function=self._function_ids[tree.leaf_function],
            line=tree.leaf_line.astype(np.int64),
            **{name: tree.leaves[name].astype(np.int64) for name in LEAF_SUMS},
        )

    def _make_memory(self) -> Iterator[Any]:
        for count in RESOLUTIONS:
            low, high = self._tree.live_bins(count)
            edges = np.arange(count + 1, dtype=np.int64) * self._trace.duration // count
            yield self._table(
                parts=np.full(count, count, dtype=np.int64),
                part=np.arange(count, dtype=np.int64),
                start=edges[:-1],
                end=edges[1:],
                low=low.astype(np.int64),
                high=high.astype(np.int64),
            )

    # ---- Rows ------------------------------------------------------------------------------------

    def _make_slices(self) -> Iterator[Any]:
        calls = self._trace.calls
        start, duration = calls["start"], calls["duration"]
        order = np.lexsort((start, calls["thread"], -_magnitude(duration)))
        names = ("start", "duration", "self", "waited", "thread", "depth", "kind", "flags",
                 "caller_line", "allocated", "allocated_self", "blocks", "freed",
                 "task")  # fmt: skip
        yield from self._rows(calls, order, names, "duration", ("function", "caller"), call=True)

    def _make_slowest(self) -> Iterator[Any]:
        calls = self._trace.calls
        duration, function = calls["duration"], calls["function"]
        order = np.lexsort((calls["start"], -duration))
        chosen = order[:SLOWEST]
        by_function = order[np.argsort(np.ma.filled(function, -1)[order], kind="stable")]
        of = np.ma.filled(function, -1)[by_function]
        rank = np.arange(len(of)) - np.searchsorted(of, of)
        chosen = np.union1d(chosen, by_function[rank < SLOWEST_OF_FUNCTION])
        chosen = chosen[np.lexsort((calls["start"][chosen], -duration[chosen]))]
        names = ("start", "duration", "self", "waited", "thread", "depth", "kind", "flags",
                 "caller_line", "allocated", "task")  # fmt: skip
        yield from self._rows(calls, chosen, names, "duration", ("function", "caller"), call=True)

    def _make_allocations(self) -> Iterator[Any]:
        blocks = self._trace.allocations
        order = np.lexsort((blocks["start"], -_magnitude(blocks["size"])))
        names = ("start", "end", "size", "domain", "thread", "line", "flags", "call", "freed_in",
                 "free_thread", "address")  # fmt: skip
        yield from self._rows(blocks, order, names, "size", ("function",))

    def _make_events(self) -> Iterator[Any]:
        events = self._trace.events
        names = [name for name in events.columns if name not in ("function", "name", "caller")]
        yield from self._rows(events, np.arange(len(events)), names, None, ("function", "caller"))

    def _rows(
        self,
        table: Table,
        order: Array,
        names: Any,
        measure: str | None,
        functions: tuple[str, ...],
        *,
        call: bool = False,
    ) -> Iterator[Any]:
        """Give rows in an order, a row group at a time; functions by their ids.

        measure: the column whose magnitude goes with them.
        """
        arrow = self._arrow
        for first in range(0, max(len(order), 1), GROUP_ROWS):
            at = order[first : first + GROUP_ROWS]
            part = arrow.table(table[at][list(names)])
            made = {} if measure is None else {"magnitude": _magnitude(table[measure][at])}
            if call:
                made |= {"call": at.astype(np.int64)}
            for name in functions:
                made[name] = self._function_ids[np.ma.filled(table[name], -1)[at]]
            yield self._table(**made, **{name: _plain(part[name], arrow) for name in names})


def _plain(column: Any, arrow: Any) -> Any:
    """Give text as text, and narrow numbers as int64, so that any engine adds and joins them."""
    kind = column.type
    if arrow.types.is_dictionary(kind):
        return column.cast(arrow.string())
    if arrow.types.is_uint64(kind):  # addresses: below 2**63
        return column.cast(arrow.int64())
    return column.cast(arrow.int64()) if arrow.types.is_integer(kind) else column


def _magnitude(values: Array) -> Array:
    """Give the number of bits of each value: 0 for 0, 10 for 512 to 1,023."""
    powers = np.int64(1) << np.arange(63, dtype=np.int64)
    return np.searchsorted(powers, values, side="right").astype(np.int64)


def _utf8(text: str | None) -> str | None:
    """Give text that UTF-8 can hold: surrogates become backslash escapes."""
    return None if text is None else text.encode("utf-8", "backslashreplace").decode()
