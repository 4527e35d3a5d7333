"""What files of other tools say of loss and sampling: no headline says "nothing lost" of them without knowing it."""

from __future__ import annotations

import gzip
import json
import marshal
import pathlib
import signal
import struct
import sys
import types
import warnings
import zlib
from collections import Counter

import children
import pytest

import eventprof
from eventprof.cli import main
from eventprof.show import tree

P = {"pid": 1, "tid": 1}
CALL = {"ph": "X", "name": "f (m.py:1)", "cat": "fee", "ts": 1, "dur": 2, **P}


def opened(tmp_path, whole, name="x.json"):
    path = tmp_path / name
    path.write_text(whole if isinstance(whole, str) else json.dumps(whole))
    return eventprof.open(path)


def headline(trace):
    return tree.headline(trace, trace._tree)


# ---- The headline --------------------------------------------------------------------------------


def viztracer(overflow):
    return {"traceEvents": [CALL], "viztracer_metadata": {"version": "1.1.1", "overflow": overflow}}


def test_an_overflow_of_viztracer_is_loss(tmp_path, capsys):
    trace = opened(tmp_path, viztracer(overflow=True))

    assert "EVENTS LOST: VizTracer's buffer was full" in headline(trace)
    assert "nothing lost" not in headline(trace)
    main(["report", str(tmp_path / "x.json")])
    shown = " ".join(capsys.readouterr().out.split())
    assert "EVENTS LOST" in shown and "Nothing lost" not in shown
    main(["stats", str(tmp_path / "x.json"), "--json"])
    assert "EVENTS LOST" in capsys.readouterr().out


def test_viztracer_says_that_nothing_was_lost(tmp_path):
    assert "nothing lost" in headline(opened(tmp_path, viztracer(overflow=False)))


def test_loss_stays_in_what_is_saved_and_exported(tmp_path):
    trace = opened(tmp_path, viztracer(overflow=True))
    trace.save(tmp_path / "x.epr")
    trace.export(tmp_path / "again.json")
    trace.export(tmp_path / "again.speedscope.json")

    for name in ("x.epr", "again.json", "again.speedscope.json"):
        assert "EVENTS LOST" in headline(eventprof.open(tmp_path / name)), name


def test_a_format_that_does_not_say_it_is_not_believed(tmp_path):
    evented = {
        "shared": {"frames": [{"name": "a"}]},
        "profiles": [{"type": "evented", "name": "t", "unit": "nanoseconds", "startValue": 0, "endValue": 9,
                      "events": [{"type": "O", "at": 0, "frame": 0}, {"type": "C", "at": 9, "frame": 0}]}],
    }  # fmt: skip
    for whole in ({"traceEvents": [CALL]}, evented, "main;a 5\n"):
        line = headline(opened(tmp_path, whole))
        assert "whether events were lost is unknown" in line and "nothing lost" not in line


def test_our_own_export_says_it(tmp_path):
    with eventprof.record() as rec:
        len("")
    rec.trace.export(tmp_path / "x.json")
    rec.trace.export(tmp_path / "x.speedscope.json")

    for name in ("x.json", "x.speedscope.json"):
        assert "nothing lost" in headline(eventprof.open(tmp_path / name)), name


def test_samples_are_counted_as_samples(tmp_path, capsys):
    raw = "<module> (m.py:3);f (m.py:1) 167\n<module> (m.py:3) 5\n"  # py-spy's format "raw"
    trace = opened(tmp_path, raw)
    assert "172 samples" in headline(trace) and " ns" not in headline(trace)
    assert "nothing lost" not in headline(trace)

    main(["tree", str(tmp_path / "x.json")])
    shown = capsys.readouterr().out
    assert "167 samples" in shown and " ns" not in shown


