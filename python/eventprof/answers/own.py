"""Which functions are own code: neither of the standard library nor of an installed package."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base import areas

#: Where Python and its packages usually lie: a recording may come from another machine.
_INSTALLED = re.compile(r"(^|/)(site|dist)-packages/|/lib/(python|pypy)3\.\d+t?/")
#: File names that stand for code which people type themselves.
_TYPED = re.compile(r"<(stdin|ipython-input|cell|doctest|console|input)")


def find_own(
    rows: Sequence[tuple[str | None, str | None, str | None, int | None, str]],
    patterns: Sequence[str] | None = None,
) -> Any:
    """Find the user's own functions.

    Parameters
    ----------
    rows : sequence of tuples
        One for each function: name, module, file, line and kind.
    patterns : sequence of str, optional
        Globs, as ``include=`` takes them: functions that match are own, all others are not.

    Returns
    -------
    array of bool
        One for each function, and False at the end, for "no function".
    """
    own = np.zeros(len(rows) + 1, dtype=bool)
    folders = tuple(
        folder + "/" for given in areas.folders().values() for folder in given if folder != "/"
    )
    known: dict[tuple[str | None, str | None], bool] = {}
    for at, (name, module, file, _, kind) in enumerate(rows):
        if kind != "python":
            continue
        if patterns is not None:
            own[at] = _matches(patterns, name, module, file)
            continue
        key = module, file
        if key not in known:
            known[key] = _is_own(module, file, folders)
        own[at] = known[key]
    return own


def checked_globs(patterns: tuple[str, ...]) -> tuple[str, ...] | None:
    """Check what `Trace.set_own` was given; None: nothing."""
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise TypeError(f"set_own takes globs as text, not {type(pattern).__name__}")
    return patterns or None


def _is_own(module: str | None, file: str | None, folders: tuple[str, ...]) -> bool:
    if file is None or module == "eventprof" or (module or "").startswith("eventprof."):
        return False
    folder, _, script = file.rpartition("/")
    if module == "__main__" and (script == "eventprof" or _is_launcher(folder, script)):
        return False
    if file.startswith("<"):
        # "<string>" is code that follows -c, or that was made from text, as dataclass does.
        return module == "__main__" and (file == "<string>" or _TYPED.match(file) is not None)
    return not (file.startswith(folders) or _INSTALLED.search(file))


def _is_launcher(folder: str, script: str) -> bool:
    """Whether a script is one that an installer put beside the interpreter, such as pytest."""
    return "." not in script and os.path.exists(os.path.join(folder, "python"))


def _matches(
    patterns: Sequence[str], name: str | None, module: str | None, file: str | None
) -> bool:
    texts = [text for text in (name, module, file) if text is not None]
    if name is not None and module is not None:
        texts.append(f"{module}.{name}")
    return any(fnmatch.fnmatchcase(text, glob) for text in texts for glob in patterns)
