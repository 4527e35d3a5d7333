"""What other tools recorded: their own totals, round trips, and files that are not as they should be."""

from __future__ import annotations

import collections
import cProfile
import gzip
import io
import json
import marshal
import pathlib
import pstats
import random
import re
import struct
import sys

import children
import exported
import numpy as np
import pytest
from exported import TRACES, names_of, sums_of

import eventprof
from eventprof.cli import main
from eventprof.importing import recognise

PROGRAM = """
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)

def numbers():
    yield from range(3)

def work():
    kept = [bytearray(12347) for _ in range(3)]
    fib(9)
    list(numbers())
    return sorted(kept, key=len)

if __name__ == "__main__":
    work()
"""


def lacks(trace):
    return " ".join(trace.metadata["imported"]["lacks"])


# ---- Round trips ---------------------------------------------------------------------------------


def stacks_of(trace):
    """The tree: own time and calls of each stack. Others' files do not say what was open before."""
    found = []
    was_open = bool((trace.calls["flags"] & 1).any())
    for weight in ("self",) if was_open else ("self", "calls"):
        out = io.BytesIO()
        trace.export(out, "collapsed", weight=weight)
        # Timelines have surrogates, and Perfetto a NUL, as backslash escapes: those are text then.
        text = re.sub(rb"\\\\(ud[89a-f]|x00)", rb"\\\1", out.getvalue())
        found.append(sorted(text.splitlines()))
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("word", ["chrome", "perfetto", "speedscope"])
@pytest.mark.parametrize("name", TRACES)
def test_timelines_come_back_as_they_were(name, word, tmp_path):
    trace = TRACES[name]()
    path = tmp_path / "there"
    trace.export(path, word)

    back = eventprof.open(path)

    perfetto = word == "perfetto"
    expected = sums_of(trace, depth_max=512 if perfetto else None)
    assert sums_of(back) == (expected.of_texts_without_nul() if perfetto else expected)
    if name != "deep":  # perfetto's importer has no deeper calls
        assert stacks_of(back)[: len(stacks_of(trace))] == stacks_of(trace)
    if name != "late":  # a double of seconds
        assert back.duration <= trace.duration
    assert back.verify(all=True).ok or back.verify(all=True).excused


@pytest.mark.parametrize("name", [name for name in TRACES if name != "empty"])
def test_stacks_come_back_as_they_were(name, tmp_path):
    trace = TRACES[name]()
    trace.export(tmp_path / "a.collapsed")

    back = eventprof.open(tmp_path / "a.collapsed")
    back.export(tmp_path / "b.collapsed")

    lines = (tmp_path / "a.collapsed").read_bytes().splitlines()
    assert sorted(lines) == sorted((tmp_path / "b.collapsed").read_bytes().splitlines())
    assert "counts of calls" in lacks(back)


ALIKE = [
    "\n",
    "\\n",
    "\\\n",
    "\\",
    "\\\\",
    "a;b",
    "a\\x3bb",
    "\udcff",
    "\\udcff",
    "\x1b",
    "\\x1b",
    "é",
]


def alike():
    def fill(builder):
        thread = builder.thread(0, "only")
        for number, name in enumerate(ALIKE):
            thread.begin(100 * number, builder.function(name, None, f"{name}.py", 3))
            thread.end(100 * number + number + 1)

    return exported.made(fill)


@pytest.mark.parametrize("word", ["collapsed", "pstats"])
def test_names_with_escapes_in_them_stay_themselves(word, tmp_path):
    alike().export(tmp_path / "x", word)

    table = eventprof.open(tmp_path / "x").functions
    rows = zip(table["name"], table["file"], table["self"].tolist(), strict=True)
    files = [f"{name}.py" if word == "pstats" else None for name in ALIKE]
    times = range(1, len(ALIKE) + 1)
    assert sorted(rows, key=str) == sorted(zip(ALIKE, files, times, strict=True), key=str)


def test_backslashes_of_others_are_no_escapes(tmp_path):
    (tmp_path / "x").write_text("a\\new 1\nC:\\Users;semi\\x3bcolon 2\n")

    names = set(eventprof.open(tmp_path / "x").functions["name"])
    assert names == {"a\\new", "C:\\Users", "semi;colon"}


