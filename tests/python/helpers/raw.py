"""Functions that use eventprof._core directly: the oracles must not depend on the package above it."""

from __future__ import annotations

import _thread
import ctypes
import gc
import sys
import threading
from collections import Counter
from typing import NamedTuple

# The extension loads it with its first column: now, so that no window sees that.
import numpy

from eventprof import _core

KIND = {identifier: number for number, identifier, *_ in _core.kind_table()}
IDENTIFIER = {number: identifier for identifier, number in KIND.items()}
WORD = {row[0]: row[2] for row in _core.kind_table()}
DOMAIN = {row[0]: row[5] for row in _core.kind_table()}


def bits(*identifiers: str) -> int:
    return sum(1 << KIND[identifier] for identifier in identifiers)


PYTHON = bits("CALL", "RETURN", "YIELD", "RESUME", "THROW", "UNWIND")
C = bits("C_CALL", "C_RETURN", "C_EXCEPTION")
CALLS = PYTHON | C
OPERATIONS = ("MALLOC", "CALLOC", "REALLOC", "REALLOC_FREE", "FREE", "REALLOC_FAILED")
MEMORY = sum(
    bits(f"{operation}_{domain}") for operation in OPERATIONS for domain in ("RAW", "MEM", "OBJ")
)
ALL = CALLS | MEMORY

OVERWRITE, STOP, GROW = 0, 1, 2
OPENING = {"call", "resume", "throw", "c_call"}
CLOSING = {"return", "yield", "unwind", "c_return", "c_exception"}

#: Whether conftest.py checks every trace. A test whose trace is wrong by its nature says no.
VERIFIES = True

HAS_MONITORING = sys.version_info >= (3, 12)
HAS_GIL = getattr(sys, "_is_gil_enabled", lambda: True)()
BACKENDS = [*(["monitoring"] if HAS_MONITORING else []), *(["profile"] if HAS_GIL else [])]

#: Releases that crash when the collector runs beside a hook: ours puts a builtin into gc.callbacks as well.
MENDS_GENERATORS = sys.version_info < (3, 11, 3)

# Bytes that the block of a bytearray has beyond its own: from 3.15 on it is a bytes object.
BYTEARRAY_MORE = 33 if sys.version_info >= (3, 15) else 1


def _close_unwinds() -> bool:
    """Whether close() of a generator that nothing in it catches goes through it.

    3.13 and later just drop such a generator; from 3.13's later releases on only where nobody
    monitors PY_UNWIND. Then closing makes an exception, a traceback and a frame object, too.
    """
    if not HAS_MONITORING:
        return True
    unwound = []
    monitoring = sys.monitoring
    monitoring.use_tool_id(3, "tests")
    monitoring.register_callback(3, monitoring.events.PY_UNWIND, lambda *_: unwound.append(1))
    monitoring.set_events(3, monitoring.events.PY_UNWIND)
    generator = (i for i in range(3))
    next(generator)
    generator.close()
    monitoring.set_events(3, 0)
    monitoring.register_callback(3, monitoring.events.PY_UNWIND, None)
    monitoring.free_tool_id(3)
    return bool(unwound)


CLOSE_UNWINDS = _close_unwinds()


def gc_callbacks():
    """Without the builtin that mends the frames of generators."""
    return [
        each for each in gc.callbacks if getattr(each, "__name__", "") != "mend_generator_stacks"
    ]


def recorder(
    kinds=CALLS, *, limit=64 << 20, on_full=GROW, backend="auto", clock="auto", current_thread=False
):
    return _core.Recorder(
        kinds=kinds,
        limit_bytes=limit,
        on_full=on_full,
        backend=backend,
        clock=clock,
        current_thread=current_thread,
    )


class Row(NamedTuple):
    time: int
    word: str
    name: str | None
    module: str | None
    file: str | None
    line: int  # of the function; of the instruction for allocator events
    caller: str | None
    caller_line: int
    depth: int
    call: int
    thread: int
    address: int
    size: int
    domain: str | None
    sort: str | None  # of the function: python, c, type, object


