"""Damaged archives, files that are none, and saving that fails: an error that says what is wrong and where."""

from __future__ import annotations

import errno
import os
import random
import resource
import stat
import struct
import warnings
import zlib

import children
import programs
import pytest
import read_archive
from archiving import DATA, assert_same

import eventprof

# ---- Damage --------------------------------------------------------------------------------------


def long_trace(tmp_path):
    run = programs.program("json")
    with eventprof.record(buffer="1 GB") as rec:
        while len(rec.snapshot().events) < 600_000:
            for _ in range(20):
                run()
    path = tmp_path / "long.epr"
    rec.trace.save(path)
    return rec.trace, path


def test_a_file_that_was_cut_off_opens_as_far_as_it_goes(tmp_path):
    trace, path = long_trace(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 3 // 4])

    with pytest.warns(
        RuntimeWarning, match=r"long.epr: part \d+ at offset \d+: the file ends within"
    ):
        opened = eventprof.open(path)

    kept = len(opened.events)
    assert 0 < kept < len(trace.events)
    assert kept % (1 << 18) == 0
    for name in ("time", "kind", "thread", "address"):
        assert (opened._core.events(name) == trace._core.events(name)[:kept]).all()
    assert kept + opened.loss.total == len(trace.events) + trace.loss.total
    assert opened.loss.reason == "damaged"
    assert opened.metadata["damaged_chunks"] == 1
    assert "damaged" in repr(opened)
    assert "LOSS" in str(opened)


def test_a_damaged_block_is_left_out(tmp_path):
    trace, path = long_trace(tmp_path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)

    opened = eventprof.open(path)

    assert opened.metadata["damaged_chunks"] == 1
    assert 0 < len(opened.events) < len(trace.events)
    assert len(opened.events) + opened.loss.total == len(trace.events)


def test_no_cut_and_no_changed_byte_is_taken_for_whole(saved, trace, tmp_path):
    data, path = saved.read_bytes(), tmp_path / "damaged.epr"
    chosen = random.Random(7)
    for nth in range(300):
        damaged = bytearray(data)
        if chosen.randrange(2):
            damaged = damaged[: chosen.randrange(len(data))]
        else:
            damaged[chosen.randrange(len(data))] ^= chosen.randrange(1, 256)
        path.write_bytes(damaged)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                opened = eventprof.open(path)
                assert opened.metadata["damaged_chunks"] > 0
                if nth % 20 == 0:
                    str(opened)
        except (eventprof.FormatError, eventprof.UnsupportedError) as error:
            assert str(error).startswith(f"{path}: ")


def packed(sections):
    """An archive of these sections: (type, items, allocator events, raw bytes); the last is the index."""
    start = read_archive.Path(DATA / "archive-1.4-raw.epr").read_bytes()[:64]
    parts, index, offset = [start], b"", 64
    for kind, items, blocks, raw in sections:
        raw = index if kind == read_archive.INDEX else raw
        header = struct.pack(
            "<IB3xQQQQI", kind, 0, len(raw), len(raw), items, blocks, zlib.crc32(raw)
        )
        header += struct.pack("<I", zlib.crc32(header))
        where, index = offset, index + struct.pack("<Q", offset) + header
        parts += [header, raw]
        offset += len(header) + len(raw)
    trailer = struct.pack("<QQ4x8s", where, offset, b"EVPAREND")
    return b"".join([*parts, trailer, struct.pack("<I", zlib.crc32(trailer))])


def varints(*numbers):
    out = bytearray()
    for number in numbers:
        rest = number
        while rest > 127:
            out.append(rest & 127 | 128)
            rest >>= 7
        out.append(rest)
    return bytes(out)


@pytest.mark.parametrize("old", ["mark", "counter", "span_begin"], ids=["point", "value", "call"])
def test_kinds_of_a_later_version_are_left_out(old, tmp_path):
    """An archive is read as if one of its kinds were one that this version does not know: its events are read and
    left out, and all others are what they were."""
    with eventprof.record(memory=False) as rec:
        for number in range(40):
            eventprof.mark("here")
            with eventprof.span("there"):
                eventprof.counter("level", number)
    rec.trace.save(tmp_path / "now.epr")
    kind, later = {"mark": 46, "counter": 56, "span_begin": 40}[old], 101
    sections = []
    for number, items, blocks, raw in read_archive.sections((tmp_path / "now.epr").read_bytes()):
        data, out = read_archive.Bytes(raw), bytearray()
        if number == read_archive.KINDS:
            for _ in range(items):
                fields = [data.varint() for _ in range(5)]
                word = data.take(data.varint())
                fields[0], word = (later, b"later") if fields[0] == kind else (fields[0], word)
                out += varints(*fields, len(word)) + word
            raw = bytes(out)
        elif number == read_archive.THREADS:
            for _ in range(items):
                head = [data.varint() for _ in range(3)]
                name = data.take(data.varint())
                out += varints(*head, len(name)) + name + varints(data.varint(), data.varint())
                for _ in range(2):
                    counts = read_archive.counts(data)
                    out += varints(len(counts))
                    for each, count in counts.items():
                        out += varints(later if each == kind else each, count)
            raw = bytes(out)
        elif number == read_archive.EVENTS:
            lengths = struct.unpack_from("<8I", raw, 24)
            kinds_at = 56 + sum(lengths[:3])
            raw = bytearray(raw)
            for place in range(kinds_at, kinds_at + lengths[3]):
                if raw[place] > 1 and raw[place] // 2 == kind:
                    raw[place] += 2 * (later - kind)
            raw = bytes(raw)
        sections.append((number, items, blocks, raw))
    (tmp_path / "later.epr").write_bytes(packed(sections))

    now, trace = eventprof.open(tmp_path / "now.epr"), eventprof.open(tmp_path / "later.epr")

    gone = now.events["event"] == old
    assert gone.sum() == 40
    assert trace.file["unknown_events"] == 40
    assert trace.file["unknown_kinds"] == "later"
    assert trace.metadata["damaged_chunks"] == 0
    for column in ("event", "time", "line", "value"):
        kept = now.events[column][~gone]
        assert repr(trace.events[column].tolist()) == repr(kept.tolist())
    assert not trace.loss
    assert trace.verify() or old == "span_begin"


def test_damaged_metadata_costs_only_them(saved):
    data = bytearray(saved.read_bytes())
    kinds = []
    offset = 64
    while offset < len(data) - 32:
        kind, stored = struct.unpack_from("<I12xQ", data, offset)
        if kind == read_archive.METADATA:
            data[offset + 50] ^= 1
        kinds.append(kind)
        offset += 48 + stored
    saved.write_bytes(data)
    assert read_archive.METADATA in kinds

    with pytest.warns(RuntimeWarning, match=r"metadata 1 at offset \d+: its checksum is wrong"):
        opened = eventprof.open(saved)

    assert "argv" not in opened.metadata
    assert len(opened.events) > 0
    assert not opened.loss
    str(opened)


# ---- What cannot be opened -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "it is empty"),
        (b"PK\x03\x04 some other file, " * 10, "its format is unknown"),
        (random.Random(1).randbytes(5000), "its format is unknown"),
        (b"EVP", "it ends within its header, at offset 3"),
        (b"EVPARCH\r\n\x89\r\n" + bytes(100), "transfer it again, as binary"),
        (b"EVPARCH\n\x89\r\n\x1a" + bytes(100), "its header's checksum is wrong"),
    ],
    ids=["empty", "other", "random", "short", "text", "zeros"],
)
def test_what_is_no_archive_is_a_format_error(data, says, tmp_path):
    path = tmp_path / "other.epr"
    path.write_bytes(data)

    with pytest.raises(eventprof.FormatError) as error:
        eventprof.open(path)

    assert str(error.value).startswith(f"{path}: ")
    assert says in str(error.value)
    assert "offset" in str(error.value)


