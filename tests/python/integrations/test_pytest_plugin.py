"""The plugin of pytest: limits, committed counts, recordings, and that it harms no test."""

from __future__ import annotations

import json
import xml.etree.ElementTree

import children
import pytest

import eventprof
from eventprof.answers.tree import Tree
from eventprof.plugins import difference, limits, pytest_runs, pytest_summary, snapshot, window
from eventprof.plugins.counts import Counts
from eventprof.plugins.verdict import verdict
from eventprof.recording.recorder import Recorder

PROGRAM = """
import pytest

def leaf(n):
    return n + 1

def work(n):
    kept = []
    for i in range(n):
        kept.append(leaf(i))
    return kept
"""


@pytest.fixture
def suite(pytester, monkeypatch):
    """Runs pytest over a file of tests; apart: as a process of its own."""
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    # To import the other plugins takes a second each time.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(text, *arguments, **how):
        pytester.path.joinpath("test_it.py").write_text(PROGRAM + text)
        return again(*arguments, **how)

    def again(*arguments, apart=False):
        start = pytester.runpytest_subprocess if apart else pytester.runpytest_inprocess
        return start("-p", "eventprof", *arguments)

    run.again = again
    run.path = pytester.path
    return run


def counts_of(suite, *arguments, **how):
    """{test: what was counted}."""
    suite.again("--eventprof-json=found.json", *arguments, **how)
    return json.loads((suite.path / "found.json").read_text())["tests"]


# ---- Off until asked -----------------------------------------------------------------------------


@pytest.mark.thorough
def test_nothing_is_loaded_until_a_test_asks(suite):
    done = suite(
        "import sys\ndef test_it():\n"
        "    found = [m for m in sys.modules if m.startswith(('eventprof.', 'numpy'))]\n"
        "    assert 'eventprof.plugins.pytest_runs' not in found\n"
        "    assert 'eventprof.trace' not in found and 'numpy' not in found\n",
        apart=True,
    )

    done.assert_outcomes(passed=1)
    assert "eventprof" not in done.stdout.str().partition("plugins:")[2].partition("\n")[2]


def test_without_pytest_the_error_names_the_extra(tmp_path):
    (tmp_path / "pytest.py").write_text("raise ModuleNotFoundError('no', name='pytest')\n")

    done = children.program("import eventprof.plugins.pytest_entry", status=1, cwd=tmp_path)

    assert "pip install 'eventprof[pytest]'" in done.stderr


# ---- Limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("max_calls=6", "calls: 7, more than max_calls=6"),
        ("max_c_calls=1", "c_calls: *, more than max_c_calls=1"),
        ("max_bytes=10", "bytes: * bytes, more than max_bytes=10 bytes"),
        ("max_allocations=0", "allocations: *, more than max_allocations=0"),
        ("max_peak='20 B'", "peak: * bytes, more than max_peak=20 bytes"),
        ("max_time='1 ns'", "time: *, more than max_time=1 ns"),
    ],
)
def test_a_test_above_its_limit_fails(suite, limit, message):
    done = suite(f"@pytest.mark.eventprof({limit})\ndef test_it():\n    work(5)\n")

    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines([message])


def test_a_failure_names_functions_and_lines(suite):
    done = suite("@pytest.mark.eventprof(max_calls=3)\ndef test_it():\n    work(50)\n")

    done.stdout.fnmatch_lines(["  test_it.work, test_it.py:10: calls test_it.leaf 50 times"])


def test_a_test_within_its_limits_passes(suite):
    done = suite(
        "@pytest.mark.eventprof(max_calls=7, max_c_calls=6, max_peak='1 KiB', max_retained=0,"
        " max_time='1000 s')\ndef test_it(tmp_path):\n    work(5)\n"
        "@pytest.mark.eventprof(max_calls=1000)\n"
        "@pytest.mark.parametrize('n', [1, 2])\ndef test_many(n):\n    work(n)\n"
        "class TestIt:\n    @pytest.mark.eventprof(max_calls=2)\n"
        "    def test_method(self):\n        leaf(1)\n"
        "import unittest\nclass Case(unittest.TestCase):\n"
        "    @pytest.mark.eventprof(max_calls=2)\n    def test_case(self):\n        leaf(1)\n"
    )

    done.assert_outcomes(passed=5)
    done.stdout.fnmatch_lines(["5 tests: 5 counted"])


