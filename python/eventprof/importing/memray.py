"""memray's files, read by memray itself: allocations and frees, in order, without times."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import numpy as np

from .._optional import require
from . import Unreadable
from ._build import Builder

#: The kind of event for each of memray's AllocatorType.
WORDS = {
    1: "FREE_OBJ", 2: "MALLOC_OBJ", 3: "CALLOC_OBJ", 4: "REALLOC_OBJ", 5: "FREE_LIBC",
    6: "MALLOC_LIBC", 7: "REALLOC_LIBC", 8: "CALLOC_LIBC", 9: "MALLOC_LIBC", 10: "MALLOC_LIBC",
    11: "MALLOC_LIBC", 12: "MALLOC_LIBC", 13: "MALLOC_LIBC", 14: "MALLOC_LIBC", 15: "FREE_LIBC",
}  # fmt: skip
#: Columns that _memray_reader.py writes.
COLUMNS = 5


def read(path: str, data: bytes, builder: Builder) -> None:
    """Fill the builder: the n-th event is at n ns."""
    require("memray", "memray", f"{path}: a recording of memray")
    head, columns = _read_elsewhere(path)
    builder.metadata.update(
        pid=head["pid"], argv=tuple(head["command"].split()), recorded_by="memray"
    )
    builder.start_ns = head["start_ns"]
    builder.lacks += [
        "times: the n-th event is at n ns", "calls", "exceptions",
        "modules and first lines of functions",
    ]  # fmt: skip
    if not head["python_allocators"]:
        builder.lacks.append("blocks of Python's allocators (--trace-python-allocators)")
    count = columns.shape[1]
    _fill(builder, head, columns)
    # memray has no buffer that could be full, but reads what a killed program left as whole.
    builder.loss_unknown = "whether the end is missing is unknown: memray's files do not say it"
    if head.get("cut"):
        builder.missing.append(f"the end of the file, after {count:,} events: {head['cut']}")
    if head["unknown"]:
        builder.notes.append(f"{head['unknown']:,} events of an allocator that is not known")


def _read_elsewhere(path: str) -> tuple[dict[str, Any], Any]:
    """Return the facts and the events that a process of its own read."""
    program = (
        "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
        "from eventprof.importing._memray_reader import main;"
        "main(sys.argv[2], sys.stdout.buffer)"
    )
    # The reader is no part of what the user records.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("EVENTPROF")}
    found = subprocess.run(
        [sys.executable, "-c", program, json.dumps(sys.path), path],
        stdin=subprocess.DEVNULL, capture_output=True, env=environment, check=False,
    )  # fmt: skip
    if found.returncode < 0:
        try:
            name = signal.Signals(-found.returncode).name
        except ValueError:
            name = f"signal {-found.returncode}"
        raise Unreadable(f"memray's reader ended by {name}: the file is damaged")
    line, _, rest = found.stdout.partition(b"\n")
    if found.returncode or not line:
        message = found.stderr.decode("utf-8", "replace").strip().rsplit("\n", 1)[-1]
        raise Unreadable(f"memray's reader failed: {message}")
    head = json.loads(line)
    if head["error"] is not None:
        raise Unreadable(head["error"])
    return head, np.frombuffer(rest, np.int64).reshape(COLUMNS, -1)


def _fill(builder: Builder, head: dict[str, Any], columns: Any) -> None:
    threads = [builder.thread(tid, name) for tid, name in head["threads"]]
    places = [
        (-1, -1) if place is None else (builder.function(place[0], None, place[1], None), place[2])
        for place in head["places"]
    ]
    for time, (word, thread, address, size, place) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True)
    ):
        if place < 0:
            threads[thread].block(time, WORDS[word], address, -1)
        else:
            threads[thread].block(time, WORDS[word], address, size, *places[place])
