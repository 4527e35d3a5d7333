"""Moved to eventprof.show.report: for imports and pickles of before."""

import sys

from eventprof.show import report

sys.modules[__name__] = report
