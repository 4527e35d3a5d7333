"""What a recording's tables must have, in plain Python from its events alone; no fold of the core is used.

    replay.py FILE...    compares the tables of recordings with a replay of their events; ends with 1 if they differ

`Replay` reads the events in their order, once. It follows the rules that doc/tables.rst and doc/tree.rst state, and
takes nothing else from the trace but the calls that were open at its start, which no event says. `differences` compares
each table that it knows, and gives a line of text for each that is not equal.
"""

from __future__ import annotations

import sys
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

import eventprof
from eventprof import _core

PART = 1 << 20  # events that are lists at the same time
SKEW_NS = 100_000
OPEN_AT_START, OPEN_AT_END, YIELDED, RAISED, END_UNSEEN, RECURSIVE = 1, 2, 4, 8, 16, 32
MENDED, FREE_LOST, REVIVED, MOVED, BRIEF, LOCAL = 1, 2, 4, 8, 16, 32
CUT = OPEN_AT_START | OPEN_AT_END | END_UNSEEN
KIND = {identifier: number for number, identifier, *_ in _core.kind_table()}
NAMES = {number: identifier for identifier, number in KIND.items()}

# What each kind does.
NOTHING, OPENS, CLOSES, BORN, DIES, FAILS = range(6)
OPENING = ("CALL", "RESUME", "THROW", "C_CALL", "SPAN_BEGIN", "GC_START", "HPY_CALL")
CLOSING = (
    "RETURN", "YIELD", "UNWIND", "C_RETURN", "C_EXCEPTION", "SPAN_END", "GC_STOP", "HPY_RETURN",
)  # fmt: skip
IN_C = {KIND[name] for name in ("C_CALL", "C_RETURN", "C_EXCEPTION")}
FLAGS_OF_END = {KIND["YIELD"]: YIELDED, KIND["UNWIND"]: RAISED, KIND["C_EXCEPTION"]: RAISED}
WAIT_BEGIN, WAIT, *OF_WAITS = (
    KIND[name] for name in ("WAIT_BEGIN", "WAIT", "WAKER", "WAIT_OBJECT", "PIPE_WRITE")
)
FOR_GIL = _core.WAIT_WORDS.index("gil")
#: A thread that waits for these may have the interpreter's lock.
KEEPS_LOCK = [_core.WAIT_WORDS.index(word) for word in ("processor", "other")]
NOT_UNDER_LOCK = {WAIT_BEGIN, WAIT, *OF_WAITS} | {
    number for number, name in NAMES.items() if name.endswith(("_RAW", "_LIBC"))
}
WITH_VALUE = {number for number, _, _, _, form, *_ in _core.kind_table() if form == "value"}


def _action(name: str) -> int:
    if name in OPENING:
        return OPENS
    if name in CLOSING:
        return CLOSES
    if name.startswith("REALLOC_FAILED"):
        return FAILS
    if name.startswith(("FREE_", "REALLOC_FREE")):
        return DIES
    return BORN if name.startswith(("MALLOC", "CALLOC", "REALLOC")) else NOTHING


ACTIONS = [_action(NAMES.get(number, "")) for number in range(max(NAMES) + 1)]


def _domain(name: str) -> int:
    domains = ("RAW", "MEM", "OBJ", "NUMPY", "LIBC")
    last = name.rpartition("_")[2]
    return domains.index(last) if last in domains else -1


DOMAINS = [_domain(NAMES.get(number, "")) for number in range(max(NAMES) + 1)]


class Columns:
    """Named arrays of numbers that grow together."""

    def __init__(self, *names: str) -> None:
        self.names = names
        for name in names:
            setattr(self, name, array("q"))

    def __len__(self) -> int:
        return len(getattr(self, self.names[0]))

    def get(self, name: str) -> Any:
        """A column as NumPy sees it."""
        column = getattr(self, name)
        return np.frombuffer(column, dtype=np.int64) if len(column) else np.zeros(0, np.int64)


