"""What happens inside of functions: lines, instructions, exceptions, branches and jumps."""

from __future__ import annotations

import difflib
import dis
import gc
import io
import json
import json.decoder
import json.encoder
import json.scanner
import random
import subprocess
import sys
import textwrap
import threading
import traceback
import types
from collections import Counter

import footprint
import numpy as np
import pytest
import raw

import eventprof
from eventprof.recording.events import INSIDE
from eventprof.show.line_report import write_lines

HAS_MONITORING = sys.version_info >= (3, 12)
HOOKS = [*(["monitoring"] if HAS_MONITORING else []), *(["trace"] if raw.HAS_GIL else [])]
TRACED = ("line", "instruction", "raise", "stop_iteration")
ALL_INSIDE = tuple(word for words in INSIDE.values() for word in words)
CALLS = ("call", "return", "yield", "resume", "throw", "unwind")
C_CALLS = ("c_call", "c_return", "c_exception")


@pytest.fixture(params=HOOKS)
def hook(request):
    return request.param


def seen_by(hook):
    return TRACED if hook == "trace" else ALL_INSIDE


def known(words, hook):
    return [word for word in words if word not in ALL_INSIDE or word in seen_by(hook)]


# ---- Programs, the same each time ----------------------------------------------------------------


def json_program():
    """json as Python, without its accelerators."""
    data = {"a": [1, 2.5, None, True, "text" * 3], "b": {"c": [{"d": i} for i in range(20)]}}
    make = json.encoder.c_make_encoder
    json.encoder.c_make_encoder = None
    try:
        text = "".join(json.JSONEncoder(indent=2, sort_keys=True).iterencode(data))
    finally:
        json.encoder.c_make_encoder = make
    decoder = json.decoder.JSONDecoder()
    decoder.parse_object = json.decoder.JSONObject
    decoder.parse_array = json.decoder.JSONArray
    decoder.parse_string = json.decoder.py_scanstring
    decoder.scan_once = json.scanner.py_make_scanner(decoder)
    return decoder.decode(text)


def difflib_program():
    words = "the quick brown fox jumps over the lazy dog and runs".split()
    chance = random.Random(5)
    old = [" ".join(chance.choices(words, k=4)) + "\n" for _ in range(25)]
    new = [line for line in old if chance.random() < 0.8]
    new.insert(7, "something else\n")
    return list(difflib.unified_diff(old, new)) + list(difflib.ndiff(old[:6], new[:6]))


def textwrap_program():
    return textwrap.fill("some words to wrap, and-then some; " * 12, width=31, max_lines=6)


class Numbers:
    """Iterators end by an exception that the interpreter sees."""

    def __init__(self, count):
        self.left = count

    def __iter__(self):
        return self

    def __next__(self):
        if self.left == 0:
            raise StopIteration
        self.left -= 1
        return self.left


def generated(count):
    for i in range(count):  # noqa: UP028 - it is to have lines
        yield i
    return count


def delegating(count):
    return (yield from generated(count))


class OddError(Exception):
    pass


def raising(depth):
    if depth == 0:
        raise OddError("at the bottom")
    try:
        return raising(depth - 1)
    finally:
        depth += 1


def exceptions_program():
    caught = 0
    for wanted in (0, 1, 3):
        try:
            raising(wanted)
        except OddError as error:
            caught += error.args[0].startswith("at")
    try:
        try:
            {}["missing"]
        except KeyError as error:
            raise ValueError("another") from error
    except ValueError:
        caught += 1
    try:
        int("no number")
    except ValueError:
        caught += 1
    try:
        next(iter(()))
    except StopIteration:
        caught += 1
    for _ in Numbers(3):
        caught += 1
    for _ in generated(2):
        caught += 1
    caught += len(list(delegating(2)))
    generator = generated(5)
    next(generator)
    try:
        generator.throw(OddError("thrown"))
    except OddError:
        caught += 1
    return caught


PROGRAMS = [json_program, difflib_program, textwrap_program, exceptions_program]
FILES = (json.__file__[: -len("__init__.py")], difflib.__file__, textwrap.__file__)


def is_watched(file, function):
    """Of the standard library's files, and of this one's programs: what runs is the same each time."""
    ours = {"raising", "exceptions_program", "generated", "delegating", "__next__", "__iter__"}
    ours.add("over_lines")
    return file.startswith(FILES) or (file == __file__ and function in ours)


# ---- Witnesses -----------------------------------------------------------------------------------


