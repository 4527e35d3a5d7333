"""Damaged files for every verb, and whole files merged in random groups.

    fuzz_verbs.py [--seed 1] [--files 2000] [--groups 200]

Logs and archives of small programs are damaged at random: bits and bytes, runs, cuts, pieces copied elsewhere, two files
spliced. Each verb then gets one. It may say what is wrong in a line, or do with what is left; it may not end by another
exception than those, take long, or write its output where it failed. A log is read twice besides, chunk by chunk and
as columns: both must tell the same. Whole files are merged in random groups: the whole has the sum of their events and
blocks, is right by `verify`, and is the same once saved. Ends with 1 where anything is wrong, and says by which seed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import eventprof
from eventprof import cli

#: Of one verb on a file of some hundred KiB. A busy machine takes a hundredth of it.
LIMIT_S = 60.0
#: Where the file goes is {}, the other one of the two in hand {other}, and what is written {out}.
VERBS = (
    "report {}", "report --short {}", "report --lines {}", "tree {}", "tree --json {}", "analyze {}",
    "analyze --json {}", "stats {}", "stats --json {}", "stats --sort allocated --limit 3 {}", "events {}",
    "events --csv --limit 50 {}", "events --json --limit 50 {}", "info {}", "info --json {}", "verify {}",
    "verify --all {}", "diff {} {other}", "diff {other} {}", "merge {} {other} -o {out}.epr",
    "save {} -o {out}.epr", "view {} -o {out}.html", "export {} -o {out}.json", "export {} -o {out}.csv",
    "export {} -o {out}.collapsed", "export {} -o {out}.pb", "export {} -o {out}.sqlite",
    "export {} -o {out}.speedscope.json", "export {} -o {out}.jsonl",
)  # fmt: skip


# ---- Files that are right ------------------------------------------------------------------------


def leaf(size: int) -> bytes:
    return bytes(size)


def work(rng: random.Random) -> None:
    kept = []
    for number in range(rng.randrange(5, 300)):
        kept.append([leaf(600 + number % 50), str(number)])
        with contextlib.suppress(ValueError):
            sorted([number, 2], key=lambda n: n if n else int("none"))
        if len(kept) > 20:
            kept.clear()
    eventprof.mark("done")


def record(path: Path, rng: random.Random) -> None:
    """Write a log: of several threads, with lines, or full, as it comes."""
    options: dict = {"output": path, "lines": rng.random() < 0.2, "memory": rng.random() < 0.8}
    if rng.random() < 0.3:
        options |= {"buffer": "1 MiB", "on_full": rng.choice(["overwrite", "stop"])}
    if rng.random() < 0.2:
        options["max_depth"] = rng.randrange(1, 4)
    seeds = [rng.random() for _ in range(rng.randrange(0, 4))]
    threads = [threading.Thread(target=work, args=(random.Random(seed),)) for seed in seeds]
    with eventprof.record(**options):
        for thread in threads:
            thread.start()
        work(rng)
        for thread in threads:
            thread.join()


def make(folder: Path, rng: random.Random, count: int) -> list[Path]:
    """Write logs, and an archive of each."""
    made = []
    for number in range(count):
        path = folder / f"log-{number}.epr"
        record(path, rng)
        eventprof.open(path).save(folder / f"archive-{number}.epr")
        made += [path, folder / f"archive-{number}.epr"]
    return made


# ---- Damage --------------------------------------------------------------------------------------


def damage(data: bytearray, other: bytes, rng: random.Random) -> None:
    """Change a file's bytes in place, once or some times."""
    for _ in range(rng.choice([1, 1, 2, 5, 40])):
        if not data:
            return
        # Headers and what follows a page's begin decide most.
        position = rng.choice([rng.randrange(len(data)), rng.randrange(min(len(data), 4096)),
                         rng.randrange(len(data)) & ~4095 | rng.randrange(160)])  # fmt: skip
        length = rng.choice([1, 4, 8, 64, 4096])
        how = rng.randrange(7)
        if how == 0:
            data[min(position, len(data) - 1)] ^= 1 << rng.randrange(8)
        elif how == 1:
            data[position : position + length] = rng.randbytes(
                len(data[position : position + length])
            )
        elif how == 2:
            data[position : position + length] = rng.choice([b"\0", b"\xff"]) * len(
                data[position : position + length]
            )
        elif how == 3:
            to = rng.randrange(len(data)) & ~7
            piece = data[position & ~7 : (position & ~7) + length]
            data[to : to + len(piece)] = piece
        elif how == 4 and rng.random() < 0.3:
            del data[position:]
        elif how == 5 and rng.random() < 0.3:
            data[position:] = other[position:]
        elif how == 6:
            number = rng.choice([0, 1, (1 << 31) - 1, 1 << 32, (1 << 63) - 1, (1 << 64) - 1])
            data[position & ~7 : (position & ~7) + 8] = number.to_bytes(8, "little")


# ---- What is asked -------------------------------------------------------------------------------


