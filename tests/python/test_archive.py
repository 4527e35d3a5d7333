"""Saving and opening: the same trace, or an error that says what is wrong and where."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import resource
import stat
import struct
import subprocess
import sys
import threading
import warnings
import zlib
from pathlib import Path

import nasty
import numpy as np
import programs
import pytest
import read_archive

import eventprof
from eventprof import _core
from eventprof.files import opening

DATA = Path(__file__).parent.parent / "data"
TABLES = ("events", "calls", "allocations", "functions", "memory", "threads", "resident")


def recorded(run, **options):
    with eventprof.record(**options) as rec:
        run()
    return rec.trace


def work(rounds=20):
    return [bytearray(12347) for _ in range(rounds)] + sorted(range(rounds), key=lambda x: -x)


@pytest.fixture
def trace():
    return recorded(work)


@pytest.fixture
def saved(trace, tmp_path):
    path = tmp_path / "saved.epr"
    trace.save(path)
    return path


def digest(trace):
    """Of all tables."""
    all_of_it = hashlib.sha256()
    for name in TABLES:
        all_of_it.update(repr(getattr(trace, name).to_arrow().to_pydict()).encode())
    return all_of_it.hexdigest()


def assert_same_table(a, b):
    assert a.columns == b.columns
    assert len(a) == len(b)
    ours, theirs = a.to_arrow(), b.to_arrow()
    for name in a.columns:
        x, y = ours.column(name), theirs.column(name)
        assert x.type == y.type
        assert x.equals(y), (a, name)


def assert_same(a, b):
    for name in TABLES:
        assert_same_table(getattr(a, name), getattr(b, name))
    assert a.metadata == b.metadata
    assert a.duration == b.duration
    assert a.pairing == b.pairing
    assert (a.loss.by_kind, a.loss.by_thread, a.loss.reason) == (
        b.loss.by_kind, b.loss.by_thread, b.loss.reason,
    )  # fmt: skip
    assert repr(a) == repr(b)
    assert str(a) == str(b)


def assert_same_answers(a, b):
    for time in (0, a.duration // 3, a.duration):
        assert repr(a.at(time)) == repr(b.at(time))
    assert repr(a.between(a.duration // 4, a.duration // 2)) == repr(
        b.between(a.duration // 4, a.duration // 2)
    )
    assert repr(a.peak()) == repr(b.peak())
    for by in ("site", "function", "stack"):
        assert_same_table(a.leaks(by), b.leaks(by))
        assert_same_table(a.temporary(by), b.temporary(by))
    for function in range(min(5, len(a.functions))):
        assert_same_table(a.callers(function), b.callers(function))
        assert_same_table(a.callees(function), b.callees(function))
        assert repr(a.during(function)) == repr(b.during(function))
    assert_same_table(a.memory_bins(17), b.memory_bins(17))
    assert_same_table(a.memory_of("obj"), b.memory_of("obj"))
    assert_same_table(a.diff(b), b.diff(a))


def saved_and_opened(trace, tmp_path):
    path = tmp_path / "trace.epr"
    trace.save(path, force=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return eventprof.open(path)


# ---- Identity ------------------------------------------------------------------------------------


def random_program(seed):
    chosen = random.Random(seed)
    kept = []

    def fails(depth):
        if depth:
            fails(depth - 1)
        raise ValueError

    def numbers(count):
        for i in range(count):
            yield bytes(i)

    def step(depth):
        for _ in range(chosen.randrange(6)):
            what = chosen.randrange(7)
            if what == 0 and depth < 20:
                step(depth + 1)
            elif what == 1:
                kept.append(bytearray(chosen.randrange(2000)))
            elif what == 2 and kept:
                del kept[chosen.randrange(len(kept))]
            elif what == 3:
                sum(map(len, numbers(chosen.randrange(5))))
            elif what == 4:
                try:
                    fails(chosen.randrange(4))
                except ValueError:
                    pass
            elif what == 5 and kept:
                kept[-1].extend(b"-" * chosen.randrange(5000))
            else:
                sorted(map(str, range(chosen.randrange(9))))

    def run():
        for _ in range(200):
            step(0)

    return run


@pytest.mark.parametrize("seed", range(5))
def test_a_random_program_comes_back(seed, tmp_path):
    trace = recorded(random_program(seed))

    opened = saved_and_opened(trace, tmp_path)

    assert_same(trace, opened)
    assert_same_answers(trace, opened)


@pytest.mark.parametrize("part", nasty.PARTS, ids=lambda part: part.__name__)
def test_a_nasty_program_comes_back(part, tmp_path):
    trace = recorded(lambda: nasty.run([part]))

    opened = saved_and_opened(trace, tmp_path)

    assert_same(trace, opened)
    assert_same_answers(trace, opened)


@pytest.mark.parametrize(
    "options",
    [
        {"memory": False},
        {"calls": False, "c_calls": False},
        {"memory": ["raw"], "c_calls": False},
        {"include": ["programs", "json.*"]},
        {"threads": "current"},
        {"clock": "monotonic"},
        {"events": ["malloc", "free"]},
    ],
    ids=repr,
)
def test_each_kind_of_recording_comes_back(options, tmp_path):
    trace = recorded(programs.program("json"), **options)

    assert_same(trace, saved_and_opened(trace, tmp_path))


@pytest.mark.parametrize("on_full", ["overwrite", "stop"])
def test_loss_comes_back(on_full, tmp_path):
    run = programs.program("richards")
    trace = recorded(lambda: [run() for _ in range(25)], buffer="1 MiB", on_full=on_full)
    assert trace.loss

    assert_same(trace, saved_and_opened(trace, tmp_path))


def test_many_threads_and_calls_open_at_the_start_come_back(tmp_path):
    go = threading.Event()

    def body(n):
        go.wait()
        work(n)

    threads = [threading.Thread(target=body, args=(i,), name=f"t{i}\udc80") for i in range(20)]
    for thread in threads:
        thread.start()

    def run():
        go.set()
        for thread in threads:
            thread.join()

    trace = recorded(run)

    opened = saved_and_opened(trace, tmp_path)

    assert_same(trace, opened)
    assert any(name == "t7\udc80" for name in opened.threads["name"].tolist())


def test_a_trace_of_nothing_comes_back(tmp_path):
    trace = recorded(lambda: None, calls=False, c_calls=False, memory=["raw"])

    assert_same(trace, saved_and_opened(trace, tmp_path))


def test_what_was_paired_before_saving_makes_no_difference(tmp_path):
    rec = eventprof.record()
    with rec:
        kept = work()
    kept.clear()
    first, second = rec._make_trace(), rec._make_trace()
    assert len(second.allocations) > 0

    for trace, name in ((first, "first"), (second, "second")):
        trace.save(tmp_path / name)

    assert digest(eventprof.open(tmp_path / "first")) == digest(eventprof.open(tmp_path / "second"))


def test_an_opened_trace_can_be_saved_again(trace, tmp_path):
    opened = saved_and_opened(trace, tmp_path)
    opened.save(tmp_path / "again.epr")

    assert_same(trace, eventprof.open(tmp_path / "again.epr"))


def test_an_opened_trace_can_be_saved_over_itself(trace, saved):
    opened = eventprof.open(saved)
    opened.save(saved, force=True)

    assert_same(trace, eventprof.open(saved))


def test_a_snapshot_can_be_saved(tmp_path):
    with eventprof.record() as rec:
        work()
        snapshot = rec.snapshot()
        snapshot.save(tmp_path / "snapshot.epr")
        work()

    assert_same(snapshot, eventprof.open(tmp_path / "snapshot.epr"))


def test_opening_twice_gives_equal_traces(trace, saved):
    first, second = eventprof.open(saved), eventprof.open(saved)

    assert first is not second
    assert_same(first, second)
    sites = _core.engine_stats()["sites"]
    assert_same(trace, eventprof.open(saved))
    assert _core.engine_stats()["sites"] == sites


def test_the_events_are_still_there_when_the_file_is_gone(trace, saved):
    opened = eventprof.open(saved)
    saved.unlink()

    assert_same(trace, opened)


def test_metadata_keeps_its_structure(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["prog\udcff", "", 'a"b\n'])
    trace = recorded(work, include=["x*", "*"])

    metadata = saved_and_opened(trace, tmp_path).metadata

    assert metadata == trace.metadata
    assert metadata["argv"] == ("prog\udcff", "", 'a"b\n')
    assert metadata["options"]["include"] == ("x*", "*")


# ---- Other processes -----------------------------------------------------------------------------

READ = """
import sys
sys.path.insert(0, {tests!r})
import eventprof, test_archive
print(test_archive.digest(eventprof.open(sys.argv[1])))
"""


def test_several_processes_read_the_same(trace, saved):
    code = READ.format(tests=str(Path(__file__).parent))
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(saved)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]

    found = {reader.communicate(timeout=120)[0].strip() for reader in readers}

    assert found == {digest(trace)}
    assert [reader.returncode for reader in readers] == [0, 0, 0]


def test_threads_may_ask_an_opened_trace_at_once(trace, saved):
    opened, found = eventprof.open(saved), []
    threads = [threading.Thread(target=lambda: found.append(digest(opened))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert set(found) == {digest(trace)}


# ---- The format, by its page ---------------------------------------------------------------------


def has_zstandard():
    try:
        import zstandard  # noqa: F401
    except ImportError:
        return False
    return True


def assert_reads_alike(path):
    read, opened = read_archive.read(path), eventprof.open(path)
    core = opened._core
    events = read["events"]
    assert [row[0] for row in events] == core.events("time").tolist()
    assert [row[1] for row in events] == core.events("thread").tolist()
    assert [row[2] for row in events] == core.events("kind").tolist()
    assert [row[4] or 0 for row in events] == core.events("address").tolist()
    functions = core.functions()
    for row, function, line in zip(
        events, core.events("function").tolist(), core.events("line").tolist(), strict=True
    ):
        kind, number = row[2], row[3]
        callee, caller, _, site_line = (
            (number, 0, -1, -1) if kind in read_archive.CLOSES else read["sites"][number]
        )
        name = read["names"][callee or caller]
        assert (functions[function] if function >= 0 else None) == (
            (*name[:3], name[3] if name[3] > 0 else None, name[4]) if callee or caller else None
        )
        assert line == (
            max(name[3], -1) or -1 if kind < 10 and callee else site_line if kind >= 10 else -1
        )
    sizes = [row[5] for row in events if row[2] in read_archive.ALLOCATIONS]
    kinds = core.events("kind")
    assert sizes == core.events("size")[np.isin(kinds, list(read_archive.ALLOCATIONS))].tolist()
    for ours, theirs in zip(core.threads(), read["threads"], strict=True):
        name, native_id, first, last, recorded, lost = ours
        assert theirs["recorded"] == recorded
        assert theirs["lost"] == lost
        assert (theirs["first"], theirs["last"]) == (first, last)
        assert (theirs["name"] if theirs["flags"] & 2 else None) == (
            name if theirs["flags"] & 1 else None
        )
        assert theirs["native_id"] == native_id or not theirs["flags"] & 1
    times, resident = core.resident()
    assert read["resident"] == list(zip(times.tolist(), resident.tolist(), strict=True))
    facts, recording = core.facts(), read["recording"]
    assert recording[0] == facts["kinds"]
    assert recording[2:4] == (facts["start_monotonic_ns"], facts["start_realtime_ns"])
    assert recording[5] == facts["clock_frequency_hz"]
    assert recording[9:11] == (facts["duration_ns"], facts["events"])
    return read


@pytest.mark.skipif(not has_zstandard(), reason="needs zstandard")
@pytest.mark.parametrize("name", ["nasty", "json", "generators"])
def test_a_reader_by_the_page_reads_what_we_write(name, tmp_path):
    run = nasty.run if name == "nasty" else programs.program(name)
    trace = recorded(run)
    trace.save(tmp_path / "page.epr")

    read = assert_reads_alike(tmp_path / "page.epr")

    assert opening._tuples(read["metadata"]) == trace._recorder_metadata


@pytest.mark.parametrize("path", sorted(DATA.glob("archive-*.epr")), ids=lambda path: path.name)
def test_a_reader_by_the_page_reads_every_version(path):
    if "zstd" in path.name and not has_zstandard():
        pytest.skip("needs zstandard")
    try:
        eventprof.open(path)
    except eventprof.UnsupportedError:
        pytest.skip("this build lacks the codec")

    read = assert_reads_alike(path)

    assert len(read["events"]) == 1000


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
    start = read_archive.Path(DATA / "archive-1.0-raw.epr").read_bytes()[:64]
    parts, index, at = [start], b"", 64
    for kind, items, blocks, raw in sections:
        raw = index if kind == read_archive.INDEX else raw
        header = struct.pack(
            "<IB3xQQQQI", kind, 0, len(raw), len(raw), items, blocks, zlib.crc32(raw)
        )
        header += struct.pack("<I", zlib.crc32(header))
        where, index = at, index + struct.pack("<Q", at) + header
        parts += [header, raw]
        at += len(header) + len(raw)
    trailer = struct.pack("<QQ4x8s", where, at, b"EVPAREND")
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
    """The same archive as if one kind were one that this version does not know: its events are read and
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
            for at in range(kinds_at, kinds_at + lengths[3]):
                if raw[at] > 1 and raw[at] // 2 == kind:
                    raw[at] += 2 * (later - kind)
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
    at = 64
    while at < len(data) - 32:
        kind, stored = struct.unpack_from("<I12xQ", data, at)
        if kind == read_archive.METADATA:
            data[at + 50] ^= 1
        kinds.append(kind)
        at += 48 + stored
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
rec.trace.save("/dev/null", force=True)  # nobody may be unable to import what that needs
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

    done = subprocess.run([sys.executable, "-c", NOBODY, *wanted], capture_output=True, text=True)

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
