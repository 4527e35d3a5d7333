"""Show the source of a program, each line coloured by the time or the bytes it took.

The page is one HTML file that needs no server and no network. It holds the text of the program's
files, as far as they are found. 'eventprof run --lines' records the time of each line; without
--lines, a line has the time of the calls that it made. With -o the page is written to that file and
not opened.
"""

from __future__ import annotations

import argparse

from .. import pictures
from ..files import add_file

EXAMPLES = (
    ("eventprof heatmap FILE", "open it in the browser"),
    ("eventprof heatmap FILE -o heat.html", "write a page that can be sent or kept"),
    ("eventprof heatmap FILE -o heat.html --browser", "write it, and open it"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_file(parser)
    pictures.add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the page, and open it unless -o was given."""
    return pictures.heatmap(arguments, arguments.file)
