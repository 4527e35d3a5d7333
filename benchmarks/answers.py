"""What answers cost: the tree of calls, tenures, own lines, findings, and the report, by event.

python benchmarks/answers.py [FILE]: of a recording, or of a program that parses 40 modules of the
standard library. Of a file, the folds read it first chunk by chunk, and then its columns.
python benchmarks/answers.py --write FILE [EVENTS]: writes a log of so many events (10^8), calls and
blocks of a small program again and again.
python benchmarks/answers.py --peers: the answers of memray and VizTracer beside ours, each from its
own file of the same program (answers_peers.py).
Times are of the processor, so that other work on the machine counts little. Resident is what the
process holds at most so far, the interpreter with NumPy included.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import eventprof


def record() -> Any:
    """Record a program with calls and memory."""
    import ast
    import io
    import json
    import pathlib
    import sysconfig
    import tokenize

    files = sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:40]
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in files]
    kept = []
    with eventprof.record(on_full="grow") as rec:
        for text in texts:
            try:
                list(tokenize.generate_tokens(io.StringIO(text).readline))
                names = [type(node).__name__ for node in ast.walk(ast.parse(text))]
            except (SyntaxError, tokenize.TokenError):
                continue
            kept.append(json.loads(json.dumps(names)))
    return rec.trace


def write(path: str, events: int, *, packed: bool = False) -> None:
    """Write a log of about so many events."""

    def leaf(number: int) -> int:
        return number + 1

    def branch(number: int) -> list[object]:
        return [leaf(number), leaf(number), bytes(600 + number % 700)]

    def work(count: int) -> None:
        kept = []
        for number in range(count):
            kept.append(branch(number))
            if number % 500 == 0:
                kept.clear()

    with eventprof.record(output=path, on_full="grow", archive=packed):
        work(max(events // 26, 1))  # a round makes about 26


def measure(name: str, events: int, work: Callable[[], object]) -> None:
    """Print what a piece of work takes: seconds of the processor, and events a second."""
    best = min(_timed(work) for _ in range(3))
    print(
        f"{name:28} {best:8.3f} s {events / best / 1e6:8.1f} M events/s "
        f"{_resident_mib():8.0f} MiB resident"
    )


def _resident_mib() -> float:
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def _timed(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    """Run the measurements."""
    from eventprof.answers import findings, first
    from eventprof.answers.tree import Tree

    if sys.argv[1:2] == ["--peers"]:
        import answers_peers

        print(answers_peers.table(rounds=3))
        return
    if sys.argv[1:2] == ["--write"]:
        write(sys.argv[2], int(float(sys.argv[3])) if len(sys.argv) > 3 else 10**8)
        return
    trace = eventprof.open(sys.argv[1]) if len(sys.argv) > 1 else record()
    if len(sys.argv) > 1:
        tree = Tree(trace)  # before anything asks for columns
        events = trace._facts["events"]
        print(f"{events:,} events, {tree.count:,} nodes, read from the file")
        measure("tree from the file", events, lambda: Tree(trace))
        measure("tenures from the file", events, trace._core.tenures)
        measure("first lines from the file", events, lambda: first.sections(trace))
        trace._core.events("time")
    events = trace._facts["events"]
    trace._core.functions()
    print(f"{events:,} events, {len(trace._thread_rows)} threads")
    measure("tree, blocks, peak", events, lambda: Tree(trace))
    measure("tenures", events, trace._core.tenures)
    measure("first lines", events, lambda: first.sections(trace))
    measure("findings", events, lambda: findings.find(trace))
    measure("report", events, lambda: str(trace))


if __name__ == "__main__":
    main()
