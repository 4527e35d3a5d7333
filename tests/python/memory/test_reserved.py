"""Memory that was asked for and never touched is no part of what a peak held."""

from __future__ import annotations

import sys
import time

import children
import numpy as np
import pytest
from preloading import HAS_LIBRARY

import eventprof
from eventprof.answers.first import memory_parts
from eventprof.answers.reserved import reserved_at_peak
from eventprof.show.own_lines import short_report

pytestmark = [
    pytest.mark.version,
    pytest.mark.skipif(sys.platform != "linux", reason="the system does not say"),
]
MIB = 1 << 20
SIZE = 512 * MIB


def record(work):
    with eventprof.record(calls=False, c_calls=False, numpy=True, buffer="64MiB") as rec:
        work()
    return rec.trace


def untouched():
    kept = np.empty(SIZE, np.uint8)
    time.sleep(0.2)
    return kept.nbytes


def look_at_untouched():
    trace = record(untouched)
    reserved = reserved_at_peak(trace, trace._tree)
    parts = {part.name: part.bytes for part in memory_parts(trace, trace._tree)}

    # What is resident and older than the recording hides as much.
    assert SIZE * 0.6 < reserved <= trace._tree.facts["peak"]
    assert parts["of these reserved"] == reserved
    assert "of it reserved, never touched)" in short_report(trace, 200, plain=True)[0]


def test_an_array_that_nobody_touches_is_reserved():
    # In a process that keeps little resident: after thousands of tests this one keeps gigabytes.
    alone = "import test_reserved; test_reserved.look_at_untouched()"
    children.program(alone)


def test_an_array_that_is_filled_later_is_not():
    def work():
        kept = np.empty(128 * MIB, np.uint8)
        time.sleep(0.1)
        kept.fill(1)
        time.sleep(0.2)

    trace = record(work)

    assert reserved_at_peak(trace, trace._tree) == 0
    assert "reserved" not in short_report(trace, 200, plain=True)[0]
    assert "of these reserved" not in {part.name for part in memory_parts(trace, trace._tree)}


def test_a_peak_between_two_samples_claims_nothing():
    def work():
        np.empty(SIZE, np.uint8)

    trace = record(work)

    # Some sample may fall into it, if the machine is busy: then it was untouched, indeed.
    assert reserved_at_peak(trace, trace._tree) in (0, pytest.approx(SIZE, rel=0.4))


def test_no_memory_no_claim():
    with eventprof.record(memory=False) as rec:
        len("text")

    assert reserved_at_peak(rec.trace, rec.trace._tree) == 0


@pytest.mark.thorough
@pytest.mark.skipif(not HAS_LIBRARY, reason="needs Linux with glibc")
@pytest.mark.parametrize("accessible", [True, False])
def test_reserved_addresses_of_a_library_are_not_a_peak(tmp_path, accessible):
    """A gigabyte that is mapped as Arrow's allocator maps it is no event; accessible, it is named."""
    script, path = tmp_path / "job.py", tmp_path / "job.epr"
    flags = "mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS"
    flags += "" if accessible else " | 0x4000"  # MAP_NORESERVE
    script.write_text(
        f"import mmap, time\nreserved = mmap.mmap(-1, 1 << 30, flags={flags})\ntime.sleep(0.2)\n",
        encoding="utf-8",
    )
    children.eventprof("run", "--native", "-o", path, script, PYTHONPATH=children.path())

    trace = eventprof.open(path)
    reserved = reserved_at_peak(trace, trace._tree)

    if accessible:
        assert (1 << 30) * 0.8 < reserved < 1.1 * (1 << 30)
    else:
        assert reserved == 0
        assert trace._tree.facts["peak"] < 512 * MIB
