"""How much of a thing a test does: an amount for each day, and all of it with ``./dev test --long``."""

from __future__ import annotations

import os

LONG = "EVENTPROF_TEST_LONG" in os.environ


def amount(usual, long):
    return long if LONG else usual
