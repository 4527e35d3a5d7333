"""Show a recording as a page: every call on a timeline, above the memory by function.

The page is one HTML file that needs no server and no network. With -o it is written to that file
and not opened; otherwise it is written to a temporary folder and opened in the browser.

With two files, the earlier first, the page is a flame graph that compares them: its widths are
those of the later, its colours show what changed, and a table has the figures of both.
"""

from __future__ import annotations

import argparse
import re

from .. import Failure, pictures
from ..files import add_file, load

EXAMPLES = (
    ("eventprof view FILE", "open it in the browser"),
    ("eventprof view FILE -o page.html", "write a page that can be sent or kept"),
    ("eventprof view FILE -o page.html --source", "with the text of its files in it"),
    ("eventprof view FILE -o page.html --time-grain 32ns", "a smaller page"),
    ("eventprof view FILE -o timeline.svg", "the outermost calls over live memory, as a drawing"),
    ("eventprof view before.epr after.epr", "what changed from one recording to the other"),
)

_UNITS = {"": 1, "ns": 1, "us": 1000, "ms": 1_000_000}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_file(parser, several=True)
    pictures.add_output(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--flamegraph", action="store_true", help="the flame graph alone, as 'eventprof flamegraph'"
    )
    which.add_argument(
        "--heatmap", action="store_true", help="source by line alone, as 'eventprof heatmap'"
    )
    parser.add_argument(
        "--diff", metavar="BEFORE", help="an earlier recording to compare FILE with"
    )
    parser.add_argument(
        "--source", action="store_true", help="put the text of the program's files into the page"
    )
    parser.add_argument(
        "--time-grain",
        metavar="TIME",
        type=_grain,
        default=1,
        help="round times down to multiples of this, for example 32ns: a smaller page (1ns)",
    )


def _grain(text: str) -> int:
    match = re.fullmatch(r"(\d+) ?(ns|us|ms|)", text)
    size = int(match[1]) * _UNITS[match[2]] if match else 0
    if not 1 <= size <= 1_000_000_000:
        raise argparse.ArgumentTypeError(
            f"it must be a time from 1ns to 1000ms, such as 32ns, not {text!r}"
        )
    return size


def run(arguments: argparse.Namespace) -> int:
    """Write the page, and open it unless -o was given."""
    files = [*([arguments.diff] if arguments.diff else []), *arguments.file]
    if len(files) > 2:
        raise Failure(f"name one file, or two with the earlier first; not {len(files)}", 2)
    two = len(files) == 2
    for flag, given in (
        ("--heatmap", arguments.heatmap),
        ("--source", arguments.source and (two or arguments.flamegraph)),
        ("--time-grain", arguments.time_grain != 1 and (two or arguments.flamegraph)),
    ):
        if given and (two or flag != "--heatmap"):
            raise Failure(f"a flame graph takes no {flag}", 2)
    if two or arguments.flamegraph:
        return pictures.flamegraph(arguments, files)
    if arguments.heatmap:
        return pictures.heatmap(arguments, files[0])
    from ...viewer import parts
    from ...viewer.picture import svg

    pictures.refuse(arguments)
    trace = load(files[0])
    title, grain, source = arguments.title, arguments.time_grain, arguments.source
    return pictures.finish(
        arguments,
        [(files[0], trace)],
        parts=lambda: parts(trace, title, grain, source),
        drawing=lambda: svg(trace, 1200, alone=True),
    )
