"""Name what is likely wrong with a program, and where its time and memory go.

First the findings: each has its numbers, its lines and a command. The rules look at counts, bytes
and shares of the whole, with wide margins, so that a busy machine does not cause a finding. Then,
in any case, the own lines that much time or much of the peak goes to, with what they called.
"""

from __future__ import annotations

import argparse
import json

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
    from ...answers.spots import find_spots
    from ...show.own_lines import spot_lines
    from ...show.tree import headline

    trace = load(arguments.file, fold=True)
    case = findings.case_of(trace, arguments.own)
    found, spots = findings.find_in(case), find_spots(case)
    room = characters(arguments.budget)
    if arguments.json:
        answer = [findings.as_dict(finding, arguments.file) for finding in found]
        where = [spot.as_dict() for spot in spots]
        if room is not None and len(json.dumps(where)) > room // 2:
            where = []
        print(document("analyze", trace, answer, budget=arguments.budget, file=arguments.file,
                       where=where))  # fmt: skip
        return 0
    head = headline(trace, trace._tree)
    print(head)
    if room is not None:
        room -= len(head) + 1
    lines = [rows.printable(line) for line in findings.text_lines(found, arguments.file)]
    shown = findings.within(lines, room, len(found)) if found else ["no rule found anything"]
    goes = [rows.printable(line) for line in spot_lines(spots)]
    left = None if room is None else room - sum(len(line) + 1 for line in shown)
    if left is not None and sum(len(line) + 1 for line in goes) > left:
        goes = []
    for line in (*shown, *goes):
        print(line)
    return 0