def test_chrome_brings_back_the_tree_of_each_call(tmp_path):
    trace = exported.nasty()
    trace.export(tmp_path / "x.json.gz")

    back = eventprof.open(tmp_path / "x.json.gz")

    def rows(trace):
        calls = trace.calls
        names = names_of(trace)
        threads = trace.threads["name"]
        return sorted(
            (threads[thread], start, duration, depth, names[function], kind, -1 if line is None else line)
            for thread, start, duration, depth, function, kind, line in zip(
                calls["thread"].tolist(), calls["start"].tolist(), calls["duration"].tolist(),
                calls["depth"].tolist(), calls["function"].tolist(), calls["kind"],
                calls._column("caller_line").items(), strict=True,
            )
        )  # fmt: skip

    assert rows(back) == rows(trace)
    assert back.metadata["pid"] == trace.metadata["pid"]
    assert back.metadata["start_ns"] == trace.metadata["start_ns"]
    assert list(back.marks["name"]) == ["a mark; of mine"]
    raised = trace.calls["flags"] & 8
    assert np.count_nonzero(back.calls["flags"] & 8) == np.count_nonzero(raised)


def test_an_import_is_saved_as_an_archive(tmp_path):
    trace = exported.nasty()
    trace.export(tmp_path / "x.json")

    eventprof.open(tmp_path / "x.json").save(tmp_path / "x.epr")
    back = eventprof.open(tmp_path / "x.epr")

    assert sums_of(back) == sums_of(trace)
    assert back.metadata["imported"]["format"] == "chrome"


def test_pstats_comes_back_as_sums(tmp_path):
    trace = exported.nasty()
    trace.export(tmp_path / "x.pstats")

    back = eventprof.open(tmp_path / "x.pstats")

    def sums(table):
        found = collections.Counter()
        rows = zip(
            table["name"],
            table["module"],
            table["file"],
            *(table[c].tolist() for c in ("calls", "resumes", "self", "total")),
            strict=True,
        )
        for name, module, file, calls, resumes, own, total in rows:
            # Builtins have no file; their module is in the name there.
            shown = name if file is not None or module in (None, "builtins") else f"{module}.{name}"
            found[shown, "calls"] += calls + resumes
            found[shown, "self"] += own
            found[shown, "total"] += total
        return +found

    assert sums(back.functions) == sums(trace.functions)
    assert "events" in lacks(back)


def test_sums_alone_are_no_calls_to_export(tmp_path):
    exported.nasty().export(tmp_path / "x.pstats")
    back = eventprof.open(tmp_path / "x.pstats")

    with pytest.raises(ValueError, match="perfetto needs calls, and this recording has only sums"):
        back.export(tmp_path / "y.pftrace")
    back.export(tmp_path / "y.csv", table="functions")

    lines = (tmp_path / "y.csv").read_bytes().count(b"\n")
    assert lines == len(back.functions) + 1
    assert not (tmp_path / "y.pftrace").exists()


# ---- Others' files -------------------------------------------------------------------------------


def run(folder, *arguments, program=PROGRAM):
    (folder / "program.py").write_text(program)
    children.run(sys.executable, "-P", "-m", *arguments, cwd=folder)


def compare_with_viztracer(path):
    """Compare calls and durations by function with those in VizTracer's file."""
    trace = eventprof.open(path)
    calls, total = collections.Counter(), collections.Counter()
    for event in json.loads(path.read_bytes())["traceEvents"]:
        if event["ph"] == "X":
            calls[event["name"]] += 1
            total[event["name"]] += event["dur"]
    functions = trace.functions
    found, found_total = collections.Counter(), collections.Counter()
    for row, (name, file, line) in enumerate(
        zip(functions["name"], functions["file"], functions._column("line").items(), strict=True)
    ):
        shown = name if file is None else f"{name} ({file}:{line})"
        found[shown] += int(functions["calls"][row])
        found_total[shown] += int(trace.calls["duration"][trace.calls["function"] == row].sum())
    assert found == calls
    # Ends are cut to that of the call around, where VizTracer's rounding is a ns off.
    for name, duration in total.items():
        assert found_total[name] == pytest.approx(duration * 1000, abs=2 * calls[name])
    return trace, calls


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "work", "many"),
    [
        ("deltablue", "delta_blue(5)", 10_000),
        ("generators", "list(tree(range(2000)))", 20_000),
        ("raytrace", "bench_raytrace(1, 8, 8, None)", 10_000),
    ],
)
def test_viztracer_has_its_own_totals_of_a_program_of_pyperformance(tmp_path, name, work, many):
    pytest.importorskip("viztracer")
    pyperformance = pytest.importorskip("pyperformance")
    data = pathlib.Path(pyperformance.__file__).parent / "data-files" / "benchmarks"
    program = f"import sys; sys.path.insert(0, {str(data / f'bm_{name}')!r})\n"
    program += f"from run_benchmark import *; {work}\n"
    run(tmp_path, "viztracer", "--quiet", "-o", "viz.json", "program.py", program=program)

    trace, _ = compare_with_viztracer(tmp_path / "viz.json")

    assert len(trace.calls) > many
    assert trace.metadata["imported"]["notes"] == ()
    assert trace.verify(all=True).ok


