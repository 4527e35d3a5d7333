"""The calling-context tree of a trace, as arrays; the core builds it in one pass.

Node 0 is the root. Parents come before their children. Bytes and blocks are not in the nodes but in
*leaves*: a node has one leaf for each line that allocated in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from .. import _core
from ..tables.column import Array
from .own import find_own

if TYPE_CHECKING:
    from ..trace.recorded import Recorded

#: Function of a node that stands for many small ones: tree.h's EP_PLACE_OTHER.
OTHER = -2
#: Line of a node of blocks outside all calls, of a tree by thread: tree.h's EP_LINE_OUTSIDE.
OUTSIDE = -2

#: Builtins that block, for something other than the interpreter's lock: module and name.
BLOCKING = {
    ("time", "sleep"),
    ("select", "select"), ("select", "poll.poll"), ("select", "epoll.poll"),
    ("select", "kqueue.control"),
    ("_thread", "lock.acquire"), ("_thread", "RLock.acquire"), ("_thread", "lock.__enter__"),
    ("_thread", "RLock.__enter__"), ("_thread", "_ThreadHandle.join"),
    ("_thread", "start_joinable_thread"),
    ("_queue", "SimpleQueue.get"),
    ("_socket", "socket.recv"), ("_socket", "socket.recv_into"), ("_socket", "socket.recvfrom"),
    ("_socket", "socket.accept"), ("_socket", "socket.connect"), ("_socket", "socket.send"),
    ("_socket", "socket.sendall"), ("_socket", "getaddrinfo"),
    ("_ssl", "_SSLSocket.read"), ("_ssl", "_SSLSocket.write"), ("_ssl", "_SSLSocket.do_handshake"),
    ("posix", "read"), ("posix", "fsync"),
    ("posix", "waitpid"), ("posix", "wait"), ("posix", "wait4"),
    ("signal", "pause"), ("signal", "sigwait"),
    ("_multiprocessing", "SemLock.acquire"), ("_multiprocessing", "SemLock.__enter__"),
}  # fmt: skip
_BLOCKING_NAMES = {name for _, name in BLOCKING} | {"poll.poll", "epoll.poll"}


def ends_of(pointers: Array) -> Array:
    """Return for each item where the pointers from it end: at one that points to itself.

    Each round doubles how far they point: as many rounds as the longest way has bits.
    """
    while True:
        further = pointers[pointers]
        if np.array_equal(further, pointers):
            return pointers
        pointers = further


class Tree:
    """The calling-context tree of a trace.

    Parameters
    ----------
    trace : Trace
        The trace to fold.
    max_nodes : int
        With more nodes, the smallest become "other"; 0: the core's limit, a million.
    lengths : bool
        Whether to count the lengths of calls: for percentiles of functions.
    by_thread : bool
        Whether nodes 1 and following stand for the threads, whose calls are below them. There is no
        limit then.

    Attributes
    ----------
    count : int
        How many nodes there are.
    parent : array of uint32
        The parent of each node; the root is its own parent.
    function, caller, line : array of int32
        Two rows of `functions`, and the line of the call; -1: unknown; function -2: other.
    facts : dict
        Single numbers of the whole trace: ``peak_time``, ``peak``, ``folded``, ...
    """

    def __init__(
        self,
        trace: Recorded,
        max_nodes: int = 0,
        *,
        lengths: bool = False,
        by_thread: bool = False,
    ) -> None:
        self.has_waits = trace._has_waits
        by_tenures = trace._has_lock and not self.has_waits
        found = trace._core.tree(max_nodes, by_tenures, lengths, by_thread)
        self._core = trace._core  # not the trace: it has the tree, and would outlive its user
        self.has_lock = trace._knows_waited
        #: How long each node waited alone, in ns, by what for: a word of `_core.WAIT_WORDS`. As far
        #: as the last node that waited.
        self.node_waits: dict[str, Array] = found.pop("waits")
        self.nodes: dict[str, Array] = found.pop("nodes")
        self.leaves: dict[str, Array] = found.pop("leaves")
        self.domains_at_peak: tuple[int, ...] = found.pop("domains_at_peak")
        self.domains_allocated: tuple[int, ...] = found.pop("domains_allocated")
        self.threads: dict[str, Array] = found.pop("threads")
        self._bins: dict[str, Array] = found.pop("bins")
        self._lengths: dict[str, Array] = found.pop("lengths")
        self._functions: dict[str, Array] = found.pop("functions")
        places: dict[str, Array] = found.pop("places")
        self.facts: dict[str, int] = found
        place = self.nodes["place"]
        self.parent = self.nodes["parent"]
        self.count = len(self.parent)
        self.function = places["function"][place]
        self.caller = places["caller"][place]
        self.line = places["line"][place]
        self.leaf_node = self.leaves["node"]
        self.leaf_function = places["function"][self.leaves["place"]]
        self.leaf_line = places["line"][self.leaves["place"]]
        self._below: dict[str, Array] = {}
        # The root has the sums of all threads.
        for name in ("self", "waited_self"):
            self.nodes[name][0] = 0
        outermost = np.flatnonzero(self.parent[1:] == 0) + 1
        for name in ("total", "waited"):
            self.nodes[name][0] = int(self.nodes[name][outermost].sum())

    # ---- Figures ---------------------------------------------------------------------------------

    def own(self, name: str) -> Array:
        """Return a figure of each node alone, without the nodes below it.

        The columns of `nodes` and of `leaves` are figures, and so are blocked, lock_waited, and
        waited_gil, waited_lock, ... of `node_waits`.
        """
        if name in self.nodes:
            return self.nodes[name]
        if name.removeprefix("waited_") in self.node_waits:
            waits = self.node_waits[name.removeprefix("waited_")]
            return np.concatenate([waits, np.zeros(self.count - len(waits), waits.dtype)])
        if name in ("blocked", "lock_waited"):
            return self.blocked if name == "blocked" else self.lock_waited
        key = f"{name} of leaves"
        if key not in self._below:
            sums = np.zeros(self.count, dtype=np.int64)
            np.add.at(sums, self.leaf_node, self.leaves[name])
            self._below[key] = sums
        return self._below[key]

    def below(self, name: str) -> Array:
        """Return a figure of each node together with all nodes below it."""
        if name in ("total", "waited"):
            return self.nodes[name]
        if name not in self._below:
            self._below[name] = _core.tree_below(
                self.parent, np.ascontiguousarray(self.own(name), dtype=np.int64)
            )
        return self._below[name]

    def outermost(self, keys: Array) -> Array:
        """Mark the nodes whose key no node above them has; a node with a negative key has none."""
        marks = _core.tree_outermost(self.parent, np.ascontiguousarray(keys, dtype=np.int32))
        found: Array = marks.astype(bool)
        return found

    @cached_property
    def waits(self) -> dict[str, int]:
        """How long threads waited in all, in ns, by what for."""
        return {word: int(waits.sum()) for word, waits in self.node_waits.items()}

    def by_function(self) -> dict[str, Array]:
        """Return the figures of functions; recursive calls are counted once.

        Returns
        -------
        dict of str to array
            The columns of `Trace.functions`, its percentiles only of a tree with ``lengths=True``;
            ``whole`` calls and the ns that these took, ``spent``; ``live_blocks``,
            ``temporary_blocks`` and ``at_peak_blocks`` of the function alone. An array has an item
            for each function, and a last one for what belongs to no function.

        Notes
        -----
        What became "other" is among them, by its functions.
        """
        return self._functions

    def blocked_by_function(self) -> dict[str, Array]:
        """Sum up ``blocked`` and ``blocked_self`` by function, without what is "other"."""
        owner = np.maximum(self.function, -1).astype(np.int32)
        outermost = self.outermost(owner) | (owner < 0)
        outermost[0] = False
        sums = np.zeros((2, len(self.functions) + 1), dtype=np.int64)
        np.add.at(sums[0], owner[outermost], self.below("blocked")[outermost])
        np.add.at(sums[1], owner[1:], self.blocked[1:])
        return {"blocked": sums[0], "blocked_self": sums[1]}

    @cached_property
    def depth(self) -> Array:
        """How many nodes are above each node; 0 for the root."""
        depth = np.zeros(self.count, dtype=np.int32)
        # Each round doubles how far `up` points: as many rounds as the depth has bits.
        up = self.parent.astype(np.int64)
        steps = (np.arange(self.count) > 0).astype(np.int64)
        while up.any():
            steps = steps + steps[up]
            up = up[up]
        depth[:] = steps
        return depth

    def live_bins(self, count: int) -> tuple[Array, Array]:
        """Return the least and the most live bytes in each of `count` equal parts of the window.

        Notes
        -----
        The tree keeps 8,192 parts. If `count` does not divide that, the parts differ a little in
        length; if `count` is larger, neighbouring parts are equal.
        """
        kept = len(self._bins["min"])
        first = np.arange(count) * kept // count
        last = np.maximum((np.arange(count) + 1) * kept // count, first + 1)
        bounds = np.stack([first, last], axis=1).ravel()
        low = np.minimum.reduceat(np.append(self._bins["min"], np.iinfo(np.int64).max), bounds)
        high = np.maximum.reduceat(np.append(self._bins["max"], -1), bounds)
        return low[::2], high[::2]

    def pairing(self, *, lost: bool) -> dict[str, int]:
        """Return `Trace.pairing`: without columns, unless some call may be misplaced.

        Parameters
        ----------
        lost : bool
            Whether the allocation of a freed block may have been lost.

        Returns
        -------
        dict of str to int
            The counts.
        """
        facts = self.facts
        if facts["folded"] or self.may_be_misplaced():
            return self._core.pairing()
        unknown = facts["unknown_frees"]
        return {
            "calls_misplaced": 0,
            **{name: facts[name] for name in ("unmatched_ends", "ends_unseen")},
            "frees_of_older_blocks": 0 if lost else unknown,
            "frees_of_lost_blocks": unknown if lost else 0,
            **{name: facts[name] for name in ("frees_lost", "swaps_mended")},
        }

    def may_be_misplaced(self) -> bool:
        """Whether a call may lie in a call that did not make it, as after an unseen switch.

        Returns
        -------
        bool
            False: no call does. True: some call may; `Trace.pairing` has the exact number.
        """
        is_python = np.array([row[4] == "python" for row in self.functions] + [False])
        runs = is_python[np.maximum(self.function, -1)]
        around = self.parent.astype(np.int64)  # the nearest node of a Python function, or the root
        while (others := np.flatnonzero((around > 0) & ~runs[around])).size:
            around[others] = self.parent[around[others]]
        other = runs & (self.caller >= 0) & (around > 0) & (self.function[around] != self.caller)
        found = np.flatnonzero(other)
        if self.facts["ends_unseen"] or len(found) > 1000:
            return bool(len(found))
        return any(self._is_inside(int(around[node]), int(self.caller[node])) for node in found)

    def _is_inside(self, node: int, function: int) -> bool:
        """Whether a node of this function is above a node."""
        while node:
            node = int(self.parent[node])
            if node and self.function[node] == function:
                return True
        return False

    def by_place(self, name: str) -> tuple[Array, Array, Array, Array]:
        """Sum a figure of the leaves by the line that allocated.

        Parameters
        ----------
        name : str
            allocated, live, at_peak or temporary.

        Returns
        -------
        (array of int32, array of int32, array of int64, array of int64)
            Function and line (-1: unknown), bytes and blocks, the most bytes first.
        """
        blocks = "blocks" if name == "allocated" else f"{name}_blocks"
        return self.summed(
            self.leaf_function, self.leaf_line, self.leaves[name], self.leaves[blocks]
        )

    def by_stack(self, name: str) -> tuple[list[str | None], Array, Array]:
        """Sum a figure of the leaves by the stack of open calls.

        Parameters
        ----------
        name : str
            live, at_peak or temporary.

        Returns
        -------
        (list of str or None, array of int64, array of int64)
            Stacks as ``outermost;...;innermost`` (None: outside of all calls), bytes and blocks;
            the most bytes first.
        """
        sums: dict[str | None, list[int]] = {}
        texts: dict[int, str | None] = {}
        used = np.flatnonzero(self.leaves[f"{name}_blocks"])
        held = self.leaves[name], self.leaves[f"{name}_blocks"], self.leaf_node
        for size, blocks, node in zip(*(values[used].tolist() for values in held), strict=True):
            if node not in texts:
                texts[node] = self._stack_text(node)
            sum_of_stack = sums.setdefault(texts[node], [0, 0])
            sum_of_stack[0] += size
            sum_of_stack[1] += blocks
        rows = sorted(sums.items(), key=lambda row: -row[1][0])
        figures = np.array([sum_of_stack for _, sum_of_stack in rows], dtype=np.int64).reshape(
            -1, 2
        )
        return [text for text, _ in rows], figures[:, 0], figures[:, 1]

    def _stack_text(self, node: int) -> str | None:
        begun = ("calls", "resumes", "total", "cut")
        if not self.parent[node] and not any(self.nodes[name][node] for name in begun):
            return None  # a function that was executing, but of which no call was recorded
        parts = []
        while node:
            function = int(self.function[node])
            known = self.functions[function][0] if function >= 0 else None
            parts.append("?" if known is None else known)
            node = int(self.parent[node])
        return ";".join(reversed(parts)) or None

    @staticmethod
    def summed(
        function: Array, line: Array, sizes: Array, blocks: Array
    ) -> tuple[Array, Array, Array, Array]:
        """Sum bytes and blocks by function and line, as `by_place` gives them."""
        above = np.maximum(function, -1).astype(np.int64) << 32
        keys = above + (np.maximum(line, -1).astype(np.int64) + 1)
        known, code = np.unique(keys, return_inverse=True)
        code = code.reshape(-1)
        size, count = np.zeros((2, len(known)), dtype=np.int64)
        np.add.at(size, code, sizes)
        np.add.at(count, code, blocks)
        order = np.flatnonzero(count)
        order = order[np.argsort(-size[order], kind="stable")]
        known = known[order]
        above, below = (known >> 32).astype(np.int32), ((known & 0xFFFFFFFF) - 1).astype(np.int32)
        return above, below, size[order], count[order]

    # ---- Names -----------------------------------------------------------------------------------

    @cached_property
    def functions(self) -> list[tuple[str | None, str | None, str | None, int | None, str]]:
        """Name, module, file, line and kind of each function."""
        return self._core.functions()

    def name(self, node: int) -> str:
        """Name a node's function as the report does."""
        function = int(self.function[node])
        if node == 0:
            return "all threads"
        if function == OTHER:
            return "other (many small calls)"
        if function < 0:
            return "(unknown)"
        return self.function_name(function)

    def function_name(self, function: int) -> str:
        """Name a function, with its module except for builtins and the functions of a script."""
        name, module = self.functions[function][:2]
        known = name or "(no name)"
        bare = module in (None, "builtins") or (module == "__main__" and known != "<module>")
        return known if bare else f"{module}.{known}"

    @cached_property
    def is_blocking(self) -> Array:
        """Whether each function is one of `BLOCKING`; False at the end, for "no function"."""
        found = np.zeros(len(self.functions) + 1, dtype=bool)
        for number, (name, module, _, _, kind) in enumerate(self.functions):
            if kind != "python" and name is not None:
                found[number] = (module, name) in BLOCKING or (
                    module is None and name in _BLOCKING_NAMES
                )
        return found

    @cached_property
    def blocked(self) -> Array:
        """The time of each node alone in a blocking builtin, in ns; 0 with recorded waits."""
        if "blocked" in self.nodes:  # of several recordings: by the rule of each
            return self.nodes["blocked"]
        is_blocked = self.is_blocking[np.maximum(self.function, -1)]
        return np.where(is_blocked & (not self.has_waits), self.own("self"), 0).astype(np.int64)

    @cached_property
    def lock_waited(self) -> Array:
        """The time of each node alone in which it waited, in ns.

        Without recorded waits, for the interpreter's lock or another: a blocking builtin has none
        then, as it would have waited anyway.
        """
        if "lock_waited" in self.nodes:
            return self.nodes["lock_waited"]
        if self.has_waits:
            return self.own("waited_self").astype(np.int64)
        is_blocked = self.is_blocking[np.maximum(self.function, -1)]
        return np.where(is_blocked, 0, self.own("waited_self")).astype(np.int64)

    @cached_property
    def working(self) -> int:
        """The time in calls that neither waited for the lock nor blocked, in ns."""
        rest = int(self.nodes["total"][0]) - int(self.lock_waited.sum()) - int(self.blocked.sum())
        return max(rest, 0)

    # ---- Own code --------------------------------------------------------------------------------

    def is_own(self, patterns: Sequence[str] | None = None) -> Array:
        """Return for each function whether it is own code; False at the end, for "no function"."""
        own: Array = find_own(self.functions, patterns)
        return own

    def owners(self, own: Array) -> tuple[Array, Array]:
        """Find the own line that each node is charged to.

        Parameters
        ----------
        own : array of bool
            From `is_own`.

        Returns
        -------
        (array of int32, array of int32)
            Function and line. A node of an own function is charged to that function, with line -1.
            Any other node is charged to the nearest own line above it that made a call; -1 and -1
            if there is none.
        """
        known = np.maximum(self.function, -1)
        callers = np.maximum(self.caller, -1)
        function = np.where(own[known], self.function, np.where(own[callers], self.caller, -1))
        line = np.where(own[known], -1, np.where(own[callers], self.line, -1))
        owner = np.where(function >= 0, np.arange(self.count), self.parent)
        owner[0] = 0
        owner = ends_of(owner)
        return function[owner].astype(np.int32), line[owner].astype(np.int32)

    def leaf_owners(self, own: Array) -> tuple[Array, Array]:
        """Find the own line that each leaf is charged to; see `owners`."""
        function, line = self.owners(own)
        executing = own[np.maximum(self.leaf_function, -1)]
        return (
            np.where(executing, self.leaf_function, function[self.leaf_node]).astype(np.int32),
            np.where(executing, self.leaf_line, line[self.leaf_node]).astype(np.int32),
        )
