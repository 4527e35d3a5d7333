"""Moved into eventprof.trace: for imports and pickles of before."""

from eventprof.trace.by_function import find_function
from eventprof.trace.holders import Peak
from eventprof.trace.moments import Instant, Interval, Within

__all__ = ["Instant", "Interval", "Peak", "Within", "find_function"]
