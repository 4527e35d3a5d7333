"""Moved to eventprof.recording.event_profiler: for imports and pickles of before."""

import sys

from eventprof.recording import event_profiler

sys.modules[__name__] = event_profiler
