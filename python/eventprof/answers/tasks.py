"""What asyncio's tasks awaited, who made them ready, and what ran before them on their loop."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..tables.column import Column, Words, encode
from ..tables.event_rows import name_column, number
from ..tables.kinds import CALL_FLAGS, NUMBERS
from ..tables.table import Table
from ..tables.tasks import Event, Run, Step, TaskLog
from .own import find_own

if TYPE_CHECKING:
    from ..trace.recorded import Recorded

#: What a task awaits.
KINDS = ("start", "sleep", "socket", "lock", "queue", "task", "executor", "process", "other")
#: By the module of asyncio whose coroutine awaits; None: what made the task ready decides.
_BY_MODULE = {
    "asyncio.locks": "lock", "asyncio.queues": "queue", "asyncio.taskgroups": "task",
    "asyncio.tasks": "task", "asyncio.streams": "socket", "asyncio.selector_events": "socket",
    "asyncio.sslproto": "socket", "asyncio.threads": "executor", "asyncio.subprocess": "process",
    "asyncio.base_subprocess": "process", "asyncio.unix_events": "process",
}  # fmt: skip
_FUTURES = "asyncio.futures"
_SLEEPS = ("sleep", "__sleep0")
#: A poll that took so long has waited: what it saw was not there when it began.
_POLL_WAITED_NS = 100_000
_MOST_LINKS = 100


class Where(NamedTuple):
    """A place; line -1: unknown, function -1: none."""

    function: int
    line: int


_NOWHERE = Where(-1, -1)
#: Name, file and line of a place.
_At = tuple[str | None, str | None, int | None]


class Before(NamedTuple):
    """What ran on a loop before a task in its queue.

    Attributes
    ----------
    name, file, line
        The innermost own function that most of its time was in; else the callback.
    inside : str or None
        The coroutine of the task that it was a step of, if that is another function.
    """

    name: str | None
    file: str | None
    line: int | None
    inside: str | None = None


class Cause(NamedTuple):
    """Why a task was made ready.

    Attributes
    ----------
    time : int
        When what the task awaited was over: a timer's time, the end of another thread's work. At
        the latest when the task was made ready.
    hint : str
        A kind, where the cause tells it; "".
    task, thread : int
        Which task and thread did it; -1: none, the loop itself.
    where : Where
        The innermost own line that did it; or the function that the loop ran.
    """

    time: int
    hint: str
    task: int
    thread: int
    where: Where


class Pause(NamedTuple):
    """A time in which a task did not run: it awaited something, and then stood in the queue.

    Attributes
    ----------
    task, thread : int
        The task, and the thread of its loop.
    start, end : int
        From the end of a step to the begin of the next one; end -1: that is not in the window.
    ready : int
        When it could have gone on; -1: unknown, or it could not yet.
    unseen : int
        How long before `ready` that may have been already, without the loop having looked.
    kind : str
        One of `KINDS`.
    where : Where
        The own line that awaits; of a start, the one that made the task.
    through : int
        The function in a library that awaits, a row of functions; -1: none.
    cause : Cause or None
        None: unknown.
    """

    task: int
    thread: int
    start: int
    end: int
    ready: int
    unseen: int
    kind: str
    where: Where
    through: int
    cause: Cause | None

    @property
    def queued(self) -> int:
        """How long it stood in the queue, in ns; 0 where that is unknown."""
        return self.end - self.ready if self.end >= 0 and self.ready >= 0 else 0


class Tasks:
    """The tasks of a trace.

    Attributes
    ----------
    log : TaskLog
        What was recorded.
    names : list of str
        By task.
    pauses : list of Pause
        In order of start.
    pauses_of : dict
        Those of a task.
    end : int
        The end of the window, ns.
    """

    def __init__(self, trace: Recorded) -> None:
        self.log = TaskLog(trace)
        self.functions = trace._core.functions()
        self.own = find_own(self.functions, trace._own_patterns)
        self.names = self._names(trace)
        self.end = trace.duration
        self._before: dict[int, Before] = {}
        self.pauses: list[Pause] = []
        self.pauses_of: dict[int, list[Pause]] = defaultdict(list)
        if self.log.tasks:
            self._prepare()
            self.pauses = sorted(self._find(), key=lambda pause: (pause.start, pause.task))
        for pause in self.pauses:
            self.pauses_of[pause.task].append(pause)

    def _names(self, trace: Recorded) -> list[str | None]:
        """Return the last name of each task."""
        last = {
            task.steps[-1].call: number
            for number, task in enumerate(self.log.tasks)
            if task.steps and task.steps[-1].call >= 0
        }
        names: list[str | None] = [None] * len(self.log.tasks)
        rows = np.array(sorted(last), np.int64)
        if len(rows):
            for row, name in zip(rows.tolist(), trace.calls[rows]["task"].tolist(), strict=True):
                names[last[row]] = name
        return names

    def _prepare(self) -> None:
        calls = self.log.calls
        inner = np.flatnonzero(calls.parent >= 0)
        # Of several values for an index, the last one stays.
        self._last = np.full(len(calls.parent), -1, np.int32)
        self._last[calls.parent[inner]] = inner
        self._first = np.full(len(calls.parent), -1, np.int32)
        self._first[calls.parent[inner[::-1]]] = inner[::-1]
        names = [row[0] or "" for row in self.functions]
        self._adds_files = np.array(
            [name.endswith(("._add_reader", "._add_writer")) for name in names] + [False]
        )
        polls = np.array([name.endswith(".select") for name in names] + [False])
        once = np.array([name.endswith("._run_once") for name in names] + [False])
        function = calls.function
        found = inner[polls[function[inner]] & once[function[calls.parent[inner]]]]
        self._polls: dict[int, tuple[list[int], list[int]]] = {}
        for thread in np.unique(calls.thread[found]).tolist():
            rows = found[calls.thread[found] == thread]
            self._polls[thread] = (calls.start[rows].tolist(), calls.end[rows].tolist())
        self.runs: dict[int, list[Run]] = defaultdict(list)
        for run in self.log.runs:
            self.runs[run.thread].append(run)
        self._run_starts = {
            thread: [run.start for run in runs] for thread, runs in self.runs.items()
        }
        self._step_of_run: dict[int, Step] = {}
        for row, step in self.log.step_of.items():
            _, around = self._around(int(calls.parent[row]))
            if isinstance(around, Run) and around.callback < 0:
                self._step_of_run.setdefault(around.call, step)

    # ---- Causes ------------------------------------------------------------------------------

    def _around(self, call: int) -> tuple[list[int], Step | Run | None]:
        """Return the calls around an event, innermost first, up to the step or run they are in."""
        parent, steps, runs = self.log.calls.parent, self.log.step_of, self.log.run_of
        chain = []
        while call >= 0:
            found = steps.get(call) or runs.get(call)
            chain.append(call)
            if found is not None:
                return chain, found
            call = int(parent[call])
        return chain, None

    def _own_line(self, chain: list[int]) -> Where:
        """Return the innermost own line of calls, the innermost of which is first."""
        calls = self.log.calls
        for inner, outer in pairwise(chain):
            if self.own[calls.function[outer]]:
                return Where(int(calls.function[outer]), int(calls.line[inner]))
        return _NOWHERE

    def _function_run(self, chain: list[int]) -> Where:
        """Return the function that a loop ran, or the outermost of a thread."""
        calls = self.log.calls
        python = [call for call in chain if calls.kind[call] != NUMBERS["C_CALL"]]
        outer = [call for call in python if call not in self.log.run_of]
        return Where(int(calls.function[outer[-1]]), -1) if outer else _NOWHERE

    def _cause(self, event: Event, since: int) -> tuple[Cause, bool]:
        """Follow the callbacks that led to an event; and whether one of them is gather()'s."""
        where, hint, thread, time = _NOWHERE, "", event.thread, event.time
        gathers = False
        for _ in range(_MOST_LINKS):
            chain, around = self._around(event.call)
            if not self._is_own(where):
                place = self._own_line(chain)
                where = place if place.function >= 0 else where
            if where.function < 0:
                where = self._function_run(chain)
            gathers = gathers or any(
                (self.functions[self.log.calls.function[call]][0] or "").startswith("gather.<")
                for call in chain
                if self.log.calls.function[call] >= 0
            )
            if isinstance(around, Step):
                return Cause(time, hint, around.task, thread, where), gathers
            if around is None:
                if hint == "executor" and not self._is_own(where):
                    where = self._work_of_executor(chain) or where
                return Cause(time, hint, -1, thread, where), gathers
            if around.call in self._step_of_run:
                # The end of a step: asyncio's code in C makes ready what awaits the task.
                step = self._step_of_run[around.call]
                if not self._is_own(where):
                    where = Where(int(self.log.calls.function[step.call]), -1)
                return Cause(time, hint, step.task, thread, where), gathers
            if around.callback < 0:
                break
            made = self.log.callbacks[around.callback]
            if made.due >= 0:
                # A loop with another clock than the system's has other times.
                due = min(max(made.due, since), time)
                return Cause(due, hint or "sleep", -1, thread, where), gathers
            if around.again or self._waits_for_file(made):
                return Cause(time, hint or "socket", -1, thread, where), gathers
            if made.thread != event.thread:
                hint, thread = "executor", made.thread
                where = _NOWHERE
            time = max(made.time, since)
            event = made
        return Cause(time, hint, -1, thread, where), gathers

    def _is_own(self, where: Where) -> bool:
        return bool(self.own[where.function])

    def _work_of_executor(self, chain: list[int]) -> Where | None:
        """Return the own function whose end a thread of an executor reports; None: unknown."""
        for report, call in pairwise(chain):
            if self.functions[self.log.calls.function[call]][0] != "_WorkItem.run":
                continue
            rows = [row for row in self._children(call) if row < report]
            while rows:
                row = rows[-1]
                if self.own[self.log.calls.function[row]]:
                    return Where(int(self.log.calls.function[row]), -1)
                rows = self._by_length(row)
        return None

    def _by_length(self, call: int) -> list[int]:
        """Return the calls right within a call, the longest last."""
        calls = self.log.calls
        return sorted(self._children(call), key=lambda row: calls.end[row] - calls.start[row])

    def _waits_for_file(self, made: Event) -> bool:
        call, calls = made.call, self.log.calls
        for _ in range(3):
            if call < 0:
                return False
            if self._adds_files[calls.function[call]]:
                return True
            call = int(calls.parent[call])
        return False

    def _unseen(self, thread: int, time: int, since: int) -> int:
        """Return how long before a time a loop had not looked whether files are ready."""
        starts, ends = self._polls.get(thread, ([], []))
        poll = bisect_left(starts, time) - 1
        if poll < 0:
            return 0
        if ends[poll] - starts[poll] >= _POLL_WAITED_NS or poll == 0:
            return max(time - max(ends[poll], since), 0)
        return max(time - max(ends[poll - 1], since), 0)

    # ---- Pauses ------------------------------------------------------------------------------

    def _chain(self, step: Step, following: Step | None) -> list[int]:
        """Return the slices that a step suspended, outermost first."""
        calls = self.log.calls
        chain = [step.call] if step.call >= 0 else []
        next_ = -1 if following is None else following.call
        if next_ >= 0 and calls.kind[next_] == NUMBERS["THROW"]:
            next_ = -1  # the exception came through what was awaited
        while chain:
            inner = int(self._last[chain[-1]])
            if inner < 0 or not calls.flags[inner] & CALL_FLAGS["yielded"]:
                break
            if next_ >= 0:
                # What is awaited goes on first; a generator that yielded before need not.
                next_ = int(self._first[next_])
                if next_ < 0 or calls.function[next_] != calls.function[inner]:
                    break
            chain.append(inner)
        return chain

    def _awaiting(self, chain: list[int], ready: Event | None) -> tuple[Where, int]:
        """Return the own line that awaits, and the function of a library that does."""
        calls = self.log.calls
        innermost = int(calls.function[chain[-1]]) if chain else -1
        at_end = _NOWHERE if ready is None else Where(ready.caller, ready.line)
        if chain and at_end.function != innermost:
            at_end = Where(innermost, -1)
        waiting = [int(calls.function[call]) for call in chain]
        while waiting and waiting[-1] >= 0 and self.functions[waiting[-1]][1] == _FUTURES:
            waiting.pop()  # a future in Python
        through = waiting[-1] if waiting and not self.own[waiting[-1]] else -1
        where = at_end if innermost >= 0 and self.own[innermost] else self._own_line(chain[::-1])
        return (where if where.function >= 0 else at_end), through

    def _kind(self, chain: list[int], cause: Cause | None, awaited: int, *, gathers: bool) -> str:
        for call in reversed(chain):
            function = int(self.log.calls.function[call])
            name, module = self.functions[function][:2] if function >= 0 else (None, None)
            if module == _FUTURES:
                continue
            if module == "asyncio.tasks" and name in _SLEEPS:
                return "sleep"
            if module in _BY_MODULE:
                return _BY_MODULE[module]
            break
        if awaited >= 0 or gathers:
            return "task"
        return (cause.hint if cause is not None else "") or "other"

    def _find(self) -> Iterator[Pause]:
        for task_number, task in enumerate(self.log.tasks):
            steps: list[Step | None] = [None, *task.steps]
            for index, before in enumerate(steps):
                after = task.steps[index] if index < len(task.steps) else None
                ready = task.ready[index] if after is not None else task.next_ready
                if before is None and (ready is None or after is None):
                    continue  # it began before the window, eagerly, or not within the window
                if after is None and (before is None or task.ended):
                    continue
                yield self._pause(task_number, before, after, ready)

    def _pause(
        self, number: int, before: Step | None, after: Step | None, ready: Event | None
    ) -> Pause:
        start = before.end if before is not None else ready.time if ready is not None else 0
        cause, gathers = (None, False) if ready is None else self._cause(ready, start)
        if cause is not None and ready is not None and ready.awaited >= 0:
            cause = cause._replace(task=ready.awaited)
        side = after or before
        assert side is not None
        thread = side.thread
        kind, through = "start", -1
        where = cause.where if cause is not None else _NOWHERE
        if before is not None:
            chain = self._chain(before, after)
            where, through = self._awaiting(chain, ready)
            awaited = -1 if ready is None else ready.awaited
            kind = self._kind(chain, cause, awaited, gathers=gathers)
        end = -1 if after is None else after.start
        time = -1 if cause is None else cause.time
        unseen = 0
        if cause is not None and cause.hint == "socket":
            unseen = self._unseen(thread, time, start)
        return Pause(number, thread, start, end, time, unseen, kind, where, through, cause)

    # ---- The queue ---------------------------------------------------------------------------

    def runs_between(self, thread: int, start: int, end: int) -> list[tuple[Run, int]]:
        """Return what a loop ran in a time, and for how long of it, in ns."""
        runs = self.runs.get(thread, [])
        starts = self._run_starts.get(thread, [])
        first = max(bisect_right(starts, start) - 1, 0)
        found = []
        for run in runs[first : bisect_left(starts, end)]:
            overlap = min(run.end, end) - max(run.start, start)
            if overlap > 0:
                found.append((run, overlap))
        return found

    def before(self, run: Run) -> Before:
        """Return what a run was, for those that wait for its end."""
        if run.call not in self._before:
            where = self._innermost_own(run.call)
            step = self._step_of_run.get(run.call)
            ran = int(self.log.calls.function[step.call]) if step is not None else -1
            where = Where(ran, -1) if ran >= 0 and not self._is_own(where) else where
            inside = None if ran in (-1, where.function) else self.functions[ran][0]
            self._before[run.call] = Before(*self.place(where), inside)
        return self._before[run.call]

    def _innermost_own(self, row: int) -> Where:
        """Return the innermost own function that most of a call was in; else what it called."""
        calls, top = self.log.calls, row
        found = outer = -1
        while row >= 0:
            function = int(calls.function[row])
            if self.own[function]:
                found = function
            elif row != top and outer < 0 and calls.kind[row] != NUMBERS["C_CALL"]:
                outer = function
            longest = (self._by_length(row) or [-1])[-1]
            half = longest >= 0 and (
                2 * (calls.end[longest] - calls.start[longest]) >= calls.end[row] - calls.start[row]
            )
            row = longest if half else -1
        return Where(found if found >= 0 else outer, -1)

    def _children(self, row: int) -> list[int]:
        """Return the calls right within a call."""
        first, last = int(self._first[row]), int(self._last[row])
        if first < 0:
            return []
        inside = self.log.calls.parent[first : last + 1]
        found: list[int] = (np.flatnonzero(inside == row) + first).tolist()
        return found

    def place(self, where: Where) -> _At:
        """Return name, file and line of a place."""
        if where.function < 0:
            return None, None, None
        name, _, file, first, _ = self.functions[where.function]
        return name, file, where.line if where.line >= 0 else first


