"""The heat map: the source of a program, each line coloured by its time or its bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .._words import plural, show_ns
from .data import find_title, notes_of
from .page import assemble
from .planes import compress
from .source import find_source

if TYPE_CHECKING:
    from ..trace import Trace

MODULES = ("state.js", "text.js", "unpack.js", "source.js", "heat.js")


def heatmap(trace: Trace, title: str | None = None) -> Iterator[bytes]:
    """Return the parts of the page.

    Parameters
    ----------
    trace : Trace
        The trace to show.
    title : str, optional
        By default the program's name.
    """
    title = find_title(trace) if title is None else title
    head = {
        "title": title,
        "summary": f"{show_ns(trace.duration)}, {plural(trace._facts['events'], 'event')}",
        "notes": notes_of(trace),
        "duration": trace.duration,
        "source": find_source(trace),
    }
    raw = compress(json.dumps(head, separators=(",", ":")).encode())
    return assemble("heat.html", MODULES, f"{title}, heat map", [("head", raw)])
