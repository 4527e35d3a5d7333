"""The program whose page is tested, and where its calls are on the page."""

from __future__ import annotations

import threading

import numpy as np

import eventprof

SHIFT = 8


GUTTER, RULER = 150, 22


def leaf(count):
    return [bytes(50 + n) for n in range(count)]


def keep(kept, count):
    kept.append([bytearray(1000 + n) for n in range(count)])


def steps(kept, count):
    for n in range(count):
        leaf(n % 7)
        if n % 40 == 0:
            keep(kept, 3)


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def numbers(count):
    yield from range(count)


def program():
    kept = []
    eventprof.mark("begin")
    threads = [
        threading.Thread(target=steps, args=(kept, 150), name=f"worker_{k}") for k in range(2)
    ]
    with eventprof.span("threads"):
        for thread in threads:
            thread.start()
        steps(kept, 200)
        for thread in threads:
            thread.join()
    for k in range(10):
        eventprof.counter("queue", k % 4)
        sum(numbers(3))
    fib(11)
    kept.clear()
    fib(9)
    return kept


def values(table, name):
    return table._column(name).values()


def rows_on_screen(shown):
    return shown.run(
        "(({app: {timeline: t}, data, state}) => t.drawn.map((d) => ({thread: data.rows[d.row].thread,"
        " depth: data.rows[d.row].depth, y: (d.y + d.end) / 2, v0: state.v0, v1: state.v1, width: t.raster.width})))(eventprofPage)"
    )


def view(shown):
    return shown.run("[eventprofPage.state.v0, eventprofPage.state.v1]")


def place_of(shown, call):
    """The middle of a call on the screen."""
    box = shown.box("#timeline")
    x0, x1, y = shown.run(
        f"(({{x0, x1, y}}) => [x0, x1, y])(eventprofPage.app.timeline.placeOf({call}))"
    )
    return box["x"] + (max(x0, GUTTER) + min(x1, 1398)) / 2, box["y"] + y + 7


def call_of(trace, order, name, which=0):
    """The number on the page of a function's longest call, or of the one after."""
    names = trace.calls["name"][order]
    rows = np.flatnonzero(names == name)
    duration = values(trace.calls, "duration")[order]
    return int(rows[np.argsort(-duration[rows], kind="stable")[which]])


def times_of(trace):
    """Instants: among them those at which something changes, and next to these."""
    changes = values(trace.allocations, "start")
    random = np.random.default_rng(3)
    picked = random.choice(changes, 12)
    return sorted(
        {
            0,
            trace.duration,
            *(int(t) for t in picked),
            *(int(t) - 1 for t in picked if t),
            *(int(t) + 1 for t in picked),
        }
    )


def paths(shown):
    """The flame graph as {a;b;c: value}."""
    return shown.run(
        "(({app, data}) => { const {tree, self} = app.flame.graph; const out = {};"
        " for (let n = 1; n < tree.count; n++) if (self[n]) { const p = [];"
        " for (let u = n; u > 0; u = tree.parent[u]) p.unshift(data.nameOf(tree.func[u]));"
        " out[p.join(';')] = (out[p.join(';')] || 0) + self[n]; } return out; })(eventprofPage)"
    )


def stacks_of_calls(trace):
    calls = trace.calls
    names, parents = list(calls["name"]), values(calls, "parent").tolist()
    found: list[str] = []
    for name, parent in zip(names, parents, strict=True):
        found.append(f"{found[parent]};{name}" if parent >= 0 else name)
    return found


def record_no_memory():
    with eventprof.record(memory=False) as rec:
        fib(5)
    return rec.trace
