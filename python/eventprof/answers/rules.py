"""The rules that find what is likely wrong with a program.

The rules look at counts, bytes and shares of the whole, with wide margins: the times that a busy
machine makes longer must not cause a finding. No threshold is a time, so that a program has the
same findings on a fast machine and on a slow one; the exception says why (`_LONG_TENURE_NS`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from .._words import show_bytes, show_ns
from ..tables.column import Array
from .findings import Case, Evidence, Finding, falling
from .rules_of_waits import full_queue, held_locks, small_pool

Rule: TypeAlias = Callable[[Case], Iterator[Finding]]

_MIB = 1 << 20

# ---- Calls in a loop -----------------------------------------------------------------------------

#: Calls in a loop that one call, or none, could replace. A row: rule, module, names, how many calls
#: inside one call of the surrounding function are too many, advice.
IN_A_LOOP: tuple[tuple[str, str | None, tuple[str, ...], int, str], ...] = (
    ("n-plus-one", "sqlite3", ("Cursor.execute", "Connection.execute"), 50,
     "Ask once for all rows (IN, JOIN), or use executemany."),
    ("n-plus-one", "psycopg", ("Cursor.execute",), 50,
     "Ask once for all rows, or use executemany."),
    ("n-plus-one", "sqlalchemy.engine.base", ("Connection.execute",), 50,
     "Ask once for all rows, or load relations eagerly."),
    ("n-plus-one", "requests.sessions", ("Session.request",), 20,
     "Ask for many things at once, or run several requests at the same time."),
    ("n-plus-one", "urllib.request", ("urlopen",), 20, "Ask for many things at once."),
    ("commit-in-loop", "sqlite3", ("Connection.commit",), 50, "Commit once, after the loop."),
    ("compile-in-loop", "re", ("compile", "_compile"), 200,
     "Compile the pattern once, outside of the loop."),
    ("compile-in-loop", "builtins", ("eval", "exec", "compile"), 100,
     "Compile the text once, or avoid it."),
    ("open-in-loop", "_io", ("open",), 200, "Open the file once, outside of the loop."),
    ("open-in-loop", "io", ("open",), 200, "Open the file once, outside of the loop."),
    ("stat-in-loop", "posix", ("stat",), 1000, "Ask once (os.scandir), and keep the answer."),
    ("process-in-loop", "subprocess", ("Popen.__init__",), 20,
     "Start one process for all, or do the work in this one."),
    ("copy-in-loop", "copy", ("deepcopy",), 200, "Copy only what changes, or do not copy."),
    ("list-from-the-front", "builtins", ("list.insert",), 1000,
     "Each call moves the whole list: use collections.deque, or append and reverse."),
    ("list-search", "builtins", ("list.remove", "list.index", "list.count"), 1000,
     "Each call looks through the list: use a set or a dict."),
    ("concat-in-loop", "numpy", ("append", "concatenate", "vstack", "hstack"), 100,
     "Each call copies the array: collect the parts in a list, and join them once."),
    ("concat-in-loop", "pandas.core.reshape.concat", ("concat",), 50,
     "Each call copies the frame: collect the parts in a list, and join them once."),
    ("row-by-row", "pandas.core.indexing",
     ("_LocationIndexer.__getitem__", "_LocationIndexer.__setitem__",
      "_ScalarAccessIndexer.__getitem__", "_ScalarAccessIndexer.__setitem__",
      "_AtIndexer.__getitem__", "_AtIndexer.__setitem__"), 1000,
     "Each call looks up one place of the frame: work on whole columns."),
    ("print-in-loop", "builtins", ("print",), 2000, "Print once, after the loop."),
)  # fmt: skip


def calls_in_a_loop(case: Case) -> Iterator[Finding]:
    """Find functions that own code calls again and again where one call would be enough."""
    tree = case.tree
    wanted: dict[tuple[str | None, str], int] = {}
    for number, (_, module, names, _, _) in enumerate(IN_A_LOOP):
        for name in names:
            wanted[module, name] = number
    row_of = np.full(len(tree.functions) + 1, -1)
    for number, (known, module, *_) in enumerate(tree.functions):
        row_of[number] = wanted.get((module, known or ""), -1)
    calls = tree.own("calls")
    around = np.maximum(tree.own("calls") + tree.own("resumes"), 1)[tree.parent]
    rows = row_of[np.maximum(tree.function, -1)]
    for number, (rule, _, _, many, advice) in enumerate(IN_A_LOOP):
        found = np.flatnonzero((rows == number) & case.called_by_own & (calls >= many * around))
        if not len(found):
            continue
        nodes = falling(found, calls)
        count = int(calls[nodes].sum())
        time = int(tree.nodes["total"][nodes].sum())
        each = float(calls[nodes[0]] / around[nodes[0]])
        # The times of a short run may be the machine's fault; the number of calls is not.
        inside = int(tree.below("calls")[nodes].sum())
        share = max(time / case.whole, inside / max(int(tree.below("calls")[0]), 1))
        if share < 0.02:
            continue
        yield Finding(
            rule,
            f"{tree.name(int(nodes[0]))} is called {count:,} times, {each:,.0f} times in one "
            f"call of the function around it: {show_ns(time)}, {time / case.whole:.0%} of the time",
            advice,
            share,
            {"calls": count, "calls_each": round(each, 1), "time": time},
            tuple(case.node_evidence(int(node)) for node in nodes[:5]),
            "eventprof tree FILE",
        )


#: Generators of pandas that make a Series of each row of a frame, and what is called for them.
_ROWS = {
    ("pandas.core.frame", "DataFrame.iterrows"): "iterrows",
    ("pandas.core.apply", "FrameColumnApply.series_generator"): "apply(axis=1)",
}


def frames_by_row(case: Case) -> Iterator[Finding]:
    """Find frames of pandas that own code takes apart row by row."""
    tree = case.tree
    kinds = [_ROWS.get((module or "", name or "")) for name, module, *_ in tree.functions]
    found = [number for number, kind in enumerate(kinds) if kind]
    many = np.isin(tree.function, found) & (tree.own("resumes") >= 1000)
    for node in np.flatnonzero(many).tolist():
        rows = int(tree.own("resumes")[node])
        name = kinds[int(tree.function[node])]
        while not case.own[tree.caller[node]] and tree.parent[node] > 0:
            node = int(tree.parent[node])
        # What the loop does with a row of iterrows is work of the function around it.
        top = int(tree.parent[node]) if name == "iterrows" else node
        time = int(tree.nodes["total"][top])
        if not case.own[tree.caller[node]] or time < 0.05 * case.whole:
            continue
        yield Finding(
            "row-by-row",
            f"{name} makes a Series of each of {rows:,} rows: {show_ns(time)} with what is done "
            f"with them, {time / case.whole:.0%} of the time",
            "Work on whole columns; if there must be a loop, itertuples() is many times as fast.",
            time / case.whole,
            {"rows": rows, "time": time},
            (case.node_evidence(node),),
            "eventprof tree FILE",
        )


# ---- Single calls, which a second pass over the events finds -------------------------------------

#: Flags of calls that are not whole: open at the start or at the end, or their end was not seen.
_NOT_WHOLE = 1 | 2 | 16
_RECURSIVE = 32


def _picked_calls(
    case: Case, functions: Array, without: int = 0, kept: float = np.inf
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return calls of some functions, in order of start, and sums of all of their calls.

    Parameters
    ----------
    case : Case
        What is looked at.
    functions : array of bool
        Which functions; as `Case.own`.
    without : int
        Flags: calls with one of them are left out.
    kept : float
        Of more than 65,536 calls of a function, about a half is left out each time, but calls that
        took so many ns.
    """
    calls, sums, _ = case.trace._core.picked(
        functions[:-1].tobytes(), case.tree.is_blocking[:-1].tobytes(), None,
        without, int(min(kept, np.iinfo(np.int64).max)), -1, -1,
    )  # fmt: skip
    order = np.argsort(calls["call"])
    return {name: values[order] for name, values in calls.items()}, sums


