"""What the page draws and says of memory is compared with the tables."""

from __future__ import annotations

import gzip
import json
import re
import threading
from collections import Counter

import numpy as np
import pytest
from page_program import SHIFT, paths, stacks_of_calls, times_of, values

import eventprof
from eventprof._words import show_bytes
from eventprof.answers.moments import block_functions
from eventprof.viewer import data as page_data
from eventprof.viewer import planes, write


@pytest.mark.thorough
def test_bands_sum_to_the_total_to_the_byte(shown, trace):
    bands = shown.run("eventprofPage.data.head.bands.function")
    assert len(bands) == 12
    for time in times_of(trace):
        instant = trace.at(min(time, trace.duration))
        live = dict(
            zip(instant.live["function"].tolist(), instant.live["bytes"].tolist(), strict=True)
        )
        found = shown.run(f"eventprofPage.bandsAt({time})")
        assert found[:-1] == [live.get(band, 0) for band in bands]
        assert sum(found) == instant.live_bytes
        alive = shown.run(f"eventprofPage.live({time})")
        assert (alive["bytes"], alive["blocks"]) == (instant.live_bytes, instant.live_blocks)
        by_function = Counter()
        for function, size, _ in alive["rows"]:
            by_function[function] += size
        assert {f: size for f, size in by_function.items() if size} == {
            f: s for f, s in live.items() if s and f is not None
        }


def test_each_column_shows_the_most_that_was_live_in_it(shown, trace):
    columns, bands, width, v0, v1 = shown.run(
        "(({app: {memory: m}, data, state}) => [[...m.columns], data.blocks.bands, m.raster.width, state.v0, state.v1])(eventprofPage)"
    )
    totals = np.array(columns).reshape(width, bands).sum(axis=1)
    time, live = values(trace.memory, "time"), values(trace.memory, "live")
    edges = v0 + np.arange(width + 1) * ((v1 - v0) / width)
    firsts = np.searchsorted(time, edges)
    for x in range(width):
        inside = live[firsts[x] : firsts[x + 1]]
        if len(inside):
            assert totals[x] == inside.max(), x
        else:
            assert totals[x] == (live[firsts[x] - 1] if firsts[x] else 0), x
    assert totals.max() == trace.peak().bytes


