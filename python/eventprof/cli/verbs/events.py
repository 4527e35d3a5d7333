"""List events, in order of time.

A line has the time since the recording's start, the thread, the event, its function or block, and a
line of source: of a call the line that made it, of an allocation the line that was executing. With
--follow, the events of a running program are listed as they come, until the program ends or Ctrl-C
is typed; then events of different threads may be a little out of order, and times some ns off.

With --limit, --from, --to or --last a recording that is whole is printed while it is read, and read
no further than to the last event that is printed. What is before --from is read, too: the calls
around an event began there.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import os
import sys
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .. import Failure, rows
from ..answer import tell_missing
from ..files import add_file, glance, load, readable
from ..options import parse_time

if TYPE_CHECKING:
    from ...tables.batches import Unread
    from ...tables.column import Array
    from ...tables.table import Table
    from ...trace import Trace

#: For --last, the last part of the window is read first, and all of it only if that has too few
#: events. Of so many parts.
_NEAR_END = 1000

EXAMPLES = (
    ("eventprof events FILE --limit 50", "the first fifty"),
    ("eventprof events FILE --last 50 --thread MainThread", "what a thread did in the end"),
    (
        "eventprof events FILE --function 'json.*' --from 1.5ms --to 2ms",
        "when json was called, and from which lines",
    ),
    ("eventprof events FILE --event malloc,free --csv > blocks.csv", "for another program"),
    ("eventprof events script-4711.epr --follow", "while the program runs"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_file(parser)
    parser.add_argument(
        "--event",
        metavar="WORD",
        action="append",
        help="only these events, for example call or malloc,free; can be repeated",
    )
    parser.add_argument(
        "--function",
        metavar="GLOB",
        action="append",
        help="only events of functions whose module, file or qualified name match; can be repeated",
    )
    parser.add_argument(
        "--thread",
        metavar="THREAD",
        action="append",
        help="only events of threads with this name, which may be a glob, or with this native id",
    )
    parser.add_argument(
        "--from",
        dest="start",
        metavar="TIME",
        help="only events from this time on, for example 1.5ms",
    )
    parser.add_argument("--to", dest="end", metavar="TIME", help="before this")
    rows.add_limit(parser, None, "events")
    parser.add_argument(
        "--last", metavar="N", type=rows.count, help="only the last N of the events"
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        help="also print the events that a running program adds, until it ends",
    )
    rows.add_formats(parser, "one JSON object in each line; times in ns")


def run(arguments: argparse.Namespace) -> int:
    """List them."""
    try:
        start = None if arguments.start is None else parse_time(arguments.start)
        end = None if arguments.end is None else parse_time(arguments.end)
    except ValueError as error:
        raise Failure(f"--from, --to: {error}", 2) from None
    words = _words(arguments.event)
    if arguments.last is not None and (arguments.limit or arguments.follow):
        raise Failure(
            "--last: not with --limit, which prints the first ones, nor with --follow, where the "
            "last are yet to come",
            2,
        )
    writer = _Writer(arguments)

    def show(trace: Trace, events: Table) -> None:
        choice = _Choice(trace, words, arguments, start, end)
        found = np.flatnonzero(choice.mask(events))
        writer.write(trace, events[found], None if arguments.follow else found)

    if arguments.follow:
        missing = _follow(arguments.file, show, writer)
        sys.stdout.flush()
        if missing:
            print(missing, file=sys.stderr)
        return 0
    from ...tables.batches import in_batches

    opened = None
    chosen = (arguments.limit, arguments.last, start, end)
    if not arguments.function and any(value is not None for value in chosen):
        opened, unread = glance(arguments.file)
        if unread is not None:
            choice = _Choice(unread, words, arguments, start, end)
            _show_batches(arguments.file, unread, choice, writer)
            writer.end(unread)
            if unread.damage:
                # It was found on the way: only now can be said what is missing.
                tell_missing(load(arguments.file, counts=True), arguments)
            return 0
    trace = load(arguments.file, fold="functions", opened=opened)
    tell_missing(trace, arguments)
    if in_batches(trace):
        _show_batches(arguments.file, trace, _Choice(trace, words, arguments, start, end), writer)
    else:
        show(trace, trace.events)
    writer.end(trace)
    return 0


def _show_batches(path: str, trace: Trace | Unread, choice: _Choice, writer: _Writer) -> None:
    """Print events while they are read."""
    from ...tables.batches import read_events

    def take(events: Table, numbers: Array) -> bool:
        found = np.flatnonzero(choice.mask(events))
        writer.write(trace, events[found], numbers[found])
        return not writer.full

    starts = [choice.start]
    if writer.last is not None:
        # An event that is read but not taken costs a third of one that is: so few are taken.
        end = min(trace.duration if choice.end is None else choice.end, trace.duration)
        starts.insert(0, max(end - end // _NEAR_END, choice.start or 0))
    for start in starts:
        with readable(path):
            read_events(
                trace,
                take,
                start=start,
                end=choice.end,
                kinds=choice.kinds,
                functions=choice.functions,
                threads=choice.threads,
            )
        if start == choice.start or writer.held >= (writer.last or 0):
            return
        writer.forget()


def _follow(path: str, show: Callable[[Trace, Table], None], writer: _Writer) -> str:
    """Print new events until the program ends, Ctrl-C, or --limit; say what is missing."""
    import eventprof

    with readable(path):
        follower = eventprof.open(path, follow=True)
        with contextlib.suppress(KeyboardInterrupt):
            for events in follower:
                show(follower.trace, events)
                sys.stdout.flush()
                if writer.full:
                    break
    if follower.missed:
        return f"(with loss: {follower.missed:,} events were overwritten before they were read)"
    return ""


def _words(given: list[str] | None) -> list[str] | None:
    from ..._words import did_you_mean
    from ...recording.events import EVENTS

    if given is None:
        return None
    words = [word.strip() for part in given for word in part.split(",") if word.strip()]
    for word in words:
        if word not in EVENTS:
            hint = did_you_mean(word, EVENTS) or f"; there are {', '.join(EVENTS)}"
            raise Failure(f"--event: there is no event {word!r}{hint}", 2)
    return words


class _Choice:
    """Which events were asked for."""

    def __init__(
        self,
        trace: Trace | Unread,
        words: list[str] | None,
        arguments: argparse.Namespace,
        start: int | None,
        end: int | None,
    ) -> None:
        self._words = words
        self.start, self.end = start, end
        may_come = arguments.follow
        self.functions = self.threads = None
        if arguments.function:
            known = cast("Trace", trace)  # run() has read it
            self.functions = rows.match_functions(known, arguments.function, may_come=may_come)
        if arguments.thread:
            self.threads = _match_threads(trace, arguments.thread, may_come)

    @property
    def kinds(self) -> int | None:
        """The kinds that the chosen events can have, a bit each; None: all."""
        from ...tables.kinds import NUMBERS, WORDS

        if self._words is None:
            return None
        numbers = [number for number, word in WORDS.items() if word in self._words]
        # Spans that need not nest are recorded as flows.
        return sum(1 << number for number in {*numbers, NUMBERS["FLOW"]})

    def mask(self, events: Table) -> Array:
        """Return a mask of the chosen ones of some events."""
        mask = np.ones(len(events), dtype=bool)
        if self.start is not None:
            mask &= events["time"] >= self.start
        if self.end is not None:
            mask &= events["time"] < self.end
        if self._words is not None:
            known = np.array(
                [word in self._words for word in events.categories("event")] or [False]
            )
            mask &= known[events.codes("event")]
        if self.functions is not None:
            # With False at the end, for row -1: no function.
            mask &= np.append(self.functions, False)[np.ma.filled(events["function"], -1)]
        if self.threads is not None:
            mask &= self.threads[events["thread"]]
        return mask


def _match_threads(trace: Trace | Unread, wanted: list[str], may_come: bool) -> Array:
    table = trace.threads
    found = np.array(
        [
            str(native_id) in wanted or any(fnmatch.fnmatchcase(name or "", w) for w in wanted)
            for name, native_id in zip(table["name"], table["native_id"].tolist(), strict=True)
        ],
        dtype=bool,
    )
    if not found.any() and not may_come:
        names = ", ".join(f"{t.name or '(no name)'} ({t.native_id})" for t in table)
        raise Failure(f"--thread: there is no such thread; there are {names}")
    return found


# ---- Writing them --------------------------------------------------------------------------------


class _Writer:
    """Writes events as text, CSV or JSON; several traces of one program can follow each other."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._left = arguments.limit or None
        self._first = True
        self._last: deque[tuple[Table, Array | None]] = deque()
        self._names: _Names | None = None

    @property
    def full(self) -> bool:
        """Whether the limit is reached."""
        return self._left == 0

    @property
    def last(self) -> int | None:
        """How many of the last events are wanted; None: not the last."""
        last: int | None = self._arguments.last
        return last

    @property
    def held(self) -> int:
        """How many events are held back, as the last so far."""
        return sum(len(rows) for rows, _ in self._last)

    def forget(self) -> None:
        """Drop the events that are held back."""
        self._last.clear()

    def write(self, trace: Trace | Unread, table: Table, numbers: Array | None) -> None:
        """Write rows of `events`; `numbers` are their numbers, None: they are not known yet."""
        if self.last is not None:
            self._last.append((table, numbers))
            held = self.held
            while self._last and held - len(self._last[0][0]) >= self.last:
                held -= len(self._last.popleft()[0])
        else:
            self._write(trace, table, numbers)

    def end(self, trace: Trace | Unread) -> None:
        """Write what was held back: the last events are known now."""
        spare = self.held - (self.last or 0)
        for table, numbers in self._last:
            spare = max(spare, 0)
            self._write(trace, table[spare:], None if numbers is None else numbers[spare:])
            spare = 0
        if self._first:
            self._write(trace, trace.events[:0], np.empty(0, np.int64))

    def _write(self, trace: Trace | Unread, table: Table, numbers: Array | None) -> None:
        if self._left is not None:
            table = table[: self._left]
            self._left -= len(table)
        if self._arguments.csv:
            rows.write_csv([table], sys.stdout, heading=self._first)
        elif self._arguments.json:
            rows.write_json([table], sys.stdout, "e", numbers)
        else:
            if self._names is None or self._names.functions_table is not trace.functions:
                self._names = _Names(trace)
            self._names.print(table, heading=self._first)
        self._first = False


