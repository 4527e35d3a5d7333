"""Where the interpreter has no reference tracer, record(refs=True) says so."""

from __future__ import annotations

import sys

import pytest

import eventprof


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="there it has one")
def test_refs_need_3_13():
    with pytest.raises(
        eventprof.UnsupportedError, match=r"refs=True, .* needs Python 3\.13.*this is 3\."
    ):
        eventprof.record(refs=True)
    with eventprof.record(refs=False) as rec:
        len("x")
    assert len(rec.trace.objects) == 0
