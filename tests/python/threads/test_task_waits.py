"""What asyncio's tasks await, who makes them ready, and how long they stand in the queue of their loop."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import eventprof
from eventprof.answers.tasks import KINDS, Tasks, by_place, links_of, slowest
from eventprof.cli import main as command_line

pytestmark = pytest.mark.usefixtures("restored")

#: By both implementations: the one in C, and the one in Python that other loops may use.
TASKS = [asyncio.Task, asyncio.tasks._PyTask]


@pytest.fixture(params=TASKS, ids=["c", "python"])
def task_type(request):
    return request.param


def recorded(main, task_type=asyncio.Task, **options):
    """The trace of a loop that runs a coroutine; each task of it is of the given type."""
    loop = asyncio.new_event_loop()
    if task_type is not asyncio.Task:
        loop.set_task_factory(lambda loop, coro, **more: task_type(coro, loop=loop, **more))
    try:
        with eventprof.record(**{"memory": False, "on_full": "grow", **options}) as rec:
            loop.run_until_complete(main())
    finally:
        loop.close()
    check(rec.trace)
    return rec.trace


def check(trace):
    """What holds of every recording."""
    table = trace.tasks
    start, ready, end = (np.ma.filled(table[name], -1) for name in ("start", "ready", "end"))
    known = ready >= 0
    assert (ready[known] >= start[known]).all()
    both = known & (end >= 0)
    assert (ready[both] <= end[both]).all()
    assert (np.ma.filled(table["queued"], -1)[both] == (end - ready)[both]).all()
    assert (
        (table["unseen"] == 0) | np.isin(np.asarray(table["kind"]), ["socket", "process"])
    ).all()
    tasks = Tasks(trace)
    # A task steps and pauses by turns.
    for number, task in enumerate(tasks.log.tasks):
        pauses = tasks.pauses_of[number]
        for pause in pauses:
            assert not any(step.start < pause.end and pause.start < step.end for step in task.steps)
            # Nothing ran twice at a time, and not more than there was time.
            runs = tasks.runs_between(pause.thread, pause.ready, pause.end) if pause.queued else []
            assert sum(ns for _, ns in runs) <= pause.queued
        if task.steps:
            first, last = task.steps[0].start, task.steps[-1].end
            links = links_of(tasks, number, first, last)
            assert all(link.ns > 0 for link in links)


def rows_of(trace, task, *, start=False):
    """The rows of a task, but for that of its start."""
    return [row for row in trace.tasks if row.task_name == task and (start or row.kind != "start")]


def mark_time(trace, name):
    marks = trace.marks
    (row,) = np.flatnonzero(np.asarray(marks["name"]) == name)
    return int(marks["time"][row])


def line_of(function, text):
    """The line of a function where a text stands."""
    import inspect

    lines, first = inspect.getsourcelines(function)
    (at,) = [number for number, line in enumerate(lines) if text in line]
    return first + at


async def gives(queue):
    await asyncio.sleep(0.002)
    eventprof.mark("before put")
    queue.put_nowait(1)
    eventprof.mark("after put")


async def takes(queue):
    await queue.get()


@pytest.mark.parametrize("c_calls", [True, False])
def test_a_queue(task_type, backend, c_calls):
    async def main():
        queue = asyncio.Queue()
        taker = asyncio.ensure_future(takes(queue))
        taker.set_name("taker")
        giver = asyncio.ensure_future(gives(queue))
        giver.set_name("giver")
        await asyncio.gather(taker, giver)

    trace = recorded(main, task_type, backend=backend, c_calls=c_calls)

    (row,) = rows_of(trace, "taker")
    assert (row.kind, row.name, row.through, row.by) == ("queue", "takes", "Queue.get", "gives")
    assert row.line == line_of(takes, "queue.get()")
    assert row.by_line == line_of(gives, "put_nowait")
    assert mark_time(trace, "before put") <= row.ready <= mark_time(trace, "after put")
    (giver,) = {pause.task for pause in trace.tasks if pause.task_name == "giver"}
    assert row.by_task == giver
    # The one that awaited both was made ready by whichever ended last.
    (both,) = [pause for pause in trace.tasks if pause.name and pause.name.endswith("main")
               and pause.kind == "task"]  # fmt: skip
    assert both.by_task == row.task
    assert both.by == "takes"


def test_a_lock(task_type, backend):
    async def holds(lock):
        async with lock:
            await asyncio.sleep(0.002)
            eventprof.mark("before release")
        eventprof.mark("after release")

    async def wants(lock):
        async with lock:
            pass

    async def main():
        lock = asyncio.Lock()
        tasks = [asyncio.ensure_future(each(lock)) for each in (holds, wants)]
        for task, name in zip(tasks, ("holder", "wanter"), strict=True):
            task.set_name(name)
        await asyncio.gather(*tasks)

    trace = recorded(main, task_type, backend=backend)

    (row,) = rows_of(trace, "wanter")
    assert (row.kind, row.through) == ("lock", "Lock.acquire")
    assert row.name.endswith("wants")
    assert row.line == line_of(wants, "async with")
    assert row.by.endswith("holds")
    assert mark_time(trace, "before release") <= row.ready <= mark_time(trace, "after release")


def test_a_time_that_is_over_while_another_task_runs(task_type, backend):
    """The loop sees that only afterwards: all that time counts as queued."""

    def busy():
        eventprof.mark("busy")
        threading.Event().wait(0.03)
        eventprof.mark("done")

    async def sleeps():
        await asyncio.sleep(0.005)

    async def blocks():
        busy()

    async def main():
        tasks = [asyncio.ensure_future(each()) for each in (sleeps, blocks)]
        tasks[0].set_name("sleeper")
        await asyncio.gather(*tasks)

    trace = recorded(main, task_type, backend=backend)

    (row,) = rows_of(trace, "sleeper")
    assert (row.kind, row.by_task) == ("sleep", None)
    assert row.name.endswith("sleeps")
    assert row.ready - row.start <= 5_001_000
    done = mark_time(trace, "done")
    assert row.queued >= done - max(row.ready, mark_time(trace, "busy"))
    tasks = Tasks(trace)
    (place,) = [one for one in by_place(tasks) if (one.place.name or "").endswith("sleeps")]
    assert place.queued == row.queued
    before, ns = place.before[0]
    assert before.name.endswith("busy")
    assert before.inside.endswith("blocks")
    assert ns >= done - max(row.ready, mark_time(trace, "busy"))


def test_another_task_and_a_chain_of_causes(task_type, backend):
    async def child():
        await asyncio.sleep(0.01)

    async def parent():
        inner = asyncio.ensure_future(child())
        inner.set_name("inner")
        await inner

    async def main():
        outer = asyncio.ensure_future(parent())
        outer.set_name("outer")
        await outer

    trace = recorded(main, task_type, backend=backend)

    (row,) = rows_of(trace, "outer")
    (inner,) = rows_of(trace, "inner")
    assert (row.kind, row.through, row.by_task) == ("task", None, inner.task)
    assert row.line == line_of(parent, "await inner")
    assert row.by.endswith("child")
    tasks = Tasks(trace)
    (one,) = [one for one in slowest(tasks) if tasks.names[one.task] == "outer"]
    links = links_of(tasks, one.task, one.start, one.end)
    (slept,) = [link for link in links if link.what == "sleep"]
    assert slept.at.name.endswith("child")
    assert not slept.own
    assert sum(link.ns for link in links) <= one.end - one.start


def test_the_work_of_an_executor(task_type, backend):
    awaited = threading.Event()

    def work():
        awaited.wait(60)
        eventprof.mark("worked")

    async def asks():
        with ThreadPoolExecutor(1, "worker") as pool:
            asyncio.get_running_loop().call_later(0.001, awaited.set)
            await asyncio.get_running_loop().run_in_executor(pool, work)

    async def main():
        task = asyncio.ensure_future(asks())
        task.set_name("asker")
        await task

    trace = recorded(main, task_type, backend=backend)

    (row,) = rows_of(trace, "asker")
    assert row.kind == "executor"
    assert row.by.endswith("work")
    assert trace.threads["name"][row.by_thread].startswith("worker")
    assert row.thread != row.by_thread
    assert mark_time(trace, "worked") <= row.ready <= row.end


def test_a_socket(task_type, backend):
    async def reads(reader):
        await reader.readexactly(3)

    async def main():
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_connection(sock=ours)
            task = asyncio.ensure_future(reads(reader))
            task.set_name("reader")
            await asyncio.sleep(0.002)
            eventprof.mark("sent")
            theirs.send(b"abc")
            await task
            writer.close()

    trace = recorded(main, task_type, backend=backend)

    (row,) = rows_of(trace, "reader")
    assert (row.kind, row.by_task) == ("socket", None)
    assert row.name.endswith("reads")
    assert row.line == line_of(reads, "await")
    assert row.ready >= mark_time(trace, "sent")


def test_a_process(task_type, backend):
    async def runs():
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=-1)
        await asyncio.sleep(0.002)
        eventprof.mark("let go on")
        process.stdin.write(b"x\n")
        assert await process.wait() == 0
        eventprof.mark("ended")

    async def main():
        task = asyncio.ensure_future(runs())
        task.set_name("runner")
        await task

    trace = recorded(main, task_type, backend=backend)

    row = rows_of(trace, "runner")[-1]
    assert row.kind == "process"
    assert row.name.endswith("runs")
    assert row.line == line_of(runs, "process.wait()")
    assert mark_time(trace, "let go on") <= row.ready <= row.end <= mark_time(trace, "ended")


def test_data_that_comes_while_the_loop_is_busy(backend):
    """The loop had not looked; when the data came is not known, but not before that."""

    async def main():
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_connection(sock=ours)
            task = asyncio.create_task(reader.readexactly(3), name="reader")
            await asyncio.sleep(0.002)
            theirs.send(b"abc")
            eventprof.mark("sent")
            threading.Event().wait(0.02)
            eventprof.mark("done")
            await task
            writer.close()

    for _ in range(5):  # a poll that lost its processor seems to have waited for the data
        trace = recorded(main, backend=backend)
        (row,) = rows_of(trace, "reader")
        sent, done = (mark_time(trace, word) for word in ("sent", "done"))
        if row.ready - row.unseen <= sent:
            break
    assert row.ready - row.unseen <= sent
    assert row.unseen >= done - sent


def test_a_task_that_is_cancelled(task_type, backend):
    async def waits():
        await asyncio.sleep(3600)

    async def cancels(task):
        await asyncio.sleep(0)
        eventprof.mark("before cancel")
        task.cancel()
        eventprof.mark("after cancel")

    async def main():
        task = asyncio.ensure_future(waits())
        task.set_name("cancelled")
        await cancels(task)
        with pytest.raises(asyncio.CancelledError):
            await task

    trace = recorded(main, task_type, backend=backend)

    (row,) = rows_of(trace, "cancelled")
    assert (row.kind, row.line) == ("sleep", line_of(waits, "await"))
    assert (row.by.endswith("cancels"), row.by_line) == (True, line_of(cancels, "task.cancel"))
    assert mark_time(trace, "before cancel") <= row.ready <= mark_time(trace, "after cancel")


def test_tasks_of_one_name_one_after_the_other(task_type, backend):
    """Their addresses are used again: each is a task of its own all the same."""

    async def job():
        await asyncio.sleep(0)

    async def main():
        for _ in range(100):
            task = asyncio.ensure_future(job())
            task.set_name("same")
            await task

    trace = recorded(main, task_type, backend=backend)

    rows = rows_of(trace, "same", start=True)
    assert Counter(row.kind for row in rows) == {"start": 100, "sleep": 100}
    assert len({row.task for row in rows}) == 100
    awaited = [row.by_task for row in trace.tasks if row.kind == "task"]
    assert sorted(set(awaited)) == sorted({row.task for row in rows})
    if task_type is asyncio.Task:  # not made by the function above
        lines = {row.line for row in rows if row.kind == "start"}
        assert lines == {line_of(main, "ensure_future")}


def test_what_is_awaited_when_the_window_ends(backend):
    async def waits(event):
        await event.wait()

    loop = asyncio.new_event_loop()
    try:
        with eventprof.record(memory=False, backend=backend) as rec:
            event = asyncio.Event()
            task = loop.create_task(waits(event), name="waiting")
            loop.run_until_complete(asyncio.sleep(0.001))
        check(rec.trace)
        event.set()
        loop.run_until_complete(task)
    finally:
        loop.close()

    (row,) = rows_of(rec.trace, "waiting")
    assert (row.kind, row.ready, row.end, row.queued) == ("lock", None, None, None)
    assert row.through == "Event.wait"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="new in 3.12")
def test_eager_tasks(backend):
    async def slow():
        await asyncio.sleep(0)

    async def main():
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0)  # now it is a task that runs
        await asyncio.Task(slow(), loop=loop, name="slow", eager_start=True)

    trace = recorded(main, backend=backend)

    (row,) = rows_of(trace, "slow", start=True)
    assert row.kind == "sleep"


def test_loops_in_threads(backend):
    """Tasks of several loops at once; one of them makes a task of another one ready."""

    async def other(event, name):
        await event.wait()

    async def main(barrier, number, loops, events):
        loops[number] = asyncio.get_running_loop()
        events[number] = asyncio.Event()
        task = asyncio.create_task(other(events[number], number), name=f"other {number}")
        await asyncio.sleep(0)
        await asyncio.to_thread(barrier.wait, 60)
        next_ = (number + 1) % 3
        loops[next_].call_soon_threadsafe(events[next_].set)
        await task
        await asyncio.to_thread(barrier.wait, 60)

    barrier, loops, events = threading.Barrier(3), [None] * 3, [None] * 3
    with eventprof.record(memory=False, backend=backend, on_full="grow") as rec:
        threads = [
            threading.Thread(
                target=lambda n=n: asyncio.run(main(barrier, n, loops, events)), name=f"loop {n}"
            )
            for n in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    check(rec.trace)

    names = rec.trace.threads["name"]
    for number in range(3):
        (row,) = rows_of(rec.trace, f"other {number}")
        assert (names[row.thread], names[row.by_thread]) == (f"loop {number}",
                                                             f"loop {(number + 2) % 3}")  # fmt: skip
        assert row.kind == "lock"


class Program:
    """A random program of tasks that note by whom they were made ready, and between which marks."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.marks = self.tasks = 0
        self.notes: dict[str, list[tuple[str, int, str]]] = {}
        self.queues = [asyncio.Queue() for _ in range(3)]
        self.lock = asyncio.Lock()
        self.released: tuple[int, str] = (0, "")

    def name(self):
        # From 3.14 on the function in C does not know tasks in Python.
        return (asyncio.current_task() or asyncio.tasks._py_current_task()).get_name()

    def start(self, coroutine):
        self.tasks += 1
        return asyncio.create_task(coroutine, name=f"task {self.tasks}")

    def begin(self):
        self.marks += 1
        eventprof.mark(f"before {self.marks}")
        return self.marks

    def note(self, kind, mark, by):
        self.notes.setdefault(self.name(), []).append((kind, mark, by))

    async def locked(self):
        # Who comes while another one is to have it next waits, too.
        waits = self.lock.locked() or bool(self.lock._waiters)
        await self.lock.acquire()
        if waits:
            self.note("lock", *self.released)
        if self.random.random() < 0.5:
            await asyncio.sleep(self.random.choice((0, 0.0005)))
        mark = self.begin()
        self.released = (mark, self.name())
        self.lock.release()
        eventprof.mark(f"after {mark}")

    async def put(self):
        mark = self.begin()
        self.random.choice(self.queues).put_nowait((mark, self.name()))
        eventprof.mark(f"after {mark}")

    async def work(self):
        sum(range(self.random.randrange(20_000)))

    async def sleep(self):
        await asyncio.sleep(self.random.choice((0, 0.0002, 0.001)))

    async def task(self, depth):
        if depth < 2:
            await self.start(self.act(3, depth + 1))

    async def act(self, steps, depth=0):
        for _ in range(steps):
            await self.random.choice(
                (self.locked, self.put, self.work, self.sleep, lambda: self.task(depth))
            )()

    async def take(self, queue):
        while True:
            waits = queue.empty()
            mark, by = await queue.get()
            if mark == 0:
                break
            if waits:
                self.note("queue", mark, by)

    async def main(self):
        takers = [
            asyncio.create_task(self.take(queue), name=f"taker {number}")
            for number, queue in enumerate(self.queues)
        ]
        await asyncio.sleep(0)
        await asyncio.gather(*(self.start(self.act(12)) for _ in range(6)))
        for queue in self.queues:
            queue.put_nowait((0, ""))
        await asyncio.gather(*takers)


