"""Timelines, read by readers of other projects: equal calls, times and bytes."""

from __future__ import annotations

import collections
import os
import re

import exported
import json_schema
import numpy as np
import pytest
import speedscope_schema
from exported import sums_of, text
from exporting import as_collapsed, export

import eventprof
from eventprof.export import WEIGHTS


def test_chrome_has_every_call(any_trace, tmp_path):
    assert exported.sums_of_chrome(export(any_trace, tmp_path, "chrome")) == sums_of(any_trace)


def test_speedscope_has_every_call(any_trace, tmp_path):
    path = export(any_trace, tmp_path, "speedscope")

    assert exported.sums_of_speedscope(path) == sums_of(any_trace)


@pytest.mark.thorough
def test_firefox_has_every_call(any_trace, tmp_path):
    assert exported.sums_of_firefox(export(any_trace, tmp_path, "firefox")) == sums_of(any_trace)


def test_perfetto_has_every_call(any_trace, tmp_path):
    pytest.importorskip("perfetto")

    read = exported.PerfettoReader(export(any_trace, tmp_path, "perfetto"))

    assert read.sums == sums_of(any_trace, depth_max=512).of_texts_without_nul()


def test_perfetto_counts_what_its_importer_drops(tmp_path):
    notes = exported.deep().export(tmp_path / "deep.pftrace")

    assert notes == ["88 calls are deeper than 512, which Perfetto does not show"]


def test_perfetto_carries_lines_memory_and_points(nasty, tmp_path):
    pytest.importorskip("perfetto")
    calls = nasty.calls

    read = exported.PerfettoReader(export(nasty, tmp_path, "perfetto"))

    files = [None, *nasty.functions["file"]]
    places = zip(
        np.ma.filled(calls["caller"], -1).tolist(),
        np.ma.filled(calls["caller_line"], -1).tolist(),
        strict=True,
    )
    expected = collections.Counter(
        (files[caller + 1] or "", line) for caller, line in places if caller >= 0 and line >= 0
    )
    assert read.lines == expected
    for domain in ("raw", "mem", "obj"):
        curve = nasty.memory_of(domain)
        assert read.counters.get(f"live {domain}", []) == list(
            zip(curve["time"].tolist(), curve["live"].tolist(), strict=True)
        )
    resident = nasty.resident
    assert read.counters["resident"] == list(
        zip(resident["time"].tolist(), resident["bytes"].tolist(), strict=True)
    )
    assert [value for _, value in read.counters["a counter"]] == [1.5]
    assert [name for _, name, _ in read.instants] == ["a mark; of mine", "a flow", "a flow"]
    assert read.flows == {7: ["on", "end"]}


def test_perfetto_has_bytes_by_stack(nasty, tmp_path):
    pytest.importorskip("perfetto")

    stacks = exported.PerfettoReader(export(nasty, tmp_path, "perfetto")).stacks

    blocks, end = nasty.allocations, nasty.duration
    assert {key: sum(values.values()) for key, values in stacks.items()} == {
        ("bytes allocated", end): int(blocks["size"].sum()),
        ("bytes that live at the peak", nasty.peak().time): nasty.peak().bytes,
        ("bytes that live at the end", end): int(blocks["size"][blocks["end"].mask].sum()),
    }
    lines = export(nasty, tmp_path, "collapsed", weight="allocated").read_text().splitlines()
    assert {
        ";".join(map(as_collapsed, frames)): value
        for frames, value in stacks["bytes allocated", end].items()
    } == {line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for line in lines}


@pytest.mark.parametrize(("memory", "most"), [(False, 18), (True, 20)])
def test_perfetto_takes_few_bytes_an_event(tmp_path, memory, most):
    """About 12.6, and 14.6 with memory; on a busy machine events are further apart: up to 4 bytes more."""

    def fib(n):
        return [n] if n < 2 else fib(n - 1) + fib(n - 2)

    with eventprof.record(memory=memory) as rec:
        fib(16)
    path = export(rec.trace, tmp_path, "perfetto")

    assert os.path.getsize(path) / len(rec.trace.events) < most