def settrace_witness(run, opcodes=False):
    """What a trace function in Python is told: lines, instructions, exceptions in order."""
    lines, instructions, exceptions = Counter(), Counter(), []

    def local(frame, event, argument):
        code = frame.f_code
        where = code.co_filename, code.co_name
        if event == "line":
            lines[(*where, frame.f_lineno)] += 1
        elif event == "opcode":
            instructions[(*where, frame.f_lasti)] += 1
        elif event == "exception":
            exceptions.append((argument[0].__name__, code.co_name, frame.f_lineno))
        return local

    def begun(frame, event, argument):
        if not is_watched(frame.f_code.co_filename, frame.f_code.co_name):
            return None
        frame.f_trace = local  # 3.13 heeds the next only then
        frame.f_trace_opcodes = opcodes
        frame.f_trace_lines = not opcodes
        return local

    if opcodes:
        sys._getframe().f_trace_opcodes = True  # 3.12 looks before it traces
    before = sys.gettrace()
    sys.settrace(begun)
    try:
        run()
    finally:
        sys.settrace(before)
    return types.SimpleNamespace(lines=lines, instructions=instructions, exceptions=exceptions)


def monitoring_witness(run, event):
    """What a callback in Python is told."""
    monitoring = sys.monitoring
    found = Counter()

    def callback(code, number, *_):
        if is_watched(code.co_filename, code.co_name):
            found[code.co_filename, code.co_name, number] += 1

    monitoring.use_tool_id(5, "tests")
    monitoring.register_callback(5, getattr(monitoring.events, event), callback)
    monitoring.set_events(5, getattr(monitoring.events, event))
    try:
        run()
    finally:
        monitoring.set_events(5, 0)
        monitoring.register_callback(5, getattr(monitoring.events, event), None)
        monitoring.free_tool_id(5)
    return found


def record(run, events, hook, **options):
    rec = eventprof.record(
        events=events, backend=hook, on_full="grow", threads="current", **options
    )
    with rec:
        run()
    assert not rec.trace.loss
    assert rec.displaced == ()
    return rec.trace


def short(name):
    return name.rpartition(".")[2]


def line_counts(trace):
    lines = trace.lines
    found = Counter()
    for file, name, line, hits in zip(
        lines["file"], lines["name"], lines["line"], lines["hits"], strict=True
    ):
        if is_watched(file, short(name)):
            found[file, short(name), int(line)] += int(hits)
    return found


def rows_of(trace, word):
    events = trace.events
    return events[events["event"] == word]


# ---- Lines ---------------------------------------------------------------------------------------


def lines_that_jump_to_themselves(functions):
    """A loop on one line: a trace function is told each round, monitoring the first."""
    found = set()
    for code in functions:
        lines = {}
        for start, end, line in code.co_lines():
            lines |= dict.fromkeys(range(start, end, 2), line)
        for each in dis.get_instructions(code):
            if each.opname.startswith("JUMP_BACKWARD"):
                if lines.get(each.offset) == lines.get(each.argval):
                    found.add((code.co_filename, code.co_name, lines.get(each.offset)))
    return found


