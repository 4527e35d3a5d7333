"""Name what is likely wrong with a program: each finding with its numbers, its lines and a command.

If there are no findings, only the first line is printed. The rules look at counts, bytes and shares
of the whole, with wide margins, so that a busy machine does not cause a finding.
"""

from __future__ import annotations

import argparse

from . import rows
from .files import add_file, load

EXAMPLES = (
    ("eventprof analyze FILE", "what is likely wrong, the gravest first"),
    ("eventprof analyze FILE --json", "for a program: doc/findings.schema.json describes it"),
    ("eventprof analyze FILE --budget 400", "at most 400 tokens, of four characters each"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Say which arguments there are."""
    add_file(parser)
    parser.add_argument(
        "--own", metavar="GLOB", action="append", default=[],
        help="own code is what matches (module, file, qualified name); can be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--budget", metavar="N", type=rows.count,
        help="print at most N tokens, of four characters each, and how many findings were left out",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON document; times in ns")


def run(arguments: argparse.Namespace) -> int:
    """Print the findings."""
    from ..answers import findings
    from ..answers.show import headline

    trace = load(arguments.file, fold=True)
    found = findings.find(trace, arguments.own)
    if arguments.json:
        print(findings.as_json(trace, found, arguments.file, arguments.budget))
        return 0
    print(headline(trace, trace._tree))
    if not found:
        print("nothing found")
        return 0
    lines = [rows.printable(line) for line in findings.text_lines(found, arguments.file)]
    for line in findings.within_budget(lines, arguments.budget, len(found)):
        print(line)
    return 0
