"""Moved to eventprof.files.following: for imports and pickles of before."""

import sys

from eventprof.files import following

sys.modules[__name__] = following
