"""How much of the memory at the peak was reserved: allocated, but not touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ..trace import Trace
    from .tree import Tree

_BINS = 1 << 13  # as many as the tree has
#: Samples of the resident set are compared while at least this share of the peak was live.
_NEAR_PEAK = 0.9
#: A smaller share of the peak is reported as 0: samples and allocations have different times.
_LEAST = 0.1


def reserved_at_peak(trace: Trace, tree: Tree) -> int:
    """Find how many bytes of the peak were reserved as long as the peak lasted; a lower bound.

    Returns
    -------
    int
        Bytes. 0 if they are less than a tenth of the peak, or not known: no sample of the resident
        set (every 10 ms) was taken while at least nine tenths of the peak were live.

    Notes
    -----
    Live bytes are what the program allocated; the resident set has the pages that it touched. If
    more bytes are live than resident, the difference is reserved: pages of a large ``mmap`` or
    ``malloc``, or an ``np.empty``. The smallest difference counts, so an array that is filled soon
    after it was made does not. Memory that was resident before the recording hides as many bytes.
    """
    peak = int(tree.facts["peak"])
    when, resident, recorder = trace._core.resident()
    if not peak or not len(when):
        return 0
    lowest, _ = tree.live_bins(_BINS)
    live = lowest[np.minimum(when * _BINS // max(trace.duration, 1), _BINS - 1)]
    near_peak = live >= _NEAR_PEAK * peak
    if not near_peak.any():
        return 0
    reserved = int((live - (resident - recorder))[near_peak].min())
    return reserved if reserved >= _LEAST * peak else 0
