"""A trace of which only the tree was asked goes with its last reference, without the collector.

The plugin of pytest makes thousands of them while the collector is off or has little to do.
"""

import gc
import weakref

import pytest

import eventprof


@pytest.mark.parametrize(
    "use",
    [
        lambda trace: trace.tree["total"],
        lambda trace: trace._tree.functions,
        lambda trace: trace.own["self"],
    ],
    ids=["tree", "functions", "own"],
)
def test_no_answer_of_the_tree_keeps_a_trace_alive(use):
    with eventprof.record() as rec:
        sorted([3, 1, 2])
    trace = rec.trace
    use(trace)
    trace_lives = weakref.ref(trace)
    gc.disable()
    try:
        del rec, trace
        assert trace_lives() is None
    finally:
        gc.enable()
