"""The rules that need recorded waits: locks that are held for long, queues, pools."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .._words import plural, show_ns
from .findings import Case, Evidence, Finding, falling
from .waiting import Place, by_place


def held_locks(case: Case) -> Iterator[Finding]:
    """Find own lines that wait long for a lock, and say what the threads did that had it."""
    own = [each for each in by_place(case.trace) if each.is_lock_of_own]
    time, times = sum(each.total for each in own), sum(each.times for each in own)
    if time < 0.5 * case.trace.duration or times < 4:
        return
    first = own[0]
    claim = (
        f"threads waited {show_ns(time)} for a lock, {times:,} times, most in {first.place.name}"
    )
    if first.at_once > 2:
        claim += f", up to {first.at_once} at once"
    evidence = [_at(each.place) for each in own[:4]]
    # Who let a thread go on may have waited at this place itself before it had the lock.
    others = [(place, held) for place, held in first.meanwhile if place != first.place]
    in_turn = sum(held for place, held in first.meanwhile if place == first.place)
    if first.wakers and others:
        (name, _), (place, held) = first.wakers[0], others[0]
        part = min(held / max(sum(time for _, time in first.wakers) - in_turn, 1), 1)
        if part >= 0.5:
            claim += f"; {name} had it, and in {part:.0%} of that time it waited in {place.name}"
            evidence.append(_at(place))
    yield Finding(
        "contended-lock",
        claim,
        "Hold the lock for less: do not sleep, read or compute under it.",
        min(time / case.whole, 1.0),
        {"time": time, "calls": times},
        tuple(evidence),
        "eventprof waits FILE",
    )


def _at(place: Place) -> Evidence:
    return Evidence(place.name or "?", place.file, place.line)


def full_queue(case: Case) -> Iterator[Finding]:
    """Find threads that wait for room in a queue for half of the run."""
    tree = case.tree
    if not tree.has_waits:
        return
    puts, gets = (
        case.own_nodes_of(case.functions_named({("queue", name)}))
        for name in ("Queue.put", "Queue.get")
    )
    waited = tree.below("waited_lock")
    time, calls = int(waited[puts].sum()), int(tree.own("calls")[puts].sum())
    if time < 0.5 * case.trace.duration or calls < 4:
        return
    evidence = (*falling(puts, waited)[:3], *falling(gets, tree.own("calls"))[:2])
    yield Finding(
        "full-queue",
        f"threads waited {show_ns(time)} for room in a queue, in a run of "
        f"{show_ns(case.trace.duration)}: those who take from it are slower",
        "Take with more threads or processes, or do less for each item.",
        min(time / case.whole, 1.0),
        {"time": time, "calls": calls},
        tuple(case.node_evidence(int(node)) for node in evidence),
        "eventprof waits FILE",
    )


def small_pool(case: Case) -> Iterator[Finding]:
    """Find pools of threads whose workers always wait in their work, and never for work."""
    tree, pool = case.tree, "concurrent.futures.thread"
    if not tree.has_waits:
        return
    workers, runs = (
        case.nodes_of(case.functions_named({(pool, name)})) for name in ("_worker", "_WorkItem.run")
    )
    count, items = (int(tree.own("calls")[nodes].sum()) for nodes in (workers, runs))
    whole, busy = (int(tree.below("total")[nodes].sum()) for nodes in (workers, runs))
    waited = sum(int(tree.below(f"waited_{word}")[runs].sum()) for word in ("sleep", "io"))
    if (
        items < 8 * max(count, 1)
        or busy < 0.9 * whole
        or waited < 0.7 * busy
        or busy < 0.5 * count * case.trace.duration
    ):
        return
    below = np.flatnonzero(np.isin(tree.parent, runs) & case.own[np.maximum(tree.function, -1)])
    work = falling(below, tree.below("total"))
    yield Finding(
        "small-pool",
        f"{plural(count, 'thread')} of a pool did {items:,} pieces of work without a pause, and "
        f"were asleep or in I/O for {waited / busy:.0%} of that time",
        "Use a larger max_workers: the threads wait, and do not compute.",
        min(waited / case.whole, 1.0),
        {"threads": count, "items": items, "waited": waited, "time": busy},
        tuple(case.line_evidence(int(tree.function[node]), -1) for node in work[:3]),
        "eventprof waits FILE",
    )
