"""Traces: `Trace` asks the rooms of tables, answers, pages and files; and what it answers with."""

from __future__ import annotations

from ..answers.holders import Peak
from ..answers.moments import Instant, Interval, Within
from ..tables.kinds import ALLOCATION_FLAGS, CALL_FLAGS, WORDS
from ..tables.loss import Loss
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
