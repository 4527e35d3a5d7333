"""The collector runs while generators do, beside the hooks: CPython 3.11.0 to 3.11.2 cannot do that by themselves."""

from __future__ import annotations

import gc
import textwrap

import children
import pytest
import raw
from amounts import amount

import eventprof

WAYS = {
    "calls": "eventprof.record(memory=False)",
    "python calls": "eventprof.record(c_calls=False, memory=False)",
    "lines": "eventprof.record(lines=True, memory=False)",
    "everything": "eventprof.record(lines=True)",
    "no gc": "eventprof.record(gc=False)",
    "counts": "eventprof.count()",
}
if raw.HAS_GIL:
    WAYS["profile"] = "eventprof.record(backend='profile', memory=False)"
    WAYS["trace"] = "eventprof.record(backend='trace', lines=True, memory=False)"


def run(program, way, **words):
    """The program ends well and prints `ok`."""
    program = textwrap.dedent(COMMON) + textwrap.dedent(program)
    for word, text in {"WAY": WAYS[way], **words}.items():
        program = program.replace(word, str(text))
    # What is freed is unmapped at once: whoever looks at it later ends by a signal.
    done = children.program(program, flags=["-X", "faulthandler"], MALLOC_MMAP_THRESHOLD_="65536")
    assert done.stdout == "ok\n", done.stderr[-4000:]


# A loop's iterator lies on the generator's stack, below what it resumes with. The loop ends, the iterator goes, and
# then comes a collection, which must not look at where the iterator was.
COMMON = """
    import gc, sys, threading
    import eventprof

    class Large(bytes):
        def __new__(cls, count=3):
            self = super().__new__(cls, 1 << 17)
            self.left = count
            return self

        def __iter__(self):
            return self

        def __next__(self):
            self.left -= 1
            if self.left < 0:
                raise StopIteration
            return self.left

    class Collects:
        def __del__(self):
            gc.collect()
"""

ONE_THREAD = """
    def generator():
        last = Collects()
        for number in Large():
            yield number
        del last
        yield

    class Waits:
        def __await__(self):
            yield

    async def coroutine():
        last = Collects()
        for _ in Large():
            await Waits()
        del last

    async def asynchronous_generator():
        last = Collects()
        for _ in Large():
            await Waits()
            yield
        del last

    async def asynchronous():
        async for _ in asynchronous_generator():
            pass

    def work():
        assert list(generator()) == [2, 1, 0, None]
        for each in coroutine(), asynchronous():
            steps = 0
            try:
                while True:
                    each.send(None)
                    steps += 1
            except StopIteration:
                pass
            assert steps == 3

    def ends(recording):
        last = Collects()
        # Calls need some of the stack's places: the innermost iterators were above.
        for _ in Large(1):
            for _ in Large(1):
                for _ in Large(1):
                    for _ in Large(1):
                        for _ in Large(1):
                            for _ in Large(1):
                                yield
        recording.stop()
        del last

    def callback(phase, info):
        assert phase in ("start", "stop")
        called.append(phase)

    called = []
    recording = WAY
    recording.start()
    work()
    gc.callbacks.append(callback)    # in Python, and after those that are there
    work()
    assert called
    gc.callbacks.remove(callback)
    list(ends(recording))
    assert gc.callbacks == [], gc.callbacks
    with WAY:
        work()
    assert gc.callbacks == [], gc.callbacks
    print("ok")
"""


@pytest.mark.thorough
@pytest.mark.parametrize("way", WAYS)
def test_the_collector_does_not_look_at_what_a_running_generator_had(way):
    run(ONE_THREAD, way)


