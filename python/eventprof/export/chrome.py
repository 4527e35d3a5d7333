"""Chrome trace JSON: a complete event ("X") for each call, counters, marks, flows."""

from __future__ import annotations

import json
import re
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from .. import _core
from ._view import Texts, intern, json_text, microseconds, number, parts_of_rows, utf8

if TYPE_CHECKING:
    from ..tables.column import Array
    from . import Options
    from ._view import View

#: Up to this number, all changes of live memory are written; of more, the largest of each interval.
CHANGES_MAX = 100_000
_INTERVALS = 20_000
_RAISED, _OPEN, _YIELDED = 8, 1 | 2 | 16, 4
_PHASES = {"begin": "s", "step": "t", "end": "f"}


def write(view: View, out: IO[bytes], options: Options) -> None:
    """Write the trace. Times are microseconds since the window's start, with three decimals."""
    out.write(b'{"traceEvents":[\n')
    out.write(_names(view))
    _write_calls(view, out)
    for line in [*_points(view), *_flows(view)]:
        out.write(line.encode())
    memory = _write_memory(view, out)
    out.write(
        b'{"ph":"M","name":"process_sort_index","pid":%d,"args":{"sort_index":0}}\n'
        % view.whole_process
    )
    out.write(b'],\n"displayTimeUnit":"ns","otherData":')
    facts = {
        **{key: value for key, value in view.trace.metadata.items() if key != "areas"},
        # importing/chrome.py relies on the order and the arguments of calls.
        "exported_by": f"eventprof {_core.VERSION}",
        "memory": memory,
        "loss": view.loss,
        "functions": _places(view),
    }
    text = json.dumps(facts, default=str)
    # No text may end with a backslash: see json_text().
    text = re.sub(r"\\(.)", lambda found: "\\u005c" if found[1] == "\\" else found[0], text)
    out.write(text.encode("ascii") + b"}\n")


def _names(view: View) -> bytes:
    # The live bytes of several processes are one curve, of a process of its own.
    all_of_them = [] if len(view.processes) == 1 else [(view.whole_process, "(all processes)")]
    lines = [
        f'{{"ph":"M","name":"process_name","pid":{pid},"args":{{"name":{json_text(title)}}}}},'
        for pid, title in [*all_of_them, *view.processes]
    ]
    for row, (tid, name) in enumerate(zip(view.thread_ids, view.thread_names, strict=True)):
        if view.thread_mask[row]:
            lines.append(
                f'{{"ph":"M","name":"thread_name","pid":{view.pids[row]},"tid":{tid},"args":'
                f'{{"name":{json_text(name)}}}}},'
            )
    return "\n".join([*lines, ""]).encode()


def _write_calls(view: View, out: IO[bytes]) -> None:
    from ..tables.kinds import CALL_WORDS

    names = Texts([json_text(name).encode() for name in view.names])
    threads = Texts(
        [b'%d,"tid":%d' % each for each in zip(view.pids, view.thread_ids, strict=True)]
    )
    kinds = sorted(CALL_WORDS)
    words = Texts([json_text(CALL_WORDS[kind]).encode() for kind in kinds])
    code = np.zeros(max(kinds) + 1, np.int32)
    code[kinds] = np.arange(len(kinds))
    line, (lines,) = intern([view.line], overwrite=True)
    line_texts = Texts([b"null" if each < 0 else b"%d" % each for each in lines.tolist()])
    kind, flags = view.take("kind"), view.take("flags")
    flag_texts = Texts([_flags(bits) for bits in range(32)])
    unknown = len(view.names) - 1
    memory = view.memory if view.has_memory else None
    empty_calls = not all(view.duration[rows].all() for rows in parts_of_rows(len(view)))
    depth = view.depth if empty_calls else None
    for rows in view.blocks():
        function = view.function[rows]
        parts: list[Any] = [
            b'{"ph":"X","name":',
            names.part(np.where(function < 0, unknown, function)),
            b',"cat":',
            words.part(code[kind[rows]]),
            b',"pid":',
            threads.part(view.thread[rows]),
            b',"ts":',
            microseconds(view.start[rows]),
            b',"dur":',
            microseconds(view.duration[rows]),
            b',"args":{"line":',
            line_texts.part(line[rows]),
        ]
        if memory is not None:
            parts.append(("some", memory[0][rows], b',"allocated":'))
            parts.append(("some", memory[1][rows], b',"freed":'))
        if depth is not None:
            # For a call without duration, times do not say which call it is in.
            empty = view.duration[rows] == 0
            level = np.where(empty, depth[rows].astype(np.int64) + 1, 0)
            parts.append(("some", level, b',"depth":'))
        parts.append(flag_texts.part(flags[rows] & 31))
        parts.append(b"}},\n")
        out.write(_core.render_rows(len(function), tuple(parts)))


