"""Tools that watch the interpreter, each beside a recorder, in every order of start and stop.

    python neighbours.py TOOL

prints what happened, one line of JSON a cell: an order and a backend. Each cell is a fork of its own, so that a
crash is a result as well. What each side saw is compared with a run in which the other's steps are left out.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import itertools
import json
import os
import signal
import sys
import tempfile
import textwrap
import threading
import traceback
from collections import Counter
from pathlib import Path

import neighbours_work as work
import raw

from eventprof import _core

FILE = work.__file__
NAMES = {
    f.__name__
    for f in vars(work).values()
    if hasattr(f, "__code__") and f.__name__ not in ("run", "size_of")
}
ORDERS = [
    " ".join(order)
    for order in itertools.permutations(["T+", "T-", "R+", "R-"])
    if order.index("T+") < order.index("T-") and order.index("R+") < order.index("R-")
]


def called(names):
    return dict(sorted(Counter(name for name in names if name in NAMES).items()))


# ---- The tools: start, stop, and then what was seen, as something that JSON keeps ---------------------------


class CProfile:
    """Calls, by function."""

    def start(self):
        import cProfile

        self.profiler = cProfile.Profile()
        self.profiler.enable()

    def stop(self):
        self.profiler.disable()

    def seen(self):
        return {
            e.code.co_name: [e.callcount, e.reccallcount]
            for e in sorted(self.profiler.getstats(), key=lambda e: str(e.code))
            if not isinstance(e.code, str) and e.code.co_filename == FILE
        }


class SetProfile:
    """The events of sys.setprofile, in their order."""

    def start(self):
        self.log = []
        sys.setprofile(self.hook)

    def hook(self, frame, event, argument):
        if frame.f_code.co_filename == FILE and frame.f_code.co_name in NAMES:
            name = getattr(argument, "__name__", None) if event.startswith("c_") else None
            self.log.append([event, frame.f_code.co_name, name])

    def stop(self):
        sys.setprofile(None)

    def seen(self):
        return self.log


class SetTrace(SetProfile):
    """The events of sys.settrace, in their order, lines included."""

    def start(self):
        self.log = []
        sys.settrace(self.hook)

    def hook(self, frame, event, argument):
        if frame.f_code.co_filename == FILE and frame.f_code.co_name in NAMES:
            self.log.append([event, frame.f_code.co_name, frame.f_lineno])
        return self.hook

    def stop(self):
        sys.settrace(None)


class Pdb:
    """Breakpoints that were met."""

    def start(self):
        import pdb

        self.output = io.StringIO()
        self.debugger = pdb.Pdb(
            stdin=io.StringIO("continue\n" * 1000), stdout=self.output, nosigint=True
        )
        self.debugger.use_rawinput = False
        for function in (work.leaf, work.fail):
            assert self.debugger.set_break(FILE, function.__code__.co_firstlineno + 1) is None
        self.debugger.set_trace(sys._getframe())

    def stop(self):
        self.debugger.clear_all_breaks()
        self.debugger.set_continue()
        sys.settrace(None)

    def seen(self):
        lines = self.output.getvalue().splitlines()
        return [line.rpartition("/")[2] for line in lines if f"> {FILE}" in line]


class Coverage:
    """Lines that were executed."""

    core = "ctrace"

    def start(self):
        import coverage

        os.environ["COVERAGE_CORE"] = self.core
        self.coverage = coverage.Coverage(
            data_file=None, include=[FILE], config_file=False, messages=False
        )
        self.coverage.start()

    def stop(self):
        self.coverage.stop()

    def seen(self):
        return sorted(self.coverage.get_data().lines(FILE) or ())


class CoverageMonitoring(Coverage):
    core = "sysmon"


class VizTracer:
    """Calls, in their order."""

    def start(self):
        import viztracer

        self.tracer = viztracer.VizTracer(verbose=0, output_file=os.devnull)
        self.tracer.start()

    def stop(self):
        self.tracer.stop()
        threading.setprofile(None)  # it leaves its own there on 3.11

    def seen(self):
        self.tracer.parse()
        events = [
            e for e in self.tracer.data["traceEvents"] if e["ph"] == "X" and FILE in e["name"]
        ]
        events.sort(key=lambda e: e["ts"])
        names = [e["name"].partition(" ")[0] for e in events]
        return [name for name in names if name in NAMES]


class Yappi:
    """Calls, by function."""

    def start(self):
        import yappi

        yappi.clear_stats()
        yappi.start(builtins=True)

    def stop(self):
        import yappi

        yappi.stop()

    def seen(self):
        import yappi

        stats = yappi.get_func_stats()
        return {
            s.name: s.ncall for s in sorted(stats, key=str) if s.module == FILE and s.name in NAMES
        }


class Memray:
    """Blocks of the sizes that the parts ask for, and the functions that asked."""

    def start(self):
        import memray

        self.path = tempfile.mktemp(suffix=".memray")
        self.tracker = memray.Tracker(self.path, trace_python_allocators=True)
        self.tracker.__enter__()

    def stop(self):
        self.tracker.__exit__(None, None, None)

    def seen(self):
        import memray

        sizes = {work.size_of(part) for part in range(work.PARTS)}
        found = Counter()
        with memray.FileReader(self.path) as reader:
            for record in reader.get_allocation_records():
                if record.size in sizes:
                    stack = [name for name, file, _ in record.stack_trace() if file == FILE]
                    found[f"{record.size} {stack}"] += 1
        os.unlink(self.path)
        return dict(sorted(found.items()))


class TraceMalloc:
    """Blocks that are alive, by line."""

    def start(self):
        import tracemalloc

        tracemalloc.start()

    def stop(self):
        import tracemalloc

        trace = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, FILE)])
        tracemalloc.stop()
        sizes = {work.size_of(part) for part in range(work.PARTS)}
        self.found = sorted(
            [s.size, s.count, s.traceback[0].lineno]
            for s in trace.statistics("lineno")
            # With what its list needs.
            if any(size <= s.size < size + 1000 for size in sizes)
        )

    def seen(self):
        return [line for _, _, line in self.found]


class LineProfiler:
    """Hits, by line."""

    def start(self):
        from line_profiler import LineProfiler

        self.profiler = LineProfiler()
        for name in ("leaf", "generate", "fail", "recurse", "body", "in_thread"):
            self.profiler.add_function(getattr(work, name))
        self.profiler.enable_by_count()

    def stop(self):
        self.profiler.disable_by_count()

    def seen(self):
        timings = self.profiler.get_stats().timings
        return {
            name: [[a, b] for a, b, _ in lines] for (_, _, name), lines in sorted(timings.items())
        }


class Nothing:
    """PYTHONMALLOC=debug, which is in the environment."""

    def start(self):
        pass

    stop = start

    def seen(self):
        return None


class Recorder:
    """Calls in their order, with callers and lines, and the blocks of the parts; eventprof itself."""

    def __init__(self, backend="auto"):
        self.recorder = raw.recorder(raw.ALL, backend=backend)

    def start(self):
        self.recorder.start()

    def stop(self):
        self.recorder.stop()

    def seen(self):
        return seen_of(raw.rows(self.recorder, is_of_work))


def is_of_work(name, module, file, line, sort):
    return file == FILE or sort == "c"


def seen_of(rows):
    sizes = {work.size_of(part): part for part in range(work.PARTS)}
    main, others, blocks = [], [], []
    first = None
    for row in rows:
        ours = (row.file == FILE and row.name in NAMES) or (
            row.sort == "c" and row.name in ("abs", "len", "sum") and row.caller in NAMES
        )
        if row.size in sizes and row.word in ("malloc", "calloc", "realloc"):
            blocks.append([sizes[row.size], row.word, row.name, row.line])
        elif ours and row.word in raw.OPENING | raw.CLOSING:
            first = row.thread if first is None else first
            # What opened knows its caller.
            event = [row.word, row.name]
            if row.word in raw.OPENING and row.caller in NAMES:
                event += [row.caller, row.caller_line]
            (others if "thread" in (row.name or "") or row.thread != first else main).append(event)
    return {"calls": main, "in threads": others, "blocks": blocks}


TOOLS = {
    "cProfile": CProfile,
    "sys.setprofile": SetProfile,
    "sys.settrace": SetTrace,
    "pdb": Pdb,
    "coverage (C tracer)": Coverage,
    "coverage (sysmon)": CoverageMonitoring,
    "VizTracer": VizTracer,
    "yappi": Yappi,
    "memray": Memray,
    "tracemalloc": TraceMalloc,
    "line_profiler": LineProfiler,
    "eventprof": Recorder,
    "PYTHONMALLOC=debug": Nothing,
    "tracemalloc, PYTHONMALLOC=debug": TraceMalloc,
}
MODULES = {
    "coverage (C tracer)": "coverage",
    "coverage (sysmon)": "coverage",
    "VizTracer": "viztracer",
    "yappi": "yappi",
    "memray": "memray",
    "line_profiler": "line_profiler",
}


def is_here(tool):
    if tool == "coverage (sysmon)" and not raw.HAS_MONITORING:
        return False
    module = MODULES.get(tool)
    return module is None or importlib.util.find_spec(module) is not None


# ---- A cell --------------------------------------------------------------------------------------------------


def make(who, tool, backend):
    if who == "R" or tool == "eventprof":
        return Recorder(backend)
    return TOOLS[tool]()


def play(tool, order, backend, only=""):
    """Starts and stops as `order` says, with work before, between and after; then each once more, by itself.

    Returns: what each saw, and what the interpreter's hooks are afterwards. `only`: who takes part.
    """
    players = {who: make(who, tool, backend) for who in "TR"}
    before = raw.hooks()
    displaced = []
    refused = None
    for part, step in enumerate([*order.split(), None]):
        work.run(part)
        if part and players["R"].recorder.state != "new":
            displaced.append(list(players["R"].recorder.displaced))
        if step is None or (only and step[0] != only) or (refused and step[0] == "R"):
            continue
        player = players[step[0]]
        try:
            player.start() if step[1] == "+" else player.stop()
        except _core.ToolInUseError as error:
            refused = str(error)
    out = {"displaced": displaced, "refused": refused}
    with raw.recorder(raw.MEMORY):
        pass  # a layer of ours that another tool had wrapped goes when somebody looks
    after = raw.hooks()
    out["left"] = {
        name: [str(before[name]), str(after[name])]
        for name in before
        if before[name] != after[name]
    }
    for who in only or "TR":
        if who == "T" or refused is None:
            out[who] = players[who].seen()
    for who in only or "TR":
        again = make(who, tool, backend)
        again.start()
        work.run(0)
        again.stop()
        out[f"{who} again"] = again.seen()
    return out


def in_fork(function, *arguments):
    """Returns: what the function returns, or how its process ended."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException):
            signal.alarm(120)
            os.close(reader)
            try:
                out = function(*arguments)
            except BaseException:
                out = {"failed": traceback.format_exc()}
            with os.fdopen(writer, "w") as stream:
                json.dump(out, stream)
            status = 0
        os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as stream:
        text = stream.read()
    _, status = os.waitpid(child, 0)
    if status or not text:
        return {"failed": f"ended with status {os.waitstatus_to_exitcode(status)}"}
    return json.loads(text)


