"""Programs that record into a file, some to be killed; and what their files are compared with."""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import eventprof

MIB = 1 << 20


FOLDER = str(Path(eventprof.__file__).parent.parent)


def facts(trace):
    return trace._core.file_facts()


def leaf(n):
    return n


def work(n):
    return [leaf(i) for i in range(n)]


TABLES = ("events", "calls", "allocations", "functions", "memory", "threads")


#: What the two tell by clocks of their own: the file's lacks the chunks that were in use before it.
TIMES = {"time", "start", "end", "duration", "total", "self", "mean", "min", "max", "p50",
         "p95", "p99", "first", "last"}  # fmt: skip


def same(column, a, b):
    a, b = np.ma.asarray(a), np.ma.asarray(b)
    if not np.array_equal(np.ma.getmaskarray(a), np.ma.getmaskarray(b)):
        return False
    x, y = a.compressed(), b.compressed()
    if column in TIMES and x.dtype.kind in "if":
        return np.allclose(x, y, rtol=1e-3, atol=20_000)
    if x.dtype.kind == "f":
        return np.array_equal(x, y, equal_nan=True)
    return len(x) == len(y) and all(x == y)


def assert_same(file, memory):
    for name in TABLES:
        a, b = getattr(file, name), getattr(memory, name)
        assert a.columns == b.columns, name
        assert len(a) == len(b), name
        for column in a.columns:
            assert same(column, a[column], b[column]), f"{name}: {column}"
    assert repr(file.loss) == repr(memory.loss)
    assert file.loss.by_kind == memory.loss.by_kind
    for key, value in memory.metadata.items():
        # Seen when the file was begun; measured over it.
        assert key in file.metadata, key
        if key == "duration_ns":
            assert file.metadata[key] == pytest.approx(value, rel=1e-3, abs=20_000)
        elif key not in ("argv", "frequency"):
            assert file.metadata[key] == value, key


def assert_as_read_independently(path):
    import read_log

    other = read_log.read(path)
    trace = eventprof.open(path)
    events = trace.events
    assert len(other.events) == len(events)
    words = [str(word) for word in events["event"]]
    assert [event.word for event in other.events] == words
    for key in ("address", "size"):
        ours = np.ma.asarray(events[key])
        for i in np.nonzero(~np.ma.getmaskarray(ours))[0][:5000]:
            theirs = getattr(other.events[i], key)
            assert theirs is None or theirs == ours[i], key
    assert [event.name for event in other.events if event.word in ("call", "return")] == [
        str(name)
        for name, word in zip(events["name"], words, strict=True)
        if word in ("call", "return")
    ]
    lines = np.ma.asarray(events["caller_line"])
    for i, event in enumerate(other.events):
        if event.word == "call" and event.line is not None:
            assert event.line == lines[i]
    lost = {}
    for (_, word), count in other.lost.items():
        lost[word] = lost.get(word, 0) + count
    assert lost == {word: n for word, n in trace.loss.by_kind.items() if n}
    assert other.damaged == (facts(trace)["missing_count"] > 0)
    assert other.finished != facts(trace)["unfinished"]
    assert {t.name for t in other.threads.values() if t.events} <= {
        str(n) for n in trace.threads["name"]
    } | {""}
    return other


CHILD = """
import os, sys, threading
import eventprof
how, path, threads, on_full, seed, archive, repeat = sys.argv[1:8]
def last_words(k, n):
    return os.write(1, b"%d %d\\n" % (k, n))
def work(k):
    n = 0
    while True:
        for _ in range(50):
            leaf(n)
            n += 1
            for _ in range(int(repeat)):
                pass_by(n)
        last_words(k, n)
        if how != "kill" and n >= limit:
            end()
def leaf(n):
    return [n]
def pass_by(n):
    return n
def end():
    if how == "exit":
        os._exit(3)
    import ctypes
    ctypes.string_at(0)
limit = 50 * int(seed)
rec = eventprof.record(output=path, buffer="2 MiB", on_full=on_full, c_calls=False,
                       archive=bool(int(archive)))
rec.start()
for k in range(1, int(threads)):
    threading.Thread(target=work, args=(k,), daemon=True).start()
work(0)
"""


def run_child(code, *arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}",
         *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=options.pop("stderr", None),
        env={**os.environ, "PYTHONPATH": FOLDER, "PYTHONFAULTHANDLER": ""},
        **options,
    )  # fmt: skip


def run_to_end(code, *arguments, **options):
    child = run_child(textwrap.dedent(code), *arguments, **options)
    out = child.communicate()[0]
    return child.returncode, out


