"""memray's files, read by memray itself: allocations and frees, in order, without times."""

from __future__ import annotations

from typing import Any

from .._optional import require
from . import Unreadable
from ._build import Builder

#: The kind of event for each of memray's AllocatorType.
_WORDS = {
    1: "FREE_OBJ", 2: "MALLOC_OBJ", 3: "CALLOC_OBJ", 4: "REALLOC_OBJ", 5: "FREE_LIBC",
    6: "MALLOC_LIBC", 7: "REALLOC_LIBC", 8: "CALLOC_LIBC", 9: "MALLOC_LIBC", 10: "MALLOC_LIBC",
    11: "MALLOC_LIBC", 12: "MALLOC_LIBC", 13: "MALLOC_LIBC", 14: "MALLOC_LIBC", 15: "FREE_LIBC",
}  # fmt: skip


def read(path: str, data: bytes, builder: Builder) -> None:
    """Fill the builder: the n-th event is at n ns."""
    memray = require("memray", "memray", f"{path}: a recording of memray")
    try:
        reader = memray.FileReader(path)
    except (OSError, ValueError) as error:
        raise Unreadable(str(error)) from None
    known = reader.metadata
    builder.metadata.update(
        pid=known.pid, argv=tuple(known.command_line.split()), recorded_by="memray"
    )
    builder.start_ns = round(known.start_time.timestamp() * 1e9)
    builder.lacks += [
        "times: the n-th event is at n ns", "calls", "exceptions",
        "modules and first lines of functions",
    ]  # fmt: skip
    if not known.trace_python_allocators:
        builder.lacks.append("blocks of Python's allocators (--trace-python-allocators)")
    try:
        records = reader.get_allocation_records()
        _read(records, builder)
    except NotImplementedError as error:
        raise Unreadable(f"{error}; memray wrote it with --aggregate") from None


def _read(records: Any, builder: Builder) -> None:
    places: dict[int, tuple[int, int]] = {}
    left_out = 0
    for time, record in enumerate(records):
        word = _WORDS.get(int(record.allocator))
        if word is None:
            left_out += 1
            continue
        thread = builder.thread(record.tid, record.thread_name or None)
        if word.startswith("FREE"):
            thread.block(time, word, record.address, -1)
            continue
        number = record.stack_id
        if number not in places:
            stack = record.stack_trace(max_stacks=1)
            function, line = -1, -1
            if stack:
                name, file, line = stack[0]
                function = builder.function(name, None, file, None)
            places[number] = function, line
        thread.block(time, word, record.address, record.size, *places[number])
    if left_out:
        builder.notes.append(f"{left_out:,} events of an allocator that is not known")
