"""The parts that a report is drawn with: numbers and names as text, bars, a curve; all by rich.

Each part can be drawn with block and braille characters, or plain: in ASCII.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.text import Text

from .._words import show_bytes, show_ns
from ..base.text import clean
from ..tables.column import Array

HEAD = "bold cyan"
GOOD = "green"
BAD = "bold red"
SIDE = "dim"
BAR = "cyan"
MARK = "bold yellow"

_BRAILLE_LEFT = (0x40, 0x04, 0x02, 0x01)  # the dots of a cell, from the bottom up
_BRAILLE_RIGHT = (0x80, 0x20, 0x10, 0x08)
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_PLOT_ROWS = 8
_LONGEST = 2000  # characters of a name that is shortened part by part

# ---- Numbers and names as text -------------------------------------------------------------------


def show_percent(part: float, whole: float) -> str:
    """Return a share in percent."""
    # As doubles: times of more than 2.9 years, in ns, overflow an int64 when multiplied.
    return f"{100 * float(part) / float(whole):.1f} %" if whole > 0 else "-"


def _cut(text: str, width: int, dots: str) -> str:
    """Shorten a text to a width in cells: cut out its middle, and keep more of its end."""
    room = width - cell_len(dots)
    if room < 3:
        return dots[:width]
    head, tail = text[:room], text[-room:]
    while cell_len(head) > room // 3:
        head = head[:-1]
    while cell_len(tail) > room - cell_len(head):
        tail = tail[1:]
    return head + dots + tail


def shorten(text: str, width: int, separator: str, dots: str) -> str:
    """Shorten a dotted name or a path by whole parts of its middle, if the last part fits."""
    if len(text) > _LONGEST:  # nobody reads such a name, and the steps below would take long
        return _cut(text, width, dots)
    if cell_len(text) <= width:
        return text
    first, *middle, last = text.split(separator) if separator in text else ("", text)
    if cell_len(last) + cell_len(dots) > width:
        return _cut(last, width, dots)
    tail = last
    while middle and cell_len(dots + middle[-1] + separator + tail) <= width:
        tail = middle.pop() + separator + tail
    whole = first + dots + tail
    if first and cell_len(whole) <= width:
        return whole
    # If the last parts are short, such as one letter after a long class name, cut the whole text.
    return dots + tail if cell_len(tail) >= width // 2 else _cut(text, width, dots)


class Name:
    """A name or a path that shortens itself to the room that it gets.

    Parameters
    ----------
    text : str
        The name or the path.
    plain : bool
        Whether to use only ASCII.
    path : bool
        Whether it is a path.
    style : str
        A style of rich.
    """

    def __init__(self, text: str, *, plain: bool, path: bool = False, style: str = "") -> None:
        self.text = clean(text, plain=plain)
        self.dots = "..." if plain else "…"
        self.path = path
        self.style = style

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        width = cell_len(self.text[:_LONGEST])
        return Measurement(min(8, width), width).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        width, text = options.max_width, self.text
        if len(text) > _LONGEST or cell_len(text) > width:
            text = text.replace(".<locals>", "")
        text = shorten(text, width, "/" if self.path else ".", self.dots)
        yield Text(text, style=self.style, no_wrap=True)


# ---- Pictures ------------------------------------------------------------------------------------


def draw_bar(share: float, width: int, *, plain: bool) -> Text:
    """Draw a share, 0 to 1, as a bar."""
    share = min(max(share, 0.0), 1.0)
    if plain:
        return Text("#" * round(share * width), style=BAR)
    eighths = round(share * width * 8)
    if share >= 0.0005:  # a smaller share is shown as 0.0 %, without a bar
        eighths = max(eighths, 1)
    return Text((_EIGHTHS[8] * (eighths // 8) + _EIGHTHS[eighths % 8].strip()), style=BAR)


def draw_lane(first: int, last: int, length: int, width: int, *, plain: bool) -> Text:
    """Draw the part of a window from one time to another; all in ns but the width."""
    scale = width / max(length, 1)
    start = min(int(first * scale), width - 1)
    end = min(max(int(np.ceil(last * scale)), start + 1), width)
    mark, rest = ("=", ".") if plain else ("━", "·")
    return Text.assemble(
        (rest * start, SIDE), (mark * (end - start), BAR), (rest * (width - end), SIDE)
    )


class Rule:
    """A section's title, and a line from the title to the right edge."""

    def __init__(self, title: str, side: str, *, plain: bool) -> None:
        self.title, self.side, self.line = title, side, "-" if plain else "─"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        text = Text(self.title, style=HEAD)
        if self.side:
            text.append(f"  {self.side}", style=SIDE)
        room = options.max_width - text.cell_len - 1
        if room > 0:
            text.append(" " + self.line * room, style=SIDE)
        text.truncate(options.max_width)
        yield text