def _places(view: View) -> list[list[Any]]:
    """Return facts of functions that names of calls do not say; importing/chrome.py reads them."""
    table = view.trace.functions
    rows = zip(
        view.names[:-1], table["name"], table["module"], view.files[:-1], view.first_lines[:-1],
        table["kind"], strict=True,
    )  # fmt: skip
    return [
        [x if x is None or isinstance(x, int) else utf8(x).decode() for x in row] for row in rows
    ]


def _flags(bits: int) -> bytes:
    text = b',"raised":true' if bits & _RAISED else b""
    text += b',"yielded":true' if bits & _YIELDED else b""
    return text + (b',"open":true' if bits & _OPEN else b"")


def _points(view: View) -> list[str]:
    found = []
    tids = view.thread_ids
    for mark in view.table("marks"):
        found.append(
            f'{{"ph":"i","s":"t","cat":"mark","name":{json_text(mark.name or "?")},'
            f'"pid":{view.pid_of(mark.thread)},"tid":{tids[mark.thread]},"ts":{_us(mark.time)}}},\n'
        )
    for counter in view.table("counters"):
        value = json.dumps(counter.value) if np.isfinite(counter.value) else "null"
        found.append(
            f'{{"ph":"C","cat":"counter","name":{json_text(counter.name or "?")},'
            f'"pid":{view.pid_of(counter.thread)},"ts":{_us(counter.time)},"args":{{"value":{value}}}}},\n'
        )
    return found


def _flows(view: View) -> list[str]:
    found = []
    for flow in view.table("flows"):
        to_slice_around = ',"bp":"e"' if flow.phase == "end" else ""
        found.append(
            f'{{"ph":"{_PHASES[flow.phase]}","cat":"flow","name":{json_text(flow.name or "?")},'
            f'"id":{flow.id},"pid":{view.pid_of(flow.thread)},"tid":{view.thread_ids[flow.thread]},'
            f'"ts":{_us(flow.time)}{to_slice_around}}},\n'
        )
    return found


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def live_bytes(view: View, limit: int) -> tuple[dict[str, tuple[Array, Array]], str]:
    """Return live memory over time by domain, and a description of what was left out.

    Parameters
    ----------
    view : View
        The chosen calls.
    limit : int
        If a domain has more changes, the largest value of each of equal intervals is given.

    Returns
    -------
    dict of str to (times, bytes), str
        By domain, without domains that have no allocations.
    """
    found = {}
    how = "every change"
    for bit, domain in enumerate(("raw", "mem", "obj", "numpy", "libc")):
        time, live, _ = view.trace._core.curve(1 << bit)
        if not any(live[rows].any() for rows in parts_of_rows(len(live))):
            continue
        if len(time) > limit:
            how = f"the largest of each of {_INTERVALS:,} intervals"
            time, live = _largest(time, live, max(view.trace.duration, 1))
        if view.between is not None:
            chosen = view.times(time)
            time, live = time[chosen], live[chosen]
        found[domain] = np.ascontiguousarray(time), np.ascontiguousarray(live)
    return found, how


def _largest(time: Array, live: Array, duration: int) -> tuple[Array, Array]:
    """Return the largest value of each interval that has changes, and the time of its first."""
    times: list[Array] = []
    values: list[Array] = []
    last = -1
    for rows in parts_of_rows(len(time)):
        bins = np.minimum(time[rows] * _INTERVALS // duration, _INTERVALS - 1)
        first = np.flatnonzero(np.diff(bins, prepend=-1))
        largest = np.maximum.reduceat(live[rows], first)
        goes_on = int(bins[0] == last)  # the interval of the rows before
        if goes_on:
            values[-1][-1] = max(values[-1][-1], largest[0])
        times.append(time[rows][first[goes_on:]])
        if goes_on < len(first):
            values.append(largest[goes_on:])
        last = bins[-1]
    return np.concatenate(times), np.concatenate(values)


def _write_memory(view: View, out: IO[bytes]) -> str | None:
    if not view.has_memory:
        return None
    domains, how = live_bytes(view, CHANGES_MAX)
    for domain, (time, live) in domains.items():
        head = f'{{"ph":"C","cat":"memory","name":"live {domain}","pid":{view.whole_process},"ts":'
        out.write(
            _core.render_rows(
                len(time),
                (head.encode(), microseconds(time), b',"args":{"bytes":', number(live), b"}},\n"),
            )
        )
    resident = view.trace.resident
    chosen = view.times(resident["time"])
    out.write(
        _core.render_rows(
            int(chosen.sum()),
            (
                b'{"ph":"C","cat":"memory","name":"resident","pid":%d,"ts":' % view.whole_process,
                microseconds(resident["time"][chosen]),
                b',"args":{"bytes":',
                number(resident["bytes"][chosen]),
                b"}},\n",
            ),
        )
    )
    return how
