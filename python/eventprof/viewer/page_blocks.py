"""The blocks of the page: births and deaths in order of time, and the holders of live bytes.

A birth is an allocation, a death is a free. A holder is a function, a line, or an own line.
"""

from __future__ import annotations

import numpy as np

from ..tables.column import Array
from . import planes
from .page_calls import Calls
from .planes import Packed, pack

#: How many holders have a band of their own in the picture of memory.
BANDS = 12
#: The kinds of holders: the function of the innermost call, the line that was executing, the own
#: line that the block is charged to.
HOLDERS = ("function", "line", "own")


class Blocks:
    """Births and deaths of blocks, in order of time.

    Parameters
    ----------
    calls : Calls
        The calls of the page, with the core's part of it.
    """

    def __init__(self, calls: Calls) -> None:
        self.data = calls.data
        _, self.count, self.events = self.data.counts()
        #: Function and line of each place; the first is unknown.
        self.places = self.data.places()
        #: The holders of each charge, by kind of holder: a function + 1, or numbers of places.
        self.charges = self.data.charges()
        #: The holders that have a band, by kind of holder: functions, or numbers of places.
        self.bands = {by: self._choose(by) for by in HOLDERS}
        for number, by in enumerate(HOLDERS):
            keys = np.array(self.bands[by], dtype=np.int64)
            self.data.set_bands(number, keys + 1 if by == "function" else keys)
        #: Events for which a search by thread, depth and time would find another call, and that
        #: call. Each tile adds its own.
        self._astray: dict[int, tuple[Array, Array]] = {}

    def _choose(self, by: str) -> list[int]:
        """Choose the holders that get a band.

        The first half hold the most at the peak, the others have the most bytes times duration.
        """
        held, area = self.data.held(HOLDERS.index(by))
        if by == "function":
            held, area = held[1:], area[1:]
        else:
            held, area = held.copy(), area.copy()
            held[0] = area[0] = 0  # the unknown place
        most = [int(key) for key in np.argsort(-held, kind="stable")[:BANDS] if held[key] > 0]
        over_time = [int(key) for key in np.argsort(-area, kind="stable")[:BANDS] if area[key] > 0]
        half = most[: BANDS // 2]
        return list(dict.fromkeys([*half, *over_time, *most]))[:BANDS]

    def tile_count(self) -> int:
        """Return the number of tiles."""
        return -(-self.events // planes.TILE)

    def tile(self, number: int) -> Packed:
        """Make a tile, and give what the head says of it, and its section: each tile once."""
        ((widths, rows, low), parts), start, births, astray = self.data.block_tile(number)
        self._astray[number] = astray
        head = {"start": start, "births": births}
        return {**head, "widths": widths, "rows": rows, "low": low}, pack(*parts)

    def astray(self) -> tuple[Array, Array]:
        """Return the events whose call data.js would not find, and the calls; after all tiles."""
        nothing = np.empty(0, dtype=np.int64)
        found = [self._astray[event] for event in sorted(self._astray)]
        events, calls = zip((nothing, nothing), *found, strict=True)
        return np.concatenate(events), np.concatenate(calls)

    def curve(self, by: str) -> list[list[int]]:
        """Return the live bytes of each band and of all others at each bin's end; after all tiles.

        The bins divide the duration into equal parts.
        """
        if not self.count:
            return []
        changes = self.data.curve(HOLDERS.index(by)).reshape(-1, len(self.bands[by]) + 1)
        curves: list[list[int]] = np.cumsum(changes, axis=0).T.tolist()
        return curves
