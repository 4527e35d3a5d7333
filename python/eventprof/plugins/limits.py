"""The settings of a test: the arguments of its mark, and the ini file's defaults for all tests."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .._words import did_you_mean
from ..base.arguments import THREADS, choice, is_bool, patterns
from ..base.quantities import parse_duration, parse_size

#: What is counted, in the order in which it is shown.
COUNTS = ("calls", "c_calls", "allocations", "bytes", "peak", "retained")
SIZES = ("bytes", "peak", "retained")
COLLECTOR = ("off", "before", "on")


@dataclass(frozen=True)
class Wanted:
    """The settings of a test.

    Parameters
    ----------
    most : mapping of str to int
        The limits, by a word of COUNTS or "time".
    include : tuple of str
        Globs of the functions that are counted; empty: all.
    warmup : int
        The number of runs before the run that is counted.
    threads, gc : str
        A word of THREADS, and one of COLLECTOR.
    buffer : int
        Bytes for the events of a run.
    """

    most: Mapping[str, int] = field(default_factory=dict)
    include: tuple[str, ...] = ()
    warmup: int = 1
    threads: str = "current"
    gc: str = "off"
    buffer: int = 256 << 20


def _whole(name: str, value: object) -> int:
    if is_bool(value):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    try:
        number = int(value) if isinstance(value, str) else operator.index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a whole number, not {value!r}") from None
    if number < 0:
        raise ValueError(f"{name} must be 0 or more, not {value!r}")
    return number


def _size(name: str, value: object) -> int:
    return 0 if value in (0, "0") and not is_bool(value) else parse_size(name, value)


_READ: dict[str, Callable[[str, Any], Any]] = {
    "max_calls": _whole,
    "max_c_calls": _whole,
    "max_allocations": _whole,
    "max_bytes": _size,
    "max_peak": _size,
    "max_retained": _size,
    "max_time": parse_duration,
    "include": patterns,
    "warmup": _whole,
    "threads": lambda name, value: choice(name, value, THREADS),
    "gc": lambda name, value: choice(name, value, COLLECTOR),
    "buffer": parse_size,
}


def wanted(defaults: Mapping[str, Any], marks: Mapping[str, Any]) -> Wanted:
    """Read the settings of a test.

    Parameters
    ----------
    defaults : mapping
        The values of the ini file; empty text: not set.
    marks : mapping
        The arguments of the mark, which win. None removes a limit.

    Returns
    -------
    Wanted
        The settings.

    Raises
    ------
    TypeError, ValueError, MemoryError
        An argument has a wrong value.
    """
    for name in marks:
        if name not in _READ:
            raise TypeError(
                f"the mark eventprof has no argument {name!r}{did_you_mean(name, _READ)}"
            )
    given = {name: value for name, value in defaults.items() if value not in ("", None, [])}
    given |= marks
    read = {name: _READ[name](name, value) for name, value in given.items() if value is not None}
    most = {
        name.removeprefix("max_"): read.pop(name) for name in list(read) if name.startswith("max_")
    }
    return Wanted(most, **read)
