"""Log files: what `record(output=...)` writes while the program runs."""

from __future__ import annotations

import json
import os
from typing import Any

from . import _core
from .trace import Trace

#: The first bytes of a log file.
MAGIC = b"EVPLOG\x1a\n"


def open_log(descriptor: int, path: str) -> Trace:
    """Make a trace of a log file.

    Parameters
    ----------
    descriptor : int
        Of the file; given up.
    path : str
        For messages.

    Returns
    -------
    Trace
        Reads the events when they are first asked for.

    Raises
    ------
    FormatError
        It is not a log file, or its header is damaged.
    """
    core, encoded, pid = _core.open_log(descriptor, os.fsencode(path))
    metadata = _decode_metadata(encoded)
    options = metadata.get("options")
    options = options if isinstance(options, dict) else {}
    core.filter(_words(options.get("include")), _words(options.get("exclude")))
    facts = core.file_facts()
    return Trace(
        core,
        {
            "clock": facts["clock"],
            "backend": facts["calls_from"] or None,
            "displaced": tuple(facts["displaced"].split()),
            "pid": pid,
            **metadata,
        },
        lambda: {"path": path, **core.file_facts()},
    )


def _words(value: object) -> tuple[str, ...]:
    words = value if isinstance(value, tuple) else ()
    return tuple(word for word in words if isinstance(word, str))


def _decode_metadata(encoded: bytes) -> dict[str, Any]:
    try:
        metadata = json.loads(encoded)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(metadata, dict):
        return {}
    # As the recorder's own trace has them.
    return {key: _as_recorded(value) for key, value in metadata.items()}


def _as_recorded(value: object) -> object:
    if isinstance(value, dict):
        return {key: _as_recorded(item) for key, item in value.items()}
    return tuple(value) if isinstance(value, list) else value