@pytest.mark.parametrize("seed", range(4))
def test_random_programs(seed, task_type, backend):
    programs = []

    async def main():
        programs.append(Program(seed))
        await programs[0].main()

    trace = recorded(main, task_type, backend=backend)

    marks = dict(zip(trace.marks["name"].tolist(), trace.marks["time"].tolist(), strict=True))
    names: dict[int, str] = {row.task: row.task_name for row in trace.tasks}
    found: dict[str, list] = {}
    for row in trace.tasks:
        if row.kind in ("lock", "queue"):
            found.setdefault(row.task_name, []).append(row)
    notes = programs[0].notes
    assert notes
    for task, noted in notes.items():
        rows = found[task]
        # A taker's last pause ends with the program; main() makes it ready.
        assert len(noted) <= len(rows) <= len(noted) + task.startswith("taker")
        for (kind, mark, by), row in zip(noted, rows, strict=False):
            assert (row.kind, names[row.by_task]) == (kind, by)
            assert marks[f"before {mark}"] <= row.ready <= marks[f"after {mark}"]


def test_events_come_right_before_their_calls(backend):
    async def main():
        await asyncio.sleep(0)

    trace = recorded(main, backend=backend)

    events = trace.events
    rows = np.flatnonzero(np.asarray(events["event"]) == "task")
    assert len(rows)
    after = Counter(events["name"][rows + 1].tolist())
    assert set(after) <= {"asyncio", "Handle.__init__", "Handle._run", "TimerHandle.__init__",
                          *(name for name in after if name.endswith("main"))}  # fmt: skip