def test_what_a_test_keeps_is_told(suite):
    done = suite(
        "KEPT = []\n@pytest.mark.eventprof(max_retained='4 KiB')\n"
        "def test_it():\n    KEPT.append(bytearray(12347))\n"
    )

    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["  test_it.test_it, test_it.py:15: allocates *, keeps 12.? KiB"])


def test_limits_of_the_ini_file_hold_for_all_and_a_mark_wins(suite):
    (suite.path / "pytest.ini").write_text("[pytest]\neventprof_max_calls = 3\n")

    done = suite(
        "def test_small():\n    leaf(1)\ndef test_large():\n    work(5)\n"
        "@pytest.mark.eventprof(max_calls=100)\ndef test_marked():\n    work(5)\n"
        "@pytest.mark.eventprof(max_calls=None)\ndef test_free():\n    work(5)\n"
    )

    done.assert_outcomes(passed=3, failed=1)
    done.stdout.fnmatch_lines(["FAILED test_it.py::test_large*"])


def test_include_chooses_what_counts(suite):
    done = suite(
        "@pytest.mark.eventprof(max_calls=5, include=['*.leaf'])\ndef test_it():\n    work(5)\n"
    )

    done.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    "mark",
    [
        "max_cals=1",
        "max_calls=-1",
        "max_calls='x'",
        "5",
        "max_peak='1 parsec'",
        "threads='my'",
        "max_calls=True",
        "max_calls=1.5",
        "max_retained=False",
        "buffer=0",
        "include='x'",
    ],
)
def test_a_wrong_mark_fails_its_test_and_says_why(suite, mark):
    done = suite(f"@pytest.mark.eventprof({mark})\ndef test_it():\n    pass\ndef test_b(): pass\n")

    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines([f"eventprof: *{mark.partition('=')[0]}*"])


def test_other_threads_do_not_count(suite):
    done = suite(
        "import threading\n@pytest.mark.eventprof(max_calls=100, threads='current')\n"
        "def test_it():\n    thread = threading.Thread(target=work, args=(1000,))\n"
        "    thread.start()\n    thread.join()\n"
    )

    done.assert_outcomes(passed=1)


def test_a_coroutine_is_counted_by_whatever_runs_it(suite):
    (suite.path / "conftest.py").write_text(
        "import asyncio, inspect, pytest\n@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_pyfunc_call(pyfuncitem):\n"
        "    if inspect.iscoroutinefunction(pyfuncitem.obj):\n"
        "        asyncio.run(pyfuncitem.obj())\n        return True\n"
    )

    done = suite(
        "import asyncio\n@pytest.mark.eventprof(max_calls=5)\n"
        "async def test_it():\n    work(5)\n    await asyncio.sleep(0)\n    work(5)\n"
    )

    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["  test_it.work, test_it.py:10: calls test_it.leaf 10 times"])


# ---- The test stays what it was ------------------------------------------------------------------


def test_outcomes_are_those_of_the_first_run(suite):
    done = suite(
        "def test_fails():\n    assert leaf(1) == 3\n"
        "def test_skips():\n    pytest.skip('no')\n"
        "@pytest.mark.xfail\ndef test_xfails():\n    assert 0\n"
        "SEEN = []\ndef test_once():\n    SEEN.append(1)\n    assert len(SEEN) == 1\n"
        "@pytest.fixture\ndef broken():\n    assert 0\ndef test_setup(broken):\n    pass\n"
        "def test_passes(tmp_path):\n    (tmp_path / 'x').mkdir()\n",
        "--eventprof-counts",
    )

    done.assert_outcomes(passed=2, failed=1, skipped=1, xfailed=1, errors=1)
    done.stdout.fnmatch_lines(
        [
            "*not counted: test_it.py::test_once",
            "  its 2. run does not pass (*): warmup=0",
            "FAILED test_it.py::test_fails - assert 2 == 3",
        ]
    )


