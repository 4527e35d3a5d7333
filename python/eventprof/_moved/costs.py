"""Moved to eventprof.recording.costs: for imports and pickles of before."""

import sys

from eventprof.recording import costs

sys.modules[__name__] = costs
