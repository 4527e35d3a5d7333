"""What a recorder yields: a trace, its tables, and what can be asked of them."""

from __future__ import annotations

from .kinds import ALLOCATION_FLAGS, CALL_FLAGS, WORDS
from .loss import Loss
from .trace import Trace, _of_archive

__all__ = ["ALLOCATION_FLAGS", "CALL_FLAGS", "WORDS", "Loss", "Trace", "_of_archive"]
