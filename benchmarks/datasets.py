"""How long does a dataset of a thousand processes take to answer, and how much of it is read?

A recording is converted once, and its files are written again as those of so many processes, each
with an id of its own: the 8 bytes of the id are replaced in the finished file, so encoding, row
groups and statistics are those of a converted recording. Then an engine answers: top functions,
percentiles, slowest calls, peak by process. The bytes that are read are those that the system says
of this process. ``python benchmarks/datasets.py RECORDING --processes 1000 --without allocations``
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import tempfile
import time
from pathlib import Path

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
    """Give what this process read from files so far."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["rchar"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recording")
    parser.add_argument("--processes", type=int, default=1000)
    parser.add_argument("--partials", action="store_true")
    parser.add_argument("--engine", default="duckdb")
    parser.add_argument("--without", nargs="*", default=[], help="tables that need not be repeated")
    parser.add_argument(
        "--folder", help="an empty folder, in which all stays; without, all is removed"
    )
    given = parser.parse_args()
    kept = contextlib.nullcontext(given.folder) if given.folder else tempfile.TemporaryDirectory()
    with kept as folder:
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
        answers = {
            "top functions": lambda found: found.functions.top("self", 10),
            "percentiles": lambda found: found.functions["p95"],
            "peak by process": lambda found: found.holders("process"),
            "tree": lambda found: found.tree,
        }
        if not given.partials:
            answers["slowest calls"] = lambda found: found.slowest(100)
            one = eventprof.dataset(source, given.engine).functions.top("calls", 1)["name"][0]
            for count in (10, 100, 10_000):
                answers[f"{count:,} of one"] = lambda found, n=count: found.slowest(n, one)
        for name, answer in answers.items():
            found = eventprof.dataset(target, given.engine)
            before, began, cpu = bytes_read(), time.perf_counter(), time.process_time()
            answer(found)
            spent, cpu = time.perf_counter() - began, time.process_time() - cpu
            read = (bytes_read() - before) / 1e6
            print(f"{name:15} {spent:6.2f} s, {cpu:6.2f} s of the processors, {read:8.1f} MB read")


if __name__ == "__main__":
    main()
