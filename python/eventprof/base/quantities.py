"""Sizes and durations as numbers or as text, and how much memory there is."""

from __future__ import annotations

import functools
import operator
import os
import re
import sys
from typing import Any, cast

from .arguments import is_bool

_UNITS = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_SIZE_UNITS = "B, kB, MB, GB, TB, KiB, MiB, GiB and TiB"
_SIZE = re.compile(r"\s*(\d[\d_]*(?:\.\d+)?|\.\d+)\s*([a-z]*)\s*", re.IGNORECASE | re.ASCII)
_TIMES = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9}
_TIME = re.compile(r"\s*(\d[\d_]*(?:\.\d+)?|\.\d+)\s*([a-zµ]*)\s*", re.IGNORECASE)
_MAX_DURATION = 2**62  # ns; longer than any run, and it fits the core's int64


@functools.cache
def automatic_buffer() -> int:
    """Return an eighth of the memory that is available, in whole MiB; 64 MiB at least."""
    available = available_memory()
    return max(available // 8 >> 20 << 20, 64 << 20)


def available_memory() -> int:
    """Return the bytes that this process could still take: free on the system and in its cgroup."""
    try:
        available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (ValueError, OSError):
        available = 0
    try:
        with open("/proc/meminfo", "rb") as file:
            for line in file:
                if line.startswith(b"MemAvailable:"):
                    available = int(line.split()[1]) << 10
                    break
        # In a container: version 2 of cgroups.
        with open("/sys/fs/cgroup/memory.max", "rb") as file:
            most = int(file.read())
        with open("/sys/fs/cgroup/memory.current", "rb") as file:
            available = min(available, max(most - int(file.read()), 0))
    except (OSError, ValueError):
        pass  # there is no such file, or no limit
    return available


#: The least of a buffer, and its step: the size of a slot of records.
LEAST_BUFFER = 1 << 20


def parse_size(name: str, value: object, minimum: int = 1) -> int:
    """Read a size in bytes.

    Parameters
    ----------
    name : str
        The argument, for the message.
    value : int or str
        Bytes, or a number and a unit: B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, in any case.
    minimum : int
        The smallest size that is allowed: 1, or whole MiB.

    Returns
    -------
    int
        Bytes, `least` or more.

    Raises
    ------
    TypeError
        It is neither a whole number nor text.
    ValueError
        It is less than `least`, or the text cannot be read.
    MemoryError
        It is more than the machine has.
    """
    form = "must be bytes as an int, or text as '64 MiB'"
    if isinstance(value, str):
        found = _SIZE.fullmatch(value)
        unit = None if found is None else _UNITS.get(found[2].lower())
        if found is None or unit is None:
            units = f"; there is no unit {found[2]!r}, but {_SIZE_UNITS}" if found else ""
            raise ValueError(f"{name} {form}, not {value!r}{units}")
        size = int(float(found[1]) * unit) if "." in found[1] else int(found[1]) * unit
    elif is_bool(value):
        raise TypeError(f"{name} {form}, not {value!r}")
    else:
        try:
            size = operator.index(cast(Any, value))
        except TypeError:
            raise TypeError(f"{name} {form}, not {value!r}") from None
    if size < minimum:
        smallest = "1 byte" if minimum == 1 else f"{minimum >> 20} MiB"
        advice = "" if minimum == 1 else ": a number without a unit is bytes; write it as '64 MiB'"
        raise ValueError(f"{name} must be {smallest} or more, not {value!r}{advice}")
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        memory = sys.maxsize
    if size > memory > 0:
        raise MemoryError(
            f"{name}={value!r}: more than this machine's memory, {memory / 2**30:.1f} GiB"
        )
    return size


def _no_time_unit(found: re.Match[str] | None) -> str:
    """Return the end of a message about a time whose unit is missing or unknown."""
    if found is None:
        return ""
    if not found[2]:
        return f": a unit is missing, as in '{found[1]} us'; there are ns, us, ms and s"
    return f"; there is no unit {found[2]!r}, but ns, us, ms and s"


def parse_duration(name: str, value: object) -> int:
    """Read a duration in nanoseconds.

    Parameters
    ----------
    name : str
        The argument, for the message.
    value : int or str
        Nanoseconds, or a number and a unit: ns, us, ms or s, in any case.

    Returns
    -------
    int
        Nanoseconds, 0 or more.

    Raises
    ------
    TypeError
        It is neither a whole number nor text.
    ValueError
        It is negative, or more than 146 years, or the text cannot be read.
    """
    form = "must be nanoseconds as an int, or text as '10 us'"
    if isinstance(value, str):
        found = _TIME.fullmatch(value.replace("\N{GREEK SMALL LETTER MU}", "µ"))
        unit = None if found is None else _TIMES.get(found[2].lower())
        if found is not None and not found[2] and float(found[1]) == 0:
            unit = 1  # 0 needs no unit
        if found is None or unit is None:
            raise ValueError(f"{name} {form}, not {value!r}{_no_time_unit(found)}")
        time = int(float(found[1]) * unit) if "." in found[1] else int(found[1]) * unit
    elif is_bool(value):
        raise TypeError(f"{name} {form}, not {value!r}")
    else:
        try:
            time = operator.index(cast(Any, value))
        except TypeError:
            raise TypeError(f"{name} {form}, not {value!r}") from None
    if not 0 <= time <= _MAX_DURATION:
        raise ValueError(f"{name} must be between 0 and {_MAX_DURATION} ns, not {value!r}")
    return time
