"""Whose code functions are: names/areas.h of the core decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import _core
from ..base import areas

#: Name, module, file, line and kind of a function.
Row = tuple[str | None, str | None, str | None, int | None, str]


def find_areas(rows: Sequence[Row], patterns: Sequence[str] | None = None) -> Any:
    """Find whose code functions are.

    Parameters
    ----------
    rows : sequence of tuples
        One for each function: name, module, file, line and kind.
    patterns : sequence of str, optional
        Globs, as ``include=`` takes them: Python functions that match are own, no others are.

    Returns
    -------
    array of uint8
        One for each function: an index of ``_core.AREAS``.
    """
    areas.tell()
    return np.frombuffer(_core.function_areas(list(rows), tuple(patterns or ())), np.uint8)


def find_own(rows: Sequence[Row], patterns: Sequence[str] | None = None) -> Any:
    """Find the user's own functions.

    Parameters
    ----------
    rows, patterns
        As `find_areas` takes them.

    Returns
    -------
    array of bool
        One for each function, and False at the end, for "no function".
    """
    return np.append(find_areas(rows, patterns) == _core.AREAS.index("own"), False)


def checked_globs(patterns: tuple[str, ...]) -> tuple[str, ...] | None:
    """Check what `Trace.set_own` was given; None: nothing."""
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise TypeError(f"set_own takes globs as text, not {type(pattern).__name__}")
    return patterns or None
