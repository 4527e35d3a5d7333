"""Print the tree of calls: time and bytes of each branch, own code by default.

What the standard library and installed packages do counts for the line of own code that called
them.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import Failure, rows
from .answer import add_budget, add_json, cut, document, largest
from .files import add_file, load

if TYPE_CHECKING:
    from ..trace import Trace

EXAMPLES = (
    ("eventprof tree FILE", "where the time and the memory went, in own code"),
    ("eventprof tree FILE --all --limit 60", "with the insides of libraries"),
    ("eventprof tree FILE --slowest read_csv", "why the slowest call of a function was slow"),
    ("eventprof tree FILE --at 1.5ms", "the calls that were open then"),
    ("eventprof tree FILE --json --budget 400", "the heaviest branches that fit 400 tokens"),
)

_UNITS = {"ns": 1, "us": 1000, "ms": 1_000_000, "s": 1_000_000_000}


def time_ns(text: str) -> int:
    """Read a time: a number with ns, us, ms or s; ns without."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(ns|us|ms|s)?", text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"it must be a time such as 1.5ms, not {text!r}")
    return round(float(found[1]) * _UNITS[found[2] or "ns"])


def handle_of(letters: str) -> Callable[[str], int]:
    """Make the type of an option that takes a row, by its number or by its handle."""

    def row(text: str) -> int:
        return rows.count(text.removeprefix(f"{letters}-"))

    return row


def configure(parser: argparse.ArgumentParser) -> None:
    """Say which arguments there are."""
    add_file(parser)
    parser.add_argument("--all", action="store_true", help="show the insides of libraries, too")
    parser.add_argument(
        "--own", metavar="GLOB", action="append", default=[],
        help="own code is what matches (module, file, qualified name); can be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--node", metavar="N", type=handle_of("n"),
        help="this branch alone, by its handle as --json gives it: n-12",
    )  # fmt: skip
    one = parser.add_argument_group("one call").add_mutually_exclusive_group()
    one.add_argument(
        "--call", metavar="N", type=handle_of("c"), help="this row of the table of calls"
    )
    one.add_argument("--slowest", metavar="NAME", help="the slowest call of this function")
    one.add_argument("--span", metavar="NAME", help="the slowest span of this name")
    one.add_argument("--at", metavar="TIME", type=time_ns, help="the calls open at a time: 1.5ms")
    parser.add_argument(
        "--limit",
        metavar="N",
        type=rows.count,
        default=25,
        help="print at most N lines, 1 or more (25)",
    )
    parser.add_argument("--width", metavar="N", type=rows.count, help="in columns")
    add_budget(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    one = {name: getattr(arguments, name) for name in ("call", "slowest", "at", "span")}
    whole = all(value is None for value in one.values())
    trace = load(arguments.file, fold=whole)
    if arguments.json and not whole:
        raise Failure("--json goes with the whole tree, or --node", 2)
    if arguments.limit < 1:
        raise Failure("--limit: at least one line", 2)
    try:
        print(_answer(trace, arguments, one, whole))
    except ValueError as error:
        raise Failure(str(error), 2) from None
    return 0


def _answer(trace: Trace, arguments: argparse.Namespace, one: dict[str, Any], whole: bool) -> str:
    if not whole:
        return "\n".join(cut(_text(trace, arguments, one, arguments.limit), arguments.budget))
    if arguments.json:
        from ..answers.show import build, own_or_all, root_of, tree_rows

        tree = trace._tree
        own = own_or_all(trace, tree, arguments.all, arguments.own)
        root = root_of(tree, arguments.node)

        def answer(limit: int) -> str:
            branches = tree_rows(tree, build(tree, own, limit + 1, root))
            out = sum(row["folded"] for row in branches)
            return document("tree", trace, branches, left_out=out, file=arguments.file)

    else:

        def answer(limit: int) -> str:
            return "\n".join(_text(trace, arguments, one, limit + 1))

    # The lightest branches go first: they are folded into the branch above them, which says so.
    return largest(answer, arguments.limit - 1, arguments.budget)


def _text(
    trace: Trace, arguments: argparse.Namespace, one: dict[str, Any], limit: int
) -> list[str]:
    from ..answers.show import is_plain

    file = io.StringIO() if not is_plain(sys.stdout) else _Ascii()
    trace.show_tree(
        all=arguments.all, own=arguments.own, limit=limit, node=arguments.node,
        width=arguments.width, file=file, **one,
    )  # fmt: skip
    return file.getvalue().splitlines()


class _Ascii(io.StringIO):
    """Text for an output that has no more than ASCII."""

    encoding = "ascii"