def tasks_table(trace: Recorded) -> Table:
    """Make `Trace.tasks`."""
    tasks = Tasks(trace)
    pauses = tasks.pauses
    causes = [pause.cause for pause in pauses]
    files = trace.functions._column("file")
    file_codes = np.append(files.values(), files.values().dtype.type(-1))

    def numbers(values: list[int], dtype: Any = np.int64) -> Any:
        return np.array(values, dtype)

    function = numbers([pause.where.function for pause in pauses], np.int32)
    through = numbers([pause.through for pause in pauses], np.int32)
    by = [_NOWHERE if cause is None else cause.where for cause in causes]
    by_function = numbers([where.function for where in by], np.int32)
    name_codes, name_words = encode([tasks.names[pause.task] for pause in pauses])
    kinds = numbers([KINDS.index(pause.kind) for pause in pauses], np.int8)
    queued = [pause.queued if pause.ready >= 0 <= pause.end else -1 for pause in pauses]
    known = "negative"
    columns = [
        number("task", numbers([pause.task for pause in pauses], np.int32), "", "its number"),
        Column("task_name", lambda: name_codes, words=name_words, doc="as in calls"),
        number("start", numbers([pause.start for pause in pauses]), "ns", "its step ended"),
        number("ready", numbers([pause.ready for pause in pauses]), "ns", "it could go on", known),
        number("end", numbers([pause.end for pause in pauses]), "ns", "its next step began", known),
        number("queued", numbers(queued), "ns", "from ready to end", known),
        number("unseen", numbers([pause.unseen for pause in pauses]), "ns",
               "before ready: its loop had not looked"),
        Column("kind", lambda: kinds, null="never", words=Words(lambda: KINDS),
               doc="what it awaited"),
        name_column(trace, function),
        Column("file", lambda: file_codes[function], words=files.words, doc="its file"),
        number("line", numbers([pause.where.line for pause in pauses], np.int32), "",
               "the line there", known),
        _renamed(name_column(trace, through), "through", "what awaited there, of a library"),
        number("by_task", numbers([-1 if cause is None else cause.task for cause in causes],
               np.int32), "", "the task that made it ready", known),
        number("by_thread", numbers([-1 if cause is None else cause.thread for cause in causes],
               np.int32), "", "row of threads: where that was", known),
        _renamed(name_column(trace, by_function), "by", "the function that did"),
        number("by_line", numbers([where.line for where in by], np.int32), "",
               "the line there", known),
        number("thread", numbers([pause.thread for pause in pauses], np.int32), "",
               "row of threads: of its loop"),
        number("function", function, "", "row of functions: where it awaited", known),
        number("by_function", by_function, "", "row of functions: by", known),
    ]  # fmt: skip
    return Table(trace._title("tasks"), columns, len(pauses))


