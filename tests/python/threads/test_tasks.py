"""asyncio's tasks: each slice of a coroutine knows which task it is part of."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter, defaultdict

import pytest
import read_archive

import eventprof

pytestmark = pytest.mark.usefixtures("restored")

#: By both implementations: the one in C, and the one in Python that other loops may use.
TASKS = [asyncio.Task, asyncio.tasks._PyTask]


@pytest.fixture(params=TASKS, ids=["c", "python"])
def task_type(request):
    return request.param


def leaf(n):
    return n


async def inner(n):
    leaf(n)
    await asyncio.sleep(0)
    return leaf(n)


async def job(n):
    for _ in range(3):
        await inner(n)


def recorded(main, task_type=asyncio.Task, **options):
    """The trace of a loop that runs a coroutine; each task of it is of the given type."""
    loop = asyncio.new_event_loop()
    loop.set_task_factory(lambda loop, coro, **more: task_type(coro, loop=loop, **more))
    try:
        with eventprof.record(**{"memory": False, **options}) as rec:
            loop.run_until_complete(main())
    finally:
        loop.close()
    return rec.trace


def tasks_of(trace, *names) -> dict[str, Counter]:
    """How many calls and slices of each function each task has."""
    out: dict[str, Counter] = defaultdict(Counter)
    for row in trace.calls:
        if row.name.rpartition(".")[2] in names:
            out[row.name.rpartition(".")[2]][row.task] += 1
    return dict(out)


def test_every_call_inside_of_a_task_has_its_name(task_type, backend):
    async def main():
        tasks = [asyncio.ensure_future(job(n)) for n in range(3)]
        for n, task in enumerate(tasks):
            task.set_name(f"job {n}")
        await asyncio.gather(*tasks)
        leaf(9)

    trace = recorded(main, task_type, backend=backend)

    found = tasks_of(trace, "job", "inner", "leaf", "main")
    (own,) = found["main"]
    assert own is not None
    names = {"job 0", "job 1", "job 2"}
    assert found["job"] == dict.fromkeys(names, 4)
    assert found["inner"] == dict.fromkeys(names, 6)
    assert found["leaf"] == {**dict.fromkeys(names, 6), own: 1}
    # Outside of tasks, in the loop itself, there is none.
    loop = [row.task for row in trace.calls if row.name == "BaseEventLoop._run_once"]
    assert loop
    assert set(loop) == {None}
    assert trace.pairing["unmatched_ends"] == 0


def test_names_that_nobody_gave(task_type, backend):
    """As asyncio counts them, which it does when a name is first asked for: not by us."""
    tasks = []

    async def main():
        tasks.extend(asyncio.ensure_future(job(n)) for n in range(3))
        await asyncio.gather(*tasks)

    trace = recorded(main, task_type, backend=backend)

    assert set(tasks_of(trace, "job")["job"]) == {task.get_name() for task in tasks}


@pytest.mark.parametrize("name", ["", "späte Aufgabe", "\udc80", "x" * 1000, "Task-1", "a\0b"])
def test_names_of_any_sort(name, backend):
    async def main():
        asyncio.current_task().set_name(name)
        await inner(1)
        await inner(2)

    trace = recorded(main, backend=backend)

    # The first slice began before it had that name: what lies in it is the old one's.
    assert [row.task for row in trace.calls if row.name == "inner"][1:] == [name] * 3


def test_a_name_that_is_set_late_counts_from_the_next_slice(task_type, backend):
    tasks = []

    async def late():
        leaf(1)
        tasks[0].set_name("late")
        leaf(2)
        await asyncio.sleep(0)
        leaf(3)

    async def main():
        tasks.append(asyncio.ensure_future(late()))
        tasks[0].set_name("early")
        await tasks[0]

    trace = recorded(main, task_type, backend=backend)

    assert [row.task for row in trace.calls if row.name == "leaf"] == ["early", "early", "late"]


def test_cancelled_tasks(task_type, backend):
    """The exception comes into the coroutine by a throw, and that is a slice of the task's."""

    async def waits():
        try:
            await asyncio.sleep(3600)
        finally:
            leaf(1)

    async def main():
        task = asyncio.ensure_future(waits())
        task.set_name("cancelled")
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    trace = recorded(main, task_type, backend=backend)

    assert tasks_of(trace, "waits", "leaf") == {
        "waits": {"cancelled": 2},
        "leaf": {"cancelled": 1},
    }
    kinds = [row.kind for row in trace.calls if row.name.endswith("waits")]
    assert kinds == ["call", "throw"]