class Replay:
    """The calls, blocks, nodes and tenures of a trace.

    `opened` are the calls that were open at the start, the outermost of each thread first: thread, function, caller,
    line of the call, kind, start. By default those of the trace's own table. `watched` are rows of events: `stacks` has
    the functions of the calls that were open on its thread before each.
    """

    def __init__(
        self,
        trace: Any,
        opened: list[tuple[int, ...]] | None = None,
        watched: Collection[int] = (),
    ) -> None:
        self.length = trace.duration
        self.calls = Columns(
            "start", "end", "parent", "thread", "function", "caller", "caller_line", "kind",
            "depth", "flags", "node", "inside", "others", "waited",
        )  # fmt: skip
        self.blocks = Columns(
            "address", "size", "domain", "thread", "start", "end", "call", "function", "line",
            "freed_in", "free_thread", "previous", "flags", "birth", "death", "free_function",
        )  # fmt: skip
        self.node_keys: list[tuple[int, int, int, int]] = [(0, -1, -1, -1)]  # parent, three of it
        self.nodes: dict[tuple[int, int, int, int], int] = {}
        self.tenures: list[list[int]] = []  # thread, start, end, events
        self.unmatched = self.unknown_frees = 0
        self.time_of_two_words = array("q")
        self.recorded: dict[tuple[int, int], int] = defaultdict(int)  # thread, kind
        self.stacks: dict[int, list[int]] = {}
        self._read(trace, opened_of(trace) if opened is None else opened, frozenset(watched))

    def _node(self, parent: int, function: int, caller: int, line: int) -> int:
        key = (parent, function, caller, line)
        node = self.nodes.get(key)
        if node is None:
            node = self.nodes[key] = len(self.node_keys)
            self.node_keys.append(key)
        return node

    def _read(self, trace: Any, opened: list[tuple[int, ...]], watched: frozenset[int]) -> None:
        core = trace._core
        self.by_waits = by_waits = trace._has_waits
        calls, blocks, node_of = self.calls, self.blocks, self._node
        stacks: dict[int, list[tuple[int, int]]] = defaultdict(list)  # call, key
        open_functions: dict[tuple[int, int], int] = defaultdict(int)
        # Of the interpreter's lock: time of all tenures that ended, and of those of each thread.
        ended, ended_of, tenure = 0, defaultdict(int), [-1, 0, 0, 0]
        # Of recorded waits: the time in those that ended, and the begin of one that goes on.
        waited_of: dict[int, int] = defaultdict(int)
        waits_since: dict[int, int] = {}
        # When a thread's wait for the interpreter's lock ended, until its next event; when the last
        # tenure ended that is known to have ended.
        taken: dict[int, int] = {}
        free = 0

        def waited_by(thread: int) -> int:
            return waited_of[thread] if by_waits else ended - ended_of[thread]

        alive: dict[int, int] = {}
        older_of: dict[int, int] = {}  # block whose address was still in use -> the older block
        suspects: list[tuple[int, int]] = []
        moving: dict[int, tuple[int, int, int]] = {}
        last_born: dict[int, int] = {}

        def begin(
            thread: int, function: int, caller: int, line: int, kind: int, time: int, flags: int
        ) -> None:
            stack = stacks[thread]
            parent = stack[-1][0] if stack else -1
            above = calls.node[parent] if parent >= 0 else 0
            if open_functions[thread, function]:
                flags |= RECURSIVE
            open_functions[thread, function] += 1
            stack.append((len(calls.start), function * 2 + (kind in IN_C)))
            for column, value in (
                (calls.start, time), (calls.end, -1), (calls.parent, parent), (calls.thread, thread),
                (calls.function, function), (calls.caller, caller), (calls.caller_line, line),
                (calls.kind, kind), (calls.depth, len(stack) - 1), (calls.flags, flags),
                (calls.node, node_of(above, function, caller, line)), (calls.inside, 0),
                (calls.others, waited_by(thread)), (calls.waited, 0),
            ):  # fmt: skip
                column.append(value)

        def finish(thread: int, time: int, flags: int) -> None:
            call, _ = stacks[thread].pop()
            calls.end[call] = time
            calls.flags[call] |= flags
            waited = waited_by(thread) - calls.others[call]
            calls.waited[call] = min(waited, time - calls.start[call]) if by_waits else waited
            open_functions[thread, calls.function[call]] -= 1
            if calls.parent[call] >= 0:
                calls.inside[calls.parent[call]] += time - calls.start[call]

        for thread, function, caller, line, kind, start in opened:
            begin(thread, function, caller, line, kind, start, OPEN_AT_START)
        for row, (
            time, kind, thread, function, line, address, size, caller, caller_line, word,
        ) in enumerate(_rows(core)):  # fmt: skip
            if row in watched:
                self.stacks[row] = [calls.function[call] for call, _ in stacks[thread]]
            self.recorded[thread, kind] += 1
            if kind not in NOT_UNDER_LOCK:
                if tenure[0] != thread:
                    if tenure[0] >= 0:
                        ended += tenure[2] - tenure[1]
                        ended_of[tenure[0]] += tenure[2] - tenure[1]
                        free = tenure[2]
                    since = max(taken.pop(thread), free) if thread in taken else time
                    tenure = [thread, since, time, 0]
                    self.tenures.append(tenure)
                tenure[2] = time
                tenure[3] += 1
            action = ACTIONS[kind]
            if kind in WITH_VALUE:
                self.time_of_two_words.append(time)
            if kind in (WAIT_BEGIN, WAIT):
                if word & 15 == FOR_GIL:
                    taken[thread] = time
                    if kind == WAIT_BEGIN:  # another part of the wait
                        del taken[thread]
                if word & 15 not in KEEPS_LOCK and tenure[0] == thread:
                    tenure[2] = max(tenure[2], time - (word >> 4 if kind == WAIT else 0))
                    ended += tenure[2] - tenure[1]
                    ended_of[thread] += tenure[2] - tenure[1]
                    free = tenure[2]
                    tenure = [-1, 0, 0, 0]
            if kind == WAIT_BEGIN:
                waits_since[thread] = time
            elif kind == WAIT:
                waits_since.pop(thread, None)
                length = min(word >> 4, time)  # what was before the window does not count
                waited_of[thread] += length
                for call, _ in stacks[thread]:  # nor what was before a call
                    calls.others[call] += max(0, length - (time - calls.start[call]))
            elif action == OPENS:
                begin(thread, function, caller, caller_line, kind, time, 0)
            elif action == CLOSES:
                stack, key = stacks[thread], function * 2 + (kind in IN_C)
                if not any(entry[1] == key for entry in reversed(stack)):
                    self.unmatched += 1
                    continue
                while stack[-1][1] != key:
                    finish(thread, time, END_UNSEEN)
                finish(thread, time, FLAGS_OF_END.get(kind, 0))
            elif action == BORN:
                block, event = len(blocks.start), len(self.time_of_two_words)
                self.time_of_two_words.append(time)
                stack = stacks[thread]
                previous = -1
                if NAMES[kind].startswith("REALLOC"):
                    previous, domain, _ = moving.pop(thread, (-1, -1, -1))
                    previous = previous if domain == DOMAINS[kind] else -1
                if address in alive:
                    older_of[block] = alive[address]
                    suspects.append((block, alive[address]))
                alive[address] = last_born[thread] = block
                for column, value in (
                    (blocks.address, address), (blocks.size, size), (blocks.domain, DOMAINS[kind]),
                    (blocks.thread, thread), (blocks.start, time), (blocks.end, -1),
                    (blocks.call, stack[-1][0] if stack else -1), (blocks.function, function),
                    (blocks.line, line), (blocks.freed_in, -1), (blocks.free_thread, -1),
                    (blocks.previous, previous), (blocks.flags, 0), (blocks.birth, event),
                    (blocks.death, -1), (blocks.free_function, -1),
                ):  # fmt: skip
                    column.append(value)
            elif action == DIES:
                event = len(self.time_of_two_words)
                self.time_of_two_words.append(time)
                moves = NAMES[kind].startswith("REALLOC")
                block = alive.get(address, -1)
                if (
                    block in older_of
                    and thread != blocks.thread[block]
                    and time - blocks.start[block] <= SKEW_NS
                ):
                    block = older_of.pop(block)  # logged late: the older one ends
                    blocks.flags[block] |= MENDED
                elif block >= 0:
                    del alive[address]
                else:
                    self.unknown_frees += 1
                if moves:
                    moving[thread] = (block, DOMAINS[kind], address)
                if block < 0:
                    continue
                stack = stacks[thread]
                call = stack[-1][0] if stack else -1
                blocks.end[block], blocks.death[block] = time, event
                blocks.freed_in[block], blocks.free_thread[block] = call, thread
                blocks.free_function[block] = function
                if moves:
                    blocks.flags[block] |= MOVED
                else:
                    blocks.flags[block] |= BRIEF if last_born.get(thread) == block else 0
                    blocks.flags[block] |= LOCAL if call >= 0 and call == blocks.call[block] else 0
            elif action == FAILS:
                self.time_of_two_words.append(time)
                block, domain, was = moving.pop(thread, (-1, -1, -1))
                if (
                    block >= 0
                    and domain == DOMAINS[kind]
                    and was == address
                    and address not in alive
                ):
                    alive[address] = block
                    blocks.end[block] = blocks.death[block] = blocks.freed_in[block] = -1
                    blocks.free_thread[block] = -1
                    blocks.flags[block] = blocks.flags[block] & ~(MOVED | BRIEF | LOCAL) | REVIVED
        if tenure[0] >= 0:
            ended += tenure[2] - tenure[1]
            ended_of[tenure[0]] += tenure[2] - tenure[1]
        for thread, since in waits_since.items():
            waited_of[thread] += max(0, self.length - since)
        for thread, stack in stacks.items():
            while stack:
                finish(thread, self.length, OPEN_AT_END)
        for block, older in suspects:
            if blocks.death[older] < 0:
                blocks.death[older], blocks.end[older] = blocks.birth[block], blocks.start[block]
                blocks.flags[older] |= FREE_LOST

    # ---- What follows from them --------------------------------------------------------------------------

    def call_columns(self) -> dict[str, Any]:
        """The numbers of `calls`."""
        get = self.calls.get
        found = {
            name: get(name)
            for name in (
                "start",
                "thread",
                "function",
                "kind",
                "depth",
                "parent",
                "caller",
                "caller_line",
                "flags",
                "waited",
            )
        }
        found["duration"] = get("end") - get("start")
        found["self"] = found["duration"] - get("inside")
        size, of_call = self.blocks.get("size"), self.blocks.get("call")
        freed_in = self.blocks.get("freed_in")
        died = (self.blocks.get("death") >= 0) & (self.blocks.get("flags") & FREE_LOST == 0)
        for name, calls, values in (
            ("allocated", of_call, size),
            ("blocks", of_call, np.ones_like(size)),
            ("freed", np.where(died, freed_in, -1), size),
        ):
            found[f"{name}_self"] = add_up(calls, values, len(get("start")))[:-1]
            found[name] = self.with_calls_inside(found[f"{name}_self"])
        return found

    def with_calls_inside(self, values: Any) -> Any:
        """Sums of each call and all calls inside of it, level by level from the deepest."""
        parent, depth = self.calls.get("parent"), self.calls.get("depth")
        sums = np.array(values, dtype=np.int64)
        order = np.argsort(-depth, kind="stable")
        bounds = np.flatnonzero(np.diff(depth[order])) + 1
        for level in np.split(order, bounds):
            inner = level[parent[level] >= 0]
            np.add.at(sums, parent[inner], sums[inner])
        return sums

    def changes(self) -> tuple[Any, Any, Any]:
        """Time, live bytes and blocks after each change; where a free was lost, the old block ends, then the new begins."""
        birth, death, size = (self.blocks.get(name) for name in ("birth", "death", "size"))
        died = death >= 0
        lost = self.blocks.get("flags")[died] & FREE_LOST != 0
        order_key = np.concatenate([death[died] * 2 + ~lost, birth * 2 + 1])
        bytes_ = np.concatenate([-size[died], size])
        blocks = np.concatenate([-np.ones_like(size[died]), np.ones_like(size)])
        order = np.argsort(order_key, kind="stable")
        times = (
            np.frombuffer(self.time_of_two_words, np.int64)
            if len(self.time_of_two_words)
            else order_key
        )
        return times[order_key[order] // 2], np.cumsum(bytes_[order]), np.cumsum(blocks[order])

    def peak(self) -> tuple[int, int, int]:
        """Time, live bytes, and the allocator event that reached them first; -1, 0, -1 without a block."""
        time, live, _ = self.changes()
        if not len(live) or live.max() <= 0:
            return -1, 0, -1
        row = int(np.argmax(live))
        birth, death = self.blocks.get("birth"), self.blocks.get("death")
        return (
            int(time[row]),
            int(live[row]),
            int(np.sort(np.concatenate([birth, death[death >= 0]]))[row]),
        )

    def block_figures(self) -> dict[str, Any]:
        """What each block adds to sums of bytes and blocks."""
        size, death = self.blocks.get("size"), self.blocks.get("death")
        flags, birth = self.blocks.get("flags"), self.blocks.get("birth")
        _, _, moment = self.peak()
        at_peak = (birth <= moment) & ((death < 0) | (death > moment))
        lives, temporary = death < 0, flags & (BRIEF | LOCAL) != 0
        ones = np.ones_like(size)
        return {
            "allocated": size, "blocks": ones, "live": size * lives, "live_blocks": ones * lives,
            "temporary": size * temporary, "temporary_blocks": ones * temporary,
            "at_peak": size * at_peak,
        }  # fmt: skip

    def functions(self, count: int) -> dict[str, Any]:
        """The numbers of `functions`, and after its rows one for what belongs to no function."""
        calls, columns = self.call_columns(), self.calls
        function, flags, kind = calls["function"], calls["flags"], calls["kind"]
        begun = flags & OPEN_AT_START == 0
        resumes = np.isin(kind, (KIND["RESUME"], KIND["THROW"]))
        outer = np.where(flags & RECURSIVE, -2, function)

        def total(values: Any, group: Any = function) -> Any:
            chosen = group > -2
            return add_up(group[chosen], np.asarray(values, dtype=np.int64)[chosen], count)

        found = {
            "calls": total(begun & ~resumes),
            "resumes": total(begun & resumes),
            "recursive": total(begun & (flags & RECURSIVE != 0)),
            "total": total(calls["duration"], outer),
            "self": total(calls["self"]),
            "waited": total(calls["waited"], outer),
            "waited_self": total(calls["waited"] - self.of_children(calls["waited"])),
        }
        # Bytes: of the innermost call, outside of calls of the function that was executing.
        owner = self.blocks.get("call")
        alone = np.where(owner < 0, self.blocks.get("function"), -2)
        for name, values in self.block_figures().items():
            if name.endswith("_blocks"):
                continue
            of_calls = add_up(owner, values, len(columns))[:-1]
            outside = add_up(alone[alone > -2], values[alone > -2], count)
            found[f"{name}_self"] = total(of_calls) + outside
            found[name] = total(self.with_calls_inside(of_calls), outer) + outside
        died = self.blocks.get("death") >= 0
        lost = self.blocks.get("flags") & FREE_LOST != 0
        size, where = self.blocks.get("size"), self.blocks.get("freed_in")
        outside_of = np.where(
            died & (where < 0), np.where(lost, -1, self.blocks.get("free_function")), -2
        )
        outside = add_up(outside_of[outside_of > -2], size[outside_of > -2], count)
        found["freed_self"] = total(calls["freed_self"]) + outside
        found["freed"] = total(calls["freed"], outer) + outside
        for end in ("", "_self"):
            found[f"net{end}"] = found[f"allocated{end}"] - found[f"freed{end}"]
            found[f"churn{end}"] = found[f"allocated{end}"] - found[f"live{end}"]
        whole = flags & CUT == 0
        owners, lengths = function[whole], calls["duration"][whole]
        order = np.lexsort((lengths, owners))
        owners, lengths = owners[order], lengths[order]
        first = np.searchsorted(owners, np.arange(count))
        many = np.searchsorted(owners, np.arange(count), "right") - first
        for name, rank in (
            ("min", np.zeros_like(many)), ("max", many - 1),
            *((f"p{p}", (many * p + 99) // 100 - 1) for p in (50, 95, 99)),
        ):  # fmt: skip
            values = np.full(count + 1, -1, np.int64)
            some = np.flatnonzero(many)
            values[some] = lengths[(first + rank)[some]]
            found[name] = values
        return found

    def of_children(self, values: Any) -> Any:
        """The sum over the calls directly inside of each call."""
        return add_up(self.calls.get("parent"), values, len(self.calls))[:-1]

    def tree(self) -> tuple[dict[Any, dict[str, int]], dict[Any, dict[str, int]]]:
        """Figures of nodes, and those of leaves by node, executing function and line; paths are nested pairs."""
        calls, call_node = self.call_columns(), self.calls.get("node")
        owner = self.blocks.get("call")
        of_block = np.zeros(len(owner), np.int64)
        of_block[owner >= 0] = call_node[owner[owner >= 0]]
        outside = np.flatnonzero(owner < 0)
        functions = self.blocks.get("function")
        for function in np.unique(functions[outside]).tolist():
            of_block[outside[functions[outside] == function]] = self._node(0, function, -1, -1)
        freed_in, freeing = self.blocks.get("freed_in"), self.blocks.get("free_function")
        died = (self.blocks.get("death") >= 0) & (self.blocks.get("flags") & FREE_LOST == 0)
        freed_at = np.full(len(owner), -1, np.int64)
        inside = died & (freed_in >= 0)
        freed_at[inside] = call_node[freed_in[inside]]
        for row in np.flatnonzero(died & (freed_in < 0)).tolist():
            freed_at[row] = self._node(0, int(freeing[row]), -1, -1)
        count = len(self.node_keys)
        flags, kind = calls["flags"], calls["kind"]
        begun = flags & OPEN_AT_START == 0
        resumes = np.isin(kind, (KIND["RESUME"], KIND["THROW"]))
        figures = {
            "calls": add_up(call_node, begun & ~resumes, count),
            "resumes": add_up(call_node, begun & resumes, count),
            "raised": add_up(call_node, flags & RAISED != 0, count),
            "total": add_up(call_node, calls["duration"], count),
            "self": add_up(call_node, calls["self"], count),
            "waited": add_up(call_node, calls["waited"], count),
            "waited_self": add_up(
                call_node, calls["waited"] - self.of_children(calls["waited"]), count
            ),
            "freed": add_up(freed_at, self.blocks.get("size"), count),
        }
        whole = flags & CUT == 0
        longest, shortest = np.full(count, -1, np.int64), np.full(count, np.iinfo(np.int64).max)
        np.maximum.at(longest, call_node[whole], calls["duration"][whole])
        np.minimum.at(shortest, call_node[whole], calls["duration"][whole])
        figures["longest"], figures["shortest"] = longest, np.where(longest < 0, -1, shortest)
        lists = {name: values.tolist() for name, values in figures.items()}
        nodes = {node: {name: lists[name][node] for name in lists} for node in range(1, count)}
        keys = np.stack([of_block, functions, self.blocks.get("line")], axis=1)
        places, code = (
            np.unique(keys, axis=0, return_inverse=True) if len(keys) else (keys, of_block)
        )
        sums = {
            name: add_up(code.reshape(-1), values, len(places))[:-1].tolist()
            for name, values in self.block_figures().items()
        }
        leaves = {
            tuple(place): {name: sums[name][row] for name in sums}
            for row, place in enumerate(places.tolist())
        }
        return nodes, leaves

    def own(self, is_own: Any, is_blocking: Any) -> dict[tuple[int, int], dict[str, int]]:
        """The rows of `own`: what each own line is charged."""
        nodes, leaves = self.tree()
        keys = self.node_keys
        owner, charged = [(-1, -1)] * len(keys), defaultdict(lambda: defaultdict(int))
        above: list[frozenset[tuple[int, int]]] = [frozenset()] * len(keys)  # places of own calls
        for node in range(1, len(keys)):  # parents were made before their children
            parent, function, caller, line = keys[node]
            above[node] = above[parent]
            owner[node] = owner[parent]
            if caller >= 0 and is_own[caller]:
                owner[node] = (caller, line)
                charged[caller, line]["calls"] += nodes[node]["calls"]
                if (caller, line) not in above[parent]:
                    charged[caller, line]["total"] += nodes[node]["total"]
                    above[node] = above[parent] | {(caller, line)}
            if function >= 0 and is_own[function]:
                owner[node] = (function, -1)
            charged[owner[node]]["self"] += nodes[node]["self"]
            # Without waits, the whole of a call that blocks is no working time.
            if self.by_waits or function < 0 or not is_blocking[function]:
                charged[owner[node]]["waited"] += nodes[node]["waited_self"]
        for (node, function, line), figures in leaves.items():
            line_key = (function, line) if function >= 0 and is_own[function] else owner[node]
            for name in ("allocated", "blocks", "live", "at_peak"):
                charged[line_key][name] += figures[name]
        return charged


def add_up(group: Any, values: Any, count: int) -> Any:
    """Sums of values by `of`; the last one is for -1."""
    sums = np.zeros(count + 1, np.int64)
    np.add.at(sums, group, np.asarray(values, dtype=np.int64))
    return sums


def _rows(core: Any) -> Iterator[tuple[int, ...]]:
    names = (
        "time",
        "kind",
        "thread",
        "function",
        "line",
        "address",
        "size",
        "caller",
        "caller_line",
        "word",
    )
    columns = [core.events(name) for name in names]
    for first in range(0, len(columns[0]), PART):
        yield from zip(*(column[first : first + PART].tolist() for column in columns), strict=True)


def opened_of(trace: Any) -> list[tuple[int, ...]]:
    """The calls that were open at the start, as the trace's table has them."""
    core = trace._core
    rows = np.flatnonzero(core.calls("flags") & OPEN_AT_START)
    names = ("thread", "function", "caller", "caller_line", "kind", "start")
    return list(zip(*(core.calls(name)[rows].tolist() for name in names), strict=True))


# ---- Comparing -----------------------------------------------------------------------------------------------


class Found:
    """What differs, and how much was compared."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.compared = 0
        self.largest = 0  # ns between times of the same event

    def arrays(self, name: str, ours: Any, theirs: Any) -> None:
        """Both must be equal, row by row; theirs is the trace's."""
        theirs = np.asarray(np.ma.filled(theirs, -1))
        self.compared += len(ours)
        if len(ours) != len(theirs):
            self.lines.append(f"{name}: {len(theirs):,} rows, the events make {len(ours):,}")
            return
        rows = np.flatnonzero(np.asarray(ours).astype(np.int64) != theirs.astype(np.int64))
        if len(rows):
            row = int(rows[0])
            self.lines.append(
                f"{name}: {len(rows):,} of {len(theirs):,} rows, the first is {row}: {theirs[row]}, "
                f"the events say {ours[row]}"
            )

    def figures(self, name: str, ours: dict[Any, Any], theirs: dict[Any, Any]) -> None:
        """Both are {key: {figure: number}}; a figure of 0 or -1 is as good as none."""
        self.compared += sum(len(group) for group in ours.values())
        some = [
            {k: f for k, v in side.items() if (f := without_nothing(v))} for side in (ours, theirs)
        ]
        wrong = [key for key in {**some[0], **some[1]} if some[0].get(key) != some[1].get(key)]
        if wrong:
            key = wrong[0]
            self.lines.append(
                f"{name}: {len(wrong):,} of {len(some[0]):,}, the first is {key}: {some[1].get(key)}, "
                f"the events say {some[0].get(key)}"
            )

    def equal(self, name: str, ours: Any, theirs: Any) -> None:
        self.compared += 1
        if ours != theirs:
            self.lines.append(f"{name}: {theirs}, the events say {ours}")


def without_nothing(figures: dict[str, int]) -> dict[str, int]:
    return {name: value for name, value in figures.items() if value not in (0, -1)}


def paths_of(keys: list[tuple[int, int, int, int]]) -> list[int]:
    """A number for the path of each node that is equal for equal paths."""
    known: list[int] = [0]
    for parent, *rest in keys[1:]:
        known.append(hash((known[parent], *rest)))
    return known


def differences(trace: Any, replay: Replay | None = None) -> Found:
    """Compares all tables of a trace with the events."""
    found = Found()
    # The folds read the file, before there are columns, and once more from the columns.
    folded = {name: np.ma.filled(trace.functions[name], -1) for name in _numbers(trace.functions)}
    fresh_peak = trace.peak()
    tree_before = trace._tree
    replay = Replay(trace) if replay is None else replay
    core = trace._core
    for name, ours in replay.call_columns().items():
        if name == "waited" and not trace._knows_waited:
            continue
        found.arrays(f"calls.{name}", ours, core.calls(name))
    for name in replay.blocks.names:
        if name == "free_function":
            continue
        theirs = core.allocations(name).astype(np.int64)
        if name == "death":
            theirs = np.where(theirs == 0xFFFFFFFF, -1, theirs)
        found.arrays(f"allocations.{name}", replay.blocks.get(name), theirs)
    count = len(trace.functions)
    sums = trace._function_figures | trace._percentiles
    for name, ours in replay.functions(count).items():
        if name.startswith("waited") and not trace._knows_waited:
            continue
        near = np.where((name[0] == "p") & (ours >= 128), ours / 100, 0)
        theirs = np.where(np.abs(sums[name] - ours) <= near, ours, sums[name])
        found.arrays(f"functions.{name}", ours, theirs)
        found.arrays(f"functions.{name}, table", sums[name][:count], folded[name])
    time, live, blocks = replay.changes()
    memory = trace.memory
    for name, ours in (("time", time), ("live", live), ("blocks", blocks)):
        found.arrays(f"memory.{name}", ours, memory[name])
    peak_time, most, _ = replay.peak()
    found.equal(
        "peak", (max(peak_time, 0), most), (max(int(fresh_peak.time or 0), 0), fresh_peak.bytes)
    )
    found.equal("leaks", int(live[-1]) if len(live) else 0, sum(trace.leaks()["bytes"].tolist()))
    _compare_trees(found, "tree, from the file", replay, tree_before, trace._knows_waited)
    again = eventprof.answers.tree.Tree(trace)
    _compare_trees(found, "tree, from columns", replay, again, trace._knows_waited)
    _compare_own(found, replay, trace)
    if trace.has_lock:
        gil = trace.gil
        for place, name in enumerate(("thread", "start", "end", "events")):
            found.arrays(
                f"gil.{name}", np.array([row[place] for row in replay.tenures], np.int64), gil[name]
            )
    _compare_threads(found, replay, trace)
    return found


def _numbers(table: Any) -> list[str]:
    return [name for name in table.columns if np.ma.getdata(table[name]).dtype.kind in "iuf"]


def _compare_trees(found: Found, title: str, replay: Replay, tree: Any, knows_waited: bool) -> None:
    nodes, leaves = replay.tree()
    path = paths_of(replay.node_keys)
    ours = {path[node]: figures for node, figures in nodes.items()}
    keys = list(
        zip(
            tree.parent.tolist(),
            tree.function.tolist(),
            tree.caller.tolist(),
            tree.line.tolist(),
            strict=True,
        )
    )
    if tree.facts["folded"]:
        found.lines.append(f"{title}: small nodes were folded, not compared")
        return
    their_path = paths_of(keys)
    names = ["calls", "resumes", "raised", "total", "self", "longest", "shortest", "freed"]
    names += ["waited", "waited_self"] if knows_waited else []
    columns = {name: tree.own(name).tolist() for name in names if name != "total"}
    columns["total"] = tree.nodes["total"].tolist()
    theirs = {
        their_path[node]: {name: columns[name][node] for name in names}
        for node in range(1, len(keys))
    }
    found.figures(
        f"nodes of the {title}", {k: {n: v[n] for n in names} for k, v in ours.items()}, theirs
    )
    of_leaves = (
        "allocated",
        "blocks",
        "live",
        "live_blocks",
        "at_peak",
        "temporary",
        "temporary_blocks",
    )
    lists = [tree.leaf_node.tolist(), tree.leaf_function.tolist(), tree.leaf_line.tolist()]
    values = {name: tree.leaves[name].tolist() for name in of_leaves}
    theirs = {}
    for row, (node, function, line) in enumerate(zip(*lists, strict=True)):
        theirs[their_path[node], function, line] = {name: values[name][row] for name in of_leaves}
    found.figures(
        f"leaves of the {title}",
        {(path[node], function, line): v for (node, function, line), v in leaves.items()},
        theirs,
    )


def _compare_own(found: Found, replay: Replay, trace: Any) -> None:
    own, tree = trace.own, trace._tree
    is_own, is_blocking = tree.is_own(trace._own_patterns).tolist(), tree.is_blocking.tolist()
    ours = replay.own(is_own, is_blocking)
    names = ["calls", "total", "self", "allocated", "blocks", "live", "at_peak"]
    names += ["waited"] if trace._knows_waited else []
    rows = zip(
        *(np.ma.filled(own[name], -1).tolist() for name in ("function", "line", *names)),
        strict=True,
    )
    theirs = {
        (function, line): dict(zip(names, rest, strict=True)) for function, line, *rest in rows
    }
    found.figures("own", {k: {n: v[n] for n in names} for k, v in ours.items()}, theirs)


def _compare_threads(found: Found, replay: Replay, trace: Any) -> None:
    ours: dict[int, dict[int, int]] = defaultdict(dict)
    for (thread, kind), count in replay.recorded.items():
        ours[thread][kind] = count
    for thread, row in enumerate(trace._core.threads()):
        theirs = {kind: count for kind, count in row[4].items() if count}
        found.equal(f"recorded events of thread {thread}", ours.get(thread, {}), theirs)


def main(paths: list[str]) -> int:
    wrong = 0
    for path in paths:
        trace = eventprof.open(path)
        found = differences(trace)
        print(
            f"{path}: {len(trace.events):,} events, {found.compared:,} figures, {len(found.lines)} differ",
            flush=True,
        )
        for line in found.lines:
            print(f"    {line}")
        wrong += bool(found.lines)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
