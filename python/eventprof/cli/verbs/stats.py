"""List the functions of a recording with their counts, times and bytes.

self is the time without the calls inside, total the time with them. waited is the part of total in
which another thread had the interpreter's lock. allocated and freed are bytes, net is their
difference. live is what was not freed at the end, at_peak what was live when the most memory was
live. Bytes are with all calls inside; columns whose names end with _self are of the function alone.
Without recorded allocations, bytes and blocks are unknown: -, empty or null.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

import numpy as np

from .. import functions, rows
from ..answer import document, table_rows, tell_missing
from ..files import add_file, load

if TYPE_CHECKING:
    from ...tables.table import Table
    from ...trace.trace import Trace

EXAMPLES = (
    ("eventprof stats FILE", "the functions with the most self time"),
    ("eventprof stats FILE --sort allocated --limit 10", "the ten that allocated the most bytes"),
    ("eventprof stats FILE --function 'json.*' --csv > json.csv", "for a spreadsheet"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_file(parser)
    parser.add_argument(
        "--sort",
        metavar="COLUMN",
        choices=functions.COLUMNS,
        help=f"the largest first: {', '.join(functions.COLUMNS)} (self; without calls "
        "allocated_self)",
    )
    parser.add_argument("--reverse", action="store_true", help="the smallest first")
    parser.add_argument(
        "--function",
        metavar="GLOB",
        action="append",
        help="only functions whose module, file or qualified name match; can be repeated",
    )
    rows.add_limit(parser, 30, "functions")
    rows.add_formats(parser)


def run(arguments: argparse.Namespace) -> int:
    """List them."""
    trace = load(arguments.file, fold=True)
    table = functions_of(trace)
    keep = np.ones(len(table), dtype=bool)
    if arguments.function:
        keep = rows.match_functions(trace, arguments.function)
    timed = np.ma.filled(table["calls"], 0).any() or np.ma.filled(table["self"], 0).any()
    sort = arguments.sort or ("self" if timed else "allocated_self")
    order = np.flatnonzero(keep)[functions.order_of(table[keep], sort)]
    if arguments.reverse:
        order = order[::-1]
    found = len(order)
    if arguments.limit:
        order = order[: arguments.limit]
    table = table[order.astype(np.int64)]
    tell_missing(trace, arguments)
    if arguments.json:
        handles = [f"fn-{row}" for row in order.tolist()]
        print(document("stats", trace, table_rows(table, handles), left_out=found - len(table),
                       file=arguments.file))  # fmt: skip
    elif arguments.csv:
        rows.write_csv([table], sys.stdout)
    else:
        functions.write(table, sort)
        if found > len(table):
            print(f"and {found - len(table):,} more; --limit 0 shows all")
    return 0


def functions_of(trace: Trace) -> Table:
    """Return the table of functions. Bytes and blocks are null if no allocations were recorded."""
    from ...tables.column import Column
    from ...tables.table import Table
    from ...tables.tables import recorded

    table = trace.functions
    if "memory" in recorded(trace):
        return table

    def unknown(column: Column) -> Column:
        if column.unit != "bytes" and not column.name.startswith("blocks"):
            return column
        return Column(
            column.name,
            column.values,
            column.dtype,
            null=lambda: np.ones(len(table), bool),
            unit=column.unit,
            doc=column.doc,
        )

    columns = [unknown(table._column(name)) for name in table.columns]
    return Table(table.name, columns, len(table))
