"""Record a real program and show what came out: ``python -m eventprof.demo [--out FILE]``.

The program tokenizes, parses, walks, compiles and pickles modules of the standard library, on a
pool of threads. What is shown comes from the tables that every trace has. The recording is kept in
a file, for the other verbs.
"""

from __future__ import annotations

import argparse
import ast
import io
import itertools
import os
import pickle
import platform
import shlex
import shutil
import statistics
import sys
import time
import tokenize
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from . import __version__, record
from ._optional import require
from ._words import show_bytes, show_ns
from .base import output
from .tables.table import Table
from .trace import Trace

# fmt: off
_MODULES = [
    "abc", "bisect", "codeop", "colorsys", "copyreg", "cProfile", "decimal", "fnmatch",
    "genericpath", "getopt", "getpass", "hmac", "io", "keyword", "netrc", "nturl2path", "pty",
    "py_compile", "quopri", "reprlib", "rlcompleter", "sched", "secrets", "shelve", "signal",
    "stat", "struct", "token", "tty", "zipapp",
]
# fmt: on
_THREADS = 3
_ROUNDS = 5
_WIDTH = 100
_SHOWN = 8


# ---- The program, which does not use the recorder ------------------------------------------------


def digest(path: Path) -> int:
    """Tokenize, parse, walk, compile and pickle a module."""
    text = path.read_text(encoding="utf-8")
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    tree = ast.parse(text)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    code = compile(tree, path.name, "exec")
    data = pickle.dumps(tree)
    return len(tokens) + len(names) + len(code.co_code) + len(pickle.loads(data).body)


def job(paths: list[Path]) -> int:
    """Digest modules on a pool of threads."""
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="worker") as pool:
        return sum(pool.map(digest, paths))


def _make_visible(function: Callable[..., object]) -> None:
    """Move the program's code to a file outside of this package, whose code is never recorded."""

    def moved(code: CodeType) -> CodeType:
        constants = tuple(moved(c) if isinstance(c, CodeType) else c for c in code.co_consts)
        return code.replace(co_filename=Path(__file__).name, co_consts=constants)

    function = cast(FunctionType, function)
    function.__code__ = moved(function.__code__)


# ---- Measuring -----------------------------------------------------------------------------------


def _paths() -> list[Path]:
    folder = Path(os.__file__).parent
    paths = [folder / f"{name}.py" for name in _MODULES]
    return [path for path in paths if path.exists()]


def _measure(paths: list[Path]) -> tuple[dict[str, float], Trace]:
    """Run the program in turns, recorded and not: medians of CPU time, and the last trace."""
    runs: dict[str, AbstractContextManager[object]] = {
        "by itself": nullcontext(),
        "recorded, calls": record(memory=False, buffer="2 GiB"),
        "recorded, memory": record(calls=False, c_calls=False, buffer="2 GiB"),
    }
    both = runs["recorded, calls and memory"] = record(buffer="2 GiB")
    times: dict[str, list[int]] = {name: [] for name in runs}
    job(paths)  # reads the files, and imports what is still missing
    for _ in range(_ROUNDS):
        for name, context in runs.items():
            time.sleep(0.01)  # threads of the run before end after they were joined
            with context:
                began = time.process_time_ns()
                job(paths)
                times[name].append(time.process_time_ns() - began)
    return {name: statistics.median(samples) / 1e9 for name, samples in times.items()}, both.trace


# ---- Showing -------------------------------------------------------------------------------------


