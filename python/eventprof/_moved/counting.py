"""Moved to eventprof.recording.counting: for imports and pickles of before."""

import sys

from eventprof.recording import counting

sys.modules[__name__] = counting
