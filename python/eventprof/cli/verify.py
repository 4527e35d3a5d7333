"""Replay recordings, and report the first error in each.

It checks times, threads, functions and sites; each end of a call against the innermost open call;
malloc and free of each block; and counts. Events that a ring lost, that filters left out or that a
killed program did not finish are not errors. Status 0: no error; 1: an error was found; 2: a file
cannot be read.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from typing import TYPE_CHECKING

from . import Failure, rows
from .files import add_file, readable

if TYPE_CHECKING:
    from ..trace.verification import Verification

EXAMPLES = (
    ("eventprof verify FILE", "the first error, if there is one"),
    ("eventprof verify FILE --all --json", "all errors, for programs"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Say which arguments there are."""
    add_file(parser, "files", several=True)
    parser.add_argument("--all", action="store_true", help="report all errors, not only the first")
    parser.add_argument(
        "--limit",
        metavar="N",
        type=_limit,
        default=100,
        help="with --all, print at most N errors (100); the others are counted",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line for each file")


def _limit(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"it must be a whole number of 1 or more, not {text!r}")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Replay them."""
    status = 0
    for path in arguments.files:
        try:
            found = _verify(path, arguments)
        except Failure as failure:
            print(rows.printable(f"eventprof verify: {failure}"), file=sys.stderr)
            status = 2
            continue
        if arguments.json:
            print(json.dumps({"file": path, **found.as_dict()}))
        else:
            for line in str(found).splitlines():
                print(rows.printable(f"{path}: {line}"))
        status = max(status, 0 if found.ok else 1)
    return status


def _verify(path: str, arguments: argparse.Namespace) -> Verification:
    import eventprof

    with readable(path), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # here damage is a finding
        try:
            return eventprof.open(path).verify(all=arguments.all, limit=arguments.limit)
        except (FileNotFoundError, IsADirectoryError):
            raise
        except OSError as error:
            raise Failure(f"{path}: {error.strerror or error}") from None
        except eventprof.UnsupportedError as error:
            raise Failure(f"{path}: {error}") from None