def test_fixtures_of_each_run_are_new_and_shared_ones_stay(suite):
    done = suite(
        "MADE = []\n@pytest.fixture(scope='module')\ndef shared():\n    MADE.append('shared')\n"
        "    yield\n    print('down', MADE)\n"
        "@pytest.fixture\ndef own():\n    MADE.append('own')\n    yield\n    MADE.append('gone')\n"
        "@pytest.mark.eventprof(max_calls=10)\ndef test_it(shared, own):\n    leaf(1)\n",
        "-s",
    )

    done.assert_outcomes(passed=1)
    assert "down ['shared', 'own', 'gone', 'own', 'gone']" in done.stdout.str()


#: What fails, and what is then said; there is at least one for each hook of the plugin.
FAULTS = [
    (pytest_runs.Runs, "__init__", "no test is counted: ZeroDivisionError*"),
    (pytest_summary.Summary, "__init__", "no test is counted: ZeroDivisionError*"),
    (pytest_runs, "Window", "*division by zero"),
    (window, "_empty_caches", ""),
    (window.Window, "around", "*division by zero"),
    (window, "_generators", "*division by zero"),
    (window, "_collect", "*division by zero"),
    (window, "record", "*division by zero"),
    (pytest_runs, "_uncountable", "*division by zero"),
    (pytest_runs, "count", "*division by zero"),
    (pytest_runs, "verdict", "*division by zero"),
    (pytest_runs.Runs, "_judge", "*division by zero"),
    (pytest_runs.Runs, "_attach", "*division by zero"),
    (pytest_summary.Snapshot, "update", "not written: *division by zero"),
    (pytest_summary.Summary, "_write_json", "not written: *division by zero"),
    (pytest_summary.Summary, "_reasons", "not told: *division by zero"),
    (Recorder, "_make_trace", "*division by zero"),
    (Tree, "__init__", "*division by zero"),
    (eventprof.Trace, "save", ""),
]
TWO_TESTS = "def test_it():\n    work(5)\ndef test_bad():\n    assert 0\n"


def assert_no_test_failed_by_it(done):
    done.assert_outcomes(passed=1, failed=1)
    assert done.ret == 1
    assert "INTERNALERROR" not in done.stdout.str()


@pytest.mark.thorough
@pytest.mark.parametrize(("where", "name", "words"), FAULTS)
def test_a_fault_of_the_plugin_fails_no_test(suite, where, name, words, monkeypatch):
    monkeypatch.setattr(where, name, lambda *a, **k: 1 / 0)

    done = suite(
        TWO_TESTS,
        "--eventprof", "--eventprof-keep=all", "--eventprof-counts", "--eventprof-json=x.json",
        *(["--eventprof-update"] if where is pytest_summary.Snapshot else []),
    )  # fmt: skip

    assert_no_test_failed_by_it(done)
    if words:
        done.stdout.fnmatch_lines([f"*{words}"])


