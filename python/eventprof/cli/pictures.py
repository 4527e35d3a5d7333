"""The common part of the verbs that write a page or a drawing: view, flamegraph, heatmap."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from .._words import show_bytes
from . import Failure
from .answer import add_json, lost_as_well, written
from .files import load

if TYPE_CHECKING:
    from ..trace import Trace


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the options for the page that is written to a parser."""
    parser.add_argument(
        "-o", "--output", metavar="PAGE", help="write the page to this file, and do not open it"
    )
    parser.add_argument("-f", "--force", action="store_true", help="replace an existing file")
    parser.add_argument("--browser", action="store_true", help="open the page that -o writes, too")
    parser.add_argument("--title", metavar="TEXT", help="title of the page (the program's name)")
    add_json(parser)
    parser.set_defaults(verb=parser.prog.rpartition(" ")[2])


def refuse(arguments: argparse.Namespace) -> None:
    """Fail if the page may not be written: before a recording is read, which may take long."""
    from ..base.output import check

    if arguments.output is not None:
        check(arguments.output, arguments.force)


def finish(
    arguments: argparse.Namespace,
    traces: Sequence[tuple[str, Trace]],
    parts: Callable[[], Iterable[bytes]],
    drawing: Callable[[], str] | None = None,
) -> int:
    """Write a page, or open it.

    Parameters
    ----------
    arguments : argparse.Namespace
        With the options of `add_output`.
    traces : sequence of (str, Trace)
        The files and traces that the page shows, for the message.
    parts : callable
        Makes the page.
    drawing : callable, optional
        Makes the same as SVG.

    Returns
    -------
    int
        The exit status.
    """
    from ..base.output import put
    from ..viewer.page import open_file, show_page

    path = arguments.output
    lost = "".join(lost_as_well(trace) for _, trace in traces)
    if path is None:
        path = show_page(parts())
        text = f"{path}: opened in the browser{lost}"
    else:
        if path.lower().endswith(".svg"):
            if drawing is None:
                raise Failure(f"{path}: there is no drawing of this; name an .html file", 2)
            made: Iterable[bytes] = [drawing().encode("utf-8", "backslashreplace")]
        else:
            made = parts()
        size = put(path, made, arguments.force)
        events = " and ".join(f"{trace._facts['events']:,}" for _, trace in traces)
        text = f"{path}: {events} events{lost}, {show_bytes(size)}"
        if arguments.browser:
            open_file(path)
    if arguments.json:
        written(arguments.verb, path, traces[-1][1], os.path.getsize(path))
    else:
        print(text)
    return 0


def flamegraph(arguments: argparse.Namespace, files: Sequence[str], unit: str = "self") -> int:
    """Write the flame graph of a file, or of two: before and after."""
    from ..viewer import flamegraph as graph

    refuse(arguments)
    traces = [load(file, fold=True) for file in files]
    if len(traces) == 2:
        names = [file.rpartition("/")[2] for file in files]
        clocks = [trace.metadata.get("clock") for trace in traces]
        if clocks[0] != clocks[1]:
            raise Failure(
                f"{files[1]}: its clock is {clocks[1]!r}, and that of {files[0]} is "
                f"{clocks[0]!r}: their times cannot be compared"
            )
        titles: list[str | None] = [*names]
        if arguments.title:
            titles = [f"{arguments.title}: {names[0]}", names[1]]
    else:
        titles = [arguments.title]
    return finish(
        arguments,
        list(zip(files, traces, strict=True)),
        parts=lambda: graph.flamegraph(traces, titles),
        drawing=(lambda: graph.flamegraph_svg(traces[0], unit)) if len(traces) == 1 else None,
    )


def heatmap(arguments: argparse.Namespace, file: str) -> int:
    """Write the heat map of a file."""
    from ..viewer.heatmap import heatmap as heat

    refuse(arguments)
    trace = load(file, fold=True)
    return finish(arguments, [(file, trace)], parts=lambda: heat(trace, arguments.title))