def main(tool):
    if tool in MODULES:
        importlib.import_module(MODULES[tool])
    # Threads and numpy are loaded, and every function has been seen, before anybody looks.
    for part in range(work.PARTS):
        work.run(part)
    for order, backend in itertools.product(ORDERS, raw.BACKENDS):
        cell = {"tool": tool, "order": order, "backend": backend}
        cell["together"] = in_fork(play, tool, order, backend)
        if backend == raw.BACKENDS[0] or tool == "eventprof":
            tool_alone = in_fork(play, tool, order, backend, "T")
        cell["T alone"] = tool_alone
        cell["R alone"] = in_fork(play, tool, order, backend, "R")
        print(json.dumps(cell), flush=True)


# ---- What a cell says ------------------------------------------------------------------------------------------

BOTH, TOLD, YIELDED, REFUSED = "both", "both, told", "yielded", "refused"
MEANING = {
    BOTH: "the tool and eventprof each recorded what they record alone",
    TOLD: "the same, and `Recorder.displaced` said ``alloc`` while the tool's allocator hooks were in front of "
    "eventprof's",
    YIELDED: "the tool recorded what it records alone. It took eventprof's hook; eventprof recorded everything "
    "until then, and said so in `Recorder.displaced`",
    REFUSED: "the tool recorded what it records alone. The tool had the hook, so the start of eventprof raised "
    "`ToolInUseError`",
}
# Tools that take the one hook of PyEval_SetProfile, and tools whose end takes away what lies on their allocator
# hooks.
PROFILE = {"sys.setprofile", "yappi", "memray"} | (
    set() if raw.HAS_MONITORING else {"cProfile", "VizTracer"}
)
ALLOCATORS = {"memray", "tracemalloc", "tracemalloc, PYTHONMALLOC=debug"}


