"""Replay recordings, and report the first error in each.

It checks times, threads, functions and sites; each end of a call against the innermost open call;
malloc and free of each block; and counts. Events that were overwritten, that filters left out, or
that a killed program did not finish are not errors. Status 0: no error; 1: an error was found; 2: a
file cannot be read.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from typing import TYPE_CHECKING

from .. import Failure, rows
from ..answer import add_json, document, lost_as_well
from ..files import add_file, readable

if TYPE_CHECKING:
    from ...answers.verification import Verification

EXAMPLES = (
    ("eventprof verify FILE", "the first error, if there is one"),
    ("eventprof verify FILE --all --json", "all errors, for programs"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_file(parser, "files", several=True)
    parser.add_argument("--all", action="store_true", help="report all errors, not only the first")
    parser.add_argument(
        "--limit",
        metavar="N",
        type=_limit,
        default=100,
        help="with --all, print at most N errors (100); the others are counted",
    )
    add_json(parser)


def _limit(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"it must be a whole number of 1 or more, not {text!r}")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Replay them."""
    status, answers = 0, []
    for path in arguments.files:
        try:
            found, lost = _verify(path, arguments)
        except Failure as failure:
            print(rows.printable(f"eventprof verify: {failure}"), file=sys.stderr)
            status = 2
            continue
        if arguments.json:
            answers.append({"file": path, **found.as_dict()})
        else:
            first, *more = str(found).splitlines()
            for line in (f"{first}{lost}", *more):
                print(rows.printable(f"{path}: {line}"))
        status = max(status, 0 if found.ok else 1)
    if arguments.json:
        print(document("verify", None, answers))
    return status


def _verify(path: str, arguments: argparse.Namespace) -> tuple[Verification, str]:
    import eventprof

    with readable(path), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # here damage is a finding
        try:
            trace = eventprof.open(path)
            found = trace.verify(all=arguments.all, limit=arguments.limit)
            return found, lost_as_well(trace)
        except (FileNotFoundError, IsADirectoryError):
            raise
        except OSError as error:
            raise Failure(f"{path}: {error.strerror or error}") from None
        except eventprof.UnsupportedError as error:
            raise Failure(f"{path}: {error}") from None