@pytest.mark.thorough
def test_hashes_that_cannot_be_fixed_fail_no_test(suite, monkeypatch):
    (suite.path / "faulty.py").write_text(
        "from eventprof.plugins import pytest_entry\n"
        "pytest_entry._fix_hashes = lambda *a, **k: 1 / 0\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(suite.path))

    done = suite(TWO_TESTS, "-p", "faulty", "--eventprof-counts", apart=True)

    assert_no_test_failed_by_it(done)


def test_the_collector_is_as_it_was(suite):
    text = (
        "import gc\nFROZEN = gc.get_freeze_count() > 1000  # 3.12 itself freezes some; some are freed\n"
        "@pytest.mark.eventprof(gc={gc!r}, warmup=0)\n"
        "def test_it():\n    assert gc.isenabled() == {on}\n"
        "def test_after():\n    assert gc.isenabled() and (gc.get_freeze_count() > 1000) == FROZEN\n"
    )

    for gc, on in (("off", False), ("before", True), ("on", True)):
        suite(text.format(gc=gc, on=on)).assert_outcomes(passed=2)


@pytest.mark.thorough
def test_a_run_does_not_collect_what_was_there_before(suite):
    done = suite(
        "import gc\n@pytest.mark.eventprof(max_calls=1, warmup=0)\n"
        "def test_it():\n    assert gc.get_freeze_count() > 1000\n",
        apart=True,
    )

    done.assert_outcomes(passed=1)


def test_callbacks_of_the_collector_do_not_count(suite):
    done = suite(
        "import gc\ndef callback(*given):\n    leaf(1)\n"
        "@pytest.fixture(autouse=True)\ndef _callback():\n    gc.callbacks.append(callback)\n"
        "    yield\n    gc.callbacks.remove(callback)\n"
        "@pytest.mark.eventprof(max_calls=1)\ndef test_it():\n    pass\n"
    )

    done.assert_outcomes(passed=1)


def test_what_hypothesis_leaves_in_the_collector_does_not_count(suite):
    # It adds its callback once in a process, so this one is made as if it were Hypothesis's.
    done = suite(
        "import gc, hypothesis\n"
        "its = {'__name__': 'hypothesis.its'}\n"
        "exec(compile('def callback(*_): str()', hypothesis.__file__, 'exec'), its)\n"
        "@pytest.mark.eventprof(max_calls=1)\ndef test_it():\n"
        "    gc.callbacks.append(its['callback'])\n    gc.collect()\n"
        "    gc.callbacks.remove(its['callback'])\n"
    )

    done.assert_outcomes(passed=1)


@pytest.mark.thorough
def test_subtests_are_reported_once_and_do_not_count(suite):
    pytest.importorskip("xdist")
    text = (
        "import unittest\nclass TestIt(unittest.TestCase):\n    def test_it(self):\n"
        "        for n in range(3):\n            with self.subTest(n=n):\n                leaf(n)\n"
    )
    suite(text, "--eventprof-counts", "--eventprof-update")
    done = suite.again("--eventprof-counts", "--junitxml=found.xml", "-n1", "-pxdist")

    done.stdout.fnmatch_lines(["1 test: 1 as counted before", "*1 passed*"])
    assert "6 subtests" not in done.stdout.str()


@pytest.mark.thorough
def test_a_test_that_records_counts_the_same_in_workers_and_in_any_order(suite):
    """What a recorder asks about its process (arguments, threads) differs in a worker, and is no call of the test."""
    pytest.importorskip("xdist")
    text = (
        "import eventprof, threading\n"
        "def recorded(**options):\n"
        "    with eventprof.record(**options) as rec:\n        work(8)\n"
        "    return len(rec.trace.threads)\n"
        "def test_in_memory():\n    recorded()\n"
        "def test_into_a_file(tmp_path):\n    recorded(output=tmp_path / 'x.epr')\n"
        "def test_without():\n    work(3)\n"
    )
    suite(text, "--eventprof-counts", "--eventprof-update", apart=True).assert_outcomes(passed=3)

    for how in (["-n2", "-pxdist"], ["-prandomly", "--randomly-seed=3"]):
        done = suite.again("--eventprof-counts", *how, apart=True)

        done.stdout.fnmatch_lines(["3 tests: 3 as counted before"])


def test_what_a_recorder_asks_about_its_process_is_no_call_of_the_test(tmp_path, monkeypatch):
    """Its answer needs other calls in a worker, whose program is given with -c, than in the first process."""
    monkeypatch.setattr("sys.argv", ["-c"])
    monkeypatch.setattr("sys.orig_argv", ["python", "-c", "work()"])
    with eventprof.record(memory=False) as outer:
        for output in (None, tmp_path / "x.epr"):
            with eventprof.record(output=output) as inner:
                pass
            assert inner.trace.metadata["argv"] == ("-c", "work()")

    found = {(row.module, row.name) for row in outer.trace.functions}
    assert not found & {("re", "match"), ("json", "dumps"), ("posix", "uname")}


# ---- Committed counts ----------------------------------------------------------------------------

TWO = "def test_a():\n    work(5)\ndef test_b():\n    work(7)\n"


def test_counts_are_written_sorted_and_compared(suite):
    written = suite(TWO, "--eventprof-counts", "--eventprof-update")
    written.stdout.fnmatch_lines(["2 tests: 2 written"])
    text = (suite.path / "eventprof.counts.json").read_text()
    known = json.loads(text)[snapshot.VERSION]["tests"]
    assert list(known) == ["test_it.py::test_a", "test_it.py::test_b"]
    assert known["test_it.py::test_a"]["calls"] == 7
    assert ["test_it.leaf", 5] in known["test_it.py::test_a"]["functions"]["test_it.work"]

    same = suite.again("--eventprof-counts")
    same.stdout.fnmatch_lines(["2 tests: 2 as counted before"])

    suite.again("--eventprof-counts", "--eventprof-update")
    assert (suite.path / "eventprof.counts.json").read_text() == text


def test_an_update_without_a_mark_says_so(suite):
    done = suite(TWO, "--eventprof-update")

    done.stdout.fnmatch_lines(["nothing written: no test has the mark; with --eventprof-counts*"])
    assert not (suite.path / "eventprof.counts.json").exists()


@pytest.mark.parametrize("option", ["--eventprof-top=3", "--eventprof-json=found.json"])
def test_an_option_that_shows_counts_says_if_there_are_none(suite, option):
    suite(TWO, option).stdout.fnmatch_lines(["no test is counted: none has the mark; *"])


def test_a_changed_count_fails_with_what_changed(suite):
    suite(TWO, "--eventprof-counts", "--eventprof-update")
    path = suite.path / "test_it.py"
    path.write_text(path.read_text().replace("append(leaf(i))", "append(leaf(i)); leaf(i)"))

    done = suite.again("--eventprof-counts")

    done.assert_outcomes(failed=2)
    done.stdout.fnmatch_lines(
        [
            "calls: 12, and eventprof.counts.json says 7",
            "  test_it.work, test_it.py:10: calls test_it.leaf 5 -> 10 times",
            "pytest --eventprof-update takes the counts of now as right",
        ]
    )


def test_counts_of_other_versions_and_of_tests_that_did_not_run_stay(suite):
    suite(TWO, "--eventprof-counts", "--eventprof-update")
    path = suite.path / "eventprof.counts.json"
    known = json.loads(path.read_text())
    known["3.9"] = {"python": "3.9.1", "tests": {}}
    known[snapshot.VERSION]["tests"]["gone.py::test_x"] = {"drifts": "it did"}
    path.write_text(json.dumps(known))

    suite.again("--eventprof-counts", "--eventprof-update", "-k", "test_a")

    found = json.loads(path.read_text())
    assert set(found) == {"format", "3.9", snapshot.VERSION}
    assert list(found[snapshot.VERSION]["tests"]) == ["test_it.py::test_a", "test_it.py::test_b"]


def test_a_test_that_drifts_is_listed_with_why_and_not_compared(suite):
    text = TWO + "RUNS = []\ndef test_drifts():\n    RUNS.append(1)\n    work(len(RUNS))\n"
    written = suite(text, "--eventprof-counts", "--eventprof-update")
    written.stdout.fnmatch_lines(
        [
            "3 tests: 2 written, 1 not compared, their counts drift",
            "counts drift: test_it.py::test_drifts",
            "  calls 4, then 5; c_calls *: test_it.*",
        ]
    )

    done = suite.again("--eventprof-counts")

    done.assert_outcomes(passed=3)


def test_new_tests_are_said_to_be_new(suite):
    suite(TWO, "--eventprof-counts", "--eventprof-update")

    done = suite(TWO + "def test_c():\n    leaf(1)\n", "--eventprof-counts")

    done.stdout.fnmatch_lines(["3 tests: 2 as counted before, 1 new: --eventprof-update*"])


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 99}'])
def test_a_file_that_is_not_one_of_counts_is_named(suite, text):
    (suite.path / "eventprof.counts.json").write_text(text)

    done = suite(TWO, "--eventprof-counts")

    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: *eventprof.counts.json: *"])