def test_viztracer_has_its_own_totals(tmp_path):
    pytest.importorskip("viztracer")
    run(tmp_path, "viztracer", "--quiet", "-o", "viz.json", "program.py")

    trace, calls = compare_with_viztracer(tmp_path / "viz.json")

    assert calls[next(n for n in calls if n.startswith("fib "))] == 109
    assert "viztracer" in trace.metadata["recorded_by"]
    fib = trace.calls[trace.calls["name"] == "fib"]
    assert int(fib["depth"].max() - fib["depth"].min()) == 8


def test_cprofile_has_its_own_totals(tmp_path):
    namespace = {"__name__": "program"}
    exec(compile(PROGRAM, "program.py", "exec"), namespace)
    profile = cProfile.Profile()
    profile.runcall(namespace["work"])
    profile.dump_stats(tmp_path / "x.prof")

    functions = eventprof.open(tmp_path / "x.prof").functions

    stats = pstats.Stats(str(tmp_path / "x.prof")).stats
    assert len(functions) == len(stats)
    rows = {(f.file or "~", f.line or 0, f.name): f for f in functions}
    for (file, line, name), (primitive, calls, own, total, _) in stats.items():
        bare = name.removeprefix("<built-in method ").removeprefix("<method ")
        row = rows[file, line, bare.removesuffix(">") if file == "~" else name]
        assert (row.calls, row.recursive) == (calls, calls - primitive)
        assert (row.self, row.total) == (round(own * 1e9), round(total * 1e9))


@pytest.mark.thorough
def test_memray_has_its_own_totals(tmp_path):
    memray = pytest.importorskip("memray")
    run(tmp_path, "memray", "run", "--trace-python-allocators", "-o", "m.bin", "program.py")

    trace = eventprof.open(tmp_path / "m.bin")

    reader = memray.FileReader(tmp_path / "m.bin")
    frees = {1, 5, 15}
    sizes, live = 0, {}
    for record in reader.get_allocation_records():
        if record.allocator in frees:
            live.pop(record.address, None)
        else:
            sizes += record.size
            live[record.address] = record.size
    assert int(trace.allocations["size"].sum()) == sizes
    assert trace.peak().bytes == reader.metadata.peak_memory
    # munmap may give back a part of a block: those are the last to come, and no part of this.
    assert int(trace.memory["live"][-1]) == sum(live.values())
    blocks = trace.allocations[trace.allocations["size"] == bytearray(12347).__alloc__()]
    assert set(blocks["name"]) & {"work", "<listcomp>", "work.<locals>.<listcomp>"}
    assert "times" in lacks(trace) and "calls" in lacks(trace)


def test_perfetto_of_another_writer(tmp_path):
    """Absolute clocks, inline names, descriptors of threads, as the SDK writes them."""
    pb = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    trace = pb.Trace()

    def packet(**known):
        found = trace.packet.add(trusted_packet_sequence_id=5, **known)
        return found

    track = packet().track_descriptor
    track.uuid = 11
    track.thread.pid, track.thread.tid, track.thread.thread_name = 3, 4, "their thread"
    counter = packet().track_descriptor
    counter.uuid, counter.name = 12, "their counter"
    counter.counter.unit = counter.counter.UNIT_COUNT
    for time, kind, name in ((100, 1, "outer"), (110, 1, "inner"), (130, 2, None), (150, 2, None)):
        event = packet(timestamp=time).track_event
        event.type, event.track_uuid = kind, 11
        if name:
            event.name = name
    event = packet(timestamp=120).track_event
    event.type, event.track_uuid, event.counter_value = 4, 12, 42
    packet(timestamp=120).ftrace_events.cpu = 1
    (tmp_path / "x.pftrace").write_bytes(trace.SerializeToString())

    back = eventprof.open(tmp_path / "x.pftrace")

    rows = [(c.name, c.start, c.duration, c.depth) for c in back.calls]
    assert rows == [("outer", 0, 50, 0), ("inner", 10, 20, 1)]
    assert "their thread" in list(back.threads["name"])
    assert [(c.name, c.value) for c in back.counters] == [("their counter", 42)]
    assert any("not track events" in note for note in back.metadata["imported"]["notes"])


