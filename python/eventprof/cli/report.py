"""Print a page about a recording: what is missing, where the time and the memory went.

Colours in a terminal only, and not where NO_COLOR is set.
"""

from __future__ import annotations

import argparse
import os

from . import Failure, rows
from .files import add_file, load

EXAMPLES = (
    ("eventprof report FILE", "the page, as wide as the terminal"),
    ("eventprof report FILE --limit 40 --width 140 > page.txt", "longer tables, in a file"),
)

_COLOURS = {"auto": {}, "always": {"FORCE_COLOR": "1"}, "never": {"NO_COLOR": "1"}}


def configure(parser: argparse.ArgumentParser) -> None:
    """Say which arguments there are."""
    add_file(parser)
    parser.add_argument("--width", metavar="N", type=rows.count, help="in columns, 40 or more")
    parser.add_argument(
        "--color", choices=_COLOURS, default="auto", help="whether to use colours (auto)"
    )
    parser.add_argument(
        "--limit",
        metavar="N",
        type=rows.count,
        default=15,
        help="rows of the longest table, 1 or more (15)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    trace = load(arguments.file)
    if arguments.color == "always":
        os.environ.pop("NO_COLOR", None)
    elif arguments.color == "never":
        os.environ.pop("FORCE_COLOR", None)
    os.environ.update(_COLOURS[arguments.color])  # this is how rich is told
    try:
        trace.report(width=arguments.width, limit=arguments.limit)
    except ValueError as error:
        raise Failure(f"--{error}", 2) from None
    return 0
