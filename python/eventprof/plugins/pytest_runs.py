"""Runs the tests that are counted: first unrecorded, then recorded, each run with its fixtures.

Errors of the plugin are shown in the summary. They never change the outcome of a test.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import call_and_report

from .._words import plural, show_bytes, show_ns
from ..base import output
from .counts import Counts, count
from .difference import changes, explain
from .limits import COUNTS, SIZES, Wanted, wanted
from .pytest_summary import DOES_NOT_PASS
from .snapshot import Snapshot, differing, entry, rows_of
from .verdict import CALLS, MOST_RUNS, Verdict, verdict
from .window import Window, say, settle_classes, steady_caches

_DEFAULTS = ("include", "warmup", "threads", "gc", "buffer", *(f"max_{w}" for w in COUNTS))


class Result:
    """The result of counting a test; `data` is sent with the test's report.

    Attributes
    ----------
    data : dict
        ``state``: recorded, counted (there was nothing to compare with), equal, new, written,
        changed, limit, drifts, uncounted. ``why``: the reason for drifts and uncounted. The counts,
        by the words of COUNTS. ``archive``: a path.
    failure : str
        The message of a failure; empty if the test does not fail.
    """

    def __init__(self) -> None:
        self.data: dict[str, Any] = {"state": "uncounted", "why": ""}
        self.failure = ""


class Runs:
    """The hooks around a test.

    Parameters
    ----------
    config : pytest.Config
        The configuration of this session.
    """

    def __init__(self, config: Any) -> None:
        self._config = config
        self._archives = config.option.eventprof
        self._updates = config.option.eventprof_update
        self._all = config.option.eventprof_counts or config.getini("eventprof_counts")
        self._ini = {name: config.getini(f"eventprof_{name}") for name in (*_DEFAULTS, "max_time")}
        self._limits_all = any(self._ini[name] for name in self._ini if name.startswith("max_"))
        self._tolerances = _percent(config, "calls"), _percent(config, "bytes")
        try:
            self._snapshot = Snapshot(config.rootpath / config.getini("eventprof_file"))
        except ValueError as error:
            raise pytest.UsageError(str(error)) from None
        self._tools = tuple(_tools(config))
        self._window: Window | None = None
        _load()

    # ---- Hooks -----------------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> bool | None:
        """Run a test that is counted."""
        option = self._config.option
        mark = item.get_closest_marker("eventprof")
        counts = mark is not None or self._all or self._limits_all
        if not (counts or self._archives) or option.setuponly or option.setupplan:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._reports(item, nextitem, mark, counts):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: Any) -> Iterator[None]:
        """Record only the test function, not its fixtures."""
        window, self._window = self._window, None
        if window is None:
            return (yield)
        function = item.obj
        try:
            item.obj = window.around(function)
        except Exception as error:
            window.problem = say(error)
        try:
            return (yield)
        finally:
            item.obj = function

    # ---- One test --------------------------------------------------------------------------------

    def _reports(self, item: Any, nextitem: Any, mark: Any, counts: bool) -> list[Any]:
        """Run a test, and give the reports of its first run, with the counts."""
        result = Result()
        asked = Wanted()
        try:
            uncountable = _uncountable(item)
            asked = self._wanted(mark)
        except (TypeError, ValueError, MemoryError) as error:
            whose = "its mark" if mark is not None else "the ini file"
            uncountable, result.failure = f"of {whose}: {error}", f"eventprof: {error}"
        except Exception as error:
            uncountable = say(error)
        if uncountable:
            result.data["why"] = uncountable
            reports = self._once(item, None, lambda _: nextitem)
        else:
            with steady_caches():
                reports = self._repeated(item, nextitem, asked, counts, result)
        try:
            self._attach(item, reports, result)
        except Exception as error:
            reports[-1].eventprof = {"state": "uncounted", "why": say(error)}
        return reports

    def _wanted(self, mark: Any) -> Wanted:
        if mark is not None and mark.args:
            raise TypeError(
                f"the mark eventprof takes arguments by name, as max_calls=100, not {mark.args!r}"
            )
        return wanted(self._ini, {} if mark is None else mark.kwargs)

    def _repeated(
        self, item: Any, nextitem: Any, asked: Wanted, counts: bool, result: Result
    ) -> list[Any]:
        """Run a test as often as its counts need."""
        most = asked.warmup + MOST_RUNS if counts else 1
        first: list[Any] = []
        recorded: Window | None = None  # the run that is reported
        counted: list[Counts] = []
        time = 0
        for turn in range(most):
            records = turn >= asked.warmup or self._archives
            try:
                window = Window(asked, records, steady=counts and turn >= asked.warmup)
            except Exception as error:
                result.data["why"] = say(error)
                return first or self._once(item, None, lambda _: nextitem)

            def following(reports: list[Any], turn: int = turn, window: Window = window) -> Any:
                # Decided before the teardown: if there is a next run, shared fixtures stay.
                try:
                    if turn >= asked.warmup or not counts:
                        self._take(window, counted, result, counts)
                    again = _passed(reports) and turn + 1 < most
                    if again and turn >= asked.warmup:
                        again = self._is_another_needed(item, asked, counted)
                        if again and window.trace is not None:
                            settle_classes(window.trace)
                except Exception as error:
                    result.data["why"], again = say(error), False
                return item.parent if again else nextitem

            chosen: list[Any] = []
            with _no_reports_of_subtests(item) if turn else contextlib.nullcontext():
                reports = self._once(item, window, following, chosen)
            if turn == 0:
                first, recorded = reports, window
            if turn < max(asked.warmup, 1):
                time = window.time
            if chosen[0] is not item.parent:
                break
        if reports is not first:
            if not _passed(reports):
                failed = next((each for each in reports if each.failed), reports[0])
                lines = str(getattr(failed, "longreprtext", "")).strip().splitlines() or [""]
                result.data["why"] = f"its {turn + 1}. run does not pass ({lines[-1]}): warmup=0"
                counted.clear()
            # Shared fixtures were torn down in the last run, so its teardown report counts.
            first = [*first[:-1], reports[-1]] if first[-1].passed else first
        elif not _passed(first):
            result.data["why"] = DOES_NOT_PASS
            counted.clear()
        try:
            if counted and counts:
                self._judge(item, asked, counted, time, result)
        except Exception as error:
            result.data["why"] = say(error)
        if self._archives and recorded is not None:
            self._archive(item, recorded, result, _passed(first) and not result.failure)
        return first

    def _once(
        self,
        item: Any,
        window: Window | None,
        following: Callable[[list[Any]], Any],
        chosen: list[Any] | None = None,
    ) -> list[Any]:
        """Run a test with its fixtures, as _pytest.runner.runtestprotocol does, but log nothing."""
        if hasattr(item, "_request") and not item._request:
            item._initrequest()
        try:
            reports = [call_and_report(item, "setup", log=False)]
            if reports[0].passed:
                self._window = window
                reports.append(call_and_report(item, "call", log=False))
            nextitem = following(reports)
            if chosen is not None:
                chosen.append(nextitem)
            if item.session.shouldfail or item.session.shouldstop:
                nextitem = None
            reports.append(call_and_report(item, "teardown", log=False, nextitem=nextitem))
        finally:
            self._window = None
            if hasattr(item, "_request"):
                item._request = False
                item.funcargs = None
        return reports

    # ---- What was counted ------------------------------------------------------------------------

    def _take(self, window: Window, counted: list[Counts], result: Result, counts: bool) -> None:
        """Count what a window recorded."""
        try:
            if window.problem or window.trace is None:
                result.data["why"] = window.problem
                return
            found = count(window.trace, self._tools)
        except Exception as error:
            result.data["why"] = say(error)
            return
        if found.lost:
            result.data["why"] = (
                f"{plural(found.lost, 'event')} found no room: the ini option eventprof_buffer, or "
                "buffer= of the mark, makes more"
            )
            return
        counted.append(found)
        if not counts:
            result.data = {"state": "recorded", **found.sums}

    def _is_another_needed(self, item: Any, asked: Wanted, counted: list[Counts]) -> bool:
        """Whether the runs until now do not say enough."""
        if not counted or len(counted) >= MOST_RUNS:
            return False
        over = _over(asked, counted)
        return any(each not in CALLS for each in over) or not self._verdict(item, counted).state

    def _verdict(self, item: Any, counted: list[Counts]) -> Verdict:
        known = None if self._updates else self._snapshot.tests.get(item.nodeid)
        if known and "drifts" in known:
            known = None
        return verdict(counted, known, self._tolerances, self._updates)

    def _judge(
        self, item: Any, asked: Wanted, counted: list[Counts], time: int, result: Result
    ) -> None:
        """Compare with limits and with the snapshot."""
        text = self._verdict(item, counted)
        if not text.state:
            result.data["why"] = result.data["why"] or "only one of its runs could be counted"
            return
        found = text.counts
        result.data |= {"state": "counted", "why": "", **found.sums, "time": time}
        known = self._snapshot.tests.get(item.nodeid)
        if text.state == "drifts":
            why = _drift(found, text.other, self._tolerances)
            result.data |= {"state": "drifts", "why": why, "entry": {"drifts": why}}
        elif self._updates:
            functions = self._config.getini("eventprof_functions")
            result.data |= {"state": "written", "entry": entry(found, functions)}
        elif known and "drifts" in known:
            result.data |= {"state": "drifts", "why": known["drifts"]}
        elif known:
            result.data["state"] = text.state
            if text.state == "changed":
                result.failure = self._changed(item, known, found)
        elif self._snapshot.tests or self._all:
            result.data["state"] = "new"
        over = _over(asked, counted)
        if "time" in asked.most and time > asked.most["time"]:
            over.append("time")
        if over:
            smallest = min(counted, key=lambda each: each.sums.get(over[0], 0))
            result.data["state"] = "limit"
            result.failure = _over_limit(
                asked, over, {**smallest.sums, "time": time}, smallest, known
            )

    def _changed(self, item: Any, known: Mapping[str, Any], found: Counts) -> str:
        different = differing(known, found.sums, *self._tolerances)
        heads = [
            f"{name}: {_shown(name, found.sums[name])}, and {self._snapshot.path.name} says "
            f"{_shown(name, known[name])}"
            for name in different
        ]
        end = ["pytest --eventprof-update takes the counts of now as right"]
        python = ".".join(map(str, sys.version_info[:3]))
        if self._snapshot.python != python:
            end.insert(0, f"counted then by Python {self._snapshot.python}, now by {python}")
        if _hashes_are_random():
            end.insert(0, "hashes are random in this process: PYTHONHASHSEED=0 makes them steady")
        return explain(heads, different, changes(rows_of(known), found), end)

    # ---- Reports ---------------------------------------------------------------------------------

    def _archive(self, item: Any, window: Window, result: Result, passed: bool) -> None:
        """Keep the recording of a test."""
        if window.trace is None or (passed and self._config.option.eventprof_keep == "failures"):
            return
        try:
            folder = Path(self._config.rootpath / self._config.option.eventprof_dir)
            if not folder.exists():  # version control ignores this folder, but not one of the user
                folder.mkdir(output.PRIVATE_FOLDER, parents=True)
                output.put(folder / ".gitignore", [b"*\n"])
            name = re.sub(r"[^\w.=-]+", "-", item.nodeid.replace("::", "-")).strip("-")
            path = folder / f"{name[-150:]}.epr"
            # The recording of an earlier run is replaced, and nothing else.
            window.trace.save(path, force=output.is_recording(path))
            result.data["archive"] = os.path.relpath(path, self._config.invocation_params.dir)
        except Exception as error:
            result.data["why"] = say(error)

    def _attach(self, item: Any, reports: list[Any], result: Result) -> None:
        """Put the result into the report of the test's call."""
        report = next((each for each in reports if each.when == "call"), reports[0])
        archive = result.data.get("archive")
        report.eventprof = result.data
        for name in (*COUNTS, "time"):
            if name in result.data:
                for each in (report, reports[-1]):  # JUnit's writer reads the last report
                    each.user_properties.append((f"eventprof_{name}", result.data[name]))
        if archive and report.failed:
            text = f"eventprof report {archive}"
            report.sections.append(("eventprof: what the test did is recorded", text))
        if result.failure and report.passed:
            report.outcome = "failed"
            report.longrepr = result.failure