DRIFTING = """
import fnmatch, functools, json, linecache, re, textwrap

NAMES = {f"name {n}" for n in range(50)}

class Node:
    def __init__(self, n):
        self.me, self.n = self, n
    def __del__(self):
        leaf(self.n)

@functools.lru_cache
def cached(n):
    return leaf(n)

@pytest.mark.parametrize("n", range(4))
def test_caches(n):
    re.sub(f"a{n}|b", "", "text"); fnmatch.fnmatch("x", f"*{n}"); cached(n); cached(0)
    textwrap.wrap("some text " * 5); json.dumps({"n": n})

def test_hashes():
    for name in NAMES:
        if name.endswith("7"):
            break
        leaf(1)

@pytest.mark.parametrize("n", range(3))
def test_garbage(n):
    for i in range(900):
        Node(i)

def test_output(capsys, caplog):
    import logging
    print("text")
    logging.getLogger("x").warning("text")
    with pytest.raises(ValueError, match="7"):
        raise ValueError("77")
"""


@pytest.mark.slow
def test_counts_do_not_depend_on_hashes_order_workers_or_the_collector(suite):
    pytest.importorskip("xdist")
    pytest.importorskip("pytest_randomly")
    done = suite(DRIFTING, "--eventprof-counts", "--eventprof-update", apart=True)
    done.assert_outcomes(passed=9)
    known = json.loads((suite.path / "eventprof.counts.json").read_text())
    known = known[snapshot.VERSION]["tests"]

    for arguments in (["-n2", "-pxdist"], ["-prandomly"], ["-k", "garbage or hashes"]):
        found = counts_of(suite, "--eventprof-counts", *arguments, apart=True)
        assert {each["state"] for each in found.values()} == {"equal"}, arguments
        for count in ("calls", "c_calls"):
            assert {name: each[count] for name, each in found.items()} == {
                name: known[name][count] for name in found
            }, arguments