def texts(trace, without=()):
    return [
        {name: value for name, value in row._asdict().items() if name not in without}
        for row in trace.tasks
    ]


def test_files_have_the_same(tmp_path):
    async def main():
        queue = asyncio.Queue()
        await asyncio.gather(takes(queue), gives(queue))

    with eventprof.record(memory=False, output=tmp_path / "a.epr") as rec:
        asyncio.run(main())
    rec.trace.save(tmp_path / "archive.epr")

    expected = texts(rec.trace)
    assert any(row["kind"] == "queue" for row in expected)
    for name in ("a.epr", "archive.epr"):
        assert texts(eventprof.open(tmp_path / name)) == expected


def test_tasks_of_several_processes(tmp_path):
    """Those of two processes may have the same addresses."""
    program = """
import asyncio, eventprof, sys
async def job():
    await asyncio.sleep(0.001)
async def main():
    for number in range(20):
        await asyncio.create_task(job(), name=f"{sys.argv[1]} {number}")
with eventprof.record(memory=False, output=sys.argv[1]):
    asyncio.run(main())
"""
    paths = [str(tmp_path / name) for name in ("a.epr", "b.epr")]
    for path in paths:
        subprocess.run([sys.executable, "-c", program, path], check=True)

    merged = eventprof.merge([eventprof.open(path) for path in paths])

    check(merged)
    for path in paths:
        for number in range(20):
            rows = rows_of(merged, f"{path} {number}", start=True)
            assert [row.kind for row in rows] == ["start", "sleep"]
            assert len({row.task for row in rows}) == 1