class _Quiet:
    """The hooks of an item without those that tell others of a subtest."""

    def __init__(self, hooks: Any) -> None:
        self._hooks = hooks

    def __getattr__(self, name: str) -> Any:
        if name in ("pytest_runtest_logreport", "pytest_exception_interact"):
            return lambda **_: None
        return getattr(self._hooks, name)


@contextlib.contextmanager
def _no_reports_of_subtests(item: Any) -> Iterator[None]:
    """Run without reports of subtests, which the first run has sent: each ends with one."""
    proxy = item.session.gethookproxy
    item.session.gethookproxy = lambda path: _Quiet(proxy(path))
    try:
        yield
    finally:
        del item.session.gethookproxy


# ---- Messages ------------------------------------------------------------------------------------


def _shown(name: str, value: int) -> str:
    if name == "time":
        return show_ns(value)
    if name in SIZES:
        return f"{value:,} bytes" if value < 10_000 else show_bytes(value)
    return f"{value:,}"


def _over(asked: Wanted, counted: list[Counts]) -> list[str]:
    """Return the counts that are above a limit in each run."""
    return [
        name
        for name, most in asked.most.items()
        if name != "time" and all(each.sums[name] > most for each in counted)
    ]


def _drift(found: Counts, again: Counts, tolerances: tuple[float, float]) -> str:
    kinds = differing(found.sums, again.sums, *tolerances)
    numbers = "; ".join(
        f"{name} {_shown(name, found.sums[name])}, then {_shown(name, again.sums[name])}"
        for name in kinds
    )
    text = explain([], kinds, changes(found.functions, again)[:50], [])
    where = text.strip().splitlines()[:1]
    return f"{numbers}: {where[0].strip()}" if where else numbers


