"""Traces, their tables, and questions about them.

PyPy has tables of its own: it imports only what needs neither NumPy nor the extension.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from .loss import Loss

if TYPE_CHECKING or sys.implementation.name != "pypy":
    from .holders import Peak
    from .kinds import ALLOCATION_FLAGS, CALL_FLAGS, WORDS
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
