"""Fails when a hot path needs more instructions than it did: a guard that noise cannot move.

    benchmarks/guard.py             measure, compare with instructions.json
    benchmarks/guard.py --accept    measure, and write what is new there: say why in the commit

callgrind counts them, in two ways: the core's paths (c/paths.c, built as it is shipped), and small
programs under the installed extension, over the empty hook of the same mechanism
(instructions.py). Counts are kept by compiler, processor, C library and valgrind, and by release of
CPython; what is not known yet is measured and reported, and fails nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
KEPT = HERE / "instructions.json"
MAY_GROW = 0.03
# A bare difference of two counts may be small: less than this is never a failure.
MAY_GROW_BY = 0.5
# With every compiler and release: a start and its stop need no more. A recorder of calls needs
# 250,000 on 3.13, most of them in sys.monitoring. To clear the table of blocks that are not
# recorded, which only a recorder of blocks needs, would be 262,144 more for each of the two.
MAY_TAKE = {"start and stop, calls: a new recorder": 400_000}
# A path, and how many times the count of another it may have.
MAY_TAKE_AS = {
    f"start and stop, {kinds}: once more": (f"start and stop, {kinds}: a new recorder", 1.1)
    for kinds in ("calls", "allocations")
}
# How often copies at other addresses are counted if a path grew.
MORE_ROUNDS = 3

Counts = dict[str, float]


class Skip(Exception):
    """Explains why nothing can be measured here."""


# ---- Counting ----------------------------------------------------------------------------------


def count(command: list[str], directory: Path, environment: dict[str, str]) -> tuple[str, Counts]:
    """What the command prints, and the instructions of each part that it names, of the thread that
    began."""
    out = directory / "callgrind.out"
    done = subprocess.run(
        [
            "valgrind",
            "--tool=callgrind",
            "--instr-atstart=no",
            "--separate-threads=yes",
            f"--callgrind-out-file={out}",
            *command,
        ],
        capture_output=True,
        text=True,
        # Addresses, and so collisions in tables, are to be the same each time.
        env={"PATH": os.environ["PATH"], "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
        | environment,
    )
    if done.returncode != 0:
        raise SystemExit(f"{shlex.join(command)} fails under valgrind:\n{done.stderr[-3000:]}")
    parts: Counts = {}
    for file in directory.glob("callgrind.out.*-01"):
        text = file.read_text(errors="replace")
        name = re.search(r"^desc: Trigger: Client Request: (.+)$", text, re.MULTILINE)
        total = re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)
        if name and total:
            parts[name[1]] = float(total[1])
        file.unlink()
    return done.stdout, parts


def _tool(name: str) -> str:
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else name


def count_core(directory: Path, build: Path) -> Counts:
    # With debug information, as the extension that ./dev builds: ccache then has most of it.
    options = ["-Dpython=false", "-Dtests=disabled", "-Dbenchmarks=true", "-Ddebug=true"]
    if not (build / "build.ninja").exists():
        _quiet([_tool("meson"), "setup", str(build), str(ROOT), *options])
    _quiet([_tool("meson"), "compile", "-C", str(build), "paths"])
    _, parts = count([str(build / "paths")], directory, {})
    runs: dict[str, dict[int, float]] = {}
    for name, total in parts.items():
        path, events = name.rsplit(" ", 1)
        runs.setdefault(path, {})[int(events)] = total
    counts = {}
    for path, run in runs.items():
        (less, a), (more, b) = sorted(run.items())
        counts[path] = (b - a) / (more - less)
    return counts


def count_extension(directory: Path, first_copy: int = 0) -> tuple[str, Counts]:
    """Return the clock, on which the hooks' way depends, and the counts."""
    command = [sys.executable, str(HERE / "instructions.py"), str(first_copy)]
    output, parts = count(command, directory, {})
    costs: dict[tuple[str, bool], list[float]] = {}
    found = json.loads(output.splitlines()[-1])
    for number, row in enumerate(found["parts"]):
        added = parts[f"part {number} 2"] - parts[f"part {number} 1"]
        costs.setdefault((row["path"], row["empty"]), []).append(added / row["events"])
    # Of the copies the cheapest: no collision in any table on the way.
    return found["clock"], {
        path: min(costs[path, False]) - min(costs.get((path, True), [0.0]))
        for path, empty in costs
        if not empty
    }