def _renamed(column: Column, name: str, doc: str) -> Column:
    return Column(name, column.values, words=column.words, doc=doc)


class Place(NamedTuple):
    """What tasks awaited, and where.

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    name, file, line
        The own line; of the kind start, the one that makes the tasks.
    through : str or None
        The function of a library that awaits.
    """

    kind: str
    name: str | None
    file: str | None
    line: int | None
    through: str | None


class Awaits(NamedTuple):
    """All that tasks awaited at one place.

    Attributes
    ----------
    place : Place
        Where, and what.
    total, longest : int
        From the end of a step to the next one, ns.
    times : int
        How often.
    queued, unseen : int
        Of total: in the queue, and at most so much before, when the loop had not looked. ns.
    wakers : tuple of ((name, file, line), int)
        Who made the tasks ready, and how long they had awaited that; the most first. A name of None
        is the loop itself: a time was over, or a file was ready.
    before : tuple of (Before, int)
        What ran on the loop while they were in the queue, and how long; the most first.
    """

    place: Place
    total: int
    longest: int
    times: int
    queued: int
    unseen: int
    wakers: tuple[tuple[_At, int], ...]
    before: tuple[tuple[Before, int], ...]


#: Of the pauses at a place, the longest so many tell what ran before the tasks.
_LONGEST = 2000


