"""What a dataset keeps of one recording: tables that are added to those of other recordings.

A *partial* comes from one pass over the file, in the memory of its tree. The rows (slices,
allocations, slowest, events) come from the columns of all events, which may lie in files
(array.h of the core); of these, a row group at a time is in memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from .._optional import require
from ..answers.tree import Tree
from ..tables.event_rows import parts_of_rows
from ..tables.processes import labels_text
from .ids import function_ids, node_ids, text_id

if TYPE_CHECKING:
    from ..tables.column import Array, Column
    from ..tables.table import Table
    from ..trace import Trace

#: Figures of a node. total and waited include the calls below the node, the others do not.
NODE_SUMS = ("calls", "resumes", "raised", "total", "self", "waited", "waited_self", "cut",
             "cut_ns", "freed", "blocked", "lock_waited")  # fmt: skip
LEAF_SUMS = ("allocated", "blocks", "live", "live_blocks", "at_peak", "at_peak_blocks",
             "temporary", "temporary_blocks")  # fmt: skip
#: Figures of a function that can be added; its min and max cannot.
FUNCTION_SUMS = (*_core.added_columns(), "blocked", "blocked_self")
#: Into how many parts of equal length the window is cut for `memory`.
RESOLUTIONS = (64, 512, 4096)
#: The longest calls that `slowest` keeps of a process, and of each function: at least so many, and
#: one of so many. The longest of a function in a thousand processes are among these unless a few
#: processes have nearly all.
SLOWEST, SLOWEST_OF_FUNCTION, SLOWEST_SHARE = 1000, 10, 500
#: Rows of the first row group, and of the largest: each has twice the rows of the one before it. A
#: reader skips groups by their statistics.
FIRST_GROUP_ROWS, GROUP_ROWS = 1 << 11, 1 << 16
#: So much of columns in files is resident before it is given back.
RESIDENT_BYTES = 64 << 20
#: Rows that the system maps when one of them is touched, if 8 bytes each: 64 KiB.
MAPPED_BITS = 13
MAPPED_BYTES = 8 << MAPPED_BITS
#: The units of columns; all other numbers are counts, ids and lines.
_NS = frozenset((
    "start_ns", "start_monotonic_ns", "duration", "peak_time", "first", "last", "in_calls", "total",
    "self", "waited", "waited_self", "blocked", "blocked_self", "lock_waited", "spent", "min",
    "max", "cut_ns", "longest", "shortest", "start", "end", "p50", "p95", "p99",
    *(f"waited_{word}" for word in _core.WAIT_WORDS),
))  # fmt: skip
_BYTES = frozenset((
    "allocated", "allocated_self", "freed", "freed_self", "live", "live_self", "temporary",
    "temporary_self", "at_peak", "at_peak_self", "peak", "size",
))  # fmt: skip
#: What a file says of its units, as a JSON object.
UNITS = b"eventprof.units"


def units(table: str, names: Iterable[str]) -> dict[str, str]:
    """Return the units of a table's columns: of those that have one."""
    found = {name: "ns" for name in names if name in _NS}
    found |= {name: "bytes" for name in names if name in _BYTES}
    ranges = {"lengths": "ns", "memory": "bytes"}
    return found | {name: ranges[table] for name in ("low", "high") if table in ranges}


