"""The page, in a headless Chromium: what it draws and says is compared with the tables.

Without a Chromium, what needs one is skipped. EVENTPROF_CHROMIUM names one.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import subprocess
import sys
import threading
import warnings
from collections import Counter, defaultdict
from pathlib import Path

import browser as chromium
import numpy as np
import pytest

import eventprof
from eventprof import cli
from eventprof.trace.table import Table
from eventprof.viewer import data as page_data
from eventprof.viewer import page, write

SHIFT = 8
GUTTER, RULER = 150, 22


@pytest.fixture(scope="module")
def browser():
    if chromium.find() is None:
        pytest.skip("no chromium here: apt-get install chromium, or EVENTPROF_CHROMIUM=PATH")
    started = chromium.Browser()
    yield started
    started.close()


# ---- A program -----------------------------------------------------------------------------------


def leaf(count):
    return [bytes(50 + n) for n in range(count)]


def keep(kept, count):
    kept.append([bytearray(1000 + n) for n in range(count)])


def steps(kept, count):
    for n in range(count):
        leaf(n % 7)
        if n % 40 == 0:
            keep(kept, 3)


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def numbers(count):
    yield from range(count)


def program():
    kept = []
    eventprof.mark("begin")
    threads = [
        threading.Thread(target=steps, args=(kept, 150), name=f"worker_{k}") for k in range(2)
    ]
    with eventprof.span("threads"):
        for thread in threads:
            thread.start()
        steps(kept, 200)
        for thread in threads:
            thread.join()
    for k in range(10):
        eventprof.counter("queue", k % 4)
        sum(numbers(3))
    fib(11)
    kept.clear()
    fib(9)
    return kept


@pytest.fixture(scope="module")
def trace():
    with eventprof.record() as rec:
        program()
    return rec.trace


@pytest.fixture(scope="module")
def path(trace, tmp_path_factory):
    # Small tiles, so that there are many.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_data, "TILE", 4096)
        patch.setattr(page_data, "COARSE", 64)
        path = tmp_path_factory.mktemp("page") / "page.html"
        write(trace, path, title="a program")
    return path


@pytest.fixture
def shown(browser, path):
    """The page, as when it is opened; nothing is on its console at the end."""
    browser.size(1400, 900)
    browser.open(path)
    yield browser
    assert browser.console == []


@pytest.fixture(scope="module")
def order(trace):
    """The row of `trace.calls` that each call of the page is."""
    calls = trace.calls
    return np.lexsort((np.arange(len(calls)), calls["depth"], calls["thread"]))


def values(table, name):
    return table._column(name).values()


# ---- The data ------------------------------------------------------------------------------------


def test_the_page_has_every_call_of_the_table(shown, trace, order):
    calls = trace.calls
    found = shown.run(
        "(({data}) => ({start: [...data.start], dur: [...data.dur], func: [...data.func], flags: [...data.flags],"
        " line: [...data.line], kind: [...data.kind].map((k) => data.head.kinds[k]),"
        " parent: Array.from({length: data.count}, (_, n) => data.parentOf(n)), none: data.none}))(eventprofPage)"
    )
    place = np.empty(len(order), dtype=int)
    place[order] = np.arange(len(order))
    parent = values(calls, "parent")[order]
    function = values(calls, "function")[order]
    assert len(found["start"]) == len(calls) > 1000
    assert found["start"] == values(calls, "start")[order].tolist()
    assert found["dur"] == values(calls, "duration")[order].tolist()
    assert found["func"] == np.where(function < 0, found["none"], function).tolist()
    assert found["flags"] == values(calls, "flags")[order].tolist()
    assert found["line"] == np.maximum(values(calls, "caller_line")[order], 0).tolist()
    assert found["kind"] == list(calls["kind"][order])
    assert found["parent"] == np.where(parent < 0, -1, place[parent]).tolist()


def test_the_page_has_every_block_of_the_table(shown, trace, order):
    blocks = trace.allocations
    found = shown.run(
        "(({data: d}) => ({birth: [...d.birth].map((e) => d.time[e]), death: [...d.death].map((e) => e ? d.time[e] : -1),"
        " size: [...d.size], holder: [...d.holder], line: [...d.size.keys()].map((b) => d.lineOf(b)), none: d.none,"
        " call: [...d.birth].map((e) => d.callOfEvent(e)), freed: [...d.death].map((e) => e ? d.callOfEvent(e) : -1)}))"
        "(eventprofPage)"
    )
    place = np.empty(len(order), dtype=int)
    place[order] = np.arange(len(order))
    holder = trace._block_functions()
    call, freed, end = (values(blocks, name) for name in ("call", "freed_in", "end"))
    assert len(blocks) > 1000
    assert found["birth"] == values(blocks, "start").tolist()
    assert found["death"] == end.tolist()
    assert found["size"] == values(blocks, "size").tolist()
    assert found["holder"] == np.where(holder < 0, found["none"], holder).tolist()
    assert found["line"] == np.maximum(values(blocks, "line"), 0).tolist()
    assert found["call"] == np.where(call < 0, -1, place[call]).tolist()
    assert found["freed"] == np.where((freed < 0) | (end < 0), -1, place[freed]).tolist()


def test_the_coarse_picture_sums_up_to_the_calls(shown, trace):
    groups, total, longest, rows = shown.run(
        "(({data: d}) => [d.groups, d.coarseSum.reduce((a, b) => a + b, 0),"
        " d.coarseMost.reduce((a, b) => Math.max(a, b), 0), d.rows.length])(eventprofPage)"
    )
    duration = values(trace.calls, "duration")
    assert rows < groups < len(trace.calls)
    assert total == duration.sum()
    assert longest == duration.max()


def test_the_pyramid_finds_the_longest_and_the_sum_of_any_range(shown, trace, order):
    duration = values(trace.calls, "duration")[order]
    random = np.random.default_rng(7)
    ends = np.sort(random.integers(0, len(duration) + 1, (200, 2)), axis=1)
    ends = ends[ends[:, 0] < ends[:, 1]].tolist()
    found = shown.run(
        f"{json.dumps(ends)}.map(([a, b]) => {{ const p = eventprofPage.data.pyramid; p.query(a, b); return [p.best, p.total]; }})"
    )
    assert found == [[int(a + duration[a:b].argmax()), int(duration[a:b].sum())] for a, b in ends]


def test_nothing_but_the_page_is_loaded(shown):
    assert shown.run("performance.getEntriesByType('resource').length") == 0
    policy = shown.run("document.querySelector('meta[http-equiv]').content")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


# ---- The timeline --------------------------------------------------------------------------------


def rows_on_screen(shown):
    return shown.run(
        "(({app: {timeline: t}, data, state}) => t.drawn.map((d) => ({thread: data.rows[d.row].thread,"
        " depth: data.rows[d.row].depth, y: (d.y + d.end) / 2, v0: state.v0, v1: state.v1, width: t.raster.width})))(eventprofPage)"
    )


@pytest.mark.parametrize("zoom", [1, 7, 60])
def test_what_is_under_a_pixel_is_a_call_that_is_there(shown, trace, order, zoom):
    span = trace.duration / zoom
    shown.run(
        f"eventprofPage.update({{v0: {trace.duration * 0.31}, v1: {trace.duration * 0.31 + span}}})"
    )
    if zoom == 1:
        shown.run(f"eventprofPage.update({{v0: 0, v1: {trace.duration}}})")
    shown.settle()
    calls = trace.calls
    start, duration = values(calls, "start")[order], values(calls, "duration")[order]
    thread, depth = values(calls, "thread")[order], values(calls, "depth")[order]
    compared = 0
    for row in rows_on_screen(shown):
        numbers = shown.run(
            f"Array.from({{length: {row['width']}}}, (_, x) => eventprofPage.under({GUTTER} + x + 0.5, {row['y']}))"
        )
        each = (row["v1"] - row["v0"]) / row["width"]
        of_row = np.flatnonzero((thread == row["thread"]) & (depth == row["depth"]))
        x0 = (start[of_row] - row["v0"]) / each
        x1 = (start[of_row] + duration[of_row] - row["v0"]) / each
        for x, number in enumerate(numbers):
            near = of_row[(x0 < x + 1.5) & (x1 > x - 0.5)]
            whole = of_row[(x0 <= x) & (x1 >= x + 1)]
            begun = of_row[(x0 > x + 1e-6) & (x0 < x + 1 - 1e-6)]
            if number >= 0:
                assert number in near, (row, x)
            else:
                assert not len(whole) and not len(begun), (row, x)
            if len(whole) == 1 and len(near) == 1:
                assert number == whole[0]
            compared += number >= 0
    assert compared > 200


def test_a_lone_call_of_no_length_to_speak_of_is_seen(shown, trace, order):
    call = call_of(trace, order, "keep", -1)
    shown.run(f"eventprofPage.app.show({call})")
    shown.run(f"eventprofPage.update({{v0: 0, v1: {trace.duration}}})")
    shown.settle()
    number, pixel, back = shown.run(
        f"(({{app: {{timeline: t, look}}, data}}) => {{ const p = t.placeOf({call}); const x = Math.floor(t.xOf(data.start[{call}]));"
        f" return [t.under(x + 0.5, p.y + 6), t.raster.pixels[Math.floor(p.y + 6) * t.raster.width + x - {GUTTER}], look.back]; }})(eventprofPage)"
    )
    assert number >= 0
    assert pixel != back


def view(shown):
    return shown.run("[eventprofPage.state.v0, eventprofPage.state.v1]")


def place_of(shown, call):
    """The middle of a call on the screen."""
    box = shown.box("#timeline")
    x0, x1, y = shown.run(
        f"(({{x0, x1, y}}) => [x0, x1, y])(eventprofPage.app.timeline.placeOf({call}))"
    )
    return box["x"] + (max(x0, GUTTER) + min(x1, 1398)) / 2, box["y"] + y + 7


def call_of(trace, order, name, which=0):
    """The number on the page of a function's longest call, or of the one after."""
    names = trace.calls["name"][order]
    rows = np.flatnonzero(names == name)
    duration = values(trace.calls, "duration")[order]
    return int(rows[np.argsort(-duration[rows], kind="stable")[which]])


