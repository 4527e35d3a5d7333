"""From logs to events, and from events to calls: what the core does in C elsewhere.

Columns are lists of int, which PyPy keeps as arrays of machine words; -1 stands for unknown.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any, NamedTuple

from ..tables.kinds import CALL_FLAGS, KINDS
from . import log as logs
from .log import C_CALL, C_EXCEPTION, CALL, KIND_BITS, KIND_MASK, UNWIND, YIELD

#: A Python call is ended by 2, 3 or 6, a builtin's by 8 or 9.
OPENING = frozenset(kind for kind, *_, pairing, _, _ in KINDS if pairing == "opens")

OPEN_AT_START, OPEN_AT_END, YIELDED, RAISED, END_UNSEEN, RECURSIVE = CALL_FLAGS.values()


class Function(NamedTuple):
    """A function's texts."""

    name: str | None
    module: str | None
    file: str | None
    line: int | None
    kind: str


class Thread:
    """A thread's facts and counts."""

    __slots__ = ("first", "last", "lost", "name", "native_id", "number", "open", "recorded")

    def __init__(self, name: str | None, number: int, native_id: int) -> None:
        self.name = name
        self.number = number
        self.native_id = native_id
        self.first: int | None = None
        self.last: int | None = None
        self.recorded: dict[int, int] = {}
        self.lost: dict[int, int] = {}
        #: Calls open when the window began, outermost first: (kind, function, caller).
        self.open: list[tuple[int, int, int]] = []


class Note(NamedTuple):
    """An event of the interpreter: runtime.Happening, with its time and rows."""

    time: int
    thread: int
    event: str
    function: int
    line: int | None
    details: dict[str, Any]


class Data:
    """What a window recorded: events in order of time, and what they mention."""

    def __init__(self) -> None:
        self.times: list[int] = []
        self.kinds: list[int] = []
        self.threads_of: list[int] = []
        self.functions_of: list[int] = []
        self.callers: list[int] = []
        self.offsets: list[int] = []
        self.caller_lines: list[int] = []
        self.functions: list[Function] = []
        self.threads: list[Thread] = []
        self.notes: list[Note] = []
        self.notes_lost = 0
        self.duration = 0
        self.full: str | None = None
        self.kinds_asked = 0
        self.start = logs.Anchor(0, 0, 0, 0)
        self.frequency_hz = 1e9
        self.filtered = 0
        self.damaged = 0
        self.process = os.getpid()


# ---- From logs -----------------------------------------------------------------------------------


class _Names:
    """The rows of functions."""

    def __init__(self, data: Data) -> None:
        self._rows: dict[int, int] = {}
        self._kept: list[Any] = []  # an id is good only while its object lives
        self._functions = data.functions
        self._modules: dict[str, str] | None = None

    def row(self, what: Any) -> int:
        """Return the row of a code object or builtin."""
        found = self._rows.get(id(what))
        if found is None:
            found = self._rows[id(what)] = len(self._functions)
            self._kept.append(what)
            self._functions.append(self._describe(what))
        return found

    def _describe(self, what: Any) -> Function:
        if isinstance(what, CodeType):
            name = getattr(what, "co_qualname", what.co_name)
            module = self._module(what.co_filename)
            return Function(name, module, what.co_filename, what.co_firstlineno, "python")
        kind = "c"
        name = getattr(what, "__qualname__", None) or getattr(what, "__name__", None)
        if not isinstance(name, str):
            name, kind = type(what).__qualname__, "object"
        owner = getattr(what, "__objclass__", what)
        module = getattr(what, "__module__", None) or getattr(owner, "__module__", None)
        return Function(name, module if isinstance(module, str) else None, None, None, kind)

    def _module(self, file: str) -> str | None:
        if self._modules is None:
            self._modules = {}
            for name, module in list(sys.modules.items()):
                path = getattr(module, "__file__", None)
                if isinstance(path, str):
                    self._modules.setdefault(path, name)
            frozen = {"<frozen importlib._bootstrap>": "importlib._bootstrap",
                      "<frozen importlib._bootstrap_external>": "importlib._bootstrap_external",
                      "<builtin>/frozen importlib._bootstrap_external":
                          "importlib._bootstrap_external"}  # fmt: skip
            self._modules.update(frozen)
        return self._modules.get(file)


def _line(code: Any, offset: int) -> int:
    """Return the line of an instruction; -1: unknown."""
    if not isinstance(code, CodeType):
        return -1
    known = logs.code_of(code)
    if known.lines is None:
        known.lines = list(code.co_lines())
    for begin, end, line in known.lines:
        if begin <= offset < end:
            return -1 if line is None else line
    return -1


def _nanoseconds(start: logs.Anchor, end: logs.Anchor) -> tuple[Callable[[int], int], float]:
    """Return a function from ticks to ns since the start, and the number of ticks a second."""
    ticks, ns = end.ticks - start.ticks, end.monotonic_ns - start.monotonic_ns
    if ticks <= 0 or ns <= 0:
        return lambda ticks_then: 0, 1e9
    return lambda ticks_then: (ticks_then - start.ticks) * ns // ticks, ticks * 1e9 / ns


