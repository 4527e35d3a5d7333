"""A dataset, and what it answers: as a trace does, but of many recordings."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from .._core import WAIT_WORDS
from .._words import did_you_mean, plural, show_bytes, show_ns
from ..answers.table import own_table, tree_table
from ..tables.column import Column
from ..tables.descriptions import described
from ..tables.table import Table
from . import parts
from .compacting import files_of
from .engines import Condition, open_engine
from .ids import UNKNOWN
from .summed import SummedTree
from .writing import check, compact_files, what_is_missing

if TYPE_CHECKING:
    from ..tables.column import Array

_UNITS = {
    **{column.name: column.unit for column in described("functions") if column.unit},
    **dict.fromkeys(
        ("blocked", "blocked_self", "duration", "start", "end", "peak_time", "start_ns"), "ns"),
    **dict.fromkeys((f"waited_{word}" for word in WAIT_WORDS), "ns"),
    **dict.fromkeys(("peak", "size", "low", "high"), "bytes"),
}  # fmt: skip
_PERCENTS = (50, 95, 99)
_NAMES = ("name", "module", "file", "line", "kind")


def _percentiles_of_bins(
    function: Array,
    low: Array,
    high: Array,
    calls: Array,
    shortest: Array,
    longest: Array,
    percents: Sequence[int],
) -> dict[int, Array]:
    """Return percentiles of counted lengths: of each function the middle of the bin with the rank.

    Parameters
    ----------
    function, low, high, calls : array of int64
        A bin each, in any order: of which function, its shortest and longest length in ns, and how
        many calls are in it.
    shortest, longest : array of int64
        The shortest and the longest call of each function, in ns.
    percents : sequence of int
        1 to 100.

    Returns
    -------
    dict of int to array of int64
        An item for each function, in ns; -1: there is no call.
    """
    size = len(shortest)
    order = np.lexsort((low, function))
    function, calls = function[order], calls[order]
    middle = low[order] + (high[order] - low[order]) // 2
    first = np.searchsorted(function, np.arange(size + 1))
    so_far = np.concatenate([np.zeros(1, np.int64), np.cumsum(calls, dtype=np.int64)])
    many = np.diff(so_far[first])
    some = many > 0
    result = {}
    for percent in percents:
        # The rank, from 1 on: the smallest that has so many at or below it.
        wanted = so_far[first[:-1]] + (many * percent + 99) // 100
        bins = np.searchsorted(so_far, wanted) - 1
        found = np.full(size, -1, dtype=np.int64)
        found[some] = middle[bins[some]]
        result[percent] = np.where(some, np.clip(found, shortest, longest), -1)
    return result


def dataset(
    path: str | os.PathLike[str], engine: str = "duckdb", *, scheduler: Any = None
) -> Dataset:
    """Open a dataset, which `write_dataset` or ``eventprof dataset`` made.

    Parameters
    ----------
    path : path
        Its folder.
    engine : {'duckdb', 'polars', 'dask'}
        What reads it. The answers are the same.
    scheduler : str or distributed.Client, optional
        Of Dask: ``"tcp://host:8786"``, a client, or one of Dask's own ("threads", "processes",
        "synchronous"). Each worker must have the folder under the same path.

    Returns
    -------
    Dataset
        Nothing is read yet but the names of its files.

    Raises
    ------
    FileNotFoundError
        There is no such folder.
    ValueError
        It is no dataset, or one of a later version; or there is no such engine.
    ModuleNotFoundError
        The engine is not installed; the message names the extra.
    """
    folder = Path(path)
    check(folder)
    return Dataset(folder, open_engine(engine, folder, scheduler))


class Dataset:
    """Many recordings, answered by an engine; `dataset` makes it.

    Parameters
    ----------
    path : Path
        The folder.
    engine : Engine
        What reads it.
    processes : sequence of int, optional
        The recordings that count; without, all.

    Notes
    -----
    Tables are those of `Trace` by name and meaning, and have equal figures, to the unit: sums of
    what each recording has. Functions are equal where name, module, file, line and kind are. Times
    of calls and blocks are since the start of their own recording; ``processes`` has the starts.
    """

    def __init__(self, path: Path, engine: Any, processes: Sequence[int] | None = None) -> None:
        self.path = path
        self._engine = engine
        self._chosen = processes
        if not any((path / "processes").glob("*.parquet")):
            raise ValueError(f"{path}: the dataset has no recordings yet")

    @property
    def _where(self) -> list[Condition]:
        return [] if self._chosen is None else [("process", "in", list(self._chosen))]

    # ---- Which recordings ------------------------------------------------------------------------

    @cached_property
    def processes(self) -> Table:
        """The recordings.

        Returns
        -------
        Table
            One row a recording, the one with the most events first: ``process`` int64, its id;
            ``name``, ``file``, ``host``, ``python``, ``command`` text; ``pid`` int64;
            ``start_ns`` int64, since 1970; ``duration`` int64, ns; ``threads``, ``events``,
            ``lost`` int64; ``loss_reason`` and ``missing`` text, null where nothing is;
            ``peak`` bytes at ``peak_time``, ``live`` at the end; ``labels`` of the recording as a
            JSON object, and ``worker``, what a pool or a server calls the process, null where there
            is none; ``waited_gil``, ``waited_lock``, ``waited_sleep``, ``waited_io``,
            ``waited_process``, ``waited_processor``, ``waited_other``, ``waited_greenlet``,
            ``waited_critical``, ``waited_world`` int64,
            ns: how long its threads waited, null where waits were not recorded.
        """
        names = ("process", "name", "host", "pid", "start_ns", "duration", "threads", "events",
                 "lost", "peak", "peak_time", "live", "folded", "has_lock", "loss_reason",
                 "missing", "python", "command", "file", "labels", "worker",
                 *(f"waited_{word}" for word in WAIT_WORDS))  # fmt: skip
        rows = self._engine.rows("processes", names, ("events", "process"), where=self._where)
        return _table(self._title("processes"), rows)

    def only(
        self, processes: Any = None, *, labels: Mapping[str, str] | None = None, **more: str
    ) -> Dataset:
        """Return the dataset of some recordings alone.

        Parameters
        ----------
        processes : int, sequence of int, or Table, optional
            Ids of processes, or rows of `processes`; without, all.
        labels : mapping, optional
            Names and values of labels: those that have them all, ``only(labels={"release": "A"})``.
        **more : str
            Further labels: ``only(release="A")``. Labels named ``self``, ``processes`` or
            ``labels`` can only be in `labels`.

        Returns
        -------
        Dataset
            Its answers are of these.

        Raises
        ------
        ValueError
            There is no such process, or none with these labels.
        TypeError
            `labels` is not a mapping.
        """
        if not isinstance(labels, (Mapping, NoneType)):
            raise TypeError(f"labels must be a mapping of names to values, not {labels!r}")
        wanted = {*(labels or {}).items(), *more.items()}
        known = self.processes["process"].tolist()
        if processes is None:
            processes = known
        ids = processes["process"].tolist() if isinstance(processes, Table) else processes
        ids = [int(ids)] if isinstance(ids, (int, np.integer)) else [int(each) for each in ids]
        if unknown := [each for each in ids if each not in known]:
            raise ValueError(f"process: {unknown[0]} is not in the dataset; processes has the ids")
        if wanted:
            texts = dict(zip(known, self.processes["labels"], strict=True))
            of = {each: json.loads(text) if text else {} for each, text in texts.items()}
            ids = [each for each in ids if wanted <= of[each].items()]
            if not ids:
                asked = ", ".join(f"{name}={text}" for name, text in sorted(wanted))
                there = sorted(
                    {f"{name}={text}" for each in of.values() for name, text in each.items()}
                )
                raise ValueError(
                    f"labels: no recording has {asked}; there are {', '.join(there) or 'none'}"
                )
        return Dataset(self.path, self._engine, ids)

    def compact(self) -> tuple[int, int]:
        """Make one file of those of each table, which are read faster than some of each recording.

        Returns
        -------
        before, after : int
            How many files there were, and are. A recording that is converted again replaces its
            rows in them.

        Notes
        -----
        Rows stay in row groups of their own recording. Not while another process writes to the
        dataset. If it is interrupted, nothing is lost or there twice.
        """
        return compact_files(self.path)

    @cached_property
    def problems(self) -> list[str]:
        """What is missing, in words: events that were lost, recordings that are not whole."""
        problems = []
        lost = int(self.processes["lost"].sum())
        if lost:
            recordings = int((self.processes["lost"] > 0).sum())
            problems.append(f"{lost:,} events were lost in {plural(recordings, 'recording')}")
        damaged = [name for name, missing in zip(
            self.processes["name"], self.processes["missing"], strict=True) if missing]  # fmt: skip
        if damaged:
            more = f" and {len(damaged) - 3} more" if len(damaged) > 3 else ""
            problems.append(f"parts could not be read of {', '.join(damaged[:3])}{more}")
        return problems + what_is_missing(self.path)

    def _title(self, name: str) -> str:
        if name == "processes":
            return name
        lost = int(self.processes["lost"].sum())
        return f"{name} (with loss: {lost:,} events are missing)" if lost else name

    # ---- Answers ---------------------------------------------------------------------------------

    @cached_property
    def loss(self) -> Table:
        """The events that were lost, by kind: ``event`` text, ``lost`` int64, ``processes``."""
        rows = self._engine.group("loss", ("process", "event"), sums=("lost",), where=self._where)
        events = rows["event"].to_pylist()
        kinds = sorted(set(events))
        lost, count = np.zeros((2, len(kinds)), dtype=np.int64)
        for event, many in zip(events, rows["lost"].to_pylist(), strict=True):
            lost[kinds.index(event)] += many
            count[kinds.index(event)] += 1
        return Table.from_columns("loss", {"event": kinds, "lost": lost, "processes": count})

    @cached_property
    def _names(self) -> Any:
        """Name each function once."""
        rows = self._engine.distinct("functions", ("function", *_NAMES), self._where)
        first = np.unique(rows["function"].to_numpy(), return_index=True)[1]
        return rows.take(first)

    @cached_property
    def _function_sums(self) -> Any:
        """Add up the functions, in the order of their ids."""
        return self._engine.group(
            "functions", ("function",), sums=parts.FUNCTION_SUMS, minima=("min",),
            maxima=("max",), where=self._where,
        )  # fmt: skip

    @cached_property
    def functions(self) -> Table:
        """Calls, times and bytes by function, of all recordings.

        Returns
        -------
        Table
            The columns of `Trace.functions`, the most self time first, and ``function`` int64, its
            id. ``p50``, ``p95`` and ``p99`` are read when they are asked for, and are off by less
            than 1 %.
        """
        found = self._function_sums
        sums = {name: _masked(found[name]) for name in parts.FUNCTION_SUMS}
        ids = found["function"].to_numpy()
        # What belongs to no function has a row only if there is any of it.
        used = np.any(list(sums.values()), axis=0) | (ids != UNKNOWN)
        order = np.flatnonzero(used)
        order = order[np.lexsort((ids[order], -sums["self"][order]))]
        sums = {name: values[order] for name, values in sums.items()}
        ids = ids[order]
        named = self._names.take(np.searchsorted(self._names["function"].to_numpy(), ids))
        columns: dict[str, Any] = {"function": ids}
        columns |= {name: _values(named[name]) for name in _NAMES}
        whole, spent = sums.pop("whole"), sums.pop("spent")
        columns |= sums
        for end in ("", "_self"):
            columns[f"net{end}"] = sums[f"allocated{end}"] - sums[f"freed{end}"]
            columns[f"churn{end}"] = sums[f"allocated{end}"] - sums[f"live{end}"]
        columns["mean"] = np.ma.MaskedArray(spent / np.maximum(whole, 1), mask=whole == 0)
        columns |= {name: _masked(found[name].take(order)) for name in ("min", "max")}
        made = Table.from_columns(self._title("functions"), columns, units=_UNITS)
        late = [self._percentile(percent, order) for percent in _PERCENTS]
        return Table(made.name, [*made._columns.values(), *late], len(ids))

    def _percentile(self, percent: int, order: Array) -> Column:
        return Column(f"p{percent}", lambda: self._percentiles[percent][order], np.int64,
                      null="negative", unit="ns",
                      doc=f"of a hundred calls {percent} took no longer")  # fmt: skip

    @cached_property
    def _percentiles(self) -> dict[int, Array]:
        """Read the histograms: percentiles of the functions, in the order of their ids."""
        bins = self._engine.group(
            "lengths", ("function", "low", "high"), sums=("calls",), where=self._where
        )
        sums = self._function_sums
        rows = np.searchsorted(sums["function"].to_numpy(), bins["function"].to_numpy())
        low, high, calls = (bins[name].to_numpy() for name in ("low", "high", "calls"))
        shortest, longest = (sums[name].fill_null(-1).to_numpy() for name in ("min", "max"))
        return _percentiles_of_bins(rows, low, high, calls, shortest, longest, _PERCENTS)

    @cached_property
    def _tree(self) -> SummedTree:
        keys = ("node", "parent", "depth", "function", "caller", "line")
        nodes = self._engine.group(
            "nodes", keys, sums=parts.NODE_SUMS, maxima=("longest",), minima=("shortest",),
            where=self._where,
        )  # fmt: skip
        leaves = self._engine.group(
            "leaves", ("node", "function", "line"), sums=parts.LEAF_SUMS, where=self._where
        )
        threads = self._engine.rows(
            "threads", ("in_calls", "allocated"), ("in_calls", "process", "thread"),
            where=self._where,
        )  # fmt: skip
        rows = self.processes
        facts = {name: int(rows[name].sum()) for name in ("peak", "live", "folded")}
        has_lock = bool(rows["has_lock"].all())
        waited = {word: rows[f"waited_{word}"] for word in WAIT_WORDS}
        has_waits = not any(np.ma.is_masked(ns) for ns in waited.values())
        waits = {word: int(ns.sum()) for word, ns in waited.items()} if has_waits else None
        return SummedTree(nodes, leaves, self._names, threads, facts, has_lock, waits)

    @cached_property
    def tree(self) -> Table:
        """The trees of all recordings, added by path of calls: the columns of `Trace.tree`.

        Returns
        -------
        Table
            ``function`` is a row of the functions in order of their ids; ``at_peak`` is what a node
            held at the peak of each recording, which have peaks at times of their own.
        """
        return tree_table(self, self._tree)  # type: ignore[arg-type]

    def own(self, *patterns: str) -> Table:
        """Return what own lines cost, with all that libraries did for them: as `Trace.own`.

        Parameters
        ----------
        *patterns : str
            Globs: what own code is; none: what lies neither in the standard library nor in
            site-packages.
        """
        return own_table(self, self._tree, patterns or None)  # type: ignore[arg-type]

    def show_tree(
        self,
        *,
        all: bool = False,
        own: Sequence[str] | str = (),
        limit: int = 25,
        width: int | None = None,
        file: IO[str] | None = None,
    ) -> None:
        """Print the tree of calls, as `Trace.show_tree`."""
        from ..show.tree import show_summed

        patterns = (own,) if isinstance(own, str) else tuple(own)
        show_summed(
            self._tree, self.headline(), sys.stdout if file is None else file, all=all,
            own=patterns, limit=limit, width=width,
        )  # fmt: skip

    def headline(self) -> str:
        """Describe in one line what was recorded, and what is missing."""
        rows = self.processes
        parts = [
            f"{plural(len(rows), 'recording')}, {int(rows['events'].sum()):,} events in "
            f"{show_ns(int(rows['duration'].sum()))} of all together"
        ]
        if int(rows["peak"].sum()):
            parts.append(f"largest peak {show_bytes(int(rows['peak'].max()))}")
        return ", ".join([*parts, *(self.problems or ["nothing lost"])])

    def holders(self, by: str = "function", *, at: str = "peak") -> Table:
        """Return what held the memory, of all recordings, the most bytes first.

        Parameters
        ----------
        by : {'function', 'line', 'stack', 'process'}
            What bytes are added up by.
        at : {'peak', 'end'}
            At the peak of each recording, or at its end.

        Returns
        -------
        Table
            ``bytes`` and ``blocks`` int64, and what they are added up by.

        Raises
        ------
        ValueError
            `by` or `at` is none of these.
        """
        kinds = {"peak": "at_peak", "end": "live"}
        if at not in kinds:
            raise ValueError(f"at: 'peak' or 'end', not {at!r}")
        name = kinds[at]
        if by == "process":
            rows, bytes_ = self.processes, "peak" if at == "peak" else "live"
            order = np.argsort(-rows[bytes_], kind="stable")
            names = ["process", "name", "host", "pid", bytes_, "peak_time"]
            return rows[order][names]
        if by == "stack":
            stacks, size, blocks = self._tree.by_stack(name)
            columns = {"bytes": size, "blocks": blocks, "stack": stacks}
            return Table.from_columns(self._title("holders"), columns, units={"bytes": "bytes"})
        if by not in ("function", "line"):
            known = ("function", "line", "stack", "process")
            hint = did_you_mean(by, known) or f"; there are {', '.join(known)}"
            raise ValueError(f"by: there is no {by!r}{hint}")
        function, line, size, blocks = self._tree.by_place(name)
        if by == "function":
            function, line, size, blocks = self._tree.summed(
                function, np.full(len(function), -1), size, blocks
            )
        functions = [*self._tree.functions, (None,) * 5]
        columns = {
            "bytes": size, "blocks": blocks,
            **{
                word: [functions[row][place] for row in function.tolist()]
                for place, word in ((0, "name"), (1, "module"), (2, "file"))
            },
        }  # fmt: skip
        if by == "line":
            columns["line"] = np.ma.MaskedArray(line, mask=line < 0)
        return Table.from_columns(self._title("holders"), columns, units={"bytes": "bytes"})

    def slowest(self, count: int = 10, function: str | None = None) -> Table:
        """Return the calls that took the longest.

        Parameters
        ----------
        count : int
            How many.
        function : str, optional
            Of this function alone: its name, or its module, a dot and its name.

        Returns
        -------
        Table
            The longest first: ``process``, ``call`` (row of `Trace.calls` of that recording),
            ``name``, ``module``, ``thread``, ``start``, ``duration``, ``self``, ``waited``,
            ``depth``, ``caller_line``, ``allocated``, ``task``.

        Raises
        ------
        ValueError
            There is no such function; `count` is less than 1; or the dataset has no slices.
        """
        if count < 1:
            raise ValueError(f"count must be 1 or more, not {count}")
        self._need("slices")
        where = self._where
        if function is not None:
            where = [*where, ("function", "in", self._ids_of(function))]
        found_by = list(where)
        where += self._at_least(count, where)
        names = ("process", "call", "function", "thread", "start", "duration", "self", "waited",
                 "depth", "caller_line", "allocated", "task")  # fmt: skip
        order = ("duration", "process", "call")
        found = self._engine.rows("slowest", names, order, limit=count, where=where)
        if len(found) == count:
            where += _longer(found["duration"][count - 1].as_py())
        if others := self._not_in_slowest(found, count, function is not None, found_by):
            # Of these recordings search all calls, of the others the longest.
            more = self._engine.rows(
                "slices", names, order, limit=count, where=[*where, ("process", "in", others)]
            )
            found = _merged(found, more, others, order).slice(0, count)
        return self._with_names(found)

    def _not_in_slowest(
        self, found: Any, count: int, by_function: bool, where: list[Condition]
    ) -> list[int]:
        """Return the recordings that may have more of the longest calls than were found.

        The table ``slowest`` keeps only some calls of a recording, the longest. If all of them were
        found, the recording may have more such calls: its ``slices`` must be searched, too.
        """
        kept = parts.SLOWEST_OF_FUNCTION if by_function else parts.SLOWEST
        if count <= kept:
            return []
        process, function = found["process"].to_numpy(), found["function"].to_numpy()
        if not by_function:
            ids, many = np.unique(process, return_counts=True)
            return ids[many >= kept].tolist()  # type: ignore[no-any-return]
        pairs, many = np.unique(np.stack([process, function]), axis=1, return_counts=True)
        ids = np.unique(pairs[0, many >= kept])
        if not len(ids) or len(found) < count:
            return ids.tolist()  # type: ignore[no-any-return]
        last = found["duration"][count - 1].as_py()
        where = [*where, ("process", "in", ids.tolist())]
        shortest = self._engine.group(
            "slowest", ("process", "function"), minima=("duration",), where=where
        )
        all_found = shortest["duration"].to_numpy() >= last
        return sorted(set(ids.tolist()) & set(shortest["process"].to_numpy()[all_found].tolist()))

    def _at_least(self, count: int, where: list[Condition]) -> list[Condition]:
        """Return conditions that at least `count` calls fulfil, and by which readers skip files."""
        bins = self._engine.group("lengths", ("low",), sums=("calls",), where=where)
        low, calls = bins["low"].to_numpy(), bins["calls"].to_numpy()
        enough = np.flatnonzero(np.cumsum(calls[::-1]) >= count)
        return _longer(int(low[::-1][enough[0]])) if len(enough) else []

    def rows(
        self, table: str, columns: Sequence[str] = (), where: Sequence[Condition] = ()
    ) -> Table:
        """Return rows of a table of the dataset.

        Parameters
        ----------
        table : str
            ``slices``, ``allocations``, ``memory``, ``events``, ...
        columns : sequence of str
            Their names; none: all.
        where : sequence of (str, str, value)
            Conditions that must all hold: a column, ``==``, ``>=``, ``<=`` or ``in``, and a value
            or values. Row groups in which they hold for no row are not read, as far as the
            statistics of the files show that.

        Returns
        -------
        Table
            In memory: ask for what fits.

        Raises
        ------
        ValueError
            The dataset has no such table or column.
        """
        known = self._need(table)
        columns = list(columns) or known
        for name in [*columns, *(each[0] for each in where)]:
            if name not in known:
                hint = did_you_mean(name, known) or f"; there are {', '.join(known)}"
                raise ValueError(f"{table} has no column {name!r}{hint}")
        order = ["process", *(name for name in ("start", "time") if name in known)]
        found = self._engine.rows(table, columns, order, where=[*self._where, *where])
        return _table(self._title(table), found)

    def scan(self, table: str) -> Any:
        """Return a table as the engine has tables.

        Parameters
        ----------
        table : str
            ``slices``, ``allocations``, ``nodes``, ...

        Returns
        -------
        duckdb.DuckDBPyRelation, polars.LazyFrame or dask.dataframe.DataFrame
            Nothing of it is read yet.
        """
        self._need(table)
        return self._engine.scan(table)

    def sql(self, query: str) -> Any:
        """Ask in SQL, where the tables have their names; by DuckDB alone.

        Raises
        ------
        ValueError
            The engine is another.
        """
        if not hasattr(self._engine, "sql"):
            raise ValueError("sql() needs engine='duckdb'; scan() gives what this engine has")
        return self._engine.sql(query)

    def _need(self, table: str) -> list[str]:
        """Return the columns of a table; raise if there is none."""
        import pyarrow.parquet

        known = [*parts.PARTIALS, *parts.ROWS, *parts.EVENTS]
        if table not in known:
            hint = did_you_mean(table, known) or f"; there are {', '.join(known)}"
            raise ValueError(f"there is no table {table!r}{hint}")
        first = next(iter(files_of(self.path, table)), None)
        if first is None:
            how = "events=True" if table == "events" else "rows=True"
            raise ValueError(
                f"{self.path}: the dataset was made without {table}; write_dataset(..., {how}) or "
                f"'eventprof dataset' {'--events' if table == 'events' else 'without --partials'}"
            )
        return list(pyarrow.parquet.read_schema(first).names)

    def _ids_of(self, function: str) -> list[int]:
        names = self._names
        rows = zip(names["name"].to_pylist(), names["module"].to_pylist(), strict=True)
        ids = names["function"].to_pylist()
        found = [
            ids[row]
            for row, (name, module) in enumerate(rows)
            if function in (name, f"{module}.{name}")
        ]
        if not found:
            known = [name for name in names["name"].to_pylist() if name is not None]
            raise ValueError(f"there is no function {function!r}{did_you_mean(function, known)}")
        return found

    def _with_names(self, rows: Any) -> Table:
        """Make the table of the slowest calls: names in place of the ids of functions."""
        known = self._names["function"].to_numpy()
        places = np.searchsorted(known, rows["function"].to_numpy())
        columns: dict[str, Any] = {}
        for name in rows.column_names:
            if name == "function":
                for word in ("name", "module"):
                    texts = self._names[word].to_pylist()
                    columns[word] = [texts[row] for row in places.tolist()]
            else:
                columns[name] = _values(rows[name])
        return Table.from_columns(self._title("slowest"), columns, units=_UNITS)

    def __repr__(self) -> str:
        return f"<eventprof dataset {self.path}: {self.headline()}>"


def _longer(min_ns: int) -> list[Condition]:
    """Return conditions for calls of `least` ns or more; ``magnitude`` lets readers skip groups."""
    return [("magnitude", ">=", min_ns.bit_length()), ("duration", ">=", min_ns)]


def _merged(found: Any, more: Any, replaced: list[int], order: Sequence[str]) -> Any:
    """Replace the rows of the recordings `replaced` by the rows `more`; the longest first."""
    import pyarrow

    rest = found.filter(pyarrow.array(~np.isin(found["process"].to_numpy(), replaced)))
    both = pyarrow.concat_tables([rest, more.cast(rest.schema)])
    first, *others = order
    return both.sort_by([(first, "descending"), *((name, "ascending") for name in others)])


def _values(column: Any) -> Any:
    """Return an Arrow column as a table takes it: text as a list, numbers as an array."""
    import pyarrow

    kind = column.type
    if (
        pyarrow.types.is_string(kind)
        or pyarrow.types.is_large_string(kind)
        or str(kind) == ("string_view")
    ):
        return column.to_pylist()
    return _masked(column)


def _masked(column: Any) -> Any:
    """Return numbers as an array, with a mask where some may be null."""
    if str(column.type) == "bool":
        return np.array(column.to_pylist(), dtype=bool)
    if not column.null_count:
        return column.to_numpy()
    mask = column.is_null().to_numpy()
    zero = 0.0 if str(column.type).startswith(("float", "double")) else 0
    return np.ma.MaskedArray(column.fill_null(zero).to_numpy(), mask=mask)


def _table(title: str, rows: Any) -> Table:
    """Make a table of an Arrow table."""
    columns = {name: _values(rows[name]) for name in rows.column_names}
    return Table.from_columns(title, columns, units=_UNITS)
