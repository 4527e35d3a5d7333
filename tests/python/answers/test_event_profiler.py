"""event_profiler.py: the drop-in keeps the interface of cpyquickhelper's classes."""

from __future__ import annotations

import doctest
import gc
import sys
import threading
import time
import weakref
from pathlib import Path

import children
import numpy as np
import pytest
import raw

import eventprof
from eventprof import EventProfiler, EventProfilerDebug, WithEventProfiler
from eventprof.plugins import event_profiler

pd = pytest.importorskip("pandas")

COLUMNS = ["time", "value1", "value2", "event", "name", "mod", "lineno", "from_name", "from_mod",
           "from_line"]  # fmt: skip
IMPLEMENTATIONS = ["c", "python", "pybind11"]
MARKS = {"profiler_start", "profiler_sort"}


def leaf(seconds):
    time.sleep(seconds)


def middle():
    leaf(0.001)
    return [0 for _ in range(100)]


def top():
    leaf(0.002)
    return middle()


def numbers():
    yield 1
    yield 2


def fail():
    raise ValueError("expected")


def line_of(function, text):
    """Number of the line of a function here that holds a text."""
    code = function.__code__
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(n for n in range(code.co_firstlineno, len(lines) + 1) if text in lines[n - 1])


def recorded(function, *args, **options):
    prof = EventProfiler(**options)
    prof.start()
    try:
        function(*args)
    finally:
        prof.stop()
    return prof


def calls_of(frame, name):
    return frame[(frame.name == name) & frame.event.isin(["call", "c_call"])]


# ---- Interface -----------------------------------------------------------------------------------


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_raw_rows_and_dataframe_have_the_original_shape(impl):
    prof = recorded(top, impl=impl)

    raw = prof.retrieve_raw_results()
    frame = prof.retrieve_results(False)

    assert raw.dtype == np.int64
    assert raw.shape == (len(frame), prof.n_columns) == (len(frame), 6)
    assert list(frame.columns) == COLUMNS
    assert all(frame[c].dtype == np.int64 for c in COLUMNS if c in
               {"time", "value1", "value2", "lineno", "from_line"})  # fmt: skip
    assert {"leaf", "middle", "top", "sleep"} <= set(frame.name)
    assert {"time", __file__} <= set(frame["mod"])


def test_default_arguments_are_those_of_the_design():
    prof = EventProfiler()
    block = WithEventProfiler()

    assert (prof._size, prof._impl) == (1000000, "c")
    assert (block.size, block.impl, block.clean_file_name, block.report) == (
        1000000,
        "c",
        None,
        None,
    )


def test_event_codes_are_the_original_ones():
    assert EventProfiler._event_mapping == {
        "call": 1, "return": 2, "c_call": 3, "c_return": 4, "exception": 5, "c_exception": 6,
        "profiler_call": 10, "profiler_return": 11, "profiler_start": 100, "profiler_sort": 101,
        "malloc": 1000, "calloc": 1001, "realloc": 1002, "free": 1003, "realloc_free": 1004,
    }  # fmt: skip


def test_the_examples_in_the_docstrings_are_right():
    failed, attempted = doctest.testmod(event_profiler)

    assert failed == 0
    assert attempted > 15


def test_raw_rows_and_dataframe_agree():
    prof = recorded(top)

    raw, frame = prof.retrieve_raw_results(), prof.retrieve_results()

    codes = frame.event.astype(str).map(EventProfiler._event_mapping)
    assert raw[:, 2].tolist() == codes.tolist()
    assert raw[:, 3:].tolist() == frame[["time", "value1", "value2"]].to_numpy().tolist()


@pytest.mark.parametrize("kind", [EventProfiler, EventProfilerDebug])
def test_starting_twice_and_stopping_what_does_not_run_raise(kind):
    prof = kind()

    for error in (RuntimeError, eventprof.StateError):
        with pytest.raises(error, match="not running"):
            prof.stop()
    prof.start()
    with pytest.raises(RuntimeError, match="already running"):
        prof.start()
    prof.stop()
    with pytest.raises(RuntimeError, match="not running"):
        prof.stop()


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"size": 0}, ValueError, "size must be at least 1"),
        ({"size": -3}, ValueError, "size must be at least 1"),
        ({"size": 1.5}, TypeError, "size must be an int, not float"),
        ({"size": "big"}, TypeError, "size must be an int, not str"),
        ({"size": 10**15}, MemoryError, "size=1000000000000000 needs"),
        ({"impl": "rust"}, ValueError, "impl must be one of .*'c'.*'rust'"),
        ({"impl": None}, ValueError, "impl must be one of"),
    ],
)
@pytest.mark.parametrize("kind", [EventProfiler, EventProfilerDebug, WithEventProfiler])
def test_a_bad_argument_is_named(kind, options, error, match):
    with pytest.raises(error, match=match):
        kind(**options)


