"""Next to other tools: each works as if alone, in every order of start and stop."""

from __future__ import annotations

import contextlib
import cProfile
import gc
import itertools
import sys
import threading
import tracemalloc

import children
import coverage
import nasty
import pytest
import raw
from amounts import amount

import eventprof
from eventprof import _core

if raw.HAS_MONITORING:
    from sys import monitoring

    @pytest.fixture
    def free_tools():
        """Ids of sys.monitoring taken by a test are free again after it."""
        yield
        for tool in range(6):
            if (monitoring.get_tool(tool) or "").startswith("test "):
                monitoring.set_events(tool, 0)
                monitoring.free_tool_id(tool)
        monitoring.restart_events()


pytestmark = [pytest.mark.version, pytest.mark.usefixtures("restored")]


def one():
    return 1


def two():
    return [one()]


def three():
    yield two()
    yield 3


def four():
    return [x for x in three()]


MARKS = ("one", "two", "three", "four")


class CProfile:
    """cProfile: calls of the marks, a generator's resumes counted."""

    slot = "monitoring" if raw.HAS_MONITORING else "profile"

    def start(self):
        self.profiler = cProfile.Profile()
        self.profiler.enable()

    def stop(self):
        self.profiler.disable()

    def seen(self):
        counts = {
            entry.code.co_name: entry.callcount
            for entry in self.profiler.getstats()
            if not isinstance(entry.code, str) and entry.code.co_filename == __file__
        }
        return {name: counts.get(name, 0) for name in MARKS}


class SetProfile:
    slot = "profile"

    def start(self):
        self.log = []
        sys.setprofile(self.hook)

    def hook(self, frame, event, argument):
        if event == "call" and frame.f_code.co_filename == __file__:
            self.log.append(frame.f_code.co_name)

    def stop(self):
        sys.setprofile(None)

    def seen(self):
        return {name: self.log.count(name) for name in MARKS}


class SetTrace(SetProfile):
    slot = "trace"

    def start(self):
        self.log = []
        sys.settrace(self.hook)

    def hook(self, frame, event, argument):
        super().hook(frame, event, argument)
        return self.hook

    def stop(self):
        sys.settrace(None)


class TraceMalloc:
    """tracemalloc: the traces of what is made between start and stop."""

    slot = "allocators"

    def start(self):
        tracemalloc.start()
        self.lines = {}
        self.kept = bytearray(12347)
        assert tracemalloc.get_object_traceback(self.kept) is not None

    def stop(self):
        kept = bytearray(12347)
        assert tracemalloc.get_object_traceback(kept) is not None
        tracemalloc.stop()

    def seen(self):
        return None


class Coverage:
    slot = "trace"

    def start(self):
        self.coverage = coverage.Coverage(
            data_file=None, include=[__file__], config_file=False, messages=False
        )
        self.coverage.start()

    def stop(self):
        self.coverage.stop()

    def seen(self):
        lines = set(self.coverage.get_data().lines(__file__) or ())
        return {name: globals()[name].__code__.co_firstlineno + 1 in lines for name in MARKS}


class Recorder:
    def __init__(self, backend="auto", kinds=raw.ALL):
        self.recorder = raw.recorder(kinds, backend=backend)
        self.slot = "recorder"

    def start(self):
        self.recorder.start()

    def stop(self):
        self.recorder.stop()

    def seen(self):
        counts = dict.fromkeys(MARKS, 0)
        for row in raw.rows(self.recorder):
            if row.word in ("call", "resume", "throw") and row.file == __file__:
                if row.name in counts:
                    counts[row.name] += 1
        return counts


TOOLS = [CProfile, SetProfile, SetTrace, TraceMalloc, Coverage]
# Nested and overlapping, the recorder first or last.
ORDERS = ["T+ R+ T- R-", "T+ R+ R- T-", "R+ T+ T- R-", "R+ T+ R- T-"]


def play(order, players):
    """Starts and stops as `order` says, and works in between. Returns: what each ought to have seen."""
    alive: set[str] = set()
    expected = {name: dict.fromkeys(MARKS, 0) for name in players}
    for step in order.split():
        name, what = step[:-1], step[-1]
        if what == "+":
            players[name].start()
            alive.add(name)
        else:
            players[name].stop()
            alive.remove(name)
        four()
        four()
        for running in alive:
            for mark, calls in zip(MARKS, (2, 2, 6, 2), strict=True):
                expected[running][mark] += calls
    return expected


