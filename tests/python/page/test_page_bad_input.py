"""Odd, huge, lossy and broken recordings on the page."""

from __future__ import annotations

import sys
import threading
import warnings

import numpy as np
import pytest
from page_program import fib, leaf, record_no_memory, rows_on_screen, steps, values

import eventprof
from eventprof.importing._build import Builder
from eventprof.viewer import write


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
    with eventprof.record(buffer="1 MiB", on_full="overwrite") as rec:
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


def record_no_calls():
    with eventprof.record(calls=False) as rec:
        steps([], 30)
    return rec.trace


def record_long():
    """Its last ns is the last whole number that a page can tell apart."""
    built = Builder("nothing", "-", 0)
    thread = built.thread(1, "MainThread")
    outer, inner = (built.function(name, "module", "file.py", 3) for name in ("outer", "inner"))
    thread.begin(0, outer)
    for k in range(1, 200):
        time = k * 2**53 // 200
        thread.begin(time, inner, 5)
        thread.block(time + 1, "MALLOC_OBJ", 64 * k, k, inner, 6)
        if k > 10:
            thread.block(time + 2, "FREE_OBJ", 64 * (k - 10), -1)
        thread.end(time + 2**53 // 500)
    thread.end(2**53)
    return built.trace()


BAD = {
    "odd names": record_odd_names, "deep": record_deep, "threads": record_threads, "loss": record_loss,
    "one event": record_one_event, "nothing": record_nothing, "no memory": record_no_memory,
    "no calls": record_no_calls, "2**53 ns": record_long,
}  # fmt: skip


@pytest.mark.thorough
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
        "eventprofPage.update({range: [0, Math.max(1, eventprofPage.data.duration - 1)], tab: 'functions'})"
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
    assert browser.run("eventprofPage.data.blocks.count") == len(trace.allocations)
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
            browser.run("document.querySelector('#notes').textContent")
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
        "(({data: d}) => [...d.blocks.size.keys()].map((b) => d.callOfEvent(d.blocks.birthOf(b))))(eventprofPage)"
    )
    call = values(trace.allocations, "call")
    assert blocks == np.where(call < 0, -1, place[call]).tolist()
    assert browser.run("eventprofPage.data.start.every((t) => t % 100000 === 0)")
    assert browser.console == []


def test_blocks_have_their_times_however_far_apart_they_are(browser, tmp_path):
    built = Builder("nothing", "-", 0)
    thread = built.thread(1, "MainThread")
    function = built.function("f", "m", "m.py", 1)
    time = 0
    # A pause of more than 2**32 ns within 64 events, between two of these groups, and before a death.
    for k in range(400):
        time += {50: 5 * 10**9, 128: 2**32 - 1, 200: 2**40, 300: 2**33}.get(k, 1 + k % 3)
        thread.block(time, "MALLOC_OBJ", 64 * k, 100 + k, function, 1)
        if k % 3 == 2:
            time += 2**34 if k == 350 else 2
            thread.block(time, "FREE_OBJ", 64 * (k - 1), -1)
    trace = built.trace()
    write(trace, tmp_path / "page.html")
    browser.open(tmp_path / "page.html")

    start, end, size = (values(trace.allocations, name) for name in ("start", "end", "size"))
    times = np.sort(np.r_[start, end[end >= 0]])
    asked = sorted({0, *times.tolist(), *(times + 1).tolist(), *(times // 2).tolist()})
    found = browser.run(
        "(({data: d, bandsAt}) => { const blocks = [...d.blocks.size.keys()], deaths = d.blocks.deathsOf(blocks);"
        " return {start: blocks.map((b) => d.blocks.timeOf(d.blocks.birthOf(b))), end: blocks.map((b) => deaths.has(b) ? d.blocks.timeOf(deaths.get(b)) : -1),"
        f" at: {asked}.map((t) => [d.blocks.eventAt(t), d.blocks.eventAfter(t), bandsAt(t).reduce((a, b) => a + b, 0)]),"
        " far: d.blocks.far.size}; })(eventprofPage)"
    )

    assert found["far"] >= 3
    assert found["start"] == start.tolist()
    assert found["end"] == end.tolist()
    for t, (first, after, live) in zip(asked, found["at"], strict=True):
        assert first == np.searchsorted(times, t)
        assert after == np.searchsorted(times, t, "right")
        assert live == size[(start <= t) & ((end < 0) | (end > t))].sum()
    assert browser.console == []


def test_a_page_that_was_cut_short_says_so(browser, path, tmp_path):
    whole = path.read_text()
    cut = tmp_path / "cut.html"
    cut.write_text(whole[: whole.index('id="data-c0"')])
    browser.go(cut.as_uri())
    browser.wait("document.querySelector('#limits')?.textContent.includes('cut off')")
