"""Findings, ranges, search and functions on the page; and that everybody can use them."""

from __future__ import annotations

import json

import numpy as np
import page_program
import pytest
from page_program import GUTTER, SHIFT, fib, program, steps, values, view

import eventprof
from eventprof.viewer import write

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
    for each, (_, text) in zip(found, sections, strict=True):
        assert each.advice in text
        assert all(evidence.place() in text for evidence in each.evidence)
    number = [each.rule for each in found].index("list-from-the-front")
    browser.run(
        f"document.querySelectorAll('#pane-findings .finding')[{number}].querySelector('li button').click()"
    )
    browser.settle()
    call, name, duration, line = browser.run(
        "(({data, state}) => [state.call, data.nameOf(data.func[state.call]), data.dur[state.call], data.line[state.call]])(eventprofPage)"
    )
    assert name == "list.insert"
    inserts = np.asarray(trace.calls["name"] == "list.insert")
    assert duration == values(trace.calls, "duration")[inserts].max()
    assert line == found[number].evidence[0].line
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
    text = shown.run("document.querySelector('#pane-functions').innerText")
    between = trace.between(t0, t1)
    begun, blocks = int(between.functions["calls"].sum()), len(between.allocations)
    assert f": {begun:,} call{'s' * (begun != 1)} begun" in text
    assert f" in {blocks:,} block{'s' * (blocks != 1)}" in text
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
    text = shown.run("document.querySelector('#found').textContent")
    assert text == f"{len(known)} function{'s' * (len(known) > 1)}, {len(hits):,} calls"
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
        ("no such thing", "nothing found among functions"),
        (f"page_program.py:{fib.__code__.co_firstlineno}", "1 function,"),
    ):
        shown.run(f"eventprofPage.update({{search: {json.dumps(text)}}})")
        shown.settle()
        assert found in shown.run("document.querySelector('#found').textContent")


def test_any_line_of_a_function_finds_it(shown, trace):
    def found(text):
        shown.run(f"eventprofPage.update({{search: {json.dumps(text)}}})")
        shown.settle()
        return shown.run(
            "(({app: {timeline: {hits}}, data}) => [...hits || []].flatMap((hit, f) => hit ? [data.nameOf(f)] : []))(eventprofPage)"
        )

    first = steps.__code__.co_firstlineno
    for line in (first, first + 1, first + 4):
        assert found(f"page_program.py:{line}") == ["steps"]
    assert found(f"{page_program.__file__}:{first + 1}") == ["steps"]
    assert found(f"/page_program.py:{first + 1}") == ["steps"]
    assert found(f"program.py:{first + 1}") == []  # the name of no file
    assert found("page_program.py:1") == []  # before all functions that were called
    shown.run(f"eventprofPage.update({{filter: 'page_program.py:{first + 2}'}})")
    shown.settle()
    names = shown.run(
        "[...document.querySelectorAll('#pane-functions tbody tr')].map((r) => r.cells[r.cells.length - 3].innerText)"
    )
    assert names == ["steps"]


def test_the_histogram_counts_every_call_and_its_brush_marks_some(shown, trace, order):
    function = int(np.flatnonzero(trace.functions["name"] == "fib")[0])
    shown.run(f"eventprofPage.update({{fn: {function}, tab: 'durations'}})")
    shown.settle()
    duration = values(trace.calls, "duration")[order]
    calls = np.flatnonzero(values(trace.calls, "function")[order] == function)
    assert shown.run("eventprofPage.app.histogram.bars.reduce((a, b) => a + b, 0)") == len(calls)
    box = shown.box("#pane-durations canvas")
    shown.drag(
        box["x"] + box["width"] * 0.5, box["y"] + 60, box["x"] + box["width"] - 2, box["y"] + 60
    )
    low, high = shown.run("eventprofPage.state.brush")
    marked = calls[(duration[calls] >= low) & (duration[calls] <= high)]
    assert 0 < len(marked) < len(calls)
    assert f"marked: {len(marked):,}" in shown.run(
        "document.querySelector('#pane-durations').innerText"
    )
    shown.run("document.querySelector('#pane-durations button').click()")
    shown.settle()
    assert duration[shown.run("eventprofPage.state.call")] == duration[calls].max()


def test_one_is_no_plural(shown, trace):
    name = f"page_program.py:{program.__code__.co_firstlineno}"
    shown.run(f"eventprofPage.update({{search: {json.dumps(name)}, filter: {json.dumps(name)}}})")
    shown.settle()
    assert shown.run("document.querySelector('#found').textContent") == "1 function, 1 call"
    assert (
        shown.run("document.querySelector('#pane-functions [role=status]').innerText")
        == "1 function"
    )
    function = list(trace.functions["name"]).index("program")
    shown.run(f"eventprofPage.update({{fn: {function}, tab: 'durations'}})")
    shown.settle()
    assert "1 call, median" in shown.run("document.querySelector('#pane-durations').innerText")


