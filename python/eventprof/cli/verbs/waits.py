"""List what threads waited for, where, and which threads let them go on.

For each place: how long threads waited there in all, for what, and how often; of locks, which
threads gave them back, and where these waited meanwhile. run records it, unless --no-waits is
given.
"""

from __future__ import annotations

import argparse
import shutil
import sys

from .. import Failure, rows
from ..answer import add_budget, add_json, cut, document, tell_missing
from ..files import add_file, load

EXAMPLES = (
    ("eventprof waits FILE", "the ten places with the longest waits"),
    ("eventprof waits FILE --limit 0 --json", "all of them, for a program"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_file(parser)
    rows.add_limit(parser, 10, "places")
    add_budget(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """List them."""
    from ...answers.waiting import by_place
    from ...show.waits import MISSING, lines_of

    trace = load(arguments.file, fold="functions")
    if not trace._has_waits:
        raise Failure(f"{arguments.file}: {MISSING}")
    tell_missing(trace, arguments)
    if not arguments.json:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 200
        lines = lines_of(trace, arguments.limit, width, plain=False)
        print("\n".join(cut(lines, arguments.budget)))
        return 0
    found = by_place(trace)
    shown = found[: arguments.limit or None]
    dicts = [
        {
            **one.place._asdict(),
            "through": None if one.through is None else one.through._asdict(),
            "total": one.total, "longest": one.longest, "times": one.times, "at_once": one.at_once,
            "threads": list(one.threads),
            "wakers": [{"thread": name, "waited": time} for name, time in one.wakers],
            "meanwhile": [{**place._asdict(), "time": time} for place, time in one.meanwhile],
        }
        for one in shown
    ]  # fmt: skip
    print(document("waits", trace, dicts, left_out=len(found) - len(shown),
                   budget=arguments.budget, file=arguments.file))  # fmt: skip
    return 0
