"""The data of the page: columns of tables as planes of bytes, compressed by gzip.

A section holds columns of some rows, one column after the other. A column of width w is w planes: a
plane has one byte of each row, the lowest byte first. The head, which is JSON, has the widths and
the number of rows. In tiles, planes that few rows need are left out, as planes.h says: the width is
then a list of the planes of all rows, the number of rows that have more, and the bytes these have
more. Times are whole numbers of grains; a grain is 1 ns, or what ``--time-grain`` says.

Calls are sorted by thread, then depth, then start. So a row of the timeline is a range of calls. A
tile is a section of `TILE` calls. Two columns of a tile are sorted by function, because they then
compress better: the time since the end of the call before, and the duration. Blocks are a stream of
allocations ("births") and frees ("deaths") in order of time. Only tiles.js and data.js read all
this.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from .._words import plural, show_ns
from ..answers.own import find_areas
from ..answers.tasks import KINDS
from ..answers.waiting import WORDS
from ..tables.column import Array
from ..tables.facts import labels_shown
from ..tables.kinds import NUMBERS
from ..tables.loss import loss_of_others
from .page_blocks import HOLDERS, Blocks
from .page_calls import COARSE, Calls
from .planes import compress, section, zigzag
from .source import find_source

if TYPE_CHECKING:
    from ..trace import Trace


class _Now:
    """The result of a job that was done at once, like a `Future` of a pool without threads."""

    def __init__(self, job: Callable[..., Any], *given: Any) -> None:
        self._made = job(*given)

    def result(self) -> Any:
        """Return the job's result."""
        return self._made


def _pool() -> tuple[Callable[..., Any], Callable[[], None]]:
    """Return a function that starts a job, on a thread if possible, and one that ends them."""
    pool = ThreadPoolExecutor(2, "eventprof page")
    try:
        pool.submit(int).result()
    except RuntimeError:  # at exit no thread can be started: `eventprof run --view`
        return _Now, lambda: None
    return pool.submit, pool.shutdown


# ---- Waiting -------------------------------------------------------------------------------------


