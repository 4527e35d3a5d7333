"""Makes one file of many: a table of many recordings in one Parquet file.

Each recording has files of its own, so that any number of processes can add some. `compact` makes
one file of those of each table. The new files are whole before the first is put in place. From then
on ``exchange.json`` names the new file and those that it replaces, and `files_of` leaves these out
as soon as the new one is there: nothing is there twice, whenever it is interrupted. Who writes next
ends it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..base import output
from .ids import text_id
from .parts import EVENTS, GROUP_ROWS, PARTIALS, ROWS

_EXCHANGE = "exchange.json"
#: The new files, until they are put in place.
_WORK = ".compact"
_PREFIX = "many-"
#: Writes the parts of a table into a file; see writing.py.
Write = Callable[[str, Iterator[Any], Path], None]


def files_of(folder: Path, table: str) -> list[Path]:
    """Return the files of a table, by name."""
    found = sorted((folder / table).glob("*.parquet"))
    into, replaced = _exchange_of(folder)
    if into is not None and any(path.name == into for path in found):
        found = [path for path in found if path.name not in replaced]
    return found


def _exchange_of(folder: Path) -> tuple[str | None, frozenset[str]]:
    try:
        known = json.loads((folder / _EXCHANGE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None, frozenset()
    return known["into"], frozenset(known["replaced"])


def compact(folder: Path, write: Write) -> tuple[int, int]:
    """Make one file of the files of each table.

    Returns
    -------
    before, after : int
        How many files the dataset had, and has.
    """
    with _alone(folder):
        names = [path.name for path in files_of(folder, "processes")]
        before = _count(folder)
        if len(names) > 1:
            _rewrite(folder, names, write, lambda rows: rows)
        return before, _count(folder)


def _count(folder: Path) -> int:
    return sum(len(files_of(folder, table)) for table in (*PARTIALS, *ROWS, *EVENTS))


def held(folder: Path, process: int) -> tuple[dict[str, Any], set[str]] | None:
    """Return what a file of many recordings has of a process.

    Returns
    -------
    row : dict
        ``events`` and ``file``, of the table ``processes``.
    tables : set of str
        The tables in which it has rows; None instead of both: no such file has it.
    """
    import pyarrow.parquet

    def rows(path: Path, columns: Sequence[str]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = pyarrow.parquet.read_table(
            path, columns=list(columns), filters=[("process", "==", process)], partitioning=None
        ).to_pylist()
        return found

    for path in _of_many(folder):
        if row := rows(path, ("events", "file")):
            others = {
                table
                for table in (*ROWS, *EVENTS)
                if (folder / table / path.name).exists()
                and rows(folder / table / path.name, ("process",))
            }
            return row[0], others
    return None


def _of_many(folder: Path) -> list[Path]:
    return [path for path in files_of(folder, "processes") if path.name.startswith(_PREFIX)]


def take_out(folder: Path, process: int, write: Write) -> None:
    """Remove a recording from the files of many."""
    import pyarrow.compute

    with _alone(folder):
        for path in _of_many(folder):
            if process in _processes(path):
                _rewrite(
                    folder, [path.name], write,
                    lambda rows: rows.filter(pyarrow.compute.field("process") != process),
                )  # fmt: skip


def _processes(path: Path) -> list[int]:
    import pyarrow.parquet

    found: list[int] = pyarrow.parquet.read_table(path, columns=["process"], partitioning=None)[
        "process"
    ].to_pylist()
    return found


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Exchange files while no other process does; first end what was interrupted."""
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, output.PRIVATE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        _finish(folder)
        yield
    finally:
        os.close(descriptor)


def _rewrite(
    folder: Path, names: Sequence[str], write: Write, choose: Callable[[Any], Any]
) -> None:
    """Make one file of those with these names, of each table, and put it into their place."""
    left = text_id(*sorted(names), "taken out" if len(names) == 1 else "")
    into = f"{_PREFIX}{left & 0xFFFF_FFFF_FFFF_FFFF:016x}.parquet"
    for table in (*PARTIALS, *ROWS, *EVENTS):
        sources = [folder / table / name for name in names if (folder / table / name).exists()]
        if sources:
            (folder / _WORK / table).mkdir(output.PRIVATE_FOLDER, parents=True)
            path = folder / _WORK / table / into
            write(table, _pieces(sources, table in PARTIALS, choose), path)
            path.chmod(output.PRIVATE)
    journal = {"into": into, "replaced": list(names)}
    output.put(folder / _WORK / _EXCHANGE, [json.dumps(journal).encode()])
    (folder / _WORK / _EXCHANGE).replace(folder / _EXCHANGE)
    _finish(folder)


def _finish(folder: Path) -> None:
    """Put new files in place, and remove those that they replace."""
    into, replaced = _exchange_of(folder)
    if into is not None:
        for table in (*PARTIALS, *ROWS, *EVENTS):
            with contextlib.suppress(FileNotFoundError):  # it is in place, or there is none
                (folder / _WORK / table / into).replace(folder / table / into)
            if (folder / table / into).exists():
                for name in replaced:
                    (folder / table / name).unlink(missing_ok=True)
        (folder / _EXCHANGE).unlink()
    shutil.rmtree(folder / _WORK, ignore_errors=True)


def _pieces(sources: Iterable[Path], joins: bool, choose: Callable[[Any], Any]) -> Iterator[Any]:
    """Yield the rows of files of one table, a row group at a time.

    joins: make large groups of small ones; else readers skip groups by what each recording has.
    """
    import pyarrow
    import pyarrow.parquet

    files = [pyarrow.parquet.ParquetFile(source) for source in sources]
    schema = pyarrow.unify_schemas(
        [file.schema_arrow.remove_metadata() for file in files], promote_options="default"
    )
    waiting, given = [schema.empty_table()], False
    for file in files:
        for group in range(file.num_row_groups):
            rows = choose(file.read_row_group(group))
            if len(rows):
                waiting.append(rows)
            if len(waiting) > 1 and (not joins or sum(map(len, waiting)) >= GROUP_ROWS):
                yield pyarrow.concat_tables(waiting, promote_options="default")
                waiting, given = [schema.empty_table()], True
        file.close()
    if len(waiting) > 1 or not given:  # a file without rows has a schema, too
        yield pyarrow.concat_tables(waiting, promote_options="default")
