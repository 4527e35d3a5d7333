"""The figures of functions: sums of the tree, and percentiles of the lengths of calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .tree import Tree

if TYPE_CHECKING:
    from ..tables.column import Array
    from ..trace.recorded import Recorded


def of_functions(trace: Recorded) -> dict[str, Array]:
    """Return the figures of functions from one pass over the recording: all but percentiles."""
    sums = of_tree(trace)
    return trace._core.function_stats() if sums is None else sums


def of_tree(trace: Recorded) -> dict[str, Array] | None:
    """Sum up the tree; None if it folded small nodes, whose functions only the columns show."""
    tree = trace._tree
    return None if tree.facts["folded"] else tree.by_function()


def percentiles(trace: Recorded) -> dict[str, Array]:
    """Return the percentiles of functions, from a pass that counts the lengths of calls."""
    found = Tree(trace, lengths=True).percentiles(50, 95, 99)
    return {f"p{percent}": values for percent, values in found.items()}
