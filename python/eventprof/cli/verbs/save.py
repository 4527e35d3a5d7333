"""Turn a recording into an archive, which is much smaller and opens quickly.

The recording itself stays as it is. If a damaged archive is saved again, its undamaged part is
copied.
"""

from __future__ import annotations

import argparse

from ..archives import add_output, refuse, write
from ..files import add_file, load

EXAMPLES = (
    ("eventprof save script-4711.epr -o script.epr", "after that the log file can be removed"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_file(parser)
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Save it."""
    refuse(arguments)
    return write("save", load(arguments.file, fold="functions"), arguments, [arguments.file])
