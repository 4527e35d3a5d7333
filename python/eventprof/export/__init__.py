"""Write traces as files of other tools. Each format has a module and a row in `FORMATS`.

A module has ``write(view, out, options)``. ``view`` has the chosen calls (`_view.View`). ``out`` is
a binary file that is only written forward. The module adds to ``options.notes`` what its format
cannot hold.
"""

from __future__ import annotations

import gzip
import importlib
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, NamedTuple

from .._words import did_you_mean
from ..base import output
from ..base.quantities import parse_duration
from ..tables import TABLES

if TYPE_CHECKING:
    from ..trace import Trace


class Format(NamedTuple):
    """One row of `FORMATS`.

    Attributes
    ----------
    module : str
        The module of this package that writes the format.
    extensions : tuple of str
        Endings of file names, the usual one first.
    what : str
        A description for the help page.
    takes : str
        The option that the format takes: "table", "weight" or none ("").
    path : bool
        Whether the format needs a file by name. Such a format cannot be written to a pipe.
    tree : str
        "shared" or "threads": all that it writes is in the tree of calls, which threads share, or
        which has a node for each. Then nothing else is read. "functions": it writes rows, of the
        table of events while they are read. "": it needs columns.
    """

    module: str
    extensions: tuple[str, ...]
    what: str
    takes: str = ""
    path: bool = False
    tree: str = ""


#: The formats by name, in the order of the help page.
FORMATS = {
    "perfetto": Format("perfetto", (".pftrace", ".perfetto-trace", ".perfetto"),
                       "Perfetto's protobuf: ui.perfetto.dev, trace_processor"),
    "chrome": Format("chrome", (".json",),
                     "Chrome trace JSON: ui.perfetto.dev, chrome://tracing, vizviewer"),
    "firefox": Format("firefox", (".firefox.json", ".profile.json"),
                      "Firefox Profiler's JSON: profiler.firefox.com"),
    "speedscope": Format("speedscope", (".speedscope.json", ".speedscope"), "speedscope.app",
                         "weight"),
    "collapsed": Format("collapsed", (".collapsed", ".folded"),
                        "collapsed stacks: flamegraph.pl, inferno, speedscope", "weight",
                        tree="shared"),
    "callgrind": Format("callgrind", (".callgrind",), "callgrind_annotate, KCachegrind",
                        tree="shared"),
    "pprof": Format("pprof", (".pb.gz", ".pprof", ".pb"), "go tool pprof, Grafana",
                    tree="threads"),
    "pstats": Format("pstats", (".pstats", ".prof"), "pstats, SnakeViz, gprof2dot",
                     tree="shared"),
    "csv": Format("csv_rows", (".csv",), "comma-separated values of one table", "table",
                  tree="functions"),
    "jsonl": Format("jsonl", (".jsonl", ".ndjson"), "one table, one object in each line",
                    "table", tree="functions"),
    "parquet": Format("parquet", (".parquet",), "one table as Parquet; needs pyarrow", "table"),
    "arrow": Format("arrow", (".arrow", ".feather"), "one table as Arrow IPC; needs pyarrow",
                    "table"),
    "sqlite": Format("sqlite", (".sqlite", ".sqlite3", ".db"), "all tables as an SQLite file",
                     path=True),
    "duckdb": Format("duckdb_file", (".duckdb", ".ddb"),
                     "all tables as a DuckDB file; needs duckdb and pyarrow", path=True),
    "otlp": Format("otlp", (".otlp",), "OpenTelemetry spans (OTLP protobuf); needs OpenTelemetry"),
}  # fmt: skip

#: Values that collapsed stacks can have.
WEIGHTS = ("self", "calls", "waited", "allocated", "blocks", "at_peak", "live")


@dataclass
class Options:
    """Options of the user, and notes about the result.

    Attributes
    ----------
    table : str
        One of `tables.TABLES`.
    weight : str
        One of `WEIGHTS`; empty: none was chosen.
    path : str
        The name of the new, empty file, for formats that need a name.
    notes : list of str
        What the format cannot hold, and how much of it the trace has.
    """

    table: str = "calls"
    weight: str = ""
    path: str = ""
    notes: list[str] = field(default_factory=list)


def find_format(path: str | None, word: str | None) -> str:
    """Choose the format by its name, or by the ending of the file's name.

    Parameters
    ----------
    path : str or None
        The file's name; None for a stream.
    word : str or None
        A name of `FORMATS`; None: the ending decides.

    Returns
    -------
    str
        The format's name.

    Raises
    ------
    ValueError
        There is no such format, or no format has the ending.
    """
    if word is not None:
        if word not in FORMATS:
            hint = did_you_mean(word, FORMATS) or f"; there are {', '.join(FORMATS)}"
            raise ValueError(f"format: there is no {word!r}{hint}")
        return word
    found = by_extension(path or "")
    if found is None:
        raise ValueError(
            f"{path}: no format has this ending; give format=, one of {', '.join(FORMATS)}"
        )
    return found


