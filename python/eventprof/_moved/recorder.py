"""Moved into eventprof.recording: for imports and pickles of before."""

from eventprof.recording.arguments import ALL_DOMAINS, BACKENDS, CLOCKS, DOMAINS, ON_FULL, THREADS
from eventprof.recording.events import EVENTS, INSIDE
from eventprof.recording.options import Options, describe_run
from eventprof.recording.quantities import parse_duration, parse_size
from eventprof.recording.record import record
from eventprof.recording.recorder import Recorder

__all__ = [
    "ALL_DOMAINS",
    "BACKENDS",
    "CLOCKS",
    "DOMAINS",
    "EVENTS",
    "INSIDE",
    "ON_FULL",
    "THREADS",
    "Options",
    "Recorder",
    "describe_run",
    "parse_duration",
    "parse_size",
    "record",
]
