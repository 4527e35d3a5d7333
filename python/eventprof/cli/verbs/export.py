"""Turn a recording into a file that another tool reads.

--format says the format, or else the end of the output's name. Without -o, the file is beside the
recording: run.epr becomes run.trace.json, and its table of calls run.calls.csv. A file that exists
is replaced only with -f, when the new one is complete. -o - writes to standard output, and a file
whose name ends with .gz is compressed. What the format cannot hold is listed on standard error.
"""

from __future__ import annotations

import argparse
import os
import sys

from .. import Failure
from ..answer import add_json, lost_as_well, written
from ..files import add_file, load, warn_of_loss
from ..options import parse_time
from ..progress import Bar

EXAMPLES = (
    ("eventprof export FILE --format perfetto", "for ui.perfetto.dev; in the folder of FILE"),
    ("eventprof export FILE -o calls.json", "Chrome trace JSON"),
    ("eventprof export FILE -o calls.csv --function 'json.*'", "the calls of json, as a table"),
    ("eventprof export FILE --format collapsed -o - | flamegraph.pl > flame.svg", "a picture"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    from ...export import FORMATS, WEIGHTS
    from ...tables import TABLES

    add_file(parser)
    parser.add_argument(
        "--format",
        metavar="FORMAT",
        choices=tuple(FORMATS),
        help="; ".join(f"{word}: {known.what}" for word, known in FORMATS.items()),
    )
    parser.add_argument(
        "-o", "--output", metavar="OUT", help="the file to write; -: standard output"
    )
    parser.add_argument("-f", "--force", action="store_true", help="replace an existing file")
    parser.add_argument(
        "--table",
        metavar="TABLE",
        choices=TABLES,
        help=f"of csv, jsonl, parquet and arrow: {', '.join(TABLES)} (calls)",
    )
    parser.add_argument(
        "--weight",
        metavar="WHAT",
        choices=WEIGHTS,
        help=f"of collapsed, and of speedscope, which has sums by stack then: {', '.join(WEIGHTS)} "
        "(collapsed: self, in ns)",
    )
    parser.add_argument(
        "--thread",
        metavar="THREAD",
        action="append",
        help="only threads with this name, which may be a glob, or with this native id",
    )
    parser.add_argument(
        "--between",
        metavar=("FROM", "TO"),
        nargs=2,
        help="only events between two times, for example 1.5ms 2ms; calls are cut off there",
    )
    parser.add_argument(
        "--function",
        metavar="GLOB",
        action="append",
        help="only calls of functions whose module, file or qualified name match, and the calls "
        "inside; can be repeated",
    )
    parser.add_argument(
        "--own",
        action="store_true",
        help="leave out the standard library and installed packages: their time counts for the "
        "own function that called them",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Export it."""
    from ...base.output import check
    from ...export import FORMATS, find_format, pass_of

    between = None
    try:
        if arguments.between is not None:
            low, high = map(parse_time, arguments.between)
            between = (low, high)
    except ValueError as error:
        raise Failure(f"--between: {error}", 2) from None
    output = arguments.output
    try:
        word = find_format(None if output in (None, "-") else output, arguments.format)
    except ValueError:
        raise Failure(
            f"the format is unknown: give --format, or a name for -o that ends with it; there are "
            f"{', '.join(FORMATS)}",
            2,
        ) from None
    if output == "-" and arguments.json:
        raise Failure("--json says what was written to a file: -o names one", 2)
    if output is None:
        output = default_name(arguments.file, word, arguments.table)
    if output != "-":
        check(output, arguments.force)
    chosen = bool(arguments.thread or arguments.function or arguments.own)
    what = arguments.weight or arguments.table
    needed = pass_of(FORMATS[word], what, chosen=chosen, cut=between is not None)
    trace = load(arguments.file, fold=needed)
    try:
        with Bar(f"writing {word}") as bar:
            notes = trace.export(
                sys.stdout.buffer if output == "-" else output,
                word,
                force=arguments.force,
                table=arguments.table,
                weight=arguments.weight,
                threads=arguments.thread,
                between=between,
                functions=arguments.function,
                own=arguments.own,
                progress=bar,
            )
    except ValueError as error:
        raise Failure(str(error), 2) from None
    missing = warn_of_loss(trace)
    for note in [*([missing] if missing else []), *notes]:
        print(note, file=sys.stderr)
    if arguments.json:
        written("export", output, trace, os.path.getsize(output), format=word, notes=notes)
    elif output != "-":
        from ..._words import show_bytes

        size = show_bytes(os.path.getsize(output))
        print(f"{output}: {word}, {size}{lost_as_well(trace)}")
    return 0


def default_name(recording: str, word: str, table: str | None) -> str:
    """Return the name of the file if the user gives none.

    It has a word between the recording's name and the ending: orders.csv, beside orders.epr, is
    most likely a file that the program reads or writes.
    """
    from ...export import FORMATS

    known = FORMATS[word]
    middle = table or "calls" if known.takes == "table" else "trace"
    return f"{os.path.splitext(recording.rstrip('/'))[0]}.{middle}{known.extensions[0]}"
