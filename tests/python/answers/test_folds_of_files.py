"""Folds read files chunk by chunk: the same answer as from columns, in memory that does not grow."""

from __future__ import annotations

import os
import signal
import threading

import children
import pytest
from amounts import pairs
from folding import WORK, assert_same_without_columns, record, wait_until_gone

import eventprof

#: A fold is C code over a recording, the same on each Python.


@pytest.mark.parametrize("options", [{}, {"memory": False}, {"buffer": "1 MiB"}])
def test_log(tmp_path, options):
    path = tmp_path / "run.epr"
    record(path, **options)

    trace = assert_same_without_columns(path)

    assert trace._facts["events"] > 1000


@pytest.mark.thorough
def test_archive(tmp_path):
    record(tmp_path / "run.epr")
    eventprof.open(tmp_path / "run.epr").save(tmp_path / "archive.epr")

    trace = assert_same_without_columns(tmp_path / "archive.epr")

    assert trace._facts["events"] > 50_000


def test_many_short_threads_that_share_chunks(tmp_path):
    path = tmp_path / "run.epr"
    with eventprof.record(output=path):
        for number in range(60):
            worker = threading.Thread(target=sorted, args=([number, 1],))
            worker.start()
            worker.join()

    assert_same_without_columns(path)


@pytest.mark.thorough
def test_log_of_a_killed_program(tmp_path):
    path = tmp_path / "killed.epr"
    program = WORK + (
        "import eventprof, os, signal\n"
        f"rec = eventprof.record(output={str(path)!r})\n"
        "rec.start()\n"
        "work(5000)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    children.program(program, status=-signal.SIGKILL)

    trace = assert_same_without_columns(path)

    assert trace.file["unfinished"]
    assert trace._facts["events"] > 10_000


def test_log_that_is_damaged(tmp_path):
    path = tmp_path / "run.epr"
    record(path, threads=2)
    size = os.path.getsize(path)
    with open(path, "r+b") as file:
        for where in range(1 << 18, size, 1 << 18):  # some of it in what no event is in
            file.seek(where + 64)
            file.write(b"\xff" * 64)

    trace = assert_same_without_columns(path)

    assert any("damaged" in note for note in trace.file["missing"])


def test_damaged_log_of_one_thread_beside_others(tmp_path):
    path = tmp_path / "run.epr"
    space: dict = {}
    exec(WORK, space)
    worker = threading.Thread(target=space["work"], args=(3000,))
    with eventprof.record(output=path, threads="current"):
        worker.start()
        space["work"](100)
        worker.join()
    wait_until_gone([worker])
    with open(path, "r+b") as file:
        # Of the worker's chunks, too: they are in the file, and not in the trace.
        for where in range(1 << 15, os.path.getsize(path), 1 << 15):
            file.seek(where + 192)
            file.write(b"\xff" * 64)

    assert_same_without_columns(path)


def test_log_that_is_cut_off(tmp_path):
    path = tmp_path / "run.epr"
    record(path)
    os.truncate(path, os.path.getsize(path) // 2)

    assert_same_without_columns(path)


def test_archive_that_is_damaged(tmp_path):
    record(tmp_path / "run.epr")
    path = tmp_path / "archive.epr"
    eventprof.open(tmp_path / "run.epr").save(path)
    size = os.path.getsize(path)
    with open(path, "r+b") as file:
        file.seek(size // 2)
        file.write(b"\xff" * 64)

    passed, decoded = eventprof.open(path), eventprof.open(path)
    decoded._core.events("time")
    passed._core.tree(0, True)

    assert passed._core.facts() == decoded._core.facts()
    assert passed._core.lost() == decoded._core.lost() > 0


@pytest.mark.thorough
def test_what_a_filter_drops_is_dropped(tmp_path):
    path = tmp_path / "run.epr"
    record(path, max_depth=2)

    trace = assert_same_without_columns(path)

    begun = (trace._core.calls("flags") & 1) == 0
    assert trace._core.tree(0, True)["nodes"]["calls"].sum() == begun.sum()


def test_log_whose_program_still_writes(tmp_path):
    path = tmp_path / "run.epr"
    space: dict = {}
    exec(WORK, space)
    with eventprof.record(output=path):
        space["work"](50)
        trace = eventprof.open(path)
        tree = trace._tree

        assert trace.file["live"]
    assert "branch" in {tree.name(node) for node in range(tree.count)}


# ---- Memory --------------------------------------------------------------------------------------

RECORD = (
    WORK
    + """
import eventprof, sys, threading
workers = [
    threading.Thread(target=work, args=(int(sys.argv[2]) // 3,), name=f"worker-{number}")
    for number in range(3)
]
with eventprof.record(output=sys.argv[1], on_full="grow"):
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
"""
)

# In a fork: its peak begins with what is held then.
READ = """
import io, sys
from contextlib import redirect_stdout
from eventprof.cli import main
with redirect_stdout(io.StringIO()) as printed:
    assert main(sys.argv[1:]) == 0
with open("/proc/self/status") as status:
    held = next(line for line in status if line.startswith("VmHWM")).split()[1]
print(held, printed.getvalue().split()[0].replace(",", ""))
"""


@pytest.fixture
def ask(forks, tmp_path):
    """Return what a verb held at most, in KiB, and its first word."""

    def ask(*words):
        done = forks.run(READ, *words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return [int(word) if word.isdigit() else word for word in done.stdout.split()]

    return ask


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """A short and a long recording of three threads: a log and an archive of each."""
    folder = tmp_path_factory.mktemp("recordings")
    for size, count in (("short", 10_000), ("long", 40_000)):
        children.program(RECORD, folder / f"{size}.epr", count)
        eventprof.open(folder / f"{size}.epr").save(folder / f"{size}-archive.epr")
    # Columns alone would take 17 bytes an event, and 24 more a block.
    assert eventprof.open(folder / "long-archive.epr")._facts["events"] > 1_500_000
    return folder


def middle(path):
    """Return when 5,000 events in the middle begin and end: how long they take is the machine's."""
    times = eventprof.open(path).events["time"]
    first = len(times) // 2
    return [f"{times[at]}ns" for at in (first, first + 5000)]


def assert_bounded(kib):
    assert kib["long"] - kib["short"] < 8 * 1024, kib


def exports(word, *options):
    return ["export", "--format", word, "-f", *options]


#: Verbs, with options, that read a recording in memory for nodes and live blocks. From FIRST to LAST
#: each recording has as many events.
BOUNDED = [
    ["tree"],
    ["report", "--short"],
    ["report"],
    ["stats"],
    ["stats", "--sort", "p99"],
    *(exports(word) for word in ("collapsed", "callgrind", "pprof", "pstats")),
    exports("speedscope", "--weight", "self"),
    exports("pprof", "--thread", "worker-1"),
    exports("callgrind", "--function", "leaf"),
    exports("collapsed", "--own"),
    ["flamegraph", "-f", "-o", "graph.html"],
    ["flamegraph", "-f", "-o", "graph.svg"],
    ["heatmap", "-f", "-o", "heat.html"],
    exports("csv", "--table", "events", "--function", "leaf"),
    exports("jsonl", "--table", "events", "--between", "FIRST", "LAST"),
    ["events", "--limit", "50"],
    ["events", "--last", "50", "--json"],
    ["events", "--from", "FIRST", "--to", "LAST", "--csv"],
    ["events", "--event", "gc_start"],
    ["events", "--function", "leaf", "--thread", "worker-2", "--limit", "1000"],
]


needs_proc = pytest.mark.skipif(
    not os.path.exists("/proc/self/status"), reason="needs Linux's /proc"
)


@needs_proc
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("verb", "form"),
    pairs(BOUNDED, ["log", "archive"]),
    ids=lambda given: given if isinstance(given, str) else " ".join(given),
)
def test_memory_does_not_grow_with_the_events(recordings, ask, verb, form):
    ending = "-archive.epr" if form == "archive" else ".epr"
    kib = {}
    for size in ("short", "long"):
        path = recordings / f"{size}{ending}"
        words = dict(zip(("FIRST", "LAST"), middle(path), strict=True)) if "LAST" in verb else {}
        kib[size], _ = ask(*(words.get(word, word) for word in verb), path)
    assert_bounded(kib)


@needs_proc
@pytest.mark.thorough
def test_analyze_takes_rows_only_where_a_rule_needs_them(tmp_path, ask):
    few_own_calls = (
        WORK.replace("kept.append(branch(number))", "kept += [bytes(600), len(kept)]")
        + """
import eventprof, sys
with eventprof.record(output=sys.argv[1], on_full="grow"):
    work(int(sys.argv[2]))
"""
    )
    kib = {}
    for size, count in (("short", 5_000), ("long", 200_000)):
        children.program(few_own_calls, tmp_path / f"{size}.epr", count)
        kib[size], events = ask("analyze", tmp_path / f"{size}.epr")

    assert events > 1_000_000
    assert_bounded(kib)


@needs_proc
@pytest.mark.thorough
@pytest.mark.parametrize(
    "verb",
    [["diff"], ["flamegraph", "-f", "-o", "graph.html", "--diff"]],
    ids=["diff", "flamegraph"],
)
def test_two_traces_are_compared_without_columns(recordings, ask, verb):
    paths = {size: recordings / f"{size}.epr" for size in ("short", "long")}

    assert_bounded({size: ask(*verb, path, path)[0] for size, path in paths.items()})


QUESTIONS = """
import sys
import eventprof
trace = eventprof.open(sys.argv[1])
peak, leaks, brief = trace.peak(), trace.leaks(), trace.temporary()
rows = [len(peak.by_site), len(peak.by_function), len(peak.by_stack), trace.functions["p95"][0], len(leaks), len(brief), trace.functions.top("self", 3)]
with open("/proc/self/status") as status:
    print(next(line for line in status if line.startswith("VmHWM")).split()[1])
"""


@needs_proc
@pytest.mark.thorough
def test_peak_leaks_and_temporary_need_no_columns(recordings, forks):
    assert_bounded(
        {
            size: int(forks.run(QUESTIONS, recordings / f"{size}.epr").stdout)
            for size in ("short", "long")
        }
    )