def run_verb(command: list[str]) -> str | None:
    """What is wrong with how a verb ended; None: nothing."""
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    began = time.monotonic()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = cli.main(command)
        except SystemExit as left:
            status = left.code if isinstance(left.code, int) else 1
        except BaseException:
            return traceback.format_exc()
    message = err.getvalue()
    if "Traceback" in message:
        return message
    if status not in (0, 1, 2 if command[0] == "verify" else 0):  # 2: it cannot be read
        return f"status {status}: {message}"
    if status == 1 and not message and command[0] not in ("verify", "analyze", "info"):
        return "status 1, and not a word"
    if time.monotonic() - began > LIMIT_S:
        return f"took {time.monotonic() - began:.0f} s"
    return None


def answers(trace: eventprof.Trace) -> tuple:
    core = trace._core
    tree = core.tree(0, True)
    parts = {name: tree.pop(name) for name in list(tree) if isinstance(tree[name], dict)}
    arrays = {
        f"{name} {key}": arrays_of[key] for name, arrays_of in parts.items() for key in arrays_of
    }
    rest = (tree, core.facts(), core.threads(), core.functions(), core.lost())
    return arrays, rest, trace.file["missing_count"]


def read_both_ways(path: Path) -> str | None:
    """Whether a pass over the file, and its columns, tell the same."""
    try:
        passed, decoded = eventprof.open(path), eventprof.open(path)
        decoded._core.events("time")
    except (eventprof.FormatError, OSError, MemoryError):
        return None
    try:
        arrays, rest, notes = answers(passed)
        wanted, wanted_rest, wanted_notes = answers(decoded)
        decoded.verify()
    except Exception:
        return traceback.format_exc()
    if rest != wanted_rest or notes != wanted_notes:
        return f"a pass tells {notes, rest}, columns {wanted_notes, wanted_rest}"[:2000]
    different = [name for name in wanted if not np.array_equal(arrays[name], wanted[name])]
    return f"a pass and columns differ in {different}" if different else None


def fuzz(folder: Path, made: list[Path], rng: random.Random, files: int) -> Iterator[str]:
    for number in range(files):
        source, spliced, other = (rng.choice(made) for _ in range(3))
        data = bytearray(source.read_bytes())
        damage(data, spliced.read_bytes(), rng)
        path = folder / "damaged.epr"
        path.write_bytes(data)
        text = rng.choice(VERBS)
        command = [
            word.format(path, other=other, out=folder / "out") if "{" in word else word
            for word in text.split()
        ]
        wrong = run_verb(command)
        if wrong is None and source.name.startswith("log"):
            text, wrong = "a pass", read_both_ways(path)
        if wrong is not None:
            kept = Path(tempfile.gettempdir(), f"fuzz-verbs-{os.getpid()}-{number}.epr")
            shutil.copyfile(path, kept)
            yield f"{text} on {kept} (of {source.name}, file {number}): {wrong}"
        for left in folder.glob("out*"):
            left.unlink()


# ---- Merging -------------------------------------------------------------------------------------


def sums(traces: list[eventprof.Trace]) -> dict[str, int]:
    """What adds up when traces are merged."""
    return {
        "events": sum(len(trace.events) for trace in traces),
        "calls": sum(len(trace.calls) for trace in traces),
        "allocations": sum(len(trace.allocations) for trace in traces),
        "threads": sum(len(trace.threads) for trace in traces),
        "lost": sum(sum(trace.loss.by_kind.values()) for trace in traces),
        "bytes": sum(int(trace.functions["allocated_self"].sum()) for trace in traces),
    }


def merge(folder: Path, made: list[Path], rng: random.Random, groups: int) -> Iterator[str]:
    for number in range(groups):
        chosen = [rng.choice(made) for _ in range(rng.randrange(2, 7))]
        names = [path.name for path in chosen]
        merged = eventprof.merge([eventprof.open(path) for path in chosen])
        wanted = sums([eventprof.open(path) for path in chosen])
        path = folder / "merged.epr"
        merged.save(path, force=True)
        for trace, what in ((merged, "merged"), (eventprof.open(path), "saved")):
            found, right = sums([trace]), trace.verify()
            if found != wanted:
                yield f"group {number}, {what}, {names}: {found}, of {wanted}"
            if not right.ok:
                yield f"group {number}, {what}, {names}: {right}"
            if (np.diff(trace.events["time"]) < 0).any():
                yield f"group {number}, {what}, {names}: not in order of time"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--groups", type=int, default=200)
    given = parser.parse_args(arguments)
    rng = random.Random(given.seed)
    count = 0
    with tempfile.TemporaryDirectory(prefix="eventprof-fuzz-") as name:
        folder = Path(name)
        made = make(folder, rng, 8)
        for found in (fuzz(folder, made, rng, given.files), merge(folder, made, rng, given.groups)):
            for wrong in found:
                count += 1
                print(f"seed {given.seed}: {wrong}", flush=True)
    print(f"{given.files} damaged files, {given.groups} groups: {count} wrong")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