def codes_of(*modules):
    """All code objects of the modules, those inside of others too."""
    waiting = []
    for module in modules:
        with open(module.__file__, encoding="utf-8") as file:
            waiting.append(compile(file.read(), module.__file__, "exec"))
    found = []
    while waiting:
        code = waiting.pop()
        found.append(code)
        waiting += [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return found


@pytest.mark.parametrize("program", PROGRAMS)
def test_lines_are_those_that_the_interpreter_tells(hook, program):
    program()
    if hook == "trace":
        expected = settrace_witness(program).lines
    else:
        expected = monitoring_witness(program, "LINE")

    found = line_counts(record(program, {"line"}, hook))

    assert found == expected
    assert found.total() > 30


@pytest.mark.skipif(not HAS_MONITORING, reason="sys.monitoring is 3.12's")
@pytest.mark.parametrize("program", PROGRAMS[:3])
def test_lines_are_a_trace_functions_but_for_loops_on_one_line(program):
    program()
    expected = settrace_witness(program).lines
    loops = lines_that_jump_to_themselves(
        codes_of(json.encoder, json.decoder, json.scanner, difflib, textwrap)
    )

    found = line_counts(record(program, {"line"}, "monitoring"))

    assert set(found) == set(expected)
    different = {place for place in found if found[place] != expected[place]}
    assert different <= loops
    assert all(found[place] < expected[place] for place in different)


def test_lines_are_coverages(hook):
    coverage = pytest.importorskip("coverage")
    difflib_program()
    measured = coverage.Coverage(data_file=None, include=[difflib.__file__])
    measured.start()
    difflib_program()
    measured.stop()
    expected = set(measured.get_data().lines(difflib.__file__))

    found = line_counts(record(difflib_program, {"line"}, hook))

    assert {line for file, _, line in found if file == difflib.__file__} == expected


# ---- Instructions --------------------------------------------------------------------------------


@pytest.mark.parametrize("program", PROGRAMS)
def test_instructions_are_those_that_the_interpreter_tells(hook, program):
    program()
    # Each by its own: 3.13 tells a trace function nothing of code that both were told of before.
    if hook == "trace":
        expected = settrace_witness(program, opcodes=True).instructions
    else:
        expected = monitoring_witness(program, "INSTRUCTION")

    trace = record(program, {"instruction"}, hook)

    rows = rows_of(trace, "instruction")
    files = trace.functions["file"]
    found = Counter(
        (files[function], short(name), int(offset))
        for function, name, offset in zip(
            rows["function"], rows["name"], rows["offset"], strict=True
        )
        if is_watched(files[function], short(name))
    )
    assert found == expected
    assert found.total() > 300


def straight(a, b):
    c = a + b
    d = [c, b]
    return d[0] * 2


def test_instructions_have_the_names_and_places_that_dis_gives(hook):
    trace = record(lambda: straight(1, 2), {"instruction"}, hook)

    rows = rows_of(trace, "instruction")
    ours = rows[rows["name"] == "straight"]
    found = list(zip(ours["offset"].tolist(), ours["opcode"], ours["line"].tolist(), strict=True))
    lines = {}
    for start, end, line in straight.__code__.co_lines():
        lines |= dict.fromkeys(range(start, end, 2), line)
    expected = [
        (each.offset, each.opname, lines[each.offset])
        for each in dis.get_instructions(straight)
        # Where a call begins is told by its own event.
        if each.opname not in ("RESUME", "RESUME_CHECK")
    ]
    assert [row for row in found if row[1] != "RESUME"] == expected
    assert set(rows["opcode"]) <= set(dis.opmap)


# ---- Exceptions ----------------------------------------------------------------------------------


def monitored_exceptions(run):
    """What callbacks in Python are told, in order."""
    monitoring = sys.monitoring
    found = []

    def callback(code, offset, exception):
        if is_watched(code.co_filename, code.co_name):
            lines = (line for start, end, line in code.co_lines() if start <= offset < end)
            found.append((type(exception).__name__, code.co_name, next(lines)))

    numbers = [monitoring.events.RAISE, monitoring.events.STOP_ITERATION]
    monitoring.use_tool_id(5, "tests")
    for number in numbers:
        monitoring.register_callback(5, number, callback)
    monitoring.set_events(5, sum(numbers))
    try:
        run()
    finally:
        monitoring.set_events(5, 0)
        for number in numbers:
            monitoring.register_callback(5, number, None)
        monitoring.free_tool_id(5)
    return found


@pytest.mark.parametrize("program", PROGRAMS)
def test_exceptions_are_those_that_the_interpreter_tells(hook, program):
    program()
    expected = traced = settrace_witness(program).exceptions
    if hook == "monitoring":
        expected = monitored_exceptions(program)

    trace = record(program, {"raise", "stop_iteration"}, hook)

    events = trace.events
    functions = trace.functions
    files, names = functions["file"], functions["name"]
    found = [
        (name, short(names[caller]), int(line))
        for name, caller, line in zip(events["name"], events["caller"], events["line"], strict=True)
        if is_watched(files[caller], short(names[caller]))
    ]
    # Whether the end of a generator is raised depends on what the interpreter has specialised.
    found, expected, traced = (
        [row for row in rows if row[0] != "StopIteration" or row[1] == "__next__"]
        for rows in (found, expected, traced)
    )
    assert found == expected == traced
    assert program is not exceptions_program or len(found) > 12
    kinds = functions["kind"]
    assert {kinds[row] for row in events["function"]} <= {"type"}
    assert (events["line"] == events["caller_line"]).all()


def over_lines(argument):
    return raising(
        argument
        + 1
    )  # fmt: skip


@pytest.mark.parametrize("watched", [False, True], ids=["alone", "after-a-line-tool"])
def test_an_exception_comes_out_of_the_line_of_the_call(hook, watched):
    lines = []
    # Another code object each time: lines are looked up once, and elsewhere after a line tool saw it.
    program = types.FunctionType(over_lines.__code__.replace(), globals())

    def run():
        try:
            program(0)
        except OddError as error:
            steps = traceback.walk_tb(error.__traceback__)
            lines[:] = [line for _, line in steps]

    if watched:
        settrace_witness(run)
    trace = record(run, {"raise"}, hook)

    rows = rows_of(trace, "raise")
    assert rows["line"].tolist() == lines[::-1]


@pytest.mark.skipif(not raw.HAS_GIL, reason="trace functions of other threads need the GIL")
def test_the_trace_hook_tells_the_end_of_an_iteration_apart():
    def program():
        for _ in Numbers(2):
            pass
        try:
            next(Numbers(0))
        except StopIteration:
            pass

    trace = record(program, {"raise", "stop_iteration"}, "trace")

    functions = trace.functions
    found = [
        (event, short(functions["name"][caller]))
        for event, caller in zip(trace.events["event"], trace.events["caller"], strict=True)
    ]
    assert found == [
        ("raise", "__next__"),
        ("stop_iteration", "program"),
        ("raise", "__next__"),
        ("raise", "program"),
    ]


@pytest.mark.skipif(not HAS_MONITORING, reason="a trace hook is not told")
def test_where_exceptions_are_handled_and_raised_again():
    def program():
        try:
            try:
                raise OddError
            finally:
                len("")
        except OddError:
            pass

    trace = record(program, {"raise", "reraise", "handled"}, "monitoring")

    first = program.__code__.co_firstlineno
    rows = trace.events
    found = [
        (event, name, line - first)  # what the compiler adds has no line
        for event, name, line in zip(rows["event"], rows["name"], rows["line"], strict=True)
    ]
    assert ("raise", "OddError", 3) == found[0]
    assert Counter(event for event, *_ in found)["reraise"] >= 1
    assert [row for row in found if row[0] == "handled"][-1][1] == "OddError"
    assert {name for _, name, _ in found} == {"OddError"}


# ---- Branches ------------------------------------------------------------------------------------


def branching(numbers):
    total = 0
    for number in numbers:
        if number > 2:
            total += number
    while total > 10:
        total -= 10
    return total


@pytest.mark.skipif(not HAS_MONITORING, reason="a trace hook is not told")
@pytest.mark.parametrize("word", ["branch", "jump"])
def test_branches_and_jumps_go_where_the_interpreter_says(word):
    monitoring = sys.monitoring
    names = [word.upper()]
    if word == "branch" and hasattr(monitoring.events, "BRANCH_LEFT"):
        names = ["BRANCH_LEFT", "BRANCH_RIGHT"]
    expected = []
    wanted = 0
    monitoring.use_tool_id(5, "tests")
    for name in names:
        wanted |= getattr(monitoring.events, name)
        monitoring.register_callback(
            5,
            getattr(monitoring.events, name),
            lambda code, offset, to: (
                expected.append((offset, to)) if code is branching.__code__ else None
            ),
        )
    monitoring.set_events(5, wanted)
    branching([1, 2, 3, 40])
    monitoring.set_events(5, 0)
    for name in names:
        monitoring.register_callback(5, getattr(monitoring.events, name), None)
    monitoring.free_tool_id(5)

    trace = record(lambda: branching([1, 2, 3, 40]), {word}, "monitoring")

    rows = trace.events
    ours = rows[rows["name"] == "branching"]
    found = list(zip(ours["offset"].tolist(), ours["value"].astype(int).tolist(), strict=True))
    assert found == expected
    assert len(found) > 3


# ---- Mixes ---------------------------------------------------------------------------------------


def negated(x):
    return -x


def everything():
    exceptions_program()
    branching([1, 5, 9])
    sorted([3, 1, 2], key=negated)


def asked_of_the_interpreter():
    """The events that our tool has asked sys.monitoring for."""
    monitoring = sys.monitoring
    for tool in range(6):
        if monitoring.get_tool(tool) == "eventprof":
            bits = monitoring.get_events(tool)
            return {
                name
                for name in dir(monitoring.events)
                if name.isupper()
                and getattr(monitoring.events, name) & bits
                # A name for two.
                and not (name == "BRANCH" and hasattr(monitoring.events, "BRANCH_LEFT"))
                and name != "NO_EVENTS"
            }
    return set()


NAMES = {
    "call": {"PY_START"}, "return": {"PY_RETURN"}, "yield": {"PY_YIELD"}, "resume": {"PY_RESUME"},
    "throw": {"PY_THROW"}, "unwind": {"PY_UNWIND"}, "c_call": {"CALL"},
    "c_return": {"CALL", "C_RETURN"}, "c_exception": {"CALL", "C_RAISE"}, "line": {"LINE"},
    "instruction": {"INSTRUCTION"}, "raise": {"RAISE"}, "reraise": {"RERAISE"},
    "handled": {"EXCEPTION_HANDLED"}, "stop_iteration": {"STOP_ITERATION"}, "jump": {"JUMP"},
    "branch": (
        {"BRANCH_LEFT", "BRANCH_RIGHT"} if sys.version_info >= (3, 14) else {"BRANCH"}
    ),
}  # fmt: skip


def mixes(hook, count):
    chance = random.Random(11)
    words = known((*CALLS, *C_CALLS, *ALL_INSIDE), hook)
    for _ in range(count):
        yield frozenset(chance.sample(words, chance.randint(1, 6)))


def keys(trace, words):
    """What tells events of the same run apart, without times."""
    events = trace.events
    mask = np.isin(events["event"].astype(str), list(words))
    rows = events[mask]
    files = trace.functions["file"]
    where = [
        files[caller if caller is not np.ma.masked else function]
        for caller, function in zip(rows["caller"], rows["function"], strict=True)
    ]
    return [
        tuple(None if each is np.ma.masked else each for each in row)
        for row in zip(
            rows["event"], rows["name"], rows["line"], rows["caller_line"], rows["offset"],
            rows["opcode"], where, strict=True,
        )
    ]  # fmt: skip


def test_a_mix_has_no_more_than_was_asked_for(hook):
    everything()
    for mix in mixes(hook, 15):
        rec = eventprof.record(events=mix, backend=hook, threads="current")
        with rec:
            asked = asked_of_the_interpreter() if hook == "monitoring" else None
            everything()
        words = Counter(rec.trace.events["event"])
        assert set(words) <= mix
        # C_RETURN and C_RAISE come with CALL, and are in its place in the events that are set.
        expected = set().union(*(NAMES[word] for word in mix))
        if asked is not None:
            assert asked - {"C_RETURN", "C_RAISE"} == expected - {"C_RETURN", "C_RAISE"}
        sure = {"call", "return", "c_call", "line", "instruction", "raise"} & mix
        assert sure <= set(words), mix


def test_two_recorders_with_different_sets_have_each_its_own(hook):
    everything()
    more = list(mixes(hook, 4))
    pairs = [
        ({"line"}, {"call", "return", "raise"}),
        ({"instruction", "c_call", "c_return"}, {"line", "c_exception", "c_call"}),
        ({"raise", "stop_iteration"}, {"call", "return", "yield", "resume", "throw", "unwind"}),
        (more[0], more[1]),
        (more[2], more[3]),
    ]
    for first, second in pairs:
        alone = [keys(record(everything, words, hook), words) for words in (first, second)]
        with eventprof.record(events=first, backend=hook, threads="current") as one:
            with eventprof.record(events=second, backend=hook, threads="current") as two:
                everything()
        # What is in the window beside: this function's own, and what starts the second.
        found_one = keys(one.trace, first)
        found_two = keys(two.trace, second)
        ours = [key for key in alone[1] if is_of_everything(key)]
        assert [key for key in found_two if is_of_everything(key)] == ours
        ours = [key for key in alone[0] if is_of_everything(key)]
        assert [key for key in found_one if is_of_everything(key)] == ours
        assert set(one.trace.events["event"]) <= first
        assert set(two.trace.events["event"]) <= second


def lines_of(*functions):
    waiting, found = [function.__code__ for function in functions], set()
    while waiting:
        code = waiting.pop()
        found |= {line for _, _, line in code.co_lines()}
        waiting += [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return found


OWN_LINES = lines_of(
    everything, exceptions_program, raising, generated, delegating, branching, negated,
    Numbers.__iter__, Numbers.__next__,
)  # fmt: skip


def is_of_everything(key):
    """Not of the lines of the test that starts and stops."""
    event, name, line, caller_line, _, _, file = key
    if name == "everything" and event in ("call", "return"):
        return False  # who called it
    if name == "StopIteration":
        return False  # whether a generator's is raised depends on what the interpreter specialised
    return file == __file__ and (caller_line if caller_line is not None else line) in OWN_LINES


def test_events_and_flags_exclude_each_other():
    with pytest.raises(ValueError, match="'line' into events"):
        eventprof.record(lines=True, events=["call"])
    with pytest.raises(TypeError, match="exceptions must be True or False"):
        eventprof.record(exceptions=1)


@pytest.mark.skipif(not raw.HAS_GIL, reason="these hooks need the GIL, which is said first")
def test_what_a_hook_does_not_see_is_an_error_that_names_who_does():
    needs = "monitoring" if HAS_MONITORING else "3.12"
    with pytest.raises(eventprof.UnsupportedError, match=f"branch, jump.*{needs}"):
        eventprof.record(branches=True, backend="trace")
    with pytest.raises(eventprof.UnsupportedError, match=f"trace hook .* handled: .*{needs}"):
        eventprof.record(events=["handled"], backend="trace")
    with pytest.raises(eventprof.UnsupportedError, match="profile hook .* line: .*'trace'"):
        eventprof.record(lines=True, backend="profile")


@pytest.mark.skipif(not raw.HAS_GIL, reason="trace functions of other threads need the GIL")
def test_exceptions_are_what_the_trace_hook_sees_of_them():
    rec = eventprof.record(exceptions=True, backend="trace")
    assert set(rec.options.events) & set(ALL_INSIDE) == {"raise", "stop_iteration"}


def test_nothing_inside_is_recorded_unasked():
    with eventprof.record() as rec:
        everything()
    assert not set(rec.trace.events["event"]) & set(ALL_INSIDE)


# ---- Filters -------------------------------------------------------------------------------------


def inner():
    total = 0
    for i in range(3):
        total += i
    return total


def outer():
    first = inner()
    return first + inner()


def test_lines_of_what_is_left_out_are_left_out(hook):
    events = known((*CALLS, "line", "instruction", "branch"), hook)

    trace = record(outer, events, hook, include=["*.inner"])

    names = set(trace.events["name"])
    assert names == {"inner"}
    assert Counter(trace.events["event"])["call"] == 2
    lines = trace.lines
    assert set(lines["name"]) == {"inner"}
    whole = record(outer, events, hook)
    assert keys(trace, {"line"}) == [key for key in keys(whole, {"line"}) if key[1] == "inner"]


def test_lines_go_by_names_where_no_calls_are_recorded(hook):
    trace = record(outer, {"line"}, hook, exclude=["*.inner"])

    assert "inner" not in set(trace.events["name"])
    assert "outer" in set(trace.events["name"])


def test_lines_go_with_calls_that_are_too_deep(hook):
    events = known((*CALLS, "line", "raise"), hook)

    trace = record(outer, events, hook, max_depth=0)

    rows = trace.events
    assert set(rows[rows["event"] == "call"]["name"]) == {"outer"}
    assert "inner" not in set(rows["name"])
    assert Counter(rows[rows["event"] == "line"]["name"])["outer"] == 2


def test_lines_go_with_calls_that_are_too_short(hook):
    events = known((*CALLS, "line"), hook)

    trace = record(outer, events, hook, min_duration="30 s")

    assert not {"inner", "outer"} & set(trace.events["name"])


# ---- The table of lines --------------------------------------------------------------------------


def model_of_lines(trace):
    """The table of lines, from events and calls, as its documentation says."""
    events, calls = trace.events, trace.calls
    row_call = trace._core.events("call").tolist()
    parents = trace._core.calls("parent").tolist()
    depths = calls["depth"].tolist()
    ends = (calls["start"] + calls["duration"]).tolist()
    hits, times, selfs = Counter(), Counter(), Counter()
    intervals = []  # (thread, line, call, since, until)
    open_lines = {}  # (thread, call): line, since
    last = {}  # thread: time, call innermost from then on
    rows = zip(
        range(len(events)), events["time"].tolist(), events["event"], events["thread"].tolist(),
        events["function"], events["line"], strict=True,
    )  # fmt: skip
    closing = raw.CLOSING
    for row, now, word, thread, function, line in rows:
        call = row_call[row]
        if thread in last:
            since, innermost = last[thread]
            if (thread, innermost) in open_lines:
                selfs[open_lines[thread, innermost][0]] += now - since
        if word in closing:
            if call >= 0:
                for key in [key for key in open_lines if key[0] == thread and key[1] >= call]:
                    intervals.append((thread, *open_lines.pop(key), now))
                last[thread] = now, parents[call]
            else:
                last[thread] = now, last.get(thread, (0, -1))[1]
            continue
        last[thread] = now, call
        if word == "line":
            place = int(function), int(line)
            hits[place] += 1
            if (thread, call) in open_lines:
                intervals.append((thread, *open_lines.pop((thread, call)), now))
            open_lines[thread, call] = place, now
    for (thread, call), (place, since) in open_lines.items():
        until = ends[call] if call >= 0 else last[thread][0]
        intervals.append((thread, place, since, until))
        if call >= 0 and last[thread][1] == call:
            selfs[place] += until - last[thread][0]
    assert depths is not None
    # Of those of one line that lie in each other, the outermost.
    covered = {}
    for thread, place, since, until in sorted(intervals, key=lambda x: (x[2], -x[3])):
        if since >= covered.get((thread, place), 0):
            times[place] += until - since
            covered[thread, place] = until
    return hits, times, selfs


def recursive(depth):
    if depth > 0:
        recursive(depth - 1)
        recursive(depth - 2)
    return [depth]


def mixed_program():
    recursive(5)
    exceptions_program()
    return outer(), sum(delegating(4))


@pytest.mark.parametrize("calls", [CALLS + C_CALLS, CALLS, ()], ids=["calls", "python", "none"])
def test_lines_take_as_long_as_their_events_say(hook, calls):
    mixed_program()

    trace = record(mixed_program, {*calls, "line"}, hook)

    lines = trace.lines
    places = list(zip(lines["function"].tolist(), lines["line"].tolist(), strict=True))
    hits, times, selfs = model_of_lines(trace)
    assert dict(zip(places, lines["hits"].tolist(), strict=True)) == dict(hits)
    assert dict(zip(places, lines["self"].tolist(), strict=True)) == {
        place: selfs[place] for place in places
    }
    assert dict(zip(places, lines["total"].tolist(), strict=True)) == {
        place: times[place] for place in places
    }
    assert (lines["self"] <= lines["total"]).all()
    assert lines["total"].max() <= trace.duration


def test_lines_have_the_blocks_that_they_allocated(hook):
    rec = eventprof.record(lines=True, backend=hook, on_full="grow", threads="current")
    with rec:
        footprint.points(50)

    lines, blocks = rec.trace.lines, rec.trace.allocations
    expected, counts = Counter(), Counter()
    for function, line, size in zip(
        blocks["function"], blocks["line"], blocks["size"], strict=True
    ):
        if function is not np.ma.masked and line is not np.ma.masked:
            expected[int(function), int(line)] += int(size)
            counts[int(function), int(line)] += 1
    places = list(zip(lines["function"].tolist(), lines["line"].tolist(), strict=True))
    allocated = dict(zip(places, lines["allocated"].tolist(), strict=True))
    assert {place: size for place, size in allocated.items() if size} == dict(expected)
    assert dict(zip(places, lines["blocks"].tolist(), strict=True)) == {
        place: counts[place] for place in places
    }
    assert allocated
    assert places == sorted(places)


def test_lines_of_memory_alone_have_no_hits():
    with eventprof.record(calls=False, c_calls=False) as rec:
        kept = [bytes(5000 + i) for i in range(30)]

    lines = rec.trace.lines

    assert len(kept) == 30
    assert lines["hits"].mask.all()
    assert lines["total"].mask.all()
    assert not lines["allocated"].mask.any()
    assert lines["allocated"].max() > 30 * 5000


def test_lines_without_memory_have_no_bytes(hook):
    lines = record(outer, {"line"}, hook).lines
    assert lines["allocated"].mask.all()
    assert lines["blocks"].mask.all()
    assert not lines["hits"].mask.any()


def test_files_have_what_happened_inside(hook, tmp_path):
    events = known((*CALLS, *ALL_INSIDE), hook)
    log = tmp_path / "log.epr"
    rec = eventprof.record(events=events, backend=hook, threads="current", output=log)
    with rec:
        mixed_program()
    trace = rec.trace
    trace.save(tmp_path / "archive.epr")
    columns = ["time", "event", "name", "line", "caller_line", "offset", "opcode", "value"]

    for path in (log, tmp_path / "archive.epr"):
        again = eventprof.open(path)
        assert repr(again.events[columns].to_numpy()) == repr(trace.events[columns].to_numpy())
        for column in columns:
            np.testing.assert_array_equal(
                np.ma.filled(again.events[column], 0), np.ma.filled(trace.events[column], 0)
            )
        for column in again.lines.columns:
            if column != "function":
                assert list(again.lines[column]) == list(trace.lines[column]), column


def test_report_prints_functions_line_by_line(hook):
    rec = eventprof.record(lines=True, backend=hook, threads="current")
    with rec:
        kept = outer()
    assert kept == 6
    written = io.StringIO()
    wanted = rec.trace.functions["name"] == "outer"

    left_out = write_lines(rec.trace, written, limit=0, functions=wanted)

    assert left_out == 0
    heading, heads, *rows = written.getvalue().rstrip().splitlines()
    assert heading.startswith(f"outer  ({__file__})")
    assert heads.split() == ["line", "hits", "time", "self", "%", "bytes", "blocks"]
    first = outer.__code__.co_firstlineno
    assert [row.split()[:2] for row in rows] == [[str(first + 1), "1"], [str(first + 2), "1"]]
    assert [row.rpartition("  ")[2].strip() for row in rows] == [
        "first = inner()",
        "return first + inner()",
    ]


def test_run_and_report_have_lines(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("total = 0\nfor i in range(5):\n    total += i\nprint(total)\n")
    made = tmp_path / "made.epr"

    def run(*arguments):
        command = [sys.executable, "-m", "eventprof", *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=300, check=True, cwd=tmp_path
        ).stdout

    assert run("run", "--lines", "--quiet", "-o", str(made), str(script)) == "10\n"
    page = run("report", str(made), "--lines", "--limit", "1", "--function", str(script))

    rows = {row.split()[0]: row.split() for row in page.splitlines() if row.startswith("  ")}
    assert rows["3"][1] == "5"
    assert rows["3"][-3:] == ["total", "+=", "i"]


# ---- Threads, and other tools --------------------------------------------------------------------


def test_lines_of_all_threads(hook):
    began, go_on = threading.Event(), threading.Event()

    def waiting():
        began.set()
        assert go_on.wait(60)
        inner()

    old = threading.Thread(target=waiting)
    old.start()
    assert began.wait(60)
    with eventprof.record(events=known(("call", "return", "line"), hook), backend=hook) as rec:
        new = threading.Thread(target=outer)
        new.start()
        new.join(60)
        go_on.set()
        old.join(60)

    rows = rec.trace.events
    lines = rows[(rows["event"] == "line") & (rows["name"] == "inner")]
    assert Counter(Counter(lines["thread"].tolist()).values()) == Counter({9: 1, 18: 1})


@pytest.mark.skipif(not raw.HAS_GIL, reason="trace functions of other threads need the GIL")
def test_a_trace_function_goes_on_beside_the_trace_hook():
    told = []

    def tracer(frame, event, argument):
        if frame.f_code.co_name in ("inner", "outer"):
            told.append((frame.f_code.co_name, event, frame.f_lineno))
            return tracer
        return None

    def traced():
        told.clear()
        before = sys.gettrace()
        sys.settrace(tracer)
        try:
            yield
        finally:
            sys.settrace(before)

    for _ in traced():
        outer()
    expected = list(told)
    for _ in traced():
        with eventprof.record(
            events=[*CALLS, "line", "instruction"], backend="trace", threads="current"
        ) as rec:
            assert sys.gettrace() is tracer
            outer()
        assert sys.gettrace() is tracer

    assert told == expected
    assert rec.displaced == ()
    rows = rec.trace.events
    lines = rows[rows["event"] == "line"]
    assert Counter(lines["name"])["inner"] == 18
    assert Counter(rows["event"])["instruction"] > 50


@pytest.mark.skipif(not raw.HAS_GIL, reason="trace functions of other threads need the GIL")
def test_what_a_trace_function_raises_is_the_programs():
    def tracer(frame, event, argument):
        if frame.f_code.co_name == "inner":
            raise OddError("of the tracer")
        return None

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        with eventprof.record(events=["line"], backend="trace", threads="current") as rec:
            with pytest.raises(OddError, match="of the tracer"):
                outer()
        # Who raises is taken out, and the hook in front with it.
        assert rec.displaced == ("trace",)
        assert sys.gettrace() is None
    finally:
        sys.settrace(before)


@pytest.mark.skipif(not raw.HAS_GIL, reason="trace functions of other threads need the GIL")
def test_a_trace_function_that_comes_later_displaces_the_trace_hook():
    def tracer(frame, event, argument):
        return None

    before = sys.gettrace()
    try:
        with eventprof.record(events=["line"], backend="trace", threads="current") as rec:
            assert rec.displaced == ()
            sys.settrace(tracer)
            assert rec.displaced == ("trace",)
        assert rec.displaced == ("trace",)
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)


@pytest.mark.skipif(not raw.HAS_GIL, reason="trace functions of other threads need the GIL")
def test_the_trace_hook_comes_back_after_a_round_trip():
    before = sys.gettrace()
    if before is not None:
        pytest.skip("a trace function is there, whose object is shown")
    with eventprof.record(events=["line"], backend="trace", threads="current") as rec:
        shown = sys.gettrace()
        assert repr(shown) == "<eventprof trace hook>"
        sys.settrace(None)
        sys.settrace(shown)
        inner()
        inner()
    assert sys.gettrace() is None
    assert rec.displaced == ("trace",)  # for a while
    lines = rec.trace.lines
    assert lines[lines["name"] == "inner"]["hits"].sum() >= 9


# ---- Own footprint -------------------------------------------------------------------------------


def allocations(kinds, hook):
    def run():
        footprint.points(150)
        footprint.lists(60)
        return footprint.dicts(60), footprint.exceptions(20), list(footprint.numbers(50))

    run()
    rec = raw.recorder(kinds | raw.MEMORY, backend=hook)
    gc.collect()
    with rec:
        kept = run()
    del kept
    trace = raw.capture(rec)
    kind, size = trace.events("kind"), trace.events("size")
    memory = (kind >= raw.KIND["MALLOC_RAW"]) & (kind <= raw.KIND["REALLOC_FAILED_LIBC"])
    names = [raw.IDENTIFIER[k] for k in kind[memory].tolist()]
    return Counter(
        (name, -1 if "FREE" in name else s)
        for name, s in zip(names, size[memory].tolist(), strict=True)
    )


@pytest.mark.parametrize(
    "kinds", [("LINE",), ("INSTRUCTION",), ("BRANCH", "JUMP"), ("LINE", "CALL", "RETURN")]
)
def test_what_is_told_leaves_no_allocations_of_its_own(hook, kinds):
    if hook == "trace" and "BRANCH" in kinds:
        pytest.skip("a trace hook is not told")
    if sys.version_info >= (3, 14):
        pytest.skip("ints of offsets come from the program's free list, and go there")
    without = allocations(0, hook)

    together = allocations(raw.bits(*kinds), hook)

    extra, missing = together - without, without - together
    assert without.total() > 3000
    allowed = 20
    assert extra.total() + missing.total() <= allowed, (extra, missing)
