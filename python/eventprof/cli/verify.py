"""Replay recordings, and say what is wrong with each first.

Times, threads, functions and places; every end against the innermost open call; every block's
malloc and free; counts. What a ring lost, filters left out or a killed program did not finish is no
fault of a recording. Status 0: nothing is wrong; 1: something is; 2: a file cannot be read.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from typing import TYPE_CHECKING

from . import Failure, rows
from .answer import add_json, document, lost_as_well
from .files import add_file, readable

if TYPE_CHECKING:
    from ..trace.verification import Verification

EXAMPLES = (
    ("eventprof verify FILE", "what is wrong first, if anything is"),
    ("eventprof verify FILE --all --json", "everything, for programs"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Say which arguments there are."""
    add_file(parser, "files", several=True)
    parser.add_argument("--all", action="store_true", help="not only what is wrong first")
    parser.add_argument(
        "--limit",
        metavar="N",
        type=_limit,
        default=100,
        help="with --all, at most so many (100); the rest is counted",
    )
    add_json(parser)


def _limit(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number of 1 or more is meant, not {text!r}")
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
        warnings.simplefilter("ignore", RuntimeWarning)  # damage is a finding here
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