def _quiet(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{shlex.join(command)} fails:\n{done.stdout}")


# ---- Comparing ---------------------------------------------------------------------------------


def surroundings() -> str:
    """As gcc-12 x86_64, glibc 2.36, valgrind 3.19: what the counts of one code depend on."""
    counter = subprocess.run(["valgrind", "--version"], capture_output=True, text=True).stdout
    version = re.search(r"\d+\.\d+", counter)
    return (
        f"{compiler()}, {' '.join(platform.libc_ver())}, valgrind {version[0] if version else '?'}"
    )


def compiler() -> str:
    command = shlex.split(os.environ.get("CC") or "cc")
    text = subprocess.run([*command, "--version"], capture_output=True, text=True).stdout
    kind = "clang" if "clang" in text else "gcc"
    version = re.search(r"(\d+)\.\d+", text)
    return f"{kind}-{version[1] if version else 'unknown'} {platform.machine()}"


def compare(counts: Counts, kept: Counts) -> list[str]:
    """Return a line for each path that grew too much."""
    grown = []
    for path, now in counts.items():
        before = kept.get(path)
        if before is not None and now - before > max(MAY_GROW * abs(before), MAY_GROW_BY):
            grown.append(
                f"{path}: {before:.1f} -> {now:.1f} instructions an event "
                f"({now - before:+.1f}, {100 * (now / before - 1):+.0f} %)"
            )
    return grown


def broken(counts: Counts) -> list[str]:
    """Return a line for each path that needs more than it may, whatever it needed before."""
    limits = {path: float(limit) for path, limit in MAY_TAKE.items()}
    limits |= {
        path: counts[other] * times
        for path, (other, times) in MAY_TAKE_AS.items()
        if other in counts
    }
    return [
        f"{path}: {counts[path]:.0f} instructions, and {limit:.0f} are allowed"
        for path, limit in limits.items()
        if counts.get(path, 0) > limit
    ]


def show(counts: Counts, kept: Counts) -> None:
    for path, now in counts.items():
        before = kept.get(path)
        change = "new" if before is None else f"{now - before:+7.1f}"
        print(f"  {now:8.1f} {change:>8}  {path}")


def measure(only: str | None, build: Path, kept: dict[str, Counts]) -> dict[str, Counts]:
    """Return the counts by part. kept: what they are compared with."""
    if shutil.which("valgrind") is None:
        raise Skip("no valgrind here (Debian: apt-get install valgrind)")
    result = {}
    # Each release has layouts of its own: 3.11.2 needs 8 more than 3.11.7 for a call of a C method.
    version = "{}.{}.{}".format(*sys.version_info)
    # Not below TMPDIR's long names: what is on the stack moves what is above it.
    with tempfile.TemporaryDirectory(prefix="guard-") as directory:
        if only != "extension":
            result["core"] = count_core(Path(directory), build)
        if only != "core":
            sys.path.insert(0, str(HERE))
            import empty_hooks
            from instructions import COPIES

            try:
                empty_hooks.load().measure("", len, "")
            except NotImplementedError as problem:
                raise Skip(str(problem)) from None
            clock, counts = count_extension(Path(directory))
            part = f"CPython {version}, clock {clock}"
            # Distances of objects change with all that is imported, and two entries may collide in
            # each copy, for two instructions. A path that grew did so with other copies, too.
            for round in range(1, 1 + MORE_ROUNDS):
                if not compare(counts, kept.get(part, {})):
                    break
                _, again = count_extension(Path(directory), COPIES * round)
                counts = {path: min(now, again[path]) for path, now in counts.items()}
            result[part] = counts
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--accept", action="store_true", help="keep what is measured now")
    parser.add_argument("--only", choices=("core", "extension"))
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"  # each has a meson of its own
    parser.add_argument("--build", type=Path, default=ROOT / "build" / f"guard-{version}")
    parser.add_argument("--quiet", action="store_true", help="no table")
    options = parser.parse_args()
    everything = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    here = surroundings()
    of_machine = everything.setdefault(here, {})
    try:
        result = measure(options.only, options.build, {} if options.accept else of_machine)
    except Skip as reason:
        print(f"instructions are not counted: {reason}")
        return 0

    grown: list[str] = []
    over: list[str] = []
    for part, counts in result.items():
        kept = of_machine.get(part, {})
        if not options.quiet:
            print(f"{here}, {part}: instructions an event, and what they grew by")
            show(counts, kept)
        if not kept and not options.accept:
            print(f"{part}: nothing is kept for {here} yet; --accept would")
        grown += [f"{part}, {line}" for line in compare(counts, kept)]
        over += [f"{part}, {line}" for line in broken(counts)]
    if over:
        print("\n".join(["over a limit of guard.py:", *(f"  {line}" for line in over)]))
    if options.accept:
        for part, counts in result.items():
            of_machine[part] = {path: round(value, 2) for path, value in counts.items()}
        KEPT.write_text(json.dumps(everything, indent=1, sort_keys=True) + "\n")
        print(f"kept in {KEPT}")
        return 1 if over else 0
    if grown:
        print("\n".join(["a hot path grew by more than 3 %:", *(f"  {line}" for line in grown)]))
        print(
            "look at the diff of that path; if it is meant to be so: benchmarks/guard.py --accept, "
            "and say in the commit what the instructions are for"
        )
    return 1 if grown or over else 0


if __name__ == "__main__":
    sys.exit(main())