class _Names:
    """How functions and threads of a trace are called in lines of text."""

    def __init__(self, trace: Trace | Unread) -> None:
        table = self.functions_table = trace.functions
        self.functions = [
            rows.full_name(name, module)
            for name, module in zip(table["name"], table["module"], strict=True)
        ]
        self.files = [rows.printable(os.path.basename(f)) if f else None for f in table["file"]]
        self.threads = [
            rows.printable(t.name) if t.name else str(t.native_id) for t in trace.threads
        ]

    def print(self, table: Table, *, heading: bool) -> None:
        """Print events."""
        width = max(map(len, self.threads), default=6)
        if heading:
            print(f"{'time [ns]':>15}  {'thread':<{width}}  {'event':<14}  what  <- where")
        columns = (
            "time", "thread", "event", "function", "line", "address", "size", "depth", "caller",
            "caller_line",
        )  # fmt: skip
        for part in rows._parts(table[list(columns)]):
            for row in zip(*rows._items(part), strict=True):
                text = _line(dict(zip(columns, row, strict=True)), self.functions, self.files)
                thread = self.threads[row[1]]
                print(f"{row[0]:>15,}  {thread:<{width}}  {row[2]:<14}  {text}")


def _line(row: dict[str, Any], functions: list[str], files: list[str | None]) -> str:
    """Return the function or block of an event, and the line that it came from."""
    if row["address"] is not None:
        size = "" if row["size"] is None else f"{row['size']:,} bytes at "
        what, function, line = f"{size}{row['address']:#x}", row["function"], row["line"]
    else:
        indent = "  " * min(row["depth"] or 0, 20)
        what = indent + ("?" if row["function"] is None else functions[row["function"]])
        function, line = row["caller"], row["caller_line"]
    if function is None:
        return what
    place = "" if files[function] is None or line is None else f" ({files[function]}:{line})"
    return f"{what}  <- {functions[function]}{place}"