def by_place(tasks: Tasks) -> list[Awaits]:
    """Return what tasks awaited by place and kind, the longest in all first."""
    groups: dict[Place, list[Pause]] = defaultdict(list)
    for pause in tasks.pauses:
        through = None if pause.through < 0 else tasks.functions[pause.through][0]
        groups[Place(pause.kind, *tasks.place(pause.where), through)].append(pause)
    found = []
    for place, pauses in groups.items():
        lengths = [_length(tasks, pause) for pause in pauses]
        wakers: Counter[_At] = Counter()
        before: Counter[Before] = Counter()
        for pause, length in zip(pauses, lengths, strict=True):
            if pause.cause is not None and pause.kind != "start":
                wakers[_waker(tasks, pause.cause)] += length
        for pause in sorted(pauses, key=lambda one: -one.queued - one.unseen)[:_LONGEST]:
            if pause.queued > 0:
                for run, ns in tasks.runs_between(
                    pause.thread, pause.ready - pause.unseen, pause.end
                ):
                    before[tasks.before(run)] += ns
        found.append(
            Awaits(
                place, sum(lengths), max(lengths), len(pauses),
                sum(pause.queued for pause in pauses), sum(pause.unseen for pause in pauses),
                tuple(wakers.most_common()), tuple(before.most_common()),
            )
        )  # fmt: skip
    return sorted(found, key=lambda one: -one.total)


