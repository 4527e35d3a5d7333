"""Makes a dataset of recordings, or adds to one: a file a recording and table, or one of many."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from .._optional import require
from .._words import plural
from ..base import output
from ..files import family
from . import compacting
from .ids import file_name
from .parts import EVENTS, PARTIALS, ROWS, SAME, UNITS, Recording, units

#: Changes when a reader of the tables before it would be wrong about those after it.
FORMAT = 1
#: Columns of numbers that repeat.
_FEW = frozenset((
    "process", "magnitude", "thread", "free_thread", "function", "caller", "line", "caller_line",
    "flags", "depth", "parts",
))  # fmt: skip
#: What readers skip row groups by. Statistics of other columns would only make the files' ends
#: larger, which every question reads.
_FOUND_BY = frozenset((
    "process", "magnitude", "duration", "size", "start", "time", "thread", "function", "parts",
))  # fmt: skip
#: Columns that Zstandard makes a good deal smaller than LZ4 does.
_SMALLER = frozenset((
    "start", "time", "size", "call", "freed_in", "allocated", "allocated_self", "freed",
))  # fmt: skip
#: So many events have columns in memory before the collector is called to free them: 20 MB.
FREED_FROM = 200_000
_not_freed = 0
#: Says that a folder is a dataset.
MARK = "dataset.json"
_MAKES_ONE = "'eventprof dataset RECORDING... -o FOLDER' makes one"


def recordings_in(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Find the recordings: files as they are, of folders all that ends with .epr, at any depth."""
    found: list[str] = []
    for path in paths:
        if os.path.isdir(path):
            found += sorted(str(each) for each in Path(path).rglob("*.epr") if each.is_file())
        else:
            found.append(os.fspath(path))
    return found