def test_a_newer_format_names_the_eventprof_that_reads_it(saved):
    data = bytearray(saved.read_bytes())
    data[12:14] = struct.pack("<H", 2)
    data[16:32] = b"9.1.0".ljust(16, b"\0")
    data[60:64] = struct.pack("<I", zlib.crc32(data[:60]))
    saved.write_bytes(data)

    with pytest.raises(
        eventprof.UnsupportedError, match=r"saved.epr: .* use eventprof 9.1.0 or later"
    ):
        eventprof.open(saved)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda path: None, FileNotFoundError),
        (lambda path: path.mkdir(), IsADirectoryError),
        (lambda path: path.symlink_to(path), OSError),
    ],
    ids=["missing", "directory", "loop"],
)
def test_opening_what_the_system_refuses(make, expected, tmp_path):
    path = tmp_path / "what.epr"
    make(path)

    with pytest.raises(expected) as error:
        eventprof.open(path)

    assert error.value.filename == os.fspath(path)
    assert error.value.errno


def test_a_pipe_is_not_waited_for(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)

    with pytest.raises(eventprof.FormatError, match="not a regular file"):
        eventprof.open(path)


NOBODY = """
import os, sys
import eventprof
with eventprof.record() as rec:
    sorted("text")
rec.trace.save("/dev/null", force=True)
eventprof.open  # nobody may be unable to import what that needs
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
for what in (lambda: eventprof.open(sys.argv[1]), lambda: rec.trace.save(sys.argv[2])):
    try:
        what()
    except PermissionError as error:
        print(error.filename)
"""


