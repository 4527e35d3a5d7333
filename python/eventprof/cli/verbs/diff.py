"""Compare two recordings by function: the values of the later minus the values of the earlier.

Functions of both are the same if their names, modules and files are equal; their lines may differ.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

from .. import Failure, rows
from ..answer import document, table_rows, tell_missing
from ..files import add_file, load

_SORTS = ("self", "total", "calls", "allocated", "allocated_self")

EXAMPLES = (
    ("eventprof diff before.epr after.epr", "the largest change of self time first"),
    (
        "eventprof diff before.epr after.epr --sort allocated --limit 5",
        "the largest change of allocated bytes first",
    ),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.usage = "eventprof diff [OPTION...] BEFORE AFTER"
    add_file(parser, "before")
    # Not required by argparse, whose message would not say what is missing.
    parser.add_argument(
        "after", metavar="FILE", nargs="?", help="the recording to compare it with, the later one"
    )
    parser.add_argument(
        "--sort",
        choices=_SORTS,
        default="self",
        help="sort by the size of this column's change, the largest first (self)",
    )
    rows.add_limit(parser, 30, "functions")
    rows.add_formats(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compare them."""
    if arguments.after is None:
        raise Failure(
            f"there is nothing to compare {arguments.before} with: name a second recording, the "
            "later one (eventprof diff BEFORE AFTER)",
            2,
        )
    before, after = (load(path, fold=True) for path in (arguments.before, arguments.after))
    try:
        table = before.diff(after)
    except ValueError as error:
        raise Failure(f"{arguments.after}: {error}") from None
    changes = np.ma.filled(table[f"{arguments.sort}_change"], 0)
    order = np.argsort(-np.abs(changes), kind="stable")
    found = len(order)
    if arguments.limit:
        order = order[: arguments.limit]
    table = table[order]
    for path, trace in ((arguments.before, before), (arguments.after, after)):
        tell_missing(trace, arguments, path)
    if arguments.json:
        print(document("diff", after, table_rows(table), left_out=found - len(table),
                       file=arguments.after, before=arguments.before,
                       before_lost=before.loss.total))  # fmt: skip
    elif arguments.csv:
        rows.write_csv([table], sys.stdout)
    else:
        _print(table)
        if found > len(table):
            print(f"and {found - len(table):,} more; --limit 0 shows all")
    return 0


def _signed(show: Any, value: int) -> str:
    return f"-{show(-value)}" if value < 0 else f"+{show(value)}" if value else "="


def _print(table: Any) -> None:
    from ..._words import show_bytes, show_ns

    shows = {"self": show_ns, "total": show_ns, "allocated": show_bytes, "calls": "{:,}".format}
    heads, columns = [], []
    for what, show in shows.items():
        heads += [what, "change"]
        after = table._column(f"{what}_after").items()
        change = table._column(f"{what}_change").items()
        columns.append([rows.cell(show, value) for value in after])
        columns.append([_signed(show, value) for value in change])
    names = zip(table["name"], table["module"], strict=True)
    columns.append([word if word != "both" else "" for word in table["status"]])
    columns.append([rows.full_name(name, module) for name, module in names])
    lines = list(zip(*columns, strict=True))
    rows.write_text(lines, [*heads, "", "function"], sys.stdout, left=2)