def test_a_clean_file_name_that_cannot_be_called_is_refused():
    with pytest.raises(TypeError, match="clean_file_name must be callable"):
        WithEventProfiler(clean_file_name="short")
    with pytest.raises(TypeError, match="clean_file_name must be callable"):
        recorded(top).retrieve_results(clean_file_name=3)
    with pytest.raises(TypeError, match="clean_file_name must return a str, not int"):
        recorded(top).retrieve_results(clean_file_name=len)


# ---- What is in a row ----------------------------------------------------------------------------


def test_a_call_names_its_caller_and_the_line_of_the_call():
    frame = recorded(top).retrieve_results()

    inner, outer = (
        calls_of(frame, "leaf").to_dict("records")[1],
        calls_of(frame, "leaf").to_dict("records")[0],
    )
    assert (outer["from_name"], outer["from_line"]) == ("top", line_of(top, "leaf(0.002)"))
    assert (inner["from_name"], inner["from_line"]) == ("middle", line_of(middle, "leaf(0.001)"))
    assert inner["lineno"] == leaf.__code__.co_firstlineno
    assert inner["mod"] == inner["from_mod"] == __file__


def test_a_c_call_names_the_line_that_calls_it():
    frame = recorded(top).retrieve_results()

    row = calls_of(frame, "sleep").iloc[0]
    assert (row["mod"], row["from_name"]) == ("time", "leaf")
    assert row["from_line"] == line_of(leaf, "time.sleep")
    assert row["lineno"] == leaf.__code__.co_firstlineno


def test_a_return_repeats_what_its_call_said():
    frame = recorded(top).retrieve_results()

    call = calls_of(frame, "middle").iloc[0]
    back = frame[(frame.name == "middle") & (frame.event == "return")].iloc[0]
    assert call[COLUMNS[4:]].tolist() == back[COLUMNS[4:]].tolist()
    assert back["time"] > call["time"]


def test_a_c_return_is_named_after_the_function():
    frame = recorded(top).retrieve_results()

    assert frame[
        (frame.event == "c_return") & (frame.from_name == "leaf")
    ].name.unique().tolist() == ["sleep"]


def test_resumptions_are_calls_and_yields_are_returns():
    frame = recorded(lambda: list(numbers())).retrieve_results()

    events = frame[frame.name == "numbers"].event.astype(str).tolist()
    assert [e for e in events if e in {"call", "return"}] == ["call", "return"] * 3


def test_an_exception_ends_a_call_with_a_return():
    def catch():
        try:
            fail()
        except ValueError:
            int("0")

    frame = recorded(catch).retrieve_results()

    events = frame[frame.name == "fail"].event.astype(str).tolist()
    assert [e for e in events if e in {"call", "return"}] == ["call", "return"]


def test_a_caller_outside_of_python_is_empty():
    prof = EventProfiler()
    prof.start()
    thread = threading.Thread(target=leaf, args=(0.001,))
    thread.start()
    thread.join()
    prof.stop()

    frame = prof.retrieve_results()

    row = calls_of(frame, "_bootstrap").iloc[0]
    assert (row["from_name"], row["from_mod"], row["from_line"]) == ("", "", -1)


def test_threads_and_functions_can_be_read_from_the_ids():
    prof = EventProfiler()
    prof.start()
    thread = threading.Thread(target=leaf, args=(0.001,))
    thread.start()
    leaf(0.001)
    thread.join()
    prof.stop()

    raw, frame = prof.retrieve_raw_results(), prof.retrieve_results()

    python = frame.index[(frame.name == "leaf") & frame.event.isin(["call", "return"])]
    assert set(raw[python, 0] >> 32) == {threading.get_native_id(), thread.native_id}
    assert len(set(raw[python, 0] & 0xFFFFFFFF)) == 1
    assert set(raw[python, 1]) == {0}
    sleeps = frame.index[frame.name == "sleep"]
    assert len(set(raw[sleeps, 1])) == 1
    assert raw[sleeps[0], 1] > 0
    assert raw[frame.event.isin(MARKS), :2].tolist() == [[-1, -1]] * 2


