"""The tree, the tenures of the lock and own lines as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..tables.column import Array, Column, Null, encode
from ..tables.table import Table
from .tree import OTHER, Tree
from .waiting import WORDS

if TYPE_CHECKING:
    from ..trace.recorded import Recorded

_SUMS = (
    ("allocated", "bytes", "by the node and the nodes below it"),
    ("blocks", "", "allocated"),
    ("live", "bytes", "of allocated: at the end"),
    ("live_blocks", "", "of blocks: at the end"),
    ("at_peak", "bytes", "of allocated: at the peak"),
    ("temporary", "bytes", "of allocated: freed at once"),
    ("temporary_blocks", "", "of blocks: freed at once"),
)


def _number(
    name: str, values: Array, null: Null = "never", unit: str = "", doc: str = "", dtype: Any = None
) -> Column:
    kind = np.int64 if dtype is None else dtype
    return Column(name, lambda: values, kind, null=null, unit=unit, doc=doc)


def _texts(name: str, by_function: list[str | None], rows: Array, doc: str) -> Column:
    codes, words = encode(by_function)
    codes = np.append(codes, codes.dtype.type(-1))
    return Column(name, lambda: codes[np.maximum(rows, -1)], words=words, doc=doc)


def tree_table(trace: Recorded, tree: Tree) -> Table:
    """Make `Trace.tree`."""
    functions = tree.functions
    function = np.where(tree.function == OTHER, -1, tree.function).astype(np.int32)
    first = np.array([-1 if row[3] is None else row[3] for row in functions] + [-1], np.int32)
    parent = tree.parent.astype(np.int32)
    if len(parent):
        parent[0] = -1
    lacks = np.full(tree.count, not tree.has_lock)
    names = [row[0] for row in functions] + ["other"]
    rows = np.where(tree.function == OTHER, len(functions), tree.function)
    columns = [
        _number("node", np.arange(tree.count, dtype=np.int32), dtype=np.int32, doc="its row"),
        _number("parent", parent, "negative", dtype=np.int32, doc="row of this table"),
        _number("depth", tree.depth, dtype=np.int32, doc="how many nodes are above it"),
        _number("function", function, "negative", dtype=np.int32, doc="row of functions"),
        _texts("name", names, rows, "the function's qualified name"),
        _texts("file", [row[2] for row in functions], function, "its source file"),
        _number("line", first[function], "negative", dtype=np.int32, doc="its first line"),
        _texts("caller_file", [row[2] for row in functions], tree.caller, "where it was called"),
        _number("caller_line", tree.line, "negative", dtype=np.int32, doc="where it was called"),
        _number("calls", tree.own("calls"), doc="begun in the window"),
        _number("resumes", tree.own("resumes"), doc="slices begun by resume or throw"),
        _number("raised", tree.own("raised"), doc="calls and resumes that ended by an exception"),
        _number("total", tree.below("total"), unit="ns", doc="with the calls inside"),
        _number("self", tree.own("self"), unit="ns", doc="without the calls inside"),
        _number("waited", tree.below("waited"), lambda: lacks, "ns",
                "of total: another thread had the interpreter's lock"),
        _number("waited_self", tree.own("waited_self"), lambda: lacks, "ns", "of self: the same"),
        *_waited_by_kind(tree),
        _number("longest", tree.own("longest"), "negative", "ns", "of a whole call"),
        _number("shortest", tree.own("shortest"), "negative", "ns", "of a whole call"),
    ]  # fmt: skip
    for name, unit, doc in _SUMS:
        columns.append(_number(name, tree.below(name), unit=unit, doc=doc))
        columns.append(_number(f"{name}_self", tree.own(name), unit=unit, doc=f"{doc}, alone"))
    columns.append(_number("freed_self", tree.own("freed"), unit="bytes", doc="freed in it"))
    return Table(trace._title("tree"), columns, tree.count)


def _waited_by_kind(tree: Tree) -> Iterator[Column]:
    known = bool(tree.node_waits) and tree.has_waits
    lacks = np.full(tree.count, not known)
    for word, words in WORDS.items():
        name = f"waited_{word}"
        own = tree.own(name) if known else np.zeros(tree.count, np.int64)
        yield _number(name, tree.below(name) if known else own, lambda: lacks, "ns",
                      f"of waited: {words.sums}")  # fmt: skip
        yield _number(f"{name}_self", own, lambda: lacks, "ns", f"of waited_self: {words.sums}")


def gil_table(trace: Recorded) -> Table:
    """Make `Trace.gil`."""
    if not trace._has_lock:
        empty = np.empty(0, dtype=np.int64)
        columns = dict.fromkeys(("thread", "start", "end", "events"), empty)
        return Table.from_columns(
            "gil (this Python has no such lock: threads ran at once)", columns
        )
    found = trace._core.tenures()
    return Table(
        trace._title("gil"),
        [
            _number("thread", found["thread"], dtype=np.int32, doc="row of threads"),
            _number("start", found["start"], unit="ns", doc="when the holder is known from"),
            _number("end", found["end"], unit="ns", doc="and to"),
            _number("events", found["events"], doc="in the tenure"),
        ],
        len(found["start"]),
    )


def own_lines(tree: Tree, patterns: Sequence[str] | None = None) -> dict[str, Array]:
    """Sum up the tree by own line.

    Parameters
    ----------
    tree : Tree
        The tree to sum up.
    patterns : sequence of str, optional
        Globs that say what own code is.

    Returns
    -------
    dict of str to array
        One item for each own line: ``function``, ``line`` (-1: the function outside of its calls),
        ``calls``, ``total``, ``self``, ``waited``, ``blocked``, ``allocated``, ``blocks``,
        ``live``, ``live_blocks``, ``at_peak``, ``temporary``. The last item, of function -1, has
        what no own line called.
    """
    own = tree.is_own(patterns)
    function, line = tree.owners(own)
    leaf_function, leaf_line = tree.leaf_owners(own)
    # A call from an own line begins a node whose caller is own.
    called = own[np.maximum(tree.caller, -1)]
    call_function = np.where(called, tree.caller, -1).astype(np.int32)
    call_line = np.where(called, tree.line, -1).astype(np.int32)
    keys = [(f.astype(np.int64) << 32) + (n.astype(np.int64) + 1) for f, n in (
        (function, line), (leaf_function, leaf_line), (call_function, call_line))]  # fmt: skip
    known, code = np.unique(np.concatenate(keys), return_inverse=True)
    code = code.reshape(-1)
    nodes, leaves = code[: tree.count], code[tree.count : tree.count + len(leaf_line)]
    calls = code[tree.count + len(leaf_line) :]
    size = len(known)

    def total(codes: Array, values: Array) -> Array:
        sums = np.zeros(size, dtype=np.int64)
        np.add.at(sums, codes, values)
        return sums

    result = {"function": (known >> 32).astype(np.int32),
              "line": ((known & 0xFFFFFFFF) - 1).astype(np.int32)}  # fmt: skip
    outer = tree.outermost(np.where(called, calls, -1))
    result["calls"] = total(calls[called], tree.own("calls")[called])
    result["total"] = total(calls[outer], tree.below("total")[outer])
    result["self"] = total(nodes, tree.own("self"))
    result["waited"] = total(nodes, tree.lock_waited)
    result["blocked"] = total(nodes, tree.blocked)
    for name in ("allocated", "blocks", "live", "live_blocks", "at_peak", "temporary"):
        result[name] = total(leaves, tree.leaves[name])
    used = np.zeros(size, dtype=bool)
    for name, values in result.items():
        if name not in ("function", "line"):
            used |= values != 0
    order = np.flatnonzero(used | (result["function"] >= 0))
    of_none = result["function"][order] < 0
    order = order[np.lexsort((-result["self"][order], of_none))]
    return {name: values[order] for name, values in result.items()}


def own_table(trace: Recorded, tree: Tree, patterns: Sequence[str] | None) -> Table:
    """Make `Trace.own`."""
    lines = own_lines(tree, patterns)
    functions = tree.functions
    function = lines["function"]
    lacks = np.full(len(function), not tree.has_lock)
    return Table(
        trace._title("own"),
        [
            _number("function", function, "negative", dtype=np.int32, doc="row of functions"),
            _texts("name", [row[0] for row in functions], function, "its qualified name"),
            _texts("file", [row[2] for row in functions], function, "its source file"),
            _number("line", lines["line"], "negative", dtype=np.int32,
                    doc="null: the function outside of its calls"),
            _number("calls", lines["calls"], doc="made in the line"),
            _number("total", lines["total"], unit="ns", doc="in what the line called"),
            _number("self", lines["self"], unit="ns", doc="charged to the line"),
            _number("waited", lines["waited"], lambda: lacks, "ns", "of self: for the lock"),
            _number("allocated", lines["allocated"], unit="bytes", doc="charged to the line"),
            _number("blocks", lines["blocks"], doc="charged to the line"),
            _number("live", lines["live"], unit="bytes", doc="of allocated: at the end"),
            _number("at_peak", lines["at_peak"], unit="bytes", doc="of allocated: at the peak"),
        ],
        len(function),
    )  # fmt: skip
