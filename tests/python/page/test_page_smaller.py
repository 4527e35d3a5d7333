"""The smaller pages: flame graph, of one recording or two, heat map, source in the page; drawings.

What a page shows is compared with the tables. Without a Chromium, what needs one is skipped.
"""

from __future__ import annotations

import base64
import gzip
import json
import linecache
import re
import threading
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from urllib.parse import quote

import browser as chromium
import numpy as np
import pytest

import eventprof
from eventprof import cli
from eventprof.base.output import put
from eventprof.cli import pictures
from eventprof.viewer import flamegraph, write
from eventprof.viewer.heatmap import MODULES, heatmap
from eventprof.viewer.page import assemble
from eventprof.viewer.planes import compress
from eventprof.viewer.source import find_source

PROGRAM = """\
def leaf(count):
    return [bytes(100 + n) for n in range(count)]

def deep(n):
    return leaf(n) if n == 0 else deep(n - 1)

def main(many):
    kept = []
    for n in range(30):
        kept.append(leaf(n))
        deep(n % 5)
    if many:
        extra(kept)
    return kept

def extra(kept):
    for each in kept:
        leaf(len(each))
"""


@pytest.fixture(scope="module")
def browser():
    if chromium.find() is None:
        pytest.skip("no chromium here: apt-get install chromium, or EVENTPROF_CHROMIUM=PATH")
    started = chromium.Browser(1100, 760)
    yield started
    started.close()


def record(folder, many, **options):
    file = folder / "made.py"
    file.write_text(PROGRAM)
    names = {}
    exec(compile(PROGRAM, str(file), "exec"), names)
    # In a thread: under the same few calls each time, whoever asks.
    thread = threading.Thread(target=names["main"], args=(many,))
    with eventprof.record(**options) as rec:
        thread.start()
        thread.join()
    return rec.trace


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("smaller")


@pytest.fixture(scope="module")
def before(folder):
    return record(folder, False)


@pytest.fixture(scope="module")
def after(folder):
    return record(folder, True)


@pytest.fixture(scope="module")
def lined(folder):
    return record(folder, True, lines=True)


def shown(browser, path, name, fragment=""):
    browser.go("about:blank")
    browser.console.clear()
    browser.go(path.resolve().as_uri() + fragment)
    browser.wait(f"window.{name} !== undefined", quiet=True)
    return browser


def head_of(parts):
    raw = b"".join(parts).decode()
    found = re.search(r'<template id="data-head">([^<]*)</template>', raw)
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


# ---- Flame graph ---------------------------------------------------------------------------------


def test_stacks_have_the_figures_of_the_tables(after):
    stacks = flamegraph.Stacks([after])
    functions = after.functions
    self = defaultdict(int)
    calls = defaultdict(int)
    for node, function in enumerate(stacks.function):
        if node:
            self[stacks.functions[function][0]] += stacks.values["self"][0][node]
            calls[stacks.functions[function][0]] += stacks.values["calls"][0][node]
    for name in ("leaf", "deep", "main", "extra"):
        (row,) = np.flatnonzero(functions["name"] == name)
        assert self[name] == functions["self"][row]
        assert calls[name] == functions["calls"][row]
    assert sum(stacks.values["allocated"][0]) == after.allocations["size"].sum()
    assert sum(stacks.values["at_peak"][0]) == after.peak().bytes
    assert all(parent < node for node, parent in enumerate(stacks.parent))
    pairs = list(zip(stacks.parent, stacks.function, strict=True))
    assert len(set(pairs)) == len(pairs)


def test_two_recordings_share_the_nodes_that_both_have(before, after):
    both = flamegraph.Stacks([before, after])
    for side, trace in enumerate((before, after)):
        alone = flamegraph.Stacks([trace])
        for unit, values in alone.values.items():
            assert sum(both.values[unit][side]) == sum(values[0])
    (extra,) = [n for n, row in enumerate(both.functions) if row[0] == "extra"]
    nodes = [node for node, function in enumerate(both.function) if function == extra]
    assert [both.values["calls"][0][node] for node in nodes] == [0]
    assert [both.values["calls"][1][node] for node in nodes] == [1]


