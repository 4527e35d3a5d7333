"""What a recorder yields: the trace, with its tables, answers, files and pictures."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any

from .._optional import require
from .._words import known_elsewhere, plural, show_ns, without_elsewhere
from ..answers import Answers
from .callers import Callers
from .collector import Collector
from .comparison import Comparison
from .memory import Memory
from .moments import Moments
from .objects import Objects
from .processes import tell_processes
from .requests import Requests
from .table import Table

if TYPE_CHECKING:
    from .verification import Verification

_SQL_TABLES = (
    "events", "calls", "allocations", "functions", "lines", "memory", "resident", "threads",
    "tree", "own", "gil",
    "marks", "spans", "counters", "flows", "labels", "requests", "gc", "audit", "objects",
    "runtime", "processes",
)  # fmt: skip


class Trace(Requests, Collector, Objects, Memory, Moments, Callers, Comparison, Answers):
    """What one window recorded, as tables; each column is computed when first asked for.

    Made by `Recorder.trace` and `Recorder.snapshot`.

    Parameters
    ----------
    core : _core.Trace
        The extension's half.
    metadata : mapping
        What the recorder knows of the run.
    file : callable, optional
        Gives what is known of the file that it was read from.

    Examples
    --------
    >>> with eventprof.record(memory=False) as rec:
    ...     len("some text")
    9
    >>> rec.trace.events[["event", "name"]]
    events: 2 rows, 2 columns
       event     name
    0  c_call    len
    1  c_return  len
    """

    def __dir__(self) -> list[str]:
        return without_elsewhere(type(self), super().__dir__())

    def verify(self, *, all: bool = False, limit: int = 100) -> Verification:
        """Replay the trace, and say what is wrong with it first.

        Parameters
        ----------
        all : bool
            Give not only the first finding.
        limit : int
            The most of them; all are counted.

        Returns
        -------
        Verification
            True if nothing is wrong.

        Raises
        ------
        ValueError
            `limit` is less than 1.

        Notes
        -----
        These are checked: the order of times; whether kinds, threads, functions and places are
        known; every end against the innermost open call of its thread; every free and malloc
        against the block that is live at the address; counts against rows. A deviation with a known
        cause, such as lost events, is not an error, and is counted in ``excused``. Some 50 M events
        a second are read; other threads go on meanwhile. If no table was made before, the records
        of the log are checked as well.

        Examples
        --------
        >>> with eventprof.record() as rec:
        ...     sorted("text")
        ['e', 't', 't', 'x']
        >>> rec.trace.verify().ok
        True
        """
        from .verification import verify

        if limit < 1:
            raise ValueError(f"limit must be 1 or more, not {limit}")
        return verify(self, all, limit)

    @cached_property
    def runtime(self) -> Table:
        """What PyPy's compiler and garbage collector told, in a trace that was saved there.

        Returns
        -------
        Table
            ``time`` int64, ns since the window's start; ``event`` text: jit_compile, jit_abort,
            jit_trace_too_long, gc_minor, gc_collect_step, gc_collect; ``thread`` int32, row of
            `threads`; ``name``, ``module``, ``file`` text and ``line`` int32 of the function that
            was compiled; ``details`` text, the rest as JSON; and a column for each of these details
            that is a number or text. Null where unknown. Without rows for what CPython recorded.
        """
        from .runtime import table

        return table(self._recorder_metadata.get("runtime_events"))

    def sql(self, query: str) -> Any:
        """Ask in SQL.

        Parameters
        ----------
        query : str
            The tables are events, calls, allocations, functions, lines, memory, resident, threads,
            tree, own, gil, marks, spans, counters, flows, labels, requests, gc, audit, objects,
            runtime and processes; their column ``row`` is what columns such as ``function``,
            ``parent`` and ``call`` refer to. Those that the query does not name are not computed.

        Returns
        -------
        duckdb.DuckDBPyRelation
            ``.df()``, ``.pl()``, ``.arrow()``, ``.fetchall()`` give the rows.

        Raises
        ------
        ModuleNotFoundError
            DuckDB is not installed.
        """
        duckdb = require("duckdb", "duckdb", "sql()")
        connection = duckdb.connect()
        words = set(re.findall(r"\w+", query.lower()))
        for name in _SQL_TABLES:
            if name in words:
                connection.register(name, getattr(self, name)._numbered())
        return connection.sql(query)

    # ---- Files -----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], force: bool = False) -> None:
        """Write the trace to a file, which `eventprof.open` reads: about 1 byte an event.

        Parameters
        ----------
        path : str or path-like
            Where to; ``.epr`` is the usual suffix.
        force : bool
            Replace what is there.

        Raises
        ------
        FileExistsError
            There is something already, and `force` was not given.
        ValueError
            The name says another format, as ``.json`` does: `export` writes those.
        OSError
            The system refused: the disk is full, there is no such directory. Nothing is left
            behind then, and what was there before is as it was.

        Notes
        -----
        Only its owner may read the new file. It appears in one step, when it is complete. Some 50 M
        events a second are written, and other threads go on meanwhile.
        """
        from ..files.saving import save

        save(self._core, self._recorder_metadata, path, force)

    def __reduce__(self) -> tuple[Callable[..., Trace], tuple[Any, ...]]:
        """Put an archive of the trace into a pickle: about 1 byte an event."""
        from ..files import saving

        archive = saving.to_bytes(self._core, self._recorder_metadata)
        return _of_archive, (archive, self._recorder_metadata, self.file)

    def export(
        self,
        path: str | os.PathLike[str] | IO[bytes],
        format: str | None = None,
        *,
        force: bool = False,
        table: str | None = None,
        weight: str | None = None,
        threads: Sequence[str] | str | None = None,
        between: tuple[int | str, int | str] | None = None,
        functions: Sequence[str] | str | None = None,
        own: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[str]:
        """Write the trace as a file that another tool reads.

        Parameters
        ----------
        path : str, path-like or binary file
            Where to. A name that ends with ``.gz`` is compressed.
        format : str, optional
            perfetto, chrome, firefox, speedscope, collapsed, callgrind, pprof, pstats, csv, jsonl,
            parquet, arrow, sqlite, duckdb or otlp; without, what the file's name ends with says
            which.
        force : bool
            Replace an existing file, when the new one is complete.
        table : str, optional
            Of csv, jsonl, parquet and arrow: which table; calls without.
        weight : str, optional
            Of collapsed: self (ns), calls, allocated, blocks, at_peak or live; self without.
        threads : str or sequence of str, optional
            Only threads of these names, which may be globs, or native ids.
        between : (int or str, int or str), optional
            Only what happened from the one time to the other, in ns since the window's start, or
            text as ``"1.5 ms"``; calls are cut there.
        functions : str or sequence of str, optional
            Only calls of functions that these globs match, as those of ``include=``, and the calls
            inside.
        own : bool
            Leave out the standard library and what is installed: their time and memory count for
            the function that called them.
        progress : callable, optional
            Is called now and then with how many calls are written, and how many there are.

        Returns
        -------
        list of str
            What the format could not carry.

        Raises
        ------
        ValueError
            There is no such format, table, thread or function; or the format cannot do what was
            asked.
        FileExistsError
            The file exists, and `force` was not given.
        ModuleNotFoundError
            The format needs a package that is not installed.
        OSError
            The system refused. Nothing is left behind then, and what was there is as it was.

        Examples
        --------
        >>> with eventprof.record(memory=False) as rec:
        ...     sorted("text")
        ['e', 't', 't', 'x']
        >>> rec.trace.export("sorted.json")
        []
        >>> rec.trace.export("sorted.csv", table="functions")
        []
        """
        from ..export import export

        return export(
            self,
            path,
            format,
            force=force,
            table=table,
            weight=weight,
            threads=threads,
            between=between,
            functions=functions,
            own=own,
            progress=progress,
        )

    # ---- For people ------------------------------------------------------------------------------

    def show(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        title: str | None = None,
        grain: int = 1,
        source: bool = False,
        force: bool = False,
    ) -> str:
        """Show the trace as a page: every call on a timeline, over who held the memory.

        Parameters
        ----------
        path : str or path-like, optional
            Where the page goes; nothing is opened then. Without, it is written to a temporary
            folder and opened in the browser.
        title : str, optional
            What stands above it; without, the program's name.
        grain : int
            Times are rounded down to multiples of so many ns, which makes a smaller page.
        source : bool
            Put the text of the program's files into it, with time and bytes by line. A recording
            without lines has the time of the calls that a line made; the page says so.
        force : bool
            Replace what is at `path`.

        Returns
        -------
        str
            The path of the page: one HTML file that needs no server and no network.

        Raises
        ------
        FileExistsError
            There is something at `path` already, and `force` was not given.
        ValueError
            The grain is less than 1.
        OSError
            The system refused: the disk is full, there is no such directory. Nothing is left
            behind then.
        """
        from ..viewer import open_page, write

        if grain < 1:
            raise ValueError(f"grain must be 1 ns or more, not {grain}")
        if path is None:
            return open_page(self, title=title, grain=grain, source=source)
        write(self, path, title=title, grain=grain, source=source, force=force)
        return os.fspath(path)

    def plot(self, axes: Any = None) -> Any:
        """Draw the timeline by matplotlib: the outermost calls of the first threads.

        Parameters
        ----------
        axes : matplotlib.axes.Axes, optional
            Where to; without, in a figure of its own.

        Returns
        -------
        matplotlib.axes.Axes
            ``axes.figure.savefig("timeline.svg")`` writes it. `show` shows every call.

        Raises
        ------
        ModuleNotFoundError
            matplotlib is not installed: ``pip install 'eventprof[plot]'``.
        """
        from ..viewer.plots import timeline

        return timeline(self, axes)

    def _repr_html_(self) -> str:
        """Give what a notebook shows: a line of facts, and the small timeline over live memory."""
        from ..viewer.picture import summary

        return summary(self)

    def __repr__(self) -> str:
        lost = f", {self.loss.total:,} lost" if self.loss else ""
        damaged = self._facts["damaged_chunks"]
        damaged_text = f", {plural(damaged, 'part')} damaged" if damaged else ""
        off = self._facts["functions_off"]
        off_text = f", {plural(off, 'function')} switched off" if off else ""
        return (
            f"<eventprof.Trace: {plural(self._facts['events'], 'event')} of "
            f"{plural(len(self._thread_rows), 'thread')} in {show_ns(self.duration)}{lost}"
            f"{damaged_text}{off_text}>"
        )

    def __str__(self) -> str:
        from ..show.report import text

        return text(self)

    def report(
        self, file: IO[str] | None = None, width: int | None = None, limit: int = 15
    ) -> None:
        """Print the report: where the time and the memory went.

        Parameters
        ----------
        file : text file, optional
            The file to write to; by default standard output.
        width : int, optional
            The width in columns, at least 40; by default the terminal's, or 80.
        limit : int
            How many functions the table of times shows; the other tables show half as many.

        Raises
        ------
        TypeError, ValueError
            An argument is not a number, or is too small; nothing was printed.
        """
        from ..show.report import report

        report(self, file, width, limit)


known_elsewhere(
    Trace,
    "a trace",
    {
        "view": "trace.show(), or trace.show(path) for a file",
        "open_in_browser": "trace.show()",
        "print_stats": "trace.report()",
        "print": "trace.report()",
        "stats": "trace.functions",
        "head": "trace.calls.head(), or that of another table",
        "to_pandas": "trace.calls.to_pandas(), or that of another table",
        "to_polars": "trace.calls.to_polars(), or that of another table",
        "to_json": "trace.export(path, 'jsonl')",
        "to_csv": "trace.export(path, 'csv')",
        "query": "trace.sql(query)",
    },
)


def _of_archive(archive: bytes, metadata: dict[str, Any], file: dict[str, Any] | None) -> Trace:
    """Make a trace of what `Trace.__reduce__` gave."""
    from ..files import saving

    core = saving.from_bytes(archive)
    tell_processes(core, metadata)
    return Trace(core, metadata, None if file is None else lambda: file)
