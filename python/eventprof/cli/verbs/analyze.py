"""Name what is likely wrong with a program: each finding with its numbers, its lines and a command.

The rules look at counts, bytes and shares of the whole, with wide margins, so that a busy machine
does not cause a finding. If no rule finds anything, the verb says so.
"""

from __future__ import annotations

import argparse

from .. import rows
from ..answer import add_budget, add_json, characters, document
from ..files import add_file, load

EXAMPLES = (
    ("eventprof analyze FILE", "what is likely wrong, the most serious first"),
    ("eventprof analyze FILE --json", "for a program: doc/answers.schema.json says what is in it"),
    ("eventprof analyze FILE --budget 400", "at most 400 tokens, of four characters each"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_file(parser)
    parser.add_argument(
        "--own", metavar="GLOB", action="append", default=[],
        help="own code is what matches (module, file, qualified name); can be repeated",
    )  # fmt: skip
    add_budget(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the findings."""
    from ...answers import findings
    from ...show.tree import headline

    trace = load(arguments.file, fold=True)
    found = findings.find(trace, arguments.own)
    if arguments.json:
        answer = [findings.as_dict(finding, arguments.file) for finding in found]
        print(document("analyze", trace, answer, budget=arguments.budget, file=arguments.file))
        return 0
    head = headline(trace, trace._tree)
    print(head)
    if not found:
        print("nothing found")
        return 0
    lines = [rows.printable(line) for line in findings.text_lines(found, arguments.file)]
    room = characters(arguments.budget)
    if room is not None:
        room -= len(head) + 1
    for line in findings.within(lines, room, len(found)):
        print(line)
    return 0
