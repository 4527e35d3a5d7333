"""What is recorded of asyncio's tasks: their steps, and the callbacks of their loops."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .column import Array
from .event_rows import event_words, rows_of_kind, values_of
from .kinds import CALL_FLAGS, NUMBERS

if TYPE_CHECKING:
    from ..trace.recorded import Recorded

# As ep_task_what in types.h.
_STEP, _READY, _AWAITED, _CALLBACK, _RUN, _TIMER = range(6)
_WHAT_BITS = 4
#: The event of a step has the time of the call that it is about. So many calls with that time are
#: looked at, as others may have begun in the same ns.
_TRIES = 4


class Event(NamedTuple):
    """An event of kind task, without the times and the tasks that belong to the next one.

    Attributes
    ----------
    time, thread, call : int
        When, on which thread, and within which row of calls; call -1: outside of all.
    caller, line : int
        Where the task that is made ready awaited: a row of functions, and the line; -1: unknown.
    due : int
        Of a callback that waits for a time: that time; -1: of another.
    awaited : int
        Of a task that is made ready: the number of the task that it awaited; -1: none.
    """

    time: int
    thread: int
    call: int
    caller: int
    line: int
    due: int
    awaited: int


class Step(NamedTuple):
    """A step of a task: a slice of its coroutine. `call` is its row of calls; -1: left out."""

    task: int
    call: int
    thread: int
    start: int
    end: int
    suspends: bool


class Run(NamedTuple):
    """A callback that a loop runs.

    Attributes
    ----------
    call, thread, start, end : int
        The call of ``Handle._run``.
    callback : int
        An index of `TaskLog.callbacks`; -1: it was made before the window, or steps a task.
    again : bool
        Whether that callback was run before: it waits for a file.
    """

    call: int
    thread: int
    start: int
    end: int
    callback: int
    again: bool


class Task:
    """A task: what became of it, in order of time.

    Its address is free again once it has ended, so a task is an address from the first event on, or
    the first one after the end of an older task.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        #: By step, of the time before it: the event that made the task ready; None: unknown.
        self.ready: list[Event | None] = []
        #: After the last step.
        self.next_ready: Event | None = None
        self.ended = False

    def step(self, step: Step) -> None:
        """Add a step."""
        self.steps.append(step)
        self.ready.append(self.next_ready)
        self.next_ready = None
        self.ended = not step.suspends


class Calls:
    """Columns of calls, and which call is the first in which other call."""

    def __init__(self, trace: Recorded) -> None:
        load = trace._core.calls
        self.start, self.thread = load("start"), load("thread")
        self.end = self.start + load("duration")
        self.function, self.parent = load("function"), load("parent")
        self.flags, self.kind = load("flags"), load("kind")
        self.line = load("caller_line")

    def begun_at(self, times: Array, threads: Array, parents: Array) -> Array:
        """Return the row of the call that began at a time or right after it, or -1.

        `parents` are the rows that these calls lie in.
        """
        found = np.full(len(times), -1, np.int64)
        for thread in np.unique(threads).tolist():
            rows = np.flatnonzero(self.thread == thread)
            chosen = np.flatnonzero(threads == thread)
            first = np.searchsorted(self.start[rows], times[chosen], side="left")
            for more in range(_TRIES):
                open_ = found[chosen] < 0
                if not len(rows):
                    break
                row = rows[np.minimum(first[open_] + more, len(rows) - 1)]
                right = (first[open_] + more < len(rows)) & (
                    self.parent[row] == parents[chosen[open_]]
                )
                right &= self.kind[row] != NUMBERS["C_CALL"]
                found[chosen[open_][right]] = row[right]
        return found