#: Marks a field of a schema: all rows of the file have one value.
SAME = {b"eventprof": b"same"}

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
        self._calls: dict[str, Loaded] = {}  # columns that two tables have
        known, file = trace.metadata, trace.file or {}
        self._path = str(file.get("path", ""))
        pid = known.get("pid")
        # The tables of a recording replace those that were made of it before.
        self.process = text_id(
            known.get("hostname"), pid, known["start_ns"], known["start_monotonic_ns"],
            None if pid else os.path.basename(self._path), trace._facts["events"] if not pid else 0,
        )  # fmt: skip

    def tables(self, *, rows: bool, events: bool) -> Iterator[tuple[str, Iterator[Any]]]:
        """Yield the tables, each as a name and parts of it as Arrow tables of one schema."""
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
            "labels": labels_text(known.get("labels")), "worker": known.get("worker"),
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
        made |= {
            f"waited_{word}": arrow.array([ns if tree.has_waits else None], arrow.int64())
            for word, ns in tree.waits.items()
        }
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
        """Name the functions."""
        arrow, rows = self._arrow, self._tree.functions
        names, modules, files, lines, kinds = zip(*rows, strict=True) if rows else ((),) * 5
        texts = {"name": names, "module": modules, "file": files, "kind": kinds}
        return {
            "function": self._function_ids[:-2],
            **{
                name: arrow.array(map(_utf8, values), arrow.string())
                for name, values in texts.items()
            },
            "line": arrow.array(lines, arrow.int64()),
        }

    def _sums(self, name: str, figures: dict[str, Any]) -> Any:
        """Return a figure by function; null where it was not recorded."""
        values = np.asarray(figures[name], dtype=np.int64)
        unknown = name.removeprefix("waited_") in _core.WAIT_WORDS and not self._tree.has_waits
        return self._arrow.array(values, mask=np.ones(len(values), bool)) if unknown else values

    def _make_functions(self) -> Iterator[Any]:
        # What the last row has belongs to no function: the trace's own table has no row for it.
        sums = self._tree.by_function() | self._tree.blocked_by_function()
        figures = {name: values[:-1] for name, values in sums.items()}
        null = figures["max"] < 0
        yield self._table(
            **self._function_texts(),
            **{name: self._sums(name, figures) for name in FUNCTION_SUMS},
            **{name: self._arrow.array(figures[name], mask=null) for name in ("min", "max")},
            **{
                name: self._arrow.array(figures[name], mask=figures[name] < 0)
                for name in ("p50", "p95", "p99")
            },
        )

    def _make_lengths(self) -> Iterator[Any]:
        lengths = self._tree._lengths
        order = np.lexsort((lengths["low"], lengths["function"]))
        yield self._table(
            function=self._function_ids[lengths["function"][order]],
            low=lengths["low"][order],
            high=lengths["high"][order],
            calls=lengths["calls"][order],
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
            **{name: tree.own(name).astype(np.int64) for name in NODE_SUMS},
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

    def _make_slowest(self) -> Iterator[Any]:
        calls = self._trace.calls
        duration, function = (calls._column(name).values() for name in ("duration", "function"))
        chosen = _longest(duration, function, self._tree._lengths)
        names = ("start", "duration", "self", "waited", "thread", "depth", "kind", "flags",
                 "caller_line", "allocated", "task", "name", "file", "line")  # fmt: skip
        yield from self._rows(
            calls, chosen, names, "duration", ("function", "caller"), "call", self._calls
        )

    def _make_slices(self) -> Iterator[Any]:
        calls = self._trace.calls
        order = _falling(
            *(calls._column(name).values() for name in ("duration", "thread", "start"))
        )
        names = ("start", "duration", "self", "waited", "thread", "depth", "kind", "flags",
                 "caller_line", "allocated", "allocated_self", "blocks", "freed",
                 "task")  # fmt: skip
        yield from self._rows(
            calls, order, names, "duration", ("function", "caller"), "call", self._calls
        )
        self._calls = {}  # the room of its columns is needed for those of blocks

    def _make_allocations(self) -> Iterator[Any]:
        blocks = self._trace.allocations
        order = _falling(blocks._column("size").values(), None, blocks._column("start").values())
        names = ("start", "end", "size", "domain", "thread", "line", "flags", "call", "freed_in",
                 "free_thread", "address")  # fmt: skip
        yield from self._rows(blocks, order, names, "size", ("function",))

    def _make_events(self) -> Iterator[Any]:
        events = self._trace.events
        names = [name for name in events.columns if name not in ("function", "name", "caller")]
        yield from self._rows(events, None, names, None, ("function", "caller"))

    def _rows(
        self,
        table: Table,
        order: Array | None,
        names: Any,
        sized: str | None,
        functions: tuple[str, ...],
        row: str = "",
        loaded: dict[str, Loaded] | None = None,
    ) -> Iterator[Any]:
        """Yield rows in an order, a row group at a time; functions as their ids.

        order: None: as they are. sized: the column whose magnitude becomes a column, too. row: the
        name of a column with the row's number; empty: no such column. loaded: columns of the table
        that another table has, too.
        """
        arrow = self._arrow
        # Each column is taken from the table once. Some are computed whenever they are asked for:
        # doing that for each group would take as long as making all columns of the group.
        loaded = {} if loaded is None else loaded
        for name in names:
            if name not in loaded:
                loaded[name] = _loader(table._column(name), arrow)
        for name in functions:
            if name not in loaded:
                loaded[name] = _functions(table._column(name), self._function_ids, arrow)
        process = arrow.array(np.full(GROUP_ROWS, self.process))
        columns: dict[str, Loaded] = {"process": _same(process)}
        if sized is not None:
            columns["magnitude"] = _magnitudes(table._column(sized), arrow)
        if row:
            columns[row] = Loaded(arrow.int64(), lambda rows: arrow.array(rows.astype(np.int64)))
        columns |= {name: loaded[name] for name in (*functions, *names)}
        schema = arrow.schema(
            [
                arrow.field(name, each.type, each.nullable, SAME if each.same else None)
                for name, each in columns.items()
            ]
        )
        resident = 0
        for first, last in _groups(len(table) if order is None else len(order)):
            chosen = np.arange(first, last) if order is None else order[first:last]
            pieces, back = _near(chosen)
            found = []
            for rows, mapped in pieces:
                arrays = []
                for each in columns.values():
                    if resident + mapped > RESIDENT_BYTES:
                        _core.give_back()
                        resident = 0
                    arrays.append(each.take(rows))
                    resident += mapped
                found.append(arrow.Table.from_arrays(arrays, schema=schema))
            if back is None:
                yield found[0]
            else:
                yield arrow.concat_tables(found).take(arrow.array(back)).combine_chunks()


@dataclass(frozen=True)
class Loaded:
    """A column whose values are known: its type, and a function that gives an array of some rows.

    Readers and writers pass over the test for null where nothing is; of values that are all the
    same none is looked at.
    """

    type: Any
    take: Callable[[Array], Any]
    nullable: bool = False
    same: bool = False


def _groups(count: int) -> Iterator[tuple[int, int]]:
    """Cut rows into row groups: small ones first, so that a few long calls cost few bytes."""
    first, size = 0, FIRST_GROUP_ROWS
    while first < count or not first:
        yield first, min(first + size, count)
        first, size = first + size, min(2 * size, GROUP_ROWS)


def _parts(count: int) -> Iterator[slice]:
    return parts_of_rows(count, GROUP_ROWS)


def _near(rows: Array) -> tuple[list[tuple[Array, int]], Array | None]:
    """Cut rows into pieces, none of which maps more of a column than may be resident.

    A row group may lie all over a column: the first one of blocks had mapped all of it.

    Returns
    -------
    pieces : list of (rows, bytes)
        The rows, and what they map of a column. The rows of several pieces are sorted.
    back : array or None
        Where each of the given rows is among the rows of all pieces; None: there is one piece, with
        the rows as they were given.
    """
    areas = rows >> MAPPED_BITS
    mapped = (1 + int(np.count_nonzero(np.diff(areas)))) * MAPPED_BYTES
    if mapped <= RESIDENT_BYTES:
        return [(rows, mapped)], None
    order = np.argsort(rows, kind="stable")
    areas = areas[order]
    area = np.cumsum(np.append(False, areas[1:] != areas[:-1]))
    most = max(RESIDENT_BYTES // MAPPED_BYTES, 1)
    last = int(area[-1]) + 1
    cuts = np.searchsorted(area, np.arange(most, last, most))
    pieces = [
        (part, min(most, last - number * most) * MAPPED_BYTES)
        for number, part in enumerate(np.split(rows[order], cuts))
    ]
    back = np.empty(len(rows), dtype=np.int64)
    back[order] = np.arange(len(rows))
    return pieces, back


def _falling(size: Array, thread: Array | None, start: Array) -> Array:
    """Return the order of rows by the magnitude of size, the largest first, by thread and start.

    The rows of a trace are in order of start already.
    """

    def is_unordered(rows: slice) -> bool:
        after = start[rows.start + 1 : rows.stop + 1]
        return bool((after < start[rows.start : rows.start + len(after)]).any())

    order: Array | None = None
    if any(map(is_unordered, _parts(len(start)))):
        for digit in range(4):

            def key_of(rows: Any, digit: int = digit) -> Array:
                key: Array = start[rows] >> 16 * digit & 0xFFFF
                return key

            order = _sorted_by(order, len(start), 1 << 16, key_of)
    threads = 1
    if thread is not None:
        threads = 1 + max((int(thread[rows].max()) for rows in _parts(len(start))), default=0)
    if threads > 1:
        assert thread is not None
        order = _sorted_by(order, len(start), threads, thread.__getitem__)
    return _sorted_by(order, len(start), 64, lambda rows: 63 - _magnitude(size[rows]))


def _sorted_by(order: Array | None, count: int, keys: int, key_of: Callable[[Any], Array]) -> Array:
    """Return rows sorted by a key below `keys`, those of one key in their order: a counting sort.

    order: None: as they are. NumPy sorts 16 bits by radix.
    """
    kind = np.uint16 if keys <= 1 << 16 else np.int64
    place = np.zeros(keys + 1, dtype=np.int64)
    for part in _parts(count):
        key = key_of(part if order is None else order[part])
        place[1:] += np.bincount(key, minlength=keys)
    place = np.cumsum(place)
    found: Array = _core.new_column(count, "int32")
    for part in _parts(count):
        key = key_of(part if order is None else order[part]).astype(kind)
        by_key = np.argsort(key, kind="stable")
        key = key[by_key]
        first = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
        many = np.diff(first, append=len(key))
        to = np.repeat(place[key[first]] - first, many) + np.arange(len(key))
        found[to] = part.start + by_key if order is None else order[part][by_key]
        place[key[first]] += many
    return found


def _longest(duration: Array, function: Array, lengths: dict[str, Array]) -> Array:
    """Return the rows of the longest calls of all and of each function, the longest first.

    lengths: how many calls of a function took how long. Few calls are sorted by that.
    """
    most = max((int(function[part].max()) for part in _parts(len(duration))), default=-1)
    count = np.zeros(most + 2, dtype=np.int64)
    for part in _parts(len(duration)):
        count += np.bincount(function[part] + 1, minlength=len(count))
    kept = np.maximum(count // SLOWEST_SHARE, SLOWEST_OF_FUNCTION)
    of_each, of_all = _reached(lengths, kept)
    for least in (np.minimum(of_each, of_all), np.zeros_like(of_each)):
        found, of_least, long = [np.empty(0, np.int64)], np.zeros_like(count), 0
        for part in _parts(len(duration)):
            took, owner = duration[part], function[part] + 1
            rows = np.flatnonzero(took >= least[owner])
            of_least += np.bincount(owner[rows], minlength=len(count))
            long += int(np.count_nonzero(took[rows] >= of_all))
            found.append(part.start + rows)
            if sum(map(len, found)) > 2 * (kept.sum() + SLOWEST) + GROUP_ROWS:
                found = [_longest_of(np.concatenate(found), duration, function, kept)]
        if (of_least >= np.minimum(kept, count)).all() and long >= min(SLOWEST, len(duration)):
            break  # else the lengths are not those of these calls
    return _longest_of(np.concatenate(found), duration, function, kept)


def _longest_of(rows: Array, duration: Array, function: Array, kept: Array) -> Array:
    """Choose the longest calls of some: `SLOWEST` of all, and so many of each function."""
    rows = np.sort(rows)
    took, owner = (np.empty(len(rows), dtype=each.dtype) for each in (duration, function))
    done = 0
    for part, _ in _near(rows)[0]:
        took[done : done + len(part)] = duration[part]
        owner[done : done + len(part)] = function[part] + 1
        done += len(part)
        _core.give_back()
    # By duration, then by row, which is the order of start.
    falling = np.argsort(-took, kind="stable")
    rows, owner = rows[falling], owner[falling]
    by_function = np.argsort(owner, kind="stable")
    owner = owner[by_function]
    chosen = np.zeros(len(rows), dtype=bool)
    chosen[:SLOWEST] = True
    rank = np.arange(len(owner)) - np.searchsorted(owner, owner)
    chosen[by_function[rank < kept[owner]]] = True
    longest: Array = rows[chosen]
    return longest


def _reached(lengths: dict[str, Array], kept: Array) -> tuple[Array, int]:
    """Return durations that so many calls reach: of each function, the unknown one first; of all.

    kept: how many calls of each function; of all, `SLOWEST`. 0: there are fewer.
    """
    order = np.lexsort((-lengths["low"], lengths["function"]))
    order = order[(lengths["function"][order] >= -1) & (lengths["function"][order] < len(kept) - 1)]
    function, low, calls = (lengths[name][order] for name in ("function", "low", "calls"))
    before = np.cumsum(calls) - calls
    reached = before + calls - before[np.searchsorted(function, function)]
    enough = np.flatnonzero(reached >= kept[function + 1])
    durations = np.zeros(len(kept), dtype=np.int64)
    functions, first = np.unique(function[enough], return_index=True)
    durations[functions + 1] = low[enough[first]]

    order = np.argsort(-lengths["low"], kind="stable")
    enough = np.flatnonzero(np.cumsum(lengths["calls"][order]) >= SLOWEST)
    return durations, int(lengths["low"][order[enough[0]]]) if len(enough) else 0


def _loader(column: Column, arrow: Any) -> Loaded:
    """Load a column: numbers of 64 bits, or a dictionary.

    A dictionary is made without hashing or copying the text of each row; in the files it is text.
    """
    values = column.values()
    wide = values.dtype
    if column.words is None:
        wide = np.dtype(np.int64) if wide.kind in "iu" else wide  # addresses are below 2**63
        kind = arrow.from_numpy_dtype(wide)

        def made(chosen: Array, mask: Array | None) -> Any:
            return arrow.array(chosen, mask=mask)
    else:
        words = arrow.array(map(_utf8, column.words.texts()), arrow.string())
        kind = arrow.dictionary(arrow.from_numpy_dtype(wide), arrow.string())

        def made(chosen: Array, mask: Array | None) -> Any:
            codes = arrow.array(chosen, mask=mask)
            return arrow.DictionaryArray.from_arrays(codes, words, safe=False)

    def part_of(rows: Array | slice) -> Column:
        return column.select(lambda values: values[rows])

    same, some = bool(len(values)) and values[0] == values[-1], False
    for rows in _parts(len(values)) if same or column.nullable else ():
        part = part_of(rows)
        nulls = part.nulls()
        same = same and bool((part.values() == values[0]).all())
        some = some or (nulls is not None and bool(nulls.any()))
        if some and not same:
            break
    if same:
        mask = np.ones(GROUP_ROWS, dtype=bool) if some else None
        return _same(made(np.full(GROUP_ROWS, values[0], dtype=wide), mask), column.nullable)

    def take(rows: Array) -> Any:
        part = part_of(rows)
        return made(part.values().astype(wide, copy=False), part.nulls() if some else None)

    return Loaded(kind, take, column.nullable)


def _functions(column: Column, ids: Array, arrow: Any) -> Loaded:
    """Load a column of rows of functions, as their ids; the last id is that of -1."""
    codes = column.values()
    return Loaded(arrow.int64(), lambda rows: arrow.array(ids[codes[rows]]))


def _magnitudes(column: Column, arrow: Any) -> Loaded:
    """Make a column of the magnitudes of another."""
    sizes = column.values()
    return Loaded(arrow.int64(), lambda rows: arrow.array(_magnitude(sizes[rows]).astype(np.int64)))


def _same(whole: Any, nullable: bool = False) -> Loaded:
    """Make a column of one value, of an array of it that has the rows of the largest group."""
    return Loaded(whole.type, lambda rows: whole.slice(0, len(rows)), nullable, same=True)


def _plain(column: Any, arrow: Any) -> Any:
    """Make text of dictionaries, and int64 of whole numbers, which any engine adds and joins."""
    kind = column.type
    if arrow.types.is_dictionary(kind):
        return column.cast(arrow.string())
    if arrow.types.is_uint64(kind):  # addresses: below 2**63
        return column.cast(arrow.int64())
    return column.cast(arrow.int64()) if arrow.types.is_integer(kind) else column


def _magnitude(values: Array) -> Array:
    """Return the number of bits of each value: 0 for 0 and for unknown, 10 for 512 to 1,023."""
    values = np.maximum(values, 0)
    if int(values.max(initial=0)) >= 1 << 53:  # a float64 would round up to the next power
        powers = np.int64(1) << np.arange(63, dtype=np.int64)
        bits: Array = np.searchsorted(powers, values, side="right").astype(np.int8)
        return bits
    # The exponent of a float64, which is 0 for 0.
    exponent = values.astype(np.float64).view(np.int64) >> 52
    bits = np.maximum(exponent - 1022, 0).astype(np.int8)
    return bits


def _utf8(text: str | None) -> str | None:
    """Return text that UTF-8 can hold: surrogates become backslash escapes."""
    return None if text is None else text.encode("utf-8", "backslashreplace").decode()