@pytest.mark.parametrize(
    ("known", "runs", "state"),
    [
        # A table of the interpreter grows in one run.
        (None, [("retained", 9000), ("retained", 0)], ""),
        (None, [("retained", 9000), ("retained", 0), ("retained", 0)], "steady"),
        (None, [("retained", 0), ("retained", 9000), ("retained", 0)], "steady"),
        (None, [("retained", 9000 * n) for n in range(4)], "drifts"),
        (0, [("retained", 9000)], ""),
        (0, [("retained", 9000), ("retained", 9000)], ""),
        (0, [("retained", 9000), ("retained", 0)], "equal"),
        (0, [("retained", 9000)] * 4, "changed"),
        (0, [("retained", 9000 * n) for n in range(1, 5)], "drifts"),
        # Calls are exact.
        (None, [("calls", 1), ("calls", 2)], "drifts"),
        (0, [("calls", 1)], ""),
        (0, [("calls", 1), ("calls", 1)], "changed"),
        (0, [("calls", 1), ("calls", 0)], "drifts"),
        (0, [("calls", 0)], "equal"),
    ],
)
def test_runs_that_differ_in_memory_are_run_again(known, runs, state):
    counted = [Counts(dict.fromkeys(limits.COUNTS, 0) | {kind: n}) for kind, n in runs]
    entry = None if known is None else dict.fromkeys(limits.COUNTS, known)

    assert verdict(counted, entry, (0.0, 10.0), repeats=True).state == state


def test_a_table_that_grows_in_one_run_neither_drifts_nor_fails(suite):
    once = (
        "RUNS, KEPT = [], []\n{mark}\ndef test_it():\n    RUNS.append(1)\n"
        "    size = 30_000 if len(RUNS) == 2 else 10\n    KEPT.append(bytearray(size))\n"
    )
    limited = suite(once.format(mark="@pytest.mark.eventprof(max_retained='4 KiB')"))
    limited.assert_outcomes(passed=1)

    written = suite(once.format(mark=""), "--eventprof-counts", "--eventprof-update")
    written.stdout.fnmatch_lines(["1 test: 1 written"])
    found = counts_of(suite, "--eventprof-counts")

    assert {each["state"] for each in found.values()} == {"equal"}


