"""List the slowest requests of a service's recording, and where their time went.

A request is what a middleware of eventprof saw, or what the program calls eventprof.request. busy
is how long its calls were open; in the rest of the time it waited as a task. waited is the part of
busy in which another thread had the interpreter's lock. Of one request that a task served: what its
time went to, with what the task awaited and what ran before it.
"""

from __future__ import annotations

import argparse
import fnmatch
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import Failure, rows
from ..answer import add_budget, add_json, cut, document, link_row, table_rows, tell_missing
from ..files import add_file, load

if TYPE_CHECKING:
    from ...answers.tasks import Link
    from ...tables.table import Table
    from ...trace import Trace

EXAMPLES = (
    ("eventprof requests FILE", "the ten slowest, and the function that took most of each"),
    ("eventprof requests FILE --route '/orders/*'", "those of some routes"),
    ("eventprof requests FILE --request 4711-12", "the functions that one request spent time in"),
    ("eventprof requests FILE --json --limit 0", "all of them, for a program"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_file(parser)
    parser.add_argument(
        "--request", metavar="ID", help="one request, by what the column request has: its functions"
    )
    parser.add_argument(
        "--route", metavar="GLOB", action="append", default=[],
        help="only those whose route matches; can be repeated",
    )  # fmt: skip
    rows.add_limit(parser, 10, "rows")
    add_budget(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """List them."""
    trace = load(arguments.file)
    table = trace.requests
    if not len(table) and not arguments.json:
        raise Failure(
            f"{arguments.file}: no requests are in it; eventprof.ASGIMiddleware, WSGIMiddleware "
            "and eventprof.request() record them"
        )
    if arguments.request is not None:
        return _one(trace, table, arguments)
    keep = np.ones(len(table), bool)
    if arguments.route:
        keep = np.array(
            [
                any(fnmatch.fnmatchcase(route or "", glob) for glob in arguments.route)
                for route in table["route"]
            ]
        )
    found = np.flatnonzero(keep)
    found = found[np.argsort(-table["total"][found], kind="stable")]
    shown = found[: arguments.limit or None]
    _answer(trace, table[shown], [f"s-{row}" for row in table["span"][shown].tolist()],
            len(found) - len(shown), arguments, _lines)  # fmt: skip
    return 0


def _one(trace: Trace, table: Table, arguments: argparse.Namespace) -> int:
    if arguments.request not in table["request"].tolist():
        raise Failure(f"--request: there is no request {arguments.request!r} in this recording", 2)
    functions = trace.where(request=arguments.request).functions
    count = len(functions)
    functions = functions[: arguments.limit or None]
    handles = [f"fn-{row}" for row in functions["function"].tolist()]
    (row,) = np.flatnonzero(np.asarray(table["request"]) == arguments.request)[:1].tolist()
    span = int(table["span"][row])
    links = _links(trace, span, int(table["start"][row]), int(table["total"][row]))

    def lines(functions: Table) -> list[str]:
        return [*_function_lines(functions), *_link_lines(links, int(table["total"][row]))]

    more = {"links": [link_row(link) for link in links]} if links else {}
    _answer(trace, functions, handles, count - len(functions), arguments, lines, **more)
    return 0


def _links(trace: Trace, span: int, start: int, total: int) -> list[Link]:
    """Return what the time of a request went to, if a task served it."""
    from ...answers.tasks import Tasks, links_of, task_at

    if not trace._has_tasks:
        return []
    tasks = Tasks(trace)
    task = task_at(tasks, int(trace.spans["thread"][span]), start)
    return [] if task is None else links_of(tasks, task, start, start + total)


def _link_lines(links: list[Link], total: int) -> list[str]:
    from ...show.tasks import chain

    return (
        ["what its time went to", *(f"  {link}" for link in chain(links, total))] if links else []
    )


def _answer(
    trace: Trace,
    table: Table,
    handles: list[str],
    left_out: int,
    arguments: argparse.Namespace,
    lines: Any,
    **more: Any,
) -> None:
    tell_missing(trace, arguments)
    if arguments.json:
        print(document("requests", trace, table_rows(table, handles), left_out=left_out,
                       budget=arguments.budget, file=arguments.file, **more))  # fmt: skip
        return
    text = lines(table)
    if left_out:
        text.append(f"and {left_out:,} more; --limit 0 shows all")
    print("\n".join(cut(text, arguments.budget)))


def _shown(table: Table, name: str) -> list[str]:
    from ..._words import show_bytes, show_ns

    show = {"allocated": show_bytes, "allocated_self": show_bytes, "calls": "{:,}".format}
    return [rows.cell(show.get(name, show_ns), value) for value in table._column(name).items()]


def _words(*texts: str | None) -> str:
    return rows.printable(" ".join(text for text in texts if text))


def _lines(table: Table) -> list[str]:
    items = {name: table._column(name).items() for name in table.columns}
    of_rows = [dict(zip(items, row, strict=True)) for row in zip(*items.values(), strict=True)]
    numbers = ("total", "busy", "waited", "allocated")
    cells = [_shown(table, name) for name in numbers]
    times = _shown(table, "most_self")
    lines = []
    for index, row in enumerate(of_rows):
        most = (
            "" if row["most_in"] is None else f"{times[index]} in {rows.printable(row['most_in'])}"
        )
        what = _words(row["method"], row["route"] or row["path"])
        ended = _words(row["status"] or row["error"] or "-")
        lines.append([*(cell[index] for cell in cells), ended, what, row["request"], most])
    return _text(lines, [*numbers, "status", "what", "request", "most of it"], left=4)


def _function_lines(table: Table) -> list[str]:
    cells = [_shown(table, name) for name in ("calls", "self", "allocated_self")]
    names = zip(table["name"], table["module"], strict=True)
    lines = [
        [*(cell[row] for cell in cells), rows.full_name(name, module)]
        for row, (name, module) in enumerate(names)
    ]
    return _text(lines, ["calls", "self", "allocated", "function"], left=1)


def _text(lines: list[list[str]], heads: list[str], left: int) -> list[str]:
    import io

    file = io.StringIO()
    rows.write_text(lines, heads, file, left=left)
    return file.getvalue().splitlines()
