"""Traces that are exported."""

from __future__ import annotations

import sys

import exported
import pytest
from exported import TRACES


@pytest.fixture(scope="module", params=TRACES)
def any_trace(request):
    return TRACES[request.param]()


@pytest.fixture(scope="module")
def nasty():
    return exported.nasty()


@pytest.fixture(scope="module", params=[False, True], ids=["events", "waits"])
def waiting(request):
    """Without events of waits, and with them."""
    if request.param and sys.platform != "linux":
        pytest.skip("waits are recorded on Linux alone")
    return exported.waiting(waits=request.param)
