"""The calling-context tree of a trace, as arrays; the core builds it in one pass.

Node 0 is the whole. Parents come before their children. What a node allocated is told by *leaves*:
one for each line that allocated in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from .. import _core
from ..trace.column import Array
from .own import find_own

if TYPE_CHECKING:
    from ..trace import Trace

#: Function of a node that stands for many small ones: tree.h's EP_PLACE_OTHER.
OTHER = -2

#: Builtins that wait for something else than the interpreter's lock, by module and name.
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
    ("posix", "waitpid"), ("posix", "wait"), ("posix", "wait4"), ("posix", "fsync"),
    ("signal", "pause"), ("signal", "sigwait"),
    ("_multiprocessing", "SemLock.acquire"), ("_multiprocessing", "SemLock.__enter__"),
}  # fmt: skip
_BLOCKING_NAMES = {name for _, name in BLOCKING} | {"poll.poll", "epoll.poll"}


class Tree:
    """The tree.

    Parameters
    ----------
    trace : Trace
        Whose.
    max_nodes : int
        Above it the smallest nodes become "other"; 0: the core's bound, a million.

    Attributes
    ----------
    count : int
        Nodes.
    parent : array of uint32
        Of each node; the root is its own.
    function, caller, line : array of int32
        Rows of `functions`, and the line of the call; -1 unknown, function -2: other.
    facts : dict
        The peak and what was met: ``peak_time``, ``peak``, ``folded``, ...
    """

    def __init__(self, trace: Trace, max_nodes: int = 0) -> None:
        found = trace._core.tree(max_nodes, trace.has_lock)
        self._trace = trace
        self.has_lock = trace.has_lock
        self.nodes: dict[str, Array] = found.pop("nodes")
        self.leaves: dict[str, Array] = found.pop("leaves")
        self.domains_at_peak: tuple[int, ...] = found.pop("domains_at_peak")
        self.domains_allocated: tuple[int, ...] = found.pop("domains_allocated")
        self.threads: dict[str, Array] = found.pop("threads")
        self._bins: dict[str, Array] = found.pop("bins")
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
        # The root's: what all threads did together.
        for name in ("self", "waited_self"):
            self.nodes[name][0] = 0
        outermost = np.flatnonzero(self.parent[1:] == 0) + 1
        for name in ("total", "waited"):
            self.nodes[name][0] = int(self.nodes[name][outermost].sum())

    # ---- Figures ---------------------------------------------------------------------------------

    def own(self, name: str) -> Array:
        """Give a figure of each node alone: of calls self, waited_self, freed; of leaves any."""
        if name in self.nodes:
            return self.nodes[name]
        if name in ("blocked", "lock_waited"):
            return self.blocked if name == "blocked" else self.lock_waited
        key = f"{name} of leaves"
        if key not in self._below:
            sums = np.zeros(self.count, dtype=np.int64)
            np.add.at(sums, self.leaf_node, self.leaves[name])
            self._below[key] = sums
        return self._below[key]

    def below(self, name: str) -> Array:
        """Give a figure of each node with all that is below it."""
        if name in ("total", "waited"):
            return self.nodes[name]
        if name not in self._below:
            self._below[name] = _core.tree_below(
                self.parent, np.ascontiguousarray(self.own(name), dtype=np.int64)
            )
        return self._below[name]

    def outermost(self, keys: Array) -> Array:
        """Mark the nodes with a key that no node above them has; a negative key is none."""
        marks = _core.tree_outermost(self.parent, np.ascontiguousarray(keys, dtype=np.int32))
        found: Array = marks.astype(bool)
        return found

    def by_function(self) -> dict[str, Array]:
        """Sum the tree up by function; what several open calls of one share is counted once.

        Returns
        -------
        dict of str to array
            A row a function, and behind them one for what belongs to none: the columns of
            `functions` but its percentiles, and ``blocked``.
        """
        nodes = np.arange(1, self.count)
        of, size = np.maximum(self.function[1:], -1), len(self.functions) + 1
        outermost = self.outermost(np.maximum(self.function, -1).astype(np.int32))
        outermost |= self.function < 0
        outer = nodes[outermost[1:]]

        def total(values: Array, chosen: Array = nodes) -> Array:
            sums = np.zeros(size, dtype=np.int64)
            np.add.at(sums, of[chosen - 1], values[chosen])
            return sums

        nested = nodes[~outermost[1:]]
        begun = self.own("calls") + self.own("resumes")
        result = {name: total(self.own(name)) for name in ("calls", "resumes")}
        result["recursive"] = total(begun, nested)
        alone = {"total": "self", "waited": "waited_self"}
        for name in ("total", "waited", "blocked", "allocated", "freed", "blocks", "live",
                     "temporary", "at_peak"):  # fmt: skip
            own = alone.get(name, name)
            result[name] = total(self.below(name), outer)
            result["self" if name == "total" else f"{name}_self"] = total(self.own(own))
        for name in ("freed", "freed_self"):
            result[name][-1] += self.facts["freed_unseen"]
        for end in ("", "_self"):
            made = result[f"allocated{end}"]
            result[f"net{end}"] = made - result[f"freed{end}"]
            result[f"churn{end}"] = made - result[f"live{end}"]
        for name, of_leaves in (("alive_blocks", "live_blocks"), ("temporary_blocks",) * 2):
            result[name] = total(self.own(of_leaves))
        whole = total(begun - self.own("cut"))
        spent = total(self.own("total") - self.own("cut_ns"))
        result["whole"] = whole
        result["mean"] = np.where(whole > 0, spent / np.maximum(whole, 1), -1.0)
        result["max"] = np.full(size, -1, dtype=np.int64)
        np.maximum.at(result["max"], of, self.own("longest")[1:])
        result["min"] = np.full(size, np.iinfo(np.int64).max, dtype=np.int64)
        some = nodes[self.own("shortest")[1:] >= 0]
        np.minimum.at(result["min"], of[some - 1], self.own("shortest")[some])
        result["min"][result["max"] < 0] = -1
        return result

    @cached_property
    def depth(self) -> Array:
        """How many nodes are above each; the root's is 0."""
        depth = np.zeros(self.count, dtype=np.int32)
        # Pointers double: as many rounds as the depth has bits.
        up = self.parent.astype(np.int64)
        steps = (np.arange(self.count) > 0).astype(np.int64)
        while up.any():
            steps = steps + steps[up]
            up = up[up]
        depth[:] = steps
        return depth

    def live_bins(self, count: int) -> tuple[Array, Array]:
        """Give the least and the most live bytes in so many equal parts of the window.

        Notes
        -----
        The tree keeps 8,192 such parts; where `count` is no divisor of that, a part is
        that much longer or shorter, and of more parts some are equal.
        """
        kept = len(self._bins["min"])
        first = np.arange(count) * kept // count
        last = np.maximum((np.arange(count) + 1) * kept // count, first + 1)
        bounds = np.stack([first, last], axis=1).ravel()
        low = np.minimum.reduceat(np.append(self._bins["min"], np.iinfo(np.int64).max), bounds)
        high = np.maximum.reduceat(np.append(self._bins["max"], -1), bounds)
        return low[::2], high[::2]

    def may_be_misplaced(self) -> bool:
        """Whether a call may lie in another than the one that made it, as greenlets' do.

        Returns
        -------
        bool
            False: none does. True: the rows of calls know.
        """
        is_python = np.array([row[4] == "python" for row in self.functions] + [False])
        runs = is_python[np.maximum(self.function, -1)]
        around = self.parent.astype(np.int64)  # the nearest of Python, or the root
        while (others := np.flatnonzero((around > 0) & ~runs[around])).size:
            around[others] = self.parent[around[others]]
        other = runs & (self.caller >= 0) & (around > 0) & (self.function[around] != self.caller)
        found = np.flatnonzero(other)
        if self.facts["ends_unseen"] or len(found) > 1000:
            return bool(len(found))
        return any(self._is_inside(int(around[node]), int(self.caller[node])) for node in found)

    def _is_inside(self, node: int, function: int) -> bool:
        """Whether a function is around a node."""
        while node:
            node = int(self.parent[node])
            if node and self.function[node] == function:
                return True
        return False

    def by_place(self, name: str) -> tuple[Array, Array, Array, Array]:
        """Sum what leaves have by the line that allocated.

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
        return self._trace._core.functions()

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
        """Name a function, with its module where that says more."""
        name, module = self.functions[function][:2]
        known = name or "(no name)"
        bare = module in (None, "builtins") or (module == "__main__" and known != "<module>")
        return known if bare else f"{module}.{known}"

    @cached_property
    def is_blocking(self) -> Array:
        """Whether a function waits for something outside of the program; the last row: none."""
        found = np.zeros(len(self.functions) + 1, dtype=bool)
        for at, (name, module, _, _, kind) in enumerate(self.functions):
            if kind != "python" and name is not None:
                found[at] = (module, name) in BLOCKING or (
                    module is None and name in _BLOCKING_NAMES
                )
        return found

    @cached_property
    def blocked(self) -> Array:
        """Time of each node alone that a blocking builtin took."""
        of = self.is_blocking[np.maximum(self.function, -1)]
        return np.where(of, self.own("self"), 0).astype(np.int64)

    @cached_property
    def lock_waited(self) -> Array:
        """Time of each node alone that it waited for the interpreter's lock alone."""
        of = self.is_blocking[np.maximum(self.function, -1)]
        return np.where(of, 0, self.own("waited_self")).astype(np.int64)

    @cached_property
    def working(self) -> int:
        """The time in calls that neither waited for the lock nor blocked, in ns."""
        rest = int(self.nodes["total"][0]) - int(self.lock_waited.sum()) - int(self.blocked.sum())
        return max(rest, 0)

    # ---- Own code --------------------------------------------------------------------------------

    def is_own(self, patterns: Sequence[str] | None = None) -> Array:
        """Say of each function whether it is the user's own; the last row is that of none."""
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
            Function and line: of an own function its row and -1, for its time is of all its lines;
            of others the nearest own line that called; -1 and -1 where there is none.
        """
        known = np.maximum(self.function, -1)
        callers = np.maximum(self.caller, -1)
        function = np.where(own[known], self.function, np.where(own[callers], self.caller, -1))
        line = np.where(own[known], -1, np.where(own[callers], self.line, -1))
        at = np.where(function >= 0, np.arange(self.count), self.parent)
        at[0] = 0
        while True:  # pointers double until each points to an owner, or to the root
            further = at[at]
            if np.array_equal(further, at):
                break
            at = further
        return function[at].astype(np.int32), line[at].astype(np.int32)

    def leaf_owners(self, own: Array) -> tuple[Array, Array]:
        """Find the own line that each leaf is charged to, as `owners` does for nodes."""
        function, line = self.owners(own)
        executing = own[np.maximum(self.leaf_function, -1)]
        return (
            np.where(executing, self.leaf_function, function[self.leaf_node]).astype(np.int32),
            np.where(executing, self.leaf_line, line[self.leaf_node]).astype(np.int32),
        )
