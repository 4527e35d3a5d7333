"""Which functions of a trace some globs match, as those of ``include=`` do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .. import _core
from .._words import did_you_mean
from ..base import areas

if TYPE_CHECKING:
    from ..tables.column import Array
    from ..trace import Trace


def matching(trace: Trace, patterns: Sequence[str]) -> Array:
    """Find the functions that globs match.

    Parameters
    ----------
    trace : Trace
        The trace that has the functions.
    patterns : sequence of str
        As ``include=`` takes them; ``fn-12`` is row 12 of `functions`.

    Returns
    -------
    array of bool
        One item for each row of `functions`.
    """
    areas.tell()
    globs = [text for text in patterns if re.fullmatch("fn-[0-9]+", text) is None]
    found = np.frombuffer(_core.match_functions(trace._core.functions(), tuple(globs)), bool).copy()
    handles = [int(text[3:]) for text in patterns if text not in globs]
    found[[row for row in handles if row < len(found)]] = True
    return found


def no_match(trace: Trace, patterns: Sequence[str]) -> str:
    """Report that no function matches, for the message of an error, and what is similar."""
    known = [name for name in trace.functions["name"] if name is not None]
    hint = did_you_mean(patterns[0], known) if len(patterns) == 1 else ""
    given = " or ".join(map(repr, patterns))
    hint = hint or "; globs as '*name*' match parts of names"
    return f"no function of this recording matches {given}{hint}"