def test_chrome_of_another_writer(tmp_path):
    """A bare list, begins and ends, cut off in the middle."""
    events = [
        {"ph": "B", "pid": 1, "tid": 2, "ts": 10, "name": "a"},
        {"ph": "B", "pid": 1, "tid": 2, "ts": 12.5, "name": "b"},
        {"ph": "E", "pid": 1, "tid": 2, "ts": 14},
        {"ph": "E", "pid": 1, "tid": 2, "ts": 20},
        {"ph": "b", "pid": 1, "tid": 2, "ts": 20, "id": 1, "name": "async"},
    ]
    (tmp_path / "x.json").write_text("[" + ",\n".join(map(json.dumps, events)) + ',\n{"ph":')

    trace = eventprof.open(tmp_path / "x.json")

    assert [(c.name, c.start, c.duration) for c in trace.calls] == [
        ("a", 0, 10000),
        ("b", 2500, 1500),
    ]
    notes = trace.metadata["imported"]["notes"]
    assert any("cut off" in note for note in notes) and any("phase b" in note for note in notes)


def test_speedscope_of_another_writer(tmp_path):
    """A sampled profile, in seconds, that does not begin at 0."""
    whole = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {"frames": [{"name": "main", "file": "m.py", "line": 3}, {"name": "leaf"}]},
        "profiles": [
            {"type": "sampled", "name": "t", "unit": "seconds", "startValue": 5.0, "endValue": 5.5,
             "samples": [[0], [0, 1], [0, 1], [0], []], "weights": [0.1, 0.1, 0.1, 0.1, 0.1]}
        ],
    }  # fmt: skip
    (tmp_path / "x.json").write_text(json.dumps(whole))

    trace = eventprof.open(tmp_path / "x.json")

    rows = [(c.name, c.start, c.duration) for c in trace.calls]
    assert rows == [("main", 0, 400_000_000), ("leaf", 100_000_000, 200_000_000)]
    assert "counts of calls" in lacks(trace)


def sampling_file(stacks, interval=1000, start=1_700_000_000_000_000):
    """A file of profiling.sampling, as its description says: every encoding."""
    strings, frames = [], []

    def varint(value):
        out = b""
        while value > 127:
            out += bytes([value & 127 | 128])
            value >>= 7
        return out + bytes([value])

    def signed(value):
        return varint(value << 1 ^ value >> 63 if value < 0 else value << 1)

    def string(text):
        if text not in strings:
            strings.append(text)
        return strings.index(text)

    def frame(place):
        if place not in frames:
            string(place[0])
            string(place[1])
            frames.append(place)
        return frames.index(place)

    body, before = b"", None
    for stack in stacks:
        now = [frame(place) for place in stack]
        head = struct.pack("<QI", 77, 0)
        if before is None:
            body += head + b"\x01" + varint(interval) + b"\x03" + varint(len(now))
            body += b"".join(map(varint, now))
        elif now == before:
            body += head + b"\x00" + varint(1) + varint(interval) + b"\x03"
        elif len(now) > len(before) and now[len(now) - len(before) :] == before:
            new = now[: len(now) - len(before)]
            body += head + b"\x02" + varint(interval) + b"\x03" + varint(len(before))
            body += varint(len(new)) + b"".join(map(varint, new))
        else:
            same = 0
            while same < min(len(now), len(before)) and now[-1 - same] == before[-1 - same]:
                same += 1
            new = now[: len(now) - same]
            body += head + b"\x03" + varint(interval) + b"\x03" + varint(len(before) - same)
            body += varint(len(new)) + b"".join(map(varint, new))
        before = now
    table = b"".join(varint(len(s.encode())) + s.encode() for s in strings)
    places = b"".join(
        varint(string(f))
        + varint(string(n))
        + signed(line)
        + signed(0)
        + signed(-1)
        + signed(0)
        + b"\xff"
        for f, n, line in frames
    )
    header = (
        struct.pack("<II4B", 0x54414348, 1, 3, 15, 0, 0)
        + struct.pack("<QQQI", start, interval, len(stacks), 1)
        + struct.pack("<QQII", 64 + len(body), 64 + len(body) + len(table), 0, 1)
    )
    assert len(header) == 64
    footer = struct.pack("<II", len(strings), len(frames)).ljust(32, b"\0")
    return header + body + table + places + footer