def _length(tasks: Tasks, pause: Pause) -> int:
    return (pause.end if pause.end >= 0 else tasks.end) - pause.start


def _waker(tasks: Tasks, cause: Cause) -> _At:
    if cause.task < 0 and cause.hint in ("sleep", "socket"):
        return None, None, None
    return tasks.place(cause.where)


class Link(NamedTuple):
    """A part of a task's time.

    Attributes
    ----------
    what : str
        "work", "queued", "loop" (in the queue, while the loop ran nothing that is known: it began
        its turn, or had no processor), or one of `KINDS`.
    at : Before
        Where it worked, what ran before it, or what it awaited.
    own : bool
        Whether it is of the task itself, and not of another one that it awaited.
    ns : int
        How long.
    """

    what: str
    at: Before
    own: bool
    ns: int


def links_of(tasks: Tasks, task: int, start: int, end: int) -> list[Link]:
    """Return what a task's time went to, the most first: its chain of causes.

    While it awaits another task, that is what the other task's time went to.
    """
    sums: Counter[tuple[str, Before, bool]] = Counter()
    seen: set[int] = set()

    def add(number: int, first: int, last: int) -> None:
        seen.add(number)
        own = number == task
        for step in tasks.log.tasks[number].steps:
            ns = min(step.end, last) - max(step.start, first)
            if ns > 0:
                row = step.call
                function = int(tasks.log.calls.function[row]) if row >= 0 else -1
                sums["work", Before(*tasks.place(Where(function, -1))), own] += ns
        for pause in tasks.pauses_of[number]:
            close = min(pause.end if pause.end >= 0 else tasks.end, last)
            open_ = max(pause.start, first)
            if open_ >= close:
                continue
            late = close
            if pause.queued > 0:
                late = min(max(pause.ready - pause.unseen, open_), close)
                idle = close - late
                for run, ns in tasks.runs_between(pause.thread, late, close):
                    sums["queued", tasks.before(run), own] += ns
                    idle -= ns
                sums["loop", Before(None, None, None), own] += idle
            by = -1 if pause.cause is None else pause.cause.task
            if pause.kind == "task" and by >= 0 and by not in seen and late > open_:
                before = sum(sums.values())
                add(by, open_, late)
                rest = late - open_ - (sum(sums.values()) - before)
            else:
                rest = late - open_
            if rest > 0:
                sums[pause.kind, Before(*tasks.place(pause.where)), own] += rest
        seen.discard(number)

    add(task, start, end)
    links = [Link(what, at, own, ns) for (what, at, own), ns in sums.items() if ns > 0]
    return sorted(links, key=lambda link: -link.ns)


def task_at(tasks: Tasks, thread: int, time: int) -> int | None:
    """Return the task that a thread stepped at a time: of steps within each other the innermost."""
    found = [
        step
        for step in tasks.log.step_of.values()
        if step.thread == thread and step.start <= time <= step.end
    ]
    return max(found, key=lambda step: step.start).task if found else None


class Slowest(NamedTuple):
    """A task, from when it was made to its end."""

    task: int
    start: int
    end: int
    at: _At


def slowest(tasks: Tasks) -> list[Slowest]:
    """Return the slowest task of each coroutine, the slowest first."""
    longest: dict[int, Slowest] = {}
    for task_number, task in enumerate(tasks.log.tasks):
        if not task.steps or task.steps[0].call < 0:
            continue
        first = task.ready[0]
        start = task.steps[0].start if first is None else first.time
        end = task.steps[-1].end if task.ended else tasks.end
        function = int(tasks.log.calls.function[task.steps[0].call])
        one = Slowest(task_number, start, end, tasks.place(Where(function, -1)))
        if function not in longest or end - start > longest[function].end - longest[function].start:
            longest[function] = one
    return sorted(longest.values(), key=lambda one: one.start - one.end)
