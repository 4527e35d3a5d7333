"""Slices of generators and coroutines: where they begin, end and lie, however exceptions come into them."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import signal
import sys
from collections import Counter

import pytest
import slices_program

import eventprof

pytestmark = pytest.mark.usefixtures("restored")

interrupt = ctypes.pythonapi.PyErr_SetInterruptEx  # returns 0
BATCH = 25


def pytest_generate_tests(metafunc):
    if "first_seed" in metafunc.fixturenames:
        metafunc.parametrize("first_seed", range(0, metafunc.config.getoption("--programs"), BATCH))


@pytest.mark.thorough
def test_random_programs_are_recorded_as_they_ran(backend, first_seed):
    """With ``--programs 10000`` as many. Without C calls 3.11 evaluates the frames itself."""
    for seed in range(first_seed, first_seed + BATCH):
        recorder = eventprof.record(memory=False, c_calls=seed % 4 != 3, backend=backend)

        reference = slices_program.run(slices_program.text_of(seed), recorder)

        found = slices_program.difference(recorder.trace, reference)
        assert not found, f"slices_program.text_of({seed}): {found}"
        checked = recorder.trace.verify(all=True)
        assert checked.ok, f"slices_program.text_of({seed}): {checked}"


@pytest.mark.thorough
def test_random_programs_are_counted_as_they_are_recorded():
    @contextlib.contextmanager
    def beside():
        with counter, recorder:
            yield

    for seed in range(BATCH):
        counter, recorder = eventprof.count(memory=False), eventprof.record(memory=False)

        slices_program.run(slices_program.text_of(seed), beside())

        counted: Counter = Counter()
        for row in counter.functions:
            if row.file == slices_program.FILE:
                counted.update({(row.name, "call"): row.calls, (row.name, "resume"): row.resumes})
        calls = recorder.trace.calls
        recorded = Counter(
            (name, "call" if kind == "call" else "resume")
            for name, kind, file in zip(calls["name"], calls["kind"], calls["file"], strict=True)
            if file == slices_program.FILE
        )
        assert +counted == recorded, f"slices_program.text_of({seed})"


# ---- An exception comes into a generator, and on its way out into another --------------------------


def work():
    return None


@contextlib.contextmanager
def transaction():
    try:
        yield
    finally:
        work()


def bare():
    yield


def in_manager():
    with transaction():
        yield


def in_managers():
    with transaction(), transaction():
        yield


def in_closing():
    generator = bare()
    next(generator)
    with contextlib.closing(generator):
        yield


def closes_at_last():
    generator = bare()
    next(generator)
    try:
        yield
    finally:
        generator.close()


def raises_another():
    try:
        yield
    except BaseException:
        with transaction():
            raise KeyError from None


def delegates():
    with transaction():
        yield from in_managers()


def deeply(n=100):
    with contextlib.closing(deeply(n - 1)) if n else contextlib.nullcontext() as inner:
        if inner is not None:
            next(inner)
        yield


def throw(made):
    made.pop().throw(KeyError)


def close(made):
    made.pop().close()


def drop(made):
    made.pop()


def leave(function, how):
    for _ in range(3):
        made = [function()]
        next(made[0])
        with contextlib.suppress(KeyError):
            how(made)
        work()


def names(trace):
    return [name.rpartition(".")[2] for name in trace.calls["name"]]


def check(trace, unmatched=0):
    """Every call inside of leave() has ended, and work() lies in the function that called it."""
    calls, found = trace.calls, names(trace)
    top = found.index("leave")
    for row in range(top + 1, len(found)):
        if calls["depth"][row] <= calls["depth"][top]:
            break
        assert calls["flags"][row] & (2 | 16) == 0, (found[row], row)
    functions = [name.rpartition(".")[2] for name in trace.functions["name"]]
    for row, name in enumerate(found):
        if name == "work":
            assert found[calls["parent"][row]] == functions[calls["caller"][row]]
    assert trace.pairing["unmatched_ends"] <= unmatched
    checked = trace.verify(all=True)
    assert checked.ok, checked


OPTIONS = [
    {},
    {"c_calls": False},
    {"max_depth": 10_000},
    {"memory": True},
    {"exclude": ["contextlib"]},
]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("how", [throw, close, drop])
@pytest.mark.parametrize(
    "function",
    [bare, in_manager, in_managers, in_closing, closes_at_last, raises_another, delegates, deeply],
)
def test_what_an_exception_ends_has_ended(backend, function, how, options):
    with eventprof.record(**{"memory": False, "backend": backend, **options}) as recorder:
        leave(function, how)

    check(recorder.trace)
    calls = recorder.trace.calls
    work_of_leave = [
        depth
        for name, depth, caller in zip(
            names(recorder.trace), calls["depth"], calls["caller"], strict=True
        )
        if name == "work" and recorder.trace.functions["name"][caller].endswith("leave")
    ]
    assert len(work_of_leave) == 3
    assert len(set(work_of_leave)) == 1, work_of_leave


class Suspends:
    def __await__(self):
        yield


class Manager:
    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await Suspends()


async def suspends_in_exit():
    async with Manager():
        yield


def test_an_exception_that_leaves_a_later_slice_ends_it(backend):
    """It leaves as if from the yield where it was thrown in: Manager.__aexit__() suspends meanwhile."""

    def leave():
        for _ in range(3):
            made = suspends_in_exit()
            with contextlib.suppress(StopIteration):
                made.asend(None).send(None)
            thrown = made.athrow(KeyError())
            thrown.send(None)
            with contextlib.suppress(KeyError):
                thrown.send(None)
            work()

    with eventprof.record(memory=False, backend=backend) as recorder:
        leave()
    check(recorder.trace)
    assert names(recorder.trace).count("suspends_in_exit") == 9


def handles():
    with contextlib.suppress(KeyError, GeneratorExit):
        yield


def delegates_on():
    yield from handles()
    work()
    yield from handles()
    work()
    yield


def delegates_on_from_two():
    yield from delegates_on()
    work()


def ends_with_it():
    yield from handles()


def goes_on_from_two():
    yield from ends_with_it()
    work()


async def handles_in_task():
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(60)


async def goes_on_in_task():
    await handles_in_task()
    work()


async def cancels():
    task = asyncio.create_task(goes_on_in_task())
    await asyncio.sleep(0)
    task.cancel()
    await task


def leave_by(how):
    if how == "task":
        asyncio.run(cancels())
    else:
        generator = how()
        next(generator)
        for _ in range(3):
            with contextlib.suppress(StopIteration, KeyError):
                generator.throw(KeyError)
    work()


@pytest.mark.parametrize("options", [*OPTIONS, {"exclude": ["*.handles*"]}], ids=str)
@pytest.mark.parametrize(
    ("how", "slices"),
    [
        (delegates_on, 4),
        (delegates_on_from_two, 2),
        (ends_with_it, 2),
        (goes_on_from_two, 2),
        ("task", 2),
    ],
)
def test_what_delegates_goes_on_where_the_inner_one_has_handled_the_exception(
    backend, how, slices, options
):
    """3.11 resumes it then without a report."""

    def leave():
        leave_by(how)
        work()

    with eventprof.record(**{"memory": False, "backend": backend, **options}) as recorder:
        leave()

    check(recorder.trace)
    found, depth = names(recorder.trace), recorder.trace.calls["depth"]
    assert found.count("goes_on_in_task" if how == "task" else how.__name__) == slices
    assert depth[len(found) - 1 - found[::-1].index("work")] == depth[found.index("leave")] + 1


def test_unwinds_alone_are_all_recorded(backend):
    """The recorder does not ask for throws, on which it depends whether an unwind counts."""
    with eventprof.record(memory=False, events=["unwind"], backend=backend) as recorder:
        leave(in_manager, throw)

    unwound = [row.name.rpartition(".")[2] for row in recorder.trace.events]
    assert unwound.count("transaction") == unwound.count("in_manager") == 3


# ---- Begins that were not reported ------------------------------------------------------------------


@pytest.fixture
def raising_handler():
    before = signal.getsignal(signal.SIGUSR1)

    def handler(*_):
        raise KeyError

    signal.signal(signal.SIGUSR1, handler)
    yield
    signal.signal(signal.SIGUSR1, before)


def stays():
    while True:
        with contextlib.suppress(ValueError):
            yield


def resumes_itself(inner=None):
    """The slice around is of the same function: an end too many would end it."""
    yield
    if inner is not None:
        list(zip(map(interrupt, [signal.SIGUSR1]), inner, strict=False))
    work()
    yield


@pytest.mark.parametrize("times", [0, 1, 100])
def test_a_slice_that_a_handler_ends_at_its_begin_is_not_taken_for_a_thrown_one(
    backend, raising_handler, times
):
    """The exception that was thrown before was handled: that slice has ended."""

    def leave():
        generator = stays()
        next(generator)
        for _ in range(times):
            generator.throw(ValueError)
        with contextlib.suppress(KeyError):
            list(zip(map(interrupt, [signal.SIGUSR1]), generator, strict=False))
        work()
        with contextlib.suppress(KeyError):
            inner, outer = resumes_itself(), None
            next(inner)
            outer = resumes_itself(inner)
            next(outer)
            next(outer)
        work()

    with eventprof.record(memory=False, backend=backend) as recorder:
        leave()

    check(recorder.trace)


@pytest.mark.skipif(
    sys.version_info < (3, 13), reason="3.12 reports such unwinds without the throw"
)
@pytest.mark.parametrize("id", [0, 5])
def test_another_tool_raises_where_an_exception_is_thrown_in(id):
    """The interpreter does not report the throw to later tools."""
    monitoring = sys.monitoring

    def on_throw(code, offset, error):
        if code is in_manager.__code__:
            raise KeyError

    monitoring.use_tool_id(id, "test")
    try:
        monitoring.register_callback(id, monitoring.events.PY_THROW, on_throw)
        monitoring.set_events(id, monitoring.events.PY_THROW)
        with eventprof.record(memory=False, backend="monitoring") as recorder:
            leave(in_manager, throw)
    finally:
        monitoring.set_events(id, 0)
        monitoring.register_callback(id, monitoring.events.PY_THROW, None)
        monitoring.free_tool_id(id)

    check(recorder.trace)


# ---- A recorder starts meanwhile ----------------------------------------------------------------------


def delegates_late(late):
    yield from late()


def handles_late(late):
    try:
        yield from late()
    except KeyError:
        work()
    yield


def inside_two(late):
    yield from handles_late(late)


@pytest.mark.parametrize("outer", [lambda late: late(), delegates_late, handles_late, inside_two])
@pytest.mark.parametrize("beside", [None, {}, {"exclude": ["*late*"]}], ids=str)
def test_a_recorder_starts_in_a_slice_that_was_thrown_into(backend, beside, outer):
    """What delegates to the slice is among the thread's frames meanwhile, and does not run."""
    recorder = eventprof.record(memory=False, backend=backend)
    first = eventprof.record(memory=False, backend=backend, **(beside or {}))

    def late():
        try:
            yield
        finally:
            recorder.start()
            with transaction():
                work()

    def leave():
        generator = outer(late)
        next(generator)
        with contextlib.suppress(KeyError):
            generator.throw(KeyError)
        work()

    with first if beside is not None else contextlib.nullcontext():
        leave()
        recorder.stop()

    # The C call of throw() was open when the recorder started: it may see the end of it.
    check(recorder.trace, unmatched=1)
    assert names(recorder.trace).count("late") == 1


