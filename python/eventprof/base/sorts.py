"""The sorts of events whose cost `eventprof.overhead` measures."""

from __future__ import annotations

#: What is measured: words of the ``event`` column, and the events for which each stands.
SORTS = {
    "call": "call and return, unwind: of Python functions",
    "c_call": "c_call and c_return, c_exception",
    "resume": "resume, throw and yield: of generators and coroutines",
    "malloc": "malloc, calloc and free",
    "realloc": "realloc, realloc_free and realloc_failed",
}
