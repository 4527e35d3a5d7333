"""The test suites of others, with and without eventprof: each case is to end the same way.

    python tools/long/regression.py                  CPython's own tests, of the Python that runs this
    python tools/long/regression.py test_gc ...      these modules of them
    python tools/long/regression.py --packages DIR   attrs, click, jinja2, sqlalchemy (sources unpacked in DIR), numpy
    python tools/long/regression.py --applications   programs that use packages, those that are installed: see
                                                       applications.py
    python tools/long/regression.py --page           writes doc/regression.rst of the results kept so far

Some builds of Python come without some of these modules: --lacking DIR says where to take them from.

Run by the Python that has eventprof. Each suite runs twice, in turn: `python -m test NAME` and `python -m
eventprof run -m test NAME`, calls and memory on, as a process of its own with a limit on its time; the results
are compared by case (JUnit's XML), and by exit status. What differs is run again on both sides: tests of threads
and times fail now and then on a busy machine. A difference is a case that ended, under eventprof, in a way in
which it never ended without; how it ends under `python -m cProfile` is kept as well. It fails this script, unless
EXPLAINED names it.

test_monitoring asserts before each of its cases that nobody monitors anything. So it runs once more with our tool
hidden from it (HIDING), beside a stand-in in Python that asks for the same events and records nothing.
"""

from __future__ import annotations

import argparse
import atexit
import concurrent.futures
import fnmatch
import importlib.metadata
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
import time
import xml.etree.ElementTree as tree
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import applications

ROOT = Path(__file__).resolve().parents[2]
FREE = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""  # as in 3.13t
VERSION = "{}.{}{}".format(*sys.version_info[:2], FREE)

CPYTHON = """
test_sys_setprofile test_sys_settrace test_monitoring test_gc test_generators test_coroutines test_exceptions
test_tracemalloc test_weakref test_descr test_functools test_itertools test_capi test_threading test_thread test_fork1
test_json test_re test_pickle test_decimal test_sqlite3 test_ctypes test_tempfile test_subprocess test_asyncio
test_concurrent_futures test_multiprocessing_fork
""".split()
CPYTHON.insert(CPYTHON.index("test_monitoring") + 1, "test_monitoring, hidden")

# Both sides run without them: case (a pattern) of module and Python, and why.
LEFT_OUT = {
    ("test_capi", "3.11"): (
        "*test_pendingcalls_threaded",
        "It hangs now and then under any profile hook, cProfile's too: in 3.11, a call that is traced waits in a loop "
        "for pending calls to be done, which are not done inside of a pending call.",
    )
}

