"""Which functions of a trace some globs match, as those of ``include=`` do."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .._words import did_you_mean

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
        Each is matched against the module, the file, the qualified name, and module and qualified
        name with a dot between; ``fn-12`` is row 12 of `functions`.

    Returns
    -------
    array of bool
        One item for each row of `functions`.
    """
    table = trace.functions
    found = np.zeros(len(table), dtype=bool)
    handles = [int(text[3:]) for text in patterns if re.fullmatch("fn-[0-9]+", text)]
    found[[row for row in handles if row < len(table)]] = True
    rows = zip(table["name"], table["module"], table["file"], strict=True)
    for at, (name, module, file) in enumerate(rows):
        texts = [text for text in (name, module, file) if text is not None]
        if name is not None and module is not None:
            texts.append(f"{module}.{name}")
        found[at] |= any(fnmatch.fnmatchcase(text, glob) for text in texts for glob in patterns)
    return found


def no_match(trace: Trace, patterns: Sequence[str]) -> str:
    """Report that no function matches, for the message of an error, and what is similar."""
    known = [name for name in trace.functions["name"] if name is not None]
    hint = did_you_mean(patterns[0], known) if len(patterns) == 1 else ""
    given = " or ".join(map(repr, patterns))
    hint = hint or "; globs as '*name*' match parts of names"
    return f"no function of this recording matches {given}{hint}"
