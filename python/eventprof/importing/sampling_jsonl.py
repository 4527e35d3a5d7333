"""The JSON lines of profiling.sampling (Python 3.15): sums of samples by frame."""

from __future__ import annotations

import json
from typing import Any

from . import Unreadable
from ._build import SAMPLED, Builder, of_samples


def read(path: str, data: bytes, builder: Builder) -> None:
    """Fill the builder. The file has functions and no events."""
    strings: dict[int, str] = {}
    frames: dict[int, dict[str, Any]] = {}
    sums: dict[tuple[str, str], list[int]] = {}
    interval = 0
    builder.loss_unknown = SAMPLED
    ended = False
    for number, line in enumerate(data.splitlines(), 1):
        try:
            record = json.loads(line)
        except ValueError:
            raise Unreadable(f"line {number} is no JSON") from None
        kind = record["type"]
        if kind == "meta":
            interval = int(record["sample_interval_usec"]) * 1000
            builder.metadata["recorded_by"] = f"profiling.sampling, mode {record.get('mode', '?')}"
            builder.metadata["sampling_interval_ns"] = interval
        elif kind == "string_table":
            strings.update((entry["str_id"], entry["value"]) for entry in record["strings"])
        elif kind == "frame_table":
            frames.update((entry["frame_id"], entry) for entry in record["frames"])
        elif kind == "agg":
            for entry in record["entries"]:
                frame = frames[entry["frame_id"]]
                key = strings[frame["path_str_id"]], strings[frame["func_str_id"]]
                found = sums.setdefault(key, [0, 0])
                found[0] += entry["self"]
                # Each line of a function is a frame. Without recursion a sample has one of them.
                found[1] += entry["cumulative"]
        elif kind == "end":
            ended = True
            builder.samples = record.get("samples_total")
    if not ended:
        builder.missing.append("the end of the file: it was cut off")
    builder.statistics = of_samples(
        builder,
        {key: (own * interval, total * interval) for key, (own, total) in sums.items()},
    )