def test_chrome_carries_memory_marks_flows_and_facts(nasty, tmp_path):
    whole = exported.read_json(export(nasty, tmp_path, "chrome"))
    events = whole["traceEvents"]

    calls = [event for event in events if event["ph"] == "X"]
    assert sum(e["args"].get("allocated", 0) for e in calls) == int(
        nasty.calls["allocated_self"].sum()
    )
    assert sum(e["args"].get("freed", 0) for e in calls) == int(nasty.calls["freed_self"].sum())
    lines = [event["args"]["line"] for event in calls]
    assert lines == [
        None if line < 0 else line for line in np.ma.filled(nasty.calls["caller_line"], -1).tolist()
    ]
    live = [e["args"]["bytes"] for e in events if e["name"] == "live obj"]
    assert live == nasty.memory_of("obj")["live"].tolist()
    assert [e["name"] for e in events if e["ph"] == "i"] == ["a mark; of mine"]
    assert [e["ph"] for e in events if e.get("cat") == "flow"] == ["s", "f"]
    threads = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    # The thread of an xdist worker has no name.
    assert {name for name in threads if not re.fullmatch(r"thread \d+", name)} == {
        name for name in nasty.threads["name"] if name is not None
    }
    assert whole["otherData"]["pid"] == os.getpid()


def test_firefox_keeps_its_invariants(nasty, tmp_path):
    profile = exported.read_json(export(nasty, tmp_path, "firefox"))

    def ms(times):
        return [float(time) for time in times]

    assert profile["meta"]["preprocessedProfileVersion"] == 70
    categories = profile["meta"]["categories"]
    assert len([c for c in categories if c["color"] == "grey"]) == 1
    shared = profile["shared"]
    strings = shared["stringArray"]
    assert len(set(strings)) == len(strings)
    for name, table in shared.items():
        if name != "stringArray":
            assert {len(c) for c in table.values() if isinstance(c, list)} <= {table["length"]}
    stacks, frames, funcs = (shared[t] for t in ("stackTable", "frameTable", "funcTable"))
    assert all(0 <= back <= stack for stack, back in enumerate(stacks["prefixOffset"]))
    assert all(0 <= frame < frames["length"] for frame in stacks["frame"])
    assert all(0 <= func < funcs["length"] for func in frames["func"])
    assert all(0 <= category < len(categories) for category in frames["category"])
    assert all(0 <= name < len(strings) for name in funcs["name"])
    places = zip(funcs["source"], funcs["lineNumber"], strict=True)
    names = [None if s is None else shared["sources"]["filename"][s] for s, _ in places]
    assert {strings[n] for n in names if n is not None} == {
        text(nasty.functions["file"][f]) for f in set(nasty.calls["function"].tolist())
        if nasty.functions["file"][f] is not None
    }  # fmt: skip
    for thread in profile["threads"]:
        for name in ("samples", "markers"):
            table = thread[name]
            assert {len(c) for c in table.values() if isinstance(c, list)} == {table["length"]}
        times = ms(thread["samples"]["time"])
        assert times == sorted(times)
        own = sum(ms(thread["samples"]["weight"]))
        assert own == pytest.approx(times[-1] - times[0] if times else 0)
        assert isinstance(thread["pid"], str)
        starts, ends = (ms(thread["markers"][name]) for name in ("startTime", "endTime"))
        assert all(start <= end for start, end in zip(starts, ends, strict=True))
    markers = {strings[n] for t in profile["threads"] for n in t["markers"]["name"]}
    assert {"a mark; of mine", "a span"} <= markers
    assert ("holds the interpreter lock" in markers) == nasty.has_lock
    counted = {c["description"].split()[-1]: c["samples"] for c in profile["counters"]}
    assert int(nasty.resident["bytes"][-1]) == sum(counted.pop("set")["count"])
    for domain, samples in counted.items():
        assert sum(samples["count"]) == int(nasty.memory_of(domain)["live"][-1])
    assert counted


