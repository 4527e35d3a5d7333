"""The module that pytest loads: options and the mark. It loads the rest if a test asks for it."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

try:
    import pytest
except ModuleNotFoundError as error:
    if error.name != "pytest":
        raise
    raise ModuleNotFoundError(
        "eventprof.plugins.pytest_entry needs pytest, which is not installed: "
        "pip install 'eventprof[pytest]'",
        name="pytest",
    ) from None

MARK = (
    "eventprof(max_calls, max_c_calls, max_allocations, max_bytes, max_peak, max_retained, "
    "max_time, include, warmup, threads, gc, buffer): limits on what the test calls and allocates"
)
#: Limits for all tests in the ini file: name, what is limited.
INI = (
    ("max_calls", "calls of Python functions"),
    ("max_c_calls", "calls of functions that are not written in Python"),
    ("max_allocations", "blocks allocated"),
    ("max_bytes", "bytes allocated"),
    ("max_peak", "bytes that live at once"),
    ("max_retained", "bytes that are alive after the test"),
    ("max_time", "time, as '10 ms'"),
)
_OLDEST = (8, 0)
_NOT_ASKED = (
    "no test is counted: none has the mark; --eventprof-counts counts all, --eventprof records them"
)


def pytest_addoption(parser: Any) -> None:
    """Add the options."""
    group = parser.getgroup("eventprof", "eventprof: calls and memory of tests")
    add = group.addoption
    add("--eventprof", action="store_true", help="record every test, into one archive each")
    add("--eventprof-keep", choices=("failures", "all"), default="failures",
        help="whose archives are kept (failures)")  # fmt: skip
    add("--eventprof-dir", metavar="DIR", default=".eventprof", help="their folder (.eventprof)")
    add("--eventprof-top", metavar="N", type=int, default=0,
        help="show the N counted tests that called most")  # fmt: skip
    add("--eventprof-json", metavar="FILE", help="write the counts of each counted test")
    add("--eventprof-counts", action="store_true",
        help="count every test, and compare with the committed counts")  # fmt: skip
    add("--eventprof-update", action="store_true", help="write the counts instead of comparing")
    for name, what in INI:
        parser.addini(f"eventprof_{name}", f"the most {what} of any test")
    parser.addini("eventprof_counts", "as --eventprof-counts", type="bool", default=False)
    parser.addini("eventprof_file", "the file of counts", default="eventprof.counts.json")
    parser.addini("eventprof_functions", "keep the counts of each function, too: a failure names "
                  "what changed", type="bool", default=True)  # fmt: skip
    parser.addini("eventprof_include", "globs: the functions that count", type="args")
    parser.addini("eventprof_warmup", "runs of a test before the one that counts", default="1")
    parser.addini("eventprof_threads", "current or all", default="current")
    parser.addini("eventprof_gc", "the collector in a counted run: off, before, on", default="off")
    parser.addini("eventprof_buffer", "memory for the events of a run", default="256 MiB")
    parser.addini("eventprof_tolerance_calls", "in percent", default="0")
    parser.addini("eventprof_tolerance_bytes", "in percent", default="10")
    parser.addini("eventprof_hash_seed", "for counts of a suite; or 'random'", default="0")


@pytest.hookimpl(tryfirst=True, hookwrapper=True)
def pytest_load_initial_conftests(early_config: Any) -> Any:
    """Start pytest again with fixed hashes, if the counts of all tests are compared or written."""
    asked = early_config.known_args_namespace
    if (
        asked.eventprof_counts
        or asked.eventprof_update
        or early_config.getini("eventprof_counts") is True
    ):
        given = tuple(map(str, early_config.invocation_params.args))
        if given == tuple(sys.argv[1:]):  # this is not pytest.main() in another program
            with contextlib.suppress(Exception):  # hashes stay random then; a failure says so
                _fix_hashes(str(early_config.getini("eventprof_hash_seed")))
    yield


def _fix_hashes(seed: str) -> None:
    """Replace this process by one with PYTHONHASHSEED, if it runs only pytest."""
    if not seed.isdecimal() or os.environ.get("PYTHONHASHSEED", "random") not in ("", "random"):
        return
    script = os.path.basename(sys.argv[0])
    is_pytest = script in ("pytest", "py.test") or sys.argv[0].endswith("pytest/__main__.py")
    if is_pytest and not sys.flags.ignore_environment and sys.gettrace() is None:
        sys.stdout.flush()
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def pytest_configure(config: Any) -> None:
    """Declare the mark; load the rest of the plugin if an option needs it."""
    config.addinivalue_line("markers", MARK)
    option = config.option
    if (
        option.eventprof
        or option.eventprof_counts
        or option.eventprof_update
        or config.getini("eventprof_counts")
        or any(config.getini(f"eventprof_{name}") for name, _ in INI)
    ):
        _load(config)


def pytest_collection_finish(session: Any) -> None:
    """Load the rest of the plugin if a test has the mark."""
    manager, option = session.config.pluginmanager, session.config.option
    if any(item.get_closest_marker("eventprof") for item in session.items):
        _load(session.config)
    elif (option.eventprof_top or option.eventprof_json) and not (
        manager.has_plugin("eventprof-runs") or getattr(option, "numprocesses", None)
    ):  # with pytest-xdist, only the workers know the tests
        manager.register(_Nothing(_NOT_ASKED), "eventprof-runs")


def _load(config: Any) -> None:
    if config.pluginmanager.has_plugin("eventprof-runs"):
        return
    if sys.implementation.name != "cpython":
        nothing = _Nothing("no test is counted: eventprof counts tests on CPython alone")
        config.pluginmanager.register(nothing, "eventprof-runs")
        return
    if pytest.version_tuple[:2] < _OLDEST:
        raise pytest.UsageError(
            f"eventprof counts tests with pytest {_OLDEST[0]} or later, this is "
            f"{pytest.__version__}: pip install 'eventprof[pytest]'"
        )
    try:
        from .pytest_runs import Runs
        from .pytest_summary import Summary

        summary, runs = Summary(config), Runs(config)
    except pytest.UsageError:
        raise
    except Exception as error:  # of eventprof: the tests run, and nothing is counted
        text = f"no test is counted: {type(error).__name__}: {error}"
        config.pluginmanager.register(_Nothing(text), "eventprof-runs")
        return
    config.pluginmanager.register(summary, "eventprof-summary")
    config.pluginmanager.register(runs, "eventprof-runs")


class _Nothing:
    """Explains why no test is counted. ``filterwarnings = error`` makes a warning an error."""

    def __init__(self, why: str) -> None:
        self._why = why

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print it."""
        terminalreporter.section("eventprof", sep="-", blue=True)
        terminalreporter.line(self._why)
