"""Make a dataset of many recordings, or say what one answers.

With -o, recordings and folders of them become Parquet files, which DuckDB, Polars, Dask and Spark
read: a file for each recording and table. A recording that is there already is replaced. Without,
FILE is a dataset, and the slowest functions and calls, the largest peaks and what was lost are
printed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import Failure, rows
from ..answer import add_json, document, table_rows
from ..options import parse_label
from ..progress import Bar

if TYPE_CHECKING:
    from ...datasets.dataset import Dataset

EXAMPLES = (
    ("eventprof dataset run-*.epr -o runs/", "make a dataset of recordings"),
    ("eventprof dataset night/ -o runs/ --partials --jobs 4", "of a folder; sums alone"),
    ("eventprof dataset runs/", "what they answer together"),
    ("eventprof dataset runs/ --compact", "the same, from one file of each table"),
    ("eventprof dataset runs/ --show tree", "the tree of calls of all of them"),
)

#: What --show takes, and the columns that are printed of each.
_SHOWN = {
    "functions": ("self", "total", "calls", "p50", "p95", "max", "allocated_self"),
    "slowest": ("duration", "self", "waited", "start"),
    "processes": ("events", "lost", "duration", "peak"),
    "memory": ("bytes", "blocks"),
    "tree": (),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "file", metavar="FILE", nargs="+",
        help="recordings and folders of recordings; without -o, one dataset",
    )  # fmt: skip
    make = parser.add_argument_group("making one")
    make.add_argument("-o", "--output", metavar="DATASET", help="the folder to write, or to add to")
    make.add_argument(
        "--partials", action="store_true",
        help="only what adds up: no calls, no blocks. Is read in one pass, without columns",
    )  # fmt: skip
    make.add_argument("--events", action="store_true", help="all events as well")
    make.add_argument(
        "--jobs", metavar="N", type=rows.count, default=1, help="read N recordings at a time (1)"
    )
    make.add_argument(
        "--compact", action="store_true",
        help="at the end make one file of each table; without -o, of a dataset that there is",
    )  # fmt: skip
    ask = parser.add_argument_group("asking one")
    ask.add_argument("--show", metavar="WHAT", choices=tuple(_SHOWN),
                     help=f"only this: {', '.join(_SHOWN)}")  # fmt: skip
    ask.add_argument("--engine", metavar="ENGINE", choices=("duckdb", "polars", "dask"),
                     default="duckdb", help="duckdb, polars or dask (duckdb)")  # fmt: skip
    ask.add_argument("--scheduler", metavar="ADDRESS", help="of Dask: tcp://HOST:PORT")
    ask.add_argument(
        "--label", metavar="NAME=VALUE", action="append", default=[],
        help="only recordings with this label; can be repeated",
    )  # fmt: skip
    rows.add_limit(ask, 10, "rows of each")  # type: ignore[arg-type]
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Make it, or print what it answers."""
    try:
        return _make(arguments) if arguments.output is not None else _answer(arguments)
    except ValueError as error:
        raise Failure(str(error), 2) from None


def _make(arguments: argparse.Namespace) -> int:
    from ...datasets.writing import compact_files, make

    if arguments.show:
        raise Failure(
            "--show is for reading a dataset, and -o makes one: leave one of the two out", 2
        )
    if arguments.label:
        raise Failure("--label is for reading a dataset, and -o makes one: leave one out", 2)
    if arguments.partials and arguments.events:
        raise Failure("give --partials or --events, not both", 2)
    with Bar("converting") as bar:
        made, problems = make(
            arguments.file, arguments.output, not arguments.partials, arguments.events,
            arguments.jobs, bar,
        )  # fmt: skip
    if arguments.compact and made:
        compact_files(Path(arguments.output))
    for problem in problems:
        print(f"eventprof dataset: left out: {rows.printable(problem)}", file=sys.stderr)
    if arguments.json:
        row = {"output": arguments.output, "recordings": made, "left_out": problems}
        print(document("dataset", None, [row], file=arguments.output))
    elif not made:
        print(f"eventprof dataset: no recording could be converted; nothing was added to "
              f"{arguments.output}", file=sys.stderr)  # fmt: skip
    else:
        recordings = "recording" if made == 1 else "recordings"
        print(f"{arguments.output}: {made:,} {recordings}; eventprof dataset {arguments.output}")
    return 1 if problems else 0


