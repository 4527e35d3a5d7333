"""Write a part of a recording to an archive, so that it can be handed on.

The part is chosen by time, threads and functions; whole sorts of events can be dropped. With
--anonymise the names of the program, and all else that tells whose it is, are replaced by others.
"""

from __future__ import annotations

import argparse

from .. import Failure
from ..archives import add_output, refuse, say
from ..files import add_file, readable
from ..options import parse_time

EXAMPLES = (
    ("eventprof trim big.epr -o part.epr --between 2s 2.5s", "half a second of it"),
    ("eventprof trim big.epr -o calls.epr --drop blocks --thread MainThread", "only its calls"),
    ("eventprof trim own.epr -o report.epr --anonymise", "no name of the program is in it"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    from ...files.trimming import GROUPS

    add_file(parser)
    add_output(parser)
    parser.add_argument(
        "--between", nargs=2, metavar="TIME",
        help="only events between two times, for example 1.5ms 2ms; times count from the first",
    )  # fmt: skip
    parser.add_argument(
        "--thread", action="append", default=[], metavar="NAME",
        help="only this thread: its name, a glob of it, or its number; can be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--function", action="append", default=[], metavar="GLOB",
        help="only calls of functions that match, as run --include says; can be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--drop", action="append", default=[], choices=GROUPS, metavar="WHAT",
        help=f"leave out one of {', '.join(GROUPS)}; can be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--anonymise", "--anonymize", action="store_true",
        help="give functions, files, threads, tasks, marks and labels other names",
    )  # fmt: skip
    parser.add_argument(
        "--mapping", metavar="FILE",
        help="keep the other names in this file, and use those that are in it; not to be handed on",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Write it."""
    from ... import FormatError
    from ...files.trimming import trim

    refuse(arguments)
    if arguments.mapping is not None and not arguments.anonymise:
        raise Failure("--mapping goes with --anonymise", 2)
    try:
        between = arguments.between and tuple(map(parse_time, arguments.between))
    except ValueError as error:
        raise Failure(f"--between: {error}", 2) from None
    with readable(arguments.file):
        try:
            trace = trim(
                arguments.file,
                arguments.output,
                between=between,
                threads=arguments.thread,
                functions=arguments.function,
                drop=arguments.drop,
                anonymise=arguments.anonymise,
                mapping=arguments.mapping,
                force=arguments.force,
            )
        except FormatError:
            raise
        except ValueError as error:
            raise Failure(str(error), 2) from None
    return say("trim", trace, arguments, [arguments.file])
