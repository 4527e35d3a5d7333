"""How much of a thing a test does: an amount for each day, and all of it with ``./dev test --long``."""

from __future__ import annotations

import os

LONG = "EVENTPROF_TEST_LONG" in os.environ


def amount(usual, long):
    return long if LONG else usual


def pairs(first, second, usual=1):
    """Return pairs for `parametrize`: all of them with ``--long``.

    Else each of `first` with `usual` of `second`, with others each time, so that all come.
    """
    second = list(second)
    count = amount(usual, len(second))
    return [
        (one, second[(place * count + step) % len(second)])
        for place, one in enumerate(first)
        for step in range(count)
    ]