# Case (a pattern), and why it ends otherwise under eventprof.
EXPLAINED = [
    (
        "test.test_monitoring.*",
        "Every case first asserts that no tool monitors any event, so it fails beside every tool that does: see below.",
    ),
    (
        "test.test_sys_setprofile.TestEdgeCases.test_method_with_c_function",
        "The interpreter reports the return of a call of sys.setprofile() to the function that the call has just set, if "
        "calls are monitored at that place already.",
    ),
    (
        "test.test_tracemalloc.TestTracemallocEnabled.test_get_traced_memory",
        "The case asserts that tracemalloc has not one byte after clear_traces(). Where something is monitored, the "
        "interpreter makes an int of 32 bytes for each callback (3.12 and 3.13), here for the call of "
        "get_traced_memory().",
    ),
    (
        "test.test_cmd_line.CmdLineTest.test_[px][yd]*",
        "The case starts a Python and asks for the name of its allocators, which is known only of those that nothing wraps. "
        "That Python is recorded, too.",
    ),
    (
        "test.test_capi.test_mem.*.test_set_nomemory",
        "The case starts a Python in which no memory can be allocated. That Python is recorded, too, and for each callback "
        "of sys.monitoring the interpreter itself allocates, and raises MemoryError where it cannot: with any tool.",
    ),
    (
        "test.test_dis.Dis*",
        "The case asserts that instructions are specialised. Those that are monitored are not, under cProfile neither.",
    ),
    (
        "test.test_opcache.*",
        "As those of test_dis: an instruction that is monitored is not specialised.",
    ),
    (
        "test.test_type_cache.*",
        "As those of test_dis.",
    ),
    (
        "test.test_sys.SysModuleTest.test_debugmallocstats",
        "The case starts a Python and asks for the statistics of its allocator, which are there only if nothing wraps it. "
        "That Python is recorded, too.",
    ),
    (
        "test.test_subprocess.POSIXProcessTestCase.test_*_fds*",
        "The case starts a Python that lists its file descriptors. That Python is recorded, too, into a file that is open.",
    ),
    (
        "test.test_profile.ProfileTest.test_*",
        "Two profilers in one Python. Where calls are monitored at the place of sys.setprofile(), the interpreter reports "
        "the return of that call to the function that it has just set, and ``profile`` asserts that there is no such return; "
        "the cases that fail under cProfile, too, set a profiler of their own in place of it.",
    ),
    (
        "test.test_cprofile.*",
        "As those of test_profile.",
    ),
    (
        "test.test_pdb.*",
        "From 3.13 on pdb stops at the line after set_trace() if that line is monitored already, under cProfile, too.",
    ),
    (
        "test.test_doctest.test_doctest.test_pdb_set_trace*",
        "As those of test_pdb.",
    ),
    (
        "test.test_pathlib.WalkTests.test_walk_above_recursion_limit",
        "The case allows 40 frames, and ``eventprof run`` has some below the program, as ``python -m cProfile`` has.",
    ),
    (
        "test.test_code.Co*",
        "The case asserts that a code object is freed. Code that was called while it was recorded is kept: its address is "
        "the name of the function.",
    ),
    (
        "test.test_audit.AuditTest.test_sys_*",
        "The case starts a Python and compares all of its audit events of one name. That Python is recorded, too, and "
        "eventprof registers its callbacks with sys.monitoring and looks at the caller's module.",
    ),
    (
        "test.test_external_inspection.*.test_remote_stack_trace",
        "The case starts a Python and reads its stack from outside. That Python is recorded, too: the interpreter calls "
        "``f(*args)`` through C where calls are monitored, and what reads a stack from outside ends at the first frame that "
        "C called. It is so with any tool.",
    ),
    (
        "test.test_remote_pdb.PdbConnectTestCase.test_connect_and_basic_commands",
        "As those of test_pdb, of a Python that the case starts: it fails with any tool.",
    ),
    (
        "test.test_sys.TestSysJIT.test_jit_is_active",
        "The case starts a Python and asserts that its loop was compiled by the JIT, which compiles no instructions "
        "that are monitored. That Python is recorded, too; it fails with any tool.",
    ),
]

# Run with test_monitoring's arguments. The tests' own ids, and the checks that nobody else monitors, leave the
# tool `name` aside; after a case that fails, the ids that it used are freed, so that the next is not its victim.
HIDING = """
import sys
from test import test_monitoring as tests

name, *sys.argv[1:] = sys.argv[1:]
monitoring = sys.monitoring
if name == "stand-in":
    events = monitoring.events
    all_of_them = 0
    monitoring.use_tool_id(3, name)
    for event in "PY_START PY_RESUME PY_THROW PY_RETURN PY_YIELD PY_UNWIND CALL C_RETURN C_RAISE".split():
        monitoring.register_callback(3, getattr(events, event), lambda *args: None)
        all_of_them |= getattr(events, event)
    monitoring.set_events(3, all_of_them & ~(events.C_RETURN | events.C_RAISE))
(tool,) = [i for i in range(6) if monitoring.get_tool(i) == name]
real_all, real_get = monitoring._all_events, monitoring.get_events
monitoring._all_events = lambda: {k: v & ~(1 << tool) for k, v in real_all().items() if v & ~(1 << tool)}
monitoring.get_events = lambda i: 0 if i == tool else real_get(i)
tests.TEST_TOOL, tests.TEST_TOOL2, tests.TEST_TOOL3 = [i for i in (2, 1, 4, 5) if i != tool][:3]


def clean_up(self):
    for i in range(6):
        if i != tool:
            if monitoring.get_tool(i) is None:
                monitoring.use_tool_id(i, "clean up")
            monitoring.set_events(i, 0)
            for bit in range(24):
                try:
                    monitoring.register_callback(i, 1 << bit, None)
                except ValueError:
                    pass
            monitoring.free_tool_id(i)


tests.MonitoringTestBase.tearDown = clean_up
from test.libregrtest.main import main

main()
"""


class Suite(NamedTuple):
    """A command that writes JUnit's XML."""

    name: str
    command: list[str]  # what follows `python` or `eventprof run`; {xml} is its file
    directory: str | None = None
    path: str | None = None  # of Python, before the rest
    hidden: bool = False  # the first word of the script's arguments is whom it hides

    def only(self, cases: list[str]) -> list[str]:
        """Its command, for some of its cases."""
        if self.command[:2] == ["-m", "test"]:
            return [*self.command, *(word for case in cases for word in ("-m", case))]
        return self.command


