"""The examples in the pages of the file formats are read by what was written from those pages."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import read_archive
import read_packed

DOC = Path(__file__).parents[3] / "doc"
ADDRESS = 0x7F0000001000
#: Time, kind, and its site or name, address and size.
EVENTS = [
    (start + after, *event)
    for start in (1000, 2000)
    for after, event in (
        (0, (1, 3, None, None)),
        (20, (12, 5, ADDRESS, 40)),
        (50, (32, 5, ADDRESS, None)),
        (60, (2, 2, None, None)),
    )
]


def streams(page):
    """Return the streams of the example in a page of doc/, in their order."""
    _, _, text = (DOC / page).read_text(encoding="utf-8").partition("*Example.* Site 3 calls")
    _, table, *_ = re.split(r"^=+ +=+ +=+\n(?:stream .*\n=+ +=+ +=+\n)?", text, flags=re.MULTILINE)
    found: dict[str, bytes] = {}
    name = ""
    for line in table.splitlines():
        first, code = line[:12].strip(), bytes.fromhex(line[12:37])
        name = first if first != "\\" else name
        found[name] = found.get(name, b"") + code
    return found


def test_the_example_of_a_section_of_events():
    parts = streams("epr-archive.rst")
    assert list(parts) == "THREADS TIMES LONG_TIMES KINDS IDS SIZES PLACES ADDRESSES".split()
    head = struct.pack("<IIqq8I", 8, 4, 1000, 2060, *map(len, parts.values()))

    rows = read_archive.Block(head + b"".join(parts.values()), [0, 0, 0, 2, 0, 0]).rows()

    assert [(time, *event) for time, thread, *event in rows if thread == 0] == EVENTS


def test_the_example_of_a_packed_chunk():
    parts = streams("epr-log.rst")
    assert list(parts) == "TIMES LONG_TIMES TOKENS SYMBOLS SIZES PLACES VALUES".split()
    call, alloc, free = read_packed.CALL, read_packed.ALLOC, read_packed.FREE
    kinds = {1: (1, call, 1, 0), 2: (1, call, 2, 0), 12: (2, alloc, 0, 2), 32: (2, free, 0, 2)}
    records = read_packed.Records(list(map(read_packed.Bytes, parts.values())), 1000, kinds)

    words = records.read(12)

    assert all(stream.is_empty() for stream in records.streams)
    expected = []
    for time, kind, number, address, size in EVENTS:
        expected.append(time << 32 | kind << 25 | (number if size is None else size))
        if size is not None:
            expected.append(address >> 3 << 20 | number)
        elif address is not None:
            expected.append(address)
    assert words == expected
    text = (DOC / "epr-log.rst").read_text(encoding="utf-8")
    found = re.search(r"word of the malloc is ``(\w+)``, the second\s+``(\w+)``", text)
    assert [int(each, 16) for each in found.groups()] == words[1:3]
