"""A page of text for people."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from .._words import plural, show_ns

if TYPE_CHECKING:
    from .trace import Trace


def text(trace: Trace, limit: int = 15) -> str:
    """Return the page.

    Parameters
    ----------
    trace : Trace
        What was recorded.
    limit : int
        How many functions.

    Returns
    -------
    str
        Without a newline at the end.
    """
    lines = [
        f"{plural(len(trace.events), 'event')} of {plural(len(trace.threads), 'thread')} in "
        f"{show_ns(trace.duration)}, PyPy"
    ]
    if trace.loss:
        lines.append(f"{trace.loss!r}")
    lines += ["", *functions(trace, limit)]
    jit = trace.jit
    if len(jit):
        kinds: dict[str, int] = {}
        for row in jit:
            word = row.type if row.event == "jit_compile" else row.event[4:].replace("_", " ")
            kinds[word] = kinds.get(word, 0) + 1
        size = sum(row.asmlen or 0 for row in jit)
        counts = ", ".join(plural(count, word) for word, count in kinds.items())
        lines += ["", f"compiler: {counts}; {size:,} bytes of machine code"]
    gc = trace.gc
    if len(gc):
        for event in ("gc_minor", "gc_collect_step", "gc_collect"):
            rows = [row for row in gc if row.event == event]
            if rows:
                time = sum(getattr(row, "duration", None) or 0 for row in rows)
                count = sum(row.count for row in rows)
                took = f", {show_ns(time)}" if event != "gc_collect" else ""
                lines.append(f"{event}: {count:,}{took}")
    return "\n".join(lines)


def functions(trace: Trace, limit: int) -> list[str]:
    """Return lines of the functions with the most time of their own."""
    rows = sorted(trace.functions, key=lambda row: row.self, reverse=True)[:limit]
    lines = [f"{'calls':>12} {'self':>9} {'total':>9}  function"]
    for row in rows:
        where = f" ({row.file}:{row.line})" if row.file else ""
        lines.append(
            f"{row.calls + row.resumes:>12,} {show_ns(row.self):>9} {show_ns(row.total):>9}  "
            f"{row.name}{where}"
        )
    return lines


def report(trace: Trace, file: IO[str]) -> None:
    """Print the page: what ``eventprof run --report`` calls."""
    print(text(trace), file=file)
