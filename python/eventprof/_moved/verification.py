"""Moved to eventprof.trace.verification: for imports and pickles of before."""

import sys

from eventprof.trace import verification

sys.modules[__name__] = verification
