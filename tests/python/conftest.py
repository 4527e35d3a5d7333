from __future__ import annotations

import pytest
import raw


@pytest.fixture
def restored():
    """The interpreter's hooks are after the test as they were before."""
    before = raw.hooks()
    yield before
    assert raw.hooks() == before


@pytest.fixture(params=raw.BACKENDS)
def backend(request):
    return request.param