# While an exception is thrown through generators that delegate, they stand among the frames but do not run: what they
# were suspended with is needed. Collections come before the innermost one begins, while it runs, and after it ended.
THROWN = """
    import asyncio, contextlib

    class Stops(Exception):
        def __init__(self):
            gc.collect()

    class Iterates:
        def __iter__(self):
            return self

        def __next__(self):
            return 1

        def throw(self, *thrown):
            gc.collect()
            raise Stops

    def inner(how):
        last = Collects()
        if how == "ends by an iterator":
            yield from Iterates()
        try:
            yield 1
            yield 2
        except Stops:
            found = [[]]
            gc.collect()
            if how == "yields":
                yield 3
            if how == "returns":
                return 4
            raise
        finally:
            found = [[]]

    def delegates(depth, how):
        for number in Large(1):
            found = yield from (delegates(depth - 1, how) if depth else inner(how))
        gc.collect()
        yield found

    def catches(depth, how):
        try:
            yield from delegates(depth, how)
        except Stops:
            gc.collect()
            yield "caught"

    def work():
        results = {"yields": 3, "returns": 4, "raises": "caught", "ends by an iterator": "caught"}
        for depth in 0, 1, 3:
            for how, expected in results.items():
                for thrown in Stops, Stops():
                    each = catches(depth, how)
                    assert next(each) == 1
                    found = each.throw(thrown)
                    assert found == expected, (depth, how, found)
                    each.close()

        async def waits():
            last = Collects()
            try:
                await asyncio.sleep(60)
            finally:
                gc.collect()
                await asyncio.sleep(0)

        async def cancels():
            task = asyncio.create_task(waits())
            await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

        asyncio.run(cancels())

    gc.disable()
    gc.collect()
    gc.freeze()  # what was imported: no collection need look at it
    for threshold in 1, 3, 700:
        with WAY:
            gc.set_threshold(threshold)
            gc.enable()
            work()
            gc.disable()
    print("ok")
"""


@pytest.mark.thorough
@pytest.mark.parametrize("way", WAYS)
def test_generators_that_an_exception_is_thrown_through_stay_as_they_were_suspended(way):
    run(THROWN, way)


# As in a pool of threads that tokenizes and compiles: generators run on all of them, and a collection comes at each
# allocation.
THREADS = """
    import ast, io, tokenize

    TEXT = "def f(a, *b):\\n    return [x + 1 for x in (a, *b) if x]\\n" * 4

    def generator(depth):
        last = Collects()
        for number in Large(2):
            for number in Large(1):
                yield number
            found = []
        del last
        found = [[]]
        if depth:
            yield from generator(depth - 1)
        found = [[]]

    def work():
        for _ in range(3):
            tokens = [each.string for each in tokenize.generate_tokens(io.StringIO(TEXT).readline)]
            assert tokens.count("def") == 4
            tree = ast.parse(TEXT)
            assert sum(1 for node in ast.walk(tree) if isinstance(node, ast.Return)) == 4
            found = [each for each in generator(5)]
            assert found == [0] * 12, found

    problems = []
    threading.excepthook = problems.append
    gc.collect()
    gc.freeze()  # what was imported: a collection at each allocation need not look at it
    gc.set_threshold(1)
    sys.setswitchinterval(1e-5)
    for _ in range(ROUNDS):
        with WAY:
            threads = [threading.Thread(target=work) for _ in range(3)]
            for each in threads:
                each.start()
            work()
            for each in threads:
                each.join()
    assert not problems, problems
    print("ok")
"""


@pytest.mark.thorough
@pytest.mark.parametrize("way", WAYS)
def test_threads_with_generators_and_the_collector(way):
    run(THREADS, way, ROUNDS=amount(1, 4))


def test_the_cure_is_in_where_it_is_needed_and_nowhere_else():
    before = list(gc.callbacks)

    with eventprof.record(memory=False, gc=False):
        during = list(gc.callbacks)
    with eventprof.record(calls=False, c_calls=False, gc=False):
        without_calls = list(gc.callbacks)

    assert len(during) == len(before) + raw.MENDS_GENERATORS
    assert without_calls == before
    assert gc.callbacks == before


def test_an_evaluator_that_would_miss_calls_stays_out():
    """Before 3.11.4 the interpreter runs a specialised obj[key] without asking it (test_evaluator.py has the others)."""

    class Sequence:
        def __getitem__(self, key):
            return key

    def ask(sequence):
        return [sequence[i] for i in range(100)]

    ask(Sequence())
    with raw.recorder(raw.PYTHON, current_thread=True) as rec:
        ask(Sequence())

    calls = [
        row for row in raw.rows(rec) if row.word == "call" and row.name.endswith("__getitem__")
    ]
    assert len(calls) == 100
