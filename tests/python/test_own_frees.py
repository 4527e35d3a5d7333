"""What our own code frees of the program's is an event of the program's: else its address is given out twice."""

from __future__ import annotations

import asyncio
import threading

import pytest

import eventprof

pytestmark = pytest.mark.usefixtures("restored")


def fill_type_cache():
    """The interpreter's cache of attributes holds 4,096 names, each until another takes its place: strings that nobody
    else has. So the next lookup, whoever makes it, frees one of them."""
    # The place depends on the version of the type and on the name's address: one that is taken again and again would
    # fill one place.
    for each in range(4):
        holder = type(f"Holder{each}", (), {})()
        names = names_of_that_size()
        for name in names:
            getattr(holder, name, None)
        del names


def names_of_that_size():
    return [f"{number:030d}" for number in range(8_000)]


def leaf():
    return None


def test_a_lookup_of_ours_frees_a_string_of_the_programs(backend):
    """A thread's first event has us look up its name."""
    with eventprof.record(backend=backend) as rec:
        for _ in range(4):
            thread = threading.Thread(target=leaf)
            fill_type_cache()
            thread.start()
            thread.join()
            names_of_that_size()

    found = rec.trace.verify()
    assert found, found
    assert rec.trace.pairing["frees_lost"] == 0


def test_a_task_of_a_subclass_is_looked_at_in_the_same_way(backend):
    """For each of its steps."""

    class Task(asyncio.tasks._PyTask):  # type: ignore[name-defined, misc]
        pass

    async def steps():
        for _ in range(4):
            fill_type_cache()
            await asyncio.sleep(0)
            names_of_that_size()

    async def main():
        asyncio.get_running_loop().set_task_factory(
            lambda loop, coroutine, **more: Task(coroutine, loop=loop, **more)
        )
        await asyncio.create_task(steps())

    with eventprof.record(backend=backend) as rec:
        asyncio.run(main())

    found = rec.trace.verify()
    assert found, found
    assert rec.trace.pairing["frees_lost"] == 0