def test_sampling_has_its_own_samples(tmp_path):
    main_, leaf, other = ("m.py", "main", 10), ("m.py", "leaf", 20), ("m.py", "other", 30)
    stacks = [
        [main_],
        [leaf, main_],
        [leaf, main_],
        [("m.py", "leaf", 21), main_],
        [other, main_],
        [main_],
    ]
    (tmp_path / "x.bin").write_bytes(sampling_file(stacks))

    trace = eventprof.open(tmp_path / "x.bin")

    rows = [(c.name, c.start, c.duration, c.caller_line) for c in trace.calls]
    ms = 1_000_000
    # From the begin of profiling; a sample comes first after one interval.
    assert rows == [
        ("main", ms, 6 * ms, None), ("leaf", 2 * ms, 3 * ms, 10), ("other", 5 * ms, ms, 10)
    ]  # fmt: skip
    assert trace.metadata["python"] == "3.15.0"
    assert "it was sampled" in lacks(trace)
    assert trace.metadata["imported"]["notes"] == ()


def test_sampling_jsonl_has_its_own_sums(tmp_path):
    lines = [
        {"type": "meta", "v": 0, "run_id": "ab", "sample_interval_usec": 1000, "mode": "wall"},
        {"type": "string_table", "v": 0, "run_id": "ab",
         "strings": [{"str_id": 1, "value": "main"}, {"str_id": 2, "value": "m.py"}, {"str_id": 3, "value": "leaf"}]},
        {"type": "frame_table", "v": 0, "run_id": "ab",
         "frames": [{"frame_id": 1, "path_str_id": 2, "func_str_id": 1, "line": 3},
                  {"frame_id": 2, "path_str_id": 2, "func_str_id": 3, "line": 7}]},
        {"type": "agg", "v": 0, "run_id": "ab", "kind": "frame", "scope": "final", "samples_total": 9,
         "entries": [{"frame_id": 1, "self": 2, "cumulative": 9}, {"frame_id": 2, "self": 7, "cumulative": 7}]},
        {"type": "end", "v": 0, "run_id": "ab", "samples_total": 9},
    ]  # fmt: skip
    (tmp_path / "x.jsonl").write_text(
        "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    )

    functions = eventprof.open(tmp_path / "x.jsonl").functions

    rows = {f.name: (f.self, f.total, f.calls) for f in functions}
    assert rows == {"main": (2_000_000, 9_000_000, None), "leaf": (7_000_000, 7_000_000, None)}


# ---- What CPython 3.15 wrote of a program of pyperformance; its README says how ------------------

REAL = pathlib.Path(__file__).parents[2] / "data" / "sampling-3.15"


def their_samples():
    """Own and total counts of samples by file and function, of its own report of stacks."""
    own, total = collections.Counter(), collections.Counter()
    for line in (REAL / "go.collapsed").read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        frames = []
        for frame in stack.split(";")[1:]:  # without the thread
            file, _, rest = frame.rpartition("/")[2].partition(":")
            # The collector has no file.
            frames.append((file, rest.rpartition(":")[0]) if rest else ("~", file))
        own[frames[-1]] += int(count)
        for frame in set(frames):
            total[frame] += int(count)
    return own, total


def shown(file, name):
    # <frozen importlib._bootstrap> has no folders.
    return (file or "~").rsplit("/", 1)[-1], name


def test_real_samples_are_their_own():
    from eventprof.importing.sampling import _Bytes, _frames, _own, samples

    data = (REAL / "go.bin").read_bytes()
    strings_at, frames_at = struct.unpack_from("<QQ", data, 40)
    frames = _frames(data, "<", strings_at, frames_at)
    left_out = _own(frames)
    found = collections.Counter()
    for key, _, stack in samples(_Bytes(data[64:strings_at], "<")):
        names = [
            name if file == "~" else f"{file.rpartition('/')[2]}:{name}:{max(line, 0)}"
            for file, name, line in (
                frames[frame] for frame in reversed(stack) if frame not in left_out
            )
        ]
        if names:
            found[";".join([f"tid:{key[0]}", *names])] += 1

    theirs = dict(line.rsplit(" ", 1) for line in (REAL / "go.collapsed").read_text().splitlines())
    assert found == {stack: int(count) for stack, count in theirs.items()}


def test_a_real_recording_has_its_own_shares():
    trace = eventprof.open(REAL / "go.bin")

    own, total = their_samples()
    samples = sum(own.values())
    functions = trace.functions
    spent = int(functions["self"].sum())
    rows = {shown(f.file, f.name): f for f in functions}
    assert rows.keys() == total.keys()
    for key, count in total.items():
        # Times are those of the samples, which come a little early or late.
        assert rows[key].self / spent == pytest.approx(own[key] / samples, abs=0.02)
        assert rows[key].total / spent == pytest.approx(count / samples, abs=0.02)
    assert len(trace.threads) == 3
    assert trace.metadata["imported"]["notes"] == ()
    assert trace.metadata["sampling_interval_ns"] == 5_000_000


@pytest.mark.parametrize("ending", ["jsonl", "pstats"])
def test_real_statistics_are_their_own(ending):
    own, total = their_samples()

    trace = eventprof.open(REAL / f"go.{ending}")

    interval = 5_000_000
    found = {shown(f.file, f.name): f for f in trace.functions}
    assert {key: f.self for key, f in found.items()} == {key: own[key] * interval for key in total}
    # By line: a function that is in a sample at two of its lines is counted for both.
    recursive = {key for key, f in found.items() if f.total != total[key] * interval}
    assert all(found[key].total > total[key] * interval for key in recursive)
    assert len(recursive) < 3
    assert all(f.calls is None for f in trace.functions)
    assert "it was sampled" in lacks(trace)


@pytest.mark.skipif(sys.version_info < (3, 15), reason="profiling.sampling came with Python 3.15")
def test_sampling_of_this_python(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM + "    import time\n    time.sleep(0.5)\n")
    done = children.run(
        sys.executable, "-m", "profiling.sampling", "run", "--binary", "-o", "x.bin", "program.py",
        status=None, cwd=tmp_path,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"profiling.sampling does not run here: {done.stderr[-200:]}")

    trace = eventprof.open(tmp_path / "x.bin")

    assert len(trace.calls)
    assert trace.metadata["imported"]["notes"] == ()


# ---- Verbs ---------------------------------------------------------------------------------------


def their_files(folder):
    trace = exported.nasty()
    words = ("chrome", "perfetto", "speedscope", "collapsed", "pstats")
    for word in words:
        trace.export(folder / word, word)
    main_ = ("m.py", "main", 10)
    (folder / "sampling").write_bytes(sampling_file([[main_], [main_]]))
    return [folder / word for word in (*words, "sampling")]


@pytest.mark.parametrize("word", ["chrome", "perfetto", "speedscope", "own"])
def test_stats_shows_no_bytes_where_none_were_recorded(word, tmp_path, capsys):
    trace = exported.open_ends()
    if word == "own":
        trace.save(tmp_path / "x")
    else:
        trace.export(tmp_path / "x", word)

    assert main(["stats", str(tmp_path / "x"), "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["rows"][0]
    assert {row[name] for name in row if "allocated" in name or "blocks" in name} == {None}
    assert main(["stats", str(tmp_path / "x"), "--sort", "at_peak"]) == 0
    lines = capsys.readouterr().out.splitlines()
    head, first = (re.split(r" {2,}", line.strip()) for line in lines[:2])
    assert head[0] == "at_peak" and first[0] == "-", (head, first)
    cells = dict(zip(head, first, strict=False))
    assert cells["allocated"] == cells["blocks_self"] == "-" != cells["calls"]


def test_stats_shows_bytes_where_they_were_recorded(tmp_path, capsys):
    exported.nasty().save(tmp_path / "x.epr")

    assert main(["stats", str(tmp_path / "x.epr"), "--json", "--limit", "0"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert all(row["allocated_self"] is not None for row in rows)
    assert sum(row["allocated_self"] for row in rows) > 12347


@pytest.mark.parametrize("verb", ["report", "stats", "events", "info", "verify"])
def test_every_verb_reads_them(verb, tmp_path, capsys):
    for path in their_files(tmp_path):
        assert main([verb, str(path)]) == 0, path
        printed = capsys.readouterr().out
        if verb in ("report", "stats") and path.name != "sampling":
            assert "fib" in printed


def test_info_says_what_a_source_lacks(tmp_path, capsys):
    (path,) = (p for p in their_files(tmp_path) if p.name == "collapsed")

    assert main(["info", str(path)]) == 0

    printed = capsys.readouterr().out
    assert "collapsed, of another tool" in printed
    assert "counts of calls" in printed


def test_export_converts_them(tmp_path):
    for path in their_files(tmp_path):
        if path.name == "pstats":
            continue
        out = tmp_path / "out.speedscope.json"
        assert main(["export", str(path), "-f", "-o", str(out)]) == 0
        assert exported.sums_of_speedscope(out) == sums_of(eventprof.open(path))


# ---- Files that are not as they should be --------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"traceEvents": 3}', "Chrome trace JSON that cannot be read: traceEvents is not a list"),
        (b'{"traceEvents": [{"ph": "X"}]}', "does not follow its format (KeyError: 'ts')"),
        (b'{"profiles": {}, "shared": {"frames": []}}', "profiles is not a list"),
        (b"a;b 12\nc;d\n", "line 2 does not end with a number"),
        (
            b"\x0a\x05\x40",
            "a Perfetto trace that cannot be read: it ends in the middle of a message",
        ),
        (b"\xfb\xa9\x03\xda", "statistics of pstats that cannot be read: it ends at offset 4"),
        (b"HCAT" + b"\0" * 90, "it is shorter than its header and footer"),
        (b"HCAT" + b"\xff" * 200, "its tables lie outside of it"),
        (gzip.compress(b'{"traceEvents": []}', mtime=0)[:-4], "a Chrome trace"),
    ],
)
def test_what_is_wrong_is_said(data, message, tmp_path):
    path = tmp_path / "x"
    path.write_bytes(data)

    with pytest.raises(eventprof.FormatError) as found:
        eventprof.open(path)

    assert str(found.value).startswith(f"{path}: ")
    assert message in str(found.value) or message == "a Chrome trace"


@pytest.mark.parametrize(
    "data", [b"{}", b"<html>", b"plain text", b'{"a": [1, 2]}', b"\x7fELF" + b"\0" * 64]
)
def test_what_is_of_no_format_is_refused(data, tmp_path):
    path = tmp_path / "x"
    path.write_bytes(data)

    with pytest.raises(eventprof.FormatError, match="its format is unknown .* or another tool"):
        eventprof.open(path)


@pytest.mark.thorough
def test_damaged_files_end_in_format_errors(tmp_path):
    """Whatever a byte becomes: a trace, or an error that names the file."""
    dice = random.Random(12347)
    refused = 0
    for path in their_files(tmp_path):
        whole = path.read_bytes()
        for _ in range(60):
            data = bytearray(whole)
            for _ in range(dice.randint(1, 6)):
                data[dice.randrange(len(data))] = dice.randrange(256)
            if dice.random() < 0.3:
                del data[dice.randrange(len(data)) :]
            broken = tmp_path / "broken"
            broken.write_bytes(data)
            try:
                len(eventprof.open(broken).calls)
            except eventprof.FormatError as error:
                refused += 1
                assert str(broken) in str(error)
    assert refused > 0


def test_marshal_is_not_trusted(tmp_path):
    """Code, and what refers to itself, have no place in a file of sums."""
    code = compile("1", "x", "eval")
    for stats in (
        {("f", 1, "n"): (code, 1, 1.0, 1.0, {})},
        {("f", 1, "n"): (1, 1, [1.0], 1.0, {})},
    ):
        (tmp_path / "x").write_bytes(marshal.dumps(stats))
        with pytest.raises(eventprof.FormatError, match="is not used in such files"):
            eventprof.open(tmp_path / "x")


def test_recognise_tells_formats_apart():
    assert recognise(b'  {"traceEvents":[', "x") == "chrome"
    assert recognise(b'[{"ph":"B"', "x") == "chrome"
    assert (
        recognise(b'{"$schema":"https://www.speedscope.app/file-format-schema.json"', "x")
        == "speedscope"
    )
    assert recognise(b"main;a;b 3\n", "x") == "collapsed"
    assert recognise(b"memray\0\x01", "x") == "memray"
    assert recognise(marshal.dumps({("f", 1, "n"): (1, 1, 1.0, 1.0, {})}), "x") == "pstats"
    assert recognise(b"just some words 7", "x") == "collapsed"
    assert recognise(b"seven", "x") is None