def sampled(**more):
    return {
        "exporter": "py-spy@0.4.3",
        "shared": {"frames": [{"name": "a", "file": "m.py"}]},
        "profiles": [{"type": "sampled", "name": "t", "startValue": 0, "endValue": 9,
                      "samples": [[0], [0], [0]], "weights": [3, 3, 3], "unit": "milliseconds", **more}],
    }  # fmt: skip


def test_samples_of_speedscope_are_counted(tmp_path):
    assert "3 samples" in headline(opened(tmp_path, sampled()))
    counts = opened(tmp_path, sampled(unit="none"))
    assert "in 9 samples" in headline(counts) and " ns" not in headline(counts)


def test_calls_of_a_sampler_are_no_whole_recording(tmp_path):
    event = {
        "ph": "B",
        "name": "f",
        "cat": "py-spy",
        "ts": 1,
        "args": {"filename": "m.py", "line": 3},
        **P,
    }
    inner = {**event, "name": "g", "args": {"filename": "n.py", "line": 7}}
    ends = [{**event, "ph": "E", "ts": 9}, {**event, "ph": "E", "ts": 9}]
    trace = opened(tmp_path, [event, inner, *ends])

    assert "sampled" in headline(trace) and "nothing lost" not in headline(trace)
    rows = [(c.name, c.file, c.caller_line) for c in trace.calls]
    assert rows == [("f", "m.py", None), ("g", "n.py", 3)]
    # Without lines, as of native frames.
    bare = [{k: v for k, v in e.items() if k != "args"} for e in (event, inner, *ends)]
    assert [c.name for c in opened(tmp_path, bare).calls] == ["f", "g"]


def packet(*parts):
    body = b"".join(parts)
    return b"\x0a" + bytes([len(body)]) + body


def perfetto_slice():
    # timestamp, sequence, a slice's begin with a name and its end
    begin = b"\x48\x01\x58\x05\xba\x01\x01a"
    end = b"\x48\x02\x58\x05"
    return [
        packet(b"\x40\x01\x50\x05\x5a" + bytes([len(begin)]) + begin),
        packet(b"\x40\x09\x50\x05\x5a" + bytes([len(end)]) + end),
    ]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (b"", "whether events were lost is unknown"),
        (packet(b"\x50\x05\xd0\x02\x01"), "EVENTS LOST: packets were dropped 1 time"),
        (packet(b"\x9a\x02\x04\x0a\x02\x18\x07"), "EVENTS LOST: the buffers of Perfetto lost 7 chunks"),
        (packet(b"\x9a\x02\x04\x0a\x02\x18\x00"), "nothing lost"),
    ],
    ids=["silent", "dropped", "overwritten", "whole"],
)  # fmt: skip
def test_perfetto_says_what_its_buffers_lost(more, words, tmp_path):
    (tmp_path / "x.pftrace").write_bytes(b"".join(perfetto_slice()) + more)

    line = headline(eventprof.open(tmp_path / "x.pftrace"))

    assert words in line and (words == "nothing lost" or "nothing lost" not in line)


# ---- Chrome JSON ---------------------------------------------------------------------------------


def calls(trace):
    return [(c.name, c.start, c.duration, c.depth) for c in trace.calls]


def b(name, ts):
    return {"ph": "B", "name": name, "ts": ts, **P}


def x(name, ts, dur):
    return {"ph": "X", "name": name, "ts": ts, "dur": dur, **P}


def e(ts):
    return {"ph": "E", "ts": ts, **P}