def test_the_picture_before_blocks_are_decoded_has_the_same_bytes(trace):
    head = json.loads(gzip.decompress(page_data.sections(trace)[0]))
    for by in ("function", "line", "own"):
        curve = np.array(head["curve"][by])
        for bin in (0, 100, 511, 900, 1023):
            end = -(-(bin + 1) * trace.duration // 1024) - 1  # the last whole ns of the bin
            assert curve[:, bin].sum() == trace.at(min(end, trace.duration)).live_bytes


@pytest.mark.parametrize("tile", [128, 4096])  # of 128 events, one begins among the blocks that go
def test_what_an_ended_process_held_is_in_no_band_afterwards(browser, tmp_path, monkeypatch, tile):
    family = tmp_path / "some.epd"
    family.mkdir()
    first, second = (eventprof.record(output=family / f"{name}.epr") for name in "ab")
    first.start()
    kept = [bytearray(1000 + n) for n in range(90)]
    second.start()
    first.stop()
    kept += [bytearray(3000 + n) for n in range(70)]
    second.stop()
    with eventprof.record(output=family / "c.epr"):
        kept += [bytearray(5000 + n) for n in range(10)]
    trace = eventprof.open(family)
    monkeypatch.setattr(planes, "TILE", tile)
    path = tmp_path / "page.html"
    write(trace, path)

    browser.open(path)

    times = trace.memory["time"].tolist()
    assert len(times) > 50
    for time in times[:: max(1, len(times) // 60)] + times[-1:]:
        instant = trace.at(time)
        assert sum(browser.run(f"eventprofPage.bandsAt({time})")) == instant.live_bytes, time
        alive = browser.run(f"eventprofPage.live({time})")
        assert (alive["bytes"], alive["blocks"]) == (instant.live_bytes, instant.live_blocks)
    assert instant.live_bytes < 60_000 < 300_000 < sum(trace.leaks()["bytes"])
    head = json.loads(gzip.decompress(page_data.sections(trace)[0]))
    assert np.array(head["curve"]["function"])[:, -1].sum() == instant.live_bytes
    assert browser.console == []


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

    def owner(node):
        while node >= 0:
            if own[callee[node]]:
                return callee[node], 0
            if own[caller[node]]:
                return caller[node], max(caller_line[node], 0)
            node = parent[node]
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
        alive = shown.run(f"eventprofPage.live({time})")["rows"]
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
        rows = shown.run(f"eventprofPage.live({trace.peak().time})")["rows"]
        assert {(functions[k], lines[k]): v for k, v, _ in rows if v} == wanted
    columns, count, width = shown.run(
        "(({app: {memory: m}, data}) => [[...m.columns], data.blocks.bands, m.raster.width])(eventprofPage)"
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
    assert any(re.fullmatch(r"page_program\.py:\d+ \S+", name) for name in names)
    shown.wait("location.hash.includes('hold=line')")


def test_shift_drag_on_memory_tells_kept_from_freed(shown, trace):
    box = shown.box("#memory")
    shown.drag(160, box["y"] + 90, 1390, box["y"] + 90, modifiers=SHIFT)
    t0, t1 = shown.run("eventprofPage.state.range")
    blocks = trace.allocations
    start, end, size = (values(blocks, name) for name in ("start", "end", "size"))
    holder = block_functions(trace)
    born = (start >= t0) & (start < t1)
    dead = (end >= 0) & (end < t1)
    wanted = {}
    for name, chosen in (
        ("allocated", born), ("kept", born & ~dead), ("temporary", born & dead),
        ("freed", (end >= t0) & dead),
    ):  # fmt: skip
        wanted[name] = np.bincount(
            holder[chosen], weights=size[chosen], minlength=len(trace.functions)
        )
    found = shown.run(
        "(({app: {functions: f}}) => Object.fromEntries(f.columns().map((c) => [c.key, [...c.values].slice(0, -1)])))(eventprofPage)"
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
    for number, block in enumerate(largest):
        made, freed = values(blocks, "call")[block], freed_of[block]
        links = [call for call in (made, freed) if call >= 0]
        for n, call in enumerate(links):
            shown.run(
                f"document.querySelectorAll('#pane-instant .blocks tr')[{number}].querySelectorAll('button')[{n}].click()"
            )
            shown.settle()
            assert shown.run("eventprofPage.state.call") == place[call]
        if number == 3:
            break


def test_a_click_on_memory_says_what_was_alive_and_running(shown, trace):
    """At the peak, where much is live whatever the machine's speed."""
    box = shown.box("#memory")
    x = shown.run(f"eventprofPage.app.timeline.xOf({trace.peak().time})")
    shown.click(box["x"] + x, box["y"] + 100)
    shown.wait("eventprofPage.state.instant !== null")
    shown.wait("document.querySelector('#pane-instant .blocks') !== null")
    instant = trace.at(int(shown.run("eventprofPage.state.instant")))
    text = shown.run("document.querySelector('#pane-instant').innerText")
    assert f"Live: {show_bytes(instant.live_bytes)} in {instant.live_blocks:,} blocks" in text
    assert f"Running: {len(instant.open):,} open calls" in text
    names = shown.run(
        "[...document.querySelectorAll('#pane-instant table')].map((t) => t.innerText)"
    )
    for name in instant.open["name"]:
        assert name in names[0]


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


def test_the_legend_has_the_line_first_and_its_whole_name(shown):
    shown.run("eventprofPage.update({hold: 'line'})")
    shown.settle()
    names = shown.run("eventprofPage.app.memory.names")
    lines = [name for name in names if re.search(r"\.py:\d", name)]
    assert lines
    assert all(re.match(r"[^ ]+\.py:\d+ .", name) for name in lines)
    box = shown.box("#memory")
    y = shown.run(
        "(({app: {memory: m}}) => 3 + m.legendStep(m.raster.high) * (m.names.length - 0.5))(eventprofPage)"
    )
    shown.mouse("mouseMoved", box["x"] + 40, box["y"] + y)
    shown.wait(f"document.querySelector('#memory').title === {json.dumps(names[0])}")
    shown.mouse("mouseMoved", box["x"] + 400, box["y"] + y)
    shown.wait("document.querySelector('#memory').title === ''")
    shown.run("eventprofPage.update({hold: 'function'})")
    shown.settle()


def test_the_gutter_tells_whole_names_of_threads(browser, tmp_path):
    name = "a thread with a name that is much too long for the gutter"
    with eventprof.record(memory=False) as rec:
        thread = threading.Thread(target=sum, args=((1, 2),), name=name)
        thread.start()
        thread.join()
    write(rec.trace, tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    lane = (
        "eventprofPage.app.timeline.layout.lanes.find((each) => each.name.startsWith('a thread'))"
    )
    browser.run(f"eventprofPage.update({{scroll: {lane}.y}})")
    browser.settle()
    y = browser.run(f"22 - eventprofPage.state.scroll + {lane}.y + 30")
    box = browser.box("#timeline")
    browser.mouse("mouseMoved", box["x"] + 40, box["y"] + y)
    browser.wait(f"document.querySelector('#tip').innerText === {json.dumps(name)}")


def test_more_holders_than_are_shown_are_told(browser, tmp_path):
    names = {}
    exec("".join(f"def f{n}(): return [bytearray({n})]\n" for n in range(300)), names)
    with eventprof.record() as rec:
        kept = [names[f"f{n}"]() for n in range(300)]
    write(rec.trace, tmp_path / "page.html")
    last = rec.trace.duration - 1
    browser.open(tmp_path / "page.html", f"#tab=instant&instant={last}")
    many = len(browser.run(f"eventprofPage.live({last}).rows"))
    assert many >= 300 == len(kept)
    text = browser.run("document.querySelector('#pane-instant').innerText")
    assert f"the first 200 of {many}" in text
    titles = browser.run(
        "[...document.querySelectorAll('#pane-instant thead th')].map((each) => each.innerText)"
    )
    assert titles == ["bytes", "blocks", "holder"]


def test_a_range_does_not_change_what_is_alive_and_that_is_said(shown, trace):
    shown.run("eventprofPage.update({tab: 'flame', unit: 'live'})")
    shown.settle()
    bar = "document.querySelector('#pane-flame .bar').innerText"
    assert "range" not in shown.run(bar)
    shown.run(f"eventprofPage.update({{range: [0, {trace.duration // 2}]}})")
    shown.settle()
    assert "of the instant, not of the range" in shown.run(bar)
    shown.run("eventprofPage.update({range: null, tab: 'functions', unit: 'self'})")
    shown.settle()