# ---- Time ----------------------------------------------------------------------------------------


def growing_calls(case: Case) -> Iterator[Finding]:
    """Find own functions that take longer from call to call: quadratic work."""
    # One more pass, only if the tree has a function that may fit.
    known = case.tree.by_function()
    may_be = case.own & (known["calls"] >= 200) & (known["total"] >= 0.3 * case.whole)
    if not may_be.any():
        return
    calls, sums = _picked_calls(case, may_be, _NOT_WHOLE | _RECURSIVE)
    for callee in np.flatnonzero(may_be[:-1]).tolist():
        total, count = int(sums["total"][callee]), int(sums["calls"][callee])
        if count < 200 or total < 0.3 * case.whole:
            continue
        same = calls["function"] == callee
        start, duration = calls["start"][same], calls["duration"][same]
        if (start[1:] < start[:-1]).any():
            duration = duration[np.argsort(start, kind="stable")]
        parts = np.array([np.median(part) for part in np.array_split(duration, 10)])
        rising = int((np.diff(parts) > 0).sum())
        if rising < 8 or parts[-1] < 5 * max(parts[0], 1.0) or parts[-1] < 2 * parts[4]:
            continue
        yield Finding(
            "growing-calls",
            f"{case.tree.function_name(callee)} takes longer from call to call: "
            f"{show_ns(int(parts[0]))} at first, {show_ns(int(parts[-1]))} at last, "
            f"over {count:,} calls",
            "The work of a call grows with what was done before. Keep an index or a total.",
            total / case.whole,
            {"calls": count, "first": int(parts[0]), "last": int(parts[-1]), "time": total},
            (case.line_evidence(callee, -1),),
            f"eventprof tree FILE --slowest {case.tree.functions[callee][0]}",
        )


