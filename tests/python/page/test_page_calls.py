"""The page's calls and its timeline are those of the tables."""

from __future__ import annotations

import json
from collections import defaultdict

import numpy as np
import page_program
import pytest
from page_program import (
    GUTTER,
    RULER,
    call_of,
    keep,
    place_of,
    rows_on_screen,
    values,
    view,
)

from eventprof.answers.moments import block_functions

# ---- The data ------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_the_page_has_every_call_of_the_table(shown, trace, order):
    calls = trace.calls
    found = shown.run(
        "(({data}) => ({start: [...data.start], dur: [...data.dur], func: [...data.func], flags: [...data.flags],"
        " line: [...data.line], kind: [...data.kind.keys()].map((n) => data.head.kinds[data.kindOf(n)]),"
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


ALL_BYTES = """
(({data: d}) => [d.start, d.dur, d.func, d.flags, d.kind, d.line, d.blocks.event, d.blocks.distance, d.blocks.frameTime, d.blocks.size, d.blocks.charge, d.blocks.eventRow]
  .map((column) => column.reduce((sum, value, at) => (sum * 31 + value + at) % 2 ** 40, 0)))(eventprofPage)
"""


def test_a_large_page_shows_the_same(browser, path, large):
    browser.open(path)
    expected = browser.run(ALL_BYTES)
    browser.open(large)
    assert browser.run(ALL_BYTES) == expected
    assert browser.run("document.characterSet") == "UTF-16LE"
    tiles = browser.run("Object.values(eventprofPage.data.head.tiles).flat().length")
    assert tiles > 2  # so few are decoded without workers
    assert browser.console == []


def test_the_first_picture_has_the_size_of_the_later_ones(browser, path):
    browser.open(path)

    first = "performance.getEntriesByName('first')[0].detail"
    assert browser.run(f"{first} === eventprofPage.app.drawnSize"), browser.run(first)


def test_the_page_has_every_block_of_the_table(shown, trace, order):
    blocks = trace.allocations
    found = shown.run(
        "(({data: d}) => {"
        " const blocks = [...d.blocks.size.keys()], birth = blocks.map((b) => d.blocks.birthOf(b)), deaths = d.blocks.deathsOf(blocks);"
        " const death = blocks.map((b) => deaths.get(b) ?? -1);"
        " return {birth: birth.map((e) => d.blocks.timeOf(e)), death: death.map((e) => e < 0 ? -1 : d.blocks.timeOf(e)),"
        " size: [...d.blocks.size], holder: blocks.map((b) => d.blocks.functionOf(b)), line: blocks.map((b) => d.blocks.lineOf(b)), none: d.none,"
        " call: birth.map((e) => d.callOfEvent(e)), freed: death.map((e) => e < 0 ? -1 : d.callOfEvent(e))}; })"
        "(eventprofPage)"
    )
    place = np.empty(len(order), dtype=int)
    place[order] = np.arange(len(order))
    holder = block_functions(trace)
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
        "(({data: d}) => [d.groups, d.coarse.sum.reduce((a, b) => a + b, 0),"
        " d.coarse.most.reduce((a, b) => Math.max(a, b), 0), d.rows.length])(eventprofPage)"
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


@pytest.mark.thorough
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


def test_the_wheel_zooms_about_the_pointer(shown):
    box = shown.box("#timeline")
    before = view(shown)
    time = before[0] + (700 - GUTTER) / (1400 - GUTTER) * (before[1] - before[0])

    shown.mouse("mouseWheel", 700, box["y"] + 60, deltaX=0, deltaY=-400)
    shown.wait(f"eventprofPage.state.v1 - eventprofPage.state.v0 < {(before[1] - before[0]) * 0.9}")

    after = view(shown)
    assert after[0] + (700 - GUTTER) / (1400 - GUTTER) * (after[1] - after[0]) == pytest.approx(
        time, rel=1e-6
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


def test_keys_zoom_about_the_pointer_and_else_about_the_middle(shown, trace):
    box = shown.box("#timeline")
    part = (400 - GUTTER) / (1400 - GUTTER)
    shown.mouse("mouseMoved", 400, box["y"] + 60)
    for key in ("w", "w", "s", "f", "w"):  # the pointer stays, also when the view jumps
        if key == "f":
            shown.run("eventprofPage.update({v0: 50000, v1: 90000})")
            shown.settle()
            continue
        v0, v1 = view(shown)
        shown.key(key)
        after = view(shown)
        assert after[0] + part * (after[1] - after[0]) == pytest.approx(v0 + part * (v1 - v0))
    v0, v1 = view(shown)
    shown.key("Enter")
    assert shown.run("eventprofPage.state.instant") == int(v0 + part * (v1 - v0))

    panel = shown.box("#panel")
    shown.mouse("mouseMoved", 400, panel["y"] + panel["height"] / 2)
    shown.run("eventprofPage.update({v0: 50000, v1: 90000})")
    shown.key("w")
    assert sum(view(shown)) == pytest.approx(140000)
    shown.key("Enter")
    assert shown.run("eventprofPage.state.instant") == pytest.approx(70000, abs=1)


def test_what_was_said_of_the_pointers_place_goes_when_the_view_moves(shown, trace, order):
    call = call_of(trace, order, "keep")
    hidden = "document.querySelector('#tip').hidden"
    cursor = "eventprofPage.app.timeline.cursor"
    part = "(({app: {timeline: {cursor}}, state: {v0, v1}}) => (cursor - v0) / (v1 - v0))(eventprofPage)"
    for key in ("f", "p", "0"):
        shown.run(f"eventprofPage.app.fitCall({call})")
        shown.run("eventprofPage.app.zoom(0.5, eventprofPage.state.v0)")
        shown.settle()
        x, y = place_of(shown, call)
        shown.mouse("mouseMoved", x - 3, y)
        shown.mouse("mouseMoved", x, y)
        shown.wait(f"!{hidden}")
        time = shown.run(part)
        shown.key(key)
        assert shown.run(hidden), key
        assert shown.run(part) == pytest.approx(time)
        shown.mouse("mouseMoved", 700, 4)
        assert shown.run(cursor) is None


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
    text = shown.run("document.querySelector('#tip').innerText")
    calls = trace.calls
    assert text.splitlines()[0] == "keep"
    assert f"{page_program.__file__}:{keep.__code__.co_firstlineno}" in text
    assert "called by steps, line" in text
    assert ("waited" in text) == trace.has_lock
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
    text = shown.run("document.querySelector('#pane-call').innerText")
    assert text.startswith("leaf")
    duration = np.sort(values(trace.calls, "duration")[np.asarray(trace.calls["name"] == "leaf")])[
        ::-1
    ]
    assert f"median of {len(duration):,}" in text
    median = shown.run(
        "(({app}) => app.data.dur[app.histogram.calls[app.histogram.calls.length >> 1]])(eventprofPage)"
    )
    assert median == duration[len(duration) // 2]
    assert "freed in" in text
    assert "Blocks it allocated itself" in text


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
    calls = np.flatnonzero(values(trace.calls, "function")[order] == function)
    wanted = calls[np.argsort(-duration[calls], kind="stable")][:4].tolist()
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
    assert f"leaf: call 4 of {len(calls):,}, the slowest first" in shown.run(
        "document.querySelector('#pane-functions [role=status]').innerText"
    )
    assert shown.run("eventprofPage.state.tab") == "functions"


def test_with_a_range_a_click_in_the_table_stays_in_it(shown, trace, order):
    start = values(trace.calls, "start")[order]
    duration = values(trace.calls, "duration")[order]
    function = int(np.flatnonzero(trace.functions["name"] == "leaf")[0])
    calls = np.flatnonzero(values(trace.calls, "function")[order] == function)
    t0, t1 = (int(each) for each in np.quantile(start[calls], [0.4, 0.42]))
    inside = calls[(start[calls] >= t0) & (start[calls] < t1)]
    assert 1 < len(inside) < len(calls)
    wanted = inside[np.argsort(-duration[inside], kind="stable")].tolist()
    shown.run(f"eventprofPage.update({{range: [{t0}, {t1}]}})")
    shown.settle()
    seen = []
    for n in range(len(wanted) + 1):
        shown.run(
            "[...document.querySelectorAll('#pane-functions tbody tr')].find((r) => r.cells[r.cells.length - 3].innerText === 'leaf').click()"
        )
        shown.settle()
        seen.append(shown.run("eventprofPage.state.call"))
        text = shown.run("document.querySelector('#pane-functions [role=status]').innerText")
        number = n % len(wanted) + 1
        assert f"leaf: call {number} of {len(wanted)} in the range, the slowest first" in text
    assert seen == [*wanted, wanted[0]]
    shown.run("eventprofPage.update({tab: 'durations'})")
    shown.settle()
    assert "in the whole run" in shown.run(
        "document.querySelector('#pane-durations strong').innerText"
    )


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


def test_lanes_out_of_sight_are_named_and_a_click_shows_them(shown):
    def hidden(where):
        return shown.run(
            f"(({{app: {{timeline}}}}) => timeline.outOfSight(timeline.raster.high).{where}"
            ".map((lane) => lane.name))(eventprofPage)"
        )

    names = shown.run("eventprofPage.app.timeline.layout.lanes.map((lane) => lane.name)")
    box = shown.box("#timeline")
    below = hidden("below")
    assert hidden("above") == [] and below and names[-len(below) :] == below

    shown.click(60, box["y"] + box["height"] - RULER / 2)
    shown.settle()
    assert len(hidden("below")) < len(below)
    while after := hidden("below"):
        shown.click(60, box["y"] + box["height"] - RULER / 2)
        shown.settle()
        assert len(hidden("below")) < len(after)
    above = hidden("above")
    assert above and names[: len(above)] == above
    shown.click(60, box["y"] + RULER / 2)
    shown.settle()
    assert len(hidden("above")) < len(above)


DRAWN_TEXT = """
(({app: {timeline: {raster}}, update, flush}) => {
  const {context} = raster, own = context.fillText, drawn = [];
  context.fillText = (text, x, y) => drawn.push([text, x, y]);
  for (let scroll = 0; scroll < 60; scroll++) {
    update({scroll});
    flush();
  }
  delete context.fillText;
  return {drawn, high: raster.high, same: context.fillText === own};
})(eventprofPage)
"""


def test_no_text_of_the_timeline_is_cut_at_its_ends(shown):
    found = shown.run(DRAWN_TEXT)
    half = 6  # of a line of text
    lines = [(text, y) for text, x, y in found["drawn"] if x > GUTTER and y > RULER / 2]
    cut = [(text, y) for text, y in lines if y < RULER + half or y > found["high"] - half]
    assert found["same"]
    assert len(lines) > 1000
    assert cut == []


@pytest.mark.thorough
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
