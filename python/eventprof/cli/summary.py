"""The line at the end of a recorded program. Imports no NumPy: a trace would decode all events."""

from __future__ import annotations

import os
import shlex
from typing import Any

from .._words import plural, printable, show_ns


def summary(recorder: Any) -> str:
    """Describe in one line what was recorded and lost, where the file is and how to look at it."""
    events, lost, early, duration = recorder._count()
    text = f"{plural(events, 'event')} in {show_ns(duration)}"
    if lost:
        why = {
            "limit": "the file was full; see --buffer",
            "memory": "there was no memory",
            "disk": "the disk was full",
            "small_disk": "the disk was full before the buffer, the oldest were overwritten",
            "family": "the files of all processes had reached their limit; see --buffer",
            "cut": "another program cut the file off while it was written",
        }
        reason = why.get(early or "", "the oldest were overwritten; see --buffer")
        text += f", {lost:,} LOST ({reason})"
    elif early == "cut":
        text += ", and another program cut the file off while it was written"
    else:
        text += ", none lost"
    text += besides(recorder)
    return f"eventprof: {text}; to look at it: eventprof report {shown(recorder.output)}"


def besides(recorder: Any) -> str:
    """Report what else happened to a recording; it begins with a comma, or is empty."""
    text = ""
    children, error = getattr(recorder, "_children_lost", None) or (0, "")  # PyPy's has none
    if children:
        processes = "1 forked process" if children == 1 else f"{children:,} forked processes"
        text += f", {processes} could not write a file ({error}): their events are lost"
    for source in recorder.displaced:
        text += f", another tool took over {source}"
    return text


def shown(path: str | os.PathLike[str]) -> str:
    """Return a path as one types it."""
    whole = os.fspath(path)
    nearby = os.path.relpath(whole)
    return printable(shlex.quote(nearby if len(nearby) < len(whole) else whole))
