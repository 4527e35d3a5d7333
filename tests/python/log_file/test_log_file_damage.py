"""Files that are no log, or not whole: an error or a part, and never a crash."""

from __future__ import annotations

import os
import random

import pytest
from amounts import amount
from log_children import (
    MIB,
    chunk_at,
    log_header,
    of_a_later_version,
    put,
    slots_of,
    state_at,
    texts_at,
    work,
)

import eventprof

pytestmark = pytest.mark.usefixtures("restored")


BAD = {
    "empty": lambda d: b"",
    "one byte": lambda d: b"E",
    "text": lambda d: b"hello, world\n" * 1000,
    "zeros": lambda d: bytes(len(d)),
    "ones": lambda d: b"\xff" * len(d),
    "random": lambda d: random.Random(1).randbytes(3 * MIB),
    "magic and random": lambda d: d[:8] + random.Random(2).randbytes(3 * MIB),
    "header and random": lambda d: d[:4096] + random.Random(3).randbytes(3 * MIB),
    "magic alone": lambda d: d[:8],
    "half a header": lambda d: d[:100],
    "header alone": lambda d: d[:4096],
    "cut in the first slot": lambda d: d[: next(slots_of(d)) + 2000],
    "head alone": lambda d: d[: next(slots_of(d))],
    "cut in a chunk": lambda d: d[: chunk_at(d) + 12345],
    "cut by one byte": lambda d: d[:-1],
    "newer major": lambda d: put(d, 8, "H", 99),
    "other byte order": lambda d: put(d, 12, "I", 0x04030201),
    "slots of no size": lambda d: put(d, 20, "I", 0),
    "slots of all sizes": lambda d: put(d, 20, "I", 0xFFFFFFFF),
    "chunk beyond the file": lambda d: put(d, chunk_at(d) + 56, "Q", 1 << 62),
    "chunk of all ones": lambda d: d[: chunk_at(d) + 16] + b"\xff" * 9000 + d[chunk_at(d) + 9016 :],
    "texts beyond the file": lambda d: put(d, texts_at(d) + 128, "Q", 1 << 32 | 0xFFFFFFF0),
    "a text id of all ones": lambda d: put(d, texts_at(d) + 136, "I", 0xFFFFFFFF),
    "metadata beyond the limit": lambda d: put(d, 4096, "I", 0),
    "state beyond its room": lambda d: put(
        put(d, state_at(d, 0), "QIIQQ", 0, 5, 0xFFFFFFFF, 1, 0),
        state_at(d, 1), "QIIQQ", 0, 5, 0xFFFFFFFF, 1, 0),
    "a state beyond the file": lambda d: put(d, log_header()["state_offset0"], "QQ", 1 << 62, 1 << 62),
    "states of any room": lambda d: put(d, log_header()["state_room0"], "QQ", 2**64 - 1, 2**64 - 1),
    "head beyond the file": lambda d: put(d, log_header()["head_bytes"], "Q", 1 << 62),
    "a slot of no size": lambda d: put(d, chunk_at(d) + 96, "I", 0),
    "a slot of any size": lambda d: put(d, chunk_at(d) + 96, "I", 0xFFFFF000),
}  # fmt: skip


