"""Reads a file of memray in a process of its own, which a damaged file may end by a signal.

It writes a line of JSON, then columns of int64: word, thread, address, size, place.
"""

from __future__ import annotations

import array
import json
import sys
from typing import IO, Any

from .memray import COLUMNS, WORDS


def main(path: str, out: IO[bytes]) -> None:
    """Write what is in the file, or what is wrong with it."""
    import memray

    try:
        reader = memray.FileReader(path)
        head = _facts(reader.metadata)
        columns = _columns(reader.get_allocation_records(), head)
    except NotImplementedError as error:
        head, columns = {"error": f"{error}; memray wrote it with --aggregate"}, []
    except (OSError, ValueError, RuntimeError) as error:
        head, columns = {"error": str(error)}, []
    out.write(json.dumps(head).encode() + b"\n")
    for column in columns:
        out.write(column.tobytes())


def _facts(known: Any) -> dict[str, Any]:
    return {
        "pid": known.pid,
        "command": known.command_line,
        "start_ns": round(known.start_time.timestamp() * 1e9),
        "python_allocators": known.trace_python_allocators,
    }


def _columns(records: Any, head: dict[str, Any]) -> list[array.array[int]]:
    columns = [array.array("q") for _ in range(COLUMNS)]
    words, threads, addresses, sizes, places = columns
    place_rows: dict[int, int] = {}
    head.update(threads=[], places=[], unknown=0, error=None)
    thread_rows: dict[int, int] = {}
    try:
        for record in records:
            word = WORDS.get(int(record.allocator))
            if word is None:
                head["unknown"] += 1
                continue
            thread = thread_rows.setdefault(record.tid, len(thread_rows))
            if thread == len(head["threads"]):
                head["threads"].append([record.tid, record.thread_name or None])
            place = -1
            if not word.startswith("FREE"):
                number = record.stack_id
                place = place_rows.setdefault(number, len(place_rows))
                if place == len(head["places"]):
                    stack = record.stack_trace(max_stacks=1)
                    head["places"].append(list(stack[0]) if stack else None)
            words.append(int(record.allocator))
            threads.append(thread)
            addresses.append((record.address + (1 << 63)) % (1 << 64) - (1 << 63))
            sizes.append(record.size)
            places.append(place)
    except (OSError, ValueError, RuntimeError) as error:
        head["cut"] = str(error)
    return columns


if __name__ == "__main__":
    main(sys.argv[1], sys.stdout.buffer)
