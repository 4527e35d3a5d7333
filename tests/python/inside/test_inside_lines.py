"""The table of lines: times, bytes, files, the report."""

from __future__ import annotations

import io
from collections import Counter

import children
import footprint
import inside_programs
import numpy as np
import pytest
import raw
from inside_programs import ALL_INSIDE, C_CALLS, CALLS, known, mixed_program, outer, record

import eventprof
from eventprof.show.line_report import write_lines


def model_of_lines(trace):
    """The table of lines, from events and calls, as its documentation says."""
    events, calls = trace.events, trace.calls
    row_call = trace._core.events("call").tolist()
    parents = trace._core.calls("parent").tolist()
    depths = calls["depth"].tolist()
    ends = (calls["start"] + calls["duration"]).tolist()
    hits, times, selfs = Counter(), Counter(), Counter()
    intervals = []  # (thread, line, call, since, until)
    open_lines = {}  # (thread, call): line, since
    last = {}  # thread: time, call innermost from then on
    rows = zip(
        range(len(events)), events["time"].tolist(), events["event"], events["thread"].tolist(),
        events["function"], events["line"], strict=True,
    )  # fmt: skip
    closing = raw.CLOSING
    for row, now, word, thread, function, line in rows:
        call = row_call[row]
        if thread in last:
            since, innermost = last[thread]
            if (thread, innermost) in open_lines:
                selfs[open_lines[thread, innermost][0]] += now - since
        if word in closing:
            if call >= 0:
                for key in [key for key in open_lines if key[0] == thread and key[1] >= call]:
                    intervals.append((thread, *open_lines.pop(key), now))
                last[thread] = now, parents[call]
            else:
                last[thread] = now, last.get(thread, (0, -1))[1]
            continue
        last[thread] = now, call
        if word == "line":
            place = int(function), int(line)
            hits[place] += 1
            if (thread, call) in open_lines:
                intervals.append((thread, *open_lines.pop((thread, call)), now))
            open_lines[thread, call] = place, now
    for (thread, call), (place, since) in open_lines.items():
        until = ends[call] if call >= 0 else last[thread][0]
        intervals.append((thread, place, since, until))
        if call >= 0 and last[thread][1] == call:
            selfs[place] += until - last[thread][0]
    assert depths is not None
    # Of those of one line that lie in each other, the outermost.
    covered = {}
    for thread, place, since, until in sorted(intervals, key=lambda x: (x[2], -x[3])):
        if since >= covered.get((thread, place), 0):
            times[place] += until - since
            covered[thread, place] = until
    return hits, times, selfs


@pytest.mark.parametrize("calls", [CALLS + C_CALLS, CALLS, ()], ids=["calls", "python", "none"])
def test_lines_take_as_long_as_their_events_say(hook, calls):
    mixed_program()

    trace = record(mixed_program, {*calls, "line"}, hook)

    lines = trace.lines
    places = list(zip(lines["function"].tolist(), lines["line"].tolist(), strict=True))
    hits, times, selfs = model_of_lines(trace)
    assert dict(zip(places, lines["hits"].tolist(), strict=True)) == dict(hits)
    assert dict(zip(places, lines["self"].tolist(), strict=True)) == {
        place: selfs[place] for place in places
    }
    assert dict(zip(places, lines["total"].tolist(), strict=True)) == {
        place: times[place] for place in places
    }
    assert (lines["self"] <= lines["total"]).all()
    assert lines["total"].max() <= trace.duration


def test_lines_have_the_blocks_that_they_allocated(hook):
    rec = eventprof.record(lines=True, backend=hook, on_full="grow", threads="current")
    with rec:
        footprint.points(50)

    lines, blocks = rec.trace.lines, rec.trace.allocations
    expected, counts = Counter(), Counter()
    for function, line, size in zip(
        blocks["function"], blocks["line"], blocks["size"], strict=True
    ):
        if function is not np.ma.masked and line is not np.ma.masked:
            expected[int(function), int(line)] += int(size)
            counts[int(function), int(line)] += 1
    places = list(zip(lines["function"].tolist(), lines["line"].tolist(), strict=True))
    allocated = dict(zip(places, lines["allocated"].tolist(), strict=True))
    assert {place: size for place, size in allocated.items() if size} == dict(expected)
    assert dict(zip(places, lines["blocks"].tolist(), strict=True)) == {
        place: counts[place] for place in places
    }
    assert allocated
    assert places == sorted(places)


def test_lines_of_memory_alone_have_no_hits():
    with eventprof.record(calls=False, c_calls=False) as rec:
        kept = [bytes(5000 + i) for i in range(30)]

    lines = rec.trace.lines

    assert len(kept) == 30
    assert lines["hits"].mask.all()
    assert lines["total"].mask.all()
    assert not lines["allocated"].mask.any()
    assert lines["allocated"].max() > 30 * 5000


def test_lines_without_memory_have_no_bytes(hook):
    lines = record(outer, {"line"}, hook).lines
    assert lines["allocated"].mask.all()
    assert lines["blocks"].mask.all()
    assert not lines["hits"].mask.any()


def test_files_have_what_happened_inside(hook, tmp_path):
    events = known((*CALLS, *ALL_INSIDE), hook)
    log = tmp_path / "log.epr"
    rec = eventprof.record(events=events, backend=hook, threads="current", output=log)
    with rec:
        mixed_program()
    trace = rec.trace
    trace.save(tmp_path / "archive.epr")
    columns = ["time", "event", "name", "line", "caller_line", "offset", "opcode", "value"]

    for path in (log, tmp_path / "archive.epr"):
        again = eventprof.open(path)
        assert repr(again.events[columns].to_numpy()) == repr(trace.events[columns].to_numpy())
        for column in columns:
            np.testing.assert_array_equal(
                np.ma.filled(again.events[column], 0), np.ma.filled(trace.events[column], 0)
            )
        for column in again.lines.columns:
            if column != "function":
                assert list(again.lines[column]) == list(trace.lines[column]), column


def test_report_prints_functions_line_by_line(hook):
    rec = eventprof.record(lines=True, backend=hook, threads="current")
    with rec:
        kept = outer()
    assert kept == 6
    written = io.StringIO()
    wanted = rec.trace.functions["name"] == "outer"

    left_out = write_lines(rec.trace, written, limit=0, functions=wanted)

    assert left_out == 0
    heading, heads, *rows = written.getvalue().rstrip().splitlines()
    assert heading.startswith(f"outer  ({inside_programs.__file__})")
    assert heads.split() == ["line", "hits", "time", "self", "%", "bytes", "blocks"]
    first = outer.__code__.co_firstlineno
    assert [row.split()[:2] for row in rows] == [[str(first + 1), "1"], [str(first + 2), "1"]]
    assert [row.rpartition("  ")[2].strip() for row in rows] == [
        "first = inner()",
        "return first + inner()",
    ]


def test_run_and_report_have_lines(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("total = 0\nfor i in range(5):\n    total += i\nprint(total)\n")
    made = tmp_path / "made.epr"

    def run(*arguments):
        return children.eventprof(*arguments, cwd=tmp_path).stdout

    assert run("run", "--lines", "--quiet", "-o", str(made), str(script)) == "10\n"
    page = run("report", str(made), "--lines", "--limit", "1", "--function", str(script))

    rows = {row.split()[0]: row.split() for row in page.splitlines() if row.startswith("  ")}
    assert rows["3"][1] == "5"
    assert rows["3"][-3:] == ["total", "+=", "i"]