def as_seen_by(tool, expected):
    if isinstance(tool, TraceMalloc):
        return None
    if isinstance(tool, Coverage):
        return {name: count > 0 for name, count in expected.items()}
    return expected


@pytest.mark.thorough
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("tool", TOOLS)
def test_each_works_as_if_alone(tool, order, backend, restored):
    tool = tool()
    rec = Recorder(backend)
    if backend == tool.slot == "profile":
        pytest.skip("one slot: below")

    expected = play(order, {"T": tool, "R": rec})

    assert tool.seen() == as_seen_by(tool, expected["T"])
    assert rec.seen() == expected["R"]
    clean_up()
    assert raw.hooks() == restored


def clean_up():
    """A layer that another tool wrapped goes when it comes to the top and somebody looks."""
    with raw.recorder(raw.MEMORY):
        pass


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("tool", [CProfile, SetProfile])
def test_the_profile_slot_belongs_to_whoever_has_it(tool, order, restored):
    tool = tool()
    rec = Recorder("profile")
    if tool.slot != "profile":
        pytest.skip("another slot on this version")

    if order.startswith("T+"):
        tool.start()
        with pytest.raises(_core.ToolInUseError, match="setprofile|profile hook"):
            rec.start()
        four()
        tool.stop()
        assert rec.recorder.state == "new"
        assert tool.seen() == {"one": 1, "two": 1, "three": 3, "four": 1}
    else:
        expected = play(order, {"T": tool, "R": rec})
        assert tool.seen() == expected["T"]
        assert rec.recorder.displaced == ("profile",)
        # Up to where it had to yield.
        assert rec.seen()["four"] == 2
    assert raw.hooks() == restored


@pytest.mark.skipif(not raw.HAS_MONITORING, reason="needs sys.monitoring")
@pytest.mark.parametrize("order", ORDERS)
def test_setprofile_inside_a_monitoring_recorder_and_around(order):
    play(order, {"T": SetProfile(), "R": (rec := Recorder("monitoring"))})

    assert rec.recorder.displaced == ()


def test_setprofile_of_the_program_put_back_by_the_program():
    """old = sys.getprofile(); sys.setprofile(mine); ...; sys.setprofile(old)."""
    rec = raw.recorder(raw.CALLS, backend="profile")
    rec.start()
    one()
    old = sys.getprofile()
    sys.setprofile(lambda *args: None)
    two()
    sys.setprofile(old)
    four()
    # What came meanwhile is missing.
    assert rec.displaced == ("profile",)
    rec.stop()
    assert rec.displaced == ("profile",)
    calls = [row.name for row in raw.rows(rec) if row.word == "call" and row.name in MARKS]
    with rec:
        pass
    assert rec.displaced == ()

    assert calls == ["one", "four", "three", "two", "one"]
    assert "eventprof" in repr(old)


def test_our_hook_put_in_after_we_are_gone_takes_itself_out():
    rec = raw.recorder(raw.CALLS, backend="profile")
    with rec:
        old = sys.getprofile()

    sys.setprofile(old)
    one()

    assert sys.getprofile() is None


def test_a_thread_with_a_profiler_of_its_own_is_left_alone(backend):
    log = []
    ready, go = threading.Event(), threading.Event()

    def work():
        sys.setprofile(lambda frame, event, argument: log.append((event, frame.f_code.co_name)))
        ready.set()
        go.wait()
        one()
        sys.setprofile(None)

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    rec = raw.recorder(raw.CALLS, backend=backend)
    with rec:
        go.set()
        thread.join()

    assert ("call", "one") in log
    if backend == "profile":
        assert rec.displaced == ("profile",)
    else:
        assert rec.displaced == ()
        assert "one" in [row.name for row in raw.rows(rec)]


def test_threads_that_the_program_profiles_are_missing_and_said_to_be():
    """Also when they have ended before anybody looks."""
    log = []
    rec = raw.recorder(raw.CALLS, backend="profile")
    with rec:
        thread = threading.Thread(target=one)
        thread.start()
        thread.join()
        assert rec.displaced == ()
        threading.setprofile(lambda frame, event, argument: log.append(frame.f_code.co_name))
        thread = threading.Thread(target=two)
        thread.start()
        thread.join()
        threading.setprofile(None)
        assert rec.displaced == ("profile",)

    assert rec.displaced == ("profile",)
    assert "two" in log
    assert [row.name for row in raw.rows(rec) if row.name in MARKS] == ["one", "one"]


