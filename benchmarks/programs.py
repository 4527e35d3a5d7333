"""How much slower do whole programs become? Those of pyperformance, under each recorder."""

from __future__ import annotations

import argparse
from typing import Any

import measure
import tools
import workloads
from child import ask


def configurations(options: argparse.Namespace) -> tuple[list[str], dict[str, int]]:
    own = list(tools.own())
    others = list(tools.peers()) if not options.no_peers else []
    if options.tools:
        own = [name for name in own if name == "bare" or name in options.tools]
        others = [name for name in others if name in options.tools]
    slow = {
        "tracemalloc": 4,
        "cProfile + tracemalloc": 8,
        "cProfile + memray, python": 4,
        "cpyquickhelper": 8,
    }
    return own + others, {name: slow.get(name, 2) for name in others}


def run(options: argparse.Namespace) -> dict[str, Any]:
    names = options.workload or (workloads.QUICK if options.quick else list(workloads.PROGRAMS))
    wanted, every = configurations(options)
    return run_group(options, "PROGRAMS", list(names), wanted, every)


def run_group(
    options: argparse.Namespace,
    group: str,
    names: list[str],
    wanted: list[str],
    every: dict[str, int],
) -> dict[str, Any]:
    """Run each workload of a group under each tool, over bare program and empty hook."""
    rounds = options.rounds or (5 if options.quick else 15)
    result: dict[str, Any] = {"factor": {}, "over_empty": {}, "seconds": {}, "events": {}}
    for name in names:
        measured = ask(
            "compare",
            group=group,
            name=name,
            tools=wanted,
            rounds=rounds,
            units=2,
            every=every,
        )
        samples = measured["samples"]
        result["events"][name] = measured["events"]
        result["seconds"][name] = {tool: measure.minimum(samples, tool) for tool in wanted}
        result["factor"][name] = {tool: measure.ratio(samples, tool, "bare") for tool in wanted}
        result["over_empty"][name] = {
            tool: measure.ratio(samples, tool, empty)
            for tool, empty in tools.EMPTY.items()
            if tool in wanted and empty in wanted
        }
        options.progress(
            f"{name}: "
            + ", ".join(
                f"{tool} {value['min']:.3f}" for tool, value in result["over_empty"][name].items()
            )
        )
    result["mean_factor"] = means(result["factor"])
    result["mean_over_empty"] = means(result["over_empty"])
    result["added"] = {tool: value["min"] - 1 for tool, value in result["mean_factor"].items()}
    return result


def means(times: dict[str, dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    tools_measured = next(iter(times.values())).keys()
    return {
        tool: {
            key: measure.geometric_mean(row[tool][key] for row in times.values())
            for key in ("min", "median")
        }
        for tool in tools_measured
    }


def show(result: dict[str, Any]) -> str:
    names = list(result["factor"])
    mean = result["mean_factor"]
    factors = [
        [
            tool,
            f"{mean[tool]['min']:.2f}",
            f"{mean[tool]['median']:.2f}",
            *(f"{result['factor'][name][tool]['min']:.2f}" for name in names),
        ]
        for tool in mean
    ]
    over = [
        [
            tool,
            f"{result['mean_over_empty'][tool]['min']:.3f}",
            f"{result['mean_over_empty'][tool]['median']:.3f}",
            *(f"{result['over_empty'][name][tool]['min']:.3f}" for name in names),
        ]
        for tool in result["mean_over_empty"]
    ]
    spread = [
        [
            tool,
            "",
            "",
            *(
                "{lower:.2f}-{upper:.2f}".format_map(result["over_empty"][name][tool])
                for name in names
            ),
        ]
        for tool in result["mean_over_empty"]
    ]
    head = ["mean", "median", *names]
    parts = [measure.table(["time over the bare program", *head], factors)]
    if over:
        parts.append(measure.table(["eventprof over the empty hook", *head], over))
        parts.append(measure.table(["... quartiles of the rounds", *head], spread))
    return "\n\n".join(parts)
