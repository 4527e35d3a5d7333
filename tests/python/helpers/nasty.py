"""A program with every way that Python code gets called. Deterministic; run() may be repeated.

Every function says see() when it is entered: SEEN is then what a callee finds in sys._getframe(1).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import itertools
import sys
import threading
import weakref

from nasty_objects import attributes, operators
from nasty_seen import SEEN as SEEN
from nasty_seen import see


def plain(a=None, *args, b=None, **keywords):
    see()
    return a


def deep(n):
    see()
    return deep(n - 1) + 1 if n else 0


def closure():
    see()
    cell = 1

    def inner(x):
        see()
        nonlocal cell
        cell += x
        return lambda: (see(), cell)[1]

    return inner(1)() + inner(2)()


def calls():
    see()
    plain()
    plain(1, 2, 3, b=4, c=5)
    plain(*(1, 2), **{"b": 1})
    plain(
        plain(1),
        plain(2),
    )
    (plain)(1)
    x = [plain(i) for i in range(3)]
    x = {plain(i): plain(i) for i in range(3) if plain(i) is not None}
    x = {plain(i) for i in [plain(1), plain(2)]}
    x = list(plain(i) for i in range(3))
    x = [[plain(i) for i in range(j)] for j in range(3)]
    x = list(map(plain, [1, 2])) + list(filter(plain, [1, 0]))
    x = functools.reduce(lambda a, b: (see(), a)[1], [1, 2, 3])
    x = list(itertools.starmap(plain, [(1,), (2,)]))
    x = list(itertools.accumulate([1, 2], lambda a, b: (see(), a + b)[1]))
    list(iter(lambda: (see(), 1)[1], 1))
    "text".translate(Translate())
    [3, 1, 2].sort(key=plain)
    deep(200)
    closure()
    (lambda: see())()
    decorated(1)
    single(1), single("a")
    try:
        plain(raises=raises())
    except ValueError:
        plain()
    finally:
        plain(2)
    try:
        list(map(raises, [1]))
    except ValueError as error:
        str(error)
    eval("plain(1)")
    exec(
        "def made(x):\n    see()\n    return plain(\n        x)\nmade(1)\n[made(i) for i in (1, 2)]",
        globals(),
    )
    exec(compile("see()\n\n\nplain()", "<strange \udcff name>", "exec"), globals())
    import_something()
    return x


class Translate(dict):
    def __missing__(self, key):
        see()
        return key


def wrap(function):
    @functools.wraps(function)
    def wrapper(*args):
        see()
        return function(*args)

    return wrapper


@wrap
@wrap
def decorated(x):
    see()


@functools.singledispatch
def single(x):
    see()


@single.register
def _(x: str):
    see()


def raises(*args):
    see()
    raise ValueError("raised")


def import_something():
    see()
    sys.modules.pop("this_is_nasty", None)
    sys.meta_path.insert(0, Finder())
    try:
        import this_is_nasty

        assert this_is_nasty.value == 1
    finally:
        del sys.meta_path[0]
        sys.modules.pop("this_is_nasty", None)


class Finder:
    def find_spec(self, name, path, target=None):
        see()
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, self) if name == "this_is_nasty" else None

    def create_module(self, spec):
        see()

    def exec_module(self, module):
        see()
        exec("from nasty import see\nsee()\nvalue = (lambda: (see(), 1)[1])()", module.__dict__)


def numbers(n):
    see()
    for i in range(n):
        received = yield i
        see()
        if received:
            yield received
            see()


def delegate(n):
    see()
    result = yield from numbers(n)
    see()
    yield from numbers(1)
    yield from [1, 2]
    return result


def stubborn():
    see()
    while True:
        try:
            yield 1
            see()
        except KeyError:
            see()
            yield 2
            see()
        except GeneratorExit:
            see()
            return
        finally:
            see()


def reraising():
    see()
    try:
        yield 1
    finally:
        see()


def recursive(tree):
    see()
    if tree:
        yield from recursive(tree[0])
        yield tree
        yield from recursive(tree[1])


def empty():
    see()
    return
    yield


def failing():
    see()
    yield 1
    see()
    raise KeyError("inside")


class Iterable:
    def __init__(self):
        see()
        self.left = 3

    def __iter__(self):
        see()
        return self

    def __next__(self):
        see()
        self.left -= 1
        if self.left < 0:
            raise StopIteration
        return self.left


def generators():
    see()
    for _ in numbers(3):
        pass
    list(delegate(2))
    g = numbers(4)
    next(g), g.send(None), g.send(5), next(g)
    g.close()
    g = stubborn()
    next(g)
    g.throw(KeyError("k"))
    next(g)
    g.close()
    g = reraising()
    next(g)
    with contextlib.suppress(KeyError):
        g.throw(KeyError)
    g = reraising()
    next(g)
    del g
    g = numbers(2)
    del g
    g = delegate(3)
    next(g)
    with contextlib.suppress(KeyError):
        g.throw(KeyError("through delegate"))
    list(empty())
    with contextlib.suppress(KeyError):
        list(failing())
    list(recursive((((), ()), ((), ()))))
    a, *b = numbers(3)
    sum(numbers(3)), sorted(numbers(3)), dict(zip(numbers(2), numbers(2))), max(numbers(2))
    plain(*numbers(3))
    for _ in Iterable():
        pass
    list(Iterable()), [*Iterable()], tuple(Iterable())
    1 in Iterable()
    with managed() as m:
        plain(m)
    with contextlib.suppress(ValueError), managed():
        raise ValueError
    list(x for x in (y for y in numbers(2)))
    g = numbers(1)
    with contextlib.suppress(StopIteration):
        while True:
            next(g)
    g = numbers(1)
    with contextlib.suppress(TypeError):
        g.send(1)
    with contextlib.suppress(KeyError):
        g.throw(KeyError)
    try:
        reraising().throw(ValueError("not started"))
    except ValueError:
        plain()


@contextlib.contextmanager
def managed():
    see()
    try:
        yield 1
        see()
    finally:
        see()


class Awaitable:
    def __await__(self):
        see()
        result = yield
        see()
        return result


class AsyncThing:
    async def __aenter__(self):
        see()
        await asyncio.sleep(0)
        see()
        return self

    async def __aexit__(self, *error):
        see()
        await asyncio.sleep(0)
        see()

    def __aiter__(self):
        see()
        self.left = 2
        return self

    async def __anext__(self):
        see()
        if not self.left:
            raise StopAsyncIteration
        self.left -= 1
        await asyncio.sleep(0)
        see()
        return self.left


async def agenerator(n):
    see()
    try:
        for i in range(n):
            await asyncio.sleep(0)
            see()
            yield i
            see()
    finally:
        see()
        await asyncio.sleep(0)
        see()


async def leaf(n):
    see()
    await asyncio.sleep(0)
    see()
    return n


async def failing_leaf():
    see()
    await asyncio.sleep(0)
    see()
    raise KeyError


async def coroutine():
    see()
    await leaf(1)
    see()
    await Awaitable()
    see()
    async with AsyncThing() as thing:
        see()
        async for _ in thing:
            see()
    x = [i async for i in agenerator(3)]
    x = [await leaf(i) for i in range(2)]
    see()
    async for _ in agenerator(5):
        break
    g = agenerator(3)
    await g.__anext__()
    await g.aclose()
    with contextlib.suppress(KeyError):
        await failing_leaf()
    see()
    await asyncio.gather(leaf(1), leaf(2), leaf(3))
    task = asyncio.ensure_future(leaf(5))
    await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    see()
    return x


def asynchronous():
    see()
    never = leaf(0)
    never.close()
    step = coroutine_by_hand()
    step.send(None)
    with contextlib.suppress(KeyError):
        step.throw(KeyError)
    asyncio.run(coroutine())


async def coroutine_by_hand():
    see()
    await Awaitable()


class Cyclic:
    def __init__(self):
        see()
        self.me = self

    def __del__(self):
        see()
        plain()


class Finalized:
    def __del__(self):
        see()


def on_gone(reference):
    see()


def garbage():
    see()
    Finalized()
    x = Finalized()
    x = None
    Cyclic()
    gc.collect()
    y = Finalized()
    reference = weakref.ref(y, on_gone)
    del y
    z = Cyclic()
    weakref.finalize(z, plain, 1)
    reference = weakref.ref(z, on_gone)
    del z
    gc.collect()
    values = weakref.WeakValueDictionary()
    values[1] = w = Finalized()
    del w
    gc.callbacks.append(on_gc)
    gc.collect(0)
    gc.callbacks.remove(on_gc)
    dies_in_return()
    dies_in_frame()
    return x, reference


def on_gc(phase, info):
    see()


def dies_in_return():
    see()
    x = Finalized()
    return 1 if x else 0


def dies_in_frame():
    see()
    x = [Finalized(), Finalized()]
    try:
        raise ValueError(x)
    except ValueError:
        del x


def in_thread(n):
    see()
    plain(n)
    list(numbers(n))
    deep(n)


class Worker(threading.Thread):
    def run(self):
        see()
        in_thread(2)


def threads():
    see()
    worker = threading.Thread(target=in_thread, args=(3,))
    worker.start()
    worker.join()
    worker = Worker(name="nasty worker")
    worker.start()
    worker.join()
    import _thread

    done = _thread.allocate_lock()
    done.acquire()
    _thread.start_new_thread(raw_thread, (done,))
    done.acquire()
    # A generator that goes on elsewhere.
    g = numbers(3)
    next(g)
    worker = threading.Thread(target=next, args=(g,))
    worker.start()
    worker.join()
    next(g)


def raw_thread(done):
    see()
    plain(1)
    done.release()


# Offsets beyond 256 and 65,535: EXTENDED_ARG, boxed offsets.
exec(
    "def late(n):\n    see()\n    x = 0\n"
    + "".join(f"    x = x + {i} if n else x - 1\n" for i in range(400))
    + "    for i in range(n):\n        plain(i)\n        x = len([i])\n        numbers(i)\n"
    + "    return plain(x)\n",
    globals(),
)


def lately():
    see()
    late(5)  # noqa: F821


PARTS = [operators, attributes, calls, generators, asynchronous, garbage, lately, threads]


def run(parts=PARTS):
    for part in parts:
        part()
