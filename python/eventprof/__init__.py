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

For pytest, whose plugin is in this package and may be imported after it: PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if sys.implementation.name == "pypy":
    from ._pypy import core as _pypy_core

    _pypy_core.install()  # PyPy has no extension; this module replaces it
try:
    from . import _core
except ImportError as _error:
    from ._optional import other_python

    if _said := other_python(__path__[0]):
        raise ImportError(_said, name=__name__) from _error
    raise
from ._core import (
    Error,
    FormatError,
    StateError,
    ToolInUseError,
    UnsupportedError,
    counter,
    flow,
    label,
    mark,
    span,
)

if TYPE_CHECKING or sys.implementation.name != "pypy":
    from .recording.record import record
    from .recording.recorder import Recorder
else:
    from ._pypy.recorder import Recorder, record

if TYPE_CHECKING:
    from ._words import EventsLostWarning
    from .answers.verification import Fault, Verification
    from .datasets.dataset import Dataset, dataset
    from .datasets.writing import write_dataset
    from .files.following import Follower
    from .files.merging import merge
    from .files.opening import open
    from .files.trimming import trim
    from .plugins.event_profiler import EventProfiler, EventProfilerDebug, WithEventProfiler
    from .plugins.requests import ASGIMiddleware, Request, WSGIMiddleware, request
    from .recording.costs import Overhead, overhead
    from .recording.counting import Counter, count
    from .recording.flight import FlightRecorder, flight_recorder
    from .recording.marks import get_include
    from .tables.table import Table
    from .trace import Loss, Trace

__all__ = [
    "ASGIMiddleware",
    "Counter",
    "Dataset",
    "Error",
    "EventProfiler",
    "EventProfilerDebug",
    "EventsLostWarning",
    "Fault",
    "FlightRecorder",
    "Follower",
    "FormatError",
    "Loss",
    "Overhead",
    "Recorder",
    "Request",
    "StateError",
    "Table",
    "ToolInUseError",
    "Trace",
    "UnsupportedError",
    "Verification",
    "WSGIMiddleware",
    "WithEventProfiler",
    "count",
    "counter",
    "dataset",
    "flight_recorder",
    "flow",
    "get_include",
    "label",
    "mark",
    "merge",
    "open",
    "overhead",
    "record",
    "request",
    "span",
    "trim",
    "write_dataset",
]

__version__ = _core.VERSION

# The package's folder as code objects have it; code of files in it is never recorded.
_core.set_own_directory(
    os.path.dirname(os.path.dirname(Recorder.__new__.__code__.co_filename)) + os.sep
)

_LAZY = {
    "ASGIMiddleware": "plugins.requests",
    "Counter": "recording.counting",
    "Dataset": "datasets.dataset",
    "dataset": "datasets.dataset",
    "write_dataset": "datasets.writing",
    "EventProfiler": "plugins.event_profiler",
    "EventsLostWarning": "_words",
    "EventProfilerDebug": "plugins.event_profiler",
    "Fault": "answers.verification",
    "WSGIMiddleware": "plugins.requests",
    "WithEventProfiler": "plugins.event_profiler",
    "FlightRecorder": "recording.flight",
    "flight_recorder": "recording.flight",
    "Follower": "files.following",
    "Loss": "tables.loss",
    "Overhead": "recording.costs",
    "Request": "plugins.requests",
    "Table": "tables.table",
    "Trace": "trace",
    "Verification": "answers.verification",
    "count": "recording.counting",
    "get_include": "recording.marks",
    "load_ipython_extension": "plugins.ipython",
    "merge": "files.merging",
    "open": "files.opening",
    "overhead": "recording.costs",
    "request": "plugins.requests",
    "trim": "files.trimming",
}
if sys.implementation.name == "pypy":
    _requests = {name: module for name, module in _LAZY.items() if module == "plugins.requests"}
    _LAZY |= dict.fromkeys(_LAZY, "_pypy.absent") | {
        "EventsLostWarning": "_words",
        "Loss": "_pypy.trace",
        "Table": "_pypy.tables",
        "Trace": "_pypy.trace",
        "open": "_pypy.reading",
        "stats_snapshot": "_pypy.runtime",
        **_requests,  # services run there without a change
    }
    __all__[:] = [name for name in __all__ if _LAZY.get(name) != "_pypy.absent"]
    __all__ += ["stats_snapshot"]

#: What people write who know other tools, and what there is.
_INSTEAD = {
    "load": "eventprof.open(path)",
    "read": "eventprof.open(path)",
    "start": "rec = eventprof.record(), then rec.start()",
    "stop": "rec.stop(), of what eventprof.record() returned",
    "run": "with eventprof.record() as rec: ..., or 'eventprof run' in a shell",
    "profile": "@eventprof.record, or with eventprof.record() as rec: ...",
    "Profile": "eventprof.record()",
    "Profiler": "eventprof.record()",
    "Tracker": "eventprof.record()",
    "VizTracer": "eventprof.record()",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        value = getattr(import_module(f".{_LAZY[name]}", __name__), name)
        globals()[name] = value
        return value
    what = f": write {_INSTEAD[name]}" if name in _INSTEAD else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{what}")


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__", "__doc__", "__file__", "__path__", "__name__"})
