"""How long does a dataset of a thousand processes take to answer, and how much of it is read?

A recording is converted once, and its files are written again as those of so many processes, each
with an id of its own: the 8 bytes of the id are replaced in the finished file, so encoding, row
groups and statistics are those of a converted recording. Then an engine answers: top functions,
percentiles, slowest calls, peak by process. The bytes that are read are those that the system says
of this process. ``python benchmarks/datasets.py RECORDING --processes 1000 --without allocations``

``python benchmarks/datasets.py --real 108 72 --folder EMPTY`` makes no row twice: a real program
(highlighting.py) runs twice, with 108 and 72 processes. They are recorded, packed while they run,
and converted one after the other. The answers of some of them are compared with those of their
recordings, to the unit. In that folder a recording or dataset that is there already is used.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet

import eventprof
from eventprof.datasets.ids import text_id


def repeat(source: Path, target: Path, processes: int, without: list[str]) -> None:
    """Write a dataset of one recording again, as that of many."""
    shutil.copy(source / "dataset.json", target / "dataset.json")
    (name,) = (path.stem for path in (source / "processes").iterdir())
    old = int(name, 16).to_bytes(8, "little")
    ids = [text_id("simulated", number).to_bytes(8, "little", signed=True)
           for number in range(processes)]  # fmt: skip
    for folder in filter(Path.is_dir, source.iterdir()):
        if folder.name in without:
            continue
        (target / folder.name).mkdir()
        whole = (folder / f"{name}.parquet").read_bytes()
        for process in ids:
            named = target / folder.name / f"{int.from_bytes(process, 'little'):016x}.parquet"
            named.write_bytes(whole.replace(old, process))
        found = pyarrow.parquet.read_table(named, columns=["process"], partitioning=None)
        wanted = int.from_bytes(process, "little", signed=True)
        assert not len(found) or found["process"].unique().to_pylist() == [wanted]


def bytes_read() -> int:
    """Return what this process read from files so far."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["rchar"])


def ask(path: Path, engine: str, rounds: int, partials: bool) -> None:
    """Ask a dataset, and print the least time of so many rounds."""
    answers = {
        "top functions": lambda found: found.functions.top("self", 10),
        "percentiles": lambda found: found.functions["p95"],
        "peak by process": lambda found: found.holders("process"),
        "tree": lambda found: found.tree,
    }
    if not partials:
        answers["slowest calls"] = lambda found: found.slowest(100)
        one = eventprof.dataset(path, engine).functions.top("calls", 1)["name"][0]
        for count in (10, 100, 10_000):
            answers[f"{count:,} of one"] = lambda found, n=count: found.slowest(n, one)
    for name, answer in answers.items():
        best: list[tuple[float, float, float]] = []
        for _ in range(rounds):
            found = eventprof.dataset(path, engine)
            before, began, cpu = bytes_read(), time.perf_counter(), time.process_time()
            answer(found)
            best.append((time.perf_counter() - began, time.process_time() - cpu,
                         (bytes_read() - before) / 1e6))  # fmt: skip
        spent, cpu, read = map(min, zip(*best, strict=True))
        print(f"{name:15} {spent:6.2f} s, {cpu:6.2f} s of the processors, {read:8.1f} MB read",
              flush=True)  # fmt: skip