READ = """
import resource, sys
limit = int(sys.argv[2])
import eventprof, os
import eventprof.files.opening, eventprof.trace
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + limit, -1))
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
path = sys.argv[1]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    trace = eventprof.open(path)
    for name in ("events", "calls", "allocations", "functions", "memory", "threads"):
        table = getattr(trace, name)
        for column in table.columns:
            table[column]
    repr(trace), trace.loss, trace.metadata
    print("opened", len(trace.events), trace._core.file_facts()["missing_count"])
except (eventprof.FormatError, OSError) as error:
    print("refused", error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.fixture
def read_apart(forks):
    """Reads a file where a crash, or too much memory, harms nobody. Gives (what, rest, KiB)."""

    def read(path, limit=600 << 20):
        done = forks.run(READ, path, limit)
        assert done.returncode == 0, done
        answer, grown = done.stdout.strip().rsplit("\n", 1)
        what, _, rest = answer.partition(" ")
        return what, rest, int(grown)

    return read


@pytest.mark.thorough
@pytest.mark.parametrize("what", BAD)
def test_bad_files(what, good, tmp_path, read_apart):
    path = tmp_path / "bad.epr"
    path.write_bytes(BAD[what](good))

    result, rest, grown = read_apart(path)

    assert grown < 60_000 + 12 * path.stat().st_size / 1024
    if result == "refused":
        assert str(path) in rest
        assert any(word in rest for word in ("offset", "byte ", "version", "empty", "begins with"))
    for refused in ("empty", "text", "zeros", "ones", "random", "half a header", "newer major"):
        if what == refused:
            assert result == "refused"
    if what == "cut by one byte":  # of the room after the last record
        assert result == "opened"
    if what in ("chunk beyond the file", "cut in a chunk"):
        assert result == "opened"
        assert int(rest.split()[1]) >= 1


@pytest.mark.parametrize(
    "metadata",
    [b"[]", b"3", b"[" * 60_000, b"\xff\xfe\x00", b'{"options": 3}', b'{"options": {"include": 5}}',
     b'{"options": {"include": ["", "a\\u0000b"]}}', b'{"pid": {}}', b"", b'{"\\ud800": "\\ud800"}'],
)  # fmt: skip
def test_metadata_of_any_sort(metadata, good, tmp_path):
    path = tmp_path / "a.epr"
    data = put(good, 4096, f"{len(metadata)}s", metadata)
    path.write_bytes(put(data, log_header()["metadata_bytes"], "Q", len(metadata)))

    trace = eventprof.open(path)

    assert len(trace.events) > 0
    assert isinstance(trace.metadata, dict)
    repr(trace)


def test_kinds_of_a_later_version_are_left_out(tmp_path, capsys):
    import read_log

    path, later = tmp_path / "now.epr", tmp_path / "later.epr"
    with eventprof.record(output=path):
        for _ in range(50):
            eventprof.mark("here")
            work(3)
    later.write_bytes(of_a_later_version(path.read_bytes(), 101))

    now, trace = eventprof.open(path), eventprof.open(later)

    marks = now.events["event"] == "mark"
    assert marks.sum() == 50
    assert trace.file["unknown_events"] == 50
    assert trace.file["unknown_kinds"] == "later"
    assert not trace.file["missing"]
    assert trace.metadata["damaged_chunks"] == 0
    assert trace.events["event"].tolist() == now.events["event"][~marks].tolist()
    assert trace.events["time"].tolist() == now.events["time"][~marks].tolist()
    assert [event.word for event in read_log.read(later).events] == trace.events["event"].tolist()
    trace.report()
    printed = " ".join(capsys.readouterr().out.split())
    assert "50 events of kinds that this eventprof does not know (later) are left out" in printed
    assert trace.verify()


@pytest.mark.thorough
def test_changed_anywhere(good, tmp_path):
    """Bytes of headers, states and first records changed at random: it opens, or says why not."""
    dice = random.Random(4)
    starts = [0, state_at(good, 0), state_at(good, 1), chunk_at(good), texts_at(good)]
    path = tmp_path / "a.epr"
    path.write_bytes(good)
    with path.open("r+b") as file:
        for _ in range(amount(40, 150)):
            place = dice.choice(starts) + dice.randrange(400)
            file.seek(place)
            file.write(dice.randbytes(dice.choice([1, 4, 8])))
            file.flush()
            try:
                trace = eventprof.open(path)
                trace.events["time"]
                trace.calls["start"]
                trace.functions["name"]
                trace.threads["name"]
            except (eventprof.FormatError, OSError) as error:
                assert str(path) in str(error)
            file.seek(place & ~4095)
            file.write(good[place & ~4095 : (place & ~4095) + 8192])
            file.flush()


@pytest.mark.parametrize("offset_in", [chunk_at, texts_at], ids=["events", "names"])
@pytest.mark.parametrize("bytes_", [4, 128], ids=["magic", "header"])
def test_a_slot_without_its_header_is_missing(offset_in, bytes_, good, tmp_path):
    path = tmp_path / "a.epr"
    offset = offset_in(good)
    path.write_bytes(good)
    assert not eventprof.open(path).file["missing"]

    path.write_bytes(good[:offset] + bytes(bytes_) + good[offset + bytes_ :])

    missing = eventprof.open(path).file["missing"]
    assert any(
        f"from offset {offset} on" in line and "header of a slot" in line for line in missing
    )


def test_a_sparse_file_of_any_length(good, tmp_path, read_apart):
    path = tmp_path / "a.epr"
    path.write_bytes(good)
    os.truncate(path, 1 << 42)

    result, _, grown = read_apart(path)

    assert result == "opened"
    assert grown < 60_000 + 12 * len(good) / 1024