#: Fewer calls inside of one call are not worth a finding, whatever its share of a short run.
_MANY_CALLS = 10_000


def one_slow_call(case: Case) -> Iterator[Finding]:
    """Find one call that is far slower than the others of its function."""
    slowest = 0.25 * case.trace.duration
    often = case.own & (case.tree.by_function()["calls"] >= 20)
    nodes = case.tree.own("longest") >= slowest
    slow = often & np.isin(np.arange(len(often)), case.tree.function[nodes])
    if not slow.any():
        return
    calls, sums = _picked_calls(case, slow, _NOT_WHOLE, slowest / 4)
    reported: set[int] = set()
    for row in np.flatnonzero(calls["duration"] >= slowest).tolist():
        callee, took = int(calls["function"][row]), int(calls["duration"][row])
        count = int(sums["calls"][callee])
        if callee in reported or count < 20:
            continue
        same = calls["function"] == callee
        durations = calls["duration"][same]
        median = float(np.median(durations))
        if took < 20 * max(median, 1.0) or np.count_nonzero(durations > took / 4) > 2:
            continue
        # By calls, not by time: whether a call did much must not depend on the machine's speed.
        inside, blocked = int(calls["inside"][row]), int(calls["blocked"][row])
        more = inside >= max(20 * float(np.median(calls["inside"][same])), _MANY_CALLS)
        # A call that did no more than others, and did not block for a quarter of the run, nor for
        # most of its own time: the machine may have been slow.
        if not more and blocked < max(took / 2, slowest):
            continue
        reported.add(callee)
        yield Finding(
            "one-slow-call",
            f"one call of {case.tree.function_name(callee)} took {show_ns(took)}, "
            f"the median of {count:,} is {show_ns(int(median))}",
            "Look at what this call did that others did not.",
            took / case.whole,
            {"call": int(calls["call"][row]), "time": took, "median": int(median), "calls": count,
             "calls_inside": inside, "blocked": blocked},
            (case.line_evidence(callee, -1),),
            f"eventprof tree FILE --call {int(calls['call'][row])}",
        )  # fmt: skip


#: The import of a few modules is not worth a finding, whatever its share of a short run.
_MANY_IMPORTS = 20