def kill_one(number, tmp_path, archive=False):
    """Run a program, kill it, and hold its file against its output; ``archive``: it is packed meanwhile."""
    dice = random.Random(number)
    how = ("kill", "segv", "exit")[number % 3]
    threads = (1, 4)[number // 3 % 2]
    on_full = "grow" if archive else ("overwrite", "grow")[number // 6 % 2]
    path = tmp_path / f"{number}.epr"
    lines = dice.randrange(1, 800)
    # A chunk is packed when it is full.
    child = run_child(CHILD, how, path, threads, on_full, lines, int(archive), 8 * archive)
    output = b""
    if how == "kill":
        while output.count(b"\n") < lines:
            output += os.read(child.stdout.fileno(), 4096)
        child.kill()
    output += child.communicate()[0]
    last = {}
    for line in output.split(b"\n")[:-1]:
        k, n = line.split()
        last[int(k)] = int(n)
    expected = {"kill": -signal.SIGKILL, "segv": -signal.SIGSEGV, "exit": 3}[how]
    assert child.returncode == expected

    trace = eventprof.open(path)
    events = trace.events
    called = {}
    for name, event in zip(events["name"], events["event"], strict=True):
        if str(event) == "call":
            called[str(name)] = called.get(str(name), 0) + 1
    lost = trace.loss.by_kind.get("call", 0)
    leaves, words = sum(last.values()), sum(n // 50 for n in last.values())
    what = f"{how}, {threads} threads, {on_full}: {called} and {lost} lost, of {last}"
    assert sum(called.values()) + lost >= leaves + words, what
    if on_full == "grow":
        assert lost == 0, what
        assert called["leaf"] >= leaves, what
        assert called["last_words"] >= words, what
    state = facts(trace)
    assert state["unfinished"] and not state["live"]
    assert state["missing"] == [], what
    # What it did right before its end has names and lines.
    named = [
        i
        for i in range(max(0, len(events) - 200), len(events))
        if str(events["event"][i]) == "call"
    ]
    assert named
    for i in named:
        assert (
            str(events["name"][i]) in ("leaf", "pass_by", "last_words", "work", "end", "<module>")
            or how == "segv"
            or threads > 1
        )
    path.unlink()


def names_called(trace):
    events = trace.events
    return [
        str(n) for n, e in zip(events["name"], events["event"], strict=True) if str(e) == "call"
    ]


def put(data, offset, form, *values):
    changed = bytearray(data)
    struct.pack_into("<" + form, changed, offset, *values)
    return bytes(changed)


def slots_of(data):
    """Offsets of the slots."""
    offset = struct.unpack_from("<Q", data, log_header()["head_bytes"])[0]
    while offset < len(data):
        yield offset
        offset += size_at(data, offset)


def size_at(data, slot):
    return struct.unpack_from("<I", data, slot + 96)[0]


def chunk_at(data):
    """Offset of the first slot of events that is sealed, wanted, and longer than what is cut off."""
    sealed = struct.pack("<II", 0x43505645, 2)
    return next(
        o
        for o in slots_of(data)
        if data[o : o + 8] == sealed
        and size_at(data, o) > 20_064
        and any(data[o + 80 : o + 88])
        and any(data[o + 20_000 : o + 20_064])
    )


def state_at(data, which):
    return struct.unpack_from("<Q", data, log_header()[f"state_offset{which}"])[0]


def texts_at(data):
    return next(o for o in slots_of(data) if data[o : o + 4] == b"EVPN")


def log_header():
    import read_log

    return read_log.HEADER_OFFSETS


def of_a_later_version(data, number):
    """Return a log whose marks are of a kind that this version does not know."""
    import read_log

    mark, offsets = 46, read_log.HEADER_OFFSETS
    kinds = struct.unpack_from("<Q", data, offsets["kinds"])[0]
    data = put(data, offsets["kinds"], "Q", kinds & ~(1 << mark))
    data = put(data, offsets["kinds_high"], "Q", 1 << number - 64)
    row = offsets["kind_table"] + 24 * number
    data = put(data, row, "4B20s", *data[row - 24 * (number - mark) :][:4], b"later")
    for slot in slots_of(data):
        magic, state = struct.unpack_from("<II", data, slot)
        if magic != 0x43505645 or not state:
            continue
        count = (min(size_at(data, slot), len(data) - slot) - 128) // 8
        words = list(struct.unpack_from(f"<{count}Q", data, slot + 128))
        place = 0
        while place < len(words) and words[place]:
            kind = words[place] >> 25 & 127
            if kind == mark:
                words[place] += number - mark << 25
            place += 1 if kind in read_log.CALLS or kind in read_log.POINTS else 2
        data = put(data, slot + 128, f"{len(words)}Q", *words)
        if state == 2:
            used = struct.unpack_from("<Q", data, slot + 56)[0]
            total = read_log.sum64(data[slot + 128 : slot + 128 + 8 * used])
            data = put(data, slot + 88, "Q", total)
    return data