TESTS = Path(sysconfig.get_path("stdlib"), "test")
HIDDEN = "test_monitoring, hidden"


def cpython(name: str, lacking: Path | None) -> Suite | None:
    """A module of CPython's tests; None if it is not there."""
    words = ["--fail-env-changed", "--junit-xml={xml}", name.partition(",")[0]]
    if name == HIDDEN:
        if sys.version_info < (3, 12):
            return None
        return Suite(name, ["-c", HIDING, "{hidden}", *words], hidden=True)

    def holds(directory: Path) -> bool:
        return (directory / f"{name}.py").exists() or (directory / name / "__init__.py").exists()

    command = ["-m", "test", *words]
    if (name, VERSION) in LEFT_OUT:
        command += ["-i", LEFT_OUT[name, VERSION][0]]
    if holds(TESTS):
        return Suite(name, command)
    if lacking is None or not holds(lacking):
        return None
    # The package test, with what it lacks.
    here = Path(tempfile.mkdtemp(prefix="eventprof-lacking-"))
    atexit.register(shutil.rmtree, here, ignore_errors=True)
    (here / "test").mkdir()
    for path in [*TESTS.iterdir(), *lacking.glob(f"{name}*")]:
        link = here / "test" / path.name
        if not link.exists():
            link.symlink_to(path)
    return Suite(name, command, path=os.fspath(here))


def package(name: str, sources: Path) -> Suite:
    pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--junit-xml={xml}"]
    if name == "numpy":
        # Installed with its tests. The rest of them is more of the same, for an hour.
        return Suite(name, [*pytest, "--pyargs", *(f"numpy._core.tests.{m}" for m in NUMPY)])
    (directory,) = (d for d in sources.iterdir() if d.name.lower().startswith(f"{name}-"))
    return Suite(name, [*pytest, *PACKAGES[name]], str(directory))


NUMPY = [
    "test_dtype",
    "test_indexing",
    "test_mem_policy",
    "test_nditer",
    "test_records",
    "test_ufunc",
]
PACKAGES = {
    "attrs": ["tests"],
    "click": ["tests"],
    "jinja2": ["tests"],
    "sqlalchemy": ["test/base", "test/engine"],
    "numpy": [],
}


class Outcome(NamedTuple):
    """How a suite ended."""

    status: str  # exit status, signal, or timeout
    cases: dict[str, str]
    seconds: float
    last_line: str  # eventprof's last line, or the end of the output if there are no cases


BARE, OURS, CPROFILE = "without", "eventprof", "cProfile"


def run(suite: Suite, beside: str, limit_s: float, cases: list[str] | None = None) -> Outcome:
    """Runs a suite once, or some cases of it."""
    work = Path(tempfile.mkdtemp(prefix="eventprof-regression-"))
    try:
        xml = work / "result.xml"
        command = suite.only(cases) if cases else suite.command
        whom = "eventprof" if beside == OURS else "stand-in"
        words = [
            word.replace("{xml}", os.fspath(xml)).replace("{hidden}", whom) for word in command
        ]
        prefix = [sys.executable]
        if beside == OURS:
            prefix += [
                "-m",
                "eventprof",
                "run",
                "--buffer",
                "256 MiB",
                "-o",
                os.fspath(work / "%p.epr"),
            ]
        elif beside == CPROFILE:
            prefix += ["-m", "cProfile", "-o", os.devnull]
        where = work
        if suite.directory:  # a copy: what a run leaves there, another one would find
            where = Path(shutil.copytree(suite.directory, work / "sources"))
        environment = {**os.environ, "TMPDIR": os.fspath(work)}
        if suite.path:
            environment["PYTHONPATH"] = os.pathsep.join(
                [suite.path, *os.environ.get("PYTHONPATH", "").split()]
            )
        started = time.monotonic()
        process = subprocess.Popen(
            [*prefix, *words],
            cwd=where,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit_s)
            code = process.returncode
            status = f"exit {code}" if code >= 0 else signal.Signals(-code).name
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            status = f"timeout of {limit_s:.0f} s"
        seconds = time.monotonic() - started
        found = dict(read(xml)) if xml.exists() else {}
        ours = re.findall(r"^eventprof: .* events? in .*", output, re.M)
        if beside == OURS and not ours and status == "exit 0":
            status = "eventprof said nothing"
        last_line = ours[-1].split("; to look")[0] if ours and found else output[-3000:]
        return Outcome(status, found, seconds, last_line)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def read(xml: Path) -> Iterator[tuple[str, str]]:
    """Case and outcome; a case that runs several times has all of them."""
    found: dict[str, set[str]] = {}
    for case in tree.parse(xml).iter("testcase"):
        # A subtest with an object in its name has the address of that.
        name = re.sub(r"0x[0-9a-f]{6,}", "0x...", case.get("name", ""))
        if case.get("classname"):
            name = f"{case.get('classname')}.{name}"
        ended = {child.tag for child in case if child.tag in ("error", "failure", "skipped")}
        found.setdefault(name, set()).update(ended or {"passed"})
    for name, outcomes in found.items():
        yield name, "+".join(sorted(outcomes))


