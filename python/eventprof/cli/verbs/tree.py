"""Print the tree of calls: time and bytes of each branch, by default of own code.

The time and memory of the standard library and of installed packages count for the line of own code
that called them. The trees of several recordings (the processes of a program, or several runs) are
added.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import Failure, rows
from ..answer import add_budget, add_json, cut, document, largest
from ..files import add_file, load

if TYPE_CHECKING:
    from ...trace import Trace

EXAMPLES = (
    ("eventprof tree FILE", "where the time and the memory went, in own code"),
    ("eventprof tree FILE --all --limit 60", "with calls inside of libraries"),
    ("eventprof tree FILE --slowest read_csv", "why the slowest call of a function was slow"),
    ("eventprof tree FILE --at 1.5ms", "the calls that were open then"),
    ("eventprof tree FILE --slowest read_csv --json", "the same for a program"),
    ("eventprof tree run-*.epr", "the processes of a program, added by path of calls"),
    ("eventprof tree FILE --json --budget 400", "the heaviest branches that fit 400 tokens"),
)

_UNITS = {"ns": 1, "us": 1000, "ms": 1_000_000, "s": 1_000_000_000}


def time_ns(text: str) -> int:
    """Read a time: a number with a unit (ns, us, ms or s), or a number of ns."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(ns|us|ms|s)?", text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"it must be a time such as 1.5ms, not {text!r}")
    return round(float(found[1]) * _UNITS[found[2] or "ns"])


def handle_of(letters: str) -> Callable[[str], int]:
    """Make the type of an option that takes a row by its number or its handle."""

    def row(text: str) -> int:
        return rows.count(text.removeprefix(f"{letters}-"))

    return row


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_file(parser, several=True)
    parser.add_argument("--all", action="store_true", help="show calls inside of libraries, too")
    parser.add_argument(
        "--own", metavar="GLOB", action="append", default=[],
        help="own code is what matches (module, file, qualified name); can be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--node", metavar="N", type=handle_of("n"),
        help="show only this branch, by its handle from --json: n-12",
    )  # fmt: skip
    one = parser.add_argument_group("one call").add_mutually_exclusive_group()
    one.add_argument(
        "--call", metavar="N", type=handle_of("c"), help="the call with this row in trace.calls"
    )
    one.add_argument(
        "--slowest",
        metavar="NAME",
        help="the slowest call of this function, in own code if it is there, too",
    )
    one.add_argument("--span", metavar="NAME", help="the slowest span of this name")
    one.add_argument("--at", metavar="TIME", type=time_ns, help="the calls open at a time: 1.5ms")
    parser.add_argument(
        "--limit",
        metavar="N",
        type=rows.count,
        default=25,
        help="print at most N lines, 1 or more (25)",
    )
    parser.add_argument("--width", metavar="N", type=rows.count, help="width in columns")
    add_budget(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    one = {name: getattr(arguments, name) for name in ("call", "slowest", "at", "span")}
    whole = all(value is None for value in one.values())
    if arguments.limit < 1:
        raise Failure("--limit: it must be 1 or more", 2)
    if len(arguments.file) > 1:
        return _added(arguments, whole and arguments.node is None)
    (arguments.file,) = arguments.file
    trace = load(arguments.file, fold=whole)
    try:
        print(_answer(trace, arguments, one, whole))
    except ValueError as error:
        raise Failure(str(error), 2) from None
    return 0


def _added(arguments: argparse.Namespace, whole: bool) -> int:
    """Print the trees of several recordings as one."""
    from ...show.tree import is_plain, show_added

    if not whole or arguments.json:
        raise Failure("--json, --node and the options of one call go with one recording", 2)
    traces = [load(path, fold=True) for path in arguments.file]

    def answer(limit: int) -> str:
        file = io.StringIO() if not is_plain(sys.stdout) else _Ascii()
        show_added(traces, file, all=arguments.all, own=arguments.own, limit=limit + 1,
                   width=arguments.width)  # fmt: skip
        return file.getvalue().rstrip("\n")

    print(largest(answer, arguments.limit - 1, arguments.budget))
    return 0


def _answer(trace: Trace, arguments: argparse.Namespace, one: dict[str, Any], whole: bool) -> str:
    if not whole and arguments.json:
        from ...answers.one_call import call_rows, find_call, open_rows

        given = {name: value for name, value in one.items() if value is not None}
        if "at" in given:
            found, out = open_rows(trace, given["at"]), 0
        else:
            found, out, _ = call_rows(trace, find_call(trace, given), arguments.limit)
        return document(
            "tree", trace, found, budget=arguments.budget, left_out=out, file=arguments.file
        )
    if not whole:
        return "\n".join(cut(_text(trace, arguments, one, arguments.limit), arguments.budget))
    if arguments.json:
        from ...answers.branches import build, own_or_all, root_of, tree_rows

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

    # To fit the budget, the lightest branches are folded into the branch above, which says so.
    return largest(answer, arguments.limit - 1, arguments.budget)


def _text(
    trace: Trace, arguments: argparse.Namespace, one: dict[str, Any], limit: int
) -> list[str]:
    from ...show.tree import is_plain

    file = io.StringIO() if not is_plain(sys.stdout) else _Ascii()
    trace.show_tree(
        all=arguments.all, own=arguments.own, limit=limit, node=arguments.node,
        width=arguments.width, file=file, **one,
    )  # fmt: skip
    return file.getvalue().splitlines()


class _Ascii(io.StringIO):
    """A text file for output that can show only ASCII."""

    encoding = "ascii"
