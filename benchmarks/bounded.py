"""What each verb and format costs for recordings of several sizes: processor time, peak memory.

    python benchmarks/bounded.py FILE... [--only WORD...] [--write]

FILE: recordings, the smallest first; `answers.py --write` makes one of any size. Each verb runs
once a file, in a process of its own. Peak is the largest resident set (ru_maxrss). --write writes
doc/benchmarks-bounded.inc.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import eventprof

PAGE = Path(__file__).parents[1] / "doc" / "benchmarks-bounded.inc"

#: The arguments of each verb; {} stands for a new file.
VERBS = {
    "report": ["report"],
    "info --json": ["info", "--json"],
    "analyze": ["analyze"],
    "verify": ["verify"],
    "save": ["save", "-o", "{}"],
    "view": ["view", "-o", "{}"],
    "heatmap": ["heatmap", "-o", "{}"],
    **{
        f"export to {word}": ["export", "-o", "{}", "--format", word]
        for word in ("chrome", "perfetto", "firefox", "speedscope", "csv", "jsonl", "parquet",
                     "arrow", "sqlite", "duckdb")
    },
}  # fmt: skip


class Cost(NamedTuple):
    """Seconds of the processor and the peak, in bytes."""

    seconds: float
    peak: int


def run(words: list[str], file: str) -> Cost:
    """Run a verb in a process of its own."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as folder:
        arguments = [word.format(Path(folder) / "out") for word in words]
        command = [sys.executable, "-m", "eventprof", *arguments, file]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        if os.waitstatus_to_exitcode(status) != 0:
            raise RuntimeError(f"{' '.join(command)}: status {status}")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10)


def table(files: list[str], verbs: dict[str, list[str]]) -> list[str]:
    """Return the lines of a table: a row a verb, two columns a file."""
    heads = ["verb"]
    for file in files:
        trace = eventprof.open(file)
        trace._core.survey()
        heads += [f"{trace._facts['events'] / 1e6:,.1f} million events", ""]
    rows = [heads, ["", *["s", "MiB"] * len(files)]]
    for name, words in verbs.items():
        rows.append([f"``{name}``"])
        for file in files:
            cost = run(words, file)
            rows[-1] += [f"{cost.seconds:,.1f}", f"{cost.peak >> 20:,}"]
            print(name, file, *rows[-1][-2:], file=sys.stderr, flush=True)
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    rule = "  ".join("=" * width for width in widths)

    def line(row: list[str]) -> str:
        cells = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        return "  ".join([row[0].ljust(widths[0]), *cells]).rstrip()

    return [rule, *map(line, rows[:2]), rule, *map(line, rows[2:]), rule]


def main() -> None:
    """Measure, and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+")
    parser.add_argument("--only", nargs="*", default=list(VERBS), choices=VERBS)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    text = "\n".join(table(options.files, {name: VERBS[name] for name in options.only})) + "\n"
    if options.write:
        PAGE.write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
