"""count(): how often functions were called and what time and memory they took, without a log.

The extension counts; this module checks the arguments and makes tables of the counts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from types import EllipsisType
from typing import (
    IO,
    TYPE_CHECKING,
    Any,
    ParamSpec,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)

from .. import _core
from .._words import known_elsewhere, plural, show_bytes, show_ns, without_elsewhere
from ..base import areas
from ..base.arguments import (
    DOMAINS,
    THREADS,
    Domain,
    Threads,
    choice,
    flag,
    is_bool,
    one_of,
    patterns,
)
from .decorate import AsyncContext, decorate, decorates
from .events import domain_words
from .options import has_jit, uses_areas

if TYPE_CHECKING:
    from ..tables.table import Table

_Function = TypeVar("_Function", bound=Callable[..., Any])
_O = ParamSpec("_O")

if TYPE_CHECKING:

    class MakesCounters(Protocol[_O]):
        """`count`: it makes a counter, or decorates a function itself."""

        __kwdefaults__: dict[str, Any]

        @overload
        def __call__(  # type: ignore[overload-overlap]
            self, function: _Function, /
        ) -> _Function: ...
        @overload
        def __call__(self, *args: _O.args, **options: _O.kwargs) -> Counter: ...


def _makes_counters(make: Callable[_O, Counter]) -> MakesCounters[_O]:
    """Let `count` decorate a function without parentheses."""
    return cast("MakesCounters[_O]", decorates(make))


#: Called with the qualified name; or a capsule named ``eventprof.trace_function`` of a C function.
TraceFunction: TypeAlias = "Callable[[str], object] | Any"


@_makes_counters
def count(
    *,
    calls: bool = True,
    c_calls: bool = True,
    memory: bool | Iterable[Domain] = True,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    threads: Threads = "all",
) -> Counter:
    """Make a counter: a context manager, a decorator, or something to start and stop.

    It keeps no log: the sums of each function are updated in place. So its memory depends on the
    numbers of functions and threads, not on how long the program runs.

    Parameters
    ----------
    calls : bool
        Count calls of Python functions.
    c_calls : bool
        Count calls of functions that are not in Python.
    memory : bool or iterable of {'raw', 'mem', 'obj'}
        Count the blocks of Python's allocators: all, or only the given domains. Blocks of NumPy's
        arrays and of C libraries are not counted: use `record` for these.
    include, exclude : iterable of str
        The functions whose calls are counted, as in `record`.
    threads : {'all', 'current'}
        Every thread, or only the one that starts it.

    Returns
    -------
    Counter
        Not started yet.

    Raises
    ------
    TypeError, ValueError
        An argument is not what it should be; nothing was changed.

    Examples
    --------
    >>> with eventprof.count(memory=False) as counter:
    ...     _ = sorted([3, 1, 2])
    ...     _ = sorted("text")
    >>> counter.get_call_counts()["sorted"]
    2
    """
    if is_bool(memory):
        domains = frozenset(DOMAINS if memory else ())
    elif isinstance(memory, str) or not isinstance(memory, Iterable):
        raise TypeError(f"memory must be True, False, or some of {one_of(DOMAINS)} as in "
                        f"memory=['obj'], not {memory!r}")  # fmt: skip
    else:
        domains = domain_words(
            memory,
            "blocks of arrays and C libraries are not counted: record them, by record(numpy=True, "
            "native=True)",
        )
    options = CounterOptions(
        flag("calls", calls),
        flag("c_calls", c_calls),
        tuple(domain for domain in DOMAINS if domain in domains),
        patterns("include", include),
        patterns("exclude", exclude),
        choice("threads", threads, THREADS),
    )
    if not (options.calls or options.c_calls):
        raise ValueError("nothing to count: one of calls and c_calls must be on; blocks count for "
                         "the call that allocates them")  # fmt: skip
    if has_jit():
        import warnings

        warnings.warn(
            "the JIT of this interpreter is on: together with sys.monitoring, from which calls are "
            "counted, it may corrupt local variables (CPython issue gh-156319, open); set "
            "PYTHON_JIT=0",
            RuntimeWarning,
            stacklevel=3,  # where the caller of count() is
        )
    return Counter(options)


class CounterOptions:
    """The checked options of a counter.

    Parameters
    ----------
    calls, c_calls : bool
        Whether calls of Python functions, and other calls, are counted.
    domains : tuple of str
        Allocators whose blocks are counted.
    include, exclude : tuple of str
        Patterns.
    threads : str
        Which threads.
    """

    __slots__ = ("c_calls", "calls", "domains", "exclude", "include", "threads")

    def __init__(
        self,
        calls: bool,
        c_calls: bool,
        domains: tuple[str, ...],
        include: tuple[str, ...],
        exclude: tuple[str, ...],
        threads: str,
    ) -> None:
        self.calls = calls
        self.c_calls = c_calls
        self.domains = domains
        self.include = include
        self.exclude = exclude
        self.threads = threads


class Counter(_core.Counter, AsyncContext):
    """Counts calls and blocks between its start and its stop; made by `count`.

    Use it in a ``with`` or ``async with`` statement, as a decorator, or call `start` and `stop`. A
    counter that is started again begins at zero. Up to eight may run at once, independent of each
    other, and beside recorders. The counts can be read at any time, also while it runs: calls that
    are open then count as if they ended now.

    Parameters
    ----------
    options : CounterOptions
        From `count`, which checks them.

    Attributes
    ----------
    state : {'new', 'running', 'stopped'}
        Its state.
    displaced : bool
        Whether another tool took over one of the counter's hooks.
    """

    options: CounterOptions

    def __new__(cls, options: CounterOptions) -> Self:
        """Make a counter that is not started."""
        if uses_areas(cast(Any, options)):
            areas.tell()
        self = super().__new__(
            cls,
            calls=options.calls,
            c_calls=options.c_calls,
            domains=sum(1 << DOMAINS.index(domain) for domain in options.domains),
            include=options.include,
            exclude=options.exclude,
            current_thread=options.threads == "current",
        )
        self.options = options
        return self

    # ---- What was counted ------------------------------------------------------------------------

    def get_call_counts(self) -> dict[str, int]:
        """Return how often each function was called.

        Returns
        -------
        dict of str to int
            Calls by qualified name; functions of the same name in different modules are added up. A
            generator counts once, however often it is resumed. `functions` has separate rows.

        Raises
        ------
        StateError
            The counter was never started.
        """
        return self._by_name(lambda row: row[5])

    def get_durations(self) -> dict[str, int]:
        """Return the time of each function, with the calls inside.

        Returns
        -------
        dict of str to int
            Nanoseconds with the function open, by qualified name; of recursive calls only those of
            the outermost. The time of callbacks counts for no function.

        Raises
        ------
        StateError
            The counter was never started.
        """
        return self._by_name(lambda row: row[8])

    def get_frequency(self) -> int:
        """Return the frequency of the clock: Hz, as measured since eventprof was imported."""
        return round(self._frequency())

    def _by_name(self, value: Callable[[_core._CountRow], int]) -> dict[str, int]:
        sums: dict[str, int] = {}
        for row in self._read()[0]:
            if row[5] or row[6] or row[8]:  # not functions that have only blocks
                name = row[0] or "?"
                sums[name] = sums.get(name, 0) + value(row)
        return sums

    @property
    def functions(self) -> Table:
        """A row for each function that was called or was open.

        Returns
        -------
        Table
            The columns of `Trace.functions` that need no log: ``name``, ``module``, ``file``,
            ``line``, ``kind``; ``calls``, ``resumes``, ``recursive``; ``total``, ``self``,
            ``mean``, ``min`` and ``max``, ns; ``allocated_self`` bytes and ``blocks_self``. They
            mean the same, except that ``recursive`` counts by code object, also if functions of
            one line have the same name.

        Raises
        ------
        StateError
            The counter was never started.
        """
        from ..tables.counting_table import table

        return table(_by_text(self._read()[0]))

    @property
    def stats(self) -> Mapping[str, int]:
        """The memory of the counter, and the counts of what it missed.

        Returns
        -------
        dict of str to int
            ``bytes`` that the counter takes; ``duration`` of the window, ns; ``lost`` calls and
            blocks for which there was no memory; ``unmatched`` ends whose calls were not seen;
            ``outside_bytes`` and ``outside_blocks`` allocated outside of all counted calls.

        Raises
        ------
        StateError
            The counter was never started.
        """
        _, outside, lost, unmatched, duration = self._read()
        return {
            "bytes": self._bytes(),
            "duration": duration,
            "lost": lost,
            "unmatched": unmatched,
            "outside_bytes": outside[14],
            "outside_blocks": outside[15],
        }

    def report(self, file: IO[str] | None = None, limit: int = 25) -> None:
        """Print which functions took most.

        Parameters
        ----------
        file : text file, optional
            The file to write to; by default standard output.
        limit : int
            How many functions are shown.

        Raises
        ------
        StateError
            The counter was never started.
        """
        print(report(self, limit), file=sys.stdout if file is None else file, flush=True)

    # ---- Callbacks -------------------------------------------------------------------------------

    def set_trace_functions(
        self,
        on_enter: TraceFunction | EllipsisType | None = ...,
        on_exit: TraceFunction | EllipsisType | None = ...,
    ) -> None:
        """Choose what is called before and after each call that is counted.

        Parameters
        ----------
        on_enter, on_exit : callable, capsule or None
            Called with the qualified name: before a function begins or goes on, and after it ended,
            yielded or raised. None removes a callback; without the argument it does not change. A
            capsule named ``eventprof.trace_function`` holds a C function ``void (*)(const char
            *qualified_name, void *context)``, called with the GIL and with the capsule's context.

        Raises
        ------
        TypeError
            It is not callable.
        ValueError
            It is a capsule of another name.

        Notes
        -----
        Calls and time of a callback are not counted. If it raises, ``sys.unraisablehook`` is
        called, and the callback is switched off.
        """
        self._set_trace_functions(on_enter, on_exit)

    # ---- As a decorator --------------------------------------------------------------------------

    def __call__(self, function: _Function) -> _Function:
        """Count in every run of a function: the decorator.

        Parameters
        ----------
        function : callable
            A function, coroutine function or generator function, as of a recorder.

        Returns
        -------
        callable
            The wrapped function. Its ``counter`` is this counter, with the counts of the last run.

        Raises
        ------
        TypeError
            It is a class, or cannot be called.
        """
        return decorate("counter", self, lambda: cast(Any, self), function)

    def __dir__(self) -> list[str]:
        return without_elsewhere(type(self), super().__dir__())

    def __repr__(self) -> str:
        options = self.options
        what = [word for word in ("calls", "c_calls") if getattr(options, word)]
        what += [f"blocks ({' '.join(options.domains)})"] if options.domains else []
        displaced = "; displaced" if self.displaced else ""
        return f"<eventprof.Counter: {self.state}; {', '.join(what)}{displaced}>"


known_elsewhere(
    Counter,
    "a counter",
    {
        "enable": "counter.start(), which begins at zero",
        "disable": "counter.stop()",
        "print_stats": "counter.report()",
        "print": "counter.report()",
        "trace": "counter.functions; only record() has a trace",
    },
)


def _by_text(rows: Iterable[_core._CountRow]) -> list[_core._CountRow]:
    """Join rows with the same text: a function that was defined several times."""
    merged: dict[tuple[Any, ...], _core._CountRow] = {}
    for row in rows:
        key = row[:5]
        known = merged.get(key)
        merged[key] = row if known is None else _sum(known, row)
    return list(merged.values())


def _sum(a: _core._CountRow, b: _core._CountRow) -> _core._CountRow:
    whole = a[10] + b[10]
    mean = (a[10] * a[11] + b[10] * b[11]) / whole if whole else -1.0
    shortest = min((row[12] for row in (a, b) if row[10]), default=-1)
    return (*a[:5], a[5] + b[5], a[6] + b[6], a[7] + b[7], a[8] + b[8], a[9] + b[9], whole, mean,
            shortest, max(a[13], b[13]), a[14] + b[14], a[15] + b[15])  # fmt: skip


def report(counter: Counter, limit: int = 25) -> str:
    """Report which functions took most.

    Parameters
    ----------
    counter : Counter
        Was started.
    limit : int
        How many functions are shown.

    Returns
    -------
    str
        Lines, the functions of the most own time first.
    """
    rows, _, lost, _, duration = counter._read()
    called = [row for row in _by_text(rows) if row[5] or row[6]]
    called.sort(key=lambda row: -row[9])
    calls = sum(row[5] for row in called)
    text = f"{plural(calls, 'call')} of {plural(len(called), 'function')} in {show_ns(duration)}"
    if lost:
        text += f"; {lost:,} LOST because there was no memory"
    if counter.displaced:
        text += "; another tool took over a hook: calls in that time are missing"
    lines = [text]
    heads = ["calls", "self", "total", "mean", "allocated", "blocks", "function"]
    cells = [
        [
            f"{row[5]:,}",
            show_ns(row[9]),
            show_ns(row[8]),
            "-" if row[11] < 0 else show_ns(round(row[11])),
            show_bytes(row[14]),
            f"{row[15]:,}",
            _shown(row),
        ]
        for row in called[:limit]
    ]
    if not counter.options.domains:
        del heads[4:6]
        for line in cells:
            del line[4:6]
    if cells:
        widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
        for line in [heads, *cells]:
            padded = [cell.rjust(width) for cell, width in zip(line[:-1], widths[:-1], strict=True)]
            lines.append("  ".join([*padded, line[-1]]))
    if len(called) > limit:
        lines.append(f"... and {len(called) - limit:,} more")
    return "\n".join(lines)


def _shown(row: tuple[Any, ...]) -> str:
    name, module, file, line = row[:4]
    where = f" ({os.path.basename(file)}:{line})" if file else ""
    text = f"{module}.{name}{where}" if module else f"{name or '?'}{where}"
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if text.isprintable() else ascii(text)[1:-1]
