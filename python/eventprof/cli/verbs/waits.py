"""List what threads or tasks waited for, where, and who let them go on.

For each place: how long threads waited there in all, for what, and how often; of locks, which
threads gave them back, and where these waited meanwhile. run records it, unless --no-waits is
given. With --tasks, the same of asyncio's tasks, which functions ran before them in the queue of
their loop, and what the slowest task of each coroutine spent its time on.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from .. import Failure, rows
from ..answer import add_budget, add_json, cut, document, link_row, tell_missing
from ..files import add_file, load

if TYPE_CHECKING:
    from ...trace import Trace

EXAMPLES = (
    ("eventprof waits FILE", "the ten places with the longest waits"),
    ("eventprof waits FILE --limit 0 --json", "all of them, for a program"),
    ("eventprof waits FILE --tasks", "what asyncio's tasks awaited"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_file(parser)
    parser.add_argument("--tasks", action="store_true", help="waits of asyncio's tasks")
    rows.add_limit(parser, 10, "places")
    add_budget(parser)
    add_json(parser)


def _run_tasks(trace: Trace, arguments: argparse.Namespace) -> int:
    from ...answers.tasks import Tasks, by_place, links_of, slowest
    from ...show.tasks import MISSING, lines_of
    from ...show.waits import width_of

    if not trace._has_tasks:
        raise Failure(f"{arguments.file}: {MISSING}")
    tell_missing(trace, arguments)
    tasks = Tasks(trace)
    if not arguments.json:
        lines = lines_of(tasks, arguments.limit, width_of(sys.stdout), plain=False)
        print("\n".join(cut(lines, arguments.budget)))
        return 0
    found = by_place(tasks)
    shown = found[: arguments.limit or None]
    place = ("name", "file", "line")
    dicts = [
        {
            **one.place._asdict(),
            "total": one.total, "longest": one.longest, "times": one.times,
            "queued": one.queued, "unseen": one.unseen,
            "wakers": [
                {**dict(zip(place, at, strict=True)), "waited": ns} for at, ns in one.wakers
            ],
            "before": [{**at._asdict(), "time": ns} for at, ns in one.before],
        }
        for one in shown
    ]  # fmt: skip
    slow = [
        {
            "task": tasks.names[task], **dict(zip(place, at, strict=True)),
            "start": start, "total": end - start,
            "links": [link_row(link) for link in links_of(tasks, task, start, end)],
        }
        for task, start, end, at in slowest(tasks)[: arguments.limit or None]
    ]  # fmt: skip
    print(document("waits", trace, dicts, left_out=len(found) - len(shown),
                   budget=arguments.budget, file=arguments.file, slowest=slow))  # fmt: skip
    return 0


def run(arguments: argparse.Namespace) -> int:
    """List them."""
    from ...answers.waiting import by_place
    from ...show.waits import MISSING, lines_of, width_of

    if arguments.tasks:
        return _run_tasks(load(arguments.file), arguments)
    trace = load(arguments.file, fold="functions")
    if not trace._has_waits:
        raise Failure(f"{arguments.file}: {MISSING}")
    tell_missing(trace, arguments)
    if not arguments.json:
        lines = lines_of(trace, arguments.limit, width_of(sys.stdout), plain=False)
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