def test_durations_have_buttons_only_for_what_they_can_do(shown, trace):
    def buttons():
        return shown.run(
            "[...document.querySelectorAll('#pane-durations button')].filter((b) => b.offsetWidth).map((b) => b.innerText)"
        )

    shown.run("eventprofPage.update({fn: -1, tab: 'durations'})")
    shown.settle()
    assert buttons() == []
    function = int(np.flatnonzero(trace.functions["name"] == "fib")[0])
    shown.run(f"eventprofPage.update({{fn: {function}}})")
    shown.settle()
    assert buttons() == ["slowest", "next slower", "next faster"]
    shown.run("eventprofPage.update({brush: [0, 1e9]})")
    shown.settle()
    assert "unmark" in buttons()


def test_the_histogram_says_what_a_bar_is_and_marks_while_dragging(shown, trace, order):
    function = int(np.flatnonzero(trace.functions["name"] == "fib")[0])
    shown.run(f"eventprofPage.update({{fn: {function}, tab: 'durations'}})")
    shown.settle()
    box = shown.box("#pane-durations canvas")
    bars = shown.run("[...eventprofPage.app.histogram.bars]")
    bar = int(np.argmax(bars))
    x = box["x"] + (bar + 0.5) / len(bars) * shown.run("eventprofPage.app.histogram.wide")
    shown.mouse("mouseMoved", x, box["y"] + 60)
    tip = shown.run("document.querySelector('#tip').innerText").splitlines()
    assert " to " in tip[0]
    assert tip[1] == f"{int(bars[bar]):,} calls"

    shown.mouse("mousePressed", x, box["y"] + 60, button="left", buttons=1, clickCount=1)
    shown.mouse("mouseMoved", x + 1, box["y"] + 60, button="left", buttons=1)
    low, high = shown.run("eventprofPage.state.brush")  # before the button is up
    duration = values(trace.calls, "duration")[order]
    calls = np.flatnonzero(values(trace.calls, "function")[order] == function)
    marked = calls[(duration[calls] >= low) & (duration[calls] <= high)]
    assert len(marked) == bars[bar]
    shown.mouse("mouseReleased", x + 1, box["y"] + 60, button="left", clickCount=1)
    assert shown.run("eventprofPage.state.brush") == [low, high]
    shown.mouse("mouseMoved", 700, 200)
    shown.mouse("mouseMoved", 700, 4)
    assert shown.run("document.querySelector('#tip').hidden")

    for number, button in ((1, "slowest"), (2, "next faster")):
        shown.run(
            "[...document.querySelectorAll('#pane-durations button')]"
            f".find((b) => b.innerText === '{button}').click()"
        )
        shown.settle()
        text = shown.run("document.querySelector('#pane-durations [role=status]').innerText")
        assert f"call {number} of {len(marked):,} marked, the slowest first" in text
    call = shown.run("eventprofPage.state.call")
    assert shown.run(f"eventprofPage.app.histogram.barOf({call})") == bar
    pixels = "document.querySelector('#pane-durations canvas').toDataURL()"
    with_call = shown.run(pixels)
    shown.run("eventprofPage.update({call: -1})")
    shown.settle()
    assert shown.run(pixels) != with_call  # its bar was marked


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


def test_the_lanes_scroll_by_keys_after_a_click_on_a_tab(shown):
    box = shown.box("#tab-flame")
    shown.click(box["x"] + 9, box["y"] + 9)
    assert shown.run("document.activeElement.id") == "tab-flame"
    shown.key("ArrowDown")
    assert shown.run("eventprofPage.state.scroll") > 0
    assert shown.run("eventprofPage.state.tab") == "flame"


