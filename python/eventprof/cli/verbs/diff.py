"""Compare recordings by function: the values of the later minus the values of the earlier.

Functions of both are the same if their names, modules and files are equal; their lines may differ.
With several recordings of each program, separated by --to, values are medians, and a change counts
only if all values of one side are above all of the other: the rest is noise, marked with ~.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import Failure, rows
from ..answer import document, table_rows, tell_missing
from ..files import add_file, load

if TYPE_CHECKING:
    from typing import TypeAlias

    from ...tables.column import Array
    from ...tables.table import Table
    from ...trace import Trace

    #: A file, and what was recorded in it.
    _Recording: TypeAlias = tuple[str, Trace]

_SORTS = ("self", "total", "calls", "allocated", "allocated_self")
#: What is shown of the whole and of each function.
_SHOWN = ("self", "total", "allocated", "calls")
#: A function with less of the whole is not looked at by --fail-above in percent: of a call of 200
#: ns, any run makes 300.
_PART = 0.01

EXAMPLES = (
    ("eventprof diff before.epr after.epr", "the largest change of self time first"),
    (
        "eventprof diff before.epr after.epr --sort allocated --limit 5",
        "the largest change of allocated bytes first",
    ),
    (
        "eventprof diff a1.epr a2.epr a3.epr --to b1.epr b2.epr b3.epr --fail-above 10%",
        "three runs of each; status 1 if the whole or a function takes 10 % more time",
    ),
    (
        "eventprof diff before.epr after.epr --format markdown --limit 10",
        "a table for the comment on a pull request",
    ),
)


class Threshold(NamedTuple):
    """How much a column may grow: by this part of what it was, or by so much."""

    text: str
    part: float | None
    amount: int


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.usage = (
        "eventprof diff [OPTION...] BEFORE AFTER\n"
        "       eventprof diff [OPTION...] BEFORE... --to AFTER...\n"
        "       eventprof diff [OPTION...] --by LABEL FILE..."
    )
    add_file(parser, "files", several=True)
    parser.add_argument(
        "--to", metavar="FILE", nargs="+", help="the later recordings; all others are the earlier"
    )
    parser.add_argument(
        "--by",
        metavar="LABEL",
        help="compare the recordings that have two values of this label, as --label of run gives "
        "them: those with the value of the first file are the earlier",
    )
    parser.add_argument(
        "--sort",
        choices=_SORTS,
        default="self",
        help="sort by the size of this column's change, the largest first (self)",
    )
    parser.add_argument(
        "--fail-above",
        metavar="LIMIT",
        type=_limit,
        help="end with status 1 if the column of --sort has grown by more than LIMIT, in the whole "
        "or in a function: 10%% (functions with 1 %% of the whole), or an amount such as 5ms, "
        "'2 MiB' or 100",
    )
    rows.add_limit(parser, 30, "functions")
    rows.add_formats(parser, names=("text", "markdown", "csv", "json"))


def _limit(text: str) -> str:
    if re.fullmatch(r"\s*[\d_.]+\s*([a-zA-Zµ]*|%)\s*", text) is None:
        raise argparse.ArgumentTypeError(f"a limit is such as 10% or 5ms, not {text!r}")
    return text.strip()


def _threshold(text: str, column: str) -> Threshold:
    from ...base.quantities import parse_size
    from ..options import parse_time

    try:
        if text.endswith("%"):
            return Threshold(text, float(text[:-1]) / 100, 0)
        if column == "calls":
            return Threshold(text, None, rows.count(text))
        if column.startswith("allocated"):
            return Threshold(text, None, parse_size("a size", text, 0))
        return Threshold(text, None, parse_time(text))
    except (ValueError, MemoryError, argparse.ArgumentTypeError) as error:
        raise Failure(f"--fail-above, of {column}: {error}", 2) from None


def run(arguments: argparse.Namespace) -> int:
    """Compare them."""
    threshold = _threshold(arguments.fail_above, arguments.sort) if arguments.fail_above else None
    before, after = _by_label(arguments) if arguments.by else _sides(arguments)
    try:
        table = before[0][1].diff(
            *(trace for _, trace in after), beside=[trace for _, trace in before[1:]]
        )
    except ValueError as error:
        raise Failure(f"{after[0][0]}: {error}") from None
    sums = _sums(table)
    failed = [] if threshold is None else _grown(table, sums, arguments.sort, threshold)
    order = np.argsort(-np.abs(_numbers(table, f"{arguments.sort}_change")), kind="stable")
    found = len(order)
    if arguments.limit:
        order = order[: arguments.limit]
    table = table[order]
    for path, trace in (*before, *after):
        tell_missing(trace, arguments, path)
    if arguments.json:
        print(document("diff", after[0][1], table_rows(table), left_out=found - len(table),
                       file=after[0][0], before=before[0][0],
                       before_lost=before[0][1].loss.total, sums=sums,
                       grown=[name for name, _ in failed]))  # fmt: skip
    elif arguments.csv:
        rows.write_csv([table], sys.stdout)
    else:
        write = _print_markdown if arguments.format == "markdown" else _print
        write(table, sums)
        if found > len(table):
            print(f"and {found - len(table):,} more; --limit 0 shows all")
        if threshold is not None:
            _print_verdict(failed, arguments.sort, threshold)
    return 1 if failed else 0


def _load(paths: Sequence[str]) -> list[_Recording]:
    return [(path, load(path, fold=True)) for path in paths]


def _by_label(arguments: argparse.Namespace) -> tuple[list[_Recording], list[_Recording]]:
    if arguments.to:
        raise Failure("--by and --to both say which are the later ones: leave one out", 2)
    sides: dict[str, list[_Recording]] = {}
    for path, trace in _load(arguments.files):
        value = (trace.metadata.get("labels") or {}).get(arguments.by)
        if value is None:
            raise Failure(
                f"{path} has no label {arguments.by}: give it by eventprof run --label "
                f"{arguments.by}=...",
                2,
            )
        sides.setdefault(value, []).append((path, trace))
    if len(sides) != 2:
        raise Failure(
            f"--by {arguments.by} needs recordings with two values of it; "
            f"there are {', '.join(sides)}",
            2,
        )
    before, after = sides.values()
    return before, after


def _sides(arguments: argparse.Namespace) -> tuple[list[_Recording], list[_Recording]]:
    if arguments.to:
        return _load(arguments.files), _load(arguments.to)
    if len(arguments.files) == 1:
        raise Failure(
            f"there is nothing to compare {arguments.files[0]} with: name a second recording, the "
            "later one (eventprof diff BEFORE AFTER)",
            2,
        )
    if len(arguments.files) > 2:
        raise Failure(
            "which of them are the later ones? write --to before these "
            "(eventprof diff BEFORE... --to AFTER...)",
            2,
        )
    return _load(arguments.files[:1]), _load(arguments.files[1:])


# ---- What changed ------------------------------------------------------------------------------


def _numbers(table: Table, name: str) -> Array:
    filled: Array = np.ma.filled(table[name], 0)
    return filled


def _sums(table: Table) -> dict[str, list[int]]:
    """Return the whole before and after; of `total`, which counts time once a level, nothing."""
    return {
        what: [int(_numbers(table, f"{what}_{side}").sum()) for side in ("before", "after")]
        for what in _SORTS
        if what not in ("total", "allocated")
    }


def _grown(
    table: Table, sums: dict[str, list[int]], column: str, threshold: Threshold
) -> list[tuple[str, str]]:
    """Return what has grown by more than it may, the most first, and by how much."""
    before, after = (_numbers(table, f"{column}_{side}") for side in ("before", "after"))
    whole = sums.get(column) or sums[{"total": "self", "allocated": "allocated_self"}[column]]
    limits: Any = threshold.amount
    counts = np.ones(len(table), dtype=bool)
    if threshold.part is not None:
        limits = before * threshold.part
        counts = after >= whole[1] * _PART
    if f"{column}_apart" in table.columns:
        counts &= table[f"{column}_apart"]
    found = np.flatnonzero(counts & (after - before > limits))
    found = found[np.argsort(before[found] - after[found], kind="stable")]
    cells = zip(table["name"][found], table["module"][found], before[found], after[found],
                strict=True)  # fmt: skip
    result = [
        (rows.full_name(name, module), _growth(column, int(old), int(new)))
        for name, module, old, new in cells
    ]
    limit = threshold.amount if threshold.part is None else whole[0] * threshold.part
    if whole[1] - whole[0] > limit and (result or f"{column}_apart" not in table.columns):
        result.insert(0, ("the whole", _growth(column, *whole)))
    return result


# ---- Text --------------------------------------------------------------------------------------


def _show(column: str) -> Any:
    from ..._words import show_bytes, show_ns

    if column == "calls":
        return "{:,}".format
    return show_bytes if column.startswith("allocated") else show_ns


def _signed(show: Any, value: int) -> str:
    return f"-{show(-value)}" if value < 0 else f"+{show(value)}" if value else "="


def _growth(column: str, before: int, after: int) -> str:
    """Return a change, and its part of what was before."""
    text = _signed(_show(column), after - before)
    return f"{text} ({(after - before) / before:+.0%})" if before and after != before else text


def _whole(sums: dict[str, list[int]]) -> str:
    words = {"self": "time in calls", "calls": "calls", "allocated_self": "allocated"}
    parts = [
        f"{word} {_show(column)(sums[column][1])}, {_growth(column, *sums[column])}"
        for column, word in words.items()
    ]
    return f"the whole: {'; '.join(parts)}"


def _cells(table: Table) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return the heads and the rows, whose last two are the status and the function."""
    heads, columns = [], []
    for what in _SHOWN:
        heads += [what, "change"]
        after = table._column(f"{what}_after").items()
        change = table._column(f"{what}_change").items()
        shown = [_signed(_show(what), value) for value in change]
        if f"{what}_apart" in table.columns:
            noise = zip(shown, table[f"{what}_apart"].tolist(), strict=True)
            shown = [text if apart or text == "=" else f"~{text}" for text, apart in noise]
        columns += [[rows.cell(_show(what), value) for value in after], shown]
    names = zip(table["name"], table["module"], strict=True)
    columns.append([word if word != "both" else "" for word in table["status"]])
    columns.append([rows.full_name(name, module) for name, module in names])
    return [*heads, "", "function"], list(zip(*columns, strict=True))