@pytest.mark.parametrize(
    ("events", "rows"),
    [
        ([b("outer", 0), x("z", 5, 0), e(10)], [("outer", 0, 10000, 0), ("z", 5000, 0, 1)]),
        (
            [b("a", 0), b("b", 5), e(5), e(9), x("x", 20, 1)],
            [("a", 0, 9000, 0), ("b", 5000, 0, 1), ("x", 20000, 1000, 0)],
        ),
        (
            [b("outer", 0), x("in", 2, 1), x("out", 2, 3), e(10)],
            [("outer", 0, 10000, 0), ("out", 2000, 3000, 1), ("in", 2000, 1000, 2)],
        ),
        (
            [b("a", 0), b("b", 5), e(5), e(5), x("x", 20, 1)],
            [("a", 0, 5000, 0), ("b", 5000, 0, 1), ("x", 20000, 1000, 0)],
        ),
        (
            [b("a", 0), e(5), b("b", 5), e(9), x("x", 6, 1)],
            [("a", 0, 5000, 0), ("b", 5000, 4000, 0), ("x", 6000, 1000, 1)],
        ),
    ],
)
def test_complete_events_among_begins_and_ends(events, rows, tmp_path):
    assert calls(opened(tmp_path, events)) == rows


def test_a_begin_without_an_end_stays_open_among_complete_events(tmp_path):
    trace = opened(tmp_path, [b("a", 0), x("x", 2, 1), e(5), b("open", 6), x("y", 7, 1)])

    assert [(c.name, c.depth) for c in trace.calls] == [("a", 0), ("x", 1), ("open", 0), ("y", 1)]
    assert [event for event in trace.events["event"]].count("return") == 3


def test_a_process_may_be_a_text(tmp_path):
    trace = opened(tmp_path, [{**x("a", 5, 1), "pid": "Spans", "tid": "t"}])

    assert calls(trace) == [("a", 0, 1000, 0)]


@pytest.mark.parametrize("args", [{}, {"args": None}, {"args": 3}, {"args": {}}])
@pytest.mark.parametrize("name", ["thread_name", "process_name"])
def test_a_name_without_arguments_names_nothing(name, args, tmp_path):
    assert calls(opened(tmp_path, [{"ph": "M", "name": name, **P, **args}, x("a", 1, 1)]))


