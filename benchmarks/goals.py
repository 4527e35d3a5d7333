"""The goals, beside what was measured: the last table of a run."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

import measure

Results = dict[str, Any]


class Goal(NamedTuple):
    what: str
    goal: str  # as it is stated
    limit: float
    at_most: bool  # else at least
    value: Callable[[Results], float]  # KeyError: not measured


class Row(NamedTuple):
    what: str
    goal: str
    measured: str
    verdict: str


def _added(results: Results, tool: str) -> float:
    """Return the mean over the programs of the time over the bare program."""
    return float(results["programs"]["mean_factor"][tool]["median"]) - 1


def _share(tool: str, other: str) -> Callable[[Results], float]:
    return lambda results: _added(results, tool) / _added(results, other)


def _worst_share(tool: str, other: str) -> Callable[[Results], float]:
    """Return the worst of the loops of allocations."""

    def value(results: Results) -> float:
        return max(
            (row[tool]["median"] - 1) / (row[other]["median"] - 1)
            for row in results["allocating"]["factor"].values()
        )

    return value


def _rate(column: str, kinds: str) -> Callable[[Results], float]:
    def value(results: Results) -> float:
        rows = results["retrieve"]["columns"]
        names = [name for name in rows if name.rsplit(" ", 1)[0] == kinds]
        return float(rows[names[-1]]["rows_per_second"][column]) / 1e6

    return value


def _frame(results: Results) -> float:
    """Return ms for 10 M rows; a figure of fewer rows is scaled up."""
    tables = list(results["retrieve"]["tables"].values())[-1]["tables"]
    ten = tables["events, 10 columns"]
    return float(ten["pandas"]["again_seconds"]) * 1e3 * 1e7 / float(ten["rows"])


def _script(tool: str, other: str, key: str) -> Callable[[Results], float]:
    def value(results: Results) -> float:
        rows = results["script"]["rows"]["1 M calls"]
        return float(rows[tool][key]) / float(rows[other][key])

    return value


def _archive(kinds: str) -> Callable[[Results], float]:
    return lambda results: float(results["files"][f"eventprof, {kinds}"]["bytes_per_event"])


def _in_log(kinds: str) -> Callable[[Results], float]:
    return lambda results: float(results["memory"]["log"][kinds])


def _threads(results: Results) -> float:
    if results["scale"]["gil"]:
        raise KeyError("no free-threaded build")
    rows = results["scale"]["workloads"]
    one, two = (rows[name]["tools"]["calls"]["ns_per_event"] for name in ("1 thread", "2 threads"))
    return float(two) / float(one)


def _over_empty(tool: str) -> Callable[[Results], float]:
    return lambda results: float(results["programs"]["mean_over_empty"][tool]["median"])


def _ancestor(results: Results) -> float:
    factors = results["programs"]["factor"]
    return statistics.median(
        (row["cpyquickhelper"]["median"] - 1) / (row["calls"]["median"] - 1)
        for row in factors.values()
    )


def goals(python: str) -> list[Goal]:
    viztracer = 0.8 if python.startswith("3.11") else 0.5
    memray = "cProfile + memray, python"
    listed = [
        Goal(
            "added time, calls only, of VizTracer's",
            f"at most {viztracer}x",
            viztracer,
            True,
            _share("calls", "VizTracer"),
        ),
        Goal(
            "added time, calls + allocations, of VizTracer's",
            "at most 0.6x",
            0.6,
            True,
            _share("both", "VizTracer"),
        ),
        Goal("... of cProfile's", "at most 0.35x", 0.35, True, _share("both", "cProfile")),
        Goal(
            "... of cProfile's + memray's with Python allocators",
            "at most 1/4",
            1 / 4,
            True,
            _share("both", memray),
        ),
        Goal(
            "... of cProfile's + tracemalloc's",
            "at most 1/15",
            1 / 15,
            True,
            _share("both", "cProfile + tracemalloc"),
        ),
        Goal(
            "calls only, over the empty hook, whole program",
            "at most 1.10x",
            1.10,
            True,
            _over_empty("calls"),
        ),
        Goal(
            "allocations only, over the bare program",
            "at most 1.10x",
            1.10,
            True,
            lambda results: 1 + _added(results, "allocations"),
        ),
        Goal(
            "added time on loops of allocations, of memray's with Python allocators",
            "at most 1/8",
            1 / 8,
            True,
            _worst_share("allocations", "memray, python"),
        ),
        Goal(
            "... of tracemalloc(1)'s",
            "at most 1/15",
            1 / 15,
            True,
            _worst_share("allocations", "tracemalloc"),
        ),
        Goal("bytes of a call event in the log", "8", 8.01, True, _in_log("calls")),
        Goal("bytes of an allocation event in the log", "16", 16.01, True, _in_log("allocations")),
        Goal("bytes of a call event in the archive", "at most 2", 2, True, _archive("calls")),
        Goal(
            "bytes of an allocation event in the archive",
            "at most 3",
            3,
            True,
            _archive("allocations"),
        ),
        Goal("columns, M events/s", "at least 300", 300, False, _rate("raw", "calls")),
        Goal(
            "pairing of calls, M events/s", "at least 200", 200, False, _rate("pair calls", "calls")
        ),
        Goal("dataframe of 10 M rows, 10 columns, ms", "at most 30", 30, True, _frame),
        Goal(
            "script of 1 M calls, eventprof run, of python -m cProfile",
            "at most 1x",
            1,
            True,
            _script("eventprof run", "cProfile", "seconds"),
        ),
        Goal(
            "... of viztracer",
            "at most 1/20",
            1 / 20,
            True,
            _script("eventprof run", "viztracer", "seconds"),
        ),
        Goal(
            "... its file, of viztracer's",
            "at most 1/20",
            1 / 20,
            True,
            _script("eventprof run", "viztracer", "file_bytes"),
        ),
        Goal(
            "the same, calls alone as cProfile records them, of python -m cProfile",
            "at most 1x",
            1,
            True,
            _script("eventprof run --no-memory", "cProfile", "seconds"),
        ),
        Goal(
            "... with --archive, of viztracer's time",
            "at most 1/20",
            1 / 20,
            True,
            _script("eventprof run --archive", "viztracer", "seconds"),
        ),
        Goal(
            "... with --archive, its file, of viztracer's",
            "at most 1/20",
            1 / 20,
            True,
            _script("eventprof run --archive", "viztracer", "file_bytes"),
        ),
        Goal("the ancestor's time an event, of ours", "at least 20x", 20, False, _ancestor),
        Goal(
            "two threads without the GIL, an event's cost, of one thread's",
            "at most 1.1x",
            1.1,
            True,
            _threads,
        ),
    ]
    if not python.startswith("3.11"):
        listed.insert(
            -1,
            Goal(
                "filtered, everything excluded, over the bare program",
                "at most 1.02x",
                1.02,
                True,
                lambda results: 1 + _added(results, "filtered"),
            ),
        )
    return listed


def _text(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:.0f}"


def rows(results: Results, python: str) -> list[Row]:
    found = []
    for goal in goals(python):
        try:
            value = goal.value(results)
        except (KeyError, IndexError):
            found.append(Row(goal.what, goal.goal, "not measured", "-"))
            continue
        reached = value <= goal.limit if goal.at_most else value >= goal.limit
        off = value / goal.limit if goal.at_most else goal.limit / value
        verdict = "ok" if reached else f"missed: {off:.2f} times off"
        found.append(Row(goal.what, goal.goal, _text(value), verdict))
    return found


def show(found: list[Row]) -> str:
    return measure.table(["goal", "must reach", "measured", ""], [list(row) for row in found])
