"""The table of live memory, which can be plotted."""

from __future__ import annotations

from typing import Any

from ..tables.table import Table


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
