"""What a user event costs, from Python: beside an empty function in C, and beside VizTracer's.

    python benchmarks/marks.py [--rounds 15] [--calls 10000]

Everything in turns, round by round; minima of the thread's own time. Nanoseconds a call, the
loop's own taken off.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable
from typing import Any

import eventprof


def _loop(body: str, **names: Any) -> Callable[[int], float]:
    """Return a function that runs `body` that many times and gives the ns of all runs together."""
    code = (
        "def run(count):\n"
        "    start = clock()\n"
        "    for _ in repeat(None, count):\n"
        f"        {body}\n"
        "    return clock() - start\n"
    )
    space = {"clock": time.thread_time_ns, "repeat": itertools.repeat, **names}
    exec(compile(code, "benchmark", "exec"), space)
    run: Callable[[int], float] = space["run"]
    return run


def _cases() -> dict[str, Callable[[int], float]]:
    from operator import is_  # two arguments, METH_FASTCALL or nearly, and nothing done

    span = eventprof.span("name")
    return {
        "loop": _loop("pass"),
        "empty": _loop("f(a, b)", f=is_, a="name", b=1.5),
        "mark": _loop("f('name')", f=eventprof.mark),
        "counter": _loop("f('name', 1.5)", f=eventprof.counter),
        "flow": _loop("f('name', 7, 'step')", f=eventprof.flow),
        "span": _loop("with f: pass", f=span),
        "span, made": _loop("with f('name'): pass", f=eventprof.span),
    }


def _viztracer() -> tuple[Any, dict[str, Callable[[int], float]]]:
    try:
        from viztracer import VizTracer
    except ImportError:
        return None, {}
    tracer = VizTracer(
        tracer_entries=3_000_000, verbose=0, max_stack_depth=0, ignore_c_function=True
    )
    return tracer, {
        "log_instant": _loop("f('name')", f=tracer.log_instant),
        "log_var": _loop("f('name', 1.5)", f=tracer.log_var),
        "log_event": _loop("with f('name'): pass", f=tracer.log_event),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=10_000)
    given = parser.parse_args()
    cases = _cases()
    tracer, others = _viztracer()
    best: dict[tuple[str, str], float] = {}

    def measure(state: str, some: dict[str, Callable[[int], float]]) -> None:
        for name, run in some.items():
            taken = run(given.calls) / given.calls
            best[state, name] = min(taken, best.get((state, name), taken))

    quiet = {"calls": False, "c_calls": False, "memory": False}
    for _ in range(given.rounds):
        measure("idle", cases)
        with eventprof.record(**quiet):
            measure("recording", cases)
        if tracer is not None:
            tracer.start()
            measure("viztracer", others)
            tracer.stop()
            tracer.clear()
    loop, empty = best["idle", "loop"], best["idle", "empty"] - best["idle", "loop"]
    print(f"Python {sys.version.split()[0]}; ns a call, and times an empty function of C")
    for (state, name), taken in best.items():
        if name not in ("loop",):
            print(f"{state:10} {name:12} {taken - loop:8.1f} {(taken - loop) / empty:8.2f}")


if __name__ == "__main__":
    main()
