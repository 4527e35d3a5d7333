"""Moved to eventprof.trace.questions: for imports and pickles of before."""

import sys

from eventprof.trace import questions

sys.modules[__name__] = questions