class TaskLog:
    """All tasks of a recording, with the callbacks that may have made them ready.

    Attributes
    ----------
    calls : Calls
        The calls of the trace.
    tasks : list of Task
        In order of their first event; the index is the number of the task.
    callbacks : list of Event
        How they were made.
    runs : list of Run
        Callbacks that were run, by time.
    step_of, run_of : dict
        The step, and the run, of a row of calls.
    """

    def __init__(self, trace: Recorded) -> None:
        rows = rows_of_kind(trace, "TASK")
        self.tasks: list[Task] = []
        self.callbacks: list[Event] = []
        self.runs: list[Run] = []
        self.step_of: dict[int, Step] = {}
        self.run_of: dict[int, Run] = {}
        if len(rows):
            self.calls = Calls(trace)
            self._read(trace, rows)

    def _read(self, trace: Recorded, rows: Array) -> None:
        load = trace._core.events
        names = ("time", "thread", "call", "caller", "caller_line")
        columns = [values_of(load, name, rows) for name in names]
        time, thread, inside = columns[:3]
        words = event_words(trace, rows)
        what = (words & ((1 << _WHAT_BITS) - 1)).astype(np.int8)
        value = (words >> _WHAT_BITS).astype(np.int64)
        call = np.full(len(rows), -1, np.int64)
        begins = np.flatnonzero((what == _STEP) | (what == _RUN))
        call[begins] = self.calls.begun_at(time[begins], thread[begins], inside[begins])
        process = np.zeros(len(trace.threads), np.int64)
        if "process" in trace.threads.columns:
            process = np.asarray(trace.threads["process"], np.int64)
        self._current: dict[tuple[int, int], int] = {}
        self._made: dict[tuple[int, int], int] = {}
        self._was_run: set[int] = set()
        before: dict[int, tuple[int, int]] = defaultdict(lambda: (-1, -1))
        arrays: list[Array] = [what, value, call, process[thread], *columns]
        every = zip(*(each.tolist() for each in arrays), strict=True)
        for sort, number, begun, of, when, on, within, caller, line in every:
            event = Event(when, on, within, caller, line, *before.pop(on, (-1, -1)))
            key = (of, number)
            if sort == _STEP:
                self._step(key, begun, event)
            elif sort == _READY:
                self.tasks[self._task(key)].next_ready = event
            elif sort == _AWAITED:
                before[event.thread] = (-1, self._current.get(key, -1))
            elif sort == _CALLBACK:
                self._made[key] = len(self.callbacks)
                self.callbacks.append(event)
            elif sort == _RUN:
                self._run(key, begun, event)
            elif sort == _TIMER:
                before[event.thread] = (event.time + number, -1)

    def _task(self, key: tuple[int, int], *, begins: bool = False) -> int:
        """Return the number of the task at an address; begins: its first step comes."""
        number = self._current.get(key)
        if number is None or self.tasks[number].ended or (begins and self.tasks[number].steps):
            number = self._current[key] = len(self.tasks)
            self.tasks.append(Task())
        return number

    def _step(self, key: tuple[int, int], row: int, event: Event) -> None:
        calls = self.calls
        if row < 0:  # its call is filtered out
            number = self._task(key)
            self.tasks[number].step(
                Step(number, -1, event.thread, event.time, event.time, suspends=True)
            )
            return
        number = self._task(key, begins=calls.kind[row] == NUMBERS["CALL"])
        goes_on = CALL_FLAGS["yielded"] | CALL_FLAGS["open_at_end"] | CALL_FLAGS["end_unseen"]
        step = Step(
            number, row, event.thread, int(calls.start[row]), int(calls.end[row]),
            suspends=bool(calls.flags[row] & goes_on),
        )  # fmt: skip
        self.tasks[number].step(step)
        self.step_of[row] = step

    def _run(self, key: tuple[int, int], row: int, event: Event) -> None:
        if row < 0:
            return
        calls = self.calls
        callback = self._made.get(key, -1)
        run = Run(
            row, event.thread, int(calls.start[row]), int(calls.end[row]), callback,
            callback in self._was_run,
        )  # fmt: skip
        self._was_run.add(callback)
        self.runs.append(run)
        self.run_of[row] = run
