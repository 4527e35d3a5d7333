"""What events of small, fixed programs cost in instructions. Runs under callgrind, started by
guard.py; writes how many events each part has to stdout as JSON.

Each program is measured as the recorder and as the empty hook of the same mechanism see it, for n
turns and for 2n. Some copies of it: their objects lie elsewhere, at other distances, and so do
their entries in the tables of names and sites, where now and then two collide.
"""

from __future__ import annotations

import functools
import gc
import json
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

import tools

import eventprof

COPIES = 5
TURNS = 400

CALLS = {
    "Python function": "def f():\n pass\ndef run(n):\n for _ in range(n): f()",
    "method": """
class Counter:
    def add(self):
        pass
def run(n):
    counter = Counter()
    for _ in range(n): counter.add()
""",
    "generator": """
def count(n):
    for i in range(n): yield None
def run(n):
    for _ in count(n): pass
""",
    "C function": "def run(n):\n items = [1]\n for _ in range(n): len(items)",
    "C method": "def run(n):\n items = [1]\n for _ in range(n): items.count(2)",
    "class": "def run(n):\n for _ in range(n): object()",
}
ALLOCATIONS = {
    "object": "def run(n):\n for _ in range(n): object()",
    "list": "def run(n):\n for _ in range(n): [None] * 100",
    "dict": "def run(n):\n for i in range(n): {'a': i, 'b': i, 'c': i, 'd': i, 'e': i, 'f': i}",
    "string": "def run(n):\n text = 'x' * 50\n for _ in range(n): text + 'y'",
    "realloc": "def run(n):\n items = []\n for i in range(n): items.append(None)",
}
BOTH = {
    "calls and blocks": """
def make(i):
    return [None] * 100, str(i)
def run(n):
    for i in range(n): make(i)
""",
}

INSIDE = {"statements": "def run(n):\n for i in range(n):\n  a = i\n  b = a + 1\n  a = b"}

# What eventprof is asked for, and what of the others' ways it is held against.
MIXES: dict[str, tuple[str, dict[str, str]]] = {
    "calls": ("calls", CALLS),
    "calls, profile": ("calls", CALLS),
    "python calls": ("python", {name: CALLS[name] for name in ("Python function", "generator")}),
    "allocations": ("allocations", ALLOCATIONS),
    "both": ("calls+allocations", BOTH),
    "counting": ("calls", CALLS),
    "counting both": ("calls+allocations", BOTH),
    "lines": ("lines", INSIDE),
    "instructions": ("instructions", INSIDE),
}

# What starts and stops. Of each a new recorder, and one that has events of an earlier window: as
# many as fill some chunks.
STARTS = ("calls", "allocations")
STARTS_COPIES = 2
EVENTS_BEFORE = 250_000

_between: list[CodeType] = []


def _moved(code: CodeType, copy: int) -> CodeType:
    """Copy the code and what is defined in it, each `copy` objects further from the one before."""
    parts = tuple(_moved(each, copy) if isinstance(each, CodeType) else each
                  for each in code.co_consts)  # fmt: skip
    _between.extend(code.replace() for _ in range(copy))
    return code.replace(co_consts=parts)


def _compiled(source: str, copy: int) -> Callable[[int], object]:
    scope: dict[str, Any] = {}
    exec(_moved(compile(source, "<string>", "exec"), copy), scope)
    return scope["run"]


def _measure_starts(kinds: str, parts: list[dict[str, Any]]) -> None:
    """Count what one start with its stop takes: of a new recorder, and of one that has events."""

    def nothing(_: Any) -> None:
        pass

    def start_and_stop(recorder: Any) -> None:
        recorder.start()
        recorder.stop()

    def make_events() -> None:
        for _ in range(EVENTS_BEFORE // 2):
            object()

    for copy in range(STARTS_COPIES):
        new, used = (tools.recorder(kinds) for _ in range(2))
        start_and_stop(used)
        with used:
            make_events()
        for path, recorder in (("a new recorder", new), ("once more", used)):
            for times, run in ((1, nothing), (2, start_and_stop)):
                tools.hooks.measure(f"part {len(parts)} {times}", run, recorder)
            name = f"start and stop, {kinds}: {path}"
            parts.append({"path": name, "empty": False, "copy": copy, "events": 1})


def main() -> None:
    first = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    known = tools.own()
    parts: list[dict[str, Any]] = []
    gc.disable()
    for mix, (kinds, programs) in MIXES.items():
        if mix not in known:
            continue
        backend = "profile" if mix.endswith("profile") else "auto"
        for name, source in programs.items():
            copies = [_compiled(source, first + copy) for copy in range(COPIES)]
            turns = TURNS * 5 if name == "realloc" else TURNS
            events = [
                tools.count_events(kinds, functools.partial(copies[0], n), backend)
                for n in (turns, 2 * turns)
            ]
            if events[0] == events[1]:
                continue  # PyEval_SetProfile does not see classes
            for tool in (mix, tools.EMPTY[mix]):
                for copy, run in enumerate(copies):
                    with known[tool]():
                        run(turns)  # specialised, instrumented, named
                        for times in (1, 2):
                            part = f"part {len(parts)} {times}"
                            tools.hooks.measure(part, run, times * turns)
                    parts.append(
                        {
                            "path": f"{mix}: {name}",
                            "empty": tool != mix,
                            "copy": copy,
                            "events": events[1] - events[0],
                        }
                    )
    for kinds in STARTS:
        _measure_starts(kinds, parts)
    with eventprof.record(memory=False) as recorder:
        pass
    json.dump({"clock": recorder.clock, "parts": parts}, sys.stdout)


if __name__ == "__main__":
    main()