def test_a_ring_that_lost_the_beginning(backend):
    async def main():
        for _ in range(3000):
            await asyncio.create_task(leaves(), name="job")

    async def leaves():
        await asyncio.sleep(0)

    with pytest.warns(eventprof.EventsLostWarning):
        trace = recorded(main, backend=backend, buffer=1 << 20, on_full="overwrite")

    assert trace.loss
    kinds = Counter(row.kind for row in rows_of(trace, "job", start=True))
    assert kinds["sleep"] > 10
    assert abs(kinds["sleep"] - kinds["start"]) <= 1


def test_own_calls_alone(backend):
    """Without the calls of asyncio, what made a task ready is not known."""

    async def main():
        queue = asyncio.Queue()
        await asyncio.gather(takes(queue), gives(queue))

    trace = recorded(main, backend=backend, include=["*test_task_waits*"])

    (row,) = [row for row in trace.tasks if row.name == "takes"]
    assert (row.ready, row.queued, row.by) == (None, None, None)


def test_only_with_calls():
    async def main():
        await asyncio.sleep(0)

    with eventprof.record(calls=False, c_calls=False) as rec:
        asyncio.run(main())

    assert len(rec.trace.tasks) == 0
    assert not rec.trace._has_tasks


def test_a_loop_that_is_not_in_python(tmp_path, capsys):
    """Steps are seen, and so is what is awaited; who made a task ready is unknown, and said so."""
    uvloop = pytest.importorskip("uvloop")

    async def sleeps():
        await asyncio.sleep(0.001)

    async def main():
        await asyncio.create_task(sleeps(), name="sleeper")

    loop = uvloop.new_event_loop()
    path = tmp_path / "uv.epr"
    try:
        with eventprof.record(memory=False, output=path) as rec:
            loop.run_until_complete(main())
    finally:
        loop.close()

    (row,) = rows_of(rec.trace, "sleeper")
    assert (row.kind, row.ready, row.queued, row.by) == ("sleep", None, None, None)
    assert command_line(["waits", str(path), "--tasks"]) == 0
    assert "who made them ready is unknown" in capsys.readouterr().out