def imports(case: Case) -> Iterator[Finding]:
    """Find runs that do little but import."""
    tree = case.tree
    rows = [
        number for number, row in enumerate(tree.functions)
        if row[0] == "_find_and_load" and (row[1] or "").startswith("importlib")
    ]  # fmt: skip
    if not rows:
        return
    imports = np.isin(tree.function, rows)
    if int(tree.own("calls")[imports].sum()) < _MANY_IMPORTS:
        return
    outermost = np.flatnonzero(tree.outermost(np.where(imports, 0, -1)))
    nodes = falling(outermost, tree.nodes["total"])
    time = int(tree.nodes["total"][nodes].sum())
    if time < 0.4 * case.whole:
        return
    yield Finding(
        "import-time",
        f"imports take {show_ns(time)}, {time / case.whole:.0%} of the time",
        "Import what is rarely needed in the function that needs it.",
        time / case.whole,
        {"time": time, "imports": int(tree.own("calls")[nodes].sum())},
        tuple(case.node_evidence(int(node)) for node in nodes[:5]),
        "eventprof tree FILE --all",
    )


def collections(case: Case) -> Iterator[Finding]:
    """Find runs of the garbage collector that take long, or that own code asks for often."""
    tree = case.tree
    nodes = case.own_nodes_of(case.functions_named({("gc", "collect")}))
    count, time = int(tree.own("calls")[nodes].sum()), int(tree.nodes["total"][nodes].sum())
    all_calls = max(int(tree.below("calls")[0]), 1)
    if count >= 20 and (time >= 0.1 * case.whole or count >= 0.1 * all_calls):
        yield Finding(
            "gc-by-hand",
            f"gc.collect() is called {count:,} times: {show_ns(time)}, "
            f"{time / case.whole:.0%} of the time",
            "Leave it to the interpreter, or call it once.",
            max(time / case.whole, count / all_calls),
            {"calls": count, "time": time},
            tuple(case.node_evidence(int(node)) for node in nodes[:5]),
            "eventprof tree FILE",
        )
    runs = [number for number, row in enumerate(tree.functions) if row[4] == "gc"]
    own_runs = case.nodes_of(runs)
    count, time = int(tree.own("calls")[own_runs].sum()), int(tree.own("self")[own_runs].sum())
    if not len(nodes) and count >= 50 and time >= 0.3 * case.whole:
        yield Finding(
            "gc-share",
            f"the garbage collector ran {count:,} times: {show_ns(time)}, "
            f"{time / case.whole:.0%} of the time",
            "Make fewer objects that live long, or raise its threshold (gc.set_threshold).",
            time / case.whole,
            {"runs": count, "time": time},
            (),
            "eventprof report FILE",
        )


# ---- Memory --------------------------------------------------------------------------------------


def _own_rows(case: Case) -> Any:
    return np.flatnonzero(case.lines["function"] >= 0)


def _file_buffers(case: Case, function: int, line: int) -> dict[str, int]:
    """Sum up what `open` allocated for an own line.

    From CPython 3.14 on it is a buffer of 128 KiB for each file, which is no fault of the program.
    """
    tree = case.tree
    opens = [
        number
        for number, (name, module, *_) in enumerate(tree.functions)
        if name == "open" and module in ("io", "_io")
    ]
    of_function, of_line = tree.leaf_owners(case.own)
    wanted = np.isin(tree.function[tree.leaf_node], opens)
    wanted &= (of_function == function) & (of_line == line)
    return {name: int(tree.leaves[name][wanted].sum()) for name in ("allocated", "blocks", "live")}


def churn(case: Case) -> Iterator[Finding]:
    """Find own lines that allocate large blocks only to free them at once."""
    lines, peak = case.lines, int(case.tree.facts["peak"])
    whole = max(int(lines["allocated"].sum()), 1)
    enough = max(32 * _MIB, 20 * peak, 0.5 * whole)
    for line in np.flatnonzero((lines["function"] >= 0) & (lines["allocated"] >= enough)).tolist():
        buffers = _file_buffers(case, int(lines["function"][line]), int(lines["line"][line]))
        made, blocks, kept = (
            int(lines[name][line]) - buffers[name] for name in ("allocated", "blocks", "live")
        )
        if made < enough or made / max(blocks, 1) < 2048 or kept > 0.1 * made:
            continue
        yield Finding(
            "churn",
            f"a line allocated {show_bytes(made)} in {blocks:,} blocks and freed "
            f"them, where never more than {show_bytes(peak)} were alive",
            "Copies that are thrown away: change in place, slice less, or join once.",
            made / whole,
            {"allocated": made, "blocks": blocks, "peak": peak},
            (case.line_evidence(int(lines["function"][line]), int(lines["line"][line])),),
            "eventprof tree FILE",
        )


