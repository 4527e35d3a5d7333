"""What recorders that ran together must agree on: a ring with its loss, a filter, sums of merged recordings.

    replay_together.py WHOLE RING CHOSEN

The files are those that applications.py makes of one run of a program: a recording of everything, what was left in a
ring, and what a filter left. The last line is a JSON document: by name of the
check, how many events and figures were compared, and what differs.
"""

from __future__ import annotations

import fnmatch
import json
import sys
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import replay
from replay import ACTIONS, CLOSES, IN_C, OPENS, Found, Replay

import eventprof

#: As in applications.TOGETHER.
EXCLUDED = ("*/site-packages/*", "<frozen*")
MAX_DEPTH = 12
#: How far the times of one event may be apart in two traces, and how many events a thread may have while a recorder stops.
TIME_NS, SLACK = 100_000, 200
SUMS = (
    "calls", "resumes", "recursive", "total", "self", "waited", "waited_self", "allocated", "allocated_self",
    "freed", "freed_self", "blocks", "blocks_self", "live", "live_self", "churn", "temporary",
)  # fmt: skip


class Rows:
    """The events of a trace by thread, in words that do not depend on the trace."""

    def __init__(self, trace: Any) -> None:
        core = trace._core
        self.start = core.facts()["start_monotonic_ns"]
        self.end = self.start + trace.duration
        self.functions = [tuple(row) for row in core.functions()] + [()]
        self.native = [row[1] for row in core.threads()]
        self.time = core.events("time") + self.start
        self.kind, self.thread = core.events("kind"), core.events("thread")
        self.function, self.address = core.events("function"), core.events("address")
        self.by_thread = {
            native: np.flatnonzero(self.thread == thread)
            for thread, native in enumerate(self.native)
        }

    def texts(self, rows: Any) -> list[tuple[Any, ...]]:
        """Kind, function and address of these rows."""
        function = [self.functions[row] for row in self.function[rows].tolist()]
        return list(
            zip(self.kind[rows].tolist(), function, self.address[rows].tolist(), strict=True)
        )


def compare_ring(found: Found, whole: Rows, ring_trace: Any, ring: Rows) -> dict[int, list[Any]]:
    """What is left in the ring is the end of the whole, and what it lost is the rest.

    Returns: {row of the whole: functions of the calls that the ring says are open before it}.
    """
    first_ns = ring.start
    lost_of = {row[1]: Counter(row[5]) for row in ring_trace._core.threads()}
    opened = defaultdict(list)
    for thread, function, *_ in replay.opened_of(ring_trace):
        opened[ring.native[thread]].append(ring.functions[function])
    watched = {}
    for native, rows in whole.by_thread.items():
        window = rows[whole.time[rows] >= first_ns]
        left = ring.by_thread.get(native, np.zeros(0, np.int64))
        # Both end alike, but for what the thread did after the ring was stopped. Times do not tell where: they are
        # made from the anchors of other chunks.
        wanted, words = ring.texts(left), whole.texts(window)
        after = int((whole.time[window] > ring.end + TIME_NS).sum())
        place = next(
            (
                len(window) - len(left) - more
                for more in range(after, after + SLACK)
                if words[len(window) - len(left) - more : len(window) - more] == wanted
            ),
            -1,
        )
        found.compared += len(left)
        if place < 0:
            found.lines.append(
                f"ring: the {len(left):,} events left of thread {native} are not the whole's last ones"
            )
            continue
        if len(left):
            off = np.abs(ring.time[left] - whole.time[window[place : place + len(left)]]).max()
            found.equal("ring: times", True, bool(off <= TIME_NS))
            found.largest = max(found.largest, int(off))
        wanted = Counter(whole.kind[window[:place]].tolist())
        lost = Counter({kind: count for kind, count in lost_of.get(native, {}).items() if count})
        found.equal(f"ring: lost of thread {native}, by kind", wanted, lost)
        if len(left) and place < len(window):
            watched[int(window[place])] = opened[native]
    return watched


