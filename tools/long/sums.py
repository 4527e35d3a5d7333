"""recorded + lost == emitted: eight threads of Python at full rate, every policy and size.

    sums.py [--events 110000000] [--folder FOLDER] [CASE...]

What a round emits is learned from one thread alone, of which everything is kept; then eight threads run as many
rounds as make the events that are asked for, while snapshots are taken and other recorders begin and end. By thread
and kind, what is recorded and what is counted as lost must be what was emitted. ``./dev soak`` runs it with 110 M
events; on a free-threaded interpreter the threads are truly at once. Ends with 1 if anything does not add up.
"""

from __future__ import annotations

import _thread
import argparse
import gc
import itertools
import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import eventprof
from eventprof import _core

THREADS = 8
HAS_GIL = getattr(sys, "_is_gil_enabled", lambda: True)()
KINDS = {number: identifier for number, identifier, *_ in _core.kind_table()}
# A window may find a thread before its first round, or after its last: locks and the thread's own state.
AROUND = 200
CALL_WORDS = ("CALL", "RETURN", "C_CALL", "C_RETURN")
#: Known to the last one: what the rounds alone do.
SAID = ("SPAN_BEGIN", "SPAN_END", "MARK", "COUNTER", "FLOW", "GC_START", "GC_STOP", "GC_COLLECTED",
        "LINE", "AUDIT")  # fmt: skip
#: Policy, buffer, on file. Those of "all" are of calls, blocks, lines, audit events, the collector's runs and what
#: the program says of itself.
CASES = {
    "overwrite-1": ("overwrite", "1 MiB", False),
    "overwrite-8": ("overwrite", "8 MiB", False),
    "overwrite-64": ("overwrite", "64 MiB", False),
    "overwrite-1024": ("overwrite", "1 GiB", False),
    "stop-1": ("stop", "1 MiB", False),
    "stop-64": ("stop", "64 MiB", False),
    "stop-1024": ("stop", "1 GiB", False),
    "grow": ("grow", "1 MiB", False),
    "file-1": ("overwrite", "1 MiB", True),
    "file-64": ("overwrite", "64 MiB", True),
    "file-stop-64": ("stop", "64 MiB", True),
    "all-overwrite-1": ("overwrite", "1 MiB", False),
    "all-overwrite-64": ("overwrite", "64 MiB", False),
    "all-stop-64": ("stop", "64 MiB", False),
    "all-grow": ("grow", "1 MiB", False),
    "all-file-64": ("overwrite", "64 MiB", True),
}
#: By the first word of the case: of record().
OPTIONS: dict[bool, dict[str, Any]] = {
    False: {},
    True: {"lines": True, "gc": True, "audit": ["sums.*"]},
}


def says_all(case):
    return case.startswith("all-")


def leaf(size):
    bytes(size)
    len("")


SPAN = eventprof.span("a round")


def saying(size):
    with SPAN:
        leaf(size)
        eventprof.mark("a mark")
        eventprof.counter("a counter", 1.5)
        eventprof.flow("a flow", 7, "step")
    sys.audit("sums.round")
    if HAS_GIL:  # else one that runs keeps the others from it
        gc.collect(0)


def spin(rounds, begin, done, step):
    begin.acquire()
    for _ in itertools.repeat(None, rounds):  # makes no object
        step(1000)
    done.release()


def run_threads(count, rounds, step, meanwhile=lambda: None):
    """Returns: the native ids. All is over when it does."""
    before = _thread._count()
    ids: dict[int, int] = {}

    def work(n):
        ids[n] = threading.get_native_id()
        spin(rounds, begin[n], done[n], step)

    begin = [_thread.allocate_lock() for _ in range(count)]
    done = [_thread.allocate_lock() for _ in range(count)]
    for lock in begin + done:
        lock.acquire()
    for n in range(count):
        _thread.start_new_thread(work, (n,))
    while len(ids) < count:
        time.sleep(0.001)
    for lock in begin:
        lock.release()
    for lock in done:
        while not lock.acquire(timeout=0.05):
            meanwhile()
    while _thread._count() > before:
        time.sleep(0.001)
    return [ids[n] for n in range(count)]