def growth(case: Case) -> Iterator[Finding]:
    """Find own lines whose blocks pile up from beginning to end."""
    lines, tree = case.lines, case.tree
    live, blocks = lines["live"], lines["live_blocks"]
    end = int(tree.facts["live"])
    if end < _MIB or end < 0.7 * tree.facts["peak"]:
        return
    for row in _own_rows(case).tolist():
        if live[row] < 0.5 * end or blocks[row] < 100 or live[row] < 0.5 * lines["allocated"][row]:
            continue
        function, line = int(lines["function"][row]), int(lines["line"][row])
        # Each quarter of all allocations must have some: a result that is built at the end is no
        # leak.
        *_, quarters = case.trace._core.picked(
            bytes(len(case.own) - 1), bytes(len(case.own) - 1), case.own[:-1].tobytes(),
            0, 0, function, line,
        )  # fmt: skip
        if not sum(quarters) or min(quarters) < 0.1 * sum(quarters):
            continue
        yield Finding(
            "growth",
            f"{int(blocks[row]):,} blocks of one line, {show_bytes(int(live[row]))}, live at "
            "the end; they piled up from beginning to end",
            "Something keeps them: a cache without a bound, a list that is never emptied.",
            float(live[row]) / max(int(tree.facts["peak"]), 1),
            {
                "live": int(live[row]),
                "blocks": int(blocks[row]),
                "peak": int(tree.facts["peak"]),
            },
            (case.line_evidence(function, line),),
            "eventprof report FILE",
        )


def peak_holder(case: Case) -> Iterator[Finding]:
    """Find the own line that holds most of a large peak."""
    lines, peak = case.lines, int(case.tree.facts["peak"])
    if peak < 32 * _MIB:
        return
    tree = case.tree
    importers = np.flatnonzero([row[0] == "_find_and_load" for row in tree.functions])
    at_import = np.isin(tree.function, importers)
    imported = set(zip(tree.caller[at_import].tolist(), tree.line[at_import].tolist(), strict=True))
    for line in _own_rows(case).tolist():
        held = int(lines["at_peak"][line])
        # What an import holds is code: the advice to take it in parts would not help.
        if (
            held < 0.5 * peak
            or (int(lines["function"][line]), int(lines["line"][line])) in imported
        ):
            continue
        yield Finding(
            "peak-holder",
            f"one line holds {show_bytes(held)} of the {show_bytes(peak)} at the peak",
            "Take the data in parts, or free it sooner.",
            0.5 * held / peak,
            {"at_peak": held, "peak": peak, "time": int(case.tree.facts["peak_time"])},
            (case.line_evidence(int(lines["function"][line]), int(lines["line"][line])),),
            "eventprof tree FILE",
        )


# ---- Exceptions, threads, loss -------------------------------------------------------------------

#: Functions for which it is normal to end by an exception.
_ENDS_BY_EXCEPTION = {"next", "send", "throw", "__next__", "_find_spec", "getattr", "hasattr"}


def exceptions(case: Case) -> Iterator[Finding]:
    """Find exceptions that are raised and caught again and again."""
    tree = case.tree
    raised, calls = tree.own("raised"), tree.own("calls") + tree.own("resumes")
    own = case.own[np.maximum(tree.function, -1)] | case.own[np.maximum(tree.caller, -1)]
    usual = np.zeros(len(tree.functions) + 1, dtype=bool)
    for number, (name, *_) in enumerate(tree.functions):
        usual[number] = (name or "").rpartition(".")[2] in _ENDS_BY_EXCEPTION
    raises = (
        own & ~usual[np.maximum(tree.function, -1)] & (raised >= 1000) & (raised >= 0.2 * calls)
    )
    # Only where it is caught: the node above did not end by an exception as often.
    raises &= raised[tree.parent] < raised
    nodes = np.flatnonzero(raises)
    if not len(nodes):
        return
    nodes = nodes[np.argsort(-raised[nodes], kind="stable")]
    count = int(raised[nodes].sum())
    time = int(tree.nodes["total"][nodes].sum())
    yield Finding(
        "exceptions",
        f"{tree.name(int(nodes[0]))} ended by an exception {count:,} times out of "
        f"{int(calls[nodes].sum()):,}: exceptions as control flow",
        "If failing is common, check first (in, get, a test of the text).",
        max(time / case.whole, 0.05),
        {"raised": count, "calls": int(calls[nodes].sum()), "time": time},
        tuple(case.node_evidence(int(node)) for node in nodes[:5]),
        "eventprof tree FILE",
    )


