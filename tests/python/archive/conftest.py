"""A trace, and its archive."""

from __future__ import annotations

import pytest
from archiving import recorded, work


@pytest.fixture
def trace():
    return recorded(work)


@pytest.fixture
def saved(trace, tmp_path):
    path = tmp_path / "saved.epr"
    trace.save(path)
    return path