COLUMNS = (
    "time",
    "kind",
    "function",
    "line",
    "caller",
    "caller_line",
    "depth",
    "call",
    "thread",
    "address",
    "size",
)


def capture(rec):
    return rec._capture()


def rows(trace, wanted=None) -> list[Row]:
    """Everything, as plain Python values; or the events of functions for which `wanted(*function)` is true, and
    those of no function."""
    if not hasattr(trace, "events"):
        trace = trace._capture()
    functions = trace.functions()
    mask = slice(None)
    if wanted is not None:
        mask = numpy.array([*(wanted(*each) for each in functions), True])[trace.events("function")]
    functions.append((None, None, None, None, None))  # what -1 says
    out = []
    for time, kind, f, line, caller, caller_line, depth, call, thread, address, size in zip(
        *(trace.events(column)[mask].tolist() for column in COLUMNS), strict=True
    ):
        name, module, file, _, sort = functions[f]
        out.append(
            Row(
                time,
                WORD[kind],
                name,
                module,
                file,
                line,
                functions[caller][0],
                caller_line,
                depth,
                call,
                thread,
                address,
                size,
                DOMAIN[kind],
                sort,
            )
        )
    return out


def record(work, *args, **options) -> list[Row]:
    """The rows of one call of `work`."""
    rec = recorder(**options)
    with rec:
        work(*args)
    return rows(rec)


def lost(trace) -> Counter:
    """Lost events by identifier, over all threads."""
    total: Counter = Counter()
    for *_, counts in trace.threads():
        for kind, count in counts.items():
            total[IDENTIFIER[kind]] += count
    return total


def recorded(trace) -> Counter:
    total: Counter = Counter()
    for *_, counts, _lost in trace.threads():
        for kind, count in counts.items():
            total[IDENTIFIER[kind]] += count
    return total


# ---- What a recorder must leave as it found it ----------------------------------------------------------


class Allocator(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("ctx", "malloc", "calloc", "realloc", "free")]


def allocators() -> list[tuple]:
    """The allocators of the domains raw, mem and obj."""
    out = []
    for domain in range(3):
        allocator = Allocator()
        ctypes.pythonapi.PyMem_GetAllocator(domain, ctypes.byref(allocator))
        out.append(tuple(getattr(allocator, name) for name, _ in Allocator._fields_))
    return out


def starters() -> list:
    """The functions that start threads, wherever they are kept."""
    names = (
        "start_new_thread",
        "start_new",
        "start_joinable_thread",
        "_start_new_thread",
        "_start_joinable_thread",
    )
    return [
        (module.__name__, name, id(getattr(module, name)))
        for module in (_thread, threading)
        for name in names
        if hasattr(module, name)
    ]


def tools() -> list:
    """Who holds which id of sys.monitoring, with which events and how many callbacks."""
    if not HAS_MONITORING:
        return []
    out = []
    for tool in range(6):
        name = sys.monitoring.get_tool(tool)
        out.append((name, name and sys.monitoring.get_events(tool)))
    return out


def _function(name: str, result, *arguments):
    function = getattr(ctypes.pythonapi, name)
    function.restype, function.argtypes = result, arguments
    return function


interpreter = _function("PyInterpreterState_Get", ctypes.c_void_p)
_get_evaluator = _function("_PyInterpreterState_GetEvalFrameFunc", ctypes.c_void_p, ctypes.c_void_p)
set_evaluator = _function(
    "_PyInterpreterState_SetEvalFrameFunc", None, ctypes.c_void_p, ctypes.c_void_p
)
DEFAULT_EVALUATOR = ctypes.cast(ctypes.pythonapi._PyEval_EvalFrameDefault, ctypes.c_void_p).value


def evaluator() -> int:
    """What runs frames (PEP 523)."""
    return _get_evaluator(interpreter())


def hooks() -> dict:
    """Everything that a recorder changes in the interpreter."""
    return {
        "evaluator": evaluator(),
        "profile": sys.getprofile(),
        "trace": sys.gettrace(),
        "tools": tools(),
        "allocators": allocators(),
        "starters": starters(),
        "threading profile": threading.getprofile(),
    }
