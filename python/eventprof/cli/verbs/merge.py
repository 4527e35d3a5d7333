"""Join the recordings of several processes into one archive, on one clock."""

from __future__ import annotations

import argparse

from .. import Failure
from ..archives import add_output, refuse, write
from ..files import add_file, load

EXAMPLES = (("eventprof merge server-*.epr -o server.epr", "a process and its children"),)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_file(parser, "files", several=True)
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Join them."""
    import eventprof

    refuse(arguments)
    traces = [load(path, fold="functions") for path in arguments.files]
    try:
        merged = eventprof.merge(traces)
    except ValueError as error:
        raise Failure(str(error)) from None
    return write("merge", merged, arguments, arguments.files)
