"""Programs that do the same each time, and what the interpreter's own hook tells of them."""

import sys
from collections import Counter


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def steps(n):
    for step in range(n):
        got = yield step
        if got:
            yield got


def delegating(n):
    yield from steps(n)
    return n


def raising(depth):
    if depth == 0:
        raise ValueError("at the bottom")
    raising(depth - 1)


def raising_generator():
    yield 1
    raise KeyError("in a generator")


def through():
    yield from raising_generator()


class Node:
    def __init__(self, value):
        self.value = value
        self.below = []

    def add(self, node):
        self.below.append(node)
        return node

    def total(self):
        return self.value + sum([node.total() for node in self.below])


async def answer(value):
    return value


async def asks(n):
    return sum([await answer(value) for value in range(n)])


def run(coroutine):
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value


def everything():
    fib(9)
    list(steps(5))
    generator = delegating(4)
    next(generator)
    generator.send("sent")
    list(generator)
    for _ in range(3):
        try:
            raising(4)
        except ValueError:
            pass
    try:
        list(through())
    except KeyError:
        pass
    top = Node(1)
    for value in range(7):
        top.add(Node(value)).add(Node(value))
    top.total()
    run(asks(6))
    for missing in ("x", "y"):
        try:
            [].index(missing)
        except ValueError:
            pass
    ",".join(["a", "b"]), abs(-1), len([1]), {}.get(1)
    unfinished = steps(3)
    next(unfinished)


def name_of(what):
    """As the functions table calls it."""
    return getattr(what, "co_qualname", None) or what.__qualname__


def counted_by_profile(program):
    """What sys.setprofile tells: {(event, function): count}."""
    seen = []

    def hook(frame, event, arg):
        what = frame.f_code if event in ("call", "return") else getattr(arg, "__func__", arg)
        seen.append((event, what))

    sys.setprofile(hook)
    program()
    sys.setprofile(None)
    here = (counted_by_profile.__code__, sys.setprofile)
    return Counter((event, name_of(what)) for event, what in seen if what not in here)


WORDS = {"resume": "call", "throw": "call", "yield": "return", "unwind": "return"}


def counted(trace):
    """Count a trace's events by word and function, as `counted_by_profile` does."""
    rows = zip(trace.events["event"], trace.events["name"], strict=True)
    return Counter((WORDS.get(event, event), name) for event, name in rows
                   if not event.startswith(("jit_", "gc_")))  # fmt: skip
