"""Blocks of sub-interpreters, which have allocators of their own from 3.12 on."""

from __future__ import annotations

import sys

import children
import pytest

import eventprof

if sys.version_info >= (3, 13):
    import _interpreters as interpreters
else:
    import _xxsubinterpreters as interpreters

CODE = """
def f(n): return [str(i) for i in range(n)]
kept = [f(10) for _ in range(50)]
import json, collections
loaded = json.loads('{"a": 1}')
"""


def one():
    number = interpreters.create()
    interpreters.run_string(number, CODE)
    interpreters.destroy(number)


def test_no_block_of_a_sub_interpreter_is_freed_twice():
    """From 3.14 on its allocator's own tables are freed at its end, outside of any allocator."""
    with eventprof.record() as rec:
        for _ in range(3):
            one()

    verdict = rec.trace.verify(all=True)
    assert verdict.ok, str(verdict)[:1000]


def test_a_recorder_of_raw_alone_has_both_ends_of_the_tables():
    """Another recorder has the domains around."""
    with eventprof.record(calls=False, memory=["raw"]) as alone, eventprof.record() as every:
        for _ in range(3):
            one()

    for trace in alone.trace, every.trace:
        verdict = trace.verify(all=True)
        assert verdict.ok, str(verdict)[:1000]
    assert len(alone.trace.allocations) > 100


@pytest.mark.skipif(sys.version_info < (3, 14), reason="concurrent.interpreters is of 3.14")
def test_in_threads_of_their_own():
    program = f"""
    import threading
    import concurrent.interpreters as interpreters
    import eventprof
    def work():
        for _ in range(3):
            each = interpreters.create()
            each.exec({CODE!r})
            each.close()
    with eventprof.record() as rec:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
    print(rec.trace.verify(all=True))
    """

    found = children.program(program)

    assert found.stderr == ""
    assert "nothing is wrong" in found.stdout
