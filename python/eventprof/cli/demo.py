"""Record a program that comes along, and show what came out.

It tokenizes, parses, compiles and pickles modules of the standard library on a pool of threads.
Needs pandas.
"""

from __future__ import annotations

import argparse

EXAMPLES = (("eventprof demo --out events.pkl", "the events, as a pickled dataframe"),)


def configure(parser: argparse.ArgumentParser) -> None:
    """Say which arguments there are."""
    parser.add_argument(
        "--out",
        metavar="FILE",
        default="eventprof-demo.pkl",
        help="where the events go: .pkl, or .parquet if pyarrow is there (%(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run it."""
    from ..demo import main

    return main(["--out", arguments.out])
