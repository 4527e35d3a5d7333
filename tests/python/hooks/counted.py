"""Calls as cProfile counts them, and the programs whose calls are compared."""

from __future__ import annotations

import cProfile
import re
from collections import Counter

import nasty
import programs

# 3.15 does not tell the owner of some.
METHOD = re.compile(r"<method '(?P<name>[^']+)'(?: of '(?P<owner>[^']+)' objects)?>")
# Of a subclass that overrides the C method it calls, cProfile shows the override.
OVERRIDE = re.compile(r"<function (?:.+\.)?(?P<name>[^.]+) at .*>")
NEW = re.compile(r"<built-in method __new__ of type object at .*>")
BUILTIN = re.compile(r"<built-in method (?:(?P<owner>.+)\.)?(?P<name>[^.]+)>")


def cprofile_counts(run) -> tuple[Counter, Counter]:
    profiler = cProfile.Profile()
    profiler.enable()
    run()
    profiler.disable()
    python: Counter = Counter()
    builtin: Counter = Counter()
    for entry in profiler.getstats():
        if not isinstance(entry.code, str):
            code = entry.code
            python[code.co_filename, code.co_firstlineno, code.co_qualname] += entry.callcount
        elif "_lsprof" not in entry.code:
            builtin[of_text(entry.code)] += entry.callcount
    return python, builtin


def of_text(text: str) -> tuple[str | None, str]:
    """(owner or module, name) of a C function as cProfile writes it; the owner may be unknown."""
    if NEW.match(text):
        return None, "__new__"
    if match := OVERRIDE.match(text):
        return None, match["name"]
    match = METHOD.match(text) or BUILTIN.match(text)
    assert match is not None, text
    owner = match["owner"]
    return owner.rpartition(".")[2] if owner else None, match["name"]


def without_waits(rows):
    """Whether Thread.start() finds that its thread has begun, or waits for it, is chance."""
    depth = 0
    for row in rows:
        change = (row.word in OPENS) - (row.word in CLOSES)
        if depth > 0:
            depth += change
        elif row.name == "Event.wait" and row.word in OPENS:
            depth = 1
        else:
            yield row


OPENS = {"call", "resume", "throw", "c_call"}
CLOSES = {"return", "yield", "unwind", "c_return", "c_exception"}
PROGRAMS = {**programs.ALL, "nasty": lambda: nasty.run}
SMALL = [name for name in PROGRAMS if name not in ("richards", "ast", "raytrace", "go")]
