"""Collapsed stacks: a line for each stack, which ends with its weight."""

from __future__ import annotations

import re

from . import Unreadable
from ._build import Builder
from ._escapes import unescaped
from .speedscope import samples

#: Frames as profiling.sampling writes them.
_PLACE = re.compile(r"(.*):([^:]*):(\d+)")
#: ... and as py-spy does.
_PY_SPY = re.compile(r".* \(.*:\d+\)")


def read(path: str, data: bytes, builder: Builder) -> None:
    """Fill the builder: the stacks follow each other in time, as if their weights were ns."""
    found: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        if not line.strip():
            continue
        stack, _, weight = line.rpartition(" ")
        if not weight.isdigit() or not (stack or line.startswith(" ")):
            raise Unreadable(f"line {number} does not end with a number")
        # py-spy writes an empty stack for a thread whose frames it could not read.
        frames = tuple(stack.split(";")) if stack else ("(no stack)",)
        found[frames] = found.get(frames, 0) + int(weight)
    builder.lacks += [
        "counts of calls", "order", "threads", "allocations", "lines of calls", "exceptions",
        "times: the file does not say what its numbers count",
    ]  # fmt: skip
    builder.unit = ""
    texts = unescaped({frame for frames in found for frame in frames}, besides=";")
    found = {tuple(texts[frame] for frame in frames): n for frames, n in found.items()}
    stacks = sorted(found)
    if any(_PY_SPY.fullmatch(frame) for frames in stacks for frame in frames):
        builder.unit, builder.samples = "sample", sum(found.values())
        builder.lacks[-1] = "times: its numbers count samples"
    places = all(_PLACE.fullmatch(frame) for frames in stacks for frame in frames[1:])

    def function(frame: str) -> int:
        place = _PLACE.fullmatch(frame) if places else None
        if place is None:
            return builder.function(frame)
        return builder.function(place[2], None, place[1], None)

    samples(
        builder.thread(0, "(all threads)"),
        [[function(frame) for frame in frames] for frames in stacks],
        [found[frames] for frames in stacks],
        0,
    )
