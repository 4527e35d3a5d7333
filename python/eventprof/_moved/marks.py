"""Moved to eventprof.recording.marks: for imports and pickles of before."""

import sys

from eventprof.recording import marks

sys.modules[__name__] = marks
