"""Traces that are exported."""

from __future__ import annotations

import threading

import exported
import pytest
from exported import TRACES

import eventprof


@pytest.fixture(scope="module", params=TRACES)
def any_trace(request):
    return TRACES[request.param]()


@pytest.fixture(scope="module")
def nasty():
    return exported.nasty()


@pytest.fixture(scope="module")
def waiting():
    """Two threads that both want the interpreter's lock."""

    def busy():
        for _ in range(60):
            sum(len(str(k)) for k in range(200))

    with eventprof.record() as rec:
        threads = [threading.Thread(target=busy) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return rec.trace
