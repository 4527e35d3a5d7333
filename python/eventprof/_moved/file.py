"""Moved to eventprof.files.opening: for imports and pickles of before."""

import sys

from eventprof.files import opening

sys.modules[__name__] = opening
