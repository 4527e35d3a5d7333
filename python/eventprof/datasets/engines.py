"""The engines that read a dataset: DuckDB and Polars on one machine, Dask on a cluster.

All of them do the same three things, and give Arrow tables of the same rows in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from .._optional import require
from .._words import did_you_mean
from .compacting import files_of
from .ids import file_name

#: A column, ``==``, ``>=``, ``<=`` or ``in``, and the value or values.
Condition = tuple[str, str, Any]


class Engine(Protocol):
    """What an engine does."""

    def scan(self, table: str) -> Any:
        """Return a table as the engine has tables."""

    def group(
        self,
        table: str,
        keys: Sequence[str],
        *,
        sums: Sequence[str] = (),
        minima: Sequence[str] = (),
        maxima: Sequence[str] = (),
        where: Sequence[Condition] = (),
    ) -> Any:
        """Add rows that have equal keys; ordered by keys. Unknown values do not count."""

    def distinct(self, table: str, columns: Sequence[str], where: Sequence[Condition] = ()) -> Any:
        """Return each combination of values once, ordered by the first column."""

    def rows(
        self,
        table: str,
        columns: Sequence[str],
        order: Sequence[str],
        *,
        limit: int | None = None,
        where: Sequence[Condition] = (),
    ) -> Any:
        """Return rows by the first column of `order`, the largest first; then by the others."""


def _files(
    path: Path, table: str, where: Sequence[Condition]
) -> tuple[list[Path], list[Condition]]:
    """Return the files of a table, and the conditions that are left.

    If the conditions name processes, only the files of these are read, and nothing is left to be
    compared: the ends of other files are not read only to find that they are of other processes,
    and no row is looked up among a thousand ids.
    """
    folder = path / table
    for condition in where:
        column, operator, value = condition
        if column == "process" and operator in ("==", "in"):
            ids = [value] if operator == "==" else sorted(set(value))
            named = [folder / file_name(each) for each in ids]
            # If somebody renamed files, or some are of many recordings, all of them are read.
            if named and all(file.exists() for file in named):
                return named, [each for each in where if each is not condition]
    return files_of(path, table), list(where)


class DuckDB:
    """DuckDB: SQL over the files, by all cores of this machine."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = require("duckdb", "dataset", "engine='duckdb'").connect()

    def scan(self, table: str) -> Any:
        """Return a relation."""
        return self._connection.sql(f"SELECT * FROM {self._from(table)}")

    def sql(self, query: str) -> Any:
        """Run a query in which tables of the dataset have their names."""
        for folder in sorted(self._path.iterdir()):
            if folder.is_dir() and not folder.name.startswith(".") and any(folder.iterdir()):
                view = f"CREATE OR REPLACE VIEW {folder.name} AS SELECT * FROM "
                self._connection.execute(view + self._from(folder.name))
        return self._connection.sql(query)

    def _from(self, table: str, where: Sequence[Condition] = ()) -> str:
        files, where = _files(self._path, table, where)
        names = [_glob_escaped(file) for file in files]
        return f"read_parquet([{', '.join(map(_literal, names))}]){_where(where)}"

    def _run(self, query: str) -> Any:
        return self._connection.sql(query).to_arrow_table()

    def group(
        self, table: str, keys: Sequence[str], *, sums: Sequence[str] = (),
        minima: Sequence[str] = (), maxima: Sequence[str] = (), where: Sequence[Condition] = (),
    ) -> Any:  # fmt: skip
        """See `Engine`."""
        by = ", ".join(map(_quoted, keys))
        # The sum of BIGINT is a HUGEINT, which other engines do not have.
        parts = [by, *(f"CAST(sum({c}) AS BIGINT) AS {c}" for c in map(_quoted, sums))]
        parts += [f"min({c}) AS {c}" for c in map(_quoted, minima)]
        parts += [f"max({c}) AS {c}" for c in map(_quoted, maxima)]
        return self._run(
            f"SELECT {', '.join(parts)} FROM {self._from(table, where)} GROUP BY {by} ORDER BY {by}"
        )

    def distinct(self, table: str, columns: Sequence[str], where: Sequence[Condition] = ()) -> Any:
        """See `Engine`."""
        names = ", ".join(map(_quoted, columns))
        return self._run(
            f"SELECT DISTINCT {names} FROM {self._from(table, where)} "
            f"ORDER BY {_quoted(columns[0])}"
        )

    def rows(
        self, table: str, columns: Sequence[str], order: Sequence[str], *,
        limit: int | None = None, where: Sequence[Condition] = (),
    ) -> Any:  # fmt: skip
        """See `Engine`."""
        first, *others = map(_quoted, order)
        by = ", ".join([f"{first} DESC", *others])
        end = "" if limit is None else f" LIMIT {limit}"
        names = ", ".join(map(_quoted, columns))
        return self._run(f"SELECT {names} FROM {self._from(table, where)} ORDER BY {by}{end}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _glob_escaped(path: Path) -> str:
    import glob

    return glob.escape(str(path.absolute()))


def _where(conditions: Sequence[Condition]) -> str:
    """Write conditions as SQL."""
    parts = []
    for column, operator, value in conditions:
        if operator == "in":
            among = ", ".join(map(_literal, value)) or "NULL"
            parts.append(f"{_quoted(column)} IN ({among})")
        else:
            sign = "=" if operator == "==" else operator
            parts.append(f"{_quoted(column)} {sign} {_literal(value)}")
    return f" WHERE {' AND '.join(parts)}" if parts else ""


def _literal(value: Any) -> str:
    return str(int(value)) if not isinstance(value, str) else "'" + value.replace("'", "''") + "'"


class Polars:
    """Polars: lazy frames over the files, by all cores of this machine."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._polars = require("polars", "dataset", "engine='polars'")

    def scan(self, table: str) -> Any:
        """Return a lazy frame."""
        return self._chosen(table, ())

    def _chosen(self, table: str, where: Sequence[Condition]) -> Any:
        files, where = _files(self._path, table, where)
        frame = self._polars.scan_parquet(files, glob=False)
        for column, operator, value in where:
            values = self._polars.col(column)
            test = {"==": "__eq__", ">=": "__ge__", "<=": "__le__", "in": "is_in"}[operator]
            frame = frame.filter(getattr(values, test)(list(value) if operator == "in" else value))
        return frame

    def group(
        self, table: str, keys: Sequence[str], *, sums: Sequence[str] = (),
        minima: Sequence[str] = (), maxima: Sequence[str] = (), where: Sequence[Condition] = (),
    ) -> Any:  # fmt: skip
        """See `Engine`."""
        col = self._polars.col
        made = [col(name).sum() for name in sums] + [col(name).min() for name in minima]
        made += [col(name).max() for name in maxima]
        frame = self._chosen(table, where).group_by(*keys).agg(*made).sort(*keys)
        return frame.collect().to_arrow()

    def distinct(self, table: str, columns: Sequence[str], where: Sequence[Condition] = ()) -> Any:
        """See `Engine`."""
        frame = self._chosen(table, where).select(*columns).unique()
        return frame.sort(columns[0]).collect().to_arrow()

    def rows(
        self, table: str, columns: Sequence[str], order: Sequence[str], *,
        limit: int | None = None, where: Sequence[Condition] = (),
    ) -> Any:  # fmt: skip
        """See `Engine`."""
        falling = [True] + [False] * (len(order) - 1)
        frame = self._chosen(table, where).sort(*order, descending=falling)
        frame = frame.select(*columns)
        return (frame if limit is None else frame.head(limit)).collect().to_arrow()


class Dask:
    """Dask: frames of many machines' memory.

    Parameters
    ----------
    path : Path
        Must be there, by the same name, on each worker.
    scheduler : str or distributed.Client, optional
        The address of a scheduler, or a client; without, the threads of this process.
    """

    def __init__(self, path: Path, scheduler: Any = None) -> None:
        if any(letter in str(path.absolute()) for letter in "*?["):
            raise ValueError(f"{path}: Dask takes *, ? and [ for patterns; rename the folder")
        self._path = path
        self._frames = require("dask.dataframe", "dask", "engine='dask'")
        self._scheduler: Any = "threads"
        if scheduler is not None:
            if isinstance(scheduler, str) and "://" in scheduler:
                scheduler = require("distributed", "dask", "a scheduler's address").Client(
                    scheduler
                )
            self._scheduler = scheduler

    def scan(self, table: str) -> Any:
        """Return a frame."""
        return self._read(table, None, ())

    def _read(self, table: str, columns: Sequence[str] | None, where: Sequence[Condition]) -> Any:
        files, where = _files(self._path, table, where)
        return self._frames.read_parquet(
            [str(file.absolute()) for file in files],
            columns=None if columns is None else list(dict.fromkeys(columns)),
            filters=[(c, o, set(v) if o == "in" else v) for c, o, v in where] or None,
            dtype_backend="pyarrow",
        )

    def _computed(self, frame: Any) -> Any:
        if isinstance(self._scheduler, str):
            return frame.compute(scheduler=self._scheduler)
        return self._scheduler.compute(frame, sync=True)

    def grouped(
        self, table: str, keys: Sequence[str], sums: Sequence[str], minima: Sequence[str],
        maxima: Sequence[str], where: Sequence[Condition],
    ) -> Any:  # fmt: skip
        """Return the frame of `group` before it is computed: partial sums, then their sum."""
        frame = self._read(table, [*keys, *sums, *minima, *maxima], where)
        how = {**dict.fromkeys(sums, "sum"), **dict.fromkeys(minima, "min")}
        how |= dict.fromkeys(maxima, "max")
        # One partition at the end: a tree of sums, and no shuffle of rows between workers.
        return frame.groupby(list(keys), sort=False).agg(how, split_out=1)

    def group(
        self, table: str, keys: Sequence[str], *, sums: Sequence[str] = (),
        minima: Sequence[str] = (), maxima: Sequence[str] = (), where: Sequence[Condition] = (),
    ) -> Any:  # fmt: skip
        """See `Engine`."""
        found = self._computed(self.grouped(table, keys, sums, minima, maxima, where))
        return _arrow(found.reset_index().sort_values(list(keys)))

    def distinct(self, table: str, columns: Sequence[str], where: Sequence[Condition] = ()) -> Any:
        """See `Engine`."""
        frame = self._read(table, columns, where).drop_duplicates(split_out=1)
        return _arrow(self._computed(frame).sort_values(columns[0])[list(columns)])

    def rows(
        self, table: str, columns: Sequence[str], order: Sequence[str], *,
        limit: int | None = None, where: Sequence[Condition] = (),
    ) -> Any:  # fmt: skip
        """See `Engine`."""
        where = list(where)
        if limit is not None:  # of equal ones nlargest() keeps any: find the least of them first
            values = self._read(table, order[:1], where)[order[0]]
            found = self._computed(values.nlargest(limit))
            if not len(found):
                limit = 0
            else:
                where.append((order[0], ">=", int(found.min())))
        frame = self._computed(self._read(table, [*columns, *order], where))
        falling = [False] + [True] * (len(order) - 1)
        frame = frame.sort_values(list(order), ascending=falling)[list(columns)]
        return _arrow(frame if limit is None else frame.head(limit))


def _arrow(frame: Any) -> Any:
    import pyarrow

    return pyarrow.Table.from_pandas(frame, preserve_index=False)


_ENGINES = {"duckdb": DuckDB, "polars": Polars, "dask": Dask}


def open_engine(name: str, path: Path, scheduler: Any) -> Any:
    """Make an engine.

    Raises
    ------
    ValueError
        There is none of that name; or `scheduler` was given to another than Dask.
    ModuleNotFoundError
        It is not installed; the message names the extra.
    """
    if name not in _ENGINES:
        known = ", ".join(_ENGINES)
        raise ValueError(
            f"engine: there is no {name!r}{did_you_mean(name, _ENGINES) or f'; there are {known}'}"
        )
    if name == "dask":
        return Dask(path, scheduler)
    if scheduler is not None:
        raise ValueError(f"scheduler goes with engine='dask', not {name!r}")
    return _ENGINES[name](path)
