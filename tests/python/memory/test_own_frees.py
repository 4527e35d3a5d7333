"""Blocks of the program that eventprof's own code frees are events: otherwise an address would be allocated twice without a free."""

from __future__ import annotations

import asyncio
import gc
import threading

import numpy as np
import pytest
import raw
from running import alone

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


def drop_a_string_on_a_new_thread():
    """A thread's first event has us look up its name, which drops a name of the main thread's."""
    thread = threading.Thread(target=leaf)
    fill_type_cache()
    thread.start()
    thread.join()
    names_of_that_size()


def test_a_lookup_of_ours_frees_a_string_of_the_programs(backend):
    with eventprof.record(backend=backend) as rec:
        for _ in range(4):
            drop_a_string_on_a_new_thread()

    found = rec.trace.verify()
    assert found, found
    assert rec.trace.pairing["frees_lost"] == 0


@pytest.mark.skipif(raw.HAS_GIL, reason="with a GIL any thread may free any object")
def test_what_queues_a_string_for_its_thread_is_freed_there():
    """The thread takes a chunk of memory for the queue, which the main thread frees as the program."""
    gc.disable()
    try:
        with eventprof.record() as rec:
            for _ in range(10):
                drop_a_string_on_a_new_thread()
    finally:
        gc.enable()

    found = rec.trace.verify()
    assert found, found
    events = rec.trace.events
    frees = (np.asarray(events["domain"]) == "raw") & (np.asarray(events["event"]) == "free")
    # One may be of a chunk that the main thread kept before; of the others each has its allocation.
    assert (frees & np.ma.getmaskarray(events["size"])).sum() <= 2


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


def length_far_down():
    """A call so far from the start of its function that 3.12 and 3.13 make an int of the offset, for each event."""
    scope: dict[str, object] = {}
    exec("def length(x):\n" + "    a = x\n" * 400 + "    return len(x)", scope)
    return scope["length"]


@pytest.mark.thorough
@alone  # frees of what earlier tests left, by the collector or by caches of the interpreter, would count
def test_ints_of_offsets_do_not_replace_tables_of_code(backend):
    """3.12 and later: the interpreter's record of what is monitored in code that is not recorded, here our own, dies
    with the code. It is kept out of the trace, and its free is, even if ints lay alike in the table of such blocks."""
    length = length_far_down()
    own = f"{eventprof.__path__[0]}/none.py"
    codes = [compile(f"x = {number}", own, "exec") for number in range(1000)]

    with eventprof.record(backend=backend, on_full="grow") as rec:
        for code in codes:
            exec(code, {})
        kept = []
        for number in range(40_000):  # each int lies elsewhere, in all more than 1 MiB
            kept.append(float(number))
            length(kept)
        codes.clear()
        del code

    events = rec.trace.events
    frees = (np.asarray(events["domain"]) == "mem") & (np.asarray(events["event"]) == "free")
    assert (frees & np.ma.getmaskarray(events["size"])).sum() < 50
