"""Traces, their tables, and questions about them."""

from __future__ import annotations

from .holders import Peak
from .kinds import ALLOCATION_FLAGS, CALL_FLAGS, WORDS
from .loss import Loss
from .moments import Instant, Interval, Within
from .trace import Trace, _of_archive

__all__ = [
    "ALLOCATION_FLAGS",
    "CALL_FLAGS",
    "WORDS",
    "Instant",
    "Interval",
    "Loss",
    "Peak",
    "Trace",
    "Within",
    "_of_archive",
]
