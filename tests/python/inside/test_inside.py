"""What happens inside of functions: lines, instructions, exceptions, branches and jumps."""

from __future__ import annotations

import difflib
import dis
import json
import json.decoder
import json.encoder
import json.scanner
import sys
import textwrap
import traceback
import types
from collections import Counter

import pytest
import raw
from inside_programs import (
    HAS_MONITORING,
    PROGRAMS,
    Numbers,
    OddError,
    branching,
    difflib_program,
    exceptions_program,
    is_watched,
    line_counts,
    monitoring_witness,
    over_lines,
    record,
    rows_of,
    settrace_witness,
    short,
)

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


@pytest.mark.parametrize("watched", [False, True], ids=["alone", "after-a-line-tool"])
def test_an_exception_comes_out_of_the_line_of_the_call(hook, watched):
    lines = []
    # Another code object each time: lines are looked up once, and elsewhere after a line tool saw it.
    program = types.FunctionType(over_lines.__code__.replace(), over_lines.__globals__)

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