def filtered(whole_trace: Any, whole: Rows, first_ns: int, last_ns: int) -> dict[int, list[int]]:
    """By native id, the rows of the whole in a window that a filter leaves."""
    core = whole_trace._core
    excluded = [
        bool(row) and row[2] is not None and any(fnmatch.fnmatchcase(row[2], g) for g in EXCLUDED)
        for row in whole.functions
    ]
    is_function = [
        bool(row) and row[4] not in ("user", "gc", "hpy") for row in whole.functions[:-1]
    ] + [True]
    kept: dict[int, list[int]] = defaultdict(list)
    stacks: dict[int, list[tuple[int, int, bool]]] = defaultdict(
        list
    )  # key, depth inside, whether it stays

    def begin(thread: int, function: int, caller: int, kind: int, before: bool) -> bool:
        stack = stacks[thread]
        depth = stack[-1][1] if stack else 0
        key = function * 2 + (kind in IN_C)
        if not is_function[function]:
            stack.append((key, depth, True))
            return True
        # A function that has no file goes with its caller.
        has_file = bool(whole.functions[function]) and whole.functions[function][2] is not None
        wanted = not excluded[function if has_file else caller]
        stays = wanted and (before or depth <= MAX_DEPTH)
        stack.append((key, 0 if before else depth + wanted, stays))
        return stays

    for thread, function, caller, _, kind, _ in replay.opened_of(whole_trace):
        begin(thread, function, caller, kind, True)
    columns = (core.events("caller"), whole.function, whole.thread, whole.kind, whole.time)
    for first in range(0, len(whole.time), replay.PART):
        lists = (column[first : first + replay.PART].tolist() for column in columns)
        for row, (caller, function, thread, kind, time) in enumerate(
            zip(*lists, strict=True), first
        ):
            inside, action = first_ns <= time <= last_ns, ACTIONS[kind]
            stays = True
            if action == OPENS:
                stays = begin(thread, function, caller, kind, time < first_ns)
            elif action == CLOSES:
                stack, key = stacks[thread], function * 2 + (kind in IN_C)
                if any(entry[0] == key for entry in reversed(stack)):
                    while stack[-1][0] != key:
                        stack.pop()
                    stays = stack.pop()[2]
                else:
                    stays = not excluded[function]
            if inside and stays:
                kept[whole.native[thread]].append(row)
    return kept


def compare_filter(found: Found, whole_trace: Any, whole: Rows, chosen: Rows) -> None:
    kept = filtered(whole_trace, whole, chosen.start, chosen.end)
    for native in {*kept, *(n for n, rows in chosen.by_thread.items() if len(rows))}:
        rows = np.array(kept.get(native, []), np.int64)
        theirs = chosen.by_thread.get(native, np.zeros(0, np.int64))
        wanted, got = whole.texts(rows), chosen.texts(theirs)
        found.compared += len(wanted)
        if wanted != got:
            place = next(
                (n for n, (a, b) in enumerate(zip(wanted, got, strict=False)) if a != b),
                min(len(wanted), len(got)),
            )
            found.lines.append(
                f"filter: thread {native} has {len(got):,} events, the filtered ones are {len(wanted):,}; the first that "
                f"differs is {place}: {got[place : place + 2]}, wanted {wanted[place : place + 2]}"
            )


