"""Show a recording as a page: every call on a timeline, above the memory by function.

The page is one HTML file that needs no server and no network. With -o it is written to that file
and not opened; otherwise it is written to a temporary folder and opened in the browser.
"""

from __future__ import annotations

import argparse
import os
import re

from .._words import show_bytes
from . import Failure
from .answer import add_json, lost_as_well, written
from .files import add_file, load

EXAMPLES = (
    ("eventprof view FILE", "open it in the browser"),
    ("eventprof view FILE -o page.html", "write a page that can be sent or kept"),
    ("eventprof view FILE -o page.html --time-grain 32ns", "a smaller page"),
)

_UNITS = {"": 1, "ns": 1, "us": 1000, "ms": 1_000_000}


def configure(parser: argparse.ArgumentParser) -> None:
    """Say which arguments there are."""
    add_file(parser)
    parser.add_argument(
        "-o", "--output", metavar="PAGE", help="write the page to this file, and do not open it"
    )
    parser.add_argument("-f", "--force", action="store_true", help="replace an existing file")
    parser.add_argument("--title", metavar="TEXT", help="title of the page (the program's name)")
    parser.add_argument(
        "--time-grain",
        metavar="TIME",
        type=_grain,
        default=1,
        help="round times down to multiples of this, for example 32ns: a smaller page (1ns)",
    )
    add_json(parser)


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
    from ..viewer import open_page, write

    trace = load(arguments.file)
    path = arguments.output
    if path is None:
        path = open_page(trace, title=arguments.title, grain=arguments.time_grain)
        said = f"{path}: opened in the browser{lost_as_well(trace)}"
    else:
        try:
            write(
                trace,
                path,
                title=arguments.title,
                grain=arguments.time_grain,
                force=arguments.force,
            )
        except FileExistsError:
            raise Failure(f"{path}: exists already; -f replaces it") from None
        size = show_bytes(os.path.getsize(path))
        said = f"{path}: {trace._facts['events']:,} events{lost_as_well(trace)}, {size}"
    if arguments.json:
        written("view", path, trace, os.path.getsize(path))
    else:
        print(said)
    return 0