def spawned(*command: str | Path) -> tuple[float, float, float]:
    """Run eventprof: seconds, seconds of the processors, and the most MiB that a process had."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-m", "eventprof", *map(str, command)], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - began, cpu, after.ru_maxrss / 1024


def real(folder: Path, runs: list[int], given: argparse.Namespace) -> None:
    """Record runs of a real program with so many processes, convert, ask, and compare."""
    recorded, made = [folder / f"real-{run}.epd" for run in range(len(runs))], folder / "dataset"
    for path, processes in zip(recorded, runs, strict=True):
        if path.exists():
            continue
        program = Path(__file__).with_name("highlighting.py")
        spent, cpu, _ = spawned("run", "--quiet", "--archive", "--on-full", "grow", "-o", path,
                                program, "--tasks", str(processes), "--files", "10")  # fmt: skip
        print(f"recorded    in {spent:.0f} s, {cpu:.0f} s of the processors", flush=True)
    converted = None
    if not made.exists():
        converted = spawned("dataset", *recorded, "-o", made, "--jobs", str(given.jobs))
    found = eventprof.dataset(made, given.engine)
    events = int(found.processes["events"].sum())
    files = [file for path in recorded for file in path.glob("*.epr")]
    size = sum(path.stat().st_size for path in files)
    print(
        f"recorded    {events:,} events of {len(files)} processes, {size / events:.2f} bytes each"
    )
    print(found.headline())
    size = sum(path.stat().st_size for path in made.rglob("*.parquet"))
    print(f"dataset     {size / 1e9:.2f} GB, {size / events:.2f} bytes an event")
    if converted:
        spent, cpu, most = converted
        print(f"converted   in {spent:.0f} s, {events / cpu / 1e6:.1f} M/s a core, "
              f"{most:.0f} MiB of memory at most", flush=True)  # fmt: skip
    ask(made, given.engine, given.rounds, partials=False)
    rows = sum(found.sql(f"SELECT count(*) FROM {table}").fetchall()[0][0]
               for table in ("slices", "allocations"))  # fmt: skip
    print(f"rows        {rows:,} calls and blocks")
    picked = random.Random(1).sample(range(len(found.processes)), given.compare)
    for row in picked:
        compare(found, row)
    print(f"compared    {given.compare} processes with their recordings: equal")


def compare(found: Any, row: int) -> None:
    """Compare the answers of a process with those of its recording."""
    process, file, events, peak = (
        found.processes[name][row] for name in ("process", "file", "events", "peak")
    )
    one, trace = found.only(int(process)), eventprof.open(file)
    calls, blocks = trace.calls, trace.allocations
    assert events == trace._facts["events"] == len(trace.events)
    assert peak == trace.peak().bytes
    keys = ("name", "module", "file", "line")
    sums = ("calls", "total", "self", "waited", "allocated", "freed", "blocks", "live", "at_peak")

    def by_function(table: Any) -> dict[Any, Any]:
        names = zip(*(np.ma.filled(table[key], -1).tolist() for key in keys), strict=True)
        values = np.stack([np.asarray(table[name]) for name in sums]).T.tolist()
        added: dict[Any, Any] = {}
        for name, new in zip(names, values, strict=True):
            old = added.get(name, [0] * len(sums))
            added[name] = [a + b for a, b in zip(old, new, strict=True)]
        return {name: each for name, each in added.items() if any(each)}

    assert by_function(one.functions) == by_function(trace.functions)
    longest = np.sort(calls["duration"])[::-1][:2000]
    assert one.slowest(2000)["duration"].tolist() == longest.tolist()
    for table, values in (("slices", calls["duration"]), ("allocations", blocks["size"])):
        column = "duration" if table == "slices" else "size"
        read = one.rows(table, ("start", column))
        assert (read["start"] == (calls if table == "slices" else blocks)["start"]).all()
        assert int(read[column].sum()) == int(values.sum())
        assert (np.sort(read[column]) == np.sort(values)).all()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recording", nargs="?")
    parser.add_argument("--processes", type=int, default=1000)
    parser.add_argument("--partials", action="store_true")
    parser.add_argument("--engine", default="duckdb")
    parser.add_argument("--without", nargs="*", default=[], help="tables that need not be repeated")
    parser.add_argument("--rounds", type=int, default=1, help="ask so often, and print the least")
    parser.add_argument("--real", type=int, nargs="+", metavar="N",
                        help="record runs of a real program with so many processes")  # fmt: skip
    parser.add_argument("--jobs", type=int, default=1, help="convert so many of them at a time")
    parser.add_argument("--compare", type=int, default=5, help="compare so many of them")
    parser.add_argument(
        "--folder", help="an empty folder, in which all stays; without, all is removed"
    )
    given = parser.parse_args()
    kept = contextlib.nullcontext(given.folder) if given.folder else tempfile.TemporaryDirectory()
    with kept as folder:
        if given.real:
            real(Path(folder), given.real, given)
            return
        source, target = Path(folder, "one"), Path(folder, "many")
        target.mkdir(parents=True)
        began = time.perf_counter()
        cpu = time.process_time()
        problems = eventprof.write_dataset(given.recording, source, rows=not given.partials)
        assert not problems, problems
        spent, cpu = time.perf_counter() - began, time.process_time() - cpu
        events = int(eventprof.dataset(source, given.engine).processes["events"][0])
        print(
            f"converted   {events:,} events in {spent:.2f} s, {events / cpu / 1e6:.1f} M/s a core"
        )
        repeat(source, target, given.processes, given.without)
        size = sum(path.stat().st_size for path in target.rglob("*.parquet"))
        print(f"simulated   {events * given.processes:,} events of {given.processes:,} processes, "
              f"{size / 1e9:.2f} GB")  # fmt: skip
        ask(target, given.engine, given.rounds, given.partials)


if __name__ == "__main__":
    main()
