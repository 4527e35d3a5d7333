"""What does an event cost, next to the empty hook of the same mechanism?"""

from __future__ import annotations

import argparse
from typing import Any

import measure
import tools
import workloads
from child import ask

# Of workloads: their names (None: all), what is measured on them, and what an event is.
GROUPS: dict[str, list[tuple[list[str] | None, list[str], str]]] = {
    "CALLS": [
        (None, ["calls", "counting", "calls, profile", "python calls"], "calls"),
        (["fib"], ["calls, log fresh", "calls, log recycled", "calls, log in a file"], "calls"),
    ],
    "ALLOCATIONS": [(None, ["allocations"], "allocations")],
    "LINES": [
        (None, ["lines"], "lines"),
        (None, ["instructions"], "instructions"),
    ],
}


def run(options: argparse.Namespace) -> dict[str, Any]:
    return run_groups(options, GROUPS)


def run_groups(
    options: argparse.Namespace, groups: dict[str, list[tuple[list[str] | None, list[str], str]]]
) -> dict[str, Any]:
    """Run each workload under the chosen tools, next to the bare program and the empty hooks."""
    known = tools.own() | tools.variants()
    result: dict[str, Any] = {}
    for group, rows in groups.items():
        for only, wanted, kinds in rows:
            wanted = [
                tool
                for tool in wanted
                if tool in known and (not options.tools or tool in options.tools)
            ]
            names = [
                name
                for name in only or getattr(workloads, group)
                if not options.workload or name in options.workload
            ]
            for name in names if wanted else []:
                row = result.setdefault(name, {"events": 0, "tools": {}})
                _measure(options, group, name, wanted, kinds, row)
    return result


def _measure(
    options: argparse.Namespace,
    group: str,
    name: str,
    wanted: list[str],
    kinds: str,
    row: dict[str, Any],
) -> None:
    empties = list(dict.fromkeys(tools.empty_of(tool) for tool in wanted))
    measured = ask(
        "compare",
        group=group,
        name=name,
        tools=["bare", *empties, *wanted],
        rounds=options.rounds or (5 if options.quick else 21),
        units=3,
        every={},
    )
    samples, events = measured["samples"], measured["events"][kinds]
    row["events"] = events
    bare = measure.minimum(samples, "bare")
    for tool in [*empties, *wanted]:
        figures = row["tools"][tool] = {
            "factor": measure.ratio(samples, tool, "bare"),
            "ns_per_event": (measure.minimum(samples, tool) - bare) / events * 1e9,
        }
        if tool in wanted:
            empty = tools.empty_of(tool)
            figures["empty"] = empty
            figures["empty_factor"] = row["tools"][empty]["factor"]
            figures["empty_ns_per_event"] = row["tools"][empty]["ns_per_event"]
            figures["over_empty"] = measure.ratio(samples, tool, empty)
            figures["ns_over_empty"] = figures["ns_per_event"] - row["tools"][empty]["ns_per_event"]
    options.progress(
        f"{name}: "
        + ", ".join(f"{tool} +{row['tools'][tool]['ns_over_empty']:.1f} ns" for tool in wanted)
    )


def show(result: dict[str, Any]) -> str:
    rows = []
    for name, row in result.items():
        for tool, figures in row["tools"].items():
            if "over_empty" not in figures:
                continue
            over = figures["over_empty"]
            rows.append(
                [
                    f"{name}: {tool}",
                    str(row["events"]),
                    f"{figures['empty_factor']['min']:.2f}",
                    f"{figures['factor']['min']:.2f}",
                    f"{over['min']:.3f}",
                    f"{over['median']:.3f}",
                    f"{over['lower']:.3f}-{over['upper']:.3f}",
                    f"{figures['empty_ns_per_event']:.1f}",
                    f"{figures['ns_over_empty']:.1f}",
                ]
            )
    return measure.table(
        [
            "events of one kind",
            "events",
            "empty",
            "eventprof",
            "ratio",
            "median",
            "quartiles",
            "ns/event empty",
            "ns added",
        ],
        rows,
    )
