"""Each hook that tells what happens inside of functions."""

from __future__ import annotations

import pytest
from inside_programs import HOOKS


@pytest.fixture(params=HOOKS)
def hook(request):
    return request.param
