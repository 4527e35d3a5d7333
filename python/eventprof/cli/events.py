"""List events, in order of time.

A line has the time since the recording's start, the thread, the event, what it is about, and where
it came from: of a call the line that made it, of an allocation the line that was executing. With
--follow the events of a program that still runs are listed as they come, until it ends or Ctrl-C;
events of threads that write at the same time then may be a little out of order.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from . import Failure, rows
from .files import add_file, load, warn_of_loss
from .options import parse_time

if TYPE_CHECKING:
    from ..tables import Array, Table
    from ..trace import Trace

_POLL_S = 0.25

EXAMPLES = (
    ("eventprof events FILE --limit 50", "the first fifty"),
    ("eventprof events FILE --function 'json.*' --from 1.5ms --to 2ms", "who called json when"),
    ("eventprof events FILE --event malloc,free --csv > blocks.csv", "for another program"),
    ("eventprof events script-4711.epr --follow", "while the program runs"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Say which arguments there are."""
    add_file(parser)
    parser.add_argument(
        "--event",
        metavar="WORD",
        action="append",
        help="only these, as call or malloc,free; again and again",
    )
    parser.add_argument(
        "--function",
        metavar="GLOB",
        action="append",
        help="only of functions whose module, file or qualified name match; again and again",
    )
    parser.add_argument(
        "--thread",
        metavar="THREAD",
        action="append",
        help="only of threads of this name, which may be a glob, or of this native id",
    )
    parser.add_argument("--from", dest="start", metavar="TIME", help="not before this, as 1.5ms")
    parser.add_argument("--to", dest="end", metavar="TIME", help="before this")
    rows.add_limit(parser, None, "events")
    parser.add_argument(
        "--follow", action="store_true", help="go on with what a running program adds"
    )
    rows.add_formats(parser)


def run(arguments: argparse.Namespace) -> int:
    """List them."""
    try:
        start = None if arguments.start is None else parse_time(arguments.start)
        end = None if arguments.end is None else parse_time(arguments.end)
    except ValueError as error:
        raise Failure(f"--from, --to: {error}", 2) from None
    words = _words(arguments.event)

    def chosen(trace: Trace, mask: Array) -> Array:
        return _choose(trace, mask, words, arguments, start, end)

    trace = load(arguments.file, follow=arguments.follow)
    writer = _Writer(arguments)
    if not arguments.follow:
        mask = np.ones(len(trace.events), dtype=bool)
        writer.write(trace, np.flatnonzero(chosen(trace, mask)))
    else:
        with contextlib.suppress(KeyboardInterrupt):
            for part, mask in _grow(arguments.file, trace):
                trace = part
                writer.write(part, np.flatnonzero(chosen(part, mask)))
                sys.stdout.flush()
                if writer.full:
                    break
    sys.stdout.flush()
    missing = warn_of_loss(trace)
    if missing:
        print(missing, file=sys.stderr)
    return 0


def _words(given: list[str] | None) -> list[str] | None:
    from ..recorder import EVENTS
    from ..tables import did_you_mean

    if given is None:
        return None
    words = [word.strip() for part in given for word in part.split(",") if word.strip()]
    for word in words:
        if word not in EVENTS:
            hint = did_you_mean(word, EVENTS) or f"; there are {', '.join(EVENTS)}"
            raise Failure(f"--event: there is no event {word!r}{hint}", 2)
    return words


def _choose(
    trace: Trace,
    mask: Array,
    words: list[str] | None,
    arguments: argparse.Namespace,
    start: int | None,
    end: int | None,
) -> Array:
    """Narrow a mask of events down to what was asked for."""
    events = trace.events
    if start is not None:
        mask &= events["time"] >= start
    if end is not None:
        mask &= events["time"] < end
    if words is not None:
        known = np.array([word in words for word in events.categories("event")] or [False])
        mask &= known[events.codes("event")]
    if arguments.function:
        # One more, False, for row -1: no function.
        wanted = np.append(rows.match_functions(trace, arguments.function), False)
        mask &= wanted[np.ma.filled(events["function"], -1)]
    if arguments.thread:
        mask &= _match_threads(trace, arguments.thread)[events["thread"]]
    return mask


def _match_threads(trace: Trace, wanted: list[str]) -> Array:
    table = trace.threads
    found = np.array(
        [
            str(native_id) in wanted or any(fnmatch.fnmatchcase(name or "", w) for w in wanted)
            for name, native_id in zip(table["name"], table["native_id"].tolist(), strict=True)
        ],
        dtype=bool,
    )
    if not found.any():
        names = ", ".join(f"{t.name or '(no name)'} ({t.native_id})" for t in table)
        raise Failure(f"--thread: there is no such thread; there are {names}")
    return found


