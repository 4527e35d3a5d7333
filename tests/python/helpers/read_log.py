"""Reads a log file by doc/epr-log.rst, without eventprof's code: this shows that the page is complete."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

import read_packed

MAGICS = (0x43505645, 0x4E505645, 0x53505645, 0x50505645)
MASK = (1 << 64) - 1
MIB = 1 << 20
NONE = 0xFFFFFFFF

HEADER = (
    ("magic", "8s"), ("major", "H"), ("minor", "H"), ("byte_order", "I"), ("header_bytes", "I"),
    ("slot_bytes", "I"), ("process_id", "Q"), ("parent_process_id", "Q"), ("kinds", "Q"),
    ("clock_mode", "I"), ("only_thread", "I"), ("step_ticks", "Q"), ("birth_ticks", "Q"),
    ("birth_ns", "q"), ("start_ticks", "Q"), ("start_ns", "q"), ("stop_ticks", "Q"),
    ("stop_ns", "q"), ("start_realtime_ns", "q"), ("start_boottime_ns", "q"),
    ("start_resident_bytes", "q"), ("stop_resident_bytes", "q"), ("metadata_bytes", "Q"),
    ("full_ticks", "Q"), ("full_reason", "I"), ("phase", "I"), ("state", "I"), ("beat", "I"),
    ("beat0_ticks", "Q"), ("beat0_ns", "q"), ("beat1_ticks", "Q"), ("beat1_ns", "q"),
    ("texts_lost", "Q"), ("calls_from", "16s"), ("displaced", "64s"), ("deep_calls", "Q"),
    ("short_calls", "Q"), ("functions_off", "Q"), ("slots", "Q"), ("head_bytes", "Q"),
    ("state_offset0", "Q"), ("state_offset1", "Q"), ("state_room0", "Q"), ("state_room1", "Q"),
    ("limits", "I"), ("children_lost", "I"), ("children_error", "I"), ("reserved", "I"),
    ("kinds_high", "Q"), ("kind_table", "3072s"), ("start_own_bytes", "q"),
    ("stop_own_bytes", "q"), ("worker", "64s"),
)  # fmt: skip
HEADER_OFFSETS = {}
_at = 0
for _name, _form in HEADER:
    HEADER_OFFSETS[_name] = _at
    _at += struct.calcsize("<" + _form)
HEADER_BYTES = _at

CALLS = {1: "call", 2: "return", 3: "yield", 4: "resume", 5: "throw", 6: "unwind", 7: "c_call", 8: "c_return",
         9: "c_exception", 40: "span_begin", 41: "span_end", 42: "gc_start", 43: "gc_stop",
         44: "hpy_call", 45: "hpy_return"}  # fmt: skip
OPENING = (1, 4, 5, 7, 40, 42, 44)
POINTS = dict(enumerate(("mark", "audit", "line", "instruction", "raise", "reraise", "handled",
                         "stop_iteration"), 46))  # fmt: skip
VALUES = (
    dict(enumerate(("branch", "jump", "counter", "flow", "gc_collected", "create", "destroy"), 54))
    | dict(enumerate(("label", "label_text", "wait_begin", "wait", "waker", "task"), 64))
    | {70: "wait_object", 71: "pipe_write"}
)
BLOCKS = ((10, "malloc"), (15, "calloc"), (20, "realloc"), (25, "realloc_free"), (30, "free"),
          (35, "realloc_failed"))  # fmt: skip


class Event(NamedTuple):
    ticks: int
    thread: int
    word: str
    name: str | None
    line: int | None
    address: int | None
    size: int | None


class Thread:
    def __init__(self):
        self.name = ""
        self.native_id = 0
        self.carrier = 0
        self.events = 0


class Log:
    def __init__(self):
        self.events: list[Event] = []
        self.lost: dict[tuple[int, str], int] = {}
        self.open: dict[int, list[int]] = {}
        self.threads: dict[int, Thread] = {}
        self.damaged = False
        self.finished = False


def sum64(data: bytes) -> int:
    words = struct.unpack(f"<{len(data) // 8}Q", data)
    sums = [1, 2, 3, 4]
    whole = len(words) // 4 * 4
    for i in range(whole):
        sums[i % 4] = (sums[i % 4] ^ words[i]) * 0x9E3779B97F4A7C15 & MASK
    for word in words[whole:]:
        sums[0] = (sums[0] ^ word) * 0x9E3779B97F4A7C15 & MASK
    total = len(data)
    for lane in sums:
        total = (total ^ lane ^ lane >> 29) * 0x9E3779B97F4A7C15 & MASK
    return total


def word_of(kind: int) -> str | None:
    for words in (CALLS, POINTS, VALUES):
        if kind in words:
            return words[kind]
    return next((word for first, word in BLOCKS if first <= kind < first + 5), None)


def read(path) -> Log:
    data = Path(path).read_bytes()
    values = struct.unpack_from("<" + "".join(form for _, form in HEADER), data)
    header = dict(zip((name for name, _ in HEADER), values, strict=True))
    assert header["magic"] == b"EVPLOG\x1a\n" and (header["major"], header["minor"]) in (
        (2, 2),
        (3, 0),
    )
    assert header["byte_order"] == 0x01020304
    which = header["state"] & 1
    unit, head_bytes, begin = (
        header["slot_bytes"],
        header["head_bytes"],
        header[f"state_offset{which}"],
    )
    header["kinds"] |= header["kinds_high"] << 64
    log = Log()
    log.finished = header["phase"] == 2

    # The state that counts.
    dropped, count, size, total, _ = struct.unpack_from("<QIIQQ", data, begin)
    body = data[begin + 32 : begin + 32 + size]
    if total == 0:
        dropped, body = None, b""
    elif sum64(body) != total:
        log.damaged, body = True, b""
    offset = 0
    for _ in range(count if body else 0):
        thread, counts, depth, _ = struct.unpack_from("<IIII", body, offset)
        pairs = struct.iter_unpack("<QQ", body[offset + 16 : offset + 16 + 16 * (counts + depth)])
        for i, (first, second) in enumerate(pairs):
            if i < counts:
                key = (thread, word_of(first))
                log.lost[key] = log.lost.get(key, 0) + second
            else:
                log.open.setdefault(thread, []).append(second)
        offset += 16 + 16 * (counts + depth)

    chunks, texts = [], []
    slot = head_bytes
    while slot + 128 <= len(data):
        magic, state, sequence = struct.unpack_from("<IIQ", data, slot)
        wanted, _, size = struct.unpack_from("<QQI", data, slot + 80)
        if magic not in MAGICS or not 0 < size <= MIB or size % unit:
            slot += unit
            continue
        if magic == 0x4E505645 and state:
            texts.append((sequence, slot, size))
        elif magic == 0x43505645 and state and wanted and sequence != dropped:
            chunks.append((sequence, 1, slot, size))
        elif magic == 0x50505645 and state == 2 and wanted and sequence != dropped:
            chunks.append((sequence, 0, slot, size))
        slot += size

    strings, names, sites = _texts(data, sorted(texts), log)

    def name_of(name):
        entry = names.get(name)
        return strings.get(entry[0], "?") if entry else None

    packed = {sequence for sequence, is_own, _, _ in chunks if not is_own}
    for sequence, is_own, slot, size in sorted(chunks):
        if not is_own:
            chunk = _unpacked(data[slot : slot + size], header)
            _chunk(chunk, 0, len(chunk), header, log, sites, name_of)
        elif sequence not in packed:
            _chunk(data, slot, size, header, log, sites, name_of)
    log.events.sort(key=lambda event: event.ticks)
    return log


def _unpacked(slot, header):
    ticks, used = struct.unpack_from("<Q", slot, 24)[0], struct.unpack_from("<Q", slot, 56)[0]
    size = struct.unpack_from("<I", slot, 100)[0]
    kinds = [tuple(header["kind_table"][24 * kind : 24 * kind + 4]) for kind in range(128)]
    words = read_packed.unpack(slot[128 : 128 + size], ticks, used, kinds)
    return slot[:128] + struct.pack(f"<{used}Q", *words)


def _texts(data, slots, log):
    strings, names, sites = {}, {}, {}
    for _, slot, room in slots:
        offset, end = slot + 128, slot + room
        while offset + 8 <= end and offset + 8 <= len(data):
            words, kind = struct.unpack_from("<II", data, offset)
            if words < 2 or offset + 8 * words > end:
                break
            body = data[offset + 8 : offset + 8 * words]
            ident = struct.unpack_from("<I", body)[0]
            if kind == 1:
                size = struct.unpack_from("<I", body, 4)[0]
                strings[ident] = body[8 : 8 + size].decode("utf-8", "surrogatepass")
            elif kind == 2:
                names[ident] = struct.unpack_from("<IIIiI", body, 4)
            elif kind == 3:
                sites[ident] = struct.unpack_from("<IIii", body, 4)
            elif kind == 4:
                size, native_id = struct.unpack_from("<IQ", body, 4)
                thread = log.threads.setdefault(ident, Thread())
                thread.native_id = native_id
                thread.name = body[16 : 16 + size].decode("utf-8", "surrogatepass")
            elif kind == 6:
                lane = log.threads.setdefault(ident, Thread())
                lane.carrier = struct.unpack_from("<I", body, 4)[0]
            offset += 8 * words
    return strings, names, sites


def _chunk(data, slot, size, header, log, sites, name_of):
    state = struct.unpack_from("<I", data, slot + 4)[0]
    thread = struct.unpack_from("<Q", data, slot + 16)[0]
    high = struct.unpack_from("<Q", data, slot + 24)[0] >> 32
    used, total = (
        struct.unpack_from("<Q", data, slot + 56)[0],
        struct.unpack_from("<Q", data, slot + 88)[0],
    )
    limit = (min(size, len(data) - slot) - 128) // 8
    if state == 2:
        if used > limit or sum64(data[slot + 128 : slot + 128 + 8 * used]) != total:
            log.damaged = True
        limit = min(limit, used)
    words = struct.unpack_from(f"<{limit}Q", data, slot + 128)
    stop = header["stop_ticks"] if log.finished else MASK
    full = header["full_ticks"] if header["full_reason"] else MASK
    number, escapes = 0, {}
    while number < limit and words[number]:
        word = words[number]
        kind, payload = (word & NONE) >> 25, word & (1 << 25) - 1
        ticks = high << 32 | word >> 32
        second = words[number + 1] if number + 1 < limit else 0
        if word_of(kind) is None and not 61 <= kind <= 63:
            length, form = header["kind_table"][24 * kind : 24 * kind + 2]
            assert length, kind
            number += length
            if form in (1, 2):
                escapes = {}
            continue
        number += 1 if kind in CALLS or kind in POINTS else 2
        if kind == 63:
            high = second >> 32
        elif kind == 62:
            escapes[payload] = second
        elif kind == 61:
            thread = second
        if 61 <= kind <= 63:
            continue
        text = word_of(kind)
        assert text is not None, kind
        name = line = address = size = None
        if kind in CALLS:
            callee = payload
            if kind in OPENING:
                callee, _, _, line = sites.get(payload, (0, 0, -1, -1))
                line = line if line > 0 else None
            name = name_of(callee)
        elif kind in POINTS or kind in VALUES:
            callee, caller, _, line = sites.get(payload, (0, 0, -1, -1))
            line, name = line if line > 0 else None, name_of(callee or caller)
            address = second if kind in VALUES else None
        else:
            if 25 <= kind < 35:
                address = second
            else:
                size, address = escapes.get(0, payload), escapes.get(1, second >> 20 << 3)
            within, escapes = escapes.get(3, 0), {}
            around = [domain for domain in range(5) if within >> domain & 1]
            if any(
                header["kinds"] >> first + domain & 1 for domain in around for first, _ in BLOCKS
            ):
                continue
        if not header["start_ticks"] <= ticks <= stop or not header["kinds"] >> kind & 1:
            continue
        carrier = log.threads[thread].carrier if thread in log.threads else 0
        if header["only_thread"] not in (0, thread, carrier):
            continue
        if ticks > full:
            log.lost[thread, text] = log.lost.get((thread, text), 0) + 1
            continue
        log.threads.setdefault(thread, Thread()).events += 1
        log.events.append(Event(ticks, thread, text, name, line, address, size))