def decode(capture: logs.Capture, kinds_asked: int) -> Data:
    """Turn logs into events in order of time.

    Parameters
    ----------
    capture : Capture
        What was recorded.
    kinds_asked : int
        The kinds that were asked for, as bits: the others go.

    Returns
    -------
    Data
        Without calls.
    """
    data = Data()
    names = _Names(data)
    data.start, data.kinds_asked = capture.start, kinds_asked
    to_ns, data.frequency_hz = _nanoseconds(capture.start, capture.end)
    data.duration = max(0, to_ns(capture.end.ticks))
    last_ticks = capture.end.ticks
    if capture.full_ticks is not None:
        data.duration = min(data.duration, to_ns(capture.full_ticks))
        data.full = "limit"
    rows: list[tuple[int, int, int, int, int, int, int]] = []
    thread_of_ident: dict[int, int] = {}
    for number, (log, chunks, opened, lost) in enumerate(capture.logs):
        thread = Thread(log.name, number + 1, log.native_id)
        row = len(data.threads)
        data.threads.append(thread)
        thread_of_ident[log.ident] = row
        thread.lost = {kind: count for kind, count in lost.items() if kinds_asked >> kind & 1}
        _decode_thread(
            chunks, opened, log.raised, thread, row, names, rows, to_ns, last_ticks,
            capture.full_ticks, kinds_asked, data,
        )  # fmt: skip
    rows.sort(key=_time_of)  # stable: events of one thread stay in their order
    for time, kind, thread_row, function, caller, offset, line in rows:
        data.times.append(time)
        data.kinds.append(kind)
        data.threads_of.append(thread_row)
        data.functions_of.append(function)
        data.callers.append(caller)
        data.offsets.append(offset)
        data.caller_lines.append(line)
    data.notes_lost = capture.runtime_lost
    for one in capture.runtime:
        if one.ticks > last_ticks:
            continue
        if one.ident not in thread_of_ident:
            thread_of_ident[one.ident] = len(data.threads)
            data.threads.append(Thread(None, len(data.threads) + 1, 0))
        function = -1 if one.code is None else names.row(one.code)
        time = min(max(0, to_ns(one.ticks)), data.duration)
        data.notes.append(
            Note(time, thread_of_ident[one.ident], one.event, function, one.line, one.details)
        )
    data.notes.sort(key=lambda note: note.time)
    return data


def _time_of(row: tuple[int, ...]) -> int:
    return row[0]


def _decode_thread(
    chunks: list[logs.Chunk],
    opened: list[logs.Open],
    raised: bool,
    thread: Thread,
    row: int,
    names: _Names,
    rows: list[tuple[int, int, int, int, int, int, int]],
    to_ns: Callable[[int], int],
    last_ticks: int,
    full_ticks: int | None,
    kinds_asked: int,
    data: Data,
) -> None:
    stack = logs.Stack(list(opened))
    stack.raised = raised
    caller = -1
    for kind, what, level in opened:
        if level == logs.SHOWN and kinds_asked >> kind & 1:
            function = names.row(what)
            thread.open.append((kind, function, caller))
            caller = function
    time = 0
    recorded = thread.recorded
    for chunk in chunks:
        for word, what, place in zip(chunk.words, chunk.objects, chunk.places, strict=True):
            ticks = word >> KIND_BITS
            if ticks > last_ticks:
                return
            # A builtin's caller is what was innermost before it; its place there is the event's.
            kind = stack.step(word & KIND_MASK, what, place)
            if not kind or not kinds_asked >> kind & 1:
                continue
            if full_ticks is not None and ticks >= full_ticks:
                thread.lost[kind] = thread.lost.get(kind, 0) + 1
                continue
            time = min(max(time, to_ns(ticks)), data.duration)  # never back
            by = line = offset = -1
            if kind in OPENING:
                depth = stack.depth - 1
                while depth >= 0 and stack.calls[depth].level != logs.SHOWN:
                    depth -= 1
                if depth >= 0:
                    code = stack.calls[depth].what
                    by = names.row(code)
                    if kind == C_CALL and depth == stack.depth - 1:
                        offset, line = place, _line(code, place)
            if thread.first is None:
                thread.first = time
            thread.last = time
            recorded[kind] = recorded.get(kind, 0) + 1
            rows.append((time, kind, row, names.row(what), by, offset, line))


# ---- Calls ---------------------------------------------------------------------------------------