def _answer(arguments: argparse.Namespace) -> int:
    from ...datasets.dataset import dataset

    if arguments.partials or arguments.events:
        raise Failure("--partials and --events need -o: they are for making a dataset", 2)
    if len(arguments.file) > 1:
        raise Failure(
            "only one dataset can be read at a time; to make one of recordings, give -o DATASET", 2
        )
    if arguments.json and arguments.show == "tree":
        raise Failure(
            "--json goes with --show functions, slowest, processes or memory, not with tree", 2
        )
    (path,) = arguments.file
    found = dataset(path, arguments.engine, scheduler=arguments.scheduler)
    if arguments.label:
        found = found.only(labels=dict(map(parse_label, arguments.label)))
    if arguments.compact:
        before, after = found.compact()
        print(f"{path}: {after:,} files instead of {before:,}", file=sys.stderr)
    limit = arguments.limit or sys.maxsize
    if arguments.json:
        what = arguments.show or "functions"
        table = _table(found, what, limit)
        print(document("dataset", None, table_rows(table[:limit]), file=path, table=what,
                       left_out=max(len(table) - limit, 0), missing=found.problems))  # fmt: skip
        return 0
    print(rows.printable(found.headline()))
    chosen = [arguments.show] if arguments.show else ["functions", "slowest", "processes"]
    for what in chosen:
        if what == "tree":
            found.show_tree(limit=min(limit, 25) if arguments.limit else 1000)
            continue
        if what == "slowest" and not arguments.show and not any((found.path / what).glob("*")):
            continue
        table = _table(found, what, limit)
        print(f"\n{_HEADS[what]}")
        _print(table[:limit], what)
        if len(table) > limit:
            print(f"and {len(table) - limit:,} more; --limit 0 shows all")
    return 0


_HEADS = {
    "functions": "functions, the most self time first",
    "slowest": "the slowest calls",
    "processes": "recordings, the most events first",
    "memory": "what held the memory at the peak of each recording",
}


def _table(found: Dataset, what: str, limit: int) -> Any:
    if what == "memory":
        return found.holders("line")
    if what == "slowest":
        return found.slowest(min(limit, 1000))
    return getattr(found, what)


def _print(table: Any, what: str) -> None:
    from ..._words import show_bytes, show_ns
    from ...base.text import short_path

    names = _SHOWN[what]
    units = {name: table._columns[name].unit for name in names}
    show: dict[str, Any] = {"ns": show_ns, "bytes": show_bytes, "": "{:,}".format}
    items = {name: table._columns[name].items() for name in table.columns}
    lines = []
    for row in range(len(table)):
        cells = [rows.cell(show[units[name]], items[name][row]) for name in names]
        if what == "processes":
            words = [rows.printable(str(items["name"][row])), rows.printable(
                f"{items['host'][row] or ''} {items['pid'][row] or ''}".strip())]  # fmt: skip
        else:
            function = rows.full_name(items["name"][row], items["module"][row])
            file = items.get("file", [None] * len(table))[row]
            line = items.get("line", [None] * len(table))[row]
            where = "" if file is None else f"{rows.printable(short_path(file))}:{line}"
            if what == "slowest":
                where = f"{items['process'][row] & 0xFFFF_FFFF_FFFF_FFFF:016x}"
            words = [function, where]
        lines.append([*cells, *words])
    last = {"processes": ("name", "host, pid"), "slowest": ("function", "recording")}
    rows.write_text(lines, [*names, *last.get(what, ("function", "where"))], sys.stdout, left=2)
