"""What each verb and format costs for recordings of several sizes: processor time, peak memory.

    python benchmarks/bounded.py FOLDER [--events N...] [--kinds WORD...] [--only WORD...]
                                 [--limit MIB] [--write]

FOLDER gets a recording of each size and kind, and costs.json: what is there is not made or measured
again. Each verb runs once a file, in a process of its own. A verb that makes columns in files is
left out if FOLDER's disk has no room for them. Peak is the largest resident set
(ru_maxrss), or that of the small program that starts it, if that is larger. --limit lets a verb
have so much memory and no more, mapped files aside (RLIMIT_DATA): then nothing is measured; which
verbs end otherwise than with 0 is printed, and the status is 1.
--write writes doc/benchmarks-bounded.inc of all costs that FOLDER has.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import NamedTuple

import answers

import eventprof

PAGE = Path(__file__).parents[1] / "doc" / "benchmarks-bounded.inc"

#: What kinds of files there are, and how the page calls them.
KINDS = {
    "log": "From a log file, as a program that is recorded writes it:",
    "packed": "From a packed log file (``eventprof run --archive``):",
    "archive": "From an archive (``eventprof save``):",
}

#: The arguments of each verb, before the file's name; {} stands for a new file, {file} for the
#: recording, {late} for a time close to its end.
VERBS = {
    **{verb: [verb] for verb in ("report", "tree", "stats", "analyze", "verify")},
    "info --json": ["info", "--json"],
    "diff": ["diff", "{file}"],
    "events --limit 50": ["events", "--limit", "50"],
    "events --from": ["events", "--from", "{late}"],
    "events --last 50": ["events", "--last", "50"],
    **{verb: [verb, "-o", "{}"] for verb in ("save", "view", "flamegraph", "heatmap")},
    "dataset --partials": ["dataset", "--partials", "-o", "{}"],
    "dataset": ["dataset", "-o", "{}"],
    **{
        f"export to {word}": ["export", "-o", "{}", "--format", word]
        for word in ("collapsed", "callgrind", "pprof", "pstats", "speedscope", "chrome",
                     "perfetto", "firefox", "csv", "jsonl", "parquet", "arrow", "duckdb", "sqlite")
    },
}  # fmt: skip


#: Verbs that read a recording in passes. All others make columns of it in files.
IN_PASSES = {
    *("report", "tree", "stats", "analyze", "verify", "info --json", "diff", "save"),
    *("events --limit 50", "events --from", "events --last 50"),
    *("flamegraph", "heatmap", "dataset --partials"),
    *(f"export to {word}" for word in ("collapsed", "callgrind", "pprof", "pstats")),
}
#: Bytes an event of columns and of what is written, at most: measured at 10^8.
DISK_BYTES = 150

#: Arrow's allocator first reserves 1 GiB of addresses, which is no memory, but the limit counts it.
NO_RESERVES = {"ARROW_DEFAULT_MEMORY_POOL": "system"}


#: Starts a program and prints what it took. A process begins with the ru_maxrss of the one that
#: started it: this one, which imports little, has less than any verb.
START = """
import os, sys
process = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(process, 0)
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss, os.waitstatus_to_exitcode(status),
      file=sys.stderr)