def _over_limit(
    asked: Wanted, over: list[str], sums: Mapping[str, int], found: Counts, known: Any
) -> str:
    heads = [
        f"{name}: {_shown(name, sums[name])}, more than max_{name}={_shown(name, asked.most[name])}"
        for name in over
    ]
    before = None
    if known and (before := rows_of(known)) is not None:
        heads.append("what changed since it was counted last:")
    elif over != ["time"]:
        heads.append("most of it:")
    return explain(heads, over, changes(before, found), [])


def _percent(config: Any, kind: str) -> float:
    """Read a tolerance of the ini file."""
    name = f"eventprof_tolerance_{kind}"
    text = str(config.getini(name))
    with contextlib.suppress(ValueError):
        if 0 <= (value := float(text.rstrip(" %"))) < math.inf:
            return value
    raise pytest.UsageError(f"{name} must be a number of percent, not {text!r}")


def _hashes_are_random() -> bool:
    return os.environ.get("PYTHONHASHSEED", "random") in ("", "random")


# ---- Which tests can be counted, and which modules are tools -------------------------------------


def _passed(reports: list[Any]) -> bool:
    return all(each.passed and not hasattr(each, "wasxfail") for each in reports)


def _uncountable(item: Any) -> str:
    """Explain why a test cannot be counted; empty if it can."""
    if not isinstance(item, pytest.Function):
        return "it is not a test function"
    if getattr(item.obj, "is_hypothesis_test", False):
        return "hypothesis chooses its examples at random"
    if inspect.isasyncgenfunction(item.obj) or inspect.isgeneratorfunction(item.obj):
        return "it is a generator"
    return ""


def _tools(config: Any) -> Iterator[str]:
    """Yield the modules of pytest and of its installed plugins.

    The first test of Hypothesis sets a callback of the collector that stays. It would count in each
    later test that runs the collector.
    """
    yield from ("_pytest", "pytest", "pluggy", "execnet", "hypothesis")
    installed = {dist for _, dist in config.pluginmanager.list_plugin_distinfo()}
    for dist in installed:
        for point in getattr(dist, "entry_points", ()):
            if point.group == "pytest11":
                top = point.module.partition(".")[0]
                yield top if "pytest" in top or top == "xdist" else point.module


def _load() -> None:
    """Import all modules that counting needs now, not while a test runs."""
    from .. import trace  # noqa: F401
    from ..answers import tree  # noqa: F401
    from ..base import areas

    areas.tell()