class _Glyphs:
    """Bars and curves, of what the terminal can show."""

    def __init__(self, encoding: str | None) -> None:
        self.parts, self.steps = " ▏▎▍▌▋▊▉█", " ▁▂▃▄▅▆▇█"
        try:
            (self.parts + self.steps).encode(encoding or "ascii")
        except (UnicodeEncodeError, LookupError):
            self.parts, self.steps = " #", " .:-=+*#"

    def bar(self, share: float, width: int) -> str:
        full = len(self.parts) - 1
        whole, part = divmod(round(share * width * full), full)
        return (self.parts[full] * whole + self.parts[part] * (part > 0)).ljust(width)

    def curve(self, values: NDArray[Any]) -> str:
        top = max(int(values.max(initial=0)), 1)
        last = len(self.steps) - 1
        return "".join(self.steps[-(-int(value) * last // top)] for value in values)


def _heading(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}")


def _file(path: str) -> str:
    name = os.path.basename(path)
    return "/".join(path.split("/")[-2:]) if name == "__init__.py" else name


def _where(function: Any) -> str:
    """Return the place of a row of functions."""
    if function.file is None or function.line is None:
        return function.module or ""
    return f"{_file(function.file)}:{function.line}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _top(functions: Table, column: str, glyphs: _Glyphs, show: Callable[[int], str]) -> None:
    """Print the functions that have most of a column."""
    values = functions[column]
    total = max(int(values.sum()), 1)
    for row in np.argsort(-values, kind="stable")[:_SHOWN].tolist():
        function, value = functions[row], int(values[row])
        print(
            f"  {show(value):>10} {value / total:5.1%} {glyphs.bar(value / total, 16)}"
            f"  {_cut(function.name or '?', 36):<36} {_cut(_where(function), 24)}"
        )


def _bins(times: NDArray[np.int64], length: int, count: int) -> NDArray[np.int64]:
    """Find the first entry of each of so many equal intervals, and the end."""
    edges = np.linspace(0, length, count + 1)
    return np.searchsorted(times, edges).astype(np.int64)


def _live(events: Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the times of allocations and frees, and how many bytes were alive after each."""
    words = events.categories("event")
    sign = np.zeros(len(words), np.int64)
    for word in ("malloc", "calloc", "realloc"):
        sign[words.index(word)] = 1
    for word in ("free", "realloc_free"):
        sign[words.index(word)] = -1
    # A block that is older than the window has no size when it is freed, and was never counted.
    change = np.ma.filled(events["size"], 0) * sign[events.codes("event")]
    changed = np.flatnonzero(change)
    return events["time"][changed], np.cumsum(change[changed])


def _show_memory(trace: Trace, glyphs: _Glyphs) -> None:
    times, live = _live(trace.events)
    width = _WIDTH - 4
    starts = _bins(times, trace.duration, width)
    # With what was alive as the interval began: nothing may happen in it.
    most = [
        np.max(live[max(a - 1, 0) : b], initial=0) for a, b in itertools.pairwise(starts.tolist())
    ]
    peak = int(np.argmax(live))
    print(f"  {glyphs.curve(np.array(most))}")
    print(f"  peak: {show_bytes(int(live[peak]))}, {show_ns(int(times[peak]))} after the start")


def _show_threads(trace: Trace, glyphs: _Glyphs) -> None:
    times, thread = trace.events["time"], trace.events["thread"]
    for row, thread_row in enumerate(trace.threads):
        counts = np.diff(_bins(times[thread == row], trace.duration, 56))
        name = _cut(thread_row.name or str(thread_row.native_id), 16)
        print(f"  {name:<16} {thread_row.recorded:>11,} events  {glyphs.curve(counts)}")


def _show_moment(trace: Trace) -> None:
    """Print what a worker did as it began with a module."""
    calls, functions, events = trace.calls, trace.functions, trace.events
    rows = np.flatnonzero(calls["name"] == digest.__qualname__)
    call = calls[int(rows[len(rows) // 2])]
    after = np.flatnonzero((events["thread"] == call.thread) & (events["time"] >= call.start))
    before = call.start
    for event in events[after[:14]]:
        depth = max((event.depth or call.depth) - call.depth, 0)
        if event.size is not None:
            what, line = f"{show_bytes(event.size)} at {event.address:#x}", event.line
            place = functions[event.function]
        elif event.address is not None:
            what, line = f"{event.address:#x}", event.line
            place = functions[event.function]
        else:
            what, line = event.name or "?", event.caller_line
            place = None if event.caller is None else functions[event.caller]
        file = "" if place is None else _file(place.file or place.module or "")
        origin = "" if place is None else f"{place.name}, {file}:{line}"
        print(
            f"  {'+' + show_ns(event.time - before):>9}  {event.event:<12}"
            f"  {_cut('. ' * depth + what, 33):<33}  {_cut(origin, 38)}"
        )
        before = event.time


def _command() -> str:
    """Return what starts this environment's ``eventprof`` from a shell."""
    script = Path(sys.executable).with_name("eventprof")
    if not script.exists():
        return f"{shlex.quote(sys.executable)} -m eventprof"
    if shutil.which("eventprof") == str(script):
        return "eventprof"
    beside = os.path.relpath(script)
    return shlex.quote(str(script) if beside.startswith("..") else beside)


def _write(trace: Trace, path: Path, force: bool) -> list[str]:
    """Write the recording, or its events as a dataframe; give the lines that look at it."""
    if path.suffix == ".epr":
        trace.save(path, force=force)
        verbs = "report", "events"
        return [f"  {_command()} {verb} {shlex.quote(str(path))}" for verb in verbs] + [
            "",
            "  >>> import eventprof",
            f"  >>> trace = eventprof.open({str(path)!r})",
            "  >>> print(trace)",
        ]
    frame = trace.events.to_pandas()
    reader = "read_parquet" if path.suffix == ".parquet" else "read_pickle"
    line = f"pandas.{reader}({str(path)!r})"
    with output.create(path, force) as new:
        if path.suffix == ".parquet":
            frame.to_parquet(new.path)
        else:
            frame.to_pickle(new.path, compression=None)
    return [
        "  >>> import pandas",
        f"  >>> events = {line}",
        "  >>> events.groupby('name', observed=True).size().nlargest(5)",
    ]


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m eventprof.demo", description=__doc__)
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=Path,
        help="the recording (.epr), or its events by pandas: .pkl, .parquet (default: "
        "eventprof-demo.epr, or eventprof-demo-2.epr and so on if that exists)",
    )
    parser.add_argument("-f", "--force", action="store_true", help="replace an existing file")
    given = parser.parse_args(arguments)
    if given.out is None:
        more = (Path(f"eventprof-demo-{number}.epr") for number in itertools.count(2))
        names = itertools.chain([Path("eventprof-demo.epr")], more)
        given.out = next(path for path in names if given.force or not os.path.lexists(path))
    if given.out.suffix not in (".epr", ".pkl", ".parquet"):
        parser.error(f"--out: {given.out} does not end with .epr, .pkl or .parquet")
    if not given.out.absolute().parent.is_dir():
        parser.error(f"--out: there is no folder {given.out.absolute().parent}")
    try:
        output.check(given.out, given.force)
    except FileExistsError:
        parser.error(f"--out: {given.out} exists already; -f replaces it")
    except OSError as error:
        parser.error(f"--out: {given.out}: {error.strerror}")
    return given


def main(arguments: list[str] | None = None) -> int:
    """Run the demonstration.

    Parameters
    ----------
    arguments : list of str, optional
        Of the command line; those of the process if not given.

    Returns
    -------
    int
        The exit status.
    """
    given = _arguments(arguments)
    path = given.out
    if path.suffix != ".epr":
        require("pandas", "pandas", f"--out *{path.suffix}")
    if path.suffix == ".parquet":
        require("pyarrow", "arrow", "--out *.parquet")
    for function in (digest, job):
        _make_visible(function)
    glyphs = _Glyphs(sys.stdout.encoding)
    paths = _paths()
    print(
        f"eventprof {__version__} on {platform.python_implementation()} {platform.python_version()}"
        f"\n\nA program tokenizes, parses, walks, compiles and pickles {len(paths)} modules of the"
        f"\nstandard library on {_THREADS} threads. CPU time, median of {_ROUNDS} runs, in turns:\n"
    )
    seconds, trace = _measure(paths)
    bare = seconds["by itself"]
    for name, spent in seconds.items():
        print(f"  {name:<28}{spent:8.3f} s   x {spent / bare:.2f}")

    events, functions = trace.events, trace.functions
    counts = np.bincount(events.codes("event"), minlength=len(events.categories("event")))
    count_of = dict(zip(events.categories("event"), counts.tolist(), strict=True))
    calls, c_calls = int(functions["calls"].sum()), count_of["c_call"]
    print(
        f"\n  {len(events):,} events, in order, on one clock; lost: {trace.loss.total or 'none'}"
        f"\n  {calls:,} calls, {c_calls:,} of them of C functions; {len(functions):,} functions"
        f"\n  {int(functions['blocks_self'].sum()):,} blocks allocated,"
        f" {show_bytes(int(functions['allocated_self'].sum()))} in all; {count_of['free']:,} frees"
    )
    _heading("Functions by self time: all threads, waiting included")
    _top(functions, "self", glyphs, show_ns)
    _heading("Functions by bytes allocated")
    _top(functions, "allocated_self", glyphs, show_bytes)
    _heading("Live memory over time, from 0 at the start")
    _show_memory(trace, glyphs)
    _heading("Threads, and when each was busy")
    _show_threads(trace, glyphs)
    _heading("One moment, event by event, with the line that each came from")
    _show_moment(trace)

    began = time.perf_counter()
    try:
        lines = _write(trace, path, given.force)
    except OSError as error:
        print(f"\nThe events could not be written: {error}", file=sys.stderr)
        return 1
    print(
        f"\nAll {len(events):,} events are in {path} ({show_bytes(path.stat().st_size)}, written in"
        f" {time.perf_counter() - began:.1f} s). To look at them:\n"
    )
    print(*lines, "", sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