WRONG = [
    ("displaced", 9), ("displaced", [3]), ("options", "M"), ("options", {"events": 3}),
    ("options", {"domains": -1}), ("options", {"domains": [1]}), ("pid", 1 << 70), ("pid", "x"),
    ("argv", "text"), ("argv", [1]), ("flight", 3), ("start_ns", "x"), ("start_ns", 1 << 80),
    ("duration_ns", [1]), ("functions", [["a"]]), ("functions", [[1, 2, 3, 4, 5, 6]]),
    ("merged", [3]), ("processes", [3]), ("overhead", 3), ("clock", {}), ("gil", "x"),
    ("backend", [1]), ("python", 3),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_damaged_facts_are_left_out_and_said(key, value, tmp_path, capsys):
    with eventprof.record() as rec:
        sorted("text")
    rec.trace.export(tmp_path / "whole.json")
    whole = json.loads((tmp_path / "whole.json").read_text())
    whole["otherData"][key] = value
    trace = opened(tmp_path, whole)

    assert str(trace) and trace.verify(all=True) is not None
    notes = trace.metadata["imported"]["notes"]
    assert any("otherData is damaged" in note and key in note for note in notes)
    assert main(["info", str(tmp_path / "x.json")]) == 0


def test_a_thread_number_that_is_no_thread_number(tmp_path):
    trace = opened(tmp_path, [{**x("a", 1, 1), "tid": 1 << 70}])

    assert len(trace.threads) == 1 and trace.threads["native_id"].tolist() == [None]


def test_shares_of_times_of_many_years(tmp_path):
    trace = opened(tmp_path, [x("a", 0, 2 * 10**15), x("b", 10, 10**14)])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shown = str(trace)
    assert "95.0 %" in shown and "5.0 %" in shown and "-4.2 %" not in shown


# ---- Other formats -------------------------------------------------------------------------------


def test_an_empty_stack_of_py_spy_is_a_stack(tmp_path):
    trace = opened(tmp_path, "a (m.py:1);b (m.py:2) 3\n 4\n")

    assert {(f.name, f.self) for f in trace.functions} >= {("b (m.py:2)", 3), ("(no stack)", 4)}


def test_calls_that_pyinstrument_did_not_count_are_unknown(tmp_path):
    stats = {("m.py", 1, "f"): (-1, -1, 0.5, 1.0, {}), ("m.py", 5, "g"): (-1, -1, 0.5, 0.5, {})}
    (tmp_path / "x.prof").write_bytes(marshal.dumps(stats))

    functions = eventprof.open(tmp_path / "x.prof").functions

    assert [f.calls for f in functions] == [None, None]
    assert [f.total for f in functions] == [1_000_000_000, 500_000_000]


def refused(path, words):
    with pytest.raises(eventprof.FormatError) as found:
        eventprof.open(path)
    assert str(found.value).startswith(f"{path}: ") and words in str(found.value)


def test_compressed_files_become_no_more_than_recordings_do(tmp_path):
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    with (tmp_path / "x.json.gz").open("wb") as file:
        file.write(packer.compress(b'{"traceEvents":['))
        for _ in range(80):
            file.write(packer.compress(b" " * (1 << 20)))
        file.write(packer.compress(b"]}") + packer.flush())

    refused(tmp_path / "x.json.gz", "become more than 67,108,864")


def test_a_compressed_file_that_was_cut_off_is_said(tmp_path):
    (tmp_path / "x.json.gz").write_bytes(gzip.compress(b'{"traceEvents": []}', mtime=0)[:-9])

    refused(tmp_path / "x.json.gz", "the compressed data ends early")


def test_marshal_is_read_in_linear_time(tmp_path):
    nested = b"{" + b"\xa9\x02" + b"i\0\0\0\0i\0\0\0\0" + b"N"
    for k in range(64):  # the hash of the last would take 2**64 steps
        nested += b"\xa9\x02" + (b"r" + struct.pack("<I", k)) * 2 + b"N"
    (tmp_path / "refs.prof").write_bytes(nested + b"0")
    digits = 3_000_000
    long = b"{)\x02l" + struct.pack("<i", digits) + b"\xff\x7f" * digits + b"NN0"
    (tmp_path / "long.prof").write_bytes(long)

    refused(tmp_path / "refs.prof", "offset 14: a key that is not a file, a line and a name")
    refused(tmp_path / "long.prof", "offset 4: a number of 3,000,000 digits")


def test_memray_may_die_of_a_file(tmp_path, monkeypatch):
    """A damaged file can end memray's reader by SIGSEGV; this one always does."""
    reader = "import os, signal\nclass FileReader:\n    def __init__(self, path): os.kill(os.getpid(), signal.SIGSEGV)\n"
    (tmp_path / "memray.py").write_text(reader)
    monkeypatch.syspath_prepend(tmp_path)
    # Put there, so that it is taken away again: other tests need the real one.
    monkeypatch.setitem(sys.modules, "memray", types.ModuleType("memray"))
    (tmp_path / "x.bin").write_bytes(b"memray\0" + bytes(64))

    refused(tmp_path / "x.bin", f"memray's reader ended by {signal.SIGSEGV.name}")


def test_memray_does_not_say_that_the_program_was_killed(tmp_path):
    pytest.importorskip("memray")
    program = tmp_path / "p.py"
    program.write_text("import os\nkept = [bytearray(12347) for _ in range(9)]\nos._exit(0)\n")
    out = tmp_path / "m.bin"
    command = [sys.executable, "-m", "memray", "run", "-q", "-o", str(out), str(program)]
    children.run(*command, status=None)

    line = headline(eventprof.open(out))
    assert "whether the end is missing is unknown" in line and "nothing lost" not in line


# ---- pyinstrument --------------------------------------------------------------------------------

HEAD = {
    "start_time": 1_700_000_000.5, "duration": 1.0, "sample_count": 3,
    "target_description": "Program: prog.py", "cpu_time": 0.1,
}  # fmt: skip


def frame(name, file, line, time, *children):
    return {
        "function": name, "file_path": file, "line_no": line, "time": time, "await_time": 0.0,
        "children": list(children),
    }  # fmt: skip


def test_pyinstrument_json_has_its_own_times(tmp_path):
    root = frame(
        "<module>", "prog.py", 1, 1.0,
        frame("f", "prog.py", 2, 0.5, frame("[self]", "", 0, 0.2), frame("len", "<built-in>", 0, 0.3)),
        frame("g", "prog.py", 9, 0.25),
    )  # fmt: skip
    trace = opened(tmp_path, {**HEAD, "root_frame": root})

    rows = {f.name: (f.total, f.self) for f in trace.functions}
    ms = 1_000_000
    assert rows == {
        "<module>": (1000 * ms, 250 * ms), "f": (500 * ms, 200 * ms), "len": (300 * ms, 300 * ms),
        "g": (250 * ms, 250 * ms),
    }  # fmt: skip
    assert "3 samples" in headline(trace) and trace.metadata["argv"] == ("prog.py",)


def test_pyinstrument_sessions_have_their_own_samples(tmp_path):
    thread = "MainThread\0<thread>\x001234"
    f, g = "f\0p.py\x001\x01l3", "g\0p.py\x007\x01l8"
    records = [[[thread, f], 0.25], [[thread, f, g], 0.5], [["Other\0<thread>\x009", g], 0.25]]
    trace = opened(tmp_path, {**HEAD, "frame_records": records}, "x.pyisession")

    assert [(c.name, c.duration) for c in trace.calls if c.thread == 0] == [
        ("f", 750_000_000), ("g", 500_000_000)
    ]  # fmt: skip
    assert list(trace.threads["name"]) == ["MainThread", "Other"]


def test_pyinstrument_writes_what_is_read(tmp_path):
    pytest.importorskip("pyinstrument")
    program = tmp_path / "p.py"
    program.write_text(
        "import time\ndef f():\n end = time.perf_counter() + .1\n while time.perf_counter() < end: pass\nf()\n"
    )
    for form in ("json", "pyisession"):
        out = tmp_path / f"x.{form}"
        children.run(sys.executable, "-m", "pyinstrument", "-r", form, "-o", out, program)
        trace = eventprof.open(out)
        assert "f" in set(trace.functions["name"])
        samples = json.loads(out.read_text())["sample_count"]
        assert f"{samples:,} sample" in headline(trace)


# ---- Firefox -------------------------------------------------------------------------------------


def processed(**more):
    """As samply writes it: times of samples as differences, tables in each thread."""
    return {
        "meta": {"version": 29, "preprocessedProfileVersion": 55, "stackwalk": 1, "interval": 1.0,
                 "startTime": 1_700_000_000_000.0, "product": "prog.py", "processType": 0},
        "libs": [],
        "threads": [{
            "name": "MainThread", "pid": "77", "tid": "78", "isMainThread": True,
            "stringArray": ["main", "leaf", "m.py"],
            "funcTable": {"length": 2, "name": [0, 1], "fileName": [2, 2], "lineNumber": [3, 7]},
            "frameTable": {"length": 2, "func": [0, 1], "line": [4, 8]},
            "stackTable": {"length": 2, "frame": [0, 1], "prefix": [None, 0]},
            "samples": {"length": 4, "stack": [0, 1, 1, None], "timeDeltas": [5.0, 1.0, 1.0, 2.0]},
        }],
        **more,
    }  # fmt: skip


MS = 1_000_000


def test_processed_profiles_have_their_own_samples(tmp_path):
    trace = opened(tmp_path, processed())

    rows = [(c.name, c.file, c.start, c.duration) for c in trace.calls]
    assert rows == [("main", "m.py", 5 * MS, 4 * MS), ("leaf", "m.py", 6 * MS, 3 * MS)]
    assert "4 samples" in headline(trace)
    assert trace.metadata["pid"] == 77


def test_shared_tables_and_offsets_of_prefixes(tmp_path):
    whole = processed()
    thread = whole["threads"][0]
    shared = {name: thread.pop(name) for name in ("stringArray", "funcTable", "frameTable")}
    shared["funcTable"]["source"] = [0, 0]
    del shared["funcTable"]["fileName"]
    shared["sources"] = {"length": 1, "filename": [2]}
    shared["stackTable"] = {"length": 2, "frame": [0, 1], "prefixOffset": [0, 1]}
    del thread["stackTable"]
    trace = opened(tmp_path, {**whole, "shared": shared})

    assert [(c.name, c.file) for c in trace.calls] == [("main", "m.py"), ("leaf", "m.py")]


def test_raw_profiles_have_schemas(tmp_path):
    thread = {
        "name": "GeckoMain", "pid": 77, "tid": 78,
        "stringTable": ["(root)", "f (m.py:3)"],
        "frameTable": {"schema": {"location": 0, "line": 1}, "data": [[0], [1, 4]]},
        "stackTable": {"schema": {"prefix": 0, "frame": 1}, "data": [[None, 0], [0, 1]]},
        "samples": {"schema": {"stack": 0, "time": 1}, "data": [[0, 1.0], [1, 2.0], [0, 4.0]]},
    }  # fmt: skip
    trace = opened(tmp_path, processed(threads=[thread]))

    rows = [(c.name, c.file, c.duration) for c in trace.calls]
    assert rows == [("(root)", None, 4 * MS), ("f", "m.py", 2 * MS)]


def test_our_export_to_firefox_comes_back(tmp_path):
    with eventprof.record(memory=False) as rec:
        sorted("text", key=lambda c: c)
    rec.trace.export(tmp_path / "x.firefox.json", "firefox")

    back = eventprof.open(tmp_path / "x.firefox.json")

    [was] = [f.total for f in rec.trace.functions if f.name == "sorted"]
    [now] = [f.total for f in back.functions if f.name == "sorted"]
    assert now == was and "nothing lost" in headline(back)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"threads": 3}, "threads is not a list"),
        ({"threads": [{"samples": {}}]}, "threads[0] does not follow the format (KeyError"),
        ({"threads": [3]}, "threads[0]"),
    ],
)
def test_what_is_wrong_in_a_profile_is_said(change, words, tmp_path):
    (tmp_path / "x.json").write_text(json.dumps(processed(**change)))

    refused(pathlib.Path(tmp_path / "x.json"), words)


