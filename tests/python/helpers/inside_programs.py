"""Programs whose insides are recorded, and witnesses that tell what happened there."""

from __future__ import annotations

import difflib
import json
import json.decoder
import json.encoder
import json.scanner
import random
import sys
import textwrap
import types
from collections import Counter

import raw

import eventprof
from eventprof.recording.events import INSIDE

HAS_MONITORING = sys.version_info >= (3, 12)


HOOKS = [*(["monitoring"] if HAS_MONITORING else []), *(["trace"] if raw.HAS_GIL else [])]


TRACED = ("line", "instruction", "raise", "stop_iteration")


ALL_INSIDE = tuple(word for words in INSIDE.values() for word in words)


CALLS = ("call", "return", "yield", "resume", "throw", "unwind")


C_CALLS = ("c_call", "c_return", "c_exception")


def seen_by(hook):
    return TRACED if hook == "trace" else ALL_INSIDE


def known(words, hook):
    return [word for word in words if word not in ALL_INSIDE or word in seen_by(hook)]


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


def over_lines(argument):
    return raising(
        argument
        + 1
    )  # fmt: skip


def branching(numbers):
    total = 0
    for number in numbers:
        if number > 2:
            total += number
    while total > 10:
        total -= 10
    return total


def negated(x):
    return -x


def everything():
    exceptions_program()
    branching([1, 5, 9])
    sorted([3, 1, 2], key=negated)


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


def inner():
    total = 0
    for i in range(3):
        total += i
    return total


def outer():
    first = inner()
    return first + inner()


def recursive(depth):
    if depth > 0:
        recursive(depth - 1)
        recursive(depth - 2)
    return [depth]


def mixed_program():
    recursive(5)
    exceptions_program()
    return outer(), sum(delegating(4))


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