def service(path):
    """A recording of a task that stands behind another one."""

    def resize():
        threading.Event().wait(0.03)

    async def upload():
        resize()

    async def download():
        await asyncio.sleep(0.005)

    async def main():
        await asyncio.gather(download(), upload())

    with eventprof.record(memory=False, output=path):
        asyncio.run(main())


def test_the_verb(tmp_path, capsys):
    service(tmp_path / "service.epr")

    assert command_line(["waits", str(tmp_path / "service.epr"), "--tasks"]) == 0

    text = capsys.readouterr().out
    assert text.splitlines()[0].endswith("of it queued in their loop")
    assert "for a time in service.<locals>.download (" in text
    slow = text.partition("the slowest task of each coroutine\n")[2]
    lines = slow.splitlines()
    (head,) = [number for number, line in enumerate(lines)
               if ".download (" in line and not line.startswith("   ")]  # fmt: skip
    queued = [
        line for line in lines[head + 1 :] if "queued behind service.<locals>.resize (" in line
    ]
    assert queued[0].endswith("in a step of service.<locals>.upload")


def test_the_verb_for_programs(tmp_path, capsys):
    service(tmp_path / "service.epr")

    assert command_line(["waits", str(tmp_path / "service.epr"), "--tasks", "--json"]) == 0

    answer = json.loads(capsys.readouterr().out)
    assert {row["kind"] for row in answer["rows"]} <= set(KINDS)
    (row,) = [row for row in answer["rows"] if row["name"].endswith("download")
              and row["kind"] == "sleep"]  # fmt: skip
    assert row["before"][0]["name"].endswith("resize")
    (one,) = [one for one in answer["slowest"] if one["name"].endswith("download")]
    assert any(link["what"] == "queued" for link in one["links"])
    # Shares of a time are not more than that time, each link by itself.
    assert sum(link["time"] for link in one["links"] if link["own"]) <= one["total"]


