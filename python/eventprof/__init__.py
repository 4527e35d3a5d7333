"""An event-timeline recorder: every call, return, allocation and free, in order.

>>> import eventprof
>>> with eventprof.record(memory=False) as rec:
...     sorted("text")
['e', 't', 't', 'x']
>>> rec.trace.events[["event", "name"]]
events: 2 rows, 2 columns
   event     name
0  c_call    sorted
1  c_return  sorted
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from . import _core
from ._core import Error, FormatError, StateError, ToolInUseError, UnsupportedError
from .recorder import Recorder, record

if TYPE_CHECKING:
    from .event_profiler import EventProfiler, EventProfilerDebug, WithEventProfiler
    from .file import open
    from .following import Follower
    from .merging import merge
    from .tables import Table
    from .trace import Loss, Trace
    from .verification import Finding, Verification

__all__ = [
    "Error",
    "EventProfiler",
    "EventProfilerDebug",
    "Finding",
    "Follower",
    "FormatError",
    "Loss",
    "Recorder",
    "StateError",
    "Table",
    "ToolInUseError",
    "Trace",
    "UnsupportedError",
    "Verification",
    "WithEventProfiler",
    "merge",
    "open",
    "record",
]

__version__ = _core.VERSION

# As code objects spell it; code below it is never recorded.
_core.set_own_directory(os.path.dirname(record.__code__.co_filename) + os.sep)

_LAZY = {
    "EventProfiler": "event_profiler",
    "EventProfilerDebug": "event_profiler",
    "Finding": "verification",
    "WithEventProfiler": "event_profiler",
    "Follower": "following",
    "Loss": "trace",
    "Table": "tables",
    "Trace": "trace",
    "Verification": "verification",
    "merge": "merging",
    "open": "file",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        value = getattr(import_module(f".{_LAZY[name]}", __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_LAZY))
