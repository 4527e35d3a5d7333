"""The report: one page of text that says what a trace holds, drawn by rich.

In tables the numbers are at the left and the names at the right: the names get the rest of the
line.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

import numpy as np
from rich.console import Console, RenderableType
from rich.text import Text

from ..base.text import clean
from .layout import Layout
from .limits import limits
from .memory import memory
from .recorded import recorded
from .threads import threads
from .times import times

if TYPE_CHECKING:
    from ..trace import Trace

_NARROWEST = 40  # columns: with fewer there is no room for names


def sections(page: Layout) -> Iterator[RenderableType]:
    """Yield the whole page, top to bottom."""
    yield from limits(page)
    yield from _own_code(page)
    yield from page.section("What was recorded", recorded(page))
    yield from times(page)
    yield from memory(page)
    yield from threads(page)


def _own_code(page: Layout) -> Iterator[RenderableType]:
    """Yield the section on own code: slow lines, lines that hold the peak, measures of memory."""
    from .own_lines import sections as first_lines

    lines = first_lines(page.trace)
    if lines:
        texts = [Text(clean(line, plain=page.plain), no_wrap=True) for line in lines]
        for text in texts:
            text.overflow = "ellipsis" if not page.plain else "crop"
        yield from page.section("In own code", *texts, side="eventprof tree shows more")


class _Ascii(io.StringIO):
    """A text file for output that can show only ASCII."""

    encoding = "ascii"


def _is_plain(console: Console) -> bool:
    """Whether an output can show only ASCII: by its encoding, or by its kind of terminal."""
    terms = ("dumb", "linux", "unknown", "vt100")
    poor = console.is_terminal and os.environ.get("TERM", "").lower() in terms
    return poor or console.options.ascii_only


def _checked(name: str, value: object, smallest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    if value < smallest:
        raise ValueError(f"{name} must be {smallest} or more, not {value!r}")
    return int(value)


def _print(trace: Trace, console: Console, limit: int) -> None:
    page = Layout(trace, console.width, limit, plain=_is_plain(console))
    for part in sections(page):
        console.print(part, highlight=False, markup=False, emoji=False)


def _text(trace: Trace, encoding: str, width: int, limit: int) -> str:
    file = io.StringIO() if encoding.lower().startswith("utf") else _Ascii()
    console = Console(file=file, width=width, color_system=None, force_terminal=False,
                      force_jupyter=False, legacy_windows=False)  # fmt: skip
    _print(trace, console, limit)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def report(
    trace: Trace, file: IO[str] | None = None, width: int | None = None, limit: int = 15
) -> None:
    """Print the report: where the time and the memory went.

    Parameters
    ----------
    trace : Trace
        The trace to report.
    file : text file, optional
        Where to print; by default standard output.
    width : int, optional
        The width in columns, 40 or more; by default the terminal's, or 80.
    limit : int
        How many functions the table of times shows; the other tables show half as many.

    Raises
    ------
    TypeError, ValueError
        An argument is not a whole number, or too small. Nothing was printed.

    Notes
    -----
    There are colours only in a terminal, and not if ``NO_COLOR`` is set. If the encoding or the
    terminal has only ASCII, the page has only ASCII.
    """
    limit = _checked("limit", limit, 1)
    if width is not None:
        width = _checked("width", width, _NARROWEST)
    console = Console(file=file, width=width)
    if console.is_terminal or console.is_jupyter:
        _print(trace, console, limit)
    else:  # rich fills lines with blanks: leave them out
        print(_text(trace, console.encoding, console.width, limit), file=console.file)


def text(trace: Trace, width: int = 100, limit: int = 15) -> str:
    """Return the report as text without colours.

    Parameters
    ----------
    trace : Trace
        The trace to report.
    width : int
        The width in columns, 40 or more.
    limit : int
        As in `report`.

    Returns
    -------
    str
        Lines of at most `width` columns, without a last newline. If standard output has only ASCII,
        so has the text: it can always be printed.

    Raises
    ------
    TypeError, ValueError
        An argument is not a whole number, or too small.
    """
    width, limit = _checked("width", width, _NARROWEST), _checked("limit", limit, 1)
    return _text(trace, getattr(sys.stdout, "encoding", None) or "utf-8", width, limit)
