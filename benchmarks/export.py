"""Every export of 1 M calls: processor time, bytes, memory; beside VizTracer saving the same.

    python benchmarks/export.py [--calls N] [--memory]

Each line is the best of three, one after the other; VizTracer's come between. Memory is the peak of
a fresh process that exports once, beyond what it had when all columns of the trace were there and
it had exported a trace of some calls.
"""

from __future__ import annotations

import argparse
import gzip
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import eventprof
from eventprof.export import FORMATS, TABLES


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def work(calls):
    while calls > 0:
        fib(20)  # 21,891 calls
        [str(k) for k in range(1000)]
        calls -= 22_892


def resident(what):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(what)) << 10


def measure(run):
    """Return seconds of the processor and how many bytes more were resident."""
    before = resident("VmRSS")
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak is now
    except OSError:
        before = resident("VmHWM")
    begin = time.process_time()
    run()
    return time.process_time() - begin, max(resident("VmHWM") - before, 0)


def forget(trace):
    """Drop the tree of calls, which would be there for the next format."""
    for name in ("_tree", "functions"):
        trace.__dict__.pop(name, None)


def load(trace):
    """Make all columns of all tables."""
    for name in TABLES:
        for column in getattr(trace, name)._columns.values():
            column.values()


def fresh(archive, word):
    """Print the memory that one export takes in this process."""
    trace = eventprof.open(archive)
    load(trace)
    with eventprof.record(memory=False) as rec:
        fib(5)
    with tempfile.TemporaryDirectory() as folder:
        # Pages of the libraries come when their code is first executed.
        rec.trace.export(Path(folder) / f"small.{word}", word)
        print(measure(lambda: trace.export(Path(folder) / f"out.{word}", word))[1])


def memory_of(archive, word):
    command = [sys.executable, __file__, "--fresh", str(archive), word]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def viztracer_save(calls, path):
    try:
        from viztracer import VizTracer
    except ImportError:
        return None
    tracer = VizTracer(tracer_entries=2 * calls, verbose=0)
    tracer.start()
    work(calls)
    tracer.stop()
    found = measure(lambda: tracer.save(str(path)))
    tracer.clear()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--memory", action="store_true", help="record allocations, too")
    parser.add_argument("--formats", help="only these, as perfetto,chrome; otlp takes minutes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fresh", nargs=2, metavar=("ARCHIVE", "FORMAT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fresh:
        fresh(*arguments.fresh)
        return
    with eventprof.record(memory=arguments.memory, buffer="2 GiB") as rec:
        work(arguments.calls)
    trace = rec.trace
    calls = len(trace.calls)
    load(trace)
    print(f"{calls:,} calls, {len(trace.events):,} events")
    print(f"{'format':<12}{'seconds':>9}{'M events/s':>12}{'B/call':>9}{'gzip':>7}{'MiB more':>10}")
    best = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(arguments.rounds):
            for word in arguments.formats.split(",") if arguments.formats else FORMATS:
                path = Path(folder) / f"out.{word}"
                forget(trace)
                try:
                    took = measure(
                        lambda path=path, word=word: trace.export(path, word, force=True)
                    )
                except ModuleNotFoundError:
                    continue
                note(best, word, took, path)
            forget(trace)
            note(best, "fold alone", measure(lambda: trace._tree), None)
            path = Path(folder) / "viz.json"
            took = viztracer_save(arguments.calls, path)
            if took is not None:
                note(best, "VizTracer", took, path)
        archive = Path(folder) / "trace.epr"
        trace.save(archive)
        for word in [word for word in best if word in FORMATS]:
            best[word] = (best[word][0], memory_of(archive, word), *best[word][2:])
    for word, (seconds, more, size, zipped) in best.items():
        rate = 2 * calls / seconds / 1e6
        print(
            f"{word:<12}{seconds:>9.3f}{rate:>12.2f}{size / calls:>9.1f}{zipped / calls:>7.1f}"
            f"{more / (1 << 20):>10.0f}"
        )


def note(best, word, took, path):
    if path is None:
        best[word] = (*min(best.get(word, took)[:2], took), 0, 0)
        return
    if word not in best or took[0] < best[word][0]:
        zipped = len(gzip.compress(path.read_bytes(), 1)) if word not in best else best[word][3]
        best[word] = (*took, os.path.getsize(path), zipped)
    path.unlink()


if __name__ == "__main__":
    main()
