"""Names that PyPy does not have: using one is an error that says why, and what to do."""

from __future__ import annotations

from typing import Any

from .core import missing


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    missing(
        f"eventprof.{name}",
        "it is made by the C core, and PyPy has no hooks for C extensions",
        "use eventprof.record() there, or CPython",
    )
