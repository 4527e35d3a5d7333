"""What a recorder yields: the trace, with its tables, answers, files and pictures.

`Trace` is a facade: each member asks a function of another room, and has a line to do so. What
loads other packages, or is seldom asked for, is imported when it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import IO, TYPE_CHECKING, Any

from .._words import known_elsewhere, without_elsewhere
from ..answers import callers, comparison, holders, moments
from ..answers.holders import By, Peak
from ..answers.moments import Instant, Interval, Within
from ..answers.own import checked_globs
from ..tables import labels as by_label
from ..tables import objects
from ..tables.by_function import Function
from ..tables.facts import in_one_line
from ..tables.labels import Labelled
from ..tables.processes import tell_processes
from ..tables.table import Table
from .recorded import Recorded

if TYPE_CHECKING:
    from ..answers.findings import Finding
    from ..answers.verification import Verification


class Trace(Recorded):
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

    # ---- Questions -------------------------------------------------------------------------------

    @property
    def has_lock(self) -> bool:
        """Whether the recorded interpreter had a global lock, the GIL; a process has its own."""
        return self._has_lock

    def at(self, time: int | str) -> Instant:
        """Report what was going on at an instant.

        Parameters
        ----------
        time : int or str
            In ns since the window's start, or text as ``"1.5 ms"``.

        Returns
        -------
        Instant
            The open calls of each thread, and live memory by function.

        Raises
        ------
        TypeError, ValueError
            The time is not a whole number, or is outside of the trace.
        """
        return moments.instant(self, time)

    def between(self, start: int | str, end: int | str) -> Interval:
        """Report what happened between two instants.

        Parameters
        ----------
        start, end : int or str
            In ns since the window's start, or text as ``"1.5 ms"``; the end is not in it.

        Returns
        -------
        Interval
            Events, calls, allocations and sums by function.

        Raises
        ------
        TypeError, ValueError
            An instant is not a whole number, or is outside of the trace; or the end is before the
            start.
        """
        return moments.between(self, start, end)

    def during(self, function: Function) -> Within:
        """Report what happened while a function was open.

        Parameters
        ----------
        function : int, str or callable
            Its row in `functions`, its qualified name (with or without its module), or itself.

        Returns
        -------
        Within
            Its calls, and sums by function of all that they called, itself included.

        Raises
        ------
        ValueError
            No function of the trace, or several, are meant.
        """
        return moments.during(self, function)

    def callers(self, function: Function) -> Table:
        """Report who called a function.

        Parameters
        ----------
        function : int, str or callable
            As in `during`.

        Returns
        -------
        Table
            By caller and line, the most time first: function, name, module, line (of the call),
            calls, total (ns in these calls), self. An unknown caller is null.

        Raises
        ------
        ValueError
            No function of the trace matches, or more than one.
        """
        return callers.callers(self, function)

    def callees(self, function: Function) -> Table:
        """Report what a function called.

        Parameters
        ----------
        function : int, str or callable
            As in `during`.

        Returns
        -------
        Table
            By callee and line, the most time first: function, name, module, line (of the call),
            calls, total (ns in these calls), self.

        Raises
        ------
        ValueError
            No function of the trace, or several, are meant.
        """
        return callers.callees(self, function)

    def peak(self) -> Peak:
        """Report when the most memory was live, and which functions held it.

        Returns
        -------
        Peak
            Of what was allocated in the window, in all recorded domains.
        """
        return holders.peak(self)

    def leaks(self, by: By = "site") -> Table:
        """Report which blocks were allocated in the window and were live at its end.

        Parameters
        ----------
        by : {'site', 'function', 'stack'}
            The line that allocated it; the function; the open calls.

        Returns
        -------
        Table
            The most bytes first: function, name, module, and by site file and line, or by stack the
            stack as ``outermost;...;innermost``; bytes, blocks.

        Raises
        ------
        TypeError, ValueError
            `by` is none of these.
        """
        return holders.leaks(self, by)

    def temporary(self, by: By = "site") -> Table:
        """Report which blocks were freed in the call that made them, or before the next allocation.

        Parameters
        ----------
        by : {'site', 'function', 'stack'}
            As in `leaks`.

        Returns
        -------
        Table
            As `leaks`.

        Raises
        ------
        TypeError, ValueError
            `by` is none of these.
        """
        return holders.temporary(self, by)

    def objects_over_time(self, count: int = 100, types: Iterable[str] | None = None) -> Table:
        """Return how many objects of a type were live, in bins of equal length.

        Parameters
        ----------
        count : int
            Of bins.
        types : iterable of str, optional
            Names of types, or module and name with a dot between; the ten that were created most
            without.

        Returns
        -------
        Table
            One row a type and bin: ``time`` int64, ns, of the bin's start; ``name`` and ``module``
            text; int64 ``created`` and ``destroyed`` in the bin (those created in the window), and
            ``live`` at its end.

        Raises
        ------
        ValueError
            There is no bin, or no such type.
        """
        return objects.objects_over_time(self, count, types)

    def where(self, **labels: object) -> Labelled:
        """Report what was done with some labels.

        Parameters
        ----------
        **labels : object
            Names and values, such as ``request_id=7``; values are compared as text.

        Returns
        -------
        Labelled
            Spans and calls that began with all of these labels, and sums by function. Without rows
            if nothing did.

        Raises
        ------
        TypeError
            No label is given.
        ValueError
            The trace has no label of this name.
        """
        return by_label.where(self, labels)

    def diff(self, *others: Trace, beside: Sequence[Trace] = ()) -> Table:
        """Compare with another run of the same program.

        Parameters
        ----------
        *others : Trace
            The later run; several recordings of it, if noise is to be told from change.
        beside : sequence of Trace
            More recordings of the earlier run, which this trace is of.

        Returns
        -------
        Table
            By function (same name, module and file; its line may change), the largest change of
            self time first: name, module, file, status (both, new, gone), and of calls, total,
            self, allocated, allocated_self the values before (this trace) and after (the other) and
            the change. Null where there is no value. Of several recordings the values are medians,
            and each figure has one more column, as self_apart: true if all values after are above,
            or all are below, those before.

        Raises
        ------
        TypeError
            There is nothing to compare with, or it is no trace.
        ValueError
            The traces have different clocks: their times do not compare.
        """
        return comparison.diff(self, others, beside)

    def set_own(self, *patterns: str) -> None:
        """Choose what own code is.

        Parameters
        ----------
        *patterns : str
            Globs of modules, files or qualified names, as ``include=`` takes them. Without any, own
            code is what lies neither in the standard library nor in site-packages.
        """
        self._own_patterns = checked_globs(patterns)

    def analyze(self) -> list[Finding]:
        """Find what is likely wrong with the program.

        Returns
        -------
        list of Finding
            The largest share of the time or the bytes first: ``rule``, ``claim``, ``advice``,
            ``share`` (0 to 1), ``numbers``, ``evidence`` (lines), ``command``, ``handle``. Empty
            if no rule found anything.
        """
        from ..answers.findings import find

        return find(self)

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
        from ..answers.verification import verify

        return verify(self, all, limit)

    def sql(self, query: str) -> Any:
        """Ask in SQL.

        Parameters
        ----------
        query : str
            The tables are events, calls, allocations, functions, lines, memory, resident, threads,
            tree, own, gil, waits, marks, spans, counters, flows, labels, requests, gc, audit,
            objects, runtime and processes; their column ``row`` is what columns such as
            ``function``, ``parent`` and ``call`` refer to. Those that the query does not name are
            not computed.

        Returns
        -------
        duckdb.DuckDBPyRelation
            ``.df()``, ``.pl()``, ``.arrow()``, ``.fetchall()`` give the rows.

        Raises
        ------
        ModuleNotFoundError
            DuckDB is not installed.
        """
        from ..answers.sql import ask

        return ask(self, query)

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
        self._save(path, force)

    def _save(
        self,
        path: str | os.PathLike[str],
        force: bool,
        beside: Callable[[], None] | None = None,
    ) -> None:
        """Save, and write by `beside` what belongs to the archive: both, or neither."""
        from ..export.saving import save

        save(self._core, self._recorder_metadata, path, force, beside)

    def __reduce__(self) -> tuple[Callable[..., Trace], tuple[Any, ...]]:
        """Put an archive of the trace into a pickle: about 1 byte an event."""
        from ..export import saving

        return _of_archive, (
            saving.to_bytes(self._core, self._recorder_metadata),
            self._recorder_metadata,
            self.file,
        )

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
            Of collapsed: self (ns), calls, waited, allocated, blocks, at_peak or live; self
            without. Of speedscope, too: it has sums by stack then, in place of calls in order.
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
        from ..viewer import show

        return show(self, path, title=title, grain=grain, source=source, force=force)

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
        """Return what a notebook shows: a line of facts, the small timeline over live memory."""
        from ..viewer.picture import summary

        return summary(self)

    def show_waits(self, limit: int = 10, file: IO[str] | None = None) -> None:
        """Print where threads waited, what for, and what those did that let them go on.

        Parameters
        ----------
        limit : int
            How many places are printed, those with the longest waits; 0: all.
        file : file, optional
            Where to; by default standard output.

        See Also
        --------
        waits : the table, with a row for each wait.
        """
        from ..show.waits import show

        show(self, limit, file)

    def show_tree(
        self,
        *,
        all: bool = False,
        call: int | None = None,
        slowest: str | None = None,
        at: int | str | None = None,
        span: str | None = None,
        node: int | None = None,
        own: Sequence[str] | str = (),
        limit: int = 25,
        width: int | None = None,
        file: IO[str] | None = None,
    ) -> None:
        """Print the tree of calls, or that of one call.

        Parameters
        ----------
        all : bool
            Show calls inside of the standard library and of installed packages, too.
        call : int, optional
            A row of `calls`: print the calls that it made, in order, each beside the median of the
            same function.
        slowest : str, optional
            The same for the slowest call of the function with this name. If own code has one of
            that name, those of libraries do not count.
        at : int or str, optional
            A time in ns, or text such as ``"1.5 ms"``: print the calls that were open then.
        span : str, optional
            The same as `slowest`, for the slowest span of this name.
        node : int, optional
            A row of `tree`: print this branch alone.
        own : str or sequence of str
            Globs that say what own code is, as for `set_own`.
        limit : int
            The most lines.
        width : int, optional
            The width in columns; by default the terminal's, or 100.
        file : text file, optional
            Where to print; by default standard output.

        Raises
        ------
        ValueError
            There is no such call, function, span, time or branch; or two of them were given.
        """
        from ..show.tree import show_tree

        show_tree(
            self,
            file,
            {"call": call, "slowest": slowest, "at": at, "span": span, "node": node},
            all=all,
            own=own,
            limit=limit,
            width=width,
        )

    def __repr__(self) -> str:
        return in_one_line(self)

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
    from ..export import saving

    core = saving.from_bytes(archive)
    tell_processes(core, metadata)
    return Trace(core, metadata, None if file is None else lambda: file)