def test_keys_work_after_a_checkbox_and_a_list_were_used(shown):
    def span():
        v0, v1 = view(shown)
        return v1 - v0

    shown.run("eventprofPage.update({tab: 'flame'})")
    shown.settle()
    box = shown.box("#pane-flame input[type=checkbox]")
    shown.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert shown.run("[eventprofPage.state.inverted, document.activeElement.type]") == [
        True,
        "checkbox",
    ]
    before = span()
    shown.key("w")
    assert span() == pytest.approx(before * 0.7)

    choose = (
        "((list) => { list.focus(); list.dispatchEvent(new PointerEvent('pointerdown', {bubbles: true}));"
        " list.value = 'module'; list.dispatchEvent(new Event('change', {bubbles: true})); })(document.querySelector('#colour'))"
    )
    shown.run(choose)
    shown.settle()
    before = span()
    shown.key("w")
    assert span() == pytest.approx(before * 0.7)
    assert shown.run("eventprofPage.state.colour") == "module"

    shown.run("document.querySelector('#colour').focus()")
    before = span()
    shown.key("w")  # who is in a list goes through it by letters
    assert span() == before
    shown.key("Escape")
    assert shown.run("document.activeElement === document.body")
    shown.run("eventprofPage.update({colour: 'area'})")


@pytest.mark.parametrize(
    "name, field", [("search", "#search"), ("filter", "#pane-functions input")]
)
def test_escape_clears_a_text_and_leaves_it(shown, name, field):
    shown.run(f"document.querySelector('{field}').focus()")
    shown.type("fib")
    assert shown.run(f"eventprofPage.state.{name}") == "fib"
    shown.run("eventprofPage.update({call: 5})")
    shown.key("Escape")
    assert shown.run(
        f"[eventprofPage.state.{name}, document.querySelector('{field}').value, eventprofPage.state.call]"
    ) == ["", "", 5]
    assert shown.run("document.activeElement === document.body")


def test_the_help_is_read_to_its_ends(shown):
    shown.key("?")
    cut = shown.run(
        "[...document.querySelectorAll('#keys th, #keys td')].filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.innerText)"
    )
    assert cut == []
    rows = shown.run(
        "[...document.querySelectorAll('#keys tr')].map((r) => [r.cells[0].innerText, getComputedStyle(r.cells[1]).whiteSpace])"
    )
    assert {wrap for _, wrap in rows} == {"normal"}
    keys = " ".join(name for name, _ in rows)
    assert all(word in keys for word in (",", ".", "strip", "bars", "line above the tabs"))
    shown.size(420, 700)
    shown.settle()
    assert shown.run(
        "(({scrollWidth: a, clientWidth: b}) => a <= b)(document.querySelector('#keys'))"
    )
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


PARTS = """
({inner: innerHeight, bottom: document.querySelector('#panel').getBoundingClientRect().bottom,
  panel: document.querySelector('#panel').offsetHeight, timeline: document.querySelector('#timeline-box').offsetHeight,
  most: Number(document.querySelector('#divider').ariaValueMax)})
"""


def test_the_panel_stays_in_the_window(shown):
    def fits(limit):
        parts = shown.run(PARTS)
        assert parts["bottom"] <= parts["inner"]
        assert parts["timeline"] >= 60
        assert parts["panel"] >= limit
        return parts

    divider = shown.box("#divider")
    shown.drag(700, divider["y"] + 3, 700, 5)
    dragged = fits(400)
    shown.wait(f"Number(document.querySelector('#divider').ariaValueNow) === {dragged['panel']}")
    assert dragged["timeline"] == 60
    shown.size(1400, 700)
    shown.settle()
    assert fits(200)["panel"] == dragged["panel"] - 200
    shown.size(1400, 900)
    shown.settle()
    shown.run("document.querySelector('#divider').focus()")
    scroll = shown.run("eventprofPage.state.scroll")
    shown.key("ArrowUp")
    assert fits(400)["panel"] == dragged["panel"]
    shown.key("ArrowDown")
    shown.key("ArrowDown")
    assert fits(400)["panel"] == dragged["panel"] - 40
    assert shown.run("eventprofPage.state.scroll") == scroll
    shown.wait(
        f"Number(document.querySelector('#divider').ariaValueNow) === {dragged['panel'] - 40}"
    )
    assert shown.run(PARTS)["most"] == dragged["panel"]


def test_a_narrow_window_hides_columns_not_names(shown):
    shown.size(600, 800)
    shown.settle()

    right = shown.run(
        "Math.max(...[...document.querySelectorAll('header > :not(.grow), #pane-functions th')]"
        ".map((each) => each.getBoundingClientRect().right))"
    )
    assert right <= 600
    assert shown.run("[...document.querySelectorAll('header button')].at(-1).id") == "help"


def test_the_headings_of_functions_say_what_they_mean(shown):
    for patch in ("range: null", "range: [0, eventprofPage.data.duration / 2]"):
        shown.run(f"eventprofPage.update({{{patch}}})")
        shown.settle()
        titles = shown.run(
            "[...document.querySelectorAll('#pane-functions th.number')].map((th) => [th.className, th.title])"
        )
        assert [name for name, title in titles if not title] == ["number calls"]
