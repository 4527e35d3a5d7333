"""Record a program that comes with eventprof, and show the results.

It tokenizes, parses, compiles and pickles modules of the standard library on a pool of threads.
The recording is kept in a file, for the other verbs.
"""

from __future__ import annotations

import argparse

EXAMPLES = (("eventprof demo --out demo.epr", "the recording, for eventprof report demo.epr"),)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="the recording (.epr), or its events by pandas: .pkl, .parquet "
        "(eventprof-demo.epr, or eventprof-demo-2.epr and so on if that exists)",
    )
    parser.add_argument("-f", "--force", action="store_true", help="replace an existing file")


def run(arguments: argparse.Namespace) -> int:
    """Run it."""
    from ...demo import main

    given = [] if arguments.out is None else ["--out", arguments.out]
    return main([*given, *(["--force"] if arguments.force else [])])