def test_without_rights_it_is_a_permission_error(saved, tmp_path):
    saved.chmod(0)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    tmp_path.chmod(0o755)
    wanted = [str(saved), str(closed / "new.epr")]

    done = children.program(NOBODY, *wanted)

    # As another user, the directory of the test may be out of reach: that is no right, too.
    assert done.stdout.split() == wanted, done.stderr
    assert not (closed / "new.epr").exists()


@pytest.mark.parametrize("path", [3, None, b"bytes.epr", ["x"]])
def test_a_path_of_another_type_is_a_type_error(trace, path):
    with pytest.raises(TypeError):
        trace.save(path)


# ---- Saving that fails ---------------------------------------------------------------------------


def test_what_is_there_is_not_replaced_unasked(trace, tmp_path):
    path = tmp_path / "there.epr"
    path.write_bytes(b"mine")

    with pytest.raises(FileExistsError, match="force=True") as error:
        trace.save(path)

    assert error.value.filename == os.fspath(path)
    assert path.read_bytes() == b"mine"
    trace.save(path, force=True)
    assert_same(trace, eventprof.open(path))
    assert os.listdir(tmp_path) == ["there.epr"]


def test_what_appears_meanwhile_is_not_replaced(trace, tmp_path, monkeypatch):
    path = tmp_path / "there.epr"
    link = os.link

    def meanwhile(*args):
        path.write_bytes(b"theirs")
        return link(*args)

    monkeypatch.setattr(os, "link", meanwhile)
    with pytest.raises(FileExistsError, match="force=True"):
        trace.save(path)

    assert path.read_bytes() == b"theirs"
    assert os.listdir(tmp_path) == ["there.epr"]


def test_file_systems_without_links_will_do(trace, tmp_path, monkeypatch):
    def refuse(*args):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    trace.save(tmp_path / "a.epr")

    assert_same(trace, eventprof.open(tmp_path / "a.epr"))
    assert os.listdir(tmp_path) == ["a.epr"]


def test_a_full_disk_says_what_to_do(trace):
    with pytest.raises(OSError, match="make room") as error:
        trace.save("/dev/full", force=True)

    assert error.value.errno == errno.ENOSPC
    assert error.value.filename == "/dev/full"
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_a_device_is_written_to_and_stays_one(trace):
    trace.save("/dev/null", force=True)

    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_failure_leaves_nothing_behind(trace, tmp_path):
    path = tmp_path / "there.epr"
    path.write_bytes(b"mine")
    import signal

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="make room") as error:
            trace.save(path, force=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)

    assert error.value.errno == errno.EFBIG
    assert error.value.filename == os.fspath(path)
    assert path.read_bytes() == b"mine"
    assert os.listdir(tmp_path) == ["there.epr"]


@pytest.mark.parametrize(
    "make", [lambda p: p / "no" / "x.epr", lambda p: p], ids=["none", "itself"]
)
def test_saving_where_nothing_can_be(trace, tmp_path, make):
    with pytest.raises((FileNotFoundError, IsADirectoryError)) as error:
        trace.save(make(tmp_path))

    assert error.value.filename == os.fspath(make(tmp_path))
    assert os.listdir(tmp_path) == []


def test_saving_through_a_link_keeps_it_and_the_mode(trace, tmp_path):
    target, link = tmp_path / "target.epr", tmp_path / "link.epr"
    target.write_bytes(b"old")
    target.chmod(0o600)
    link.symlink_to(target)

    trace.save(link, force=True)

    assert link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert_same(trace, eventprof.open(target))


def test_no_descriptor_stays_open(trace, tmp_path):
    trace.save(tmp_path / "a.epr")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        opened = eventprof.open(tmp_path / "a.epr")
        len(opened.events)
        with pytest.raises(FileExistsError):
            opened.save(tmp_path / "a.epr")
    unloaded = eventprof.open(tmp_path / "a.epr")
    del unloaded

    assert len(os.listdir("/proc/self/fd")) == before
