"""Small pictures of a trace: what a notebook shows, and what matplotlib draws; compared with the tables."""

from __future__ import annotations

import re
import sys
import threading
from xml.etree import ElementTree

import numpy as np
import pytest

import eventprof
from eventprof.viewer import picture

SVG = "{http://www.w3.org/2000/svg}"


def leaf(count):
    return [bytes(100 + n) for n in range(count)]


def work(count):
    return [leaf(n % 9) for n in range(count)]


@pytest.fixture(scope="module")
def trace():
    with eventprof.record() as rec:
        thread = threading.Thread(target=work, args=(60,), name="<b>worker & co")
        thread.start()
        work(200)
        thread.join()
    return rec.trace


def values(table, name):
    return table._column(name).values()


def test_the_small_picture_has_every_call_that_can_be_seen(trace):
    columns = 300
    drawn = picture.slices(trace, columns)
    calls = trace.calls
    start, duration = values(calls, "start"), values(calls, "duration")
    known = {
        (t, d, s, length, name)
        for t, d, s, length, name in zip(
            values(calls, "thread").tolist(), values(calls, "depth").tolist(), start.tolist(),
            duration.tolist(), calls["name"], strict=True,
        )
    }  # fmt: skip
    assert {each[:5] for each in drawn} <= known
    thread, depth = values(calls, "thread"), values(calls, "depth")
    whole = (start == 0) & (duration == trace.duration)
    around = np.array([np.count_nonzero(whole & (thread == each)) for each in thread])
    assert around.max() > 5  # pytest's calls are open
    wide = (duration >= trace.duration / columns) & (depth >= around) & (depth < around + 5)
    main = thread == thread[whole.argmax()]
    assert "work" in {calls["name"][row] for row in np.flatnonzero(wide & main)}
    seen = {(each.thread, each.depth, each.start) for each in drawn}
    rows = np.flatnonzero(wide)
    assert len(rows) > 3
    for row in rows:
        assert (values(calls, "thread")[row], values(calls, "depth")[row], start[row]) in seen


def test_a_notebook_shows_facts_and_the_timeline(trace):
    made = trace._repr_html_()
    assert f"{len(trace.events):,} events of 2 threads" in made
    assert "nothing lost" in made
    root = ElementTree.fromstring(made[made.index("<svg") :])
    titles = [each.text for each in root.iter(f"{SVG}title")]
    assert len(titles) == len(picture.slices(trace, 790))
    assert any(title.startswith("work: ") for title in titles)
    texts = [each.text for each in root.iter(f"{SVG}text")]
    assert "<b>worker & co" in texts
    names = {*trace.functions["name"], *trace.threads["name"]}
    cut = [text for text in texts if text.endswith("\u2026")]
    assert all(any(str(name).startswith(text[:-1]) for name in names) for text in cut)
    assert "<b>" not in made
    assert root.get("fill") == "currentColor" and root.find(f"{SVG}rect").get("width") != "900"
    assert not re.search(r"(href|src)=|url\(|<script", made)
    heights = [float(y) for y in re.findall(r"L\d+ ([\d.]+)", made)]
    most = values(trace.memory_bins(790), "max")
    assert heights[most.argmax()] == min(heights)  # two bins may round to one height


@pytest.mark.parametrize(
    "options", [{"calls": False}, {"memory": False}, {"calls": False, "memory": False}]
)
def test_a_notebook_shows_what_there_is(options):
    with eventprof.record(gc=False, **options) as rec:
        work(5)
        eventprof.mark("here")
    made = rec.trace._repr_html_()
    ElementTree.fromstring(made[made.index("<svg") :])
    assert ("live memory" in made) == options.get("memory", True)


def test_without_matplotlib_an_error_names_the_extra(trace, monkeypatch):
    for name in ("matplotlib", "matplotlib.figure", "matplotlib.ticker"):
        monkeypatch.setitem(sys.modules, name, None)
    for plot in (trace.plot, trace.memory.plot):
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'eventprof\[plot\]'"):
            plot()


@pytest.mark.thorough
def test_memory_is_plotted(trace, tmp_path):
    pytest.importorskip("matplotlib")
    axes = trace.memory.plot()
    (line,) = axes.lines
    time, live = line.get_data()
    known = dict(
        zip(
            values(trace.memory, "time").tolist(),
            values(trace.memory, "live").tolist(),
            strict=True,
        )
    )
    assert max(live) == trace.peak().bytes
    assert list(time) == sorted(time)
    assert live[-1] == list(known.values())[-1]
    axes.figure.savefig(tmp_path / "memory.svg")
    assert "<svg" in (tmp_path / "memory.svg").read_text()
    again = trace.memory_of("obj").plot(axes)
    assert again is axes
    assert len(axes.lines) == 2


def test_the_most_of_many_changes_is_plotted():
    pytest.importorskip("matplotlib")
    from eventprof.trace.memory_table import MemoryTable

    random = np.random.default_rng(5)
    time = np.cumsum(random.integers(0, 9, 50_000))
    live = random.integers(0, 1000, 50_000)
    live[31_117] = 5000
    table = MemoryTable.from_columns("memory", {"time": time, "live": live})
    drawn_time, drawn = table.plot().lines[0].get_data()
    assert len(drawn) <= 3000
    assert max(drawn) == 5000
    assert drawn[-1] == live[-1]
    assert (np.diff(drawn_time) >= 0).all()


def test_the_timeline_is_plotted(trace, tmp_path):
    pytest.importorskip("matplotlib")
    axes = trace.plot()
    drawn = picture.slices(trace, 1500)
    bars = sum(len(each.get_paths()) for each in axes.collections)
    assert bars == len(drawn)
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "MainThread",
        "<b>worker & co",
    ]
    axes.figure.savefig(tmp_path / "timeline.png")
    assert (tmp_path / "timeline.png").stat().st_size > 5000
