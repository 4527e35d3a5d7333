"""Moved to eventprof.trace.table: for imports and pickles of before."""

import sys

from eventprof.trace import table

sys.modules[__name__] = table