# ---- Several recorders ------------------------------------------------------------------------------------


THREE = [
    order
    for order in itertools.permutations(["A+", "B+", "C+", "A-", "B-", "C-"])
    if all(order.index(f"{n}+") < order.index(f"{n}-") for n in "ABC")
    and order.index("A+") < order.index("B+") < order.index("C+")
]


@pytest.mark.parametrize("order", THREE, ids=" ".join)
def test_three_recorders_in_every_order(order, backend, restored):
    players = {
        "A": Recorder(backend, raw.CALLS),
        "B": Recorder(backend, raw.ALL),
        "C": Recorder(backend, raw.MEMORY | raw.PYTHON),
    }

    expected = play(" ".join(order), players)

    assert {name: player.seen() for name, player in players.items()} == expected
    assert raw.hooks() == restored


def test_each_recorder_yields_its_own_kinds(backend):
    python = raw.recorder(raw.PYTHON, backend=backend)
    c = raw.recorder(raw.C, backend=backend)
    memory = raw.recorder(raw.MEMORY, backend=backend)
    calls_only = raw.recorder(raw.bits("CALL"), backend=backend)
    with python, c, memory, calls_only:
        nasty.operators()
        with contextlib.suppress(ValueError):
            "text".index("?")

    def kinds(rec):
        return {raw.KIND[raw.IDENTIFIER[k]] for k in raw.capture(rec).events("kind").tolist()}

    assert kinds(python) <= {1, 2, 3, 4, 5, 6}
    assert kinds(c) == {7, 8, 9}
    assert min(kinds(memory)) >= 10
    assert kinds(calls_only) == {1}


def test_another_backend_while_one_runs_is_refused():
    if not raw.HAS_MONITORING:
        pytest.skip("one backend")
    with raw.recorder(backend="profile"):
        with pytest.raises(_core.StateError, match="backend='profile'"):
            raw.recorder(backend="monitoring").start()
        with raw.recorder(backend="auto") as rec:
            one()
        with raw.recorder(raw.MEMORY, backend="monitoring"):
            pass
    assert "one" in {row.name for row in raw.rows(rec)}


def test_many_recorders_at_once(backend, restored):
    recorders = [raw.recorder(raw.ALL, backend=backend) for _ in range(50)]
    for rec in recorders:
        rec.start()
        one()
    for rec in recorders:
        rec.stop()

    counts = [
        sum(row.word == "call" and row.name == "one" for row in raw.rows(rec)) for rec in recorders
    ]
    assert counts == list(range(50, 0, -1))
    assert raw.hooks() == restored


# ---- sys.monitoring -------------------------------------------------------------------------------------------


needs_monitoring = pytest.mark.skipif(not raw.HAS_MONITORING, reason="needs sys.monitoring")


@needs_monitoring
def test_all_tool_ids_taken_names_the_holders(free_tools):
    for tool in range(6):
        if monitoring.get_tool(tool) is None:
            monitoring.use_tool_id(tool, f"test {tool}")
    before = raw.hooks()

    with pytest.raises(_core.ToolInUseError, match="3: test 3") as info:
        raw.recorder(raw.ALL, backend="monitoring").start()

    assert isinstance(info.value, RuntimeError)
    assert all(f"test {tool}" in str(info.value) for tool in range(6))
    assert raw.hooks() == before
    with raw.recorder(raw.ALL, backend="profile") as rec:
        one()
    assert "one" in {row.name for row in raw.rows(rec)}

    with pytest.raises(_core.ToolInUseError, match="3: test 3") as info:
        eventprof.count().start()
    assert all(f"test {tool}" in str(info.value) for tool in range(6))
    assert raw.hooks() == before


@needs_monitoring
@pytest.mark.parametrize("free", range(6))
def test_the_one_free_tool_id_is_used_and_freed(free, free_tools):
    for tool in range(6):
        if tool != free:
            monitoring.use_tool_id(tool, f"test {tool}")

    with raw.recorder(raw.ALL, backend="monitoring") as rec:
        assert monitoring.get_tool(free) == "eventprof"
        one()

    assert monitoring.get_tool(free) is None
    assert "one" in {row.name for row in raw.rows(rec)}


