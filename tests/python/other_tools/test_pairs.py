"""Recorders with different sets of events at once: each has its own, as if alone."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import children
import numpy as np
import pytest
import raw
import read_log
from preloading import HAS_LIBRARY, SANITIZED, WITH_HELPERS

import eventprof
from eventprof.recording import native

CHILD = Path(__file__).with_name("pairs_child.py")
BLOCKS = {"malloc", "calloc", "realloc", "realloc_free", "free", "realloc_failed"}
SIZE = 99_991


@pytest.mark.thorough
def test_every_two_sets_of_events():
    """In a process of its own: of all pairs, with C libraries where they can be recorded."""
    with_native = HAS_LIBRARY and not SANITIZED
    more = {"LD_PRELOAD": native.library()} if with_native else {}
    found = children.run(
        sys.executable, CHILD, *(["native"] if with_native else []), **WITH_HELPERS, **more
    )
    result = json.loads(found.stdout)
    assert result["wrong"] == {}
    assert all(result["counts"].values()), result["counts"]
    assert {"raw", "obj", "numpy", "lines", "marks", "calls"} <= set(result["counts"])
    assert ("libc" in result["counts"]) == with_native


def large(trace):
    """The blocks of the program below; of each its domain."""
    blocks = trace.allocations
    return sorted(blocks["domain"][blocks["size"].filled(0) >= SIZE])


def recorders():
    for domains in (["raw"], ["obj", "mem"], ["raw", "mem", "obj"]):
        yield eventprof.record(events=BLOCKS, memory=domains, numpy=False, threads="current")


@pytest.mark.skipif(
    not raw.HAS_GIL, reason="without the GIL no block of OBJ or MEM is one of RAW's"
)
def test_a_block_is_the_inner_ones_for_whoever_records_that_alone(tmp_path):
    """Of RAW it is asked by OBJ (MEM, in some versions), for the same block."""
    path = tmp_path / "raw.epr"
    first = eventprof.record(events=BLOCKS, memory=["raw"], output=path, threads="current")
    _, second, third = recorders()
    with first, second, third:
        kept = bytearray(SIZE)
    (raw_domain,) = large(first.trace)
    (object_domain,) = large(second.trace)

    assert len(kept) == SIZE
    assert raw_domain == "raw"
    assert object_domain in ("obj", "mem")
    assert large(third.trace) == [object_domain]
    assert not first.trace.loss
    # The file says which events are whose: by its own reader, and by that of the page about it.
    assert large(eventprof.open(path)) == ["raw"]
    log = read_log.read(path)
    assert sum(event.size is not None and event.size >= SIZE for event in log.events) == 1
    assert len(log.events) == len(first.trace.events)


@pytest.mark.skipif(
    not raw.HAS_GIL, reason="without the GIL no block of OBJ or MEM is one of RAW's"
)
def test_what_was_lost_is_each_recorders_own():
    """A full buffer: events that are kept and those that are counted are those that it has alone."""
    count = 70_000
    first, second = (
        eventprof.record(events=BLOCKS, memory=[domain], buffer="1 MiB", threads="current",
                         on_full=policy)
        for domain, policy in (("raw", "overwrite"), ("obj", "stop"))
    )  # fmt: skip
    with first, second:
        for _ in itertools.repeat(None, count):  # no ints
            bytes(601)  # of OBJ, which has RAW make it

    for rec, domain in ((first, "raw"), (second, "obj")):
        sums = raw.recorded(rec._capture()) + raw.lost(rec._capture())
        made = sum(n for word, n in sums.items() if word in (f"MALLOC_{domain.upper()}",
                                                             f"CALLOC_{domain.upper()}"))  # fmt: skip
        assert count <= made < count + 1000
        assert count <= sums[f"FREE_{domain.upper()}"] < count + 1000
        assert not {word for word in sums if not word.endswith(domain.upper())}
        assert rec.trace.loss


@pytest.mark.skipif(
    not raw.HAS_GIL, reason="without the GIL no block of OBJ or MEM is one of RAW's"
)
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_recorders_that_come_and_go(order):
    """Whoever is there at a time decides what is written down, not what any of them has."""
    all_of_them = list(recorders())
    before = raw.hooks()
    for which in order:
        all_of_them[which].start()
        bytearray(SIZE)
    for which in order:
        all_of_them[which].stop()
        bytearray(SIZE)
    assert raw.hooks() == before

    # Windows that overlap: as many of the blocks as each of them was there for.
    for rec, domain in zip(all_of_them, ("raw", None, None), strict=True):
        place = order.index(all_of_them.index(rec))
        domains = np.array(large(rec.trace))
        assert len(domains) == (3 - place) + place
        assert (domains == "raw").sum() == (len(domains) if domain == "raw" else 0)