#: A fifth of the time after which the interpreter asks a thread to give up the lock: 5 ms by
#: default (sys.setswitchinterval), on a fast machine and on a slow one, whatever the length of the
#: run. So a time it is, and no share of the run.
_LONG_TENURE_NS = 1_000_000


def _blocked_by_thread(case: Case, tenures: Mapping[str, Array]) -> Array:
    """Return each thread's time in blocking builtins within its own tenures, in ns.

    No other thread has an event there. But the thread had released the lock: others that did
    nothing waited for something else.
    """
    calls, sums = _picked_calls(case, case.tree.is_blocking)
    thread, start, function = calls["thread"], calls["start"], calls["function"]
    end = start + calls["duration"]
    # If some of very many calls were left out, the others count for them.
    picked = np.bincount(function, calls["duration"], len(sums["total"]))
    weight = (sums["total"] / np.maximum(picked, 1))[function]
    blocked = np.zeros(len(case.trace._thread_rows))
    for row in np.intersect1d(thread, tenures["thread"]).tolist():
        rows = tenures["thread"] == row
        begins, ends = tenures["start"][rows], tenures["end"][rows]
        edges = np.column_stack((begins, ends)).ravel()
        held = np.concatenate(([0], np.cumsum(ends - begins)))
        before = np.column_stack((held[:-1], held[1:])).ravel()  # how long it had the lock, by edge
        in_thread = thread == row
        within = [np.interp(times[in_thread], edges, before) for times in (start, end)]
        blocked[row] = ((within[1] - within[0]) * weight[in_thread]).sum()
    return blocked


def lock_waiting(case: Case) -> Iterator[Finding]:
    """Find threads that wait for each other to give up the interpreter's lock."""
    trace, tree = case.trace, case.tree
    if not tree.has_lock or len(trace._thread_rows) < 2:
        return
    tenures = trace._core.tenures()
    took = tenures["end"] - tenures["start"]
    # Threads with only short tenures pass messages to each other, and one that starts others and
    # waits for them has a long one before and after: these do not compete for the lock.
    long = took >= _LONG_TENURE_NS
    many = np.bincount(tenures["thread"][long], minlength=len(trace._thread_rows))
    length = np.bincount(tenures["thread"], weights=took, minlength=len(trace._thread_rows))
    busy = np.flatnonzero((many >= 3) & (length >= 0.1 * trace.duration))
    waited = tree.waits["gil"] if tree.has_waits else int(tree.lock_waited.sum())

    def too_little(waited: int, work: int) -> bool:
        return work < 0.25 * trace.duration or waited < 0.5 * work

    # Greenlets of one thread take turns by themselves.
    if len({trace._thread_rows[row][1] or -row for row in busy.tolist()}) < 2:
        return
    if too_little(waited, int(length[busy].sum())):
        return
    # While one thread slept, each of the others may seem to have waited. As not all of them did, a
    # finding can be missed, but none is invented.
    blocked = _blocked_by_thread(case, tenures)
    if not tree.has_waits:
        waited -= int(blocked.sum()) * (len(blocked) - 1)
    work = int((length - blocked)[busy].sum())
    if too_little(waited, work):
        return
    part = work / max(trace.duration, 1)
    names = [trace._thread_rows[number][0] or f"thread {number}" for number in busy.tolist()]
    yield Finding(
        "lock-waiting",
        f"{len(busy)} threads compute in turn: together they waited {show_ns(waited)} for the "
        f"interpreter's lock, and worked {show_ns(work)} in {show_ns(trace.duration)}",
        "Threads do not make Python code faster here: use processes, or a build without the lock.",
        min(0.5 * waited / work, 0.9) * min(part, 1),
        {"threads": len(busy), "waited": waited, "worked": work, "tenures": len(took)},
        tuple(Evidence(name, None, None) for name in names[:5]),
        "eventprof tree FILE",
    )