def test_groups_timeouts_and_asynchronous_generators(backend):
    async def numbers():
        for n in range(2):
            await asyncio.sleep(0)
            yield leaf(n)

    async def consume():
        async with asyncio.timeout(60):
            async for _ in numbers():
                pass

    async def main():
        async with asyncio.TaskGroup() as group:
            for n in range(2):
                group.create_task(consume(), name=f"consumer {n}")

    trace = recorded(main, backend=backend)

    found = tasks_of(trace, "consume", "numbers", "leaf")
    assert found["leaf"] == {"consumer 0": 2, "consumer 1": 2}
    assert set(found["numbers"]) == set(found["consume"]) == {"consumer 0", "consumer 1"}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="new in 3.12")
def test_eager_tasks(backend):
    """The first step is taken where the task is made, inside of the task that makes it."""

    async def quick():
        leaf(1)

    async def slow():
        leaf(2)
        await asyncio.sleep(0)
        leaf(3)

    async def main():
        loop = asyncio.get_running_loop()
        asyncio.current_task().set_name("main")
        await asyncio.sleep(0)
        quickly = asyncio.Task(quick(), loop=loop, name="quick", eager_start=True)
        slowly = asyncio.Task(slow(), loop=loop, name="slow", eager_start=True)
        assert quickly.done()
        leaf(4)
        await slowly

    trace = recorded(main, backend=backend)

    assert [row.task for row in trace.calls if row.name == "leaf"] == [
        "quick",
        "slow",
        "main",
        "slow",
    ]


def test_callbacks_of_the_loop_are_of_no_task(backend):
    async def main():
        asyncio.get_running_loop().call_soon(leaf, 1)
        await asyncio.sleep(0)
        await asyncio.get_running_loop().run_in_executor(None, leaf, 2)

    trace = recorded(main, backend=backend)

    assert tasks_of(trace, "leaf") == {"leaf": {None: 2}}


