"""What verbs share that write an archive: ``save``, ``merge`` and ``trim``."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from . import Failure, rows
from .answer import add_json, lost_as_well, written

if TYPE_CHECKING:
    from ..trace import Trace


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name the archive to a parser."""
    parser.add_argument("-o", "--output", metavar="ARCHIVE", required=True, help="the archive")
    parser.add_argument("-f", "--force", action="store_true", help="replace a file that exists")
    add_json(parser)


def refuse(arguments: argparse.Namespace) -> None:
    """Fail if the archive may not be written: before a recording is read, which may take long."""
    from ..export.saving import check

    try:
        check(arguments.output, arguments.force)
    except ValueError as error:
        raise Failure(str(error), 2) from None


def write(verb: str, trace: Trace, arguments: argparse.Namespace, sources: list[str]) -> int:
    """Write an archive, and say how large it is."""
    trace.save(arguments.output, force=arguments.force)
    return say(verb, trace, arguments, sources)


def say(verb: str, trace: Trace, arguments: argparse.Namespace, sources: list[str]) -> int:
    """Print what an archive holds, and how large it is."""
    from .._words import show_bytes

    before = sum(map(_bytes_of, sources))
    after = os.path.getsize(arguments.output)
    if arguments.json:
        written(verb, arguments.output, trace, after, sources=sources)
        return 0
    events = f"{trace._facts['events']:,} events{lost_as_well(trace)}"
    print(
        f"{rows.printable(arguments.output)}: {events}, {show_bytes(after)}"
        f" (from {show_bytes(before)})"
    )
    return 0


def _bytes_of(path: str) -> int:
    """Return the size of a recording; of a folder, that of the recordings in it."""
    if not os.path.isdir(path):
        return os.path.getsize(path)
    from ..files.family import paths

    return sum(map(os.path.getsize, paths(path)))