def test_a_stack_around_itself_has_no_end(tmp_path):
    whole = processed()
    whole["threads"][0]["stackTable"]["prefix"] = [1, 0]
    (tmp_path / "x.json").write_text(json.dumps(whole))

    refused(tmp_path / "x.json", "has no end")


# ---- What is written -----------------------------------------------------------------------------


def two_processes(tmp_path):
    """A merged trace of two recordings, as of two processes."""
    for pid in (4001, 4002):
        with eventprof.record() as rec:
            eventprof.mark("here")
            sorted("text", key=lambda c: c)
        rec.trace.export(tmp_path / f"{pid}.json")
        whole = json.loads((tmp_path / f"{pid}.json").read_text())
        whole["otherData"] |= {"pid": pid, "argv": [f"prog{pid}.py"]}
        (tmp_path / f"{pid}.json").write_text(json.dumps(whole))
    return eventprof.merge([eventprof.open(tmp_path / f"{pid}.json") for pid in (4001, 4002)])


def test_chrome_has_each_process_of_a_folder(tmp_path):
    trace = two_processes(tmp_path)
    trace.export(tmp_path / "both.json")

    events = json.loads((tmp_path / "both.json").read_text())["traceEvents"]
    assert {e["pid"] for e in events if e["ph"] in "Xi"} == {4001, 4002}
    names = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    assert (names[4001], names[4002]) == ("prog4001.py", "prog4002.py")
    back = eventprof.open(tmp_path / "both.json")
    assert sorted(back.calls["duration"]) == sorted(trace.calls["duration"])