def test_loops_in_threads(backend):
    """Three at once, which pass the turn on to each other: each task is its own loop's."""
    barrier = threading.Barrier(3)

    async def step(n):
        for _ in range(3):
            barrier.wait(60)
            await inner(n)

    async def main(n):
        asyncio.current_task().set_name(f"main {n}")
        await asyncio.sleep(0)
        await asyncio.create_task(step(n), name=f"step {n}")

    with eventprof.record(memory=False, backend=backend) as rec:
        threads = [
            threading.Thread(target=lambda n=n: asyncio.run(main(n)), name=f"thread {n}")
            for n in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    names = rec.trace.threads["name"]
    found = {(names[row.thread], row.task) for row in rec.trace.calls if row.name == "inner"}
    assert found == {(f"thread {n}", f"step {n}") for n in range(3)}


def test_coroutines_without_asyncio(backend):
    class Awaits:
        def __await__(self):
            yield

    async def plain():
        leaf(1)
        await Awaits()
        leaf(2)

    with eventprof.record(memory=False, backend=backend) as rec:
        coroutine = plain()
        coroutine.send(None)
        with pytest.raises(StopIteration):
            coroutine.send(None)

    assert tasks_of(rec.trace, "leaf", "plain") == {"leaf": {None: 2}, "plain": {None: 2}}
    assert rec.trace.pairing["unmatched_ends"] == 0


def test_a_recording_that_begins_and_ends_inside_of_tasks(backend):
    """What is open at its start is of the tasks that are being run, too."""

    async def main():
        asyncio.current_task().set_name("main")
        await asyncio.sleep(0)
        other = asyncio.create_task(inner(1), name="other")
        rec = eventprof.record(memory=False, backend=backend)
        rec.start()
        leaf(1)
        await other
        leaf(2)
        rec.stop()
        return rec

    rec = asyncio.run(main())

    found = tasks_of(rec.trace, "leaf", "main")
    assert found["leaf"] == {"main": 2, "other": 2}
    assert set(found["main"]) == {"main"}


def test_a_ring_that_lost_the_beginning(backend):
    async def spin():
        for n in range(150_000):
            leaf(n)
            if n % 10_000 == 0:
                await asyncio.sleep(0)

    async def main():
        await asyncio.gather(*(asyncio.create_task(spin(), name=f"spin {n}") for n in range(2)))

    trace = recorded(
        main, buffer="2 MiB", on_full="overwrite", c_calls=False, include=["*spin", "leaf", "*main"]
    )

    assert trace.loss
    found = tasks_of(trace, "leaf")["leaf"]
    assert set(found) <= {"spin 0", "spin 1"}
    assert sum(found.values()) > 10_000


@pytest.mark.parametrize("form", ["log", "archive", "archive of a log", "merged"])
def test_tasks_in_files(form, tmp_path, backend):
    async def main():
        await asyncio.gather(*(asyncio.create_task(job(n), name=f"job {n}") for n in range(2)))

    path, second = tmp_path / "a.epr", tmp_path / "b.epr"
    options = {"output": path} if "log" in form else {}
    trace = recorded(main, backend=backend, **options)
    expected = [(row.name, row.task) for row in trace.calls]
    if "archive" in form:
        trace.save(second)
    if form == "merged":
        read = eventprof.merge([trace])
    else:
        read = eventprof.open(path if form == "log" else second)

    assert [(row.name, row.task) for row in read.calls] == expected
    assert {"job 0", "job 1"} <= {task for _, task in expected}


def test_tasks_in_an_archive_as_its_specification_has_them(tmp_path):
    async def main():
        await asyncio.create_task(inner(1), name="one")

    recorded(main).save(tmp_path / "a.epr")
    read = read_archive.read(tmp_path / "a.epr")

    names = {
        read["names"][read["sites"][site][0]][0] for site, task in read["tasks"] if task == "one"
    }
    assert "inner" in names
    assert all(0 < site < len(read["sites"]) for site, _ in read["tasks"])


def test_the_column(backend):
    async def main():
        await asyncio.create_task(inner(1), name="one")

    trace = recorded(main, backend=backend)

    calls = trace.calls
    assert set(calls["task"][calls["name"] == "inner"]) == {"one"}
    with eventprof.record(memory=False, backend=backend) as rec:
        leaf(1)
    assert rec.trace.calls["task"].tolist() == [None] * len(rec.trace.calls)


def test_the_programs_own_methods_are_not_called(backend):
    """Nor is a name made that nobody asked for."""

    class Named(asyncio.Task):
        asked = 0

        def get_name(self):
            Named.asked += 1
            return super().get_name()

    async def main():
        await asyncio.gather(*(asyncio.ensure_future(job(n)) for n in range(3)))

    trace = recorded(main, Named, backend=backend)

    assert None not in tasks_of(trace, "job")["job"]
    assert Named.asked == 0


def test_loops_on_threads_at_once_each_have_their_own_tasks(task_type, backend):
    """Tasks come and go in the dictionary that another thread looks through."""
    count = 4
    barrier = threading.Barrier(count)
    errors = []

    def own(k):
        async def own(n):
            for _ in range(5):
                await inner(k)

        own.__code__ = own.__code__.replace(co_name=f"own_{k}", co_qualname=f"own_{k}")
        return own

    def run(k):
        async def main():
            tasks = [asyncio.ensure_future(functions[k](n)) for n in range(40)]
            for n, task in enumerate(tasks):
                task.set_name(f"{k} {n}")
            await asyncio.gather(*tasks)

        try:
            loop = asyncio.new_event_loop()
            loop.set_task_factory(lambda loop, coro, **more: task_type(coro, loop=loop, **more))
            barrier.wait(120)
            loop.run_until_complete(main())
            loop.close()
        except BaseException as error:
            errors.append(error)

    functions = [own(k) for k in range(count)]
    threads = [threading.Thread(target=run, args=(k,)) for k in range(count)]
    with eventprof.record(memory=False, on_full="grow", backend=backend) as rec:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(240)

    assert errors == []
    assert not any(thread.is_alive() for thread in threads)
    names = [f"own_{k}" for k in range(count)]
    # A slice at its beginning, and one for each of inner's.
    assert tasks_of(rec.trace, *names) == {
        name: {f"{k} {n}": 6 for n in range(40)} for k, name in enumerate(names)
    }


def test_the_tree_of_spans_of_tasks_says_why_there_is_none():
    async def part():
        with eventprof.span("part"):
            await asyncio.sleep(0)

    async def main():
        await asyncio.gather(part(), part())

    with eventprof.record(memory=False) as rec:
        asyncio.run(main())

    with pytest.raises(ValueError, match="no span 'part' has a tree: each overlaps others"):
        rec.trace.show_tree(span="part")
    with pytest.raises(ValueError, match="there is no span 'parts'; did you mean 'part'"):
        rec.trace.show_tree(span="parts")