def by_extension(path: str) -> str | None:
    """Return the format of a file name; the longest ending wins. None: no format has the ending."""
    name = os.path.basename(path).lower()
    endings = sorted(
        ((end, word) for word, known in FORMATS.items() for end in known.extensions),
        key=lambda both: -len(both[0]),
    )
    for candidate in (name, name.removesuffix(".gz")):
        for ending, word in endings:
            if candidate.endswith(ending):
                return word
    return "callgrind" if name.startswith("callgrind.out") else None


def export(
    trace: Trace,
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
    """Write a trace for another tool; see `Trace.export`."""
    from ._view import View

    target = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(target, str) and not hasattr(path, "write"):
        raise TypeError(f"path must be str, path-like or a binary file, not {path!r}")
    word = find_format(target, format)
    known = FORMATS[word]
    if target is not None:
        _check_file(target, known, word, force)
    options = Options(
        _checked("table", table, TABLES, "calls", known, word),
        _checked("weight", weight, WEIGHTS, "", known, word),
    )
    chosen = bool(threads or functions or own)
    needed = pass_of(known, weight or table, chosen=chosen, cut=between is not None)
    # Facts about the recording are known after this pass; before it, columns are made for them.
    if needed == "functions":
        trace._core.survey()
    elif needed:
        _ = trace._thread_tree if needed == "threads" else trace._tree
    imported = trace.metadata.get("imported") or {}
    if "events" in imported.get("lacks", ()) and known.takes != "table" and not known.path:
        raise ValueError(
            f"format: {word} needs calls, and this recording has only sums by function; "
            "csv, jsonl, parquet and arrow can write its table functions"
        )
    view = View(
        trace,
        threads=_several("threads", threads),
        between=_checked_between(between),
        functions=_several("functions", functions),
        own=own,
        progress=progress,
    )
    if not needed:
        _ = view.rows  # raises errors about filters before there is a file
    module = importlib.import_module(f".{known.module}", __name__)
    if target is None:
        if known.path:
            raise ValueError(f"format: {word} needs a file of its own, and cannot go to a stream")
        module.write(view, path, options)
    else:
        _write_file(module, view, target, options, known.path, force)
    return options.notes


def pass_of(known: Format, what: str | None, *, chosen: bool, cut: bool) -> str:
    """Return what is all that an export needs before it reads events.

    Parameters
    ----------
    known : Format
        The format.
    what : str or None
        The chosen weight or table.
    chosen : bool
        Only calls of some threads or functions are wanted.
    cut : bool
        Calls are cut off at two times.

    Returns
    -------
    str
        As `Format.tree`.
    """
    if known.tree == "functions":
        return known.tree if what == "events" else ""
    # With a weight, a format of calls has its sums by stack and thread.
    tree = known.tree or ("threads" if known.takes == "weight" and what else "")
    if cut or not tree:
        return ""
    return "threads" if chosen else tree


def _checked(
    what: str, given: str | None, known: Sequence[str], default: str, format: Format, word: str
) -> str:
    if given is None:
        return default
    if format.takes != what:
        can = [name for name, other in FORMATS.items() if other.takes == what]
        raise ValueError(f"{what}: {word} has none; {', '.join(can)} do")
    if given not in known:
        hint = did_you_mean(given, known) or f"; there are {', '.join(known)}"
        raise ValueError(f"{what}: there is no {given!r}{hint}")
    return given


def _several(what: str, given: Sequence[str] | str | None) -> Sequence[str] | None:
    words = [given] if isinstance(given, str) else given
    if words is not None and not all(isinstance(word, str) for word in words):
        raise TypeError(f"{what}: it must be names or globs, not {given!r}")
    return words


def _checked_between(
    between: tuple[int | str, int | str] | None,
) -> tuple[int, int] | None:
    if between is None:
        return None
    try:
        given = tuple(between)
        low, high = (
            parse_duration("between", time) if isinstance(time, str) else int(time)
            for time in given
        )
    except (TypeError, ValueError) as error:
        if isinstance(error, ValueError) and str(error).startswith("between must be"):
            raise
        raise TypeError(
            f"between: it must be two times, in ns or as text such as '1.5 ms', not {between!r}"
        ) from None
    if low > high:
        raise ValueError(f"between: {low} ns is after {high} ns")
    return low, high


def _write_file(
    module: object, view: object, target: str, options: Options, own_file: bool, force: bool
) -> None:
    """Write the file, which gets its name when it is complete."""
    with output.create(target, force) as new, open(new.descriptor, "wb", closefd=False) as out:
        options.path = new.path
        if own_file or not target.endswith(".gz") or getattr(module, "COMPRESSED", False):
            module.write(view, out, options)  # type: ignore[attr-defined]
        else:
            with gzip.GzipFile("", "wb", 6, out, mtime=0) as compressed:
                module.write(view, compressed, options)  # type: ignore[attr-defined]


def _check_file(target: str, known: Format, word: str, force: bool) -> None:
    """Raise the errors about the file, before the trace is read."""
    facts = output.check(target, force)
    if known.path and facts is not None and not stat.S_ISREG(facts.st_mode):
        raise ValueError(
            f"format: {word} needs a file of its own, and {target} is not a regular file"
        )
