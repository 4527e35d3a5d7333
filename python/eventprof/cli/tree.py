"""Print the tree of calls: time and bytes of each branch, own code by default.

What the standard library and installed packages do counts for the line of own code that called
them.
"""

from __future__ import annotations

import argparse
import json
import re
import sys

from . import Failure, rows
from .files import add_file, load, warn_of_loss

EXAMPLES = (
    ("eventprof tree FILE", "where the time and the memory went, in own code"),
    ("eventprof tree FILE --all --limit 60", "with the insides of libraries"),
    ("eventprof tree FILE --slowest read_csv", "why the slowest call of a function was slow"),
    ("eventprof tree FILE --at 1.5ms", "the calls that were open then"),
)

_UNITS = {"ns": 1, "us": 1000, "ms": 1_000_000, "s": 1_000_000_000}


def time_ns(text: str) -> int:
    """Read a time: a number with ns, us, ms or s; ns without."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(ns|us|ms|s)?", text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"it must be a time such as 1.5ms, not {text!r}")
    return round(float(found[1]) * _UNITS[found[2] or "ns"])


def configure(parser: argparse.ArgumentParser) -> None:
    """Say which arguments there are."""
    add_file(parser)
    parser.add_argument("--all", action="store_true", help="show the insides of libraries, too")
    parser.add_argument(
        "--own", metavar="GLOB", action="append", default=[],
        help="own code is what matches (module, file, qualified name); can be repeated",
    )  # fmt: skip
    one = parser.add_argument_group("one call").add_mutually_exclusive_group()
    one.add_argument(
        "--call",
        metavar="N",
        type=rows.count,
        help="show the call in this row of the table of calls",
    )
    one.add_argument("--slowest", metavar="NAME", help="show the slowest call of this function")
    one.add_argument("--span", metavar="NAME", help="show the slowest span of this name")
    one.add_argument(
        "--at",
        metavar="TIME",
        type=time_ns,
        help="show the calls that were open at a time, for example 1.5ms",
    )
    parser.add_argument(
        "--limit",
        metavar="N",
        type=rows.count,
        default=25,
        help="print at most N lines, 1 or more (25)",
    )
    parser.add_argument("--width", metavar="N", type=rows.count, help="in columns")
    parser.add_argument("--json", action="store_true", help="one JSON object a line; times in ns")


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    one = {name: getattr(arguments, name) for name in ("call", "slowest", "at", "span")}
    trace = load(arguments.file, fold=all(value is None for value in one.values()))
    if arguments.json and any(value is not None for value in one.values()):
        raise Failure("--json goes with the whole tree", 2)
    if arguments.limit < 1:
        raise Failure("--limit: at least one line", 2)
    if arguments.json:
        from ..answers.show import build, own_or_all, tree_rows

        tree = trace._tree
        own = own_or_all(trace, tree, arguments.all, arguments.own)
        for row in tree_rows(tree, build(tree, own, arguments.limit)):
            print(json.dumps(row))
    else:
        try:
            trace.show_tree(
                all=arguments.all, own=arguments.own, limit=arguments.limit,
                width=arguments.width, **one,
            )  # fmt: skip
        except ValueError as error:
            raise Failure(str(error), 2) from None
    missing = warn_of_loss(trace)
    if missing:
        print(missing, file=sys.stderr)
    return 0
