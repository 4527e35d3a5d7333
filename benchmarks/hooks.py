"""What does an event cost, next to the empty hook of the same mechanism?"""

from __future__ import annotations

import argparse
from typing import Any

import measure
import tools
import workloads
from child import ask

GROUPS = {
    "CALLS": (["calls", "calls, profile", "python calls"], "calls"),
    "ALLOCATIONS": (["allocations"], "allocations"),
}


def run(options: argparse.Namespace) -> dict[str, Any]:
    rounds = options.rounds or (7 if options.quick else 21)
    own = tools.own()
    result: dict[str, Any] = {}
    for group, (wanted, kinds) in GROUPS.items():
        wanted = [
            tool for tool in wanted if tool in own and (not options.tools or tool in options.tools)
        ]
        empties = [tools.EMPTY[tool] for tool in wanted]
        names = [
            name
            for name in getattr(workloads, group)
            if not options.workload or name in options.workload
        ]
        for name in names if wanted else []:
            measured = ask(
                "compare",
                group=group,
                name=name,
                tools=["bare", *empties, *wanted],
                rounds=rounds,
                units=3,
                every={},
            )
            samples, events = measured["samples"], measured["events"][kinds]
            bare = measure.minimum(samples, "bare")
            row = result[name] = {"events": events, "tools": {}}
            for tool in [*empties, *wanted]:
                row["tools"][tool] = {
                    "factor": measure.ratio(samples, tool, "bare"),
                    "ns_per_event": (measure.minimum(samples, tool) - bare) / events * 1e9,
                }
            for tool in wanted:
                empty = tools.EMPTY[tool]
                row["tools"][tool]["over_empty"] = measure.ratio(samples, tool, empty)
                row["tools"][tool]["ns_over_empty"] = (
                    row["tools"][tool]["ns_per_event"] - row["tools"][empty]["ns_per_event"]
                )
            options.progress(
                f"{name}: "
                + ", ".join(
                    f"{tool} +{row['tools'][tool]['ns_over_empty']:.1f} ns" for tool in wanted
                )
            )
    return result


def show(result: dict[str, Any]) -> str:
    rows = []
    for name, row in result.items():
        for tool, figures in row["tools"].items():
            if "over_empty" not in figures:
                continue
            empty = row["tools"][tools.EMPTY[tool]]
            over = figures["over_empty"]
            rows.append(
                [
                    f"{name}: {tool}",
                    str(row["events"]),
                    f"{empty['factor']['min']:.2f}",
                    f"{figures['factor']['min']:.2f}",
                    f"{over['min']:.3f}",
                    f"{over['median']:.3f}",
                    f"{over['lower']:.3f}-{over['upper']:.3f}",
                    f"{empty['ns_per_event']:.1f}",
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