def test_the_wheel_zooms_about_the_pointer(shown):
    box = shown.box("#timeline")
    before = view(shown)
    at = before[0] + (700 - GUTTER) / (1400 - GUTTER) * (before[1] - before[0])

    shown.mouse("mouseWheel", 700, box["y"] + 60, deltaX=0, deltaY=-400)
    shown.wait(f"eventprofPage.state.v1 - eventprofPage.state.v0 < {(before[1] - before[0]) * 0.9}")

    after = view(shown)
    assert after[0] + (700 - GUTTER) / (1400 - GUTTER) * (after[1] - after[0]) == pytest.approx(
        at, rel=1e-6
    )


def test_drag_keys_and_buttons_move_the_view(shown, trace):
    shown.run("eventprofPage.update({v0: 1000, v1: 101000})")
    shown.settle()
    box = shown.box("#timeline")
    shown.drag(700, box["y"] + 40, 575, box["y"] + 40)
    assert view(shown) == pytest.approx([11000, 111000])
    shown.key("d")
    assert view(shown) == pytest.approx([31000, 131000])
    shown.key("ArrowLeft")
    assert view(shown) == pytest.approx([11000, 111000])
    shown.key("w")
    assert view(shown)[1] - view(shown)[0] == pytest.approx(70000)
    shown.key("s")
    assert view(shown)[1] - view(shown)[0] == pytest.approx(100000)
    shown.key("0")
    assert view(shown) == [0, trace.duration]


def test_a_double_click_fits_a_call(shown, trace, order):
    call = call_of(trace, order, "steps")
    start, duration = (
        values(trace.calls, "start")[order[call]],
        values(trace.calls, "duration")[order[call]],
    )
    shown.run(f"eventprofPage.app.show({call})")  # its thread may be below
    shown.settle()
    shown.click(*place_of(shown, call), count=2)
    v0, v1 = view(shown)
    assert v0 < start < start + duration < v1
    assert v1 - v0 == pytest.approx(1.1 * duration)


def test_hover_says_what_the_tables_know(shown, trace, order):
    call = call_of(trace, order, "keep")
    row = order[call]
    shown.run(f"eventprofPage.app.fitCall({call})")
    shown.settle()
    shown.mouse("mouseMoved", *place_of(shown, call))
    shown.wait("!document.querySelector('#tip').hidden")
    said = shown.run("document.querySelector('#tip').innerText")
    calls = trace.calls
    assert said.splitlines()[0] == "keep"
    assert f"{__file__}:{keep.__code__.co_firstlineno}" in said
    assert "called by steps, line" in said
    assert ("waited" in said) == trace.has_lock
    memory = shown.run(f"eventprofPage.data.memoryOf({call})")
    assert memory == {
        "bytes": calls["allocated_self"][row], "blocks": calls["blocks_self"][row],
        "below": calls["allocated"][row], "blocksBelow": calls["blocks"][row],
    }  # fmt: skip
    assert shown.run(f"eventprofPage.data.selfOf({call})") == calls["self"][row]


