"""Interleaved measurements: every round runs every configuration once, so that other work on the
machine affects all of them alike. Process CPU time; ratios, paired within a round."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

Samples = dict[str, list[float | None]]


def cpu_seconds(run: Callable[[], object], units: int) -> float:
    begin = time.process_time()
    for _ in range(units):
        run()
    return (time.process_time() - begin) / units


def sample(
    tool: Callable[[], AbstractContextManager[Any]], run: Callable[[], object], units: int
) -> float:
    """One figure. Starting and stopping the tool is not in it, nor is the first unit: the
    interpreter instruments and specialises code again after each change of hooks."""
    gc.collect()
    with tool():
        run()
        return cpu_seconds(run, units)


def interleave(
    configurations: dict[str, Callable[[], float]], rounds: int, every: dict[str, int] | None = None
) -> Samples:
    """`every`: configurations that take part in every n-th round only."""
    samples: Samples = {name: [] for name in configurations}
    for number in range(rounds):
        # There and back, so that a drift does not favour whoever comes first.
        order = list(configurations) if number % 2 == 0 else list(configurations)[::-1]
        for name in order:
            skipped = number % (every or {}).get(name, 1) != 0
            samples[name].append(None if skipped else configurations[name]())
    return samples


def ratio(samples: Samples, name: str, base: str) -> dict[str, float]:
    """Return the ratio of `name` to `base`: of the minima, and quartiles of paired rounds."""
    pairs = [
        (a, b)
        for a, b in zip(samples[name], samples[base], strict=True)
        if a is not None and b is not None
    ]
    ratios = sorted(a / b for a, b in pairs)
    lower, middle, upper = (
        statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    )
    return {
        "min": minimum(samples, name) / minimum(samples, base),
        "median": middle,
        "lower": lower,
        "upper": upper,
        "rounds": len(ratios),
    }


def minimum(samples: Samples, name: str) -> float:
    return min(value for value in samples[name] if value is not None)


def geometric_mean(values: Iterable[float]) -> float:
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else math.nan


def table(head: list[str], rows: list[list[str]]) -> str:
    """Format rows: the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = []
    for row in [head, *rows]:
        cells = [
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "-" * len(lines[0]))
    return "\n".join(lines)