_LOCKS = {
    ("_thread", name)
    for name in ("lock.acquire", "RLock.acquire", "lock.__enter__", "RLock.__enter__")
}


def contended_lock(case: Case) -> Iterator[Finding]:
    """Find own lines that wait long for a lock of the program."""
    tree = case.tree
    if tree.has_waits:
        yield from held_locks(case)
        return
    locks = case.functions_named(_LOCKS)
    nodes = falling(case.own_nodes_of(locks), tree.nodes["total"])
    time, calls = int(tree.nodes["total"][nodes].sum()), int(tree.own("calls")[nodes].sum())
    if time < 0.5 * case.trace.duration or calls < 4 or _waited_once_each(case, locks):
        return
    yield Finding(
        "contended-lock",
        f"threads waited {show_ns(time)} for a lock, in {calls:,} calls, in a run of "
        f"{show_ns(case.trace.duration)}",
        "Hold the lock for less: do not sleep, read or compute under it.",
        min(time / case.whole, 1.0),
        {"time": time, "calls": calls},
        tuple(case.node_evidence(int(node)) for node in nodes[:5]),
        "eventprof tree FILE",
    )


def _waited_once_each(case: Case, functions: list[int]) -> bool:
    """Whether the long ones of these calls may have one cause, such as a pause of the machine.

    While the thread with the lock is kept from running, each of the others waits for it once.
    """
    nodes = case.own_nodes_of(functions)
    chosen = np.isin(np.arange(len(case.own)), functions)
    calls, _ = _picked_calls(case, chosen, kept=case.tree.own("longest")[nodes].max() / 10)
    by_own = case.own[np.maximum(calls["caller"], -1)]
    took, thread = calls["duration"][by_own], calls["thread"][by_own]
    long = took >= took.max() / 10
    threads: Array = np.unique(thread[long])
    return int(np.count_nonzero(long)) <= len(threads)


def blocked_event_loop(case: Case) -> Iterator[Finding]:
    """Find blocking calls that own coroutines make in an event loop."""
    tree = case.tree
    loops = case.functions_named({("asyncio.events", "Handle._run")})
    if not loops:
        return
    below = np.isin(tree.function, loops)
    # Each round doubles how far `up` points: a node is below a loop if any node above it is one.
    up = tree.parent.astype(np.int64)
    while up.any():
        below = below | below[up]
        up = up[up]
    blocking = tree.is_blocking[np.maximum(tree.function, -1)]
    nodes = falling(np.flatnonzero(below & case.called_by_own & blocking), tree.nodes["total"])
    time = int(tree.nodes["total"][nodes].sum())
    if time < 0.2 * case.trace.duration:
        return
    yield Finding(
        "blocked-event-loop",
        f"{tree.name(int(nodes[0]))} stops the event loop: {show_ns(time)} in "
        f"{int(tree.own('calls')[nodes].sum()):,} calls",
        "Await the asynchronous form (asyncio.sleep, to_thread).",
        min(time / case.whole, 1.0),
        {"time": time, "calls": int(tree.own("calls")[nodes].sum())},
        tuple(case.node_evidence(int(node)) for node in nodes[:5]),
        "eventprof tree FILE",
    )


def lost_events(case: Case) -> Iterator[Finding]:
    """Report that events are missing, before anybody believes the numbers."""
    loss = case.trace.loss
    if not loss:
        return
    kept = int(case.trace._facts["events"])
    yield Finding(
        "lost-events",
        f"{loss.total:,} of {loss.total + kept:,} events are missing: all numbers are too small",
        "Record with a larger buffer (--buffer), or without a limit (--on-full grow).",
        1.0,
        {"lost": loss.total, "kept": kept},
        (),
        "eventprof info FILE",
    )


RULES: tuple[Rule, ...] = (
    lost_events,
    blocked_event_loop,
    contended_lock,
    full_queue,
    small_pool,
    calls_in_a_loop,
    frames_by_row,
    growing_calls,
    one_slow_call,
    imports,
    collections,
    churn,
    growth,
    exceptions,
    lock_waiting,
    peak_holder,
)