@needs_monitoring
def test_the_ids_that_the_standard_tools_ask_for_stay_free():
    with raw.recorder(raw.ALL, backend="monitoring"):
        for tool in (
            monitoring.DEBUGGER_ID,
            monitoring.COVERAGE_ID,
            monitoring.PROFILER_ID,
            monitoring.OPTIMIZER_ID,
        ):
            assert monitoring.get_tool(tool) is None


@needs_monitoring
def test_an_id_that_we_could_not_free_is_used_again_and_freed(free_tools):
    """There was no memory to call free_tool_id."""
    with raw.recorder(raw.CALLS, backend="monitoring"):
        (name,) = (held for held in map(monitoring.get_tool, range(6)) if held == "eventprof")
    monitoring.use_tool_id(3, name)
    for tool in range(6):
        if tool != 3:
            monitoring.use_tool_id(tool, f"test {tool}")

    with raw.recorder(raw.CALLS, backend="monitoring") as rec:
        one()

    assert "one" in {row.name for row in raw.rows(rec)}
    assert monitoring.get_tool(3) is None


@needs_monitoring
def test_disable_of_another_tool_is_its_own(free_tools):
    monitoring.use_tool_id(5, "test 5")
    events = monitoring.events
    for event in (events.PY_START, events.PY_RETURN, events.CALL, events.LINE):
        monitoring.register_callback(5, event, lambda *args: monitoring.DISABLE)
    monitoring.set_events(5, events.PY_START | events.PY_RETURN | events.CALL | events.LINE)
    rec = raw.recorder(raw.CALLS, backend="monitoring")

    with rec:
        for _ in range(3):
            four()
        monitoring.restart_events()
        four()

    calls = [row.name for row in raw.rows(rec) if row.word == "call" and row.name in MARKS]
    assert calls == ["four", "three", "two", "one"] * 4


@needs_monitoring
def test_a_tool_that_raises_in_its_callback(free_tools):
    monitoring.use_tool_id(5, "test 5")

    def fails(code, *args):
        if code.co_name == "one":
            raise KeyError("of the other tool")

    monitoring.register_callback(5, monitoring.events.PY_START, fails)
    monitoring.set_events(5, monitoring.events.PY_START)

    rec = raw.recorder(raw.CALLS, backend="monitoring")
    with rec, pytest.raises(KeyError):
        four()

    names = [(row.word, row.name) for row in raw.rows(rec) if row.name in MARKS]
    assert names[-3:] == [("unwind", "two"), ("unwind", "three"), ("unwind", "four")]


@needs_monitoring
def test_our_tool_id_taken_away_is_displaced(free_tools):
    rec = raw.recorder(raw.CALLS, backend="monitoring")
    rec.start()
    (ours,) = [tool for tool in range(6) if monitoring.get_tool(tool) == "eventprof"]
    one()
    monitoring.set_events(ours, 0)
    for name in (
        "PY_START",
        "PY_RESUME",
        "PY_RETURN",
        "PY_YIELD",
        "CALL",
        "PY_THROW",
        "PY_UNWIND",
        "C_RETURN",
        "C_RAISE",
    ):
        monitoring.register_callback(ours, getattr(monitoring.events, name), None)
    monitoring.free_tool_id(ours)
    monitoring.use_tool_id(ours, "test thief")
    two()

    assert rec.displaced == ("monitoring",)
    rec.stop()
    assert monitoring.get_tool(ours) == "test thief"
    assert rec.displaced == ("monitoring",)
    assert [row.name for row in raw.rows(rec) if row.word == "call" and row.name in MARKS] == [
        "one"
    ]


# ---- tracemalloc, allocators --------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_any_sequence_of_tracemalloc_and_recorder(restored):
    for order in itertools.product(["R+", "R-", "T+", "T-"], repeat=amount(4, 5)):
        if "R+" in order and "T+" in order:
            trace_and_record(order)
            assert raw.hooks() == restored, order