# ---- A program that still writes -----------------------------------------------------------------


def _grow(path: str, trace: Trace) -> Iterator[tuple[Trace, Array]]:
    """Give what a file holds, again and again, with a mask of what is new, until it is finished."""
    seen: dict[int, int] = {}
    ended = False
    while True:
        file = trace.file
        yield trace, _new(trace, seen)
        if ended or file is None or not file["unfinished"]:
            return
        # Before the next look, so that the last one is after the program's end.
        ended = not _runs(trace)
        if not ended:
            time.sleep(_POLL_S)
        trace = load(path, follow=True)


def _new(trace: Trace, seen: dict[int, int]) -> Array:
    """Give a mask of the events that came after those seen, and count them as seen.

    Parameters
    ----------
    trace : Trace
        Now.
    seen : dict of int to int
        By native id of a thread, how many of its events were there, lost ones included.
    """
    threads = trace.threads
    thread = trace.events["thread"]
    mask = np.zeros(len(thread), dtype=bool)
    kept, lost = threads["recorded"].tolist(), threads["lost"].tolist()
    for row, native_id in enumerate(threads["native_id"].tolist()):
        before = seen.get(native_id, 0)
        skip = max(before - lost[row], 0)
        if skip < kept[row]:
            mask[np.flatnonzero(thread == row)[skip:]] = True
        seen[native_id] = max(before, kept[row] + lost[row])
    return mask


def _runs(trace: Trace) -> bool:
    """Tell whether the program of a recording still runs, as far as can be known here."""
    if trace.file is not None and "live" in trace.file:
        return bool(trace.file["live"])
    metadata = trace.metadata
    if metadata.get("hostname") != os.uname().nodename:
        return True
    try:
        os.kill(int(metadata["pid"]), 0)
    except ProcessLookupError:
        return False
    except (KeyError, PermissionError):
        return True
    return True


# ---- Writing them --------------------------------------------------------------------------------


class _Writer:
    """Writes events of traces of the same program, one after the other."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._left = arguments.limit or None
        self._first = True

    @property
    def full(self) -> bool:
        """Whether as many were written as were asked for."""
        return self._left == 0

    def write(self, trace: Trace, chosen: Array) -> None:
        """Write some rows of `events`."""
        if self._left is not None:
            chosen = chosen[: self._left]
            self._left -= len(chosen)
        table = trace.events[chosen]
        if self._arguments.csv:
            rows.write_csv([table], sys.stdout, heading=self._first)
        elif self._arguments.json:
            rows.write_json([table], sys.stdout)
        else:
            _print(trace, table, heading=self._first)
        self._first = False


def _print(trace: Trace, table: Table, *, heading: bool) -> None:
    functions = [
        rows.full_name(name, module)
        for name, module in zip(trace.functions["name"], trace.functions["module"], strict=True)
    ]
    files = [rows.printable(os.path.basename(f)) if f else None for f in trace.functions["file"]]
    threads = [
        rows.printable(t.name) if t.name else str(t.native_id) for t in trace.threads
    ]  # fmt: skip
    width = max(map(len, threads), default=6)
    if heading:
        print(f"{'time [ns]':>15}  {'thread':<{width}}  {'event':<14}  what  <- where")
    columns = (
        "time", "thread", "event", "function", "line", "address", "size", "depth", "caller",
        "caller_line",
    )  # fmt: skip
    for part in rows._parts(table[list(columns)]):
        for row in zip(*rows._items(part), strict=True):
            said = _line(dict(zip(columns, row, strict=True)), functions, files)
            print(f"{row[0]:>15,}  {threads[row[1]]:<{width}}  {row[2]:<14}  {said}")


def _line(row: dict[str, Any], functions: list[str], files: list[str | None]) -> str:
    """Say what an event is about and where it came from."""
    if row["address"] is not None:
        size = "" if row["size"] is None else f"{row['size']:,} bytes at "
        what, at, line = f"{size}{row['address']:#x}", row["function"], row["line"]
    else:
        indent = "  " * min(row["depth"] or 0, 20)
        what = indent + ("?" if row["function"] is None else functions[row["function"]])
        at, line = row["caller"], row["caller_line"]
    if at is None:
        return what
    place = "" if files[at] is None or line is None else f" ({files[at]}:{line})"
    return f"{what}  <- {functions[at]}{place}"