def compare(
    suite: Suite, limit_s: float, again: int, ours: Outcome | None = None
) -> dict[str, Any]:
    """Runs a suite on both sides; `ours`: how it ended under eventprof. Returns: what is kept of it."""
    bare = run(suite, BARE, limit_s)
    ours = ours or run(suite, OURS, limit_s)
    names = sorted({*bare.cases, *ours.cases})
    without = {name: {bare.cases.get(name, "absent")} for name in names}
    under = {name: {ours.cases.get(name, "absent")} for name in names}

    def differing() -> list[str]:
        return [name for name in names if not under[name] & without[name]]

    for _ in range(again):
        cases = differing()
        if not cases or len(cases) > 50:
            break
        for side, seen in ((BARE, without), (OURS, under)):
            more = run(suite, side, limit_s, cases)
            for name in cases:
                if name in more.cases:
                    seen[name].add(more.cases[name])
    cases = differing()
    under_cprofile = {}
    if cases and not suite.hidden and suite.command[:2] == ["-m", "test"]:
        under_cprofile = run(suite, CPROFILE, limit_s, cases).cases
    flaky = [name for name in names if without[name] != under[name] and name not in cases]
    kept = {
        "status": [bare.status, ours.status],
        "seconds": [round(bare.seconds, 1), round(ours.seconds, 1)],
        "cases": len(names),
        "fails_bare": [n for n in names if without[n] & {"error", "failure", "error+failure"}],
        "recorded": ours.last_line,
        "differences": {
            n: ["|".join(sorted(without[n])), "|".join(sorted(under[n])), under_cprofile.get(n, "")]
            for n in cases
        },
        "unsteady": {n: ["|".join(sorted(without[n])), "|".join(sorted(under[n]))] for n in flaky},
    }
    if (not bare.cases and bare.status != ours.status) or "said nothing" in ours.status:
        kept["output"] = [bare.last_line, ours.last_line]
    return kept


def explained(case: str) -> str | None:
    return next((why for pattern, why in EXPLAINED if fnmatch.fnmatchcase(case, pattern)), None)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("suite", nargs="*", help="modules of CPython's tests, or packages")
    parser.add_argument(
        "--packages", metavar="DIR", type=Path, help="packages; where their sources are"
    )
    parser.add_argument(
        "--lacking", metavar="DIR", type=Path, help="modules that this Python comes without"
    )
    parser.add_argument("--applications", action="store_true", help="programs that use packages")
    parser.add_argument("--page", action="store_true", help="write doc/regression.rst")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=1500, metavar="SECONDS", help="of one run")
    parser.add_argument("--again", type=int, default=3, help="how often what differs is run again")
    parser.add_argument("--results", type=Path, default=ROOT / "build/regression", metavar="DIR")
    given = parser.parse_args()
    if given.page:
        page(given.results)
        return 0
    if given.applications:
        return applications.run_all(given.suite, given.limit, given.results)
    if given.packages:
        suites = [package(name, given.packages) for name in given.suite or PACKAGES]
    else:
        found = {name: cpython(name, given.lacking) for name in given.suite or CPYTHON}
        suites = [suite for suite in found.values() if suite is not None]
        absent = [name for name, suite in found.items() if suite is None]
        if absent:
            print(f"not here: {', '.join(absent)}")
    given.results.mkdir(parents=True, exist_ok=True)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        running = {pool.submit(compare, s, given.limit, given.again): s for s in suites}
        for done in concurrent.futures.as_completed(running):
            suite, kept = running[done], done.result()
            kept["python"] = platform.python_version() + FREE
            kept["package"] = given.packages is not None and importlib.metadata.version(suite.name)
            path = given.results / f"{suite.name.replace(', ', '-')}-{VERSION}.json"
            path.write_text(json.dumps({"suite": suite.name, **kept}, indent=1) + "\n")
            unknown = [case for case in kept["differences"] if not explained(case) or suite.hidden]
            failed += (
                len(unknown)
                + (kept["cases"] == 0)
                + (kept["status"][0] != kept["status"][1] and not kept["differences"])
            )
            print(
                f"{suite.name:28} {kept['cases']:6} cases, {' / '.join(kept['status'])}, "
                f"{' / '.join(map(str, kept['seconds']))} s; {len(kept['differences'])} differ, "
                f"{len(kept['unsteady'])} unsteady, {len(kept['fails_bare'])} fail without",
                flush=True,
            )
            for case in unknown[:20]:
                print(f"    {case}: {' -> '.join(kept['differences'][case])}", flush=True)
    return 1 if failed else 0