def compare_merged(found: Found, traces: list[Any]) -> None:
    merged = eventprof.merge(traces)
    found.equal("merge: events", sum(len(trace.events) for trace in traces), len(merged.events))
    found.equal("merge: blocks", sum(len(t.allocations) for t in traces), len(merged.allocations))
    sides = []
    for given in (traces, [merged]):
        sums: dict[Any, Any] = defaultdict(Counter)
        for trace in given:
            table = trace.functions
            keys = [tuple(row) for row in trace._core.functions()]
            for name in SUMS:
                for key, value in zip(keys, np.ma.filled(table[name], 0).tolist(), strict=True):
                    sums[key][name] += value
        sides.append(sums)
    found.figures("merge: functions", sides[0], sides[1])
    sides = []
    for given in (traces, [merged]):
        nodes: dict[Any, Any] = defaultdict(Counter)
        for trace in given:
            tree, known = trace._tree, [tuple(row) for row in trace._core.functions()] + [()]
            texts = [hash(row) for row in known]
            keys = zip(
                tree.parent.tolist(),
                tree.function.tolist(),
                tree.caller.tolist(),
                tree.line.tolist(),
                strict=True,
            )
            paths = replay.paths_of([(p, texts[f], texts[c], n) for p, f, c, n in keys])
            for name in (
                "calls",
                "resumes",
                "raised",
                "self",
                "waited",
                "freed",
                "allocated",
                "live",
            ):
                for path, value in zip(paths, tree.own(name).tolist(), strict=True):
                    nodes[path][name] += value
        sides.append(nodes)
    sides[0].pop(0, None), sides[1].pop(0, None)
    found.figures("merge: nodes of the tree", sides[0], sides[1])


def compare_between(found: Found, trace: Any, replayed: Replay) -> None:
    """Of some intervals, what `between` says."""
    time = trace._core.events("time")
    calls, blocks = replayed.call_columns(), replayed.blocks
    start, end = calls["start"], calls["start"] + calls["duration"]
    born, died, size = blocks.get("start"), blocks.get("end"), blocks.get("size")
    alive_to_end = blocks.get("death") < 0
    for low, high in ((0.1, 0.4), (0.35, 0.9), (0.5, 0.5001)):
        first, last = int(trace.duration * low), int(trace.duration * high)
        interval = trace.between(first, last)
        found.equal(
            f"between {low} and {high}: events",
            int(((time >= first) & (time < last)).sum()),
            len(interval.events),
        )
        found.equal(
            f"between {low} and {high}: calls",
            int(((start < last) & (end > first)).sum()),
            len(interval.calls),
        )
        inside = (born >= first) & (born < last)
        found.equal(
            f"between {low} and {high}: blocks", int(inside.sum()), len(interval.allocations)
        )
        found.equal(
            f"between {low} and {high}: allocated", int(size[inside].sum()), interval.allocated
        )
        ended = ~alive_to_end & (died >= first) & (died < last)
        found.equal(f"between {low} and {high}: freed", int(size[ended].sum()), interval.freed)


def main(paths: list[str]) -> int:
    checks: dict[str, Any] = {}

    def keep(name: str, trace: Any, found: Found) -> None:
        checks[name] = {
            "events": len(trace.events),
            "compared": found.compared,
            "wrong": found.lines[:20],
        }

    whole, ring = eventprof.open(paths[0]), eventprof.open(paths[1])
    words, ring_words = Rows(whole), Rows(ring)
    found = replay.differences(ring)
    watched = compare_ring(found, words, ring, ring_words)
    replayed = Replay(whole, watched=watched)
    for row, theirs in watched.items():
        ours = [words.functions[function] for function in replayed.stacks[row]]
        found.equal(f"ring: calls open before event {row} of the whole", ours, theirs)
    keep("ring", ring, found)
    checks["ring"] |= {"lost": ring.loss.total, "times_apart_ns": found.largest}
    found = replay.differences(whole, replayed)
    compare_between(found, whole, replayed)
    keep("tables", whole, found)

    chosen = eventprof.open(paths[2])
    found = replay.differences(chosen)
    compare_filter(found, whole, words, Rows(chosen))
    keep("filter", chosen, found)
    found = Found()
    compare_merged(found, [whole, ring])
    count = len(whole.events) + len(ring.events)
    checks["merge"] = {"events": count, "compared": found.compared, "wrong": found.lines[:20]}
    print(json.dumps(checks))
    return 1 if any(check["wrong"] for check in checks.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