def test_a_click_shows_a_call_beside_the_median(shown, trace, order):
    call = call_of(trace, order, "leaf")
    shown.run(f"eventprofPage.app.fitCall({call})")
    shown.settle()
    shown.click(*place_of(shown, call))
    assert shown.run("eventprofPage.state.call") == call
    said = shown.run("document.querySelector('#pane-call').innerText")
    assert said.startswith("leaf")
    duration = np.sort(values(trace.calls, "duration")[np.asarray(trace.calls["name"] == "leaf")])[
        ::-1
    ]
    assert f"median of {len(duration):,}" in said
    median = shown.run(
        "(({app}) => app.data.dur[app.histogram.calls[app.histogram.calls.length >> 1]])(eventprofPage)"
    )
    assert median == duration[len(duration) // 2]
    assert "freed in" in said
    assert "Blocks it allocated itself" in said


def test_the_tree_of_a_call_stands_beside_that_of_the_median(shown, trace, order):
    call = call_of(trace, order, "steps")
    shown.run(f"eventprofPage.update({{call: {call}, tab: 'call'}})")
    shown.settle()
    other = shown.run("(({app: {histogram: {calls}}}) => calls[calls.length >> 1])(eventprofPage)")
    shown.run(
        "(() => { for (let left = 20; left; left--) { const closed = document.querySelector('#pane-call [aria-expanded=false]');"
        " if (!closed) return; closed.click(); } })()"
    )
    rows = shown.run(
        "[...document.querySelectorAll('#pane-call .facts')[0].querySelectorAll('tbody tr')].filter((r) => r.querySelector('.toggle'))"
        ".map((r) => [parseInt(r.cells[0].style.paddingLeft) / 14, ...[...r.cells].map((c) => c.innerText)])"
    )
    sums = [defaultdict(list), defaultdict(list)]
    calls = trace.calls
    parent, duration = values(calls, "parent"), values(calls, "duration")
    names = list(calls["name"])
    for side, top in enumerate((call, other)):
        known = {int(order[top]): ()}
        for row in range(int(order[top]) + 1, len(calls)):
            if int(parent[row]) in known:
                known[row] = (*known[int(parent[row])], names[row])
                sums[side][known[row]].append(int(duration[row]))
    path, seen = [], set()
    for depth, name, *cells in rows:
        path = [*path[: int(depth)], name.lstrip("\u25b8\u25be\u2002 ")]
        seen.add(tuple(path))
        for side, cell in enumerate(cells):
            found = sums[side].get(tuple(path))
            assert cell.endswith(f"in {len(found):,}") if found else cell == "-", path
    assert ("leaf",) in seen
    assert any(len(path) > 1 for path in seen)
    assert seen == {*sums[0], *sums[1]}


def test_a_click_in_the_table_steps_through_the_slowest_calls(shown, trace, order):
    duration = values(trace.calls, "duration")[order]
    function = int(np.flatnonzero(trace.functions["name"] == "leaf")[0])
    of = np.flatnonzero(values(trace.calls, "function")[order] == function)
    wanted = of[np.argsort(-duration[of], kind="stable")][:4].tolist()
    seen = []
    for _ in wanted:
        shown.run(
            "[...document.querySelectorAll('#pane-functions tbody tr')].find((r) => r.cells[r.cells.length - 3].innerText === 'leaf').click()"
        )
        shown.settle()
        seen.append(shown.run("eventprofPage.state.call"))
        v0, v1 = view(shown)
        assert v0 <= values(trace.calls, "start")[order][seen[-1]] <= v1
    assert seen == wanted
    assert f"leaf: call 4 of {len(of):,}, the slowest first" in shown.run(
        "document.querySelector('#pane-functions [role=status]').innerText"
    )
    assert shown.run("eventprofPage.state.tab") == "functions"


def test_threads_fold(shown):
    box = shown.box("#timeline")
    before = shown.run("eventprofPage.app.timeline.layout.height")
    y = shown.run(
        "eventprofPage.app.timeline.layout.lanes.find((lane) => lane.kind === 'thread').y"
    )
    shown.click(60, box["y"] + RULER + y + 6)
    assert shown.run("eventprofPage.app.timeline.layout.height") < before
    shown.click(60, box["y"] + RULER + y + 6)
    assert shown.run("eventprofPage.app.timeline.layout.height") == before


def test_the_fragment_holds_the_view(shown, browser, path, trace, order):
    call = call_of(trace, order, "fib", 3)
    shown.run(f"eventprofPage.app.show({call})")
    shown.run(
        "eventprofPage.update({tab: 'flame', unit: 'calls', range: [100, 20000], search: 'fib & \"<b>', folded: [1]})"
    )
    shown.settle()
    shown.wait("location.hash.includes('flame')")
    fragment = shown.run("location.hash")
    state = shown.run("JSON.stringify(eventprofPage.state)")
    browser.open(path, fragment)
    assert json.loads(browser.run("JSON.stringify(eventprofPage.state)")) == json.loads(state)
    for odd in (
        "#v0=x&v1=&tab=nosuch&call=99999999&range=1",
        "#%E0%A4%A&v0=5&v1=2&folded=&__proto__=3",
    ):
        browser.open(path, odd)
        v0, v1 = view(browser)
        assert v0 < v1


# ---- Memory --------------------------------------------------------------------------------------


def times_of(trace):
    """Instants: among them those at which something changes, and next to these."""
    changes = values(trace.allocations, "start")
    random = np.random.default_rng(3)
    picked = random.choice(changes, 12)
    return sorted(
        {
            0,
            trace.duration,
            *(int(t) for t in picked),
            *(int(t) - 1 for t in picked if t),
            *(int(t) + 1 for t in picked),
        }
    )


def test_bands_sum_to_the_total_to_the_byte(shown, trace):
    bands = shown.run("eventprofPage.data.head.bands.function")
    assert len(bands) == 12
    for time in times_of(trace):
        at = trace.at(min(time, trace.duration))
        live = dict(zip(at.live["function"].tolist(), at.live["bytes"].tolist(), strict=True))
        found = shown.run(f"eventprofPage.bandsAt({time})")
        assert found[:-1] == [live.get(band, 0) for band in bands]
        assert sum(found) == at.live_bytes
        alive = shown.run(f"eventprofPage.alive({time})")
        assert (alive["bytes"], alive["blocks"]) == (at.live_bytes, at.live_blocks)
        by_function = Counter()
        for function, size, _ in alive["rows"]:
            by_function[function] += size
        assert {f: size for f, size in by_function.items() if size} == {
            f: s for f, s in live.items() if s and f is not None
        }


def test_each_column_shows_the_most_that_was_live_in_it(shown, trace):
    columns, bands, width, v0, v1 = shown.run(
        "(({app: {memory: m}, data, state}) => [[...m.columns], data.bands, m.raster.width, state.v0, state.v1])(eventprofPage)"
    )
    totals = np.array(columns).reshape(width, bands).sum(axis=1)
    time, live = values(trace.memory, "time"), values(trace.memory, "live")
    edges = v0 + np.arange(width + 1) * ((v1 - v0) / width)
    at = np.searchsorted(time, edges)
    for x in range(width):
        inside = live[at[x] : at[x + 1]]
        if len(inside):
            assert totals[x] == inside.max(), x
        else:
            assert totals[x] == (live[at[x] - 1] if at[x] else 0), x
    assert totals.max() == trace.peak().bytes


def test_the_picture_before_blocks_are_decoded_has_the_same_bytes(trace):
    head = json.loads(gzip.decompress(base64.b64decode(page_data.sections(trace)[0])))
    for by in ("function", "line", "own"):
        curve = np.array(head["curve"][by])
        for bin in (0, 100, 511, 900, 1023):
            end = -(-(bin + 1) * trace.duration // 1024) - 1  # the last whole ns of the bin
            assert curve[:, bin].sum() == trace.at(min(end, trace.duration)).live_bytes


def holders_of(trace, by):
    """Function and line that hold each block: of the line that was executing, or of own code."""
    blocks = trace.allocations
    function, line, call = (values(blocks, name).tolist() for name in ("function", "line", "call"))
    if by == "line":
        return list(zip(function, np.maximum(line, 0).tolist(), strict=True))
    own = trace._tree.is_own()
    calls = trace.calls
    callee, caller, caller_line, parent = (
        values(calls, name).tolist() for name in ("function", "caller", "caller_line", "parent")
    )

    def owner(at):
        while at >= 0:
            if own[callee[at]]:
                return callee[at], 0
            if own[caller[at]]:
                return caller[at], max(caller_line[at], 0)
            at = parent[at]
        return -1, 0

    return [
        (function[n], line[n]) if own[function[n]] else owner(call[n]) for n in range(len(blocks))
    ]


@pytest.mark.parametrize("by", ["line", "own"])
def test_bands_by_line_sum_to_the_total_to_the_byte(shown, trace, by):
    for _ in range(("function", "line", "own").index(by)):
        shown.key("b")
    assert shown.run("document.querySelector('#hold').value") == by
    functions, lines = shown.run("eventprofPage.data.head.places")
    bands = shown.run(f"eventprofPage.data.head.bands.{by}")
    names = shown.run("eventprofPage.app.memory.names")
    holders = holders_of(trace, by)
    start, end, size = (values(trace.allocations, name) for name in ("start", "end", "size"))
    assert len(names) == len(bands) + 1 > 4
    for time in times_of(trace):
        live = Counter()
        for n in np.flatnonzero((start <= time) & ((end < 0) | (end > time))):
            live[holders[n]] += int(size[n])
        found = shown.run(f"eventprofPage.bandsAt({time})")
        assert found[:-1] == [live[functions[band], lines[band]] for band in bands]
        assert sum(found) == trace.at(min(time, trace.duration)).live_bytes
        alive = shown.run(f"eventprofPage.alive({time})")["rows"]
        assert {(functions[k], lines[k]): v for k, v, _ in alive if v} == +live
    if by == "own":
        table = trace.own
        at_peak = values(table, "at_peak")
        wanted = {
            (int(f), max(int(n), 0)): int(v)
            for f, n, v in zip(
                values(table, "function"), values(table, "line"), at_peak, strict=True
            )
            if v
        }
        rows = shown.run(f"eventprofPage.alive({trace.peak().time})")["rows"]
        assert {(functions[k], lines[k]): v for k, v, _ in rows if v} == wanted
    columns, count, width = shown.run(
        "(({app: {memory: m}, data}) => [[...m.columns], data.bands, m.raster.width])(eventprofPage)"
    )
    assert np.array(columns).reshape(width, count).sum(axis=1).max() == trace.peak().bytes


def test_the_holders_of_memory_are_chosen_by_a_list(shown):
    before = shown.run("[...eventprofPage.app.memory.names]")
    assert before[-1] == "all others"
    shown.run(
        "(() => { const hold = document.querySelector('#hold'); hold.value = 'line';"
        " hold.dispatchEvent(new Event('change')); })()"
    )
    shown.settle()
    names = shown.run("eventprofPage.app.memory.names")
    assert any(re.fullmatch(r"\S+ test_page\.py:\d+", name) for name in names)
    shown.wait("location.hash.includes('hold=line')")


def test_shift_drag_on_memory_tells_kept_from_freed(shown, trace):
    box = shown.box("#memory")
    shown.drag(160, box["y"] + 90, 1390, box["y"] + 90, modifiers=SHIFT)
    t0, t1 = shown.run("eventprofPage.state.range")
    blocks = trace.allocations
    start, end, size = (values(blocks, name) for name in ("start", "end", "size"))
    holder = trace._block_functions()
    born = (start >= t0) & (start < t1)
    dead = (end >= 0) & (end < t1)
    wanted = {}
    for name, of in (
        ("allocated", born), ("kept", born & ~dead), ("temporary", born & dead),
        ("freed", (end >= t0) & dead),
    ):  # fmt: skip
        wanted[name] = np.bincount(holder[of], weights=size[of], minlength=len(trace.functions))
    found = shown.run(
        "(({app: {functions: f}}) => Object.fromEntries(f.columns().map((c) => [c.key, [...c.of].slice(0, -1)])))(eventprofPage)"
    )
    for name, sums in wanted.items():
        assert found[name] == sums.tolist(), name
    assert wanted["allocated"].any() and wanted["freed"].any()


def test_a_block_leads_to_the_calls_that_made_and_freed_it(shown, trace, order):
    time = trace.peak().time
    shown.key("m")
    rows = shown.run(
        "[...document.querySelectorAll('#pane-instant .blocks tr')].map((r) => r.innerText)"
    )
    blocks = trace.allocations
    start, end, size = (values(blocks, name) for name in ("start", "end", "size"))
    alive = np.flatnonzero((start <= time) & ((end < 0) | (end > time)))
    largest = alive[np.argsort(-size[alive], kind="stable")][:20]
    assert len(rows) == 20
    place = np.empty(len(order), dtype=int)
    place[order] = np.arange(len(order))
    freed_of = values(blocks, "freed_in")
    for at, block in enumerate(largest):
        made, freed = values(blocks, "call")[block], freed_of[block]
        links = [call for call in (made, freed) if call >= 0]
        for n, call in enumerate(links):
            shown.run(
                f"document.querySelectorAll('#pane-instant .blocks tr')[{at}].querySelectorAll('button')[{n}].click()"
            )
            shown.settle()
            assert shown.run("eventprofPage.state.call") == place[call]
        if at == 3:
            break


def test_a_click_on_memory_says_what_was_alive_and_running(shown, trace):
    box = shown.box("#memory")
    shown.click(800, box["y"] + 100)
    time = shown.run("eventprofPage.state.instant")
    at = trace.at(int(time))
    said = shown.run("document.querySelector('#pane-instant').innerText")
    assert f"Alive: {at.live_bytes / 1024:.3g} KiB in {at.live_blocks:,} blocks" in said
    assert f"Running: {len(at.open):,} open calls" in said
    names = shown.run(
        "[...document.querySelectorAll('#pane-instant table')].map((t) => t.innerText)"
    )
    for name in at.open["name"]:
        assert name in names[0]


def paths(shown):
    """The flame graph as {a;b;c: value}."""
    return shown.run(
        "(({app, data}) => { const {tree, self} = app.flame.graph; const out = {};"
        " for (let n = 1; n < tree.count; n++) if (self[n]) { const p = [];"
        " for (let u = n; u > 0; u = tree.parent[u]) p.unshift(data.nameOf(tree.func[u]));"
        " out[p.join(';')] = (out[p.join(';')] || 0) + self[n]; } return out; })(eventprofPage)"
    )


def stacks_of_calls(trace):
    calls = trace.calls
    names, parents = list(calls["name"]), values(calls, "parent").tolist()
    found: list[str] = []
    for name, parent in zip(names, parents, strict=True):
        found.append(f"{found[parent]};{name}" if parent >= 0 else name)
    return found


def test_the_flame_graph_of_an_instant_is_what_is_alive_by_stack(shown, trace):
    peak = trace.peak()
    shown.key("m")
    assert shown.run("eventprofPage.state.instant") == peak.time
    shown.run("eventprofPage.update({tab: 'flame', unit: 'live'})")
    shown.settle()
    found = paths(shown)
    stacks = stacks_of_calls(trace)
    blocks = trace.allocations
    call, start, end = (values(blocks, name) for name in ("call", "start", "end"))
    wanted = Counter()
    for n in np.flatnonzero((start <= peak.time) & ((end < 0) | (end > peak.time))):
        if call[n] >= 0:
            wanted[stacks[call[n]]] += int(values(blocks, "size")[n])
    assert found == {stack: size for stack, size in wanted.items() if size}
    assert shown.run("eventprofPage.app.flame.graph.total[0]") == sum(found.values()) == peak.bytes


def test_the_flame_graph_of_time_has_the_self_time_of_each_stack(shown, trace):
    shown.run("eventprofPage.update({tab: 'flame'})")
    shown.settle()
    found = paths(shown)
    wanted = Counter()
    for stack, time in zip(
        stacks_of_calls(trace), values(trace.calls, "self").tolist(), strict=True
    ):
        wanted[stack] += time
    assert found == {stack: time for stack, time in wanted.items() if time}

    shown.run("eventprofPage.update({inverted: true})")
    shown.settle()
    leaves = Counter()
    for stack, time in wanted.items():
        if time > 0:
            leaves[stack.rpartition(";")[2]] += time
    top = shown.run(
        "(({app: {flame: {graph}}, data}) => { const out = {}; for (let n = 1; n < graph.tree.count; n++)"
        " if (graph.tree.parent[n] === 0) { const name = data.nameOf(graph.tree.func[n]); out[name] = (out[name] || 0) + graph.total[n]; } return out; })(eventprofPage)"
    )
    assert top == leaves


def test_a_click_on_the_flame_graph_makes_that_call_the_whole(shown, trace):
    shown.run("eventprofPage.update({tab: 'flame', unit: 'calls'})")
    shown.settle()
    x, y, node = shown.run(
        "(({app: {flame}}) => { const box = flame.boxes.find((b) => b.y === 1 && b.w > 20); const c = flame.canvas.getBoundingClientRect();"
        " return [c.x + box.x + box.w / 2, c.y + box.y * 18 + 9, box.node]; })(eventprofPage)"
    )
    shown.click(x, y)
    assert shown.run("eventprofPage.app.flame.focus") == node
    wide = shown.run(f"eventprofPage.app.flame.boxes.find((b) => b.node === {node}).w")
    assert wide == shown.run("eventprofPage.app.flame.canvas.getBoundingClientRect().width")


# ---- Waiting -------------------------------------------------------------------------------------


def with_lock(trace):
    if not trace.has_lock:
        pytest.skip("this Python has no interpreter lock")


def others_held(trace, thread, t0, t1):
    """How long other threads had the lock."""
    gil = trace.gil
    start, end, of = (values(gil, name) for name in ("start", "end", "thread"))
    other = of != thread
    return int(np.maximum(np.minimum(end, t1) - np.maximum(start, t0), 0)[other].sum())


def waited_of_calls(trace):
    calls = trace.calls
    start, duration, thread = (
        values(calls, name).tolist() for name in ("start", "duration", "thread")
    )
    return [
        others_held(trace, of, t0, t0 + length)
        for of, t0, length in zip(thread, start, duration, strict=True)
    ]


def test_each_call_waited_as_long_as_others_had_the_lock(shown, trace, order):
    with_lock(trace)
    found = shown.run(
        "(({data}) => Array.from({length: data.count}, (_, n) => data.waitedOf(n)))(eventprofPage)"
    )
    wanted = np.array(waited_of_calls(trace))
    assert found == wanted[order].tolist()
    assert wanted.any()
    outermost = values(trace.calls, "parent") < 0
    assert wanted[outermost].sum() == trace.tree["waited"][0]


def test_the_lane_of_the_lock_shows_who_had_it(shown, trace):
    with_lock(trace)
    y, width, v0, v1 = shown.run(
        "(({app: {timeline: t}, state}) => [(t.lock.y + t.lock.end) / 2, t.raster.width, state.v0, state.v1])(eventprofPage)"
    )
    numbers = shown.run(
        f"Array.from({{length: {width}}}, (_, x) => eventprofPage.app.timeline.tenureUnder({GUTTER} + x + 0.5, {y}))"
    )
    start, end = values(trace.gil, "start"), values(trace.gil, "end")
    each = (v1 - v0) / width
    for x, number in enumerate(numbers):
        t0, t1 = v0 + (x - 0.5) * each, v0 + (x + 1.5) * each
        if number >= 0:
            assert start[number] < t1 and end[number] > t0, x
        else:
            whole = (start <= v0 + x * each) & (end >= v0 + (x + 1) * each)
            assert not whole.any(), x
    assert len({number for number in numbers if number >= 0}) > 1
    longest = int(np.argmax(end - start))
    x = GUTTER + ((start[longest] + end[longest]) / 2 - v0) / each
    box = shown.box("#timeline")
    shown.mouse("mouseMoved", box["x"] + x, box["y"] + y)
    shown.wait("!document.querySelector('#tip').hidden")
    said = shown.run("document.querySelector('#tip').innerText")
    name = trace.threads["name"][int(values(trace.gil, "thread")[longest])]
    assert said.startswith(f"{name} had the interpreter's lock")


def test_slices_are_hatched_where_another_thread_had_the_lock(browser, tmp_path, trace):
    with_lock(trace)
    trace, shown = record_turns(), browser
    write(trace, tmp_path / "page.html")
    browser.size(1400, 1600)  # all lanes are in view
    browser.open(tmp_path / "page.html")
    hatched = shown.run(
        "(({app: {timeline: t}}) => [...t.hatched].map(([thread, marks]) => [thread, [...marks]]))(eventprofPage)"
    )
    v0, v1 = view(shown)
    high = shown.run("eventprofPage.app.timeline.raster.high")
    blocking = set(shown.run("eventprofPage.data.head.blocking"))
    function = shown.run("[...eventprofPage.data.func]")
    rows = rows_on_screen(shown)
    seen = 0
    for thread, marks in hatched:
        each = (v1 - v0) / len(marks)
        mine = sorted(
            (row for row in rows if row["thread"] == thread), key=lambda row: row["depth"]
        )
        under = [
            shown.run(
                f"Array.from({{length: {len(marks)}}}, (_, x) => eventprofPage.under({GUTTER} + x + 0.5, {row['y']}))"
            )
            for row in mine
        ]
        for x, mark in enumerate(marks):
            waited = others_held(trace, thread, v0 + x * each, v0 + (x + 1) * each)
            inner = max((depth for depth, row in enumerate(under) if row[x] >= 0), default=-1)
            blocked = inner >= 0 and function[under[inner][x]] in blocking
            if abs(waited - each / 2) > 3 and inner >= 0:
                assert mark == (waited > each / 2 and not blocked), (thread, x)
            y = mine[inner]["y"]
            if mark and inner >= 0 and not seen and y < high - 8:
                colours = shown.run(
                    f"(({{app: {{timeline: {{raster: r}}}}}}) => [-4, -3, -2, -1, 0, 1, 2, 3, 4].map((k) => r.pixels[(Math.floor({y}) + k) * r.width + {x}]))(eventprofPage)"
                )
                assert len(set(colours)) == 2
                seen += 1
    assert {thread for thread, _ in hatched} == {row["thread"] for row in rows}
    assert seen


def spin(me, turns):
    """Works until the two have taken turns often enough, however the system gives them time."""
    while len(turns) < 30:
        if turns[-1] != me:
            turns.append(me)
        sum((1, 2))


def record_turns():
    turns = [None]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)
    try:
        with eventprof.record(memory=False) as rec:
            threads = [
                threading.Thread(target=spin, args=(k, turns), name=f"spin_{k}") for k in range(2)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(interval)
    return rec.trace


def test_the_flame_graph_of_waited_has_it_by_stack(shown, trace):
    with_lock(trace)
    shown.run("eventprofPage.update({tab: 'flame', unit: 'waited'})")
    shown.settle()
    waited = waited_of_calls(trace)
    alone = list(waited)
    for n, parent in enumerate(values(trace.calls, "parent").tolist()):
        if parent >= 0:
            alone[parent] -= waited[n]
    wanted = Counter()
    for stack, time in zip(stacks_of_calls(trace), alone, strict=True):
        wanted[stack] += time
    assert paths(shown) == {stack: time for stack, time in wanted.items() if time}
    assert shown.run("eventprofPage.app.flame.graph.total[0]") == trace.tree["waited"][0]


def test_one_thread_has_no_lane_of_the_lock(browser, tmp_path):
    write(record_no_memory(), tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    assert browser.run("eventprofPage.app.timeline.lock") is None
    assert not browser.run("eventprofPage.data.waiting.shared")
    assert "hatched" not in browser.run("document.querySelector('#legend').innerText")


# ---- Findings ------------------------------------------------------------------------------------


def queue_jobs(count):
    jobs = []
    for n in range(count):
        jobs.insert(0, n)
    return jobs


@pytest.fixture(scope="module")
def finding(tmp_path_factory):
    with eventprof.record() as rec:
        queue_jobs(3000)
    path = tmp_path_factory.mktemp("finding") / "page.html"
    write(rec.trace, path)
    return rec.trace, path


def test_findings_lead_to_their_places(browser, finding):
    trace, path = finding
    browser.open(path)
    found = trace.analyze()
    assert "list-from-the-front" in [each.rule for each in found]
    browser.run("document.querySelector('#tab-findings').click()")
    browser.settle()
    assert (
        browser.run("document.querySelector('#tab-findings').innerText")
        == f"Findings ({len(found)})"
    )
    sections = browser.run(
        "[...document.querySelectorAll('#pane-findings .finding')].map((f) => [f.querySelector('h3').innerText, f.innerText])"
    )
    assert [title for title, _ in sections] == [each.claim for each in found]
    for each, (_, said) in zip(found, sections, strict=True):
        assert each.advice in said
        assert all(evidence.place() in said for evidence in each.evidence)
    at = [each.rule for each in found].index("list-from-the-front")
    browser.run(
        f"document.querySelectorAll('#pane-findings .finding')[{at}].querySelector('li button').click()"
    )
    browser.settle()
    call, name, duration, line = browser.run(
        "(({data, state}) => [state.call, data.nameOf(data.func[state.call]), data.dur[state.call], data.line[state.call]])(eventprofPage)"
    )
    assert name == "list.insert"
    of = np.asarray(trace.calls["name"] == "list.insert")
    assert duration == values(trace.calls, "duration")[of].max()
    assert line == found[at].evidence[0].line
    assert browser.run(f"eventprofPage.app.timeline.placeOf({call}) !== null")
    assert browser.console == []


def test_where_nothing_is_wrong_the_findings_say_so(shown, trace):
    if not trace.analyze():
        shown.run("eventprofPage.update({tab: 'findings'})")
        shown.settle()
        assert "Nothing was found" in shown.run(
            "document.querySelector('#pane-findings').innerText"
        )
    assert shown.run("eventprofPage.data.head.findings.map((f) => f.claim)") == [
        each.claim for each in trace.analyze()
    ]


# ---- Ranges, search, functions -------------------------------------------------------------------


def test_sums_of_a_range_are_those_of_the_table(shown, trace):
    t0, t1 = int(trace.duration * 0.2), int(trace.duration * 0.7)
    between = trace.between(t0, t1)
    sums = shown.run(
        f"(({{data, sums}}) => {{ const s = sums({t0}, {t1}); return {{bytes: s.bytes, freed: s.freed, made: s.made,"
        " kept: s.keptBytes, rows: [...s.self].map((v, n) => [n, s.calls[n], v, s.allocated[n], s.blocks[n]])"
        ".filter(([, ...r]) => r.some(Boolean))}; })(eventprofPage)"
    )
    table = between.functions
    wanted = {
        row.function: [row.calls, row.self, row.allocated_self, row.blocks_self] for row in table
    }
    assert {n: rest for n, *rest in sums["rows"]} == wanted
    assert (sums["bytes"], sums["freed"]) == (between.allocated, between.freed)
    assert sums["made"] == len(between.allocations)
    end = values(between.allocations, "end")
    assert sums["kept"] == int(values(between.allocations, "size")[(end < 0) | (end >= t1)].sum())


def test_shift_drag_selects_a_range_and_says_its_sums(shown, trace):
    box = shown.box("#timeline")
    shown.drag(400, box["y"] + 60, 900, box["y"] + 60, modifiers=SHIFT)
    t0, t1 = shown.run("eventprofPage.state.range")
    assert t0 == pytest.approx((400 - GUTTER) / (1400 - GUTTER) * trace.duration, abs=1)
    said = shown.run("document.querySelector('#pane-functions').innerText")
    between = trace.between(t0, t1)
    assert f"{int(between.functions['calls'].sum()):,} calls begun" in said
    assert f"{len(between.allocations):,} blocks" in said
    shown.key("Escape")
    assert shown.run("eventprofPage.state.range") is None


def test_the_table_of_functions_is_the_table(shown, trace):
    rows = shown.run(
        "[...document.querySelectorAll('#pane-functions tbody tr')].map((r) => [...r.cells].map((c) => c.innerText))"
    )
    functions = trace.functions
    by_self = np.argsort(-values(functions, "self"), kind="stable")
    assert [row[-3] for row in rows[:5]] == [functions["name"][n] for n in by_self[:5]]
    assert [row[2] for row in rows[:5]] == [f"{functions['calls'][n]:,}" for n in by_self[:5]]
    shown.run(
        "[...document.querySelectorAll('#pane-functions th button')].find((b) => b.innerText.startsWith('calls')).click()"
    )
    shown.settle()
    first = shown.run(
        "[...document.querySelector('#pane-functions tbody tr').cells].map((c) => c.innerText)"
    )
    assert first[2] == f"{functions['calls'].max():,}"
    shown.run("document.querySelector('#pane-functions input').focus()")
    shown.type("fib")
    names = shown.run(
        "[...document.querySelectorAll('#pane-functions tbody tr')].map((r) => r.cells[r.cells.length - 3].innerText)"
    )
    assert names == ["fib"]


def test_search_fades_the_rest_and_goes_from_hit_to_hit(shown, trace, order):
    shown.key("/")
    assert shown.run("document.activeElement.id") == "search"
    shown.type("keep")
    # On 3.11 a comprehension is a function: keep.<locals>.<listcomp>.
    known = sorted(name for name in set(trace.calls["name"]) if "keep" in name)
    hits = np.flatnonzero(np.isin(trace.calls["name"][order].astype(str), known))
    said = shown.run("document.querySelector('#found').textContent")
    assert said == f"{len(known)} function{'s' * (len(known) > 1)}, {len(hits):,} calls"
    wanted = hits[np.argsort(values(trace.calls, "start")[order][hits], kind="stable")].tolist()
    shown.run("document.activeElement.blur()")
    seen = []
    for _ in wanted:
        shown.key("n")
        seen.append(shown.run("eventprofPage.state.call"))
    assert seen == wanted
    shown.key("n")  # around
    assert shown.run("eventprofPage.state.call") == wanted[0]
    shown.key("N", modifiers=SHIFT)
    assert shown.run("eventprofPage.state.call") == wanted[-1]
    v0, v1 = view(shown)
    assert v0 <= values(trace.calls, "start")[order][wanted[-1]] <= v1
    for text, found in (
        ("no such thing", "nothing found"),
        (f"test_page.py:{fib.__code__.co_firstlineno}", "1 function,"),
    ):
        shown.run(f"eventprofPage.update({{search: {json.dumps(text)}}})")
        shown.settle()
        assert found in shown.run("document.querySelector('#found').textContent")


def test_the_histogram_counts_every_call_and_its_brush_marks_some(shown, trace, order):
    function = int(np.flatnonzero(trace.functions["name"] == "fib")[0])
    shown.run(f"eventprofPage.update({{fn: {function}, tab: 'durations'}})")
    shown.settle()
    duration = values(trace.calls, "duration")[order]
    of = np.flatnonzero(values(trace.calls, "function")[order] == function)
    assert shown.run("eventprofPage.app.histogram.bars.reduce((a, b) => a + b, 0)") == len(of)
    box = shown.box("#pane-durations canvas")
    shown.drag(
        box["x"] + box["width"] * 0.5, box["y"] + 60, box["x"] + box["width"] - 2, box["y"] + 60
    )
    low, high = shown.run("eventprofPage.state.brush")
    marked = of[(duration[of] >= low) & (duration[of] <= high)]
    assert 0 < len(marked) < len(of)
    assert f"marked: {len(marked):,}" in shown.run(
        "document.querySelector('#pane-durations').innerText"
    )
    shown.run("document.querySelector('#pane-durations button').click()")
    shown.settle()
    assert duration[shown.run("eventprofPage.state.call")] == duration[of].max()


# ---- For everybody -------------------------------------------------------------------------------


def test_everything_that_can_be_used_has_a_name(shown):
    shown.call("Accessibility.enable")
    for tab in ("functions", "flame", "durations", "call", "instant", "findings"):
        shown.run(f"eventprofPage.update({{tab: '{tab}', fn: 0, call: 0}})")
        shown.settle()
        nodes = shown.call("Accessibility.getFullAXTree")["nodes"]
        wanted = {
            "button",
            "searchbox",
            "textbox",
            "combobox",
            "checkbox",
            "tab",
            "application",
            "image",
            "img",
            "tabpanel",
        }
        unnamed = [
            node["role"]["value"]
            for node in nodes
            if not node.get("ignored")
            and node["role"]["value"] in wanted
            and not node.get("name", {}).get("value")
        ]
        assert unnamed == []


def test_tabs_and_calls_by_the_keyboard_alone(shown, trace):
    shown.run("document.querySelector('#tab-functions').focus()")
    shown.key("ArrowRight")
    assert shown.run("[eventprofPage.state.tab, document.activeElement.id]") == [
        "flame",
        "tab-flame",
    ]
    shown.run("document.activeElement.blur()")
    shown.key("]")
    first = shown.run("eventprofPage.state.call")
    shown.key("c")
    child = shown.run("eventprofPage.state.call")
    assert shown.run(f"eventprofPage.data.parentOf({child})") == first
    shown.key("p")
    assert shown.run("eventprofPage.state.call") == first
    shown.key("?")
    assert shown.run("document.querySelector('#keys').open")
    shown.run("document.querySelector('#keys').close()")


def test_light_dark_and_print(shown):
    def back():
        return shown.run("eventprofPage.app.timeline.raster.pixels[0] & 255")

    light = back()
    shown.key("t")
    assert back() < 60 < light
    shown.call("Emulation.setEmulatedMedia", media="print")
    assert shown.run("getComputedStyle(document.querySelector('#search')).display") == "none"
    shown.call("Emulation.setEmulatedMedia", media="")
    for colour in ("module", "function", "area"):
        shown.run(f"eventprofPage.update({{colour: '{colour}'}})")
        shown.settle()


def test_a_dense_screen_and_a_small_one(shown):
    for width, height, scale in ((1000, 700, 2), (420, 500, 1)):
        shown.size(width, height, scale)
        shown.wait(f"eventprofPage.app.timeline.raster.wide <= {width}")
        shown.settle()
        assert shown.run("eventprofPage.app.timeline.raster.canvas.width") == pytest.approx(
            width * scale, abs=2
        )
        assert shown.run("document.documentElement.scrollWidth") <= width


# ---- Bad input -----------------------------------------------------------------------------------


def renamed(name, thread=None):
    def called():
        return [1]

    called.__code__ = called.__code__.replace(co_name=name, co_qualname=name)
    return called


ODD = (
    "</script><script>window.hacked = 1</script>", "<img src=x onerror='window.hacked = 1'>", "\"'&amp;\\u2028",
    "{{policy}}{{style}}", "\u05d0\u05d1\u05d2 \u202edesrever\u2066", "lone \ud800 surrogate \udfff", "\U0001f40d \u6f22\u5b57", "\x00\x1b[31m",
    "a" * 5000,
)  # fmt: skip


def record_odd_names():
    functions = [renamed(name) for name in ODD]
    with eventprof.record() as rec:
        eventprof.mark("<b onclick=alert(1)>\u202e mark")
        eventprof.counter("<i>counter", 3)
        eventprof.counter("<i>counter", float("nan"))
        for function in functions:
            function()
        thread = threading.Thread(target=functions[0], name="<img src=x onerror=alert(1)>")
        thread.start()
        thread.join()
    return rec.trace


def record_deep():
    def deep(n):
        return n and deep(n - 1)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(30_000)
    try:
        with eventprof.record() as rec:
            deep(10_000)
    finally:
        sys.setrecursionlimit(limit)
    return rec.trace


def record_threads():
    with eventprof.record(buffer="64 MiB") as rec:
        for k in range(500):
            thread = threading.Thread(target=leaf, args=(2,), name=f"thread_{k}")
            thread.start()
            thread.join()
    return rec.trace


def record_loss():
    with eventprof.record(buffer="256 KiB", on_full="overwrite") as rec:
        for _ in range(300):
            fib(14)
            leaf(20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that events were lost is what is wanted
        trace = rec.trace
    assert trace.loss
    return trace


def record_one_event():
    with eventprof.record(calls=False, memory=False, gc=False) as rec:
        eventprof.mark("one")
    return rec.trace


def record_nothing():
    with eventprof.record(calls=False, memory=False, gc=False) as rec:
        pass
    return rec.trace


def record_no_memory():
    with eventprof.record(memory=False) as rec:
        fib(5)
    return rec.trace


def record_no_calls():
    with eventprof.record(calls=False) as rec:
        steps([], 30)
    return rec.trace


class Stretched:
    """A trace that takes longer: its last ns is the last whole number that a page can tell apart."""

    def __init__(self, trace):
        self._trace = trace
        self.duration = 2**53
        self._factor = (2**53 - 1) // trace.duration

    def __getattr__(self, name):
        return getattr(self._trace, name)

    def _times(self, name, columns):
        table = getattr(self._trace, name)
        changed = {}
        for column in table.columns:
            each = table._column(column)
            given = each.values()
            if column in columns:
                given = np.where(given >= 0, given * self._factor, given)
            changed[column] = each.text() if each.words is not None else given
        return Table.from_columns(name, changed)

    @property
    def calls(self):
        return self._times("calls", ("start", "duration", "self"))

    @property
    def allocations(self):
        return self._times("allocations", ("start", "end"))


def record_long():
    with eventprof.record() as rec:
        steps([], 30)
    return Stretched(rec.trace)


BAD = {
    "odd names": record_odd_names, "deep": record_deep, "threads": record_threads, "loss": record_loss,
    "one event": record_one_event, "nothing": record_nothing, "no memory": record_no_memory,
    "no calls": record_no_calls, "2**53 ns": record_long,
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_shown_right(browser, tmp_path, what):
    trace = BAD[what]()
    write(trace, tmp_path / "page.html")
    browser.size(1400, 900)
    browser.open(tmp_path / "page.html")
    for tab in ("flame", "durations", "call", "instant", "findings", "functions"):
        browser.run(
            f"eventprofPage.update({{tab: '{tab}', fn: 0, call: Math.min(0, eventprofPage.data.count - 1), instant: 5}})"
        )
        browser.settle()
    browser.run(
        "eventprofPage.update({range: [0, Math.max(1, eventprofPage.data.duration / 2)], tab: 'functions'})"
    )
    browser.settle()
    browser.run("eventprofPage.app.zoom(1e-30, 1)")
    browser.settle()
    browser.run("eventprofPage.app.fitAll()")
    browser.settle()
    browser.mouse("mouseMoved", 700, 250)

    assert browser.console == []
    assert browser.run("window.hacked") is None
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.run("eventprofPage.data.count") == len(trace.calls)
    assert browser.run("eventprofPage.data.blocks") == len(trace.allocations)
    if len(trace.calls):
        assert (
            max(browser.run("[...eventprofPage.data.dur]")) == values(trace.calls, "duration").max()
        )
        assert browser.run("eventprofPage.app.timeline.numbers.some((n) => n >= 0)")
    if what == "odd names":
        names = browser.run(
            "eventprofPage.data.head.functions.name.map((n) => [...(n || '')].map((c) => c.codePointAt(0)))"
        )
        for name in ODD:
            assert [ord(c) for c in name] in names
        shown = browser.run("document.querySelector('#pane-functions').innerText")
        assert "\\u202edesrever" in shown
        assert "\u202e" not in shown
    elif what == "loss":
        assert (
            browser.run("document.querySelector('#told').textContent")
            == f"{trace.loss.total:,} events lost"
        )
        assert "LOSS" in browser.run("document.querySelector('#limits').innerText")
    elif what == "deep":
        browser.run("eventprofPage.update({scroll: 1e9})")
        browser.settle()
        rows = rows_on_screen(browser)
        assert max(row["depth"] for row in rows) == values(trace.calls, "depth").max() >= 10_000
    elif what == "threads":
        assert (
            browser.run("eventprofPage.app.timeline.layout.lanes.length")
            == len(trace.threads) + trace.has_lock
            > 500
        )
    elif what == "2**53 ns":
        assert browser.run("eventprofPage.state.v1") == 2**53


def test_calls_whose_clock_stood_still_keep_their_parents(browser, tmp_path, trace):
    """With a coarse grain thousands of calls begin at one time: who made whom is still exact."""
    write(trace, tmp_path / "page.html", grain=100_000)
    browser.open(tmp_path / "page.html")
    parents = browser.run(
        "Array.from({length: eventprofPage.data.count}, (_, n) => eventprofPage.data.parentOf(n))"
    )
    calls = trace.calls
    order = np.lexsort((np.arange(len(calls)), calls["depth"], calls["thread"]))
    place = np.empty(len(order), dtype=int)
    place[order] = np.arange(len(order))
    parent = values(calls, "parent")[order]
    assert parents == np.where(parent < 0, -1, place[parent]).tolist()
    blocks = browser.run(
        "(({data: d}) => [...d.birth].map((e) => d.callOfEvent(e)))(eventprofPage)"
    )
    call = values(trace.allocations, "call")
    assert blocks == np.where(call < 0, -1, place[call]).tolist()
    assert browser.run("eventprofPage.data.start.every((t) => t % 100000 === 0)")
    assert browser.console == []


def test_a_page_that_was_cut_short_says_so(browser, path, tmp_path):
    whole = path.read_text()
    cut = tmp_path / "cut.html"
    cut.write_text(whole[: whole.index('id="data-c0"')])
    browser.go(cut.as_uri())
    browser.wait("document.querySelector('#limits')?.textContent.includes('cut short')")


# ---- Without a browser ---------------------------------------------------------------------------


def sections_of(raw):
    return dict(
        re.findall(r'<script type="text/plain" id="data-(\w+)">([^<]*)</script>', raw.decode())
    )


def test_the_page_is_one_file_and_the_same_each_time(trace):
    raw = page(trace)
    assert raw == page(trace)
    assert not re.search(rb"""(src|href)\s*=\s*["']?\s*(http|//|\./)""", raw)
    assert raw.count(b"<script>") == 1
    found = sections_of(raw)
    head = json.loads(gzip.decompress(base64.b64decode(found["head"])))
    assert head["calls"] == len(trace.calls)
    assert set(found) == {"head", "coarse", "orphans", "astray", "tenures", "c0", "m0"}


def test_view_writes_a_page(trace, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    trace.save("a.epr")
    assert cli.main(["view", "a.epr", "-o", "page.html"]) == 0
    assert capsys.readouterr().out.startswith(f"page.html: {len(trace.events):,} events, ")
    assert set(sections_of((tmp_path / "page.html").read_bytes())) >= {"head", "c0"}
    assert cli.main(["view", "a.epr", "-o", "page.html"]) == 1
    assert capsys.readouterr().err == "eventprof view: page.html: exists already; -f replaces it\n"
    before = (tmp_path / "page.html").stat().st_size
    assert (
        cli.main(
            ["view", "a.epr", "-f", "-o", "page.html", "--time-grain", "1us", "--title", "a <b>"]
        )
        == 0
    )
    assert (tmp_path / "page.html").stat().st_size < before
    assert "<title>a &lt;b&gt; - eventprof</title>" in (tmp_path / "page.html").read_text()
    with pytest.raises(SystemExit):
        cli.main(["view", "a.epr", "--time-grain", "0ns"])
    assert "a time from 1ns to 1000ms" in capsys.readouterr().err
    assert cli.main(["view", "a.epr", "-o", "nosuch/page.html"]) == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.epr", "page.html"]


def test_view_without_a_name_opens_the_browser(trace, tmp_path, monkeypatch, capsys):
    import tempfile
    import webbrowser

    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shown = trace.show()
    assert opened == [f"file://{shown}"]
    trace.save(tmp_path / "a.epr")
    assert cli.main(["view", str(tmp_path / "a.epr")]) == 0
    assert len(opened) == 2


def test_run_opens_the_page_when_the_program_has_ended(tmp_path):
    (tmp_path / "main.py").write_text(
        "import atexit\ndef work(): return [bytes(99) for _ in range(9)]\nwork()\natexit.register(print, 'last')\n"
    )
    (tmp_path / "opened.sh").write_text('#!/bin/sh\necho "$1" > opened\n')
    (tmp_path / "opened.sh").chmod(0o755)
    made = subprocess.run(
        [sys.executable, "-m", "eventprof", "run", "--view", "-o", "a.epr", "main.py"],
        cwd=tmp_path, text=True, capture_output=True, timeout=120,
        env={**os.environ, "BROWSER": str(tmp_path / "opened.sh"), "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert (made.returncode, made.stdout) == (0, "last\n")
    page = re.search(r"^eventprof: the page is (.*)$", made.stderr, re.MULTILINE)
    assert page, made.stderr
    assert set(sections_of(Path(page[1]).read_bytes())) >= {"head", "c0"}
    assert (tmp_path / "opened").read_text() == f"{Path(page[1]).as_uri()}\n"


def test_show_refuses_what_it_cannot_do(trace, tmp_path):
    with pytest.raises(ValueError, match="grain: at least 1 ns, not 0"):
        trace.show(tmp_path / "x.html", grain=0)
    trace.show(tmp_path / "x.html")
    with pytest.raises(FileExistsError, match="force=True replaces it"):
        trace.show(tmp_path / "x.html")
    assert trace.show(tmp_path / "x.html", force=True) == str(tmp_path / "x.html")


def test_areas_tell_whose_code_it_is():
    areas = defaultdict(list)
    for kind, file in (
        ("python", "/home/me/x.py"), ("python", "/usr/lib/python3.12/json/__init__.py"),
        ("python", "/v/lib/python3.12/site-packages/pandas/a.py"), ("python", "/usr/lib/python3/dist-packages/a.py"),
        ("python", "<frozen importlib._bootstrap>"), ("c", None), ("type", None), ("user", None), ("gc", None),
        ("python", "<string>"), ("python", None),
    ):  # fmt: skip
        areas[page_data.AREAS[page_data.area_of(kind, file)]].append((kind, file))
    assert {area: len(found) for area, found in areas.items()} == {
        "own": 2, "stdlib": 2, "installed": 2, "native": 3, "span": 1, "gc": 1,
    }  # fmt: skip