def trace_and_record(order):
    rec = raw.recorder(raw.MEMORY)
    tracing = False
    for step in order:
        if step == "R+" and rec.state != "running":
            rec.start()
        elif step == "R-" and rec.state == "running":
            rec.stop()
        elif step == "T+":
            tracemalloc.start()
            tracing = True
        elif step == "T-":
            tracemalloc.stop()
            tracing = False
        kept = [bytearray(54321) for _ in range(3)]
        assert (tracemalloc.get_object_traceback(kept[0]) is not None) == tracing, order
        if rec.state == "running":
            sizes = raw.capture(rec).events("size").tolist()
            # Under a tool that came later we are asked all the same.
            assert sizes.count(54321 + raw.BYTEARRAY_MORE) >= 3, order
        del kept
        gc.collect(0)
    if rec.state == "running":
        rec.stop()
    tracemalloc.stop()
    clean_up()


def test_rounds_with_tracemalloc_leave_no_layers_behind(restored):
    for _ in range(20):
        rec = raw.recorder(raw.MEMORY)
        rec.start()
        tracemalloc.start()
        rec.stop()
        tracemalloc.stop()
    clean_up()

    assert raw.hooks() == restored


def test_displaced_says_alloc_while_another_tool_sits_on_our_hook():
    rec = raw.recorder(raw.MEMORY)
    rec.start()
    assert rec.displaced == ()
    tracemalloc.start()
    assert rec.displaced == ("alloc",)
    tracemalloc.stop()
    assert rec.displaced == ()
    rec.stop()

    assert rec.displaced == ()


# ---- Line tools ------------------------------------------------------------------------------------------------------


def without_waits_for_starts(events):
    """Leave out how a thread waits until the one that it starts runs, which it may do already."""
    waits = False
    for word, name, caller, line in events:
        waits = waits or (word, name, caller) == ("call", "Event.wait", "Thread.start")
        if not waits:
            yield word, name, caller, line
        waits = waits and (word, name) != ("return", "Event.wait")


@pytest.mark.thorough
@pytest.mark.parametrize("tool", [Coverage, SetTrace])
def test_nasty_program_under_a_line_tool(tool, backend):
    """Line events put stand-ins into the bytecode that we read."""
    nasty.run()
    gc.collect()
    gc.disable()
    plain = raw.record(nasty.run, backend=backend, current_thread=True)
    tool = tool()
    tool.start()
    traced = raw.record(nasty.run, backend=backend, current_thread=True)
    tool.stop()
    gc.enable()

    def of_run(events):
        events = [
            (row.word, row.name, row.caller, row.caller_line)
            for row in events
            if row.sort == "python"
            # When a thread's object dies differs without the GIL.
            and (raw.HAS_GIL or "_remove" not in row.name)
        ]
        # From nasty's first part on; how run() is called differs.
        names = [event[1] for event in events]
        return list(without_waits_for_starts(events[names.index("operators") :]))

    ours, theirs = of_run(plain), of_run(traced)
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert a == b, (i, ours[i - 3 : i + 3], theirs[i - 3 : i + 3])


# ---- C stacks that come and go ------------------------------------------------------------------------------------------


GREENLETS = """
import sys
if {before}:
    import greenlet
import raw
rec = raw.recorder(raw.MEMORY)
rec.start()
import greenlet

def deep(levels, function):
    return list(map(lambda _: deep(levels - 1, function), "x")) if levels else function()

def body(number):
    for i in range(20):
        deep(number + i % 5, main.switch)

main = greenlet.getcurrent()
greenlets = [greenlet.greenlet(lambda number=number: body(number)) for number in range(10)]
for turn in range(15):
    for i, each in enumerate(greenlets):
        deep((turn * 7 + i) % 11, each.switch)
rec.stop()
assert {{"malloc", "free"}} <= {{row.word for row in raw.rows(rec)}}
print("through")
"""


# A build without a GIL crashes at the next collection when so many greenlets were left, also without a recorder
# (greenlet 3.5.6 on 3.13.15t).
@pytest.mark.skipif(not raw.HAS_GIL, reason="greenlet crashes by itself on a build without a GIL")
@pytest.mark.parametrize("before", [True, False])
def test_a_free_while_greenlets_change_the_stack(before):
    """It comes when the thread's state leads to a frame by way of the stack that has just been overwritten."""
    pytest.importorskip("greenlet")
    process = children.program(GREENLETS.format(before=before))
    assert process.stdout == "through\n"