def _tenures(trace: Trace, grain: int) -> list[Array]:
    """Return the tenures of the interpreter's lock: start (as a difference), length and thread.

    The page has one lane for one lock; of several processes it has none.
    """
    table = trace.gil if len(trace.processes) == 1 else trace.gil[:0]
    start, end, thread = (table._column(name).values() for name in ("start", "end", "thread"))
    start = start // grain
    return [np.diff(start, prepend=0), np.maximum(end // grain - start, 0), thread]


def _waits(trace: Trace, grain: int) -> list[Array]:
    """Return recorded waits: start (as a difference), length, thread, kind, and waker + 1.

    Those of one thread do not overlap: a look at the processor time may tell of a wait that began
    before another ended, and is cut there.
    """
    table = trace.waits
    names = ("start", "duration", "thread", "kind", "waker")
    start, length, thread, kind, waker = (table._column(name).values() for name in names)
    end = start + length
    start = start.copy()
    for row in np.unique(thread).tolist():
        of_thread = np.flatnonzero(thread == row)
        ends = np.maximum.accumulate(end[of_thread])
        start[of_thread[1:]] = np.maximum(start[of_thread[1:]], ends[:-1])
        end[of_thread] = ends
    order = np.argsort(start, kind="stable")
    start, end = start[order] // grain, end[order] // grain
    return [
        np.diff(start, prepend=0), np.maximum(end - start, 0), thread[order],
        kind[order].astype(np.int64), waker[order].astype(np.int64) + 1,
    ]  # fmt: skip


#: Of tasks with more events, the page does not say who made them ready: that takes 50 us a step, of
#: three events.
_MOST_TASK_EVENTS = 60_000


def _readies(trace: Trace, grain: int) -> list[Array]:
    """Return when tasks could go on, one row for each step that follows.

    The begin of the step (as a difference), how long it was ready before, its thread, what was
    awaited, and the thread that made it ready + 1.
    """
    table = trace.tasks
    names = ("end", "ready", "thread", "kind", "by_thread")
    columns = (table._column(name).values().astype(np.int64) for name in names)
    end, ready, thread, kind, by = columns
    rows = np.flatnonzero((end >= 0) & (ready >= 0))
    rows = rows[np.argsort(end[rows], kind="stable")]
    begun = end[rows] // grain
    return [
        np.diff(begun, prepend=0), begun - ready[rows] // grain, thread[rows], kind[rows],
        by[rows] + 1,
    ]  # fmt: skip


def _blocking(trace: Trace) -> list[int]:
    """Return the rows of blocking builtins: a thread in one of them does not wait for the lock."""
    blocking: list[int] = np.flatnonzero(trace._tree.is_blocking[:-1]).tolist()
    return blocking


def _resident(trace: Trace) -> list[Any]:
    """Return times and sizes of the resident set, and whether the recorder's own part is left out.

    It is left out if it is known for all samples, so that the line shows the program's memory.
    """
    time, held, recorder = trace._core.resident()
    known = bool((recorder > 0).all())
    return [time.tolist(), (held - recorder if known else held).tolist(), known]


# ---- Findings ------------------------------------------------------------------------------------


def _findings(trace: Trace, calls: Calls) -> list[dict[str, Any]]:
    """Return the findings of `analyze`; each line has its longest call, by its place there."""
    if not calls.count:
        return []
    tree, found = trace._tree, trace.analyze()
    function_of = {(row[0] or "(no name)", row[2]): n for n, row in enumerate(tree.functions)}
    places: list[tuple[int, int | None, int | None]] = []
    for finding in found:
        for evidence in finding.evidence:
            if evidence.node is not None:
                node = evidence.node
                places.append(
                    (int(tree.function[node]), int(tree.caller[node]), int(tree.line[node]))
                )
            else:
                places.append((function_of.get((evidence.name, evidence.file), -1), None, None))
    links = iter(calls.longest(places))
    return [
        {
            "rule": finding.rule,
            "claim": finding.claim,
            "advice": finding.advice,
            "share": round(finding.share, 4),
            "command": finding.command,
            "evidence": [
                {"name": e.name, "place": e.place(), "calls": e.calls, "call": next(links)}
                for e in finding.evidence
            ],
            # The finding "one-slow-call" names a call itself.
            "call": calls.data.place(int(finding.numbers["call"]))
            if "call" in finding.numbers
            else -1,
        }
        for finding in found
    ]


# ---- The head ------------------------------------------------------------------------------------


_STATISTICS = (
    "calls", "resumes", "total", "self", "max", "allocated", "freed", "blocks", "live",
    "at_peak",
)  # fmt: skip
#: Columns that have another name in `Trace.functions` than on the page.
_COLUMNS = {
    "allocated": "allocated_self", "freed": "freed_self", "blocks": "blocks_self",
    "live": "live_self", "at_peak": "at_peak_self",
}  # fmt: skip


def _functions(trace: Trace, areas: Array) -> dict[str, Any]:
    table = trace.functions
    texts = {name: list(table[name]) for name in ("name", "module", "file", "kind")}
    files = list(dict.fromkeys(texts["file"]))
    modules = list(dict.fromkeys(texts["module"]))
    number = {name: n for n, name in enumerate(files)}
    place = {name: n for n, name in enumerate(modules)}
    return {
        "name": texts["name"],
        "modules": modules,
        "module": [place[name] for name in texts["module"]],
        "files": files,
        "file": [number[name] for name in texts["file"]],
        "line": table._column("line").values().tolist(),
        "kind": texts["kind"],
        "area": areas.tolist(),
        **{name: table._column(_COLUMNS.get(name, name)).values().tolist() for name in _STATISTICS},
    }


def _points(trace: Trace) -> dict[str, Any]:
    """Return marks, counters and flows. They are few, so they are stored as JSON."""
    marks, counters, flows = trace.marks, trace.counters, trace.flows
    return {
        "marks": [
            list(row)
            for row in zip(
                marks["time"].tolist(), marks["thread"].tolist(), list(marks["name"]), strict=True
            )
        ],
        "counters": [
            [time, name, value if math.isfinite(value) else None]
            for time, name, value in zip(
                counters["time"].tolist(),
                list(counters["name"]),
                counters["value"].tolist(),
                strict=True,
            )
        ],
        "flows": [
            list(row)
            for row in zip(
                flows["time"].tolist(),
                flows["thread"].tolist(),
                list(flows["name"]),
                flows["id"].tolist(),
                strict=True,
            )
        ],
    }


def notes_of(trace: Trace) -> dict[str, Any]:
    """Return the line at the top: what was lost, what was left out, and the cost of recording."""
    from ..show.layout import Layout
    from ..show.limits import limits as find_limits

    limits = [text.plain for text in find_limits(Layout(trace, 100, 1, plain=False))]
    metadata = trace.metadata
    facts = []
    if labels := labels_shown(metadata):
        facts.append(labels)
    if metadata.get("worker"):
        facts.append(str(metadata["worker"]))
    if metadata.get("python"):
        facts.append(str(metadata["python"]))
    if metadata.get("clock"):
        hertz = metadata.get("clock_frequency_hz") or 0
        facts.append(f"clock {metadata['clock']}" + (f" {hertz / 1e9:.3g} GHz" if hertz else ""))
    if metadata.get("backend"):
        facts.append(f"calls by {metadata['backend']}")
    cost = metadata.get("overhead")
    facts.append(f"cost of an event: {_cost(cost)}")
    return {
        "limits": limits, "facts": facts, "lost": trace.loss.total, "reason": trace.loss.reason,
        "unsure": ", ".join(loss_of_others(trace)),
    }  # fmt: skip


def _cost(known: Any) -> str:
    """Report how long it took to record one event, if that was measured."""
    if isinstance(known, dict):
        numbers = [
            value for value in known.values() if isinstance(value, (int, float)) and value > 0
        ]
        if numbers:
            return f"{min(numbers):.0f} to {max(numbers):.0f} ns"
    return "not measured (eventprof run --overhead measures it)"


def _threads(trace: Trace) -> list[dict[str, Any]]:
    table = trace.threads
    firsts, lasts = table._column("first"), table._column("last")
    silent = firsts.nulls()
    assert silent is not None
    return [
        {
            "name": name if name is not None else f"thread {native or row}",
            "native": native,
            "first": None if silent[row] else first,
            "last": None if silent[row] else last,
            "recorded": recorded,
            "lost": lost,
        }
        for row, (name, native, first, last, recorded, lost) in enumerate(
            zip(
                list(table["name"]),
                table._column("native_id").values().tolist(),
                firsts.values().tolist(),
                lasts.values().tolist(),
                table["recorded"].tolist(),
                table["lost"].tolist(),
                strict=True,
            )
        )
    ]


def find_title(trace: Trace) -> str:
    """Return the name of the program."""
    argv = trace.metadata.get("argv")
    if isinstance(argv, (list, tuple)) and argv and isinstance(argv[0], str):
        return argv[0].rpartition("/")[2] or "eventprof"
    return "eventprof"


def sections(
    trace: Trace, title: str | None = None, grain: int = 1, source: bool = False
) -> tuple[bytes, bytes, list[tuple[str, bytes]]]:
    """Return the data of the page.

    Parameters
    ----------
    trace : Trace
        The trace to show.
    title : str, optional
        By default the program's name.
    grain : int
        Times are rounded down to multiples of so many nanoseconds.
    source : bool
        Whether to include the text of the program's files.

    Returns
    -------
    head, coarse : bytes
        The sections that the first picture needs.
    tiles : list of (str, bytes)
        All other sections, each with the id of its HTML element.
    """
    areas = find_areas(trace._core.functions(), trace._own_patterns)
    own = areas == _core.AREAS.index("own")
    # Two long steps run beside each other below, the sums of functions and the order of calls. Both
    # begin with pairing.
    trace._core.pair()
    submit, end_jobs = _pool()
    try:
        ordering = submit(Calls, trace, own, grain)
        functions = _functions(trace, areas)
        tenures = _tenures(trace, grain)
        calls = ordering.result()
        blocks = Blocks(calls)
        jobs = [
            (f"{letter}{number}", letter, submit(make, number))
            for letter, make, count in (
                ("c", calls.tile, calls.tile_count()),
                ("m", blocks.tile, blocks.tile_count()),
            )
            for number in range(count)
        ]
        *medians, _ = trace._percentiles["p50"].tolist()  # the last is of no function
        # A file that has only sums has functions without calls.
        functions["p50"] = [*medians, *[-1] * (len(functions["name"]) - len(medians))]
        duration = trace.duration
        findings = _findings(trace, calls)
        notes = notes_of(trace)
        if trace._has_lock and len(trace.processes) > 1:
            notes["facts"].append("each process has its own interpreter's lock: no lane of one")
        points = _points(trace)
        heads: dict[str, list[dict[str, Any]]] = {"c": [], "m": []}
        widths, coarse = section(calls.coarse())
        tiles = []
        for name, letter, job in jobs:
            found, raw = job.result()
            heads[letter].append(found)
            tiles.append((name, raw))
        extra: dict[str, dict[str, Any]] = {}
        for name, links in (("orphans", calls.orphans()), ("astray", blocks.astray())):
            link_widths, raw = section([zigzag(np.diff(x, prepend=0)) for x in links])
            extra[name] = {"widths": link_widths, "rows": len(links[0])}
            tiles.append((name, raw))
        tenure_widths, raw = section(tenures)
        extra["tenures"] = {"widths": tenure_widths, "rows": len(tenures[0])}
        tiles.append(("tenures", raw))
        if trace._has_waits:
            waits = _waits(trace, grain)
            wait_widths, raw = section(waits)
            extra["waits"] = {
                "widths": wait_widths,
                "rows": len(waits[0]),
                "words": [WORDS[word].what for word in _core.WAIT_WORDS],
            }
            tiles.append(("waits", raw))
        lanes, steps = calls.steps()
        step_widths, raw = section(steps)
        extra["steps"] = {"widths": step_widths, "rows": len(steps[0]), "lanes": lanes}
        tiles.append(("steps", raw))
        made = sum(recorded.get(NUMBERS["TASK"], 0) for *_, recorded, _lost in trace._thread_rows)
        if made > _MOST_TASK_EVENTS:
            notes["facts"].append("who made tasks ready is not here: too many steps (--tasks)")
        elif made:
            readies = _readies(trace, grain)
            ready_widths, raw = section(readies)
            extra["readies"] = {"widths": ready_widths, "rows": len(readies[0]), "words": KINDS}
            tiles.append(("readies", raw))
    finally:
        end_jobs()

    peak_ns, peak_bytes, peak_blocks = calls.data.peak()
    function, line = blocks.places
    head = {
        "format": 6,
        "version": _core.VERSION,
        "title": find_title(trace) if title is None else title,
        "summary": f"{show_ns(duration)}, {plural(trace._facts['events'], 'event')}",
        "duration": duration,
        "grain": grain,
        "calls": calls.count,
        "blocks": blocks.count,
        "events": blocks.events,
        "recorded": trace._facts["events"],
        "areas": _core.AREAS,
        "kinds": calls.kinds,
        "usual": calls.usual_kind(),
        "tasks": calls.tasks,
        "rows": calls.rows,
        "threads": _threads(trace),
        "functions": functions,
        "bands": blocks.bands,
        "curve": {by: blocks.curve(by) for by in HOLDERS},
        "places": [function.tolist(), np.maximum(line, 0).tolist()],
        "charges": [holders.tolist() for holders in blocks.charges],
        "blocking": _blocking(trace),
        "findings": findings,
        "peak": [peak_ns, peak_bytes, peak_blocks] if blocks.count and peak_bytes else None,
        "resident": _resident(trace),
        "notes": notes,
        "source": find_source(trace) if source else [],
        **points,
        "tiles": heads,
        **extra,
        "coarse": {"widths": widths, "size": COARSE},
    }
    return compress(json.dumps(head, separators=(",", ":")).encode()), coarse, tiles
