"""A program with every way that Python code gets called. Deterministic; run() may be repeated.

Every function says see() when it is entered: SEEN is then what a callee finds in sys._getframe(1).
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import gc
import itertools
import operator
import sys
import threading
import weakref

SEEN: list[tuple[str, str | None, int]] = []


def see():
    frame = sys._getframe(1)
    back = frame.f_back
    SEEN.append(
        (frame.f_code.co_qualname, back and back.f_code.co_qualname, back.f_lineno if back else -1)
    )


# ---- Operators, conversions, containers: called by the interpreter, by C, by other dunders -----------


class Number:
    def __init__(self, value=0):
        see()
        self.value = value

    def __repr__(self):
        see()
        return "N"

    def __str__(self):
        see()
        return "n"

    def __format__(self, spec):
        see()
        return format(self.value, spec)

    def __bytes__(self):
        see()
        return b"n"

    def __hash__(self):
        see()
        return 7

    def __bool__(self):
        see()
        return True

    def __eq__(self, other):
        see()
        return self is other

    def __lt__(self, other):
        see()
        return self.value < other.value

    def __le__(self, other):
        see()
        return not other < self

    def __call__(self, *args, **keywords):
        see()
        return self

    def __len__(self):
        see()
        return 2

    def __length_hint__(self):
        see()
        return 3

    def __getitem__(self, key):
        see()
        if isinstance(key, int) and key > 2:
            raise IndexError
        return key

    def __setitem__(self, key, value):
        see()

    def __delitem__(self, key):
        see()

    def __contains__(self, item):
        see()
        return True

    def __missing__(self, key):
        see()
        return key

    def __reversed__(self):
        see()
        return iter([1])

    def __enter__(self):
        see()
        return self

    def __exit__(self, *error):
        see()
        return True

    def __copy__(self):
        see()
        return self

    def __deepcopy__(self, memo):
        see()
        return self

    def __reduce__(self):
        see()
        return Number, (1,)

    def __dir__(self):
        see()
        return ["b", "a"]

    def __sizeof__(self):
        see()
        return 10

    def __index__(self):
        see()
        return 3

    def __round__(self, digits=None):
        see()
        return 1

    def __floor__(self):
        see()
        return 1

    def __fspath__(self):
        see()
        return "."

    @classmethod
    def __class_getitem__(cls, key):
        see()
        return cls


def _make(name, result):
    def method(self, *args):
        see()
        return result

    method.__name__ = name
    method.__qualname__ = f"Number.{name}"
    method.__code__ = method.__code__.replace(co_name=name, co_qualname=f"Number.{name}")
    setattr(Number, name, method)


for _name in [
    "add",
    "radd",
    "iadd",
    "sub",
    "rsub",
    "isub",
    "mul",
    "rmul",
    "imul",
    "matmul",
    "truediv",
    "floordiv",
    "mod",
    "divmod",
    "pow",
    "rpow",
    "lshift",
    "rshift",
    "and",
    "or",
    "xor",
    "neg",
    "pos",
    "abs",
    "invert",
]:
    _make(f"__{_name}__", 5)
_make("__int__", 1)
_make("__float__", 1.0)
_make("__complex__", 1j)
_make("__trunc__", 1)
_make("__ceil__", 1)


def operators():
    see()
    a, b = Number(1), Number(2)
    import math
    import os

    out = [
        a + b,
        1 + b,
        a - b,
        1 - b,
        a * b,
        1 * b,
        a @ b,
        a / b,
        a // b,
        a % b,
        divmod(a, b),
        a**b,
        1**b,
        a << b,
        a >> b,
        a & b,
        a | b,
        a ^ b,
        -a,
        +a,
        abs(a),
        ~a,
        int(a),
        float(a),
        complex(a),
        math.trunc(a),
        math.ceil(a),
        math.floor(a),
        round(a),
        operator.index(a),
        hex(a),
        bin(a),
        [0] * 4,
    ]
    c = a
    c += b
    c = a
    c -= b
    c = a
    c *= b
    out += [
        str(a),
        repr(a),
        f"{a}",
        f"{a!r:>3}",
        format(a, "d"),
        "%s %r" % (a, a),
        bytes(a),
        hash(a),
        bool(a),
        not a,
        a == b,
        a != b,
        a < b,
        a > b,
        a <= b,
        b >= a,
        len(a),
        a[0],
        a[1:2],
        list(a),
        reversed(a),
        3 in a,
        a(1, k=2),
        a(*[1], **{"k": 2}),
        Number[int],
        [0, 1, 2, 3][a],
        dir(a),
        sys.getsizeof(a),
        copy.copy(a),
        copy.deepcopy(a),
        copy.copy([a]),
        os.fspath(a),
        operator.length_hint(a),
    ]
    a[1] = 2
    del a[1]
    with a as entered:
        entered(1)
        raise ValueError
    if a and (b or a):
        {a: 1, b: 2}
    sorted([b, a])
    sorted([b, a, b], key=lambda number: (see(), number.value)[1])
    min(a, b), max([a, b], key=Number.__len__)
    print(a, b, file=Sink())
    return len(out)


class Sink:
    def write(self, text):
        see()

    def flush(self):
        see()


# ---- Attributes, descriptors, metaclasses ------------------------------------------------------------


class Descriptor:
    def __get__(self, instance, owner):
        see()
        return 1

    def __set__(self, instance, value):
        see()

    def __delete__(self, instance):
        see()

    def __set_name__(self, owner, name):
        see()


class Meta(type):
    @classmethod
    def __prepare__(mcs, name, bases, **keywords):
        see()
        return {}

    def __new__(mcs, name, bases, namespace, **keywords):
        see()
        return super().__new__(mcs, name, bases, namespace)

    def __init__(cls, name, bases, namespace, **keywords):
        see()
        super().__init__(name, bases, namespace)

    def __call__(cls, *args):
        see()
        return super().__call__(*args)

    def __instancecheck__(cls, instance):
        see()
        return True

    def __subclasscheck__(cls, other):
        see()
        return True

    def __iter__(cls):
        see()
        return iter(())

    @property
    def title(cls):
        see()
        return "title"


class Base:
    def __init_subclass__(cls, **keywords):
        see()
        super().__init_subclass__()

    def __mro_entries__(self, bases):
        see()
        return (Base,)


def attributes():
    see()

    class Made(Base, metaclass=Meta, flag=1):
        see()
        field = Descriptor()

        def __new__(cls, *args):
            see()
            return super().__new__(cls)

        def __init__(self, *args):
            see()
            self.slot = args

        def __getattribute__(self, name):
            see()
            return super().__getattribute__(name)

        def __getattr__(self, name):
            see()
            if name == "absent":
                raise AttributeError(name)
            return name

        def __setattr__(self, name, value):
            see()
            super().__setattr__(name, value)

        def __delattr__(self, name):
            see()
            super().__delattr__(name)

        @property
        def prop(self):
            see()
            return self.slot

        @prop.setter
        def prop(self, value):
            see()

        @staticmethod
        def static():
            see()

        @classmethod
        def of_class(cls):
            see()

        @functools.cached_property
        def cached(self):
            see()
            return 1

        @functools.lru_cache(maxsize=2)
        def memo(self, x):
            see()
            return x

    class Derived(Base()):
        see()

    made = Made(1)
    made.field, made.prop, made.other, made.cached, made.cached
    made.field = 2
    made.prop = 3
    made.attribute = 4
    del made.attribute, made.field
    getattr(made, "absent", None), hasattr(made, "absent"), setattr(made, "x", 1)
    made.static(), made.of_class(), Made.of_class(), Made.static()
    made.memo(1), made.memo(1), made.memo(2)
    isinstance(3, Made), issubclass(int, Made), list(Made), Made.title
    vars(made)
    type("Typed", (Base,), {"descriptor": Descriptor()})
    functools.partial(Made.static)(), functools.partial(made.of_class)()
    operator.attrgetter("prop", "field")(made)
    operator.methodcaller("static")(made)
    super(Made, made).__init__
    return Derived


# ---- Functions: forms of calls -------------------------------------------------------------------------


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


# ---- Generators ------------------------------------------------------------------------------------------


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


# ---- async -----------------------------------------------------------------------------------------------


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


# ---- Garbage, weak references, hooks -------------------------------------------------------------------------


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


# ---- Threads ---------------------------------------------------------------------------------------------------


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


# ---- Late code ---------------------------------------------------------------------------------------------------

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
