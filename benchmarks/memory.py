"""How much memory does recording take: after import and start, and by events, for each buffer?"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import measure
from child import ask
from retrieve import load

BUFFERS_MIB = (16, 64, 256)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def bytes_in_log(kinds: str) -> float:
    """Bytes an event: from how many more events a larger buffer holds."""
    import tools

    kept = []
    for buffer_mib in (16, 32):
        window = tools.recorder(kinds, limit_bytes=buffer_mib << 20, on_full=1)
        with window:
            load(12 * 10**6)()
        kept.append(int(window._capture().facts()["events"]))
    return (16 << 20) / (kept[1] - kept[0])


def child(buffer_mib: int, events: int) -> dict[str, Any]:
    if buffer_mib == 0:
        return {kinds: bytes_in_log(kinds) for kinds in ("calls", "allocations")}
    import numpy  # noqa: F401  # the reader's own, not the recording's

    start = resident_bytes()
    import tools

    window = tools.recorder("calls+allocations", limit_bytes=buffer_mib << 20)
    imported = resident_bytes()
    program = load(events)
    program()
    before = resident_bytes()
    with window:
        load(8)()
        started = resident_bytes() - before
        program()
        held = resident_bytes() - before
    trace = window._capture()
    kept = int(trace.facts()["events"])
    lost = sum(sum(row[5].values()) for row in trace.threads())
    return {
        "import_bytes": imported - start,
        "start_bytes": started,
        "held_bytes": held,
        "kept": kept,
        "lost": lost,
        "held_bytes_per_kept_event": held / kept,
    }


def run(options: argparse.Namespace) -> dict[str, Any]:
    counts = (10**5, 10**6) if options.quick else (10**5, 10**6, 10**7, 4 * 10**7)
    held = {
        f"{buffer} MiB, {count:.0e} events": ask("memory", buffer_mib=buffer, events=count)
        for buffer in BUFFERS_MIB
        for count in counts
    }
    return {"log": ask("memory", buffer_mib=0, events=0), "held": held}


def show(result: dict[str, Any]) -> str:
    rows = [
        [
            name,
            str(row["kept"]),
            str(row["lost"]),
            f"{row['import_bytes'] / 2**20:.1f}",
            f"{row['start_bytes'] / 2**20:.1f}",
            f"{row['held_bytes'] / 2**20:.1f}",
            f"{row['held_bytes_per_kept_event']:.1f}",
        ]
        for name, row in result["held"].items()
    ]
    log = ", ".join(f"{value:.3f} {kinds}" for kinds, value in result["log"].items())
    return f"bytes of an event in the log: {log}\n\n" + measure.table(
        [
            "buffer, calls + allocations",
            "kept",
            "lost",
            "MiB: import",
            "start",
            "held",
            "bytes/event",
        ],
        rows,
    )
