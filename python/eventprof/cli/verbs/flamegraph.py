"""Show the flame graph of a recording: which stacks took the time, and which allocated the bytes.

The page is one HTML file that needs no server and no network. Its widths are time, waiting, calls,
bytes or blocks: a list on the page chooses. With -o the page is written to that file and not
opened; a name that ends with .svg gives a drawing.
"""

from __future__ import annotations

import argparse

from .. import Failure, pictures
from ..files import add_file

EXAMPLES = (
    ("eventprof flamegraph FILE", "open it in the browser"),
    ("eventprof flamegraph FILE -o graph.html", "write a page that can be sent or kept"),
    ("eventprof flamegraph FILE -o graph.svg", "a drawing, of time"),
    ("eventprof flamegraph FILE -o peak.svg --unit peak", "what was live at the peak"),
    ("eventprof flamegraph after.epr --diff before.epr", "coloured by what changed"),
)

#: The units of a drawing, and the page's words for them.
_UNITS = {
    "time": "self", "waited": "waited", "calls": "calls", "allocated": "allocated",
    "blocks": "blocks", "peak": "at_peak", "live": "live",
}  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_file(parser)
    pictures.add_output(parser)
    parser.add_argument("--diff", metavar="BEFORE", help="an earlier recording to compare it with")
    parser.add_argument(
        "--unit",
        choices=_UNITS,
        default="time",
        help="for a drawing (.svg): the unit of widths (time)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the page, and open it unless -o was given."""
    drawn = (arguments.output or "").lower().endswith(".svg")
    if arguments.unit != "time" and not drawn:
        raise Failure(
            "--unit is only for a drawing (-o graph.svg); on a page, choose the unit in its list", 2
        )
    files = [*([arguments.diff] if arguments.diff else []), arguments.file]
    return pictures.flamegraph(arguments, files, _UNITS[arguments.unit])