def write_dataset(
    recordings: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    path: str | os.PathLike[str],
    *,
    rows: bool = True,
    events: bool = False,
    jobs: int = 1,
    compact: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> list[str]:
    """Make a dataset of recordings, or add them to one: Parquet files that any engine reads.

    Parameters
    ----------
    recordings : path or sequence of paths
        Recordings, and folders of them. A recording that is in the dataset already is replaced,
        unless the dataset has more events of the same process.
    path : path
        The dataset, a folder.
    rows : bool
        Write ``slices``, ``allocations`` and ``slowest``, too, for which the columns of a
        recording's events are made, about 100 bytes an event; those of a large one lie in a removed
        file. Without, a recording is read in one pass.
    events : bool
        Write ``events``, too.
    jobs : int
        How many recordings are read at a time, each by a process of its own.
    compact : bool
        At the end make one file of those of each table, of all recordings of the dataset. Without,
        each recording has some ten files. Not while another process writes to it.
    progress : callable, optional
        Called with how many recordings are done, and how many there are.

    Returns
    -------
    list of str
        A line for each recording that is not in the dataset, with why. The others are. If none
        could be converted, no dataset is left, unless there was one.

    Raises
    ------
    ValueError
        There is no recording; or `path` is a folder of something else, or a dataset of a later
        version.
    ModuleNotFoundError
        pyarrow is not installed.

    Notes
    -----
    What is in the tables: doc/datasets.rst. A recording is added whole or not at all: an
    interrupted conversion is repeated, and nothing is there twice.
    """
    problems = make(recordings, path, rows, events, jobs, progress)[1]
    if compact and Path(path).exists():
        compact_files(Path(path))
    return problems


def compact_files(folder: Path) -> tuple[int, int]:
    """Make one file of those of each table; return how many files there were, and are."""
    return compacting.compact(folder, _write)


def make(
    recordings: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    path: str | os.PathLike[str],
    rows: bool,
    events: bool,
    jobs: int,
    progress: Callable[[int, int], None] | None,
) -> tuple[int, list[str]]:
    """Do what `write_dataset` does, and say how many recordings were converted, too."""
    require("pyarrow.parquet", "dataset", "a dataset")
    given = [recordings] if isinstance(recordings, (str, os.PathLike)) else list(recordings)
    found = recordings_in(given)
    if not found:
        where = ", ".join(os.fspath(each) for each in given)
        raise ValueError(f"there is no recording in {where or 'nothing'}")
    if jobs < 1:
        raise ValueError(f"jobs must be 1 or more, not {jobs}")
    folder = Path(path)
    check(folder, or_empty=True)
    was_there = folder.exists()
    _mark(folder)
    problems = []
    for done, (recording, problem) in enumerate(_all(found, folder, rows, events, jobs), 1):
        if problem:
            problems.append(problem if recording in problem else f"{recording}: {problem}")
        if progress is not None:
            progress(done, len(found))
    made = len(found) - len(problems)
    if not made:
        _remove_empty(folder, was_there)
    return made, problems + _gone(given)


def _gone(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Name the recordings that manifests in the folders list and that are gone."""
    gone = []
    for manifest in (each for path in paths for each in sorted(Path(path).rglob(family.MANIFEST))):
        folder = str(manifest.parent)
        listed, _ = family.read_manifest(folder)
        lines, _ = family.gone(listed or (), family.paths(folder))
        gone += [os.path.join(folder, line) for line in lines]
    return gone


def _mark(folder: Path) -> None:
    """Make the folder a dataset."""
    folder.mkdir(output.PRIVATE_FOLDER, parents=True, exist_ok=True)
    text = json.dumps({"format": FORMAT, "tables": {**PARTIALS, **ROWS, **EVENTS}}, indent=1)
    # `check` found that the folder is empty or that the file is a dataset's.
    output.put(folder / MARK, [f"{text}\n".encode()], force=True)


def _remove_empty(folder: Path, was_there: bool) -> None:
    """Remove a dataset without files of any table, unless another process writes to it."""
    for table in (*PARTIALS, *ROWS, *EVENTS):
        with contextlib.suppress(OSError):  # absent, or not empty
            (folder / table).rmdir()
    if [each.name for each in folder.iterdir()] == [MARK]:
        with contextlib.suppress(OSError):
            (folder / MARK).unlink()
            if not was_there:
                folder.rmdir()


def check(folder: Path, *, or_empty: bool = False) -> None:
    """Check that a folder is a dataset that can be read here.

    Raises
    ------
    ValueError
        It is not.
    FileNotFoundError
        There is nothing.
    """
    if or_empty and (not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))):
        return
    if not folder.exists():
        raise FileNotFoundError(2, f"there is no such dataset; {_MAKES_ONE}", str(folder))
    try:
        mark = json.loads((folder / MARK).read_text(encoding="utf-8"))
        made, _ = mark["format"], mark["tables"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ValueError(
            f"{folder}: this is not a dataset: it has no {MARK}; {_MAKES_ONE}"
        ) from None
    if made != FORMAT:
        raise ValueError(
            f"{folder}: format {made}, and this eventprof reads {FORMAT}; use a newer one"
        )


def _all(
    found: list[str], folder: Path, rows: bool, events: bool, jobs: int
) -> Iterator[tuple[str, str]]:
    """Convert them, and give what went wrong with each."""
    if jobs == 1 or len(found) == 1:
        for recording in found:
            yield recording, convert(recording, folder, rows, events)
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed

    spawn = multiprocessing.get_context("spawn")  # a fork of a program with threads may hang
    with ProcessPoolExecutor(min(jobs, len(found)), spawn) as pool:
        tasks = {pool.submit(convert, each, folder, rows, events): each for each in found}
        for task in as_completed(tasks):
            error = task.exception()
            yield tasks[task], str(error) if error is not None else task.result()


def convert(recording: str, folder: Path, rows: bool, events: bool) -> str:
    """Write the tables of one recording.

    Returns
    -------
    str
        Why it could not be done; empty: it is done.
    """
    global _not_freed
    try:
        return _convert(recording, folder, rows, events)
    finally:
        # A trace and its tables refer to each other, so only the collector frees them, and that
        # counts objects, not bytes: without this, seven recordings of 1.6 M events held 1.6 GB at
        # once instead of 0.5. It takes 20 to 50 ms, so small recordings wait for each other.
        # Partials make no such tables.
        if _not_freed > FREED_FROM:
            gc.collect()
            _not_freed = 0


def _convert(recording: str, folder: Path, rows: bool, events: bool) -> str:
    from .. import _core
    from ..files import opening

    global _not_freed
    work = folder / f".part-{os.getpid()}"
    try:
        trace = opening.open(recording)
        part = Recording(trace)
        name = file_name(part.process)
        count = trace._facts["events"]
        held = compacting.held(folder, part.process)
        before = _row(folder / "processes" / name) if held is None else held[0]
        if before is not None and before["events"] > count:
            return f"the dataset has more events of this process, from {before['file']}"
        wanted = {*(ROWS if rows else ()), *(EVENTS if events else ())}
        if held is not None and held[0]["events"] == count and wanted == held[1]:
            return ""  # it is there, in a file of many
        if rows or events:
            _not_freed += trace._facts["events"]
        made = []
        for table, pieces in part.tables(rows=rows, events=events):
            (work / table).mkdir(output.PRIVATE_FOLDER, parents=True)
            _write(table, pieces, work / table / name)
            (work / table / name).chmod(output.PRIVATE)
            made.append(table)
        if held is not None:
            compacting.take_out(folder, part.process, _write)
        # "processes" comes last: without it, readers know that the conversion is not done.
        for table in sorted(made, key=lambda each: each == "processes"):
            (folder / table).mkdir(output.PRIVATE_FOLDER, exist_ok=True)
            # The name is an id of the process: an existing file is an earlier conversion of it.
            (work / table / name).replace(folder / table / name)
        if not (folder / MARK).exists():  # another process had nothing to write, and removed it
            _mark(folder)
        for table in {*ROWS, *EVENTS}.difference(made):  # an earlier conversion made more tables
            (folder / table / name).unlink(missing_ok=True)
    except (OSError, MemoryError, ValueError, _core.Error) as error:
        return str(error) or type(error).__name__
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return ""


def _row(path: Path) -> dict[str, Any] | None:
    """Return what the dataset has of a process in a file of its own."""
    import pyarrow.parquet

    if not path.exists():
        return None
    (row,) = pyarrow.parquet.read_table(
        path, columns=["events", "file"], partitioning=None
    ).to_pylist()
    return dict(row)


def _write(table: str, pieces: Iterator[Any], path: Path) -> None:
    """Write the parts of a table, with the units of its columns in the file's metadata.

    Texts and columns of few values are written as dictionaries, other numbers as differences
    (Parquet's DELTA_BINARY_PACKED), columns of one value as they are, which LZ4 makes nothing of.
    Zstandard makes a context for each page, which takes as long as the encoding does: only columns
    that it makes smaller by more than LZ4 does have it.
    """
    import pyarrow
    import pyarrow.parquet

    first = next(pieces)
    names = first.schema.names
    same = [
        field.name
        for field in first.schema
        if field.metadata == SAME
        and pyarrow.types.is_integer(field.type)
        # benchmarks/datasets.py puts other ids into finished files.
        and field.name != "process"
    ]
    few = [
        field.name
        for field in first.schema
        if field.name not in same
        and (field.name in _FEW or not pyarrow.types.is_integer(field.type))
    ]
    codec = dict.fromkeys(names, "lz4") | dict.fromkeys(_SMALLER.intersection(names), "zstd")
    codec["process"] = "none"
    with pyarrow.parquet.ParquetWriter(
        path,
        first.schema,
        compression=codec,
        use_dictionary=few,
        column_encoding={
            name: "PLAIN" if name in same else "DELTA_BINARY_PACKED"
            for name in names
            if name not in few
        },
        write_statistics=[name for name in names if name in _FOUND_BY],
        store_schema=False,  # so that readers get plain text, not dictionaries
    ) as writer:
        writer.add_key_value_metadata({UNITS: json.dumps(units(table, names))})
        writer.write_table(first, row_group_size=max(len(first), 1))
        for piece in pieces:
            writer.write_table(piece, row_group_size=max(len(piece), 1))


def what_is_missing(folder: Path) -> list[str]:
    """Compare the files of each table with those of ``processes``, and say where they differ."""
    there = {path.name for path in compacting.files_of(folder, "processes")}
    missing = []
    for table in PARTIALS:
        has = {path.name for path in compacting.files_of(folder, table)}
        if lacks := there - has:
            missing.append(f"{table} lacks {plural(len(lacks), 'recording')}: convert them again")
        if more := has - there:
            missing.append(
                f"{table} has {plural(len(more), 'recording')} that were not written whole: "
                "convert them again"
            )
    return missing