class Calls:
    """The calls of a trace, one entry of each list a call, in order of start."""

    def __init__(self) -> None:
        self.start: list[int] = []
        self.duration: list[int] = []
        self.self_time: list[int] = []
        self.thread: list[int] = []
        self.function: list[int] = []
        self.kind: list[int] = []
        self.depth: list[int] = []
        self.parent: list[int] = []
        self.caller: list[int] = []
        self.caller_line: list[int] = []
        self.flags: list[int] = []
        #: Of each event: how many calls enclose it; -1: unknown.
        self.event_depth: list[int] = []
        #: Of each event that ends a call: the call; else of the one it opens.
        self.event_call: list[int] = []
        self.unmatched_ends = 0
        self.ends_unseen = 0


def pair(data: Data) -> Calls:
    """Pair the beginnings and ends of calls.

    Parameters
    ----------
    data : Data
        Its events.

    Returns
    -------
    Calls
        An end ends the innermost open call of its function; those above it have ended unseen.
    """
    calls = Calls()
    stacks: list[list[int]] = []

    def open_call(
        stack: list[int], time: int, kind: int, thread: int, function: int, by: int, line: int,
        flags: int,
    ) -> None:  # fmt: skip
        number = len(calls.start)
        if any(calls.function[one] == function for one in stack):
            flags |= RECURSIVE
        calls.start.append(time)
        calls.duration.append(0)
        calls.self_time.append(0)
        calls.thread.append(thread)
        calls.function.append(function)
        calls.kind.append(kind)
        calls.depth.append(len(stack))
        calls.parent.append(stack[-1] if stack else -1)
        calls.caller.append(by)
        calls.caller_line.append(line)
        calls.flags.append(flags)
        stack.append(number)

    def close(stack: list[int], time: int, flags: int) -> int:
        number = stack.pop()
        duration = time - calls.start[number]
        calls.duration[number] = duration
        calls.self_time[number] += duration
        calls.flags[number] |= flags
        if stack:
            calls.self_time[stack[-1]] -= duration
        return number

    for row, thread in enumerate(data.threads):
        stack: list[int] = []
        stacks.append(stack)
        for kind, function, by in thread.open:
            open_call(stack, 0, kind, row, function, by, -1, OPEN_AT_START)
    columns = zip(
        data.times, data.kinds, data.threads_of, data.functions_of, data.callers,
        data.caller_lines, strict=True,
    )  # fmt: skip
    for time, kind, row, function, by, line in columns:
        stack = stacks[row]
        if kind in OPENING:
            calls.event_depth.append(len(stack))
            calls.event_call.append(len(calls.start))
            open_call(stack, time, kind, row, function, by, line, 0)
            continue
        depth = len(stack) - 1
        while depth >= 0 and calls.function[stack[depth]] != function:
            depth -= 1
        if depth < 0:
            calls.unmatched_ends += 1
            calls.event_depth.append(-1)
            calls.event_call.append(-1)
            continue
        while len(stack) > depth + 1:
            calls.ends_unseen += 1
            close(stack, time, END_UNSEEN)
        flags = YIELDED if kind == YIELD else RAISED if kind in (UNWIND, C_EXCEPTION) else 0
        calls.event_depth.append(depth)
        calls.event_call.append(close(stack, time, flags))
    for stack in stacks:
        while stack:
            close(stack, data.duration, OPEN_AT_END)
    return calls


def statistics(data: Data, calls: Calls) -> dict[str, list[Any]]:
    """Sum up calls by function; None if no call of it was recorded from start to end."""
    count = len(data.functions)
    sums: dict[str, list[Any]] = {
        name: [0] * count for name in ("calls", "resumes", "recursive", "total", "self")
    }
    whole: list[list[int]] = [[] for _ in range(count)]
    for call, function in enumerate(calls.function):
        flags, duration = calls.flags[call], calls.duration[call]
        if not flags & OPEN_AT_START:
            sums["calls" if calls.kind[call] in (CALL, C_CALL) else "resumes"][function] += 1
            sums["recursive"][function] += bool(flags & RECURSIVE)
        if not flags & RECURSIVE:
            sums["total"][function] += duration
        sums["self"][function] += calls.self_time[call]
        if not flags & (OPEN_AT_START | OPEN_AT_END | END_UNSEEN):
            whole[function].append(duration)
    for durations in whole:
        durations.sort()
    sums["mean"] = [sum(one) / len(one) if one else None for one in whole]
    sums["min"] = [one[0] if one else None for one in whole]
    sums["max"] = [one[-1] if one else None for one in whole]
    for percent in (50, 95, 99):
        sums[f"p{percent}"] = [_percentile(one, percent) if one else None for one in whole]
    return sums


def _percentile(lengths: list[int], percent: int) -> int:
    """Return the middle of the bin of a percentile, as the C core does (length_bin() in C).

    A bin is a 64th of a power of two wide.
    """
    exact = lengths[(len(lengths) * percent + 99) // 100 - 1]
    bits = max(exact.bit_length() - 7, 0)
    middle = (exact >> bits << bits) + ((1 << bits) - 1) // 2
    return min(max(middle, lengths[0]), lengths[-1])
