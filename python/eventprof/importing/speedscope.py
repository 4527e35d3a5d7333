"""speedscope's JSON: evented and sampled profiles of time."""

from __future__ import annotations

import json
from typing import Any

from . import Unreadable
from ._build import SAMPLED, Builder

#: Tools that sample, and write what they found as calls.
_SAMPLERS = ("pyinstrument", "py-spy")
_UNITS = {"nanoseconds": 1, "microseconds": 10**3, "milliseconds": 10**6, "seconds": 10**9}


def _scaled(value: Any, unit: int) -> int:
    return value * unit if isinstance(value, int) else round(float(value) * unit)


def read(path: str, data: bytes, builder: Builder) -> None:
    """Fill the builder: a thread a profile."""
    try:
        whole = json.loads(data)
    except ValueError as error:
        raise Unreadable(str(error)) from None
    if not isinstance(whole, dict) or not isinstance(whole.get("profiles"), list):
        raise Unreadable("profiles is not a list")
    builder.lacks += ["allocations", "lines of calls", "exceptions"]
    if whole.get("name"):
        builder.metadata["argv"] = (str(whole["name"]),)
    builder.metadata["recorded_by"] = str(whole.get("exporter") or "?")
    functions = [
        builder.function(
            str(frame.get("name", "?")),
            None,
            frame.get("file"),
            frame.get("line") if isinstance(frame.get("line"), int) else None,
            "python" if frame.get("file") is not None else "c",
        )
        for frame in whole["shared"]["frames"]
    ]
    timed = [p for p in whole["profiles"] if p.get("unit") in _UNITS]
    base = min((_scaled(p["startValue"], _UNITS[p["unit"]]) for p in timed), default=0)
    exporter = str(whole.get("exporter") or "")
    if exporter.startswith("eventprof"):
        base = 0
        _, with_loss, loss = str(whole.get("name") or "").partition(" (with loss: ")
        builder.loss_unknown = None
        if with_loss:
            builder.lost.append(f"with loss: {loss.removesuffix(')')}")
    elif exporter.startswith(_SAMPLERS):
        builder.lacks.append("counts of calls: it was sampled")
        builder.loss_unknown = SAMPLED
    for number, profile in enumerate(whole["profiles"]):
        name, unit = str(profile.get("name", "")), profile.get("unit")
        if unit not in _UNITS and (timed or unit == "bytes"):
            builder.notes.append(f"profile {name!r}: it is of {unit}, not of time")
            continue
        scale = _UNITS.get(str(unit), 1)
        if unit not in _UNITS:
            builder.lacks.append("times: what the numbers count is not said")
            builder.unit = "sample" if profile["type"] == "sampled" else ""
        thread = builder.thread(number, name)
        if profile["type"] == "evented":
            for event in profile["events"]:
                time = _scaled(event["at"], scale) - base
                if event["type"] == "O":
                    thread.begin(time, functions[event["frame"]])
                else:
                    thread.end(time)
        else:
            samples(
                thread,
                [[functions[frame] for frame in stack] for stack in profile["samples"]],
                [_scaled(weight, scale) for weight in profile["weights"]],
                _scaled(profile.get("startValue", 0), scale) - base,
            )
            builder.lacks.append("counts of calls: it was sampled")
            # A profile of counts has a stack once, with the number of its samples.
            counts = profile["weights"] if unit not in _UNITS else [1] * len(profile["samples"])
            builder.samples = (builder.samples or 0) + sum(_scaled(n, 1) for n in counts)
    builder.lacks = list(dict.fromkeys(builder.lacks))


def samples(thread: Any, stacks: list[list[int]], weights: list[int], start: int) -> None:
    """Take samples, one after another, as calls: what two have in common goes on."""
    time = start
    last: list[int] = []
    for stack, weight in zip(stacks, weights, strict=True):
        same = 0
        while same < min(len(last), len(stack)) and last[same] == stack[same]:
            same += 1
        for _ in last[same:]:
            thread.end(time)
        for function in stack[same:]:
            thread.begin(time, function)
        last = stack
        time += weight
    thread.end_all(time)