def test_rows_are_in_order_of_wall_clock_time():
    before = time.time_ns()
    prof = recorded(top)
    after = time.time_ns()

    times = prof.retrieve_raw_results()[:, 3]

    assert (np.diff(times) >= 0).all()
    assert before - 10**7 < times[0] <= times[-1] < after + 10**7


def test_clean_file_name_is_asked_once_for_each_file():
    asked = []

    def clean(name):
        asked.append(name)
        return name.replace("\\", "/").rpartition("/")[2]

    frame = recorded(top).retrieve_results(clean_file_name=clean)

    assert sorted(asked) == sorted(set(asked))
    assert calls_of(frame, "middle").iloc[0]["mod"] == "test_event_profiler.py"
    assert calls_of(frame, "sleep").iloc[0]["mod"] == "time"


def test_surrogates_in_names_are_escaped():
    scope = {}
    exec(compile("def odd():\n    return 1\n", "bad\udcff.py", "exec"), scope)

    frame = recorded(scope["odd"]).retrieve_results()

    assert calls_of(frame, "odd").iloc[0]["mod"] == "bad\\udcff.py"


def test_name_and_from_name_can_be_compared():
    def recurse(n):
        return n and recurse(n - 1)

    frame = recorded(recurse, 3).retrieve_results()

    inner = frame[(frame.event == "call") & (frame.name == frame.from_name)]
    assert inner.name.tolist() == ["recurse"] * 3


# ---- Memory --------------------------------------------------------------------------------------


def test_value2_of_a_free_is_minus_the_size_of_its_block():
    def blocks():
        for _ in range(3):
            bytearray(12347)

    prof = recorded(blocks)

    frame = prof.retrieve_results()
    made = frame[
        (frame.name == "blocks") & frame.event.isin(["malloc", "calloc"]) & (frame.value2 >= 12347)
    ]
    freed = frame[(frame.event == "free") & (frame.value2 <= -12347)]
    assert len(made) == len(freed) == 3
    assert made.value1.tolist() == freed.value1.tolist()
    assert (made.value2.to_numpy() == -freed.value2.to_numpy()).all()
    assert set(made.from_line) == {line_of(blocks, "bytearray(")}


def test_a_block_that_was_not_seen_is_freed_with_size_0():
    kept = [bytearray(54321)]
    address = recorded(bytearray, 1) and None
    prof = recorded(kept.clear)

    frame = prof.retrieve_results()

    del address
    assert -54321 - raw.BYTEARRAY_MORE not in set(frame.value2)
    assert ((frame.event == "free") & (frame.value2 == 0)).any()


def test_a_realloc_is_the_end_of_one_block_and_the_start_of_another():
    def grow():
        data = bytearray(5001)
        data.extend(bytes(70001))

    frame = recorded(grow).retrieve_results()

    rows = frame.index[(frame.event == "realloc") & (frame.value2 > 70001)]
    assert len(rows) == 1
    assert frame.event[rows[0] - 1] == "realloc_free"
    assert frame.value2[rows[0] - 1] in {-5001, -5001 - raw.BYTEARRAY_MORE}


def test_value2_adds_up_to_what_lives():
    kept = []

    prof = recorded(lambda: kept.extend(bytes(1001) for _ in range(50)))

    raw = prof.retrieve_raw_results()
    alive = {}
    for _, _, event, _, address, size in raw.tolist():
        if event in (1000, 1001, 1002):
            alive[address] = size
        elif event in (1003, 1004):
            alive.pop(address, None)
    memory = raw[:, 2] >= 1000
    assert raw[memory, 5].sum() == sum(alive.values())
    assert sum(size >= 1001 for size in alive.values()) == 50


# ---- The ring and the result ---------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 20, 30])
def test_a_small_ring_loses_nothing(size):
    def many():
        for _ in range(20000):
            leaf.__code__.co_name.upper()

    prof = recorded(many, size=size)

    frame = prof.retrieve_results()
    assert len(calls_of(frame, "str.upper")) == 20000


def test_windows_add_up_in_one_result():
    prof = EventProfiler()
    for _ in range(3):
        prof.start()
        middle()
        prof.stop()

    frame = prof.retrieve_results()

    assert len(calls_of(frame, "middle")) == 3
    marks = frame[frame.event.isin(MARKS)].event.astype(str).tolist()
    assert marks == ["profiler_start", "profiler_sort"] * 3
    assert frame.time.is_monotonic_increasing