def test_a_trace_function_such_as_that_of_coverage_does_not_count(suite, monkeypatch):
    text = (
        "import os, sys\nseen = set()\ndef trace(frame, *_):\n"
        "    seen.add(frame.f_code.co_name)\n    return trace\n"
        "@pytest.fixture(autouse=True)\ndef _traced():\n"
        "    sys.settrace(trace if 'TRACED' in os.environ else None)\n    yield\n"
        "    assert 'TRACED' not in os.environ or sys.gettrace() is trace\n    sys.settrace(None)\n"
        "def test_it():\n    work(40)\n"
        "def test_last():\n    assert ('leaf' in seen) == ('TRACED' in os.environ)\n"
    )
    suite(text, "--eventprof-counts", "--eventprof-update")
    monkeypatch.setenv("TRACED", "1")
    done = suite.again("--eventprof-counts")

    done.stdout.fnmatch_lines(["2 tests: 2 as counted before"])


def test_the_first_instances_of_a_class_do_not_drift(suite):
    one = "class C{0}:\n    def __init__(self):\n        self.name = {0}\n"
    classes = "".join(one.format(n) for n in range(12))
    counted = "def test_b():\n    [c() for c in CLASSES for _ in '12']\n"
    text = classes + f"CLASSES = {', '.join(f'C{n}' for n in range(12))}\n{counted}"
    before = "def test_a():\n    [c() for c in CLASSES for _ in range(99)]\n"
    suite(text + before, "--eventprof-counts", "--eventprof-update", "-k", "test_b")
    others = suite(text.replace(counted, before + counted), "--eventprof-counts")
    suite.again("--eventprof-counts", "--eventprof-update")
    alone = suite(text, "--eventprof-counts")

    others.stdout.fnmatch_lines(["2 tests: 1 as counted before, 1 new*"])
    alone.stdout.fnmatch_lines(["1 test: 1 as counted before"])


def test_generators_of_random_numbers_that_modules_keep_are_seeded(suite):
    text = (
        "import random\nOWN = random.Random()\ndef test_it():\n"
        "    for _ in range(OWN.randrange(10**6) % 50):\n        leaf(1)\n"
        "    for _ in range(random.randrange(10**6) % 50):\n        leaf(1)\n"
    )
    written = suite(text, "--eventprof-counts", "--eventprof-update")

    written.stdout.fnmatch_lines(["1 test: 1 written"])
    assert {each["state"] for each in counts_of(suite, "--eventprof-counts").values()} == {"equal"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("eventprof_tolerance_bytes = few", "*eventprof_tolerance_bytes must be a number*'few'*"),
        ("eventprof_tolerance_calls = -1", "*eventprof_tolerance_calls must be a number*'-1'*"),
    ],
)
def test_a_wrong_tolerance_is_named(suite, line, message):
    (suite.path / "pytest.ini").write_text(f"[pytest]\n{line}\n")

    done = suite(TWO, "--eventprof-counts")

    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([message])


# ---- Recordings and reports ----------------------------------------------------------------------


def test_failures_keep_their_recording(suite):
    done = suite(TWO + "def test_bad():\n    work(3)\n    assert 0\n", "--eventprof")

    done.assert_outcomes(passed=2, failed=1)
    paths = list((suite.path / ".eventprof").glob("*.epr"))
    assert [path.name for path in paths] == ["test_it.py-test_bad.epr"]
    trace = eventprof.open(paths[0])
    assert {row.name: row.calls for row in trace.functions if row.calls}["leaf"] == 3
    done.stdout.fnmatch_lines(["*eventprof report .eventprof/test_it.py-test_bad.epr"])


def test_a_changed_count_keeps_its_recording(suite):
    suite(TWO, "--eventprof-counts", "--eventprof-update")

    done = suite(TWO.replace("5", "6"), "--eventprof", "--eventprof-counts")

    done.assert_outcomes(passed=1, failed=1)
    paths = list((suite.path / ".eventprof").glob("*.epr"))
    assert [path.name for path in paths] == ["test_it.py-test_a.epr"]
    done.stdout.fnmatch_lines(["  eventprof report .eventprof/test_it.py-test_a.epr"])