def expected(tool, order, backend):
    """What the rules of the hooks allow: no better is possible."""
    if backend == "profile" and tool in PROFILE:
        if order.startswith("T+ R+"):
            return REFUSED
        if order.startswith("R+ T+"):
            return YIELDED
    if tool in ALLOCATORS:
        if order == "T+ R+ T- R-":
            return YIELDED
        if order.startswith("R+ T+"):
            return TOLD
    return BOTH


def by_part(events):
    """The events of each part; what is not in one is an error."""
    parts = {}
    for event in events:
        name = event[1] if isinstance(event[0], str) else f"part_{event[0]}"
        if name[-2:-1] == "_":  # part_0, thread_0
            part = int(name[-1])
        parts.setdefault(part, []).append(event)
    return parts


def verdict(cell):
    """One of MEANING, and what is wrong."""
    wrong = []
    together, alone = cell["together"], {who: cell[f"{who} alone"] for who in "TR"}
    for who, run in (("together", together), *alone.items()):
        if "failed" in run:
            wrong.append(f"{who}: {run['failed']}")
        elif run["left"]:
            wrong.append(f"{who}: hooks are left: {run['left']}")
    if wrong:
        return "failed", wrong
    for key in ("T", "T again", "R again"):
        if together[key] != alone[key[0]][key]:
            wrong.append(f"{key}: {together[key]}, but alone {alone[key[0]][key]}")
    order = cell["order"].split()
    start, end = order.index("R+") + 1, order.index("R-")
    for sort, events in alone["R"]["R"].items():
        if [*by_part(events)] != [*range(start, end + 1)]:
            wrong.append(f"alone, {sort} are of parts {[*by_part(events)]}, not {start} to {end}")
    if not alone["T"]["T"] and TOOLS[cell["tool"]] is not Nothing:
        wrong.append(f"the tool sees nothing alone: {alone['T']['T']}")
    if any(alone["R"]["displaced"]):
        wrong.append(f"displaced by nobody: {alone['R']['displaced']}")
    if together["refused"]:
        return REFUSED, wrong
    displaced = together["displaced"]
    if together["R"] == alone["R"]["R"]:
        return (TOLD if any(displaced) else BOTH), wrong

    # What is missing is whole parts, in which eventprof did not have the hook, and it says so ever after.
    came, went = order.index("T+") + 1, order.index("T-") + 1
    for sort, source in (("calls", "profile"), ("in threads", "profile"), ("blocks", "alloc")):
        ours, all_of_it = by_part(together["R"][sort]), by_part(alone["R"]["R"][sort])
        for part in range(start, end + 1):
            both_on = came <= part < went
            if ours.get(part) == all_of_it.get(part):
                continue
            if part in ours:
                wrong.append(
                    f"R: {sort} of part {part}: {ours[part]}, but alone {all_of_it.get(part)}"
                )
            # Calls are the tool's from its start, blocks are gone with its end.
            if part < came if source == "profile" else part < went or both_on:
                wrong.append(f"R: {sort} of part {part} are missing, where eventprof had the hook")
            if any(source not in sources for sources in displaced[-(len(order) + 1 - part) :]):
                wrong.append(f"R: {sort} of part {part} are missing, displaced says {displaced}")
        if not ours.keys() <= all_of_it.keys():
            wrong.append(f"R: {sort} of parts {ours.keys() - all_of_it.keys()}, when it was off")
    return YIELDED, wrong