def test_perfetto_has_each_process_of_a_folder(tmp_path):
    from eventprof.importing.perfetto import fields

    two_processes(tmp_path).export(tmp_path / "both.pftrace")

    processes, of_threads, parents = {}, set(), set()
    for _, data in fields((tmp_path / "both.pftrace").read_bytes()):
        track = dict(fields(dict(fields(data)).get(60, b"")))
        if 3 in track:
            processes[dict(fields(track[3]))[1]] = track[1]
        if 4 in track:
            of_threads.add(dict(fields(track[4]))[1])
            parents.add(track[5])
    assert of_threads == processes.keys() == {4001, 4002}
    assert parents == set(processes.values())


def test_firefox_has_each_process_of_a_folder(tmp_path):
    trace = two_processes(tmp_path)
    trace.export(tmp_path / "both.firefox.json")

    profile = json.loads((tmp_path / "both.firefox.json").read_text())
    named = {thread["pid"]: thread["processName"] for thread in profile["threads"]}
    assert named == {"4001": "prog4001.py", "4002": "prog4002.py"}
    assert len({thread["tid"] for thread in profile["threads"]}) == len(profile["threads"])
    main = Counter(thread["pid"] for thread in profile["threads"] if thread["isMainThread"])
    assert main == {"4001": 1, "4002": 1}
    back = eventprof.open(tmp_path / "both.firefox.json")
    assert len(back.threads) == 2
    assert sorted(back.calls["duration"]) == sorted(trace.calls["duration"])


