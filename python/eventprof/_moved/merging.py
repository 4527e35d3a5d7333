"""Moved to eventprof.files.merging: for imports and pickles of before."""

import sys

from eventprof.files import merging

sys.modules[__name__] = merging