# ---- The page ----------------------------------------------------------------------------------------------------


def versions():
    """What was used."""
    import importlib.metadata

    found = {}
    for name in sorted({*MODULES.values()}):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def page(directory):
    """doc/coexistence.rst, of the results that test_coexistence.py left in a directory."""
    results = [
        json.loads(path.read_text()) for path in sorted(Path(directory).glob("neighbours-*.json"))
    ]
    results.sort(key=lambda result: [int(n) for n in result["python"].split(".")])
    rows = {}
    used = {}
    for result in results:
        minor = result["python"].rpartition(".")[0]
        for tool, order, backend, word in result["cells"]:
            rows.setdefault((tool, backend), {}).setdefault(order, {}).setdefault(word, []).append(
                minor
            )
        for name, version in result["versions"].items():
            used.setdefault(name, set()).add(version)
    pythons = [result["python"] for result in results]
    minors = [python.rpartition(".")[0] for python in pythons]
    cells = sum(len(result["cells"]) for result in results)
    packages = ", ".join(f"{name} {' and '.join(sorted(v))}" for name, v in sorted(used.items()))

    def words(by_word):
        if len(by_word) == 1:
            return next(iter(by_word))
        return "; ".join(f"{word} ({', '.join(on)})" for word, on in by_word.items())

    out = [
        "Beside other tools",
        "==================",
        "",
        ".. Written by tests/python/other_tools/neighbours.py --page; change that.",
        "",
        "Many tools watch the interpreter. Here each of them runs beside a recorder of calls and memory, started and stopped in",
        "every order: ``T`` is the tool, ``R`` the recorder, ``+`` a start, ``-`` a stop. Between these steps a program runs: calls,",
        "recursion, generators, exceptions, threads, and blocks of sizes that occur only once.",
        "",
        "The cells mean:",
        "",
    ]
    for word, meaning in MEANING.items():
        out += [
            f"{word}",
            *textwrap.wrap(f"{meaning}.", 108, initial_indent="    ", subsequent_indent="    "),
        ]
    out += [
        "",
        "In no cell did a program crash. Afterwards the interpreter's hooks were as before, and the tool and the recorder, each",
        "started once more alone, recorded what they record alone. If a cell differs between CPythons, it names them.",
        "",
        ".. list-table::",
        "   :header-rows: 1",
        "   :class: longtable",
        "",
        "   * - tool",
        "     - backend",
    ]
    out += [f"     - {order}" for order in ORDERS]
    for tool, backend in sorted(rows, key=lambda key: ([*TOOLS].index(key[0]), key[1])):
        orders = rows[tool, backend]
        on = sorted(
            {minor for by in orders.values() for m in by.values() for minor in m}, key=minors.index
        )
        which = backend if on == minors else f"{backend} ({', '.join(on)})"
        out += [f"   * - {tool}", f"     - {which}"]
        out += [f"     - {words(orders[order])}" for order in ORDERS]
    out += [
        "",
        "On CPython 3.12 and later ``monitoring`` is the default; ``profile`` was chosen by ``backend=``.",
        "When tracemalloc and memray stop, they restore the allocators that they found when they started. So they remove the",
        "hooks of a recorder that started later.",
        "",
        "VizTracer on 3.11 leaves its function in ``threading.setprofile()``, also without a recorder; the test removes",
        "the function.",
        "",
        "How it was made",
        "---------------",
        "",
        *textwrap.wrap(
            f"By ``tests/python/other_tools/test_coexistence.py`` itself, with CPython {', '.join(pythons)}: {cells} cells, each in a "
            f"process of its own, compared with runs of the tool alone and of the recorder alone, with {packages}. The "
            "test fails where a cell is not what the hooks' rules allow. To make it again, with those packages installed:",
            118,
        ),
        "",
        ".. code-block:: console",
        "",
        "   $ python -m pytest tests/python/other_tools/test_coexistence.py --neighbours=DIR    # with each CPython",
        "   $ PYTHONPATH=tests/python/helpers python tests/python/other_tools/neighbours.py --page DIR",
        "",
    ]
    Path(__file__).parents[3].joinpath("doc/coexistence.rst").write_text("\n".join(out))


if __name__ == "__main__":
    if sys.argv[1] == "--page":
        page(sys.argv[2])
    else:
        main(sys.argv[1])