"""


class Cost(NamedTuple):
    """Seconds of the processor and the peak, in bytes; and how it ended."""

    seconds: float
    peak: int
    status: int


def run(words: list[str], file: Path, limit: int | None) -> Cost:
    """Run a verb in a process of its own, which can have `limit` bytes."""
    late = late_time(file) if "{late}" in words else ""
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        arguments = [word.format(Path(folder) / "out", file=file, late=late) for word in words]
        started = subprocess.run(
            [sys.executable, "-ISc", START, sys.executable, "-m", "eventprof", *arguments, file],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "EVENTPROF_TMPDIR": folder, **(NO_RESERVES if limit else {})},
            preexec_fn=limit and partial(resource.setrlimit, resource.RLIMIT_DATA, (limit, limit)),
        )
    *told, last = started.stderr.splitlines()
    print(*told, sep="\n", end="\n" if told else "", file=sys.stderr)
    seconds, peak, status = last.split()
    return Cost(float(seconds), int(peak) << 10, int(status))


def late_time(file: Path) -> str:
    """Return a time close to the end of a recording."""
    trace = eventprof.open(file)
    trace._core.survey()
    return f"{trace.duration - trace.duration // 10**6}ns"


def recording(folder: Path, kind: str, events: int) -> Path:
    """Return a recording, which is made if it is not there."""
    path = folder / f"{kind}-{events}.epr"
    if path.exists():
        return path
    made = path.with_suffix(".part")
    made.unlink(missing_ok=True)
    if kind == "archive":
        log = recording(folder, "log", events)
        eventprof.open(log).save(made)
    else:
        answers.write(str(made), events, packed=kind == "packed")
    return made.rename(path)


def lines_of(costs: dict[str, dict[str, list[float]]]) -> list[str]:
    """Return the lines of a table, by verb and size: two columns a size."""
    sizes = sorted({size for each in costs.values() for size in each}, key=int)
    heads = ["verb", *(text for size in sizes for text in (f"{int(size) / 1e6:,.0f} M events", ""))]
    rows = [heads, ["", *["s", "MiB"] * len(sizes)]]
    for name in filter(costs.__contains__, VERBS):
        rows.append([f"``{name}``"])
        for size in sizes:
            seconds, peak = costs[name].get(size, (None, None))
            rows[-1] += ["", ""] if peak is None else [f"{seconds:,.1f}", f"{peak >> 20:,}"]
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    # The size stands above both of its columns.
    for column in range(1, len(heads), 2):
        widths[column] = max(max(len(row[column]) for row in rows[1:]),
                             len(heads[column]) - 2 - widths[column + 1])  # fmt: skip
    rule = "  ".join("=" * width for width in widths)

    def line(row: list[str]) -> str:
        cells = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        return "  ".join([row[0].ljust(widths[0]), *cells]).rstrip()

    spans = [widths[at] + 2 + widths[at + 1] for at in range(1, len(heads), 2)]
    above = "  ".join([
        heads[0].ljust(widths[0]),
        *(head.rjust(span) for head, span in zip(heads[1::2], spans, strict=True)),
    ])  # fmt: skip
    under = "  ".join("-" * width for width in (widths[0], *spans))
    return [rule, above, under, line(rows[1]), rule, *map(line, rows[2:]), rule]


def page(costs: dict[str, dict[str, dict[str, list[float]]]]) -> str:
    """Return the tables of all kinds."""
    parts = [
        "\n".join([words, "", *lines_of(costs[kind])])
        for kind, words in KINDS.items()
        if kind in costs
    ]
    return "\n\n".join(parts) + "\n"


def main() -> int:
    """Measure, and print or write the tables; or run each verb below a limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--events", type=float, nargs="*", default=[1e6, 1e7, 1e8, 1e9])
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=KINDS)
    parser.add_argument("--only", nargs="*", default=list(VERBS), choices=VERBS)
    parser.add_argument("--limit", type=int, metavar="MIB")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    kept = options.folder / "costs.json"
    costs = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    limit = options.limit and options.limit << 20
    failed = []
    for events in map(int, options.events):
        for kind in options.kinds:
            file = recording(options.folder, kind, events)
            known = costs.setdefault(kind, {})
            for name in options.only:
                if not limit and str(events) in known.get(name, ()):
                    continue
                free = shutil.disk_usage(options.folder).free
                if name not in IN_PASSES and free < DISK_BYTES * events:
                    print(f"{kind} {events:,} {name}: left out, the disk has {free >> 30} GiB")
                    continue
                cost = run(VERBS[name], file, limit)
                print(f"{kind} {events:,} {name}: {cost.seconds:,.1f} s {cost.peak >> 20:,} MiB, "
                      f"status {cost.status}", file=sys.stderr, flush=True)  # fmt: skip
                if cost.status != 0:
                    failed.append(f"{name}, {kind}, {events:,} events: status {cost.status}")
                elif not limit:
                    known.setdefault(name, {})[str(events)] = cost[:2]
                    kept.write_text(json.dumps(costs, indent=1), encoding="utf-8")
    if limit:
        print("\n".join(failed) or f"every verb did with {options.limit} MiB")
    else:
        print(page(costs), *failed, sep="\n")
        if options.write:
            PAGE.write_text(page(costs), encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
