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
import sys
from typing import TYPE_CHECKING, Any

if sys.implementation.name == "pypy":
    from ._pypy import core as _pypy_core

    _pypy_core.install()  # there is no extension, and this is in its place
from . import _core
from ._core import (
    Error,
    FormatError,
    StateError,
    ToolInUseError,
    UnsupportedError,
    counter,
    flow,
    mark,
    span,
)

if TYPE_CHECKING or sys.implementation.name != "pypy":
    from .recorder import Recorder, record
else:
    from ._pypy.recorder import Recorder, record

if TYPE_CHECKING:
    from ._words import EventsLostWarning
    from .costs import Overhead, overhead
    from .counting import Counter, count
    from .event_profiler import EventProfiler, EventProfilerDebug, WithEventProfiler
    from .file import open
    from .following import Follower
    from .marks import get_include
    from .merging import merge
    from .tables import Table
    from .trace import Loss, Trace
    from .verification import Finding, Verification

__all__ = [
    "Counter",
    "Error",
    "EventProfiler",
    "EventProfilerDebug",
    "EventsLostWarning",
    "Finding",
    "Follower",
    "FormatError",
    "Loss",
    "Overhead",
    "Recorder",
    "StateError",
    "Table",
    "ToolInUseError",
    "Trace",
    "UnsupportedError",
    "Verification",
    "WithEventProfiler",
    "count",
    "counter",
    "flow",
    "get_include",
    "mark",
    "merge",
    "open",
    "overhead",
    "record",
    "span",
]

__version__ = _core.VERSION

# As code objects spell it; code below it is never recorded.
_core.set_own_directory(os.path.dirname(record.__code__.co_filename) + os.sep)

_LAZY = {
    "Counter": "counting",
    "EventProfiler": "event_profiler",
    "EventsLostWarning": "_words",
    "EventProfilerDebug": "event_profiler",
    "Finding": "verification",
    "WithEventProfiler": "event_profiler",
    "Follower": "following",
    "Loss": "trace",
    "Overhead": "costs",
    "Table": "tables",
    "Trace": "trace",
    "Verification": "verification",
    "count": "counting",
    "get_include": "marks",
    "merge": "merging",
    "open": "file",
    "overhead": "costs",
}
if sys.implementation.name == "pypy":
    _LAZY |= dict.fromkeys(_LAZY, "_pypy.absent") | {
        "EventsLostWarning": "_words",
        "Loss": "_pypy.trace",
        "Table": "_pypy.tables",
        "Trace": "_pypy.trace",
        "open": "_pypy.reading",
        "stats_snapshot": "_pypy.runtime",
    }
    __all__[:] = [name for name in __all__ if _LAZY.get(name) != "_pypy.absent"]
    __all__ += ["stats_snapshot"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        value = getattr(import_module(f".{_LAZY[name]}", __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__", "__doc__", "__file__", "__path__", "__name__"})
