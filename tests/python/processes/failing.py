"""What test_failing.py runs: one recording after the other, in each of which one call more succeeds before
one fails. Arguments: scenario, folder."""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import faulthandler
import os
import sys
import traceback
from collections import Counter

import raw

import eventprof
from eventprof import _core

faulthandler.enable()
faulthandler.dump_traceback_later(600, exit=True)
fail = ctypes.CDLL(os.environ["LD_PRELOAD"])
fail.ep_fail_arm.argtypes = [ctypes.c_long, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
fail.ep_fail_disarm.restype = ctypes.c_long


def code_of(path):
    """Where the extension's code is."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            if line.rstrip().endswith(path) and " r-xp " in line:
                return tuple(int(number, 16) for number in line.split()[0].split("-"))
    raise LookupError(path)


FROM, TO = code_of(os.path.realpath(_core.__file__))


def callee(n):
    return len(str(n))


def short(result, done):
    result.append(callee(7))
    done.release()


def work():
    """Do what does not differ from run to run."""
    total = 0
    for n in range(2_000):
        total += callee(n)
        eventprof.counter("total", total)
    with eventprof.span("a thread"):
        eventprof.mark("soon")
    # A thread, and functions that were not seen before.
    result = []
    done = _thread.allocate_lock()
    done.acquire()
    _thread.start_new_thread(short, (result, done))
    done.acquire()
    for n in range(30):
        scope = {}
        exec(f"def made_{n}(): return {n}", scope)
        total += scope[f"made_{n}"]()
    return total + result[0]


RESULT = work()
SCENARIOS = {
    "memory": {"memory": True},
    "ring": {"memory": False, "buffer": "1 MiB"},
    # By the trace hook (3.11) a thread that begins may be seen a line later, and its call not.
    "file": {"memory": False, "buffer": "2 MiB", "output": "log.epr", "lines": raw.HAS_MONITORING},
    "save": {"memory": False},
}


def record(scenario, folder, *, fails=None):
    """Returns: calls recorded and lost (-1: it said that it cannot), and whether nothing failed."""
    options = dict(SCENARIOS[scenario])
    if "output" in options:
        options["output"] = os.path.join(folder, options["output"])
        with contextlib.suppress(OSError):
            os.unlink(options["output"])
    saved = os.path.join(folder, "saved.epr")
    before = raw.hooks()
    result = trace = error = None
    if fails is not None:
        fail.ep_fail_arm(fails, FROM, TO, scenario != "memory")
    try:
        rec = eventprof.record(**options)
        with rec:
            result = work()
        trace = rec.trace
        count = len(trace.calls), len(trace.functions)
        if scenario == "save":
            trace.save(saved, force=True)
            count = len(eventprof.open(saved).calls), count[1]
        assert min(count) > 0 or trace.loss, count
    except (MemoryError, OSError, eventprof.Error) as found:
        error = found
    finally:
        left = fail.ep_fail_disarm()
    # The interpreter is as it was, and so is the program.
    assert raw.hooks() == before, (before, raw.hooks())
    assert result in (None, RESULT), result
    if error is not None:
        assert fails is not None, error
        assert isinstance(error, MemoryError) or str(error), repr(error)
        return -1, left
    # What begins: the thread's last returns may be outside. Without blocks: how many the interpreter
    # needs is not the same each time.
    if scenario == "memory":
        return 0, left
    begun = Counter(list(trace.events["event"]))
    words = ("call", "c_call", "line", "mark", "counter", "span_begin", "span_end")
    return {word: begun[word] + trace.loss.by_kind.get(word, 0) for word in words}, left


def in_child(body):
    """Returns what `body` says; a crash or a failed assertion ends everything."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, repr(body()).encode())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = pipe.read()
    status = os.waitpid(child, 0)[1]
    return answer, status


def main(scenario, folder, step):
    """Have every call of a step fail, in turn, and print what happened. Return the exit code."""
    record(scenario, folder)  # what is imported and made once
    expected, status = in_child(lambda: record(scenario, folder)[0])
    if status:
        return 1
    failed = counted = 0
    for nth in range(0, 5000, int(step)):

        def attempt(nth=nth):
            calls, left = record(scenario, folder, fails=nth)
            # And afterwards all is well.
            with eventprof.record(memory=False) as rec:
                sum(callee(n) for n in range(100))
            return calls, left >= 0, len(rec.trace.calls)

        answer, status = in_child(attempt)
        if status:
            print(f"{scenario}: with failure {nth}: status {status}")
            return 1
        calls, none_failed, again = eval(answer)
        if again < 200:
            print(f"{scenario}: after failure {nth}: {again} calls")
            return 1
        if calls == -1:
            failed += 1
        elif repr(calls) == expected:
            counted += 1
        else:
            print(f"{scenario}: with failure {nth}: {calls}, not {expected}")
            return 1
        if none_failed:
            print(f"{scenario}: {nth} failures: {failed} said so, {counted - 1} did without")
            return 0
    return 1


sys.exit(main(*sys.argv[1:]))