def test_empty_cache_decides_whether_a_running_window_is_copied():
    prof = EventProfiler()
    prof.start()
    middle()
    nothing = len(prof.retrieve_raw_results(empty_cache=False))
    first = len(prof.retrieve_raw_results())
    middle()
    same = len(prof.retrieve_raw_results(empty_cache=False))
    second = len(prof.retrieve_raw_results())
    prof.stop()
    last = len(prof.retrieve_raw_results(empty_cache=False))

    assert nothing == 0
    assert 0 < first == same < second < last
    assert last == len(prof.retrieve_results(False))


def test_an_unused_profiler_gives_empty_results():
    prof = EventProfiler()

    assert prof.retrieve_raw_results().shape == (0, 6)
    assert prof.retrieve_results().shape == (0, 10)
    assert list(prof.retrieve_results().columns) == COLUMNS


def test_two_profilers_overlap():
    first, second = EventProfiler(), EventProfiler()
    first.start()
    leaf(0)
    second.start()
    middle()
    first.stop()
    top()
    second.stop()

    one, two = first.retrieve_results(), second.retrieve_results()

    assert len(calls_of(one, "middle")) == 1
    assert len(calls_of(two, "middle")) == 2
    assert len(calls_of(one, "top")) == 0
    assert len(calls_of(two, "top")) == 1


def test_the_profiler_itself_is_not_in_the_rows():
    frame = recorded(leaf, 0).retrieve_results()

    package = str(Path(eventprof.__file__).parent)
    files = set(frame["mod"].dropna()) | set(frame["from_mod"])
    assert not [f for f in files if f.startswith(package)]
    assert set(frame[frame.event.isin(["call", "c_call"])].name) == {"leaf", "sleep"}


def test_the_interpreter_is_as_before():
    before = sys.getprofile(), sys.gettrace(), threading.getprofile()

    recorded(top)

    assert (sys.getprofile(), sys.gettrace(), threading.getprofile()) == before
    if sys.version_info >= (3, 12):
        assert [sys.monitoring.get_tool(i) for i in range(6)] == [None] * 6


def test_no_argument_is_kept_alive():
    class Thing:
        def method(self):
            return self

    thing = Thing()
    gone = weakref.ref(thing)
    prof = recorded(thing.method)
    prof.log_event(sys._getframe(), "c_call", thing.__str__)

    del thing
    gc.collect()

    assert gone() is None
    assert "Thing.method".rpartition(".")[2] in set(prof.retrieve_results().name)


# ---- Events that one logs oneself ----------------------------------------------------------------


def test_logged_events_are_merged_by_time():
    prof = EventProfiler()

    def work():
        leaf(0.001)
        prof.log_event(sys._getframe(), "profiler_call", None)
        leaf(0.001)

    prof.start()
    work()
    prof.stop()
    frame = prof.retrieve_results()

    events = frame[(frame.name == "leaf") | (frame.event == "profiler_call")].event.astype(str)
    wanted = [e for e in events if e in {"call", "profiler_call"}]
    assert wanted == ["call", "profiler_call", "call"]
    assert frame.time.is_monotonic_increasing
    row = frame[frame.event == "profiler_call"].iloc[0]
    assert (row["name"], row["from_line"]) == ("work", line_of(work, '"profiler_call"'))
    assert (row["value1"], row["value2"]) == (0, 0)


def test_log_event_serves_as_a_profile_function():
    prof, debug = EventProfiler(), EventProfilerDebug()
    prof.start()
    top()
    prof.stop()

    debug.start()
    sys.setprofile(debug.log_event)
    top()
    sys.setprofile(None)
    debug.stop()

    wanted, got = prof.retrieve_results(), debug.retrieve_results()
    columns = ["event", "name", "mod", "lineno", "from_name", "from_mod"]
    by_setprofile = ["leaf", "middle", "top", "sleep"]
    wanted = wanted[
        wanted.name.isin(by_setprofile)
        & (wanted.event.isin(list(EventProfiler._event_mapping)[:6]))
    ]
    got = got[got.name.isin(by_setprofile)]
    assert (
        wanted[columns].astype(str).to_numpy().tolist()
        == got[columns].astype(str).to_numpy().tolist()
    )
    inside = got.from_name != sys._getframe().f_code.co_name
    assert got[inside].from_line.tolist() == wanted[inside.to_numpy()].from_line.tolist()