def sums(trace, ids):
    """Recorded and lost, by kind, of each of these threads."""
    found = {}
    for _name, native_id, _first, _last, recorded, lost in trace._core.threads():
        if native_id in ids:
            found[native_id] = Counter(recorded) + Counter(lost)
    return [found.get(native_id, Counter()) for native_id in ids]


def learn(all_of_it):
    """By kind, what a round emits, and what a thread without rounds."""
    step = saying if all_of_it else leaf
    run_threads(1, 50_000, step)  # what is compiled or specialised on the way is behind us
    seen = []
    for rounds in (0, 1000):
        with eventprof.record(buffer="64 MiB", on_full="grow", **OPTIONS[all_of_it]) as rec:
            ids = run_threads(1, rounds, step)
        (counts,) = sums(rec.trace, ids)
        seen.append(counts)
    none, some = seen
    a_round = {kind: round((some[kind] - none[kind]) / 1000) for kind in some}
    a_round = {kind: count for kind, count in a_round.items() if count}
    words = {KINDS[kind]: count for kind, count in a_round.items()}
    if all_of_it:
        assert all(
            words[word] == 1 for word in SAID if not word.startswith("GC") and word != "LINE"
        )
        assert [words.get(word, 0) for word in SAID if word.startswith("GC")] == [HAS_GIL] * 3, (
            words
        )
        assert words["CALL"] == words["RETURN"] == 2, words
        assert words["LINE"] >= 10, words
        return a_round, none
    assert words["CALL"] == words["RETURN"] == 1, words
    assert words["CALLOC_OBJ"] == words["FREE_OBJ"] == 1, words
    assert words["C_CALL"] == words["C_RETURN"] in (1, 2), (
        words
    )  # bytes() is one for sys.monitoring
    return a_round, none


def run(case, events, folder, a_round, none):
    policy, buffer, on_file = CASES[case]
    all_of_it = says_all(case)
    rounds = events // (THREADS * sum(a_round.values()))
    output = os.path.join(folder, f"{case}.epr") if on_file else None
    looks = 0

    def meanwhile():
        nonlocal looks
        looks += 1
        with eventprof.record(memory=False, buffer="1 MiB"):
            pass
        if buffer != "1 GiB" and policy != "grow":  # a snapshot of these is as large
            rec.snapshot()

    begun = time.monotonic()
    options = {"buffer": buffer, "on_full": policy, "output": output, **OPTIONS[all_of_it]}
    with eventprof.record(**options) as rec:
        ids = run_threads(THREADS, rounds, saying if all_of_it else leaf, meanwhile)
    seconds = time.monotonic() - begun
    traces = [rec.trace]
    if output is not None:
        traces.append(eventprof.open(output))
    wrong = []
    emitted = lost = 0
    for trace in traces:
        lost = trace.loss.total
        for row, counts in enumerate(sums(trace, ids)):
            for kind in {*counts, *a_round}:
                wanted = a_round.get(kind, 0) * rounds + none[kind]
                word = KINDS[kind]
                # Calls are known to the last one.
                most = 0 if word in (*CALL_WORDS, *SAID) else AROUND
                if not wanted - none[kind] * (most > 0) <= counts[kind] <= wanted + most:
                    wrong.append(f"thread {row}, {word}: {counts[kind]}, not {wanted}")
            emitted += counts.total()
        del trace
    traces.clear()
    if output is not None:
        Path(output).unlink()
    print(
        f"{case:15} {emitted // (1 + on_file):,} events of {THREADS} threads in {seconds:.1f} s, "
        f"{looks} looks meanwhile, {lost:,} lost: {'; '.join(wrong[:5]) or 'they add up'}",
        flush=True,
    )
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=110_000_000)
    parser.add_argument("--folder", default=".")
    parser.add_argument("case", nargs="*", choices=[[], *CASES])
    given = parser.parse_args()
    gc.disable()  # finalizers of garbage would be calls, too
    cases = given.case or list(CASES)
    learned = {all_of_it: learn(all_of_it) for all_of_it in {says_all(case) for case in cases}}
    right = [run(case, given.events, given.folder, *learned[says_all(case)]) for case in cases]
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
