"""What answers cost: the tree of calls, tenures, own lines, findings, and the report, by event.

python benchmarks/answers.py [FILE]: of a recording, or of a program that parses 40 modules of the
standard library. Times are of the processor, so that other work on the machine counts little.
"""

from __future__ import annotations

import resource
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


def measure(name: str, events: int, work: Callable[[], object]) -> None:
    """Print what a piece of work takes: seconds of the processor, and events a second."""
    best = min(_timed(work) for _ in range(3))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{name:22} {best:8.3f} s {events / best / 1e6:8.1f} M events/s {peak:8.0f} MiB resident")


def _timed(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    """Measure."""
    from eventprof.answers import findings, first
    from eventprof.answers.tree import Tree

    trace = eventprof.open(sys.argv[1]) if len(sys.argv) > 1 else record()
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