class Curve:
    """Live memory over time, with its peak marked.

    A column covers an interval of time. It is filled up to the least live bytes of that interval,
    and stippled from there up to the most.

    Parameters
    ----------
    bins : callable
        Called with a number of intervals; gives the least and the most live bytes of each.
    duration : int
        The duration of the window, in ns.
    peak : (int, int)
        The time of the peak, in ns, and its bytes, more than 0.
    known_from : int
        The time, in ns, before which events were lost.
    plain : bool
        Whether to use only ASCII.
    """

    def __init__(
        self,
        bins: Callable[[int], tuple[Array, Array]],
        duration: int,
        peak: tuple[int, int],
        *,
        known_from: int,
        plain: bool,
    ) -> None:
        self.bins = bins
        self.duration = duration
        self.peak_time, self.peak_bytes = peak
        self.known_from = known_from
        self.plain = plain

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        plain, top, duration = self.plain, self.peak_bytes, self.duration
        labels = {0: show_bytes(top), _PLOT_ROWS // 2: show_bytes(top / 2), _PLOT_ROWS: "0 B"}
        gutter = max(map(len, labels.values()))
        width = max(options.max_width - gutter - 2, 8)
        rows = self._stars(width) if plain else self._dots(width)
        column = min(self.peak_time * width // max(duration, 1), width - 1)
        gap = self.known_from * width // max(duration, 1)
        unknown = Text(("?" if plain else "░") * gap, style="not dim red")
        yield self._mark(column, gutter + 2, options.max_width)
        for index, row in enumerate(rows):
            line = Text(labels.get(index, "").rjust(gutter), style=SIDE)
            line.append(" |" if plain else " ┤" if index in labels else " │")
            yield line.append(unknown).append(row[gap:], style="not dim " + BAR)
        corner, flat, tick, end = "+-++" if plain else "└─┴┘"
        ticks = [width * k // 4 - (k == 4) for k in range(5)]
        axis = "".join(tick if x in ticks[1:4] else flat for x in range(width - 1)) + end
        yield Text(f"{labels[_PLOT_ROWS].rjust(gutter)} {corner}{axis}", style=SIDE)
        yield self._times(ticks, duration, gutter + 2, options.max_width)

    def _mark(self, column: int, offset: int, width: int) -> Text:
        mark = "v" if self.plain else "▼"
        label = f"peak {show_bytes(self.peak_bytes)} at {show_ns(self.peak_time)}"
        place = offset + column
        if place + len(label) + 2 <= width:
            return Text(" " * place + f"{mark} {label}", style=MARK)
        return Text(f"{label} {mark}".rjust(place + 1), style=MARK)

    @staticmethod
    def _times(ticks: list[int], duration: int, offset: int, width: int) -> Text:
        line = [" "] * width
        for k in (0, 4, 2, 1, 3):  # the two ends first, so that they have room
            label = show_ns(duration * k // 4) if k else "0"
            place = min(max(offset + ticks[k] - len(label) // 2, 0), width - len(label))
            if not "".join(line[max(place - 1, 0) : place + len(label) + 1]).strip():
                line[place : place + len(label)] = label
        return Text("".join(line).rstrip(), style=SIDE)

    def _heights(self, bins: int, levels: int) -> tuple[Array, Array]:
        """Return the heights of the least and the most of each bin; at least 1 above 0 bytes."""
        low, high = (sizes * (levels / self.peak_bytes) for sizes in self.bins(bins))
        return np.round(low).astype(int), np.ceil(high - 0.5).clip(high > 0).astype(int)

    def _stars(self, width: int) -> Iterator[str]:
        low, high = self._heights(width, _PLOT_ROWS)
        for row in range(_PLOT_ROWS - 1, -1, -1):
            yield "".join(
                "#" if row < smallest else ":" if row < most else " "
                for smallest, most in zip(low, high, strict=True)
            ).rstrip()

    def _dots(self, width: int) -> Iterator[str]:
        low, high = self._heights(2 * width, 4 * _PLOT_ROWS)
        low = np.where(high - low < 4, high, low)  # no stipple of less than a character
        level = np.arange(4 * _PLOT_ROWS)[:, None]
        stipple = (level + np.arange(2 * width)) % 2 == 0
        dots = (level < low) | ((level < high) & stipple) | (level == high - 1)
        cells = np.zeros((_PLOT_ROWS, width), dtype=int)
        for dot in range(4):
            cells |= np.where(dots[dot::4, 0::2], _BRAILLE_LEFT[dot], 0)
            cells |= np.where(dots[dot::4, 1::2], _BRAILLE_RIGHT[dot], 0)
        for row in cells[::-1]:
            yield "".join(chr(0x2800 + cell) if cell else " " for cell in row).rstrip()
