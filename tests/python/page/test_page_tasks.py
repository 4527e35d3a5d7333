"""Tasks of asyncio have lanes on the page."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest
from page_program import RULER

import eventprof
from eventprof.viewer import data, page_calls, write


async def part_of(job, count):
    await asyncio.sleep(0)
    return sum(range(200 * count))


async def one_job(job):
    for count in range(1 + job % 5):
        await part_of(job, count)


async def many_jobs(count):
    jobs = [asyncio.create_task(one_job(n), name=f"job {n}") for n in range(count)]
    await asyncio.gather(*jobs)


def steps_of(trace):
    """Of each task its calls that no other call of the task made."""
    calls = trace.calls
    task, parent = list(calls["task"]), calls["parent"].tolist()
    found = defaultdict(list)
    for row, (name, above) in enumerate(zip(task, parent, strict=True)):
        if name is not None and (above < 0 or task[above] != name):
            found[name].append(row)
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("count", [3, 30])
def test_tasks_have_lanes_with_their_steps(browser, tmp_path, count):
    with eventprof.record() as rec:
        asyncio.run(many_jobs(count))
    trace = rec.trace
    write(trace, tmp_path / "page.html")
    expected = steps_of(trace)
    spent = {
        name: sum(int(trace.calls["duration"][row]) for row in rows)
        for name, rows in expected.items()
    }

    browser.open(tmp_path / "page.html")

    lanes = dict(browser.run("eventprofPage.data.head.steps.lanes"))
    own = {name.removeprefix("task "): n for name, n in lanes.items() if name.startswith("task ")}
    assert len(own) == min(len(expected), page_calls.TASKS)
    assert own == {name: len(expected[name]) for name in own}
    assert min(spent[name] for name in own) >= max(
        (spent[name] for name in expected if name not in own), default=0
    )
    rest = [n for name, n in lanes.items() if not name.startswith("task ")]
    assert sum(rest) == sum(len(rows) for name, rows in expected.items() if name not in own)
    steps = browser.run(
        "(({data: {steps}}) => [[...steps.start], [...steps.call], [...steps.dur]])(eventprofPage)"
    )
    named = browser.run(
        "(({data}) => [...data.steps.call].map((c) => [data.start[c], data.dur[c]]))(eventprofPage)"
    )
    assert [list(each) for each in zip(steps[0], steps[2], strict=True)] == named


def test_the_step_of_a_task_is_under_its_pixel(browser, tmp_path):
    with eventprof.record() as rec:
        asyncio.run(many_jobs(3))
    write(rec.trace, tmp_path / "page.html")
    browser.size(1400, 900)
    browser.open(tmp_path / "page.html")
    place = browser.run(
        "(({app: {timeline}, update, flush, data}) => {"
        " const lane = timeline.layout.lanes.findIndex(({name}) => name === 'task job 2');"
        " const {y, steps} = timeline.layout.lanes[lane];"
        " const step = steps[0];"
        " const begin = data.steps.start[step], length = data.steps.dur[step];"
        " update({scroll: y - 40, v0: begin - length, v1: begin + 2 * length}); flush();"
        " const box = document.querySelector('#timeline').getBoundingClientRect();"
        " return [data.steps.call[step], box.x + timeline.xOf(begin + length / 2),"
        f" box.y + y + {RULER} - eventprofPage.state.scroll + 8]; }})(eventprofPage)"
    )

    browser.click(*place[1:])

    assert browser.run("eventprofPage.state.call") == place[0]
    assert "task job 2" in browser.run("document.querySelector('#pane-call').textContent")
    assert browser.console == []


async def gives_and_takes():
    queue = asyncio.Queue()

    async def takes():
        for _ in range(3):
            await queue.get()

    async def gives():
        for _ in range(3):
            await asyncio.sleep(0.001)
            queue.put_nowait(1)

    await asyncio.gather(
        asyncio.create_task(takes(), name="taker"), asyncio.create_task(gives(), name="giver")
    )


def test_a_step_says_who_made_its_task_ready(browser, tmp_path):
    with eventprof.record(memory=False) as rec:
        asyncio.run(gives_and_takes())
    trace = rec.trace
    rows = [row for row in trace.tasks if row.end is not None and row.ready is not None]
    taken = [row for row in rows if row.task_name == "taker" and row.kind == "queue"]
    write(trace, tmp_path / "page.html")

    browser.open(tmp_path / "page.html")

    found = browser.run(
        "(({data}) => [...data.steps.call].map((call) => ["
        " data.start[call], data.readyOf(call), data.causeOf(call, data.start[call])]))"
        "(eventprofPage)"
    )
    known = {start: ready for start, ready, _ in found if ready is not None}
    assert known.keys() == {row.end for row in rows}
    for row in rows:
        ready = known[row.end]
        by = -1 if row.by_thread is None else row.by_thread
        assert (ready["time"], ready["word"], ready["by"]) == (row.ready, row.kind, by)
    assert len(taken) == 3
    for row in taken:
        (cause,) = [call for start, _, call in found if start == row.end]
        name = browser.run(f"(({{data}}) => data.nameOf(data.func[{cause}]))(eventprofPage)")
        begun = browser.run(f"eventprofPage.data.start[{cause}]")
        assert name.endswith(("call_soon", "Handle.__init__", "Future.set_result"))
        assert begun <= row.ready

    # The curve ends where the step begins; what is chosen has the words and a link.
    call, start = browser.run(
        "(({data}) => { const call = [...data.steps.call].find((each) =>"
        " data.readyOf(each) && data.readyOf(each).word === 'queue');"
        " return [call, data.start[call]]; })(eventprofPage)"
    )
    from_, to = browser.run(
        f"(({{app: {{timeline}}, update, flush}}) => {{ update({{call: {call}, tab: 'call'}}); flush();"
        f" return timeline.curveTo({call}); }})(eventprofPage)"
    )
    assert to[0] == browser.run(f"eventprofPage.app.timeline.xOf({start})")
    assert from_[0] <= to[0]
    text = browser.run("document.querySelector('#pane-call').textContent")
    assert "its task awaited: queue; it was ready" in text
    assert browser.console == []


def test_too_many_steps_are_told(browser, tmp_path, monkeypatch):
    monkeypatch.setattr(data, "_MOST_TASK_EVENTS", 20)
    with eventprof.record(memory=False) as rec:
        asyncio.run(gives_and_takes())
    write(rec.trace, tmp_path / "page.html")

    browser.open(tmp_path / "page.html")

    assert browser.run("eventprofPage.data.readies.found.size") == 0
    assert "too many steps" in browser.run("document.body.textContent")
