"""What the page shows of waiting for the lock is compared with the tables."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections import Counter

import numpy as np
import pytest
from page_program import (
    GUTTER,
    call_of,
    paths,
    record_no_memory,
    rows_on_screen,
    stacks_of_calls,
    values,
    view,
)

import eventprof
from eventprof.viewer import write


def with_lock(trace):
    if not trace.has_lock:
        pytest.skip("this Python has no interpreter lock")


def others_held(trace, thread, t0, t1):
    """How long other threads had the lock."""
    gil = trace.gil
    start, end, holder = (values(gil, name) for name in ("start", "end", "thread"))
    other = holder != thread
    return int(np.maximum(np.minimum(end, t1) - np.maximum(start, t0), 0)[other].sum())


def waited_of_calls(trace):
    calls = trace.calls
    start, duration, thread = (
        values(calls, name).tolist() for name in ("start", "duration", "thread")
    )
    return [
        others_held(trace, number, t0, t0 + length)
        for number, t0, length in zip(thread, start, duration, strict=True)
    ]


@pytest.mark.thorough
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
    text = shown.run("document.querySelector('#tip').innerText")
    name = trace.threads["name"][int(values(trace.gil, "thread")[longest])]
    assert text.startswith(f"{name} had the interpreter's lock")


@pytest.mark.thorough
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
        of_thread = sorted(
            (row for row in rows if row["thread"] == thread), key=lambda row: row["depth"]
        )
        under = [
            shown.run(
                f"Array.from({{length: {len(marks)}}}, (_, x) => eventprofPage.under({GUTTER} + x + 0.5, {row['y']}))"
            )
            for row in of_thread
        ]
        for x, mark in enumerate(marks):
            waited = others_held(trace, thread, v0 + x * each, v0 + (x + 1) * each)
            inner = max((depth for depth, row in enumerate(under) if row[x] >= 0), default=-1)
            blocked = inner >= 0 and function[under[inner][x]] in blocking
            if abs(waited - each / 2) > 3 and inner >= 0:
                assert mark == (waited > each / 2 and not blocked), (thread, x)
            y = of_thread[inner]["y"]
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
    for stack, waits in zip(stacks_of_calls(trace), alone, strict=True):
        wanted[stack] += waits
    assert paths(shown) == {stack: waits for stack, waits in wanted.items() if waits}
    assert shown.run("eventprofPage.app.flame.graph.total[0]") == trace.tree["waited"][0]


UNITS = "[...document.querySelectorAll('#pane-flame .bar select option')].map((o) => o.value)"


def test_waited_can_be_chosen_where_threads_waited(shown, trace):
    with_lock(trace)
    shown.run("eventprofPage.update({tab: 'flame'})")
    shown.settle()
    assert "waited" in shown.run(UNITS)
    shown.run(
        "(() => { const s = document.querySelector('#pane-flame .bar select'); s.value = 'waited'; s.dispatchEvent(new Event('change')); })()"
    )
    shown.settle()
    assert shown.run("eventprofPage.state.unit") == "waited"
    text = shown.run("document.querySelector('#pane-flame .bar').innerText")
    assert "nothing to show" not in text


def test_waited_says_which_lock(shown, trace, order):
    with_lock(trace)
    shown.run(f"eventprofPage.update({{call: {call_of(trace, order, 'steps')}, tab: 'call'}})")
    shown.settle()
    title = shown.run(
        "[...document.querySelectorAll('#pane-call tr')].find((r) => r.cells[0].innerText === 'waited').title"
    )
    assert "another thread had the interpreter's lock" in title
    shown.run("eventprofPage.update({tab: 'flame'})")
    shown.settle()
    option = "#pane-flame option[value=waited]"
    assert "the interpreter's lock" in shown.run(f"document.querySelector('{option}').innerText")


def test_one_thread_never_waited(browser, tmp_path):
    write(record_no_memory(), tmp_path / "page.html")
    browser.open(tmp_path / "page.html", "#tab=flame&unit=waited")
    assert browser.run(UNITS) == ["self", "calls"]
    assert browser.run("document.querySelector('#pane-flame .bar select').value") == "self"


def test_one_thread_has_no_lane_of_the_lock(browser, tmp_path):
    write(record_no_memory(), tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    assert browser.run("eventprofPage.app.timeline.lock") is None
    assert not browser.run("eventprofPage.data.waiting.shared")
    assert "hatched" not in browser.run("document.querySelector('#legend').innerText")


def record_waits():
    lock, taken = threading.Lock(), threading.Event()

    def owner():
        for _ in range(3):
            with lock:
                taken.set()
                time.sleep(0.03)
            time.sleep(0.003)

    def victim():
        taken.wait()
        while threads[0].is_alive():
            with lock:
                time.sleep(0.001)

    threads = [threading.Thread(target=each, name=each.__name__) for each in (owner, victim)]
    with eventprof.record(memory=False, waits=True) as rec:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return rec.trace


@pytest.mark.skipif(sys.platform != "linux", reason="waits are recorded on Linux")
def test_recorded_waits_are_hatched_by_kind_and_name_their_waker(browser, tmp_path):
    trace = record_waits()
    write(trace, tmp_path / "page.html")
    browser.size(1400, 1600)
    browser.open(tmp_path / "page.html")
    browser.settle()
    kinds = {word: number for number, word in enumerate(eventprof._core.WAIT_WORDS)}
    waits = trace.waits
    names = trace.threads["name"].tolist()
    victim = names.index("victim")
    v0, v1 = view(browser)
    hatched = dict(
        browser.run(
            "(({app: {timeline: t}}) => [...t.hatched].map(([thread, marks]) => [thread, [...marks]]))(eventprofPage)"
        )
    )
    marks = hatched[victim]
    each = (v1 - v0) / len(marks)
    rows = np.flatnonzero((waits["thread"] == victim) & (waits["kind"] == "lock"))
    longest = rows[np.argmax(waits["duration"][rows])]
    start, length = int(waits["start"][longest]), int(waits["duration"][longest])
    columns = range(int((start - v0) / each) + 2, int((start + length - v0) / each) - 2)
    assert len(columns) > 5
    assert {marks[x] for x in columns} == {1 + kinds["lock"]}

    legend = browser.run("document.querySelector('#legend').innerText")
    assert "waits for a lock" in legend
    assert "another thread had" not in legend
    y = next(row["y"] for row in rows_on_screen(browser) if row["thread"] == victim)
    box = browser.box("#timeline")
    x = GUTTER + (start + length / 2 - v0) / (v1 - v0) * browser.run(
        "eventprofPage.app.timeline.span"
    )
    browser.mouse("mouseMoved", box["x"] + x, box["y"] + y)
    browser.wait("!document.querySelector('#tip').hidden")
    text = browser.run("document.querySelector('#tip').innerText")
    assert " for a lock; owner let it go on" in text
    assert "Alt+click" in text
    # Where that thread was at that instant: by a click, and in the list of what was running.
    instant = start + length / 2
    alt = 1
    browser.click(box["x"] + x, box["y"] + y, modifiers=alt)
    found = browser.run(
        "(({data, state: {call}}) => [data.rows[data.rowOf(call)].thread, data.start[call],"
        " data.start[call] + data.dur[call], data.nameOf(data.func[call])])(eventprofPage)"
    )
    assert found[0] == names.index("owner")
    assert found[1] <= instant < found[2]
    assert "sleep" in found[3]
    browser.run(f"eventprofPage.update({{instant: {instant}, tab: 'instant'}})")
    browser.settle()
    lines = browser.run("document.querySelector('#pane-instant').innerText")
    assert re.search(r"for a lock; owner let it go on, then in .*sleep", lines)


@pytest.mark.skipif(sys.platform != "linux", reason="waits are recorded on Linux")
def test_each_call_waited_as_long_as_recorded_waits_say(browser, tmp_path):
    trace = record_waits()
    write(trace, tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    browser.settle()
    found = browser.run(
        "(({data}) => Array.from({length: data.count}, (_, n) => [data.rows[data.rowOf(n)].thread, data.start[n], data.dur[n], data.waitedOf(n)]))(eventprofPage)"
    )
    grain = browser.run("eventprofPage.data.head.grain")
    waits = trace.waits
    begin, end = waits["start"], waits["start"] + waits["duration"]
    for thread, start, length, waited in found:
        wanted, until, many = 0, start, 0
        # Waits for a processor may overlap others, and count once.
        for row in np.flatnonzero((waits["thread"] == thread) & (end > start)).tolist():
            first, last = max(int(begin[row]), until), min(int(end[row]), start + length)
            wanted, until, many = wanted + max(last - first, 0), max(until, last), many + 1
        assert abs(waited - wanted) <= grain * (2 + many)