def test_all_recordings_are_kept_if_asked(suite):
    suite(TWO, "--eventprof", "--eventprof-keep=all", "--eventprof-dir=there")

    assert len(list((suite.path / "there").glob("*.epr"))) == 2


def test_the_counts_are_in_junit_json_and_the_terminal(suite):
    done = suite(
        TWO, "--eventprof", "--eventprof-top=1", "--junitxml=x.xml", "--eventprof-json=x.json"
    )

    done.stdout.fnmatch_lines(["calls  c calls * test", "    9        [78] * test_it.py::test_b"])
    cases = xml.etree.ElementTree.parse(suite.path / "x.xml").iter("testcase")
    found = {
        case.get("name"): {each.get("name"): each.get("value") for each in case.iter("property")}
        for case in cases
    }
    assert found["test_a"]["eventprof_calls"] == "7"
    assert (
        json.loads((suite.path / "x.json").read_text())["tests"]["test_it.py::test_a"]["calls"] == 7
    )


# ---- Units ---------------------------------------------------------------------------------------


def test_an_explanation_has_fifteen_lines_at_most():
    now = Counts(functions={f"f{n}": [("g", n + 1, 0, 0)] for n in range(40)})
    now.places = {name: [("f.py", 3)] for name in now.functions}

    text = difference.explain(["a", "b"], ["calls"], difference.changes({}, now), ["end"])

    lines = text.splitlines()
    assert len(lines) == 15
    assert lines[2] == "  f39, f.py:3: calls g 0 -> 40 times"
    assert lines[-2] == "  ... and 29 more lines of functions"


def test_functions_that_changed_come_before_those_that_they_call():
    before = {
        "main": [("work", 1, 0, 0)],
        "work": [("leaf", 5, 0, 0)],
        "leaf": [("len", 500, 0, 0)],
    }
    now = Counts(functions={"main": [("work", 1, 0, 0)], "work": [("leaf", 6, 0, 0)], "leaf": [("len", 600, 0, 0)]})  # fmt: skip
    now.places = {name: [("f.py", 3)] for name in now.functions}

    found = difference.changes(before, now)

    assert [(each.function, each.is_cause) for each in found] == [("leaf", False), ("work", True)]
    assert "work, f.py" in difference.explain([], ["calls", "c_calls"], found, []).splitlines()[0]


@pytest.mark.parametrize(
    ("before", "after", "pairs"),
    [
        ("aab", "aab", [(0, 0), (1, 1), (2, 2)]),
        ("ab", "acb", [(0, 0), (None, 1), (1, 2)]),
        ("acb", "ab", [(0, 0), (1, None), (2, 1)]),
        ("", "a", [(None, 0)]),
    ],
)
def test_rows_are_aligned_by_what_is_called(before, after, pairs):
    def rows(text):
        return [(letter, 1, 0, 0) for letter in text]

    assert list(difference.aligned(rows(before), rows(after))) == pairs


def test_tolerances():
    known = {
        "calls": 10,
        "c_calls": 10,
        "allocations": 1000,
        "bytes": 100_000,
        "peak": 10,
        "retained": 0,
    }

    def found(**changed):
        return snapshot.differing(known, known | changed, 0, 10)

    assert found(calls=11) == ["calls"] and found(c_calls=9) == ["c_calls"]
    assert found(bytes=109_999) == [] and found(bytes=110_001) == ["bytes"]
    assert found(retained=2048) == [] and found(retained=2049) == ["retained"]
    assert snapshot.differing(known, known | {"peak": 11}, 0, 0) == ["peak"]


def test_what_is_asked_of_a_test():
    asked = limits.wanted(
        {"max_calls": "5", "warmup": "1", "include": []}, {"max_peak": "1 KiB", "warmup": 0}
    )

    assert asked.most == {"calls": 5, "peak": 1024}
    assert (asked.warmup, asked.include) == (0, ())
