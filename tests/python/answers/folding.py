"""Logs by threads that take turns, and what folds answer of them."""

from __future__ import annotations

import os
import sys
import threading
import time

import numpy as np

import eventprof
from eventprof.tables.batches import read_events

WORK = """
def leaf(size):
    return bytes(size)


def branch(number):
    kept = [leaf(600 + number % 50), leaf(700)]
    try:
        sorted(kept, key=len)
        [].pop()
    except IndexError:
        return kept


def work(count):
    kept = []
    for number in range(count):
        kept.append(branch(number))
        if len(kept) > 100:
            kept.clear()
"""


def record(path, threads=3, count=3000, **options):
    """Write a log, by threads that take turns."""
    space: dict = {}
    exec(WORK, space)
    workers = [threading.Thread(target=space["work"], args=(count,)) for _ in range(threads)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        with eventprof.record(output=path, **options):
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
    finally:
        sys.setswitchinterval(interval)
    wait_until_gone(workers)


def wait_until_gone(workers):
    """A thread seals its chunk when it ends, which before 3.13 may be a little after join() has returned."""
    deadline = time.monotonic() + 120
    while any(os.path.exists(f"/proc/self/task/{worker.native_id}") for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.001)


def answers(core):
    """Return everything that a pass over a file tells."""
    found = core.tree(0, True, True)
    names = "nodes", "leaves", "places", "bins", "threads", "lengths", "functions", "waits"
    parts = {name: found.pop(name) for name in names}
    arrays = {f"{name} {key}": columns[key] for name, columns in parts.items() for key in columns}
    arrays |= {f"tenures {name}": column for name, column in core.tenures().items()}
    times, held, recorder = core.resident()
    arrays |= {"resident at": times, "resident": held, "recorder": recorder}
    return arrays, (found, core.facts(), core.threads(), core.functions(), core.lost())


def assert_same_without_columns(path):
    passed, decoded = eventprof.open(path), eventprof.open(path)
    decoded._core.events("time")

    arrays, rest = answers(passed._core)
    wanted, wanted_rest = answers(decoded._core)

    assert rest == wanted_rest
    assert arrays.keys() == wanted.keys()
    for name, values in wanted.items():
        assert np.array_equal(arrays[name], values), name
    # The same notes, of which the first eight are told, in the order in which chunks are read.
    count = decoded.file["missing_count"]
    assert passed.file["missing_count"] == count
    assert count > 8 or sorted(passed.file["missing"]) == sorted(decoded.file["missing"])
    # Rows come when they are asked for, and refer to the same functions.
    assert len(passed.calls) == len(decoded.calls)
    assert passed.calls["name"].tolist()[:100] == decoded.calls["name"].tolist()[:100]
    after, after_rest = answers(passed._core)
    assert after_rest == wanted_rest
    assert all(np.array_equal(after[name], values) for name, values in wanted.items())
    assert_same_rows(path, decoded)
    return decoded


def assert_same_rows(path, decoded):
    """Batches of the table of events are the table."""
    passed, batches = eventprof.open(path), []
    passed._core.survey()
    read_events(passed, lambda rows, numbers: batches.append((rows, numbers)) or True)

    assert np.array_equal(
        np.concatenate([numbers for _, numbers in batches]), np.arange(len(decoded.events))
    )
    for name in decoded.events.columns:
        found = [item for rows, _ in batches for item in rows._column(name).items()]
        # Numbers that are not known are not equal to themselves.
        assert repr(found) == repr(decoded.events._column(name).items()), name
