"""pyinstrument's files: a session (`-r pyisession`), and the JSON of its tree (`-r json`)."""

from __future__ import annotations

import json
from typing import Any

from . import Unreadable
from ._build import SAMPLED, Builder
from .speedscope import samples

#: Frames that pyinstrument makes, of a parent's own time.
_SELF = "[self]"


def read(path: str, data: bytes, builder: Builder) -> None:
    """Fill the builder."""
    try:
        whole = json.loads(data)
    except ValueError as error:
        raise Unreadable(str(error)) from None
    builder.start_ns = max(round(float(whole["start_time"]) * 1e9), 0)
    builder.duration = _ns(whole["duration"])
    builder.samples = int(whole["sample_count"])
    builder.loss_unknown = SAMPLED
    builder.metadata["recorded_by"] = "pyinstrument"
    if whole.get("target_description"):
        builder.metadata["argv"] = (str(whole["target_description"]).removeprefix("Program: "),)
    builder.lacks += [
        "counts of calls: it was sampled", "allocations", "exceptions", "lines of calls",
    ]  # fmt: skip
    if "frame_records" in whole:
        _read_session(whole["frame_records"], builder)
    else:
        builder.lacks += ["threads", "order: a function's calls are added up"]
        _read_tree(whole["root_frame"], builder)


def _ns(seconds: Any) -> int:
    return round(float(seconds) * 1e9)


def _function(builder: Builder, name: str, file: str, line: int) -> int:
    if not file or file.startswith("<built-in"):
        return builder.function(name, kind="c")
    return builder.function(name, None, file, line if 0 < line < 1 << 31 else None)


def _read_session(records: list[Any], builder: Builder) -> None:
    """Add the samples of each thread: stacks, outermost first, with the time of each."""
    stacks: dict[str, tuple[list[list[int]], list[int]]] = {}
    known: dict[str, int] = {}
    for number, (frames, seconds) in enumerate(records):
        thread, stack = "(all threads)", []
        for frame in frames:
            # name, file and line; what follows \x01 are attributes, such as the line that runs.
            parts: list[str] = str(frame).partition("\x01")[0].split("\x00")
            name, file, line = [*parts, "", ""][:3]
            if file == "<thread>":
                thread = name
                continue
            if frame not in known:
                if line and not line.isdigit():
                    raise Unreadable(f"frame_records[{number}]: a frame without a line: {frame!r}")
                known[frame] = _function(builder, name, file, int(line or 0))
            stack.append(known[frame])
        into = stacks.setdefault(thread, ([], []))
        into[0].append(stack)
        into[1].append(_ns(seconds))
    for thread, (found, weights) in stacks.items():
        samples(builder.thread(thread, thread), found, weights, 0)


def _read_tree(root: Any, builder: Builder) -> None:
    """Add the calls of the tree one after another, children at the begin of their parent."""
    thread = builder.thread(0, "(all threads)")
    pending: list[tuple[Any, int]] = [] if root is None else [(root, 0)]
    ends: list[int] = []
    while pending:
        frame, depth = pending.pop()
        while len(ends) > depth:
            thread.end(ends.pop())
        start = thread.last
        if frame["function"] != _SELF:
            function = _function(
                builder,
                str(frame["function"]),
                str(frame["file_path"] or ""),
                int(frame["line_no"]),
            )
            thread.begin(start, function)
            ends.append(start + _ns(frame["time"]))
            pending += [(child, depth + 1) for child in reversed(frame["children"])]
        else:
            thread.last = start + _ns(frame["time"])
    while ends:
        thread.end(ends.pop())
