"""The drop-in's rows against a reference in plain Python, and however they are read."""

from __future__ import annotations

import random
import struct
import sys
import threading

import numpy as np
import pytest

from eventprof import EventProfiler, _core

pytest.importorskip("pandas")

KINDS = {row[1]: row for row in _core.kind_table()}
WORDS = EventProfiler._event_mapping
SKEW_NS = 100_000
#: (qualified name, module, file, first line, Python's): two of them have the same text.
FUNCTIONS = [
    ("f", "m", "a.py", 10, True),
    ("C.f", "m", "b.py", 20, True),
    ("f", "m", "a.py", 10, True),
    ("C.<locals>.g", "m", "b.py", 30, True),
    ("len", "builtins", None, -1, False),
    ("C.f", "c_module", None, -1, False),
]
STARTS = {True: ["CALL", "RESUME", "THROW"], False: ["C_CALL"]}
ENDS = {True: ["RETURN", "YIELD", "UNWIND"], False: ["C_RETURN", "C_EXCEPTION"]}


class Stream:
    """A random stream of events: mostly calls that end and blocks that are freed, with faults."""

    def __init__(self, seed, functions=FUNCTIONS, length=400):
        self.random = random.Random(seed)
        self.functions = functions
        self.sites = [(-1, -1, 0)]
        self.rows = []  # (time, identifier, thread, ref, address, size)
        self.time = 0
        stacks = [[], [], []]
        for _ in range(length):
            self.time += self.random.choice([0, 1, 50, 3_000, 60_000])
            thread = self.random.choice([0, 0, 0, 1, 2])
            self._calls(thread, stacks[thread])
            self._blocks(thread)

    def _site(self, callee, caller):
        self.sites.append((callee, caller, self.random.randrange(1, 90)))
        return len(self.sites) - 1

    def _put(self, kind, thread, ref, address=0, size=0):
        self.rows.append((self.time, kind, thread, ref, address, size))

    def _calls(self, thread, stack):
        act = self.random.random()
        if act < 0.5 or not stack:
            callee = self.random.randrange(len(self.functions))
            caller = stack[-1] if stack else self.random.choice([-1, 0])
            kind = self.random.choice(STARTS[self.functions[callee][4]])
            self._put(kind, thread, self._site(callee, caller))
            stack.append(callee)
        else:
            # Some ends are lost, some are of no call, and some end a call further out.
            depth = -1 if act < 0.9 else self.random.randrange(len(stack))
            name = stack[depth] if act < 0.97 else self.random.randrange(len(self.functions))
            self._put(self.random.choice(ENDS[self.functions[name][4]]), thread, name)
            del stack[depth:]

    def _blocks(self, thread):
        domain = self.random.choice(["RAW", "MEM", "OBJ"])
        address = self.random.randrange(1, 12) * 16
        size = self.random.choice([0, 1, 333, 12_347, 1 << 33])
        where = self._site(-1, self.random.choice([0, 1, 3]))
        act = self.random.random()
        if act < 0.4:
            word = self.random.choice(["MALLOC", "CALLOC"])
            self._put(f"{word}_{domain}", thread, where, address, size)
        elif act < 0.7:
            self._put(f"FREE_{domain}", thread, where, address, -1)
        elif act < 0.9:
            self._put(f"REALLOC_FREE_{domain}", thread, where, address, -1)
            if act < 0.75:
                self._put(f"REALLOC_FAILED_{domain}", thread, where, address, size)
        else:
            self._put(f"REALLOC_{domain}", thread, where, address, size)

    def trace(self):
        """Return the stream as a trace of the core."""

        def packed(form, values):
            return struct.pack(f"={len(values)}{form}", *values)

        blocks = [row for row in self.rows if KINDS[row[1]][4] != "call"]
        return _core.make_trace(
            [
                (name, module, file, line, "python" if python else "c")
                for name, module, file, line, python in self.functions
            ],
            self.sites,
            [(b"one", 1001), (b"two", 1002), (b"three", 1003)],
            (
                packed("q", [row[0] for row in self.rows]),
                packed("B", [KINDS[row[1]][0] for row in self.rows]),
                packed("i", [row[2] for row in self.rows]),
                packed("i", [row[3] for row in self.rows]),
                packed("Q", [row[4] for row in blocks]),
                packed("q", [row[5] for row in blocks]),
            ),
            (self.time + 1, 0, 5_000, 1, sum(1 << row[0] for row in KINDS.values() if row[3])),
        )  # fmt: skip


# ---- The reference -------------------------------------------------------------------------------


def places_of(stream):
    """Find each row's site or, of an end without a call, a function: ("site", 3), ("name", 1)."""
    first = {each: i for i, each in reversed(list(enumerate(stream.functions)))}
    texts = [first[each] for each in stream.functions]
    stacks = {0: [], 1: [], 2: []}
    for _, kind, thread, ref, _, _ in stream.rows:
        stack, pairing = stacks[thread], KINDS[kind][6]
        if KINDS[kind][4] != "call" or pairing == "opens":
            if KINDS[kind][4] == "call":
                stack.append((texts[stream.sites[ref][0]], kind.startswith("C_"), ref))
            yield "site", ref
            continue
        key = (texts[ref], kind.startswith("C_"))
        found = next((i for i in reversed(range(len(stack))) if stack[i][:2] == key), None)
        if found is None:
            yield "name", ref
        else:
            yield "site", stack[found][2]
            del stack[found:]


