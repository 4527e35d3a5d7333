"""What of the memory at the peak was reserved and never touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ..trace import Trace
    from .tree import Tree

_BINS = 1 << 13  # as many as the tree keeps
#: A sample of the resident set counts for the peak while so much of the peak was live.
_HELD = 0.9
#: Less of the peak than this is not told: samples and changes are not at the same instant.
_TOLD = 0.1


def reserved_at_peak(trace: Trace, tree: Tree) -> int:
    """Find how many bytes of the peak stayed untouched as long as it was held, at the least.

    Returns
    -------
    int
        Bytes; 0 where it is less than a tenth of the peak, or not known: no sample of the resident
        set (every 10 ms) fell into the time in which nine tenths of the peak were live.

    Notes
    -----
    Live bytes were asked for; the resident set has what was touched. Where more was live than was
    resident, the rest was mapped and untouched: pages of a large ``mmap`` or ``malloc``, an
    ``np.empty``. The least such rest is taken, so that an array that is filled after it was made
    does not count. What is resident and older than the recording hides as much of it.
    """
    peak = int(tree.facts["peak"])
    when, held, recorder = trace._core.resident()
    if not peak or not len(when):
        return 0
    least, _ = tree.live_bins(_BINS)
    live = least[np.minimum(when * _BINS // max(trace.duration, 1), _BINS - 1)]
    at_peak = live >= _HELD * peak
    if not at_peak.any():
        return 0
    rest = int((live - (held - recorder))[at_peak].min())
    return rest if rest >= _TOLD * peak else 0
