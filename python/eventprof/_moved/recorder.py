"""Moved to eventprof.recording.recorder: for imports and pickles of before."""

import sys

from eventprof.recording import recorder

sys.modules[__name__] = recorder
