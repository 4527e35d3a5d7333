"""Answers for programs: each verb gives one JSON document of the same form, within a budget.

``doc/answers.schema.json`` describes the documents.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from . import rows as _rows
from .files import missing_parts

if TYPE_CHECKING:
    from ..answers.tasks import Link
    from ..trace import Trace

_T = TypeVar("_T")

#: The version of the documents. Its number changes if a field is removed or changes its meaning,
#: but not if a field is added.
SCHEMA = "eventprof answer 1"
_CHARACTERS_A_TOKEN = 4


def add_json(parser: argparse._ActionsContainer) -> None:
    """Add --json to a parser."""
    parser.add_argument("--json", action="store_true", help="one JSON document; times in ns")


def add_budget(parser: argparse.ArgumentParser) -> None:
    """Add --budget to a parser."""
    parser.add_argument(
        "--budget", metavar="N", type=_rows.count,
        help="print at most N tokens, of four characters each, and say what was left out",
    )  # fmt: skip


def characters(budget: int | None) -> int | None:
    """Return the number of characters for a number of tokens; None: no limit."""
    return None if budget is None else budget * _CHARACTERS_A_TOKEN


def link_row(link: Link) -> dict[str, Any]:
    """Return a part of a task's time as a row."""
    return {"what": link.what, **link.at._asdict(), "own": link.own, "time": link.ns}


def document(
    verb: str,
    trace: Trace | None,
    rows: Iterable[Mapping[str, Any]],
    *,
    budget: int | None = None,
    left_out: int = 0,
    **more: Any,
) -> str:
    """Make the answer of a verb.

    Parameters
    ----------
    verb : str
        The verb.
    trace : Trace or None
        The trace that the answer is about; None: about several, which the rows name.
    rows : iterable of dict
        The answer; times in ns, sizes in bytes.
    budget : int or None
        The most tokens; rows at the end that do not fit are left out. None: no limit.
    left_out : int
        How many rows were left out already.
    **more
        More fields, ``file`` first.

    Returns
    -------
    str
        The document: the head in the first line, then one row in each line.
    """
    head: dict[str, Any] = {"schema": SCHEMA, "verb": verb, **more}
    if trace is not None:
        head["events"] = trace._facts["events"]
        head["duration"] = trace.duration
        head["lost"] = trace.loss.total
        head["missing"] = missing_parts(trace, unsure=True)
    lines = [json.dumps(row, default=str) for row in rows]

    def text(kept: int) -> str:
        first = json.dumps({**head, "left_out": left_out + len(lines) - kept}, default=str)
        body = ",\n".join(lines[:kept])
        return f'{first[:-1]}, "rows": [\n{body}\n]}}' if kept else f'{first[:-1]}, "rows": []}}'

    return largest(text, len(lines), budget)


def largest(text: Callable[[int], str], most: int, budget: int | None) -> str:
    """Return the longest ``text(n)`` that fits into a budget; it grows with n, from 0 to `most`."""
    room = characters(budget)
    if room is None:
        return text(most)
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if len(text(middle)) <= room:
            low = middle
        else:
            high = middle - 1
    return text(low)


def cut(lines: Sequence[str], budget: int | None) -> list[str]:
    """Keep the first lines that fit into a budget, and say how many are left out."""

    def text(kept: int) -> str:
        less = len(lines) - kept
        note = [f"({less:,} of {len(lines):,} lines left out: --budget)"] if less else []
        return "\n".join([*lines[:kept], *note])

    return largest(text, len(lines), budget).splitlines()


def table_rows(table: Any, handles: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return the rows of a table, each with its handle first."""
    found = []
    for part in _rows._parts(table):
        items = zip(*_rows._items(part), strict=True)
        found += [dict(zip(table.columns, row, strict=True)) for row in items]
    if handles is None:
        return found
    return [{"handle": handle, **row} for handle, row in zip(handles, found, strict=True)]


def written(verb: str, path: str, trace: Trace, bytes: int, **more: Any) -> None:
    """Print the answer of a verb that wrote a file, as JSON."""
    print(document(verb, trace, [{"output": path, "bytes": bytes, **more}], file=path))


def tell_missing(trace: Trace, arguments: argparse.Namespace, path: str = "") -> None:
    """Report what is missing, before the answer; for programs on standard error."""
    from .files import warn_of_loss

    text = warn_of_loss(trace)
    if text:
        beside = getattr(arguments, "json", False) or getattr(arguments, "csv", False)
        line = f"{path}: {text}" if path else text
        print(_rows.printable(line), file=sys.stderr if beside else sys.stdout)


def lost_as_well(trace: Trace) -> str:
    """Report how many events were lost, to follow the number of events; empty if none was lost."""
    return f", {trace.loss.total:,} LOST" if trace.loss else ""