# ---- The page ------------------------------------------------------------------------------------------------


def page(directory: Path) -> None:
    """doc/regression.rst."""
    results = [json.loads(path.read_text()) for path in sorted(directory.glob("*.json"))]
    pythons = sorted(
        {r["python"] for r in results},
        key=lambda text: (text.endswith("t"), [int(n) for n in text.rstrip("t").split(".")]),
    )
    by_suite: dict[str, dict[str, Any]] = {}
    for result in results:
        by_suite.setdefault(result["suite"], {})[result["python"]] = result

    def wrap(text: str, indent: str = "") -> list[str]:
        return textwrap.wrap(
            text,
            118,
            initial_indent=indent,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )

    def cell(result: dict[str, Any] | None, version: str | None) -> str:
        if result is None:
            return "not run"
        bare, ours = result["status"]
        differ = len(result["differences"])
        text = f"{result['cases']:,}"
        if result["fails_bare"]:
            text += f", {len(result['fails_bare'])} fail without eventprof, too"
        if result["unsteady"]:
            text += f", {len(result['unsteady'])} with changing results"
        if differ:
            text += f"; **{differ} differ**"
        elif bare != ours and not result["unsteady"]:
            text += f"; **{bare}, then {ours}**"
        return f"{result['package']}: {text}" if result["package"] not in (False, version) else text

    def table(names: list[str]) -> list[str]:
        out = [".. list-table::", "   :header-rows: 1", "", "   * - suite"]
        out += [f"     - {python}" for python in pythons]
        for name in names:
            runs = by_suite[name]
            versions = [r["package"] for r in runs.values() if r["package"]]
            version = max(versions, key=versions.count, default=None)
            out.append(f"   * - {name} {version}" if version else f"   * - ``{name}``")
            out += [f"     - {cell(runs.get(python), version)}" for python in pythons]
        return [*out, ""]

    packages = [name for name in PACKAGES if name in by_suite]
    modules = [name for name in CPYTHON if name in by_suite]
    out = [
        "Other people's tests",
        "====================",
        "",
        ".. Written by tools/long/regression.py --page; change that.",
        "",
        *wrap(
            "A recorded program behaves as it does without a recorder. Test suites show whether that is so: those"
            " of CPython and of five packages. Each suite was run by ``python -m test`` or ``python -m pytest``, "
            "and then by ``eventprof run -m test`` or ``-m pytest`` with calls and memory recorded. The tables "
            "have the number of cases, and how many of them had another result when they were recorded (passed, "
            "failed, an error, skipped; an exit status). A case whose result differed was run again in both ways:"
            " it is counted only if it never had that result without eventprof. The end of this page explains "
            "each difference, and the suite ``test_monitoring, hidden``."
        ),
        "",
        "CPython's own tests",
        "-------------------",
        "",
        *table(modules),
    ]
    if NOTE:
        out += [*wrap(NOTE), ""]
    out += [*WHOLE, ""]
    out += ["Packages", "--------", "", *table(packages)]
    out += [*wrap(PACKAGES_NOTE), "", *applications.section(directory / "applications")]
    out += ["What differs, and why", "---------------------", ""]
    for pattern, why in EXPLAINED:
        where: dict[str, list[str]] = {}
        for name in modules:
            for python, result in by_suite[name].items():
                hits = [c for c in result["differences"] if fnmatch.fnmatchcase(c, pattern)]
                if hits and name != HIDDEN:
                    as_cprofile = [
                        c
                        for c in hits
                        if result["differences"][c][2] == result["differences"][c][1]
                    ]
                    where.setdefault(python, []).append(
                        f"{len(hits)} on {python}, {len(as_cprofile)} of them under cProfile, too"
                    )
        if where:
            out += [
                f"``{pattern}``",
                *wrap(f"{'; '.join(t for ts in where.values() for t in ts)}. {why}", "    "),
            ]
    unknown = [
        f"``{case}`` on {r['python']}: {' -> '.join(r['differences'][case][:2])}"
        for r in results
        for case in r["differences"]
        if not explained(case) or r["suite"] == HIDDEN
    ]
    for (module, version), (pattern, why) in LEFT_OUT.items():
        out += [
            f"``{module}``'s ``{pattern}`` on {version}",
            *wrap(f"Left out with and without eventprof. {why}", "    "),
        ]
    out += [
        "",
        *(
            wrap(f"Not explained: {'; '.join(unknown)}.")
            if unknown
            else wrap("Nothing else differs.")
        ),
    ]
    hidden = by_suite.get(HIDDEN, {})
    if hidden:
        counts = "; ".join(
            f"on {python} {len(r['fails_bare'])} of {r['cases']} cases fail beside this tool, and "
            f"{len(r['differences'])} have another result beside eventprof"
            for python, r in sorted(hidden.items())
        )
        out += [
            "",
            *wrap(
                "In the suite ``test_monitoring, hidden`` the first check of each case, for other tools, is told that there "
                "are none. It was run beside eventprof, and beside a tool of a few lines of Python that asks for the "
                f"same events and does nothing: {counts}. The cases that fail beside both count the return of "
                "``set_events()`` itself, or look for instructions that the interpreter does not use where calls are "
                "monitored."
            ),
        ]
    fails = [
        f"{r['suite']} on {r['python']}: {', '.join(r['fails_bare'])}"
        for r in results
        if r["fails_bare"]
    ]
    fails = [text for text in fails if not text.startswith(HIDDEN)]
    unsteady = [f"``{c}`` ({r['python']})" for r in results for c in r["unsteady"]]
    out += ["", "Not because of eventprof", "-" * 40, ""]
    out += wrap(
        f"Failed without eventprof, and with it: {'; '.join(fails)}."
        if fails
        else "Nothing failed without eventprof."
    )
    out += [""]
    out += wrap(
        f"Results that changed from run to run, in the same way with and without eventprof: {', '.join(unsteady)}."
        if unsteady
        else "No case ended now in one way and now in another."
    )
    events = [
        int(found[1].replace(",", ""))
        for r in results
        if (found := re.search(r"([\d,]+) events", r["recorded"]))
    ]
    out += [
        "",
        *wrap(
            f"{sum(events):,} events were recorded, without those of the processes that were forked."
        ),
    ]
    out += [
        "",
        "To make it again, with eventprof installed:",
        "",
        ".. code-block:: console",
        "",
        "   $ python tools/long/regression.py                   # CPython's tests",
        "   $ python tools/long/regression.py --packages DIR    # the packages, whose sources are in DIR",
        "   $ python tools/long/regression.py --applications    # those whose packages are installed",
        "   $ python tools/long/regression.py --page",
        "",
    ]
    (ROOT / "doc/regression.rst").write_text("\n".join(out))


WHOLE = [
    "CPython's whole suite",
    "---------------------",
    "",
    ".. include:: regression_whole.inc",
]
NOTE = (
    "The builds of 3.11 and 3.12 used here come without ``test_concurrent_futures`` and ``test_multiprocessing_fork``. "
    "They ran these two of 3.13, without the checks for sanitizers, which older versions cannot make. 3.14 and 3.15 "
    "are Debian's, with its packages of the tests. The build of 3.13t comes without tests: it ran those of its sources, "
    "and the modules in C that they need were compiled for it."
)
PACKAGES_NOTE = (
    "All tests of attrs, click and jinja2 were run. Of sqlalchemy, ``test/base`` and ``test/engine`` were run, on sqlite "
    "in memory; its ``test_concurrency_fn`` gives a process ten seconds. "
    f"Of numpy, these were run in ``numpy._core.tests``: {', '.join(f'``{name}``' for name in NUMPY)}. "
    "Nine cases of numpy compile a module, for which meson, ninja and Cython must be installed; on 3.13 they were run "
    "once more with these, and pass with and without eventprof."
)

if __name__ == "__main__":
    sys.exit(main())
