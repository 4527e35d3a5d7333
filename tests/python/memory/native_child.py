"""What the tests of test_native.py do in a process that has the shim."""

from __future__ import annotations

import ctypes
import json  # noqa: F401 - the code that is run here needs it
import sys

# With the GIL held, so that what they allocate has a place in Python code.
libc = ctypes.PyDLL(None)
#: The same, without.
free_libc = ctypes.CDLL(None)
for _each in (libc, free_libc):
    for _name in ("malloc", "calloc", "realloc", "reallocarray", "aligned_alloc", "memalign"):
        getattr(_each, _name).restype = ctypes.c_void_p
    for _name in ("mmap", "mremap", "strdup"):
        getattr(_each, _name).restype = ctypes.c_void_p
    _each.free.argtypes = [ctypes.c_void_p]
size_t, pointer = ctypes.c_size_t, ctypes.c_void_p
SIZE, PAGE = 12347, 4096


def recorder(**options):
    import eventprof

    options = {"calls": False, "c_calls": False, "memory": False, "native": True, **options}
    return eventprof.record(**options)


def rows(trace):
    """(event, size) of events of the domain, in order."""
    events = trace.events
    libc_events = events[events["domain"] == "libc"]
    return [
        [word, size]
        for word, size in zip(libc_events["event"], libc_events["size"].tolist(), strict=True)
    ]


def large(trace):
    return [row for row in rows(trace) if row[1] is not None and row[1] >= SIZE]


if __name__ == "__main__":
    exec(compile(sys.stdin.read(), "<child>", "exec"), globals())
