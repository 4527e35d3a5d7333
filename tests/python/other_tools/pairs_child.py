"""Two recorders at once, of every two sets of events, and what each of them would have seen alone.

Run by test_pairs.py in a process of its own; prints, as JSON, the sets that there were and what differed.
"""

from __future__ import annotations

import gc
import itertools
import json
import sys

import numpy as np
import raw  # what it loads is not seen then
from amounts import amount

import eventprof
from eventprof import _core

# objects() collects, and need not look at what was imported.
gc.freeze()

BLOCKS = {"malloc", "calloc", "realloc", "realloc_free", "free", "realloc_failed"}
SETS = {
    "calls": {"events": {"call", "return", "c_call", "c_return", "c_exception", "yield", "resume",
                         "throw", "unwind"}},
    "raw": {"events": BLOCKS, "memory": ["raw"]},
    "mem": {"events": BLOCKS, "memory": ["mem"]},
    "obj": {"events": BLOCKS, "memory": ["obj"]},
    "raw and mem": {"events": BLOCKS, "memory": ["raw", "mem"], "numpy": False},
    "numpy": {"events": BLOCKS, "memory": False, "numpy": True},
    "libc": {"events": BLOCKS, "memory": False, "native": True},
    "lines": {"events": {"line"}},
    "instructions": {"events": {"instruction"}},
    "exceptions": {"events": {"raise", "stop_iteration"}},
    "branches": {"events": {"branch", "jump"}},
    "gc": {"events": {"gc_start", "gc_stop", "gc_collected"}},
    "refs": {"events": {"create", "destroy"}},
    "audit": {"events": {"audit"}, "audit": ["pairs.*"]},
    "marks": {"events": {"mark", "span_begin", "span_end", "counter", "flow"}},
}  # fmt: skip
if sys.version_info < (3, 12):
    del SETS["branches"]
if sys.version_info < (3, 13):
    del SETS["refs"]
if "native" not in sys.argv:
    del SETS["libc"]
#: By hooks of functions, which the interpreter calls with objects.
CODE = ("calls", "lines", "instructions", "exceptions", "branches")
SIZE = 12347


class Thing:
    pass


class Ring:
    def __init__(self):
        self.itself = self


def numbers(count):
    with eventprof.span("loose"):
        yield from range(count)


def failing(text):
    if len(text) > 3:
        raise ValueError
    return "".index(text)


def handling(texts):
    found = 0
    for text in texts:
        try:
            failing(text)
        except ValueError:
            found += 1
    return found


def blocks():
    large = bytearray(SIZE)  # of OBJ or MEM, and of RAW inside
    large.extend(large)
    zeros = bytes(3 * SIZE)
    few = [zeros] * 3
    few += [large] * 5 * SIZE
    array = np.ones(SIZE)
    array.resize(2 * SIZE, refcheck=False)
    cells = np.empty((7, SIZE))
    return len(zeros) + len(few) + array.size + cells.size


def objects():
    things = [Thing() for _ in range(7)]
    Ring()
    gc.collect()
    return len(things)


def saying():
    with eventprof.span("saying"):
        eventprof.mark("said")
        eventprof.counter("count", 3)
        eventprof.flow("way", 1, "begin")
    sys.audit("pairs.first")
    sys.audit("others.first")
    return sum(numbers(5))


def work():
    return handling(["x", "long text"]) + blocks() + objects() + saying()


WORK = {
    name: value.__code__.co_firstlineno
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__code__", None) and value.__module__ == __name__
}


def rows(trace):
    """What tells the events of `work` apart, in order, without times and addresses."""
    events, functions = trace.events, trace.functions
    ours = [
        file == __file__ and name.partition(".")[0] in WORK and name != "rows"
        for file, name in zip(functions["file"], functions["name"], strict=True)
    ]
    where = np.where(
        np.ma.getmaskarray(events["caller"]),
        events["function"].filled(-1),
        events["caller"].filled(-1),
    )
    mask = np.array([*ours, False])[where]
    found = events[mask]
    return [
        tuple(None if each is np.ma.masked else each for each in row)
        for row in zip(
            *(found[column].tolist() if hasattr(found[column], "tolist") else found[column]
              for column in ("event", "name", "line", "caller_line", "domain", "size", "offset")),
            strict=True,
        )
    ]  # fmt: skip


def settled():
    """Run the program of another file, which `rows` leaves out: the free lists are as it leaves them."""
    with open(__file__, encoding="utf-8") as file:
        code = compile(file.read(), "settling.py", "exec")
    names = {"__name__": "settling", "__file__": "settling.py"}
    exec(code, names)
    return names["work"]


SETTLE = settled() if __name__ == "__main__" else None


def run():
    for _ in range(3):
        SETTLE()
    work()


def recorder(name):
    return eventprof.record(**SETS[name], on_full="grow", threads="current")


def alone(name):
    rec = recorder(name)
    rec.start()
    run()
    rec.stop()
    return rows(rec.trace)


def together(first, second):
    one, two = recorder(first), recorder(second)
    one.start()
    two.start()
    run()
    two.stop()
    one.stop()
    assert _core.engine_stats()["threads"] > 0
    return rows(one.trace), rows(two.trace)


def leave_out(name, other, found):
    """What another hook does to the program, and this one has to see: doc/recording.rst says so."""
    if other == "gc" and name in ("mem", "obj", "raw and mem"):
        return []  # a dict for gc.callbacks; and the free lists are other ones then
    if name == "refs" and other == "gc":
        line = objects.__code__.co_firstlineno + 3
        return [row for row in found if row[3] != line]
    if name == "branches" and other == "instructions" and sys.version_info >= (3, 14):
        return [row[:-1] for row in found]  # their offsets are others then
    if name == "refs" and other in CODE:
        return [row for row in found if row[1] != "int"]  # offsets, for callbacks
    if sys.version_info >= (3, 14) and name == "branches" and other == "instructions":
        # The interpreter gives the offset of what is after the branch then.
        return [row[:-1] for row in found]
    if sys.version_info < (3, 12) and other in CODE and name == "obj":
        # Frame objects, for the hook, which a traceback need not make any more.
        own = ["failing", "handling", "work"]
        if raw.MENDS_GENERATORS:
            own += [
                "objects",
                "blocks",
            ]  # a dict for gc.callbacks; and what it leaves in the free lists
        return [row for row in found if row[1] not in own]
    return found


def differences(first, second):
    """Of each of two recorders: its name, what it saw beside the other and what alone, if that differs."""
    beside = together(first, second)
    for name, other, found in zip((first, second), (second, first), beside, strict=True):
        found, expected = (leave_out(name, other, each) for each in (found, alone(name)))
        if found != expected:
            more = [row for row in found if found.count(row) > expected.count(row)]
            less = [row for row in expected if found.count(row) < expected.count(row)]
            yield f"{name} of {first}, {second}", [len(found), more[:5], less[:5]]


def main():
    gc.disable()
    for _ in range(30):
        run()
    counts = {name: len(alone(name)) for name in SETS}
    wrong = {}
    for number, pair in enumerate(itertools.combinations_with_replacement(SETS, 2)):
        # Each third, of each interpreter another; with --long all.
        if number % amount(3, 1) != sys.version_info.minor % amount(3, 1):
            continue
        first, second = pair if number % 2 else pair[::-1]
        # Now and then a free list is another one, alone, too. What belongs to somebody else is always there.
        for _ in range(10):
            found = dict(differences(first, second))
            if not found:
                break
        wrong.update(found)
    print(json.dumps({"counts": counts, "wrong": wrong}))


if __name__ == "__main__":
    main()
