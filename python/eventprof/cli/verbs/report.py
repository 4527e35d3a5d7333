"""Print the report of a recording: what is missing, and where the time and the memory went.

The report has colours only in a terminal, and only if NO_COLOR is not set.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from typing import TYPE_CHECKING

from .. import Failure, rows
from ..answer import add_budget, add_json, cut, document, tell_missing
from ..files import add_file, load

if TYPE_CHECKING:
    from ...trace import Trace

EXAMPLES = (
    ("eventprof report FILE", "the report, as wide as the terminal"),
    ("eventprof report FILE --short", "twenty lines: what is slow, where the peak is"),
    ("eventprof report FILE --json --budget 400", "the same answers for a program, 400 tokens"),
    ("eventprof report FILE --lines", "functions line by line, with their source"),
    ("eventprof report FILE --limit 40 --width 140 > report.txt", "longer tables, in a file"),
)

_COLOURS = {"auto": {}, "always": {"FORCE_COLOR": "1"}, "never": {"NO_COLOR": "1"}}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_file(parser)
    parser.add_argument(
        "--width", metavar="N", type=rows.count, help="width in columns, 40 or more"
    )
    parser.add_argument(
        "--color", choices=_COLOURS, default="auto", help="whether to use colours (auto)"
    )
    parser.add_argument(
        "--limit",
        metavar="N",
        type=rows.count,
        default=15,
        help="rows of the longest table, 1 or more (15); with --lines, functions",
    )
    parser.add_argument(
        "--short",
        action="store_true",
        help="twenty lines: own lines that are slow, own lines that hold the peak, and measures of "
        "memory",
    )
    parser.add_argument(
        "--lines",
        action="store_true",
        help="functions line by line instead of the report: hits, time (with the calls inside), "
        "time without them, share, bytes and blocks; the functions with the most time first",
    )
    parser.add_argument(
        "--function",
        metavar="GLOB",
        action="append",
        help="with --lines: only functions whose module, file or qualified name match; can be "
        "repeated",
    )

    add_budget(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    trace = load(arguments.file, fold=not arguments.lines)
    if arguments.json:
        return _print_json(trace, arguments)
    if arguments.lines:
        return _print_lines(trace, arguments)
    if arguments.function:
        raise Failure("--function needs --lines", 2)
    if not trace._facts["events"] and len(trace.functions):
        return _print_sums(trace, arguments)
    if arguments.short:
        return _print_short(trace, arguments)
    if arguments.color == "always":
        os.environ.pop("NO_COLOR", None)
        if os.environ.get("TERM") in ("dumb", "unknown"):
            del os.environ["TERM"]
    elif arguments.color == "never":
        os.environ.pop("FORCE_COLOR", None)
    os.environ.update(_COLOURS[arguments.color])  # rich reads this variable
    try:
        if arguments.budget is not None:
            return _print_part(trace, arguments)
        trace.report(width=arguments.width, limit=arguments.limit)
    except ValueError as error:
        raise Failure(f"--{error}", 2) from None
    return 0


def _print_sums(trace: Trace, arguments: argparse.Namespace) -> int:
    """Print the functions of a file that has no events, only sums by function (pstats)."""
    from ..functions import write_first

    limit = arguments.limit or len(trace.functions)
    tell_missing(trace, arguments)
    print(f"{rows.printable(arguments.file)}: sums by function; the source has no events")
    write_first(trace.functions, limit)
    return 0


def _print_short(trace: Trace, arguments: argparse.Namespace) -> int:
    from ...show.own_lines import short_report
    from ...show.tree import is_plain

    width = arguments.width or shutil.get_terminal_size((100, 25)).columns
    lines = short_report(trace, width, plain=is_plain(sys.stdout))
    print("\n".join(cut(lines, arguments.budget)))
    return 0


def _print_part(trace: Trace, arguments: argparse.Namespace) -> int:
    from ...show.report import text

    width = arguments.width or shutil.get_terminal_size((80, 25)).columns
    lines = text(trace, width, arguments.limit).splitlines()
    print("\n".join(cut(lines, arguments.budget)))
    return 0


def _print_json(trace: Trace, arguments: argparse.Namespace) -> int:
    from ...answers.first import report_rows

    if arguments.lines:
        raise Failure("--json does not go with --lines: use 'eventprof stats --json'", 2)
    answer = report_rows(trace, arguments.limit or len(trace.functions))
    print(document("report", trace, answer, budget=arguments.budget, file=arguments.file))
    return 0


def _print_lines(trace: Trace, arguments: argparse.Namespace) -> int:
    from ...show.line_report import write_lines

    tell_missing(trace, arguments)
    wanted = rows.match_functions(trace, arguments.function) if arguments.function else None
    more = write_lines(trace, sys.stdout, limit=arguments.limit, functions=wanted)
    if more:
        print(f"and {more:,} more functions; --limit 0 shows all")
    return 0