def changes_of(stream):
    """Yield the bytes that each row adds to what lives."""
    live, moving = {}, {}
    for time, kind, thread, _, address, size in stream.rows:
        if KINDS[kind][4] == "call":
            yield 0
        elif kind.startswith("REALLOC_FAILED"):
            # Where the address is in use again, its old block did end.
            old = moving.pop(thread) if address not in live else None
            if old is not None:
                live[address] = [old, None]
            yield old or 0
        elif KINDS[kind][6] == "opens":
            older = live.get(address)
            live[address] = [size, None if older is None else (older[0], time, thread)]
            yield size
        else:
            block, change = live.get(address), 0
            suspect = None if block is None else block[1]
            if suspect and thread != suspect[2] and time - suspect[1] <= SKEW_NS:
                change, block[1] = -suspect[0], None
            elif block is not None:
                change = -live.pop(address)[0]
            if kind.startswith("REALLOC_FREE"):
                moving[thread] = None if block is None else -change
            yield change


def expected(stream):
    """Yield the rows of the dataframe."""
    functions = stream.functions

    def shown(function):
        name, module, file, _, python = functions[function]
        return (name.rpartition(".")[2], file) if python else (name, module)

    numbers = {code: word for word, code in reversed(WORDS.items())}
    rows = zip(stream.rows, places_of(stream), changes_of(stream), strict=True)
    for (time, kind, _, _, address, _), (sort, ref), change in rows:
        callee, caller, line = stream.sites[ref] if sort == "site" else (ref, -1, -1)
        name = callee if callee >= 0 else caller
        python = name if name >= 0 and functions[name][4] else caller
        yield (
            time + 5_000 + 70,
            address,
            change,
            numbers[KINDS[kind][3]],
            *(shown(name) if name >= 0 else (None, None)),
            functions[python][3] if python >= 0 else -1,
            *(shown(caller) if caller >= 0 else ("", "")),
            line if caller >= 0 else -1,
        )


def rows_of(result):
    """Return what `frame` gave as rows."""
    time, event, value1, value2, first_line, line, *codes, names, files, lost = result
    assert lost == 0
    files = [text for text, _ in files]

    def texts(column, words):
        return [words[code] if code >= 0 else None for code in column.tolist()]

    columns = [
        time.tolist(), value1.tolist(), value2.tolist(),
        [list(WORDS)[number] for number in event.tolist()],
        texts(codes[0], names), texts(codes[1], files), first_line.tolist(),
        texts(codes[2], names), texts(codes[3], files), line.tolist(),
    ]  # fmt: skip
    return list(zip(*columns, strict=True))


# ---- Tests ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(25))
def test_rows_of_a_random_stream_are_those_of_the_reference(seed):
    stream = Stream(seed)

    found = rows_of(_core.LegacyLog(WORDS).frame((stream.trace(),), 70, -1))

    assert found == list(expected(stream))


@pytest.mark.parametrize("count", [120, 300, 33_000])
def test_codes_become_wider_with_the_number_of_names(count):
    functions = [(f"wide{i}", "m", "wide.py", i + 1, True) for i in range(count)]
    stream = Stream(1, functions, 50)
    for function in range(count):
        stream._put("CALL", 0, stream._site(function, -1))
        stream._put("RETURN", 0, function)

    result = _core.LegacyLog(WORDS).frame((stream.trace(),), 70, -1)

    assert rows_of(result) == list(expected(stream))
    bits = 8 if count < 127 else 16 if count < 32_767 else 32
    assert [codes.dtype for codes in result[6:10]] == [
        np.dtype(f"int{bits}"), np.dtype("int8"), np.dtype(f"int{bits}"), np.dtype("int8"),
    ]  # fmt: skip


def busy(kept):
    for i in range(300):
        kept.append([i, len("x")])
        if i % 7 == 0:
            kept.clear()


def test_rows_from_chunks_are_those_from_columns():
    kept = []
    prof = EventProfiler()
    prof.start()
    threads = [threading.Thread(target=busy, args=(kept,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    prof.log_event(sys._getframe(), "exception", None)
    for thread in threads:
        thread.join()
    prof.stop()

    frame, raw = prof.retrieve_results(), prof.retrieve_raw_results()
    assert not prof._traces[0].has_columns()
    prof._traces[0].events("time")

    assert prof._traces[0].has_columns()
    assert len(frame) > 3000
    assert prof.retrieve_results().equals(frame)
    assert (prof.retrieve_raw_results() == raw).all()
    assert (raw[:, 3] == frame.time).all() and (raw[:, 5] == frame.value2).all()


def test_files_that_clean_file_name_makes_one_are_one_category():
    prof = EventProfiler()
    prof.start()
    busy([])
    exec(compile("def other():\n    pass\nother()", "elsewhere.py", "exec"), {})
    prof.stop()

    plain = prof.retrieve_results()
    clean = prof.retrieve_results(clean_file_name=lambda name: "one.py")

    is_python = plain["mod"].astype(str).str.endswith(".py")
    assert {"elsewhere.py", __file__} <= set(plain["mod"])
    assert set(clean["mod"][is_python]) == {"one.py"}
    assert (clean["mod"][~is_python].astype(str) == plain["mod"][~is_python].astype(str)).all()
    assert clean["mod"].dtype == clean["from_mod"].dtype
