"""What the counted runs of one test say together: whether they agree with each other and the file.

Counts of calls are exact: if two runs differ in calls, the test drifts. Counts of memory are not.
Now and then a table that lives longer than the run becomes full during it, and a larger one is
allocated: the dict of interned strings, that of a type's subclasses, or a cache of the package. The
old table was allocated before the run, so the new one counts as retained. That seldom happens twice
in a row, so further runs show whether a difference is such a growth or a change of the test.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .counts import Counts
from .snapshot import differing

#: The most runs of one test that are counted.
MOST_RUNS = 4
CALLS = ("calls", "c_calls")


class Verdict(NamedTuple):
    """What the runs say.

    Attributes
    ----------
    state : str
        ``equal`` to the known counts, ``changed``, ``steady`` (there was nothing to compare with),
        ``drifts``; empty: one more run is needed.
    counts : Counts
        The counts of the run that decided.
    other : Counts
        The run that it differs from, if the state is ``drifts``.
    """

    state: str
    counts: Counts
    other: Counts


def verdict(
    counted: Sequence[Counts],
    known: Mapping[str, Any] | None,
    tolerances: tuple[float, float],
    repeats: bool,
) -> Verdict:
    """Report what the runs of a test say.

    Parameters
    ----------
    counted : sequence of Counts
        The runs until now, one at least.
    known : mapping, optional
        The committed counts, if there are some to compare with.
    tolerances : tuple of float
        Of calls and of bytes, in percent.
    repeats : bool
        Whether two runs must agree where nothing is known.

    Returns
    -------
    Verdict
        The verdict; its state is never empty after MOST_RUNS runs.
    """
    last = counted[-1]
    pairs = [
        (one, other, differing(one.sums, other.sums, *tolerances))
        for one, other in itertools.combinations(counted, 2)
    ]
    for one, other, kinds in pairs:
        if any(kind in CALLS for kind in kinds):
            return Verdict("drifts", one, other)
    is_last = len(counted) >= MOST_RUNS
    if known is None:
        agree = next((other for _, other, kinds in reversed(pairs) if not kinds), None)
        if agree is not None or not repeats:
            return Verdict("steady", agree or last, last)
        return Verdict("drifts" if is_last else "", counted[0], last)
    kinds = []
    for each in counted:
        kinds = differing(known, each.sums, *tolerances)
        if not kinds:
            return Verdict("equal", each, last)
    if len(counted) > 1 and any(kind in CALLS for kind in kinds):
        return Verdict("changed", last, last)
    if not is_last:
        return Verdict("", last, last)
    if pairs[-1][2]:  # the last two runs do not agree
        return Verdict("drifts", counted[-2], last)
    return Verdict("changed", last, last)
