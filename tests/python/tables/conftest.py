"""A trace with every sort of row, and an empty one."""

from __future__ import annotations

import pytest
from tables_program import record

import eventprof


@pytest.fixture(scope="module")
def trace():
    return record(1237)


@pytest.fixture(scope="module")
def empty():
    with eventprof.record(threads="current", events=["realloc_failed"]) as rec:
        pass
    return rec.trace


@pytest.fixture(params=["full", "empty"])
def any_trace(request, trace, empty):
    return trace if request.param == "full" else empty
