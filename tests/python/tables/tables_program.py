"""What is recorded for the tests of tables, and what they are compared as."""

from __future__ import annotations

import numpy as np

import eventprof

TABLES = ["events", "calls", "allocations", "functions", "threads"]


def leaf(x):
    return len(str(x))


def gen(n):
    for i in range(n):
        yield leaf(i)


def record(n, **arguments):
    odd = "odd = lambda x: [x]"
    scope = {"__name__": "a\udc80b"}
    exec(compile(odd, "a file\udcff.py", "exec"), scope)
    with eventprof.record(**arguments) as rec:
        list(gen(n))
        scope["odd"](1)
    return rec.trace


def lists(table):
    """Its columns as plain lists, None where unknown: what all others are compared with."""
    plain = {}
    for name in table.columns:
        values = table[name]
        plain[name] = (
            [
                None if null else value
                for value, null in zip(values.data.tolist(), values.mask, strict=True)
            ]
            if isinstance(values, np.ma.MaskedArray)
            else values.tolist()
        )
    return plain


def escaped(plain):
    """Return plain columns with texts that UTF-8 can encode."""
    return {
        name: [
            v.encode("utf-8", "backslashreplace").decode() if isinstance(v, str) else v
            for v in values
        ]
        for name, values in plain.items()
    }