@pytest.mark.thorough
def test_the_page_draws_each_stack_as_wide_as_its_share(browser, after, tmp_path):
    put(tmp_path / "graph.html", flamegraph.flamegraph([after]))
    page = shown(browser, tmp_path / "graph.html", "eventprofGraph")
    stacks = flamegraph.Stacks([after])
    total = stacks.totals("self", 0)
    boxes, wide = page.run(
        "(({flame}) => [flame.boxes.map(({node, w}) => [node, w]), flame.box.clientWidth - 4])(eventprofGraph)"
    )
    assert len(boxes) > 8
    for node, width in boxes:
        assert width == pytest.approx(wide * total[node] / total[0], rel=1e-6)
    assert page.run("document.querySelector('#title').textContent")
    page.run("eventprofGraph.update({unit: 'at_peak'})")
    page.wait(f"eventprofGraph.flame.graph.total[0] === {after.peak().bytes}")
    page.run("eventprofGraph.update({inverted: true, unit: 'calls'})")
    page.wait("eventprofGraph.flame.key.startsWith('calls,true')")
    assert page.run("eventprofGraph.flame.graph.total[0]") == sum(stacks.values["calls"][0])
    assert page.run("performance.getEntriesByType('resource').length") == 0
    assert page.console == []


def test_a_click_zooms_and_the_table_has_each_function(browser, after, tmp_path):
    put(tmp_path / "graph.html", flamegraph.flamegraph([after]))
    page = shown(browser, tmp_path / "graph.html", "eventprofGraph")
    functions = after.functions
    rows = page.run(
        "[...document.querySelectorAll('#table tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    assert {row[2] for row in rows} >= {"leaf", "deep", "main", "extra"}
    assert len(rows) == int((functions["total"] > 0).sum())
    canvas = page.box("#graph canvas")
    node, x, y, w = page.run(
        "(({flame, stacks}) => { const b = flame.boxes.find((each) => stacks.nameOf(flame.graph.tree.func[each.node]) === 'extra');"
        " return [b.node, b.x, b.y, b.w]; })(eventprofGraph)"
    )
    place = canvas["x"] + x + w / 2, canvas["y"] + y * 18 + 9
    page.mouse("mouseMoved", *place)
    for kind in ("mousePressed", "mouseReleased"):
        page.mouse(kind, *place, button="left", buttons=1, clickCount=1)
    page.wait(f"eventprofGraph.flame.focus === {node}")
    page.run("eventprofGraph.update({search: 'leaf'})")
    # On 3.11 a list comprehension is a function of its own: leaf.<locals>.<listcomp>.
    found = sum("leaf" in row[2] for row in rows)
    page.wait(f"eventprofGraph.rows() === {found}")
    assert page.console == []


def test_a_comparison_is_coloured_by_what_changed(browser, before, after, tmp_path):
    put(tmp_path / "graph.html", flamegraph.flamegraph([before, after], ["a.epr", "b.epr"]))
    page = shown(browser, tmp_path / "graph.html", "eventprofGraph", "#unit=calls&theme=light")
    assert page.run("document.querySelector('#title').textContent") == "a.epr \u2192 b.epr"
    colour = (
        "(({flame, stacks}, name) => { const b = flame.boxes.find((each) => stacks.nameOf(flame.graph.tree.func[each.node]) === name);"
        " const s = window.devicePixelRatio; const d = flame.canvas.getContext('2d').getImageData((b.x + b.w - 3) * s, (b.y * 18 + 3) * s, 1, 1).data;"
        " return [...d].slice(0, 3); })(eventprofGraph, NAME)"
    )
    red, _, blue = page.run(colour.replace("NAME", "'extra'"))
    assert red > blue + 80  # new: as orange as can be
    same = page.run(colour.replace("NAME", "'deep'"))
    assert max(same) - min(same) < 15
    page.console.clear()  # it advises against reading pixels, which the page itself never does
    rows = page.run(
        "[...document.querySelectorAll('#table tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    found = {row[6]: row for row in rows}
    assert found["extra"][:3] == ["0", "1", "+1"]
    assert found["deep"][2] == "="
    page.run("eventprofGraph.update({side: 'before'})")
    page.wait("eventprofGraph.flame.status.textContent.startsWith('width: before')")
    calls = flamegraph.Stacks([before]).values["calls"][0]
    assert page.run("eventprofGraph.flame.graph.total[0]") == sum(calls)
    assert page.console == []


def test_waited_is_offered_where_a_thread_waited(browser, tmp_path):
    with eventprof.record(memory=False) as rec:
        sum(range(3))
    alone = rec.trace
    assert "waited" not in flamegraph.Stacks([alone]).values
    put(tmp_path / "graph.html", flamegraph.flamegraph([alone, alone], ["a", "b"]))
    page = shown(browser, tmp_path / "graph.html", "eventprofGraph", "#unit=waited")
    units = page.run(
        "[...document.querySelector('#graph select').options].map((each) => each.value)"
    )
    assert units == ["self", "calls"]
    assert page.run("eventprofGraph.state.unit") == "self"


def test_the_table_has_the_figures_of_all_functions(browser, before, after, tmp_path, monkeypatch):
    monkeypatch.setattr(flamegraph, "MOST_NODES", 12)
    columns = {
        "self": ("self", "total"), "calls": ("calls", None), "allocated": ("allocated_self", "allocated"),
        "live": ("live_self", "live"), "at_peak": ("at_peak_self", "at_peak"),
    }  # fmt: skip
    for traces in ([after], [before, after]):
        stacks = flamegraph.Stacks(traces)
        assert any(row[0] == "other (many small calls)" for row in stacks.functions)
        for side, trace in enumerate(traces):
            functions = trace.functions
            for unit, names in columns.items():
                for which, name in enumerate(names):
                    if name is None:
                        continue
                    found = defaultdict(int)
                    wanted = defaultdict(int)
                    for row, value in zip(
                        stacks.functions, stacks.table[unit][side][which], strict=True
                    ):
                        found[row[:2]] += value
                    for key, value in zip(
                        zip(functions["name"], functions["module"], strict=True),
                        np.ma.filled(functions[name], 0).tolist(),
                        strict=True,
                    ):
                        wanted[key] += value
                    one_each = len(set(zip(functions["name"], functions["module"], strict=True)))
                    if which == 0 or one_each == len(functions):
                        assert {k: v for k, v in found.items() if v} == {
                            k: v for k, v in wanted.items() if v
                        }
    put(tmp_path / "graph.html", flamegraph.flamegraph([after]))
    page = shown(browser, tmp_path / "graph.html", "eventprofGraph")
    rows = page.run(
        "[...document.querySelectorAll('#table tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    assert len(rows) == int((after.functions["total"] > 0).sum())
    assert not any("other" in row[2] for row in rows)
    assert page.console == []


def test_functions_beyond_the_table_are_one_line(browser, tmp_path):
    text = "".join(f"def f{n}(): return {n}\n" for n in range(600))
    names = {}
    exec(text, names)
    with eventprof.record(memory=False) as rec:
        for n in range(600):
            names[f"f{n}"]()
    put(tmp_path / "graph.html", flamegraph.flamegraph([rec.trace]))
    page = shown(browser, tmp_path / "graph.html", "eventprofGraph", "#unit=calls")
    calls = page.run(
        "[...document.querySelectorAll('#table tbody tr, #table tfoot tr')].map((row) => Number(row.cells[0].textContent.replaceAll(',', '')))"
    )
    assert sum(calls) == int(rec.trace.functions["calls"].sum())
    count = len(rec.trace.functions) - 500
    foot = page.run("document.querySelector('#table tfoot').textContent")
    assert f"all others: {count} functions" in foot


def test_what_is_too_narrow_is_one_bar(browser, tmp_path):
    names = {}
    exec("".join(f"def f{n}(): return {n}\n" for n in range(3000)), names)
    with eventprof.record(memory=False) as rec:
        for n in range(3000):
            names[f"f{n}"]()
    put(tmp_path / "graph.html", flamegraph.flamegraph([rec.trace]))
    page = shown(
        browser, tmp_path / "graph.html", "eventprofGraph", "#unit=calls&inverted=1&theme=light"
    )
    wide, boxes, others = page.run(
        "(({flame: f}) => [f.box.clientWidth - 4, f.boxes.filter((b) => b.y === 0).map((b) => b.w), f.others.filter((b) => b.y === 0)])(eventprofGraph)"
    )
    assert len(others) == 1
    assert sum(boxes) + others[0]["w"] == pytest.approx(wide)
    canvas = page.box("#graph canvas")
    page.mouse("mouseMoved", canvas["x"] + others[0]["x"] + others[0]["w"] / 2, canvas["y"] + 9)
    text = f"other: {others[0]['count']:,} too narrow to draw"
    page.wait(f"document.querySelector('#tip').innerText.startsWith({json.dumps(text)})", 10)
    assert page.console == []


MOVED = """\
import json

def leaf(n):
    return json.dumps(list(range(n)))

def overload(f):
    return f

@overload
def twice(n):
    return leaf(n)

first = twice

@overload
def twice(n):
    return first(n) + leaf(n)

for n in range(20):
    twice(n)
"""


@pytest.mark.parametrize("name", ["main.py", "other.py"])
def test_a_program_that_was_moved_is_the_same(browser, tmp_path, name):
    traces = []
    for folder, file in (("one", "main.py"), ("two", name)):
        path = tmp_path / folder / file
        path.parent.mkdir()
        path.write_text(MOVED)
        code = compile(MOVED, str(path), "exec")
        with eventprof.record() as rec:
            exec(code, {"__name__": "__main__"})
        traces.append(rec.trace)
    both = flamegraph.Stacks(traces)
    assert len({(row[0], row[1], row[4]) for row in both.functions}) == len(both.functions)
    # Two functions of one name add up.
    (twice,) = [n for n, row in enumerate(both.functions) if row[0] == "twice"]
    nodes = [node for node, function in enumerate(both.function) if function == twice]
    for calls in both.values["calls"]:
        assert sum(calls[node] for node in nodes) == 40
    put(tmp_path / "graph.html", flamegraph.flamegraph(traces, ["a", "b"]))
    page = shown(browser, tmp_path / "graph.html", "eventprofGraph", "#unit=calls")
    rows = page.run(
        "[...document.querySelectorAll('#table tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    own = {row[6]: row[2] for row in rows if row[6] in ("<module>", "leaf", "twice", "overload")}
    assert own == dict.fromkeys(("<module>", "leaf", "twice", "overload"), "=")


def test_the_drawing_has_each_wide_node(after):
    stacks = flamegraph.Stacks([after])
    total = stacks.totals("calls", 0)
    root = ElementTree.fromstring(flamegraph.flamegraph_svg(after, "calls"))
    boxes = root.findall("{*}rect")[1:]
    wide = [node for node in range(1, len(total)) if 1200 * total[node] / total[0] >= 2]
    assert len(boxes) >= len(wide) > 5
    assert sum(float(each.get("width")) > 1.4 for each in boxes) >= len(wide)
    titles = [each.find("{*}title").text for each in boxes]
    assert any(title.startswith("extra: ") for title in titles)


# ---- Source and heat map -------------------------------------------------------------------------


def made(trace):
    (file,) = [each for each in find_source(trace) if each["file"].endswith("made.py")]
    return file


def test_source_has_the_figures_of_the_lines(lined):
    lines = lined.lines
    file = made(lined)
    ours = lines[lines["file"] == file["file"]]
    assert file["text"] == PROGRAM.splitlines()
    assert file["own"]
    for what in ("hits", "total", "self", "allocated"):
        expected = defaultdict(int)
        for line, value in zip(
            ours["line"].tolist(), np.ma.filled(ours[what], 0).tolist(), strict=True
        ):
            expected[line] += value
        found = dict(zip(file["lines"], file[what], strict=True))
        assert {line: value for line, value in found.items() if value} == {
            line: value for line, value in expected.items() if value
        }


def test_a_line_of_own_code_has_what_libraries_allocated_for_it(tmp_path, monkeypatch):
    (tmp_path / "uses.py").write_text(
        "import json\n\ndef main():\n    return json.dumps({str(n): n for n in range(999)}, indent=1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import uses

    with eventprof.record() as rec:
        uses.main()
    (file,) = [each for each in find_source(rec.trace) if each["file"].endswith("uses.py")]

    charges, lines = rec.trace.own, rec.trace.lines
    charged = charges[(charges["file"] == file["file"]) & (charges["line"] == 4)]
    itself = lines[(lines["file"] == file["file"]) & (lines["line"] == 4)]
    place = file["lines"].index(4)
    assert file["allocated"][place] == charged["allocated"].sum() > itself["allocated"].sum()
    assert file["blocks"][place] == charged["blocks"].sum() > itself["blocks"].sum()


def test_without_recorded_lines_a_line_has_the_time_of_its_calls(after):
    file, calls = made(after), after.calls
    found = dict(zip(file["lines"], file["total"], strict=True))
    count = dict(zip(file["lines"], file["calls"], strict=True))
    extra = calls[calls["name"] == "extra"]
    assert found[13] == extra["duration"].sum()
    assert count[10] == 60  # leaf and append
    # A recursive line: the outermost of each stack alone.
    outer = calls[(calls["name"] == "deep") & (calls["caller_line"] == 11)]
    assert found[11] == outer["duration"].sum()
    nested = calls[
        (calls["name"] == "deep")
        & (calls["caller_line"] == 5)
        & (calls["depth"] == outer["depth"][0] + 1)
    ]
    leaves = calls[
        (calls["name"] == "leaf")
        & (calls["caller_line"] == 5)
        & (calls["depth"] == outer["depth"][0] + 1)
    ]
    assert found[5] == nested["duration"].sum() + leaves["duration"].sum()
    assert "hits" not in file


def test_the_heat_map_shows_each_line_with_its_figures(browser, lined, tmp_path):
    put(tmp_path / "heat.html", heatmap(lined))
    file = made(lined)
    fragment = f"#theme=light&file={quote(file['file'], safe='')}"
    page = shown(browser, tmp_path / "heat.html", "eventprofHeat", fragment)
    assert page.run("document.querySelector('#file').value") == file["file"]
    rows = page.run(
        "[...document.querySelectorAll('table.lines tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    assert [row[-1] for row in rows] == [
        text.replace("\t", "    ") for text in PROGRAM.splitlines()
    ]
    hits = dict(zip(file["lines"], file["hits"], strict=True))
    column = page.run(
        "[...document.querySelectorAll('table.lines thead th')].map((cell) => cell.textContent)"
    ).index("hits")
    for line, row in enumerate(rows, 1):
        assert row[column] == (f"{hits[line]:,}" if hits.get(line) else "")
    hottest = page.run("document.querySelector('.hottest').id")
    assert hottest == f"line-{file['lines'][int(np.argmax(file['total']))]}"
    # The small picture is warm where that line is.
    line = int(hottest[5:])
    red, _, blue, seen = page.run(
        "(({source: {map}}, line, count) => [...map.getContext('2d').getImageData(map.width - 4,"
        f" Math.floor((line - 0.5) / count * map.height), 1, 1).data])(eventprofHeat, {line}, {len(rows)})"
    )
    assert seen > 100
    assert red > blue + 80
    page.run(
        "document.querySelector('#warm').value = 'allocated'; document.querySelector('#warm').dispatchEvent(new Event('change'))"
    )
    most = file["lines"][int(np.argmax(file["allocated"]))]
    page.wait(f"document.querySelector('.hottest').id === 'line-{most}'")
    assert page.console == []


def test_files_of_one_name_are_told_apart_and_the_chosen_one_is_warm(browser, lined, tmp_path):
    parts = list(heatmap(lined))
    head = head_of(parts)
    own = made(lined)
    paths = [
        "/x/json/__init__.py", "/x/email/__init__.py", "/y/json/decoder.py",
        "<frozen importlib._bootstrap>", "<frozen importlib/x>",
    ]  # fmt: skip
    head["source"] = [own, *({**own, "file": path} for path in paths)]
    raw = compress(json.dumps(head).encode())
    put(tmp_path / "heat.html", assemble("heat.html", MODULES, "title", [("head", raw)]))
    page = shown(browser, tmp_path / "heat.html", "eventprofHeat")
    names = page.run(
        "[...document.querySelectorAll('#files tbody tr')].map((row) => row.cells[0].textContent)"
    )
    assert names == [
        "made.py", "json/__init__.py", "email/__init__.py", "decoder.py",
        "<frozen importlib._bootstrap>", "<frozen importlib/x>",
    ]  # fmt: skip
    looks = page.run(
        "[...document.querySelectorAll('#files tbody tr')].map((row) => [getComputedStyle(row).backgroundColor, getComputedStyle(row.cells[0]).fontWeight])"
    )
    assert len({colour for colour, _ in looks}) == 1
    assert [weight for _, weight in looks] == ["600", *["400"] * 5]
    assert page.console == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("which", "message"), [("lined", "until the next line"), ("after", "record with --lines")]
)
def test_the_page_says_what_the_time_of_a_line_is(browser, request, tmp_path, which, message):
    request.getfixturevalue(which).show(tmp_path / "page.html", source=True)
    browser.open(tmp_path / "page.html", "#tab=source")
    assert message in browser.run("document.querySelector('#pane-source').textContent")


def test_the_page_has_source_where_it_is_asked_for(browser, lined, tmp_path):
    write(lined, tmp_path / "page.html", source=True)
    write(lined, tmp_path / "without.html")
    browser.size(1100, 760)
    browser.open(tmp_path / "page.html", "#tab=source")
    assert "def extra(kept):" in browser.run("document.querySelector('table.lines').textContent")
    assert browser.console == []
    browser.open(tmp_path / "without.html", "#tab=source")
    assert browser.run("document.querySelector('#tab-source')") is None
    assert browser.run("eventprofPage.state.tab") == "functions"
    assert "def extra" not in (tmp_path / "without.html").read_text()
    assert browser.console == []


def test_the_place_of_a_call_leads_to_its_source(browser, lined, tmp_path):
    write(lined, tmp_path / "page.html", source=True)
    browser.size(1100, 760)
    browser.open(tmp_path / "page.html")
    call = browser.run(
        "(({data}) => data.func.findIndex((f) => data.nameOf(f) === 'extra'))(eventprofPage)"
    )
    browser.run(f"eventprofPage.app.show({call})")
    browser.run("eventprofPage.update({tab: 'call'})")
    browser.settle()
    browser.run("document.querySelector('#pane-call button.link').click()")
    browser.settle()
    browser.wait(
        "(({top, bottom}) => top > 0 && bottom < innerHeight)"
        "(document.querySelector('#line-16').getBoundingClientRect())"
    )
    assert browser.run("eventprofPage.state.tab") == "source"
    assert browser.run("document.querySelector('#line-16').innerText").endswith("def extra(kept):")
    assert browser.console == []


# ---- Bad input -----------------------------------------------------------------------------------

ODD = (
    "</script><script>window.hacked = 1</script>", "<img src=x onerror='window.hacked = 1'>",
    "\u05d0\u05d1 \u202edesrever\u2066", "lone \ud800 surrogate", "{{policy}}{{style}}",
)  # fmt: skip


def odd(tmp_path):
    file = str(tmp_path / "<img src=x onerror='window.hacked = 1'>.py")
    text = "x = '</script><script>window.hacked = 1</script>'\n\ndef called():\n    return [1]\n"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    names = {}
    exec(compile(text, file, "exec"), names)
    functions = []
    for name in ODD:
        code = names["called"].__code__.replace(co_name=name, co_qualname=name)
        functions.append(type(names["called"])(code, names))
    with eventprof.record(lines=True) as rec:
        for function in functions:
            function()
    return rec.trace


def test_odd_names_and_text_are_shown_and_never_run(browser, tmp_path):
    trace = odd(tmp_path)
    put(tmp_path / "heat.html", heatmap(trace, "<b>title"))
    put(tmp_path / "graph.html", flamegraph.flamegraph([trace], ["<b>title"]))
    for file, name in (("heat.html", "eventprofHeat"), ("graph.html", "eventprofGraph")):
        page = shown(browser, tmp_path / file, name)
        assert page.run("window.hacked") is None
        assert page.run("document.querySelector('img')") is None
        assert page.run("document.querySelector('#title').textContent") == "<b>title"
        assert page.console == []
    text = page.run("document.querySelector('#table').textContent")
    assert "\\u202edesrever" in text
    assert "lone \\ud800 surrogate" in text
    ElementTree.fromstring(flamegraph.flamegraph_svg(trace))


@pytest.mark.parametrize(
    "options", [{"calls": False, "memory": False, "gc": False}, {"memory": False}, {"calls": False}]
)
def test_what_was_not_recorded_leaves_no_empty_figures(browser, tmp_path, options):
    trace = record(tmp_path, False, **options)
    put(tmp_path / "heat.html", heatmap(trace))
    put(tmp_path / "graph.html", flamegraph.flamegraph([trace, trace], ["a", "b"]))
    for file, name in (("heat.html", "eventprofHeat"), ("graph.html", "eventprofGraph")):
        page = shown(browser, tmp_path / file, name)
        assert page.console == []
    units = page.run(
        "[...document.querySelector('#graph select').options].map((each) => each.value)"
    )
    assert ("allocated" in units) == options.get("memory", True)


# ---- The command line ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(folder, before, after):
    before.save(folder / "a.epr")
    after.save(folder / "b.epr")
    return folder


def test_the_verbs_write_a_page_each(files, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(files)
    for verb, words, template in (
        ("flamegraph", ["b.epr"], "#graph"), ("flamegraph", ["b.epr", "--diff", "a.epr"], "#graph"),
        ("heatmap", ["b.epr"], "#files"), ("view", ["a.epr", "b.epr"], "#graph"),
        ("view", ["b.epr", "--flamegraph"], "#graph"), ("view", ["b.epr", "--heatmap"], "#files"),
        ("view", ["b.epr", "--diff", "a.epr"], "#graph"), ("view", ["b.epr", "--source"], "#timeline"),
    ):  # fmt: skip
        path = tmp_path / f"{verb}{len(words)}{words[-1].strip('-')}.html"
        assert cli.main([verb, *words, "-o", str(path)]) == 0, capsys.readouterr()
        assert f'id="{template[1:]}"' in path.read_text()
    assert cli.main(["flamegraph", "b.epr", "-o", str(path)]) == 1
    assert "exists already" in capsys.readouterr().err


def test_a_page_that_exists_is_refused_before_a_recording_is_read(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.html").write_text("mine")
    for verb, *words in (
        ["view"], ["view", "--heatmap"], ["view", "none.epr"], ["flamegraph"], ["heatmap"],
        ["save"], ["merge"],
    ):  # fmt: skip
        output = "x.epr" if verb in ("save", "merge") else "x.html"
        (tmp_path / output).write_text("mine")
        assert cli.main([verb, "none.epr", *words, "-o", output]) == 1
        # Nothing is said of the recording, which does not exist.
        errors = capsys.readouterr().err
        assert (
            errors
            == f"eventprof {verb}: {output}: exists already; -f replaces it, -o names another\n"
        )
        assert cli.main([verb, "none.epr", *words, "-f", "-o", output]) == 1
        assert "none.epr" in capsys.readouterr().err
        assert (tmp_path / output).read_text() == "mine"


def test_a_page_that_appears_meanwhile_is_not_replaced(files, tmp_path, monkeypatch, capsys):
    path = tmp_path / "x.html"

    def load_slowly(*given, **more):
        path.write_text("mine")
        return load(*given, **more)

    load = pictures.load
    monkeypatch.setattr(pictures, "load", load_slowly)
    assert cli.main(["heatmap", str(files / "b.epr"), "-o", str(path)]) == 1
    assert "exists already" in capsys.readouterr().err
    assert path.read_text() == "mine"


def test_names_that_end_in_svg_are_drawings(files, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(files)
    for words in (
        ["flamegraph", "b.epr"],
        ["flamegraph", "b.epr", "--unit", "peak"],
        ["view", "b.epr"],
    ):
        path = tmp_path / f"{len(words)}{words[0]}.svg"
        assert cli.main([*words, "-o", str(path)]) == 0
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
    assert cli.main(["heatmap", "b.epr", "-o", str(tmp_path / "x.svg")]) == 2
    assert "there is no drawing of this" in capsys.readouterr().err
    assert not (tmp_path / "x.svg").exists()


def test_browser_opens_what_was_written(files, tmp_path, monkeypatch):
    import webbrowser

    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    path = tmp_path / "x.html"
    assert cli.main(["flamegraph", str(files / "a.epr"), "-o", str(path), "--browser"]) == 0
    assert opened == [path.as_uri()]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["view", "a.epr", "b.epr", "a.epr"], "one file, or two"),
        (["view", "a.epr", "b.epr", "--heatmap"], "a flame graph takes no --heatmap"),
        (["view", "a.epr", "b.epr", "--source"], "a flame graph takes no --source"),
        (["flamegraph", "a.epr", "--unit", "peak"], "--unit is only for a drawing"),
    ],
)
def test_what_does_not_fit_is_refused(files, monkeypatch, capsys, words, message):
    monkeypatch.chdir(files)
    assert cli.main(words) == 2
    assert message in capsys.readouterr().err


def test_recordings_of_different_clocks_do_not_compare(files, tmp_path, monkeypatch, capsys):
    wall = record(tmp_path, False, clock="monotonic")
    wall.save(tmp_path / "c.epr")
    if wall.metadata["clock"] == eventprof.open(files / "a.epr").metadata["clock"]:
        pytest.skip("one clock alone here")
    assert (
        cli.main(
            ["view", str(files / "a.epr"), str(tmp_path / "c.epr"), "-o", str(tmp_path / "x.html")]
        )
        == 1
    )
    assert "their times cannot be compared" in capsys.readouterr().err
