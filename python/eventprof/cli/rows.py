"""Write rows: as text in columns, as CSV, or as JSON with one object in each line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from .. import _words
from . import Failure

if TYPE_CHECKING:
    from ..tables.column import Array
    from ..tables.table import Table
    from ..trace import Trace

_AT_A_TIME = 8192
#: Characters that begin a formula in a spreadsheet; tab and newline are escaped before.
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def add_formats(
    parser: argparse.ArgumentParser,
    json_is: str = "one JSON document; times in ns",
    names: Sequence[str] = (),
) -> None:
    """Add the options that choose the format to a parser; with `names`, --format of these, too."""
    group = parser.add_argument_group("format").add_mutually_exclusive_group()
    group.add_argument("--csv", action="store_true", help="comma-separated values; times in ns")
    group.add_argument("--json", action="store_true", help=json_is)
    if names:
        group.add_argument("--format", choices=names, action=_Format, help="one of these")


class _Format(argparse.Action):
    """``--format csv`` is ``--csv``."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        namespace.format = values
        if values in ("csv", "json"):
            setattr(namespace, values, True)


def add_limit(parser: argparse.ArgumentParser, default: int | None, what: str) -> None:
    """Add --limit to a parser."""
    shown = "all" if default is None else str(default)
    parser.add_argument(
        "--limit",
        metavar="N",
        type=count,
        default=default,
        help=f"print at most N {what} ({shown}); 0: all",
    )


def count(text: str) -> int:
    """Read a number of rows."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"it must be a whole number, not {text!r}")
    return int(text)


def write_csv(tables: Iterable[Table], file: IO[str], *, heading: bool = True) -> None:
    """Write tables of the same columns, one below the other."""
    import csv

    writer = csv.writer(file, lineterminator="\n")
    for table in tables:
        if heading:
            writer.writerow(table.columns)
            heading = False
        for part in _parts(table):
            columns = [
                _csv_texts(part, name, file) if part._column(name).words is not None else items
                for name, items in zip(part.columns, _items(part), strict=True)
            ]
            writer.writerows(zip(*columns, strict=True))


def _csv_texts(table: Table, name: str, file: IO[str]) -> list[str | None]:
    """Return the cells of a text column; each distinct text is escaped once."""
    column = table._column(name)
    used = np.unique(column.values())
    texts = column.words.objects() if column.words is not None else ()
    cells = {code: safe_cell(texts[code], file) for code in used.tolist() if code >= 0}
    return [cells.get(code) for code in column.values().tolist()]


def safe_cell(text: str, file: IO[str]) -> str:
    """Return a text as a cell that neither a terminal nor a spreadsheet executes.

    Parameters
    ----------
    text : str
        A name or a path, which may be any text.
    file : text file
        The file to write to: characters that its encoding lacks are escaped.

    Returns
    -------
    str
        The text. Characters that cannot be printed have backslash escapes. A text that begins like
        a formula (with =, +, - or @, or the wide forms of these) has an apostrophe in front.
    """
    text = encodable(_words.printable(text), file)
    return f"'{text}" if text.startswith(_FORMULA) else text


def write_json(
    tables: Iterable[Table], file: IO[str], letter: str = "", row_numbers: Array | None = None
) -> None:
    """Write one object in each line; an unknown value is null.

    Parameters
    ----------
    tables : iterable of Table
        Tables with the same columns.
    file : text file
        The file to write to.
    letter : str
        The letter of the rows' handles, which come first; empty: rows have no handles.
    row_numbers : array of int, optional
        The rows' numbers in the whole table; without them, the handles are null.
    """
    done = 0
    for table in tables:
        names = table.columns
        for part in _parts(table):
            numbers = (
                [None] * len(part)
                if row_numbers is None
                else row_numbers[done : done + len(part)].tolist()
            )
            done += len(part)
            for number, row in zip(numbers, zip(*_items(part), strict=True), strict=True):
                cells = dict(zip(names, row, strict=True))
                if letter:
                    handle = None if number is None else f"{letter}-{number}"
                    cells = {"handle": handle, **cells}
                print(json.dumps(cells), file=file)


def _parts(table: Table) -> Iterator[Table]:
    for first in range(0, len(table), _AT_A_TIME):
        yield table[first : first + _AT_A_TIME]


def _items(table: Table) -> list[list[Any]]:
    return [table._column(name).items() for name in table.columns]


def write_text(
    rows: Sequence[Sequence[str]], heads: Sequence[str], file: IO[str], *, left: int = 1
) -> None:
    """Write cells in columns: numbers aligned right, the last `left` columns aligned left.

    Parameters
    ----------
    rows : sequence of sequences of str
        The cells.
    heads : sequence of str
        The columns' names.
    file : text file
        The file to write to.
    left : int
        How many columns at the end are words.
    """
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    words = len(heads) - left
    for row in (heads, *rows):
        cells = [
            cell.rjust(width) if index < words else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip(), file=file)


def printable(text: str) -> str:
    """Escape control characters, and characters that standard output cannot encode."""
    return encodable(_words.printable(text), sys.stdout)


def encodable(text: str, file: IO[str]) -> str:
    """Escape characters that a file's encoding does not have."""
    encoding = getattr(file, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def match_functions(trace: Trace, patterns: Sequence[str], *, may_come: bool = False) -> Array:
    """Return what `answers.functions.matching` finds for ``--function``; if that is nothing, fail.

    `may_come`: the program still runs, so that a matching function may be called later.
    """
    from ..answers.functions import matching, no_match

    found = matching(trace, patterns)
    if not found.any() and not may_come:
        raise Failure(f"--function: {no_match(trace, patterns)}")
    return found


def full_name(name: str | None, module: str | None) -> str:
    """Name a function as the report does."""
    known = name or "(no name)"
    bare = module in (None, "builtins") or (module == "__main__" and known != "<module>")
    return printable(known if bare else f"{module}.{known}")


def cell(show: Callable[[Any], str], value: Any) -> str:
    """Show a value, or - if it is unknown."""
    return "-" if value is None else show(value)