def test_firefox_has_the_memory_of_a_folder_beside_threads(tmp_path):
    for name in "ab":
        with eventprof.record(output=tmp_path / f"{name}.epr"):
            kept = [bytes(5000 + n) for n in range(9)]
        del kept

    trace = eventprof.merge([eventprof.open(tmp_path / f"{name}.epr") for name in "ab"])
    trace.export(tmp_path / "both.firefox.json")

    profile = json.loads((tmp_path / "both.firefox.json").read_text())
    assert len({thread["pid"] for thread in profile["threads"]}) == 2
    # The viewer shows a counter only beside threads of its process.
    first = profile["threads"][0]["pid"]
    assert {counter["pid"] for counter in profile["counters"]} == {first}
    assert all("all processes" in counter["description"] for counter in profile["counters"])


LABEL = '\udc80x, "y"\''


@pytest.mark.parametrize("form", ["csv", "sqlite", "jsonl"])
def test_a_label_may_have_any_name(form, tmp_path):
    with eventprof.record(memory=False) as rec, eventprof.label(**{LABEL: "v"}):
        len("")
    path = tmp_path / f"x.{form}"
    rec.trace.export(path, form)

    assert b"\\udc80x" in path.read_bytes()
    if form == "csv":
        import csv

        rows = list(csv.reader(path.read_text().splitlines()))
        assert len({len(row) for row in rows}) == 1


def test_no_index_of_arrow_is_negative(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    with eventprof.record() as rec:
        [object() for _ in range(3)]

    for name in ("events", "calls", "functions", "allocations"):
        table = pyarrow.table(getattr(rec.trace, name))
        table.validate(full=True)
        for column in table.columns:
            for chunk in column.chunks:
                if pyarrow.types.is_dictionary(chunk.type) and chunk.null_count:
                    raw = chunk.indices.buffers()[1].to_pybytes()
                    width = chunk.indices.type.bit_width // 8
                    codes = [
                        int.from_bytes(raw[offset : offset + width], "little", signed=True)
                        for offset in range(0, len(chunk) * width, width)
                    ]
                    assert min(codes) >= 0 and len(chunk.dictionary) > 0
