"""The counts of events that found no room."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .._words import plural, show_ns

if TYPE_CHECKING:
    from .facts import Facts


def _imports(metadata: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return what the importer said, of a trace and of each trace that was merged into it."""
    each = [metadata, *(metadata.get("merged") or ())]
    found = [part.get("imported") for part in each if isinstance(part, Mapping)]
    return [part for part in found if isinstance(part, Mapping)]


def loss_of_others(trace: Facts, *, unsure: bool = True) -> list[str]:
    """Report what a file of another tool lost; with `unsure`, also that it may lack more."""
    lost: list[str] = []
    for part in _imports(trace._recorder_metadata):
        lost += map(str, part.get("lost") or ())
        if unsure and part.get("unsure"):
            lost.append(str(part["unsure"]))
    return list(dict.fromkeys(lost))


def time_words(trace: Facts) -> Callable[[int], str]:
    """Return what words a time of a trace; a file of another tool may count samples instead."""
    units = {part.get("unit") for part in _imports(trace._recorder_metadata)}
    if len(units) != 1 or None in units:
        return show_ns
    unit = str(units.pop())
    return lambda count: plural(int(count), unit) if unit else f"{count:,}"


class Loss:
    """The counts of events that found no room; true if there are any.

    Attributes
    ----------
    total : int
        All of them: the sum of `by_kind`.
    by_kind : dict of str to int
        By the word of the ``event`` column.
    by_thread : dict of int to int
        By the row in ``threads``.
    reason : str or None
        Why events were lost. The oldest were overwritten: overwritten (the buffer was full),
        small_disk (the disk was full before the buffer), family (the files of all processes had
        reached their limit). Recording ended: limit (the buffer was full), memory (there was none),
        disk (it was full). The file is not whole: cut (another program cut it off), damaged.
    """

    __slots__ = ("by_kind", "by_thread", "reason", "total")

    def __init__(self, by_kind: dict[str, int], by_thread: dict[int, int], full: str | None):
        self.by_kind = by_kind
        self.by_thread = by_thread
        self.total = sum(by_kind.values())
        self.reason = full if full is not None else "overwritten" if self.total else None

    def __bool__(self) -> bool:
        return self.total > 0

    def __repr__(self) -> str:
        if not self:
            return "<no events lost>"
        kinds = ", ".join(f"{count:,} {word}" for word, count in self.by_kind.items())
        why = {
            "overwritten": "the oldest were overwritten",
            "limit": "the buffer was full",
            "memory": "there was no memory",
            "disk": "the file found no more room on its disk",
            "small_disk": "the disk was full before the buffer, and the oldest were overwritten",
            "family": "the files of all processes had reached their limit, and the oldest were "
            "overwritten",
            "cut": "the file was cut off while it was written",
            "damaged": "the file is damaged",
        }
        # PyPy does not say on which thread an event of its compiler was lost.
        on = f" on {plural(len(self.by_thread), 'thread')}" if self.by_thread else ""
        return f"<{plural(self.total, 'event')} lost{on}, {why[str(self.reason)]}: {kinds}>"
