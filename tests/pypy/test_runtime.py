"""What PyPy's compiler and garbage collector tell, against what the interpreter prints."""

import gc
import json
import re
import subprocess
import sys
import textwrap

import programs
import pytest

import eventprof
from eventprof._pypy import runtime

QUIET = {"calls": False, "c_calls": False}

#: A function whose loop is compiled, with bridges.
HOT = """
import json
import sys
import eventprof
import pypyjit

def hot(n):
    total = 0
    for i in range(n):
        if i % 3:
            total += i
        elif i % 5:
            total -= 1
    return total
"""

#: One that is too long for that: a trace may have 6000 operations.
LONG = """
lines = "".join(f"        s += i * {k}; s ^= {k}; s = abs(s) % 1000003\\n" for k in range(700))
exec("def long(n):\\n    s = 0\\n    for i in range(n):\\n" + lines + "    return s\\n")
"""


def run(body, log=None, *options):
    """Run a program in a fresh interpreter; give what it printed as JSON last, and its log."""
    environment = {**__import__("os").environ}
    if log is not None:
        environment["PYPYLOG"] = f"jit-summary:{log}"
    done = subprocess.run(
        [sys.executable, *options, "-c", HOT + textwrap.dedent(body)],
        env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def summary(path):
    """PYPYLOG's jit-summary: {line's name: number}."""
    return {
        found[1].strip(): int(found[2])
        for found in re.finditer(r"^(\S[^\n]*?):\s+(\d+)", path.read_text(), re.MULTILINE)
    }


def test_loops_and_bridges_are_those_of_jit_summary(tmp_path):
    log = tmp_path / "log"
    answer = run(
        """
        import json
        with eventprof.record(calls=False, c_calls=False, gc=False) as rec:
            hot(100_000)
        # Nothing is compiled from here on, so that the log says what there is now.
        pypyjit.set_param(trace_eagerness=10**9, threshold=10**9, function_threshold=10**9)
        after = eventprof.stats_snapshot()
        jit = rec.trace.jit
        print(json.dumps({
            "before": rec._session.runtime._first and rec._session.runtime._first.counters,
            "after": after.counters,
            "stats": rec.trace.stats.counters,
            "rows": [[r.event, r.type, r.name, r.line, r.asmlen, r.loop, r.bridge, r.reason]
                     for r in jit],
        }))
        """,
        log,
    )

    shown = summary(log)
    assert shown["Total # of loops"] == answer["after"]["TOTAL_COMPILED_LOOPS"]
    assert shown["Total # of bridges"] == answer["after"]["TOTAL_COMPILED_BRIDGES"]
    before = answer["before"] or {"TOTAL_COMPILED_LOOPS": 0, "TOTAL_COMPILED_BRIDGES": 0}
    compiled = [row for row in answer["rows"] if row[0] == "jit_compile"]
    bridges = [row for row in compiled if row[1] == "bridge"]
    loops = [row for row in compiled if row[1] != "bridge"]
    assert len(loops) == shown["Total # of loops"] - before["TOTAL_COMPILED_LOOPS"]
    assert len(bridges) == shown["Total # of bridges"] - before["TOTAL_COMPILED_BRIDGES"]
    assert answer["stats"]["TOTAL_COMPILED_LOOPS"] == len(loops)
    assert loops and bridges
    assert {"loop"} <= {row[1] for row in loops} <= {"loop", "entry bridge"}
    assert all(row[4] > 0 and row[5] is not None for row in compiled)
    assert all((row[6] is not None) == (row[1] == "bridge") for row in compiled)


def test_the_green_key_is_a_function_and_a_line():
    answer = run(
        """
        import json
        with eventprof.record(calls=False, c_calls=False, gc=False) as rec:
            hot(100_000)
        functions = list(rec.trace.functions)
        print(json.dumps({
            "first": hot.__code__.co_firstlineno,
            "rows": [[r.name, r.line, functions[r.function].line, r.jitdriver, r.instruction]
                     for r in rec.trace.jit if r.type == "loop" and r.name == "hot"],
        }))
        """
    )

    assert answer["rows"]
    for name, line, first, jitdriver, instruction in answer["rows"]:
        assert (name, jitdriver) == ("hot", "pypyjit")
        assert first == answer["first"] and line == answer["first"] + 2
        assert instruction > 0


#: What jit-summary calls the reasons.
ABORTS = {
    "abort: trace too long": "ABORT_TOO_LONG",
    "abort: compiling": "ABORT_BRIDGE",
    "abort: vable escape": "ABORT_ESCAPE",
    "abort: bad loop": "ABORT_BAD_LOOP",
    "abort: force quasi-immut": "ABORT_FORCE_QUASIIMMUT",
    "abort: segmenting trace": "ABORT_SEGMENTED_TRACE",
}


def test_aborts_have_their_reason_and_no_more_of_them_than_counted(tmp_path):
    log = tmp_path / "log"
    answer = run(
        LONG
        + """
with eventprof.record(calls=False, c_calls=False, gc=False) as rec:
    long(1200)
# Nothing is traced from here on, so that the log says what there is now.
pypyjit.set_param(trace_eagerness=10**9, threshold=10**9, function_threshold=10**9)
after = eventprof.stats_snapshot()
rows = [row for row in rec.trace.jit if row.event == "jit_abort"]
print(json.dumps({
    "after": after.counters,
    "tracing": [after.counters[name] for name in ("TRACING", "BACKEND")],
    "stats": rec.trace.stats.counters,
    "reasons": [row.reason for row in rows],
    "names": [row.name for row in rows],
}))
""",
        log,
    )

    shown = summary(log)
    reasons = answer["reasons"]
    for line, name in ABORTS.items():
        assert shown[line] == answer["after"][name], line
    assert shown["abort: trace too long"] >= reasons.count("ABORT_TOO_LONG") > 0
    assert [shown["Tracing"], shown["Backend"]] == answer["tracing"]
    assert "ABORT_TOO_LONG" in reasons and "long" in answer["names"]
    for reason in set(reasons):
        assert reasons.count(reason) <= answer["stats"][reason]


def too_long_inside_and_after(calls, *options):
    """Whether a trace of so many operations was given up in a window, and after it."""
    return run(
        f"""
        lines = "".join(f"  s += i * {{k}}; s ^= {{k}}\\n" for k in range(700))
        source = "def long(n):\\n s = 0\\n for i in range(n):\\n" + lines + " return s\\n"
        def given_up(**calls):
            with eventprof.record(gc=False, jit=True, **calls) as rec:
                with eventprof.record(jit=False, calls=False, c_calls=False):
                    pass  # one that ends takes nothing from the other
                space = {{}}
                exec(source, space)
                space["long"](1200)
            rows = [row for row in rec.trace.jit if row.event == "jit_abort"]
            return any(row.name == "long" and row.reason == "ABORT_TOO_LONG" for row in rows)
        print(json.dumps([given_up(calls={calls}, c_calls={calls}),
                          given_up(calls=False, c_calls=False)]))
        """,
        None,
        *options,
    )


def test_traces_may_be_longer_while_calls_are_recorded():
    assert too_long_inside_and_after(True) == [False, True]
    assert too_long_inside_and_after(False) == [True, True]
    assert too_long_inside_and_after(True, "--jit", "trace_limit=6000") == [True, True]


def test_operations_are_kept_on_request_alone():
    answer = run(
        """
        import json
        found = []
        for operations, function in ((False, hot), (True, hot)):
            with eventprof.record(calls=False, c_calls=False, gc=False,
                                  operations=operations) as rec:
                exec("def again(n):\\n for i in range(n): i + 1\\nagain(100_000)", {})
            found.append([r.operations for r in rec.trace.jit if r.type == "loop"])
        print(json.dumps(found))
        """
    )

    without, kept = answer
    assert without and all(one is None for one in without)
    assert kept and any("int_add" in operation for one in kept for operation in one)


def test_jit_events_are_on_the_timeline():
    answer = run(
        """
        import json
        with eventprof.record(gc=False) as rec:
            hot(100_000)
        times = list(rec.trace.events["time"])
        words = list(rec.trace.events["event"])
        print(json.dumps([words, times == sorted(times), len(rec.trace.jit)]))
        """
    )

    words, in_order, count = answer
    assert in_order and count > 0
    assert sum(word.startswith("jit_") for word in words) == count
    first = next(number for number, word in enumerate(words) if word.startswith("jit_"))
    assert words.index("call") < first < len(words) - 1 - words[::-1].index("return")


def test_a_snapshot_before_the_first_trace_is_none():
    answer = run(
        '''
        import json
        print(json.dumps([pypyjit.get_stats_asmmemmgr()[0], eventprof.stats_snapshot()]))
        ''',
        None, "--jit", "off",
    )  # fmt: skip

    assert answer == [0, None]


def test_a_window_without_the_compiler_works():
    answer = run(
        '''
        import json
        with eventprof.record() as rec:
            hot(10)
        print(json.dumps([len(rec.trace.jit), rec.trace.stats]))
        ''',
        None, "--jit", "off",
    )  # fmt: skip

    assert answer == [0, None]


def test_a_hook_that_fails_is_counted_and_not_raised(monkeypatch):
    with eventprof.record(gc=False, **QUIET) as rec:
        runtime._on_compile(None)  # has none of the attributes

    assert rec.trace.loss.by_kind == {"jit or gc": 1}


def test_more_than_the_limit_is_counted(monkeypatch):
    monkeypatch.setattr(runtime, "LIMIT", 2)
    with eventprof.record(gc=False, **QUIET) as rec:
        for _ in range(5):
            runtime._on_trace_too_long("pypyjit", (programs.fib.__code__, 0, False))

    named = [row for row in rec.trace.jit if row.name == "fib"]
    assert len(rec.trace.jit) == 2 and len(named) <= 2
    assert rec.trace.loss.total >= 3


# ---- The garbage collector -----------------------------------------------------------------------


def collect_until(collections, wanted):
    """Collect until the hooks were called: they are at some later instruction."""
    for _ in range(1000):
        gc.collect()
        if wanted <= {word for word, _ in collections}:
            return
    raise AssertionError(f"no {wanted - {word for word, _ in collections}} after 1000 collections")


def test_collections_are_those_that_gc_hooks_tells():
    collections = []
    gc.hooks.on_gc_minor = lambda stats: collections.append(("gc_minor", stats.count))
    gc.hooks.on_gc_collect_step = lambda stats: collections.append(("gc_collect_step", stats.count))
    gc.hooks.on_gc_collect = lambda stats: collections.append(("gc_collect", stats.count))
    before = [gc.hooks.on_gc_minor, gc.hooks.on_gc_collect_step, gc.hooks.on_gc_collect]
    try:
        # Ours calls the one that was there: it has just what is recorded.
        with eventprof.record(jit=False, **QUIET) as rec:
            del collections[:]
            first = len(rec._session.runtime.happenings())
            collect_until(collections, {"gc_minor", "gc_collect_step", "gc_collect"})
            last = len(rec._session.runtime.happenings())
            expected = collections[:]
        after = [gc.hooks.on_gc_minor, gc.hooks.on_gc_collect_step, gc.hooks.on_gc_collect]
    finally:
        gc.hooks.reset()

    rows = list(rec.trace.gc)[first:last]
    assert [(row.event, row.count) for row in rows] == expected
    assert before == after
    minor = next(row for row in rows if row.event == "gc_minor")
    assert minor.total_memory_used > 0 and minor.duration >= 0
    step = next(row for row in rows if row.event == "gc_collect_step")
    assert step.oldstate in runtime.GC_STATES
    full = next(row for row in rows if row.event == "gc_collect")
    assert full.num_major_collects > 0 and full.arenas_bytes >= 0


def test_the_hooks_are_gone_after_the_last_recorder():
    with eventprof.record(jit=False, **QUIET):
        with eventprof.record(jit=False, **QUIET):
            during = gc.hooks.on_gc_minor
        still = gc.hooks.on_gc_minor

    assert during is still is runtime._on_minor
    assert gc.hooks.on_gc_minor is None


def test_a_gc_hook_that_took_over_stays_and_is_said():
    def other(stats):
        pass

    try:
        with eventprof.record(jit=False, **QUIET) as rec:
            gc.hooks.on_gc_minor = other
        assert gc.hooks.on_gc_minor is other
    finally:
        gc.hooks.reset()

    assert rec.displaced == ("gc.hooks.on_gc_minor",)


@pytest.mark.parametrize("which", ["jit", "gc"])
def test_one_can_be_off(which):
    with eventprof.record(**{which: False}, **QUIET) as rec:
        runtime._on_trace_too_long("pypyjit", None)
        gc.collect()

    assert len(getattr(rec.trace, which)) == 0
