"""Live memory and the resident set over time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from .._words import did_you_mean
from .column import Column
from .descriptions import described, number
from .kinds import DOMAINS
from .table import Table

if TYPE_CHECKING:
    from ..trace.recorded import Recorded


def _domain_bits(domains: Iterable[str] | str | None) -> int:
    if domains is None:
        return (1 << len(DOMAINS)) - 1
    bits = 0
    for domain in [domains] if isinstance(domains, str) else domains:
        if domain not in DOMAINS:
            raise ValueError(
                f"domains: {domain!r} is none of {', '.join(DOMAINS)}"
                f"{did_you_mean(domain, DOMAINS)}"
            )
        bits |= 1 << DOMAINS.index(domain)
    if bits == 0:
        raise ValueError(f"domains must name one or more of {', '.join(DOMAINS)}")
    return bits


def live_columns(
    trace: Recorded, domains: Iterable[str] | str | None = None
) -> tuple[str, list[Column], int]:
    """Make the name, the columns and the length of `Trace.memory_of`."""
    time, live, blocks = trace._core.curve(_domain_bits(domains))
    values = {"time": time, "live": live, "blocks": blocks}
    columns = [number(description, values.__getitem__) for description in described("memory")]
    return trace._title("memory"), columns, len(time)


def resident_table(trace: Recorded) -> Table:
    """Make `Trace.resident`."""
    time, held, recorder = trace._core.resident()
    columns = {"time": time, "bytes": held, "recorder": np.ma.masked_equal(recorder, 0)}
    return Table.from_columns(
        "resident", columns, units={"time": "ns", "bytes": "bytes", "recorder": "bytes"}
    )


def memory_bins(trace: Recorded, count: int, domains: Iterable[str] | str | None = None) -> Table:
    """Answer `Trace.memory_bins`."""
    if count < 1:
        raise ValueError(f"count must be 1 or more, not {count}")
    low, high, last, blocks = trace._core.bins(_domain_bits(domains), count)
    start = np.array([trace.duration * k // count for k in range(count)], dtype=np.int64)
    return Table.from_columns(
        trace._title("memory in bins"),
        {"time": start, "min": low, "max": high, "last": last, "blocks": blocks},
        units={"time": "ns", "min": "bytes", "max": "bytes", "last": "bytes"},
    )
