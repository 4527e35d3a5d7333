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
from typing import TYPE_CHECKING, Any

import numpy as np

from . import rows
from .answer import document, table_rows, tell_missing
from .files import add_file, load

if TYPE_CHECKING:
    from ..tables.table import Table
    from ..trace.trace import Trace

#: The columns to sort by, grouped by the way in which they are shown.
_TIMES = ("total", "self", "waited", "waited_self", "mean", "min", "max", "p50", "p95", "p99")
_MEMORY = ("allocated", "freed", "net", "live", "churn", "temporary", "at_peak")
_BYTES = tuple(name + end for name in _MEMORY for end in ("", "_self"))
_BLOCKS = ("blocks", "blocks_self")
_COUNTS = ("calls", "resumes", "recursive", *_BLOCKS)
_TEXTS = ("name", "module", "file", "line", "kind")
COLUMNS = (*_COUNTS, *_TIMES, *_BYTES, *_TEXTS)
_SHOWN = ("calls", "total", "self", "mean", "allocated", "allocated_self", "blocks_self")

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
        choices=COLUMNS,
        help=f"the largest first: {', '.join(COLUMNS)} (self; without calls allocated_self)",
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
    order = np.flatnonzero(keep)[_order(table[keep], sort)]
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
        _print(table, sort)
        if found > len(table):
            print(f"and {found - len(table):,} more; --limit 0 shows all")
    return 0


def functions_of(trace: Trace) -> Table:
    """Return the table of functions. Bytes and blocks are null if no allocations were recorded."""
    from ..tables.column import Column
    from ..tables.table import Table
    from ..tables.tables import recorded

    table = trace.functions
    if "memory" in recorded(trace):
        return table

    def unknown(column: Column) -> Column:
        if column.name not in _BYTES and column.name not in _BLOCKS:
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


def show(table: Table, sort: str, limit: int) -> None:
    """Print the first functions in an order."""
    order = _order(table, sort)
    _print(table[order[:limit].astype(np.int64)], sort)
    if len(table) > limit:
        print(f"and {len(table) - limit:,} more")


def _order(table: Table, name: str) -> Any:
    if name in ("name", "module", "file", "kind"):
        texts = np.array([text or "" for text in table[name]], dtype=object)
        return np.argsort(texts, kind="stable")
    values = np.ma.filled(table[name].astype(np.float64), -np.inf)
    return np.argsort(-values, kind="stable")


def _print(table: Table, sort: str) -> None:
    from ..base.text import short_path
    from ..show.drawing import show_bytes, show_ns

    names = list(_SHOWN)
    if sort not in names and sort not in _TEXTS:
        names.insert(0, sort)

    def shown(name: str, value: Any) -> str:
        if name in _TIMES:
            return rows.cell(show_ns, value)
        if name in _BYTES:
            return rows.cell(show_bytes, value)
        return rows.cell("{:,}".format, value)

    columns = {name: table._column(name).items() for name in (*names, *_TEXTS)}
    lines = []
    for at in range(len(table)):
        of = {name: column[at] for name, column in columns.items()}
        file = of["file"]
        place = "" if file is None else f"{rows.printable(short_path(file))}:{of['line']}"
        function = rows.full_name(of["name"], of["module"])
        lines.append([*(shown(name, of[name]) for name in names), function, place])
    rows.write_text(lines, [*names, "function", "where"], sys.stdout, left=2)