def _print(table: Table, sums: dict[str, list[int]]) -> None:
    print(_whole(sums))
    heads, lines = _cells(table)
    rows.write_text(lines, heads, sys.stdout, left=2)


def _print_markdown(table: Table, sums: dict[str, list[int]]) -> None:
    """Write a table as GitHub and GitLab show it."""
    heads, lines = _cells(table)
    whole = _whole(sums)
    print(f"{whole[0].upper()}{whole[1:]}\n")
    print(f"| {' | '.join(['function', *heads[:-2], ''])} |")
    print(f"|:--{'|--:' * len(heads[:-2])}|:--|")
    for line in lines:
        print(f"| {' | '.join([_code(line[-1]), *line[:-2], line[-2]])} |")
    print()


def _code(text: str) -> str:
    """Return a name as code in a cell: no character of it has a meaning there."""
    marks = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    edge = " " if "`" in text else ""
    return f"{marks}{edge}{text}{edge}{marks}".replace("|", "\\|")


def _print_verdict(failed: Sequence[tuple[str, str]], column: str, threshold: Threshold) -> None:
    if not failed:
        print(f"nothing has grown by more than {threshold.text} of {column}")
        return
    names = ", ".join(f"{name} {growth}" for name, growth in failed[:5])
    more = f", and {len(failed) - 5:,} more" if len(failed) > 5 else ""
    print(f"grown by more than {threshold.text} of {column}: {names}{more}")
