"""A good log, to be damaged."""

from __future__ import annotations

import pytest
from log_children import work

import eventprof


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A file with a sealed chunk and more; in a ring of two, another thread could push the first out."""
    path = tmp_path_factory.mktemp("good") / "good.epr"
    rec = eventprof.record(output=path, buffer="16 MiB")
    with rec:
        work(80_000)
    return path.read_bytes()
