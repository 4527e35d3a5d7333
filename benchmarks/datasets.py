"""How long does a dataset of a thousand processes take to answer, and how much of it is read?

A recording is converted once, and its rows are written again as those of so many processes, each
with an id and a path of its own in the tree. Then DuckDB answers: top functions, percentiles,
slowest calls, peak by process. The bytes that are read are those that the system says of this
process. ``python benchmarks/datasets.py RECORDING --processes 1000``
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet

import eventprof
from eventprof.datasets.ids import text_id


def repeat(source: Path, target: Path, processes: int) -> None:
    """Write a dataset of one recording again, as that of many."""
    shutil.copy(source / "dataset.json", target / "dataset.json")
    for folder in filter(Path.is_dir, source.iterdir()):
        (target / folder.name).mkdir()
        (path,) = folder.glob("*.parquet")
        rows = pyarrow.parquet.read_table(path, partitioning=None)
        for number in range(processes):
            process = text_id("simulated", number)
            ids = pyarrow.array(np.full(len(rows), process, dtype=np.int64))
            part = rows.set_column(0, "process", ids)
            out = target / folder.name / f"{number:016x}.parquet"
            pyarrow.parquet.write_table(part, out, compression="zstd", row_group_size=1 << 17)


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
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "one"), Path(folder, "many")
        target.mkdir()
        began = time.perf_counter()
        cpu = time.process_time()
        problems = eventprof.write_dataset(given.recording, source, rows=not given.partials)
        assert not problems, problems
        spent, cpu = time.perf_counter() - began, time.process_time() - cpu
        events = int(eventprof.dataset(source, given.engine).processes["events"][0])
        print(
            f"converted   {events:,} events in {spent:.2f} s, {events / cpu / 1e6:.1f} M/s a core"
        )
        repeat(source, target, given.processes)
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
            answers["slowest of one"] = lambda found: found.slowest(
                100, found.functions.top("self", 1)["name"][0]
            )
        for name, answer in answers.items():
            found = eventprof.dataset(target, given.engine)
            before, began = bytes_read(), time.perf_counter()
            answer(found)
            spent = time.perf_counter() - began
            print(f"{name:15} {spent:6.2f} s  {(bytes_read() - before) / 1e6:8.1f} MB read")


if __name__ == "__main__":
    main()
