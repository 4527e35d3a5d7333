"""Live memory and the resident set over time."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np

from .._words import did_you_mean
from .descriptions import described, number
from .kinds import DOMAINS
from .table import Table
from .tables import Tables


class MemoryTable(Table):
    """Live memory after every change: a table that can be plotted."""

    __slots__ = ()

    def plot(self, axes: Any = None) -> Any:
        """Draw live bytes over time.

        Parameters
        ----------
        axes : matplotlib.axes.Axes, optional
            Where to; without, in a figure of its own.

        Returns
        -------
        matplotlib.axes.Axes
            With one line; ``axes.figure.savefig("memory.svg")`` writes it.

        Raises
        ------
        ModuleNotFoundError
            matplotlib is not installed: ``pip install 'eventprof[plot]'``.

        Notes
        -----
        Of each of 1500 equal spans the most and the last that was live in it are drawn.
        """
        from ..viewer.plots import memory

        return memory(self, axes)


class Memory(Tables):
    """Memory over time."""

    @cached_property
    def memory(self) -> MemoryTable:
        """Live memory after every change; blocks older than the window are not in it.

        Returns
        -------
        Table
            ``time`` int64, ns; ``live`` int64, bytes; ``blocks`` int64. See `memory_of` for one
            domain, and `memory_bins` for plots; ``memory.plot()`` draws it by matplotlib.
        """
        return self.memory_of()

    def _domain_bits(self, domains: Iterable[str] | str | None) -> int:
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

    def memory_of(self, domains: Iterable[str] | str | None = None) -> MemoryTable:
        """Give live memory of some domains after every change.

        Parameters
        ----------
        domains : str or iterable of str, optional
            Of raw, mem, obj, numpy, libc; all without.

        Returns
        -------
        Table
            As `memory`.

        Raises
        ------
        ValueError
            There is no such domain.
        """
        time, live, blocks = self._core.curve(self._domain_bits(domains))
        values = {"time": time, "live": live, "blocks": blocks}
        columns = [number(of, values.__getitem__) for of in described("memory")]
        return MemoryTable(self._title("memory"), columns, len(time))

    @cached_property
    def resident(self) -> Table:
        """The process's resident set over time, sampled every 10 ms while memory is recorded.

        Returns
        -------
        Table
            ``time`` int64, ns; ``bytes`` int64; ``recorder`` int64, how many of these bytes are
            the recorder's own: its log (of a file, the part of the file that is in memory), its
            tables of names and threads. Null where that is unknown: in logs before version 2.2,
            archives before 1.4, and where one of them was merged. Empty where the system does not
            say (not Linux).

        Notes
        -----
        A thread of the recorder's own samples it, the program's threads do not wait; of windows
        longer than eleven minutes the samples thin out. Further samples are taken at both ends and
        whenever a chunk of the log began: these are all where no memory is recorded. A chunk counts
        whole from its beginning, so ``recorder`` is too large by what is still free in the chunks
        of the threads: at most 1 MiB of each, and little of a thread that does little.
        """
        time, held, recorder = self._core.resident()
        columns = {"time": time, "bytes": held, "recorder": np.ma.masked_equal(recorder, 0)}
        return Table.from_columns(
            "resident", columns, units={"time": "ns", "bytes": "bytes", "recorder": "bytes"}
        )

    def memory_bins(self, count: int, domains: Iterable[str] | str | None = None) -> Table:
        """Give live memory in bins of equal length, for plots.

        Parameters
        ----------
        count : int
            Of bins.
        domains : str or iterable of str, optional
            As in `memory_of`.

        Returns
        -------
        Table
            ``time`` int64, ns, of the bin's start; ``min``, ``max``, ``last`` int64, bytes;
            ``blocks`` int64, at its end.

        Raises
        ------
        ValueError
            There is no such domain, or no bin.
        """
        if count < 1:
            raise ValueError(f"count must be 1 or more, not {count}")
        low, high, last, blocks = self._core.bins(self._domain_bits(domains), count)
        start = np.array([self.duration * k // count for k in range(count)], dtype=np.int64)
        return Table.from_columns(
            self._title("memory in bins"),
            {"time": start, "min": low, "max": high, "last": last, "blocks": blocks},
            units={"time": "ns", "min": "bytes", "max": "bytes", "last": "bytes"},
        )
