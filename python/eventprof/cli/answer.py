"""Answers for programs: one JSON document, of the same form from each verb; what fits a budget.

``doc/answers.schema.json`` describes them.
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
    from ..trace import Trace

_T = TypeVar("_T")

#: Of the document; the number changes when a field goes or changes its meaning, not when one comes.
SCHEMA = "eventprof answer 1"
_CHARACTERS_A_TOKEN = 4


def add_json(parser: argparse._ActionsContainer) -> None:
    """Give a parser --json."""
    parser.add_argument("--json", action="store_true", help="one JSON document; times in ns")


def add_budget(parser: argparse.ArgumentParser) -> None:
    """Give a parser --budget."""
    parser.add_argument(
        "--budget", metavar="N", type=_rows.count,
        help="at most so many tokens, of four characters each; says what it left out",
    )  # fmt: skip


def characters(budget: int | None) -> int | None:
    """Give the characters that a number of tokens is; None: any number."""
    return None if budget is None else budget * _CHARACTERS_A_TOKEN


def document(
    verb: str,
    trace: Trace | None,
    rows: Iterable[Mapping[str, Any]],
    *,
    budget: int | None = None,
    left_out: int = 0,
    **more: Any,
) -> str:
    """Make a verb's answer.

    Parameters
    ----------
    verb : str
        Who answers.
    trace : Trace or None
        What is asked; None: the rows say it.
    rows : iterable of dict
        The answer; times in ns, sizes in bytes.
    budget : int or None
        The most tokens; rows at the end that do not fit are left out.
    left_out : int
        Rows that were left out already.
    **more
        Further fields, ``file`` first.

    Returns
    -------
    str
        The document: the head in the first line, then a row a line.
    """
    head: dict[str, Any] = {"schema": SCHEMA, "verb": verb, **more}
    if trace is not None:
        head["events"] = trace._facts["events"]
        head["duration"] = trace.duration
        head["lost"] = trace.loss.total
        head["missing"] = missing_parts(trace)
    lines = [json.dumps(row, default=str) for row in rows]

    def text(kept: int) -> str:
        first = json.dumps({**head, "left_out": left_out + len(lines) - kept}, default=str)
        body = ",\n".join(lines[:kept])
        return f'{first[:-1]}, "rows": [\n{body}\n]}}' if kept else f'{first[:-1]}, "rows": []}}'

    return largest(text, len(lines), budget)


def largest(text: Callable[[int], str], most: int, budget: int | None) -> str:
    """Give the longest text that fits: ``text(n)`` grows with n, from 0 to `most`."""
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
    """Keep the lines that fit, from the first on, and say how many are left out."""

    def text(kept: int) -> str:
        less = len(lines) - kept
        note = [f"({less:,} of {len(lines):,} lines left out: --budget)"] if less else []
        return "\n".join([*lines[:kept], *note])

    return largest(text, len(lines), budget).splitlines()


def table_rows(table: Any, handles: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Give the rows of a table, each with its handle first."""
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
    """Say what is missing before anything else: to people in the answer, to programs beside it."""
    from .files import warn_of_loss

    said = warn_of_loss(trace)
    if said:
        beside = getattr(arguments, "json", False) or getattr(arguments, "csv", False)
        line = f"{path}: {said}" if path else said
        print(_rows.printable(line), file=sys.stderr if beside else sys.stdout)


def lost_as_well(trace: Trace) -> str:
    """Say how many events were lost, behind how many there are; nothing where none was."""
    return f", {trace.loss.total:,} LOST" if trace.loss else ""