def test_speedscope_is_of_its_schema(any_trace, tmp_path):
    schema = speedscope_schema.SCHEMA
    profile = exported.read_json(export(any_trace, tmp_path, "speedscope"))

    json_schema.conform(profile, schema, schema)

    profile["profiles"][0]["unit"] = "hours"
    assert not json_schema.fits(profile, schema, schema)


@pytest.mark.parametrize("weight", WEIGHTS)
def test_speedscope_with_a_weight_has_the_sums_of_collapsed_stacks(waiting, tmp_path, weight):
    whole = exported.read_json(export(waiting, tmp_path, "speedscope", weight=weight))
    frames = [as_collapsed(frame["name"]) for frame in whole["shared"]["frames"]]

    found: collections.Counter = collections.Counter()
    for profile in whole["profiles"]:
        assert profile["type"] == "sampled"
        assert profile["name"].endswith(f": {weight}")
        for stack, value in zip(profile["samples"], profile["weights"], strict=True):
            found[";".join(frames[frame] for frame in stack)] += value

    lines = export(waiting, tmp_path, "collapsed", weight=weight).read_text().splitlines()
    assert found == {line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for line in lines}
    assert len(whole["profiles"]) <= len(waiting.threads)
    json_schema.conform(whole, speedscope_schema.SCHEMA, speedscope_schema.SCHEMA)


def test_firefox_knows_the_line_of_each_call(tmp_path):
    def leaf():
        pass

    def work():
        leaf()
        leaf()

    with eventprof.record(memory=False) as rec:
        work()
    shared = exported.read_json(export(rec.trace, tmp_path, "firefox"))["shared"]

    frames, funcs = shared["frameTable"], shared["funcTable"]
    lines = {
        frames["line"][frame]
        for frame in shared["stackTable"]["frame"]
        if shared["stringArray"][funcs["name"][frames["func"][frame]]].endswith("work")
    }
    first = work.__code__.co_firstlineno
    assert lines == {None, first + 1, first + 2}


def test_the_longest_tenures_are_markers(waiting, tmp_path, monkeypatch):
    if not waiting.has_lock:
        pytest.skip("this Python has no lock")
    monkeypatch.setattr("eventprof.export.firefox._TENURES_MAX", 1)

    notes = waiting.export(tmp_path / "x.firefox.json")

    assert any("tenures of the interpreter's lock" in note for note in notes)
    profile = exported.read_json(tmp_path / "x.firefox.json")
    found = [
        (float(end) - float(start))
        for thread in profile["threads"]
        for start, end, data in zip(
            *(thread["markers"][name] for name in ("startTime", "endTime", "data")), strict=True
        )
        if data["type"] == "lock"
    ]
    longest = (waiting.gil["end"] - waiting.gil["start"]).max()
    assert [round(length * 1e6) for length in found] == [int(longest)]


def test_speedscope_has_bytes_by_stack(nasty, tmp_path):
    whole = exported.read_json(export(nasty, tmp_path, "speedscope"))

    sums = {p["name"]: sum(p["weights"]) for p in whole["profiles"] if p["type"] == "sampled"}

    in_calls = nasty.allocations["call"].mask == False  # noqa: E712
    blocks = nasty.allocations[in_calls]
    assert sums["allocated"] == int(blocks["size"].sum())
    assert sums["live at the end"] == int(blocks["size"][blocks["end"].mask].sum())
    for profile in whole["profiles"]:
        assert profile["type"] in ("evented", "sampled")
        assert profile["unit"] in ("nanoseconds", "bytes")
        if profile["type"] == "sampled":
            assert len(profile["samples"]) == len(profile["weights"])