def test_a_recorder_starts_in_a_slice_that_handles_what_was_thrown(backend):
    recorder = eventprof.record(memory=False, backend=backend)

    def late():
        with contextlib.suppress(KeyError):
            yield
        recorder.start()
        work()

    def leave():
        generator = inside_two(late)
        next(generator)
        generator.throw(KeyError)
        work()

    leave()
    recorder.stop()

    check(recorder.trace, unmatched=1)
    assert "handles_late" in names(recorder.trace)


def test_what_a_stop_left_open_is_forgotten(backend):
    recorder = eventprof.record(memory=False, backend=backend)

    def stops():
        try:
            yield
        finally:
            recorder.stop()
            work()

    generator = stops()
    next(generator)
    recorder.start()
    with contextlib.suppress(KeyError):
        generator.throw(KeyError)
    recorder.start()
    leave(in_manager, throw)
    recorder.stop()

    check(recorder.trace)


def test_slices_of_greenlets(backend):
    greenlet = pytest.importorskip("greenlet")

    def switching():
        try:
            yield
        finally:
            work()
            greenlet.getcurrent().parent.switch()
            work()

    def leave():
        made = [greenlet.greenlet(lambda: throws(switching())) for _ in range(3)]
        for _ in range(3):
            for each in made:
                each.switch()

    def throws(generator):
        next(generator)
        with contextlib.suppress(KeyError):
            generator.throw(KeyError)
        work()

    with eventprof.record(memory=False, backend=backend) as recorder:
        leave()

    assert recorder.trace.verify()
    flags = [
        flag
        for name, flag in zip(names(recorder.trace), recorder.trace.calls["flags"], strict=True)
        if name == "switching"
    ]
    assert len(flags) == 6
