"""Record a program that comes with eventprof, and show the results.

It tokenizes, parses, compiles and pickles modules of the standard library on a pool of threads.
The recording is kept in a file, for the other verbs.
"""

from __future__ import annotations

import argparse

EXAMPLES = (("eventprof demo --out demo.epr", "the recording, for eventprof report demo.epr"),)


def configure(parser: argparse.ArgumentParser) -> None:
    """Say which arguments there are."""
    parser.add_argument(
        "--out",
        metavar="FILE",
        default="eventprof-demo.epr",
        help="the recording (.epr), or its events by pandas: .pkl, .parquet (%(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run it."""
    from ..demo import main

    return main(["--out", arguments.out])
