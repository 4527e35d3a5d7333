"""A progress bar on standard error, if it is a terminal, for work of more than two seconds."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.console import Console

#: Seconds until the bar is shown.
AFTER = 2.0


class Bar:
    """Shows that work goes on; after a call with (done, total) also how much is done.

    Parameters
    ----------
    what : str
        The text before the bar.
    console : rich.console.Console, optional
        Where to draw; by default standard error.

    Notes
    -----
    A thread draws the bar, because the work is often one long call of the core, which lets other
    threads run. If standard error is not a terminal, there is no thread, and rich is not imported.
    """

    def __init__(self, what: str, console: Console | None = None) -> None:
        self._what = what
        self._console = console
        self._done: tuple[int, int] | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        terminal = self._console is not None or (sys.stderr is not None and sys.stderr.isatty())
        if terminal:
            self._thread = threading.Thread(target=self._draw, daemon=True, name="eventprof bar")
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def __call__(self, done: int, total: int) -> None:
        """Report how much is done."""
        self._done = (done, total)

    def _draw(self) -> None:
        if self._ended.wait(AFTER):
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        progress = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(),
            TextColumn("{task.fields[share]}"), TimeElapsedColumn(),
            console=self._console or Console(stderr=True), transient=True,
        )  # fmt: skip
        with progress:
            task = progress.add_task(self._what, total=None, share="")
            while not self._ended.wait(0.1):
                if self._done is not None:
                    done, total = self._done
                    share = f"{100 * done // max(total, 1)} %"
                    progress.update(task, completed=done, total=total, share=share)