def test_logged_c_calls_are_named_after_their_function():
    debug = EventProfilerDebug()
    debug.log_event(sys._getframe(), "c_call", len)
    debug.log_event(sys._getframe(), "c_return", [].append)

    frame = debug.retrieve_results()

    assert frame.name.tolist() == ["len", "list.append"]
    assert frame.from_name.tolist() == [sys._getframe().f_code.co_name] * 2


def test_a_frame_that_returned_still_names_its_caller():
    def inner():
        return sys._getframe()

    def outer():
        return inner()

    ended = outer()
    debug = EventProfilerDebug()
    debug.log_event(ended, "return", None)

    row = debug.retrieve_results().iloc[0]
    assert (row["name"], row["lineno"]) == ("inner", inner.__code__.co_firstlineno)


@pytest.mark.parametrize(
    ("args", "error", "match"),
    [
        ((None, "call", None), TypeError, "frame must be a frame, not NoneType"),
        ((sys._getframe(), "Call", None), ValueError, "event must be one of .*'malloc'.*'Call'"),
        ((sys._getframe(), 1, None), TypeError, "event must be a str, not int"),
    ],
)
def test_log_event_names_what_is_wrong(args, error, match):
    with pytest.raises(error, match=match):
        EventProfiler().log_event(*args)


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_debug_touches_nothing_and_logs(impl):
    debug = EventProfilerDebug(impl=impl, size=10000000)
    frame = sys._getframe()
    log = debug.log_event if impl != "pybind11" else debug._buffer.c_log_event
    before = sys.getprofile()

    debug.start()
    inside = sys.getprofile()
    for _ in range(1000):
        log(frame, "call", None)
        log(frame, "return", None)
    debug.stop()

    assert inside is before
    events = debug.retrieve_results().event.value_counts()
    assert events[["call", "return", "profiler_start", "profiler_sort", "malloc"]].tolist() == [
        1000,
        1000,
        1,
        1,
        0,
    ]


# ---- The with block ------------------------------------------------------------------------------


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_with_gives_a_report(impl):
    block = WithEventProfiler(size=100000, impl=impl, clean_file_name=str.upper)
    assert block.report is None

    with block as same:
        top()

    assert same is block
    assert list(block.report.columns) == COLUMNS
    assert len(calls_of(block.report, "top")) == 1
    assert __file__.upper() in set(block.report["mod"])
    assert block.report is block.report is block.report_


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_leaves_the_block_and_the_report_stays(error):
    block = WithEventProfiler()

    with pytest.raises(error, match="as raised"), block:
        middle()
        raise error("as raised")

    assert len(calls_of(block.report, "middle")) == 1
    assert sys.getprofile() is None


def test_a_block_can_be_entered_again_but_not_twice_at_once():
    block = WithEventProfiler()
    with block:
        leaf(0)
        with pytest.raises(eventprof.StateError, match="already running"):
            block.__enter__()
    with block:
        middle()

    assert len(calls_of(block.report, "leaf")) == 1
    assert len(calls_of(block.report, "middle")) == 1


# ---- The process ---------------------------------------------------------------------------------


def test_threads_that_log_and_run_meanwhile_are_all_there():
    prof = EventProfiler()
    done = []

    def work():
        for _ in range(2000):
            leaf.__code__.co_name.upper()
            prof.log_event(sys._getframe(), "profiler_call", None)
        done.append(1)

    prof.start()
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while len(done) < 4:
        prof.retrieve_raw_results()
    for thread in threads:
        thread.join()
    prof.stop()

    frame = prof.retrieve_results()
    assert (frame.event == "profiler_call").sum() == 8000
    assert len(calls_of(frame, "str.upper")) == 8000
    assert frame.time.is_monotonic_increasing


def test_an_exception_that_nobody_catches_ends_the_process_as_ever():
    code = """
from eventprof import EventProfiler
prof = EventProfiler()
prof.start()
[bytearray(100) for _ in range(1000)]
raise SystemExit(7)
"""
    assert children.program(code, status=7).stdout == ""


def test_without_pandas_the_extra_is_named():
    code = """
import sys
sys.modules["pandas"] = None
from eventprof import EventProfiler, WithEventProfiler
with WithEventProfiler() as block:
    sorted("text")
assert block.prof_.retrieve_raw_results().shape[1] == 6
try:
    block.report
except ModuleNotFoundError as error:
    print(error)
"""
    run = children.program(code)

    assert "pip install 'eventprof[pandas]'" in run.stdout, run.stderr