def test_a_request_is_told_by_its_task(tmp_path, capsys):
    def resize():
        threading.Event().wait(0.03)

    async def upload():
        await asyncio.sleep(0)
        resize()

    async def serve():
        with eventprof.request("/"):
            await asyncio.sleep(0.005)

    async def main():
        await asyncio.gather(serve(), upload())

    path = str(tmp_path / "requests.epr")
    with eventprof.record(memory=False, output=path) as rec:
        asyncio.run(main())
    (request,) = rec.trace.requests["request"].tolist()

    assert command_line(["requests", path, "--request", request]) == 0
    text = capsys.readouterr().out.partition("what its time went to\n")[2]
    assert any("queued behind " in line and ".resize (" in line for line in text.splitlines())

    assert command_line(["requests", path, "--request", request, "--json"]) == 0
    links = json.loads(capsys.readouterr().out)["links"]
    assert any(
        link["what"] == "queued" and link["own"] and link["name"].endswith("resize")
        for link in links
    )
    (total,) = rec.trace.requests["total"].tolist()
    assert sum(link["time"] for link in links) <= total


def test_a_recording_without_tasks_says_so(tmp_path, capsys):
    path = tmp_path / "no.epr"
    with eventprof.record(events=["call", "return"], output=path):
        line_of(takes, "await")

    assert command_line(["waits", str(path), "--tasks"]) == 1
    assert "tasks were not recorded" in capsys.readouterr().err
