"""Facts about a trace besides its tables: loss, metadata, its file, counts of filters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .. import _core
from .._words import plural, show_ns
from .kinds import NUMBERS, WORDS
from .loss import Loss

if TYPE_CHECKING:
    from .descriptions import Strings


def labels_shown(metadata: Mapping[str, Any]) -> str:
    """Return the labels of a recording in one line; empty: it has none."""
    labels = metadata.get("labels")
    known = labels.items() if isinstance(labels, Mapping) else ()
    return ", ".join(f"{name}={text}" for name, text in known)


def has_lock(metadata: Mapping[str, Any]) -> bool:
    """Whether events show who held an interpreter's lock, of what is known of a recording.

    A recording of several processes has ``gil`` False, as it has no lock for all of them: readers
    that know only that do not take the events of one process for a sign of the others' waiting.
    ``locks`` says that each process has its own.
    """
    return metadata.get("gil", True) is not False or metadata.get("locks") == "process"


def has_waits(metadata: Mapping[str, Any]) -> bool:
    """Whether waits were recorded; of several recordings, in one of them."""
    if "waits" in metadata:
        return bool(metadata["waits"])
    options = metadata.get("options")  # of a damaged file, it may be anything
    events = options.get("events") if isinstance(options, dict) else None
    return isinstance(events, list | tuple) and "wait" in events


class Facts:
    """The extension's part of a trace, and facts about the recording."""

    def __init__(
        self,
        core: _core.Trace,
        metadata: Mapping[str, Any],
        file: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        self._core = core
        self._known = dict(metadata)
        #: Of a merged trace: gives what is known of its parts once their events were read.
        self._late: Callable[[], Mapping[str, Any]] | None = None
        self._file = file
        #: Opens its file once more; None: it has none.
        self._again: Callable[[], _core.Trace] | None = None

    def _strings_of(self, table: str, column: str) -> Strings | None:
        """Return the texts of a column of ids where only some of its rows are here; see batches."""
        return None

    @cached_property
    def _facts(self) -> _core._Facts:
        facts = self._core.facts()
        if self._late is not None:
            self._known |= self._late()
            self._late = None  # it has the parts
        return facts

    @property
    def _recorder_metadata(self) -> dict[str, Any]:
        """What the recorder knew of the run; of a merged trace this reads the events."""
        if self._late is not None:
            _ = self._facts
        return self._known

    @property
    def _early_metadata(self) -> dict[str, Any]:
        """What is known before the events are read: as `metadata`, but without all counts."""
        realtime, monotonic = self._core.start()
        return {"start_ns": realtime, "start_monotonic_ns": monotonic, **self._known}

    @property
    def _has_lock(self) -> bool:
        """Whether events show who held an interpreter's lock."""
        return has_lock(self._known)

    @property
    def _has_waits(self) -> bool:
        """Whether it has events of waits, so that waiting need not be told from tenures."""
        return has_waits(self._known)

    @property
    def _has_tasks(self) -> bool:
        """Whether it has events of asyncio's tasks."""
        return bool(self._facts["kinds"] >> NUMBERS["TASK"] & 1)

    @property
    def _knows_waited(self) -> bool:
        """Whether there is anything that tells for how long calls waited."""
        return self._has_lock or self._has_waits

    @property
    def duration(self) -> int:
        """The length of the window in ns, or up to the time when the buffer was full."""
        return self._facts["duration_ns"]

    @cached_property
    def loss(self) -> Loss:
        """The events that found no room.

        Returns
        -------
        Loss
            Counts by kind and by thread; false if no event was lost. With the rows of `events` they
            add up to all events that happened.
        """
        by_kind: dict[str, int] = {}
        by_thread = {}
        for row, (*_, lost) in enumerate(self._thread_rows):
            for kind, count in lost.items():
                by_kind[WORDS[kind]] = by_kind.get(WORDS[kind], 0) + count
            if lost:
                by_thread[row] = sum(lost.values())
        full = self._facts["full"]
        if full is None and self._file is not None and self._facts["damaged_chunks"]:
            full = "damaged"
        if not by_thread and full in ("damaged", "small_disk", "family"):
            full = None
        return Loss(by_kind, by_thread, full)

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """Facts about the run.

        Returns
        -------
        dict
            ``start_ns`` and ``start_monotonic_ns``, the window's start on CLOCK_REALTIME and
            CLOCK_MONOTONIC; ``duration_ns``; ``clock``, ``clock_frequency_hz``; ``eventprof``,
            ``python``, ``platform``, ``hostname``, ``pid``, ``argv``; ``backend``, ``options``,
            ``displaced`` of the recorder; ``damaged_chunks``, parts that could not be read;
            ``filtered``, what was left out, see `filtered`; ``overhead``, what an event cost, if it
            was measured, see `eventprof.overhead`.
        """
        facts = self._facts
        known = {k: v for k, v in self._recorder_metadata.items() if k != "runtime_events"}
        return {
            "start_ns": facts["start_realtime_ns"],
            "start_monotonic_ns": facts["start_monotonic_ns"],
            "duration_ns": facts["duration_ns"],
            "clock_frequency_hz": facts["clock_frequency_hz"],
            "damaged_chunks": facts["damaged_chunks"],
            "filtered": self.filtered,
            **known,
        }

    @property
    def file(self) -> dict[str, Any] | None:
        """Facts about the file that the trace was opened from.

        Returns
        -------
        dict or None
            None: the trace was recorded in this process. ``path``, ``format`` (log or archive),
            ``version`` (of the format), ``bytes``; ``awaits_stop``, whether the file is written
            when its recorder stops, because another recorder with a file began first;
            ``unfinished``, whether the recorder was not stopped, because the program ended or still
            runs; ``live``, whether more events may come; ``missing``, the first few parts that
            could not be read, in words, and ``missing_count``. Each format has more.
        """
        if self._file is None:
            return None
        self._core.facts()  # known after the events were read
        return self._file()

    @property
    def filtered(self) -> dict[str, int | None]:
        """Counts of the calls that include, exclude, max_depth and min_duration left out.

        Returns
        -------
        dict of str to int or None
            ``functions``: those whose calls were switched off by include and exclude. ``events``:
            calls and ends that these two left out; None if there are such functions, because calls
            of them are not counted. ``deep_calls``: left out by max_depth, with the calls inside of
            deep calls. ``short_calls``: left out by min_duration.
        """
        facts = self._facts
        return {
            "functions": facts["functions_off"],
            "events": None if facts["functions_off"] else facts["filtered"],
            "deep_calls": facts["deep_calls"],
            "short_calls": facts["short_calls"],
        }

    def _title(self, name: str) -> str:
        """Return a table's name; if events were lost, which may make it wrong, the name says so."""
        missing = []
        if self.loss:
            are = "event is" if self.loss.total == 1 else "events are"
            missing.append(f"{self.loss.total:,} {are} missing")
        damaged = self._facts["damaged_chunks"]
        if damaged:
            missing.append(f"{plural(damaged, 'part')} could not be read")
        return f"{name} (with loss: {', '.join(missing)})" if missing else name

    @cached_property
    def _thread_rows(
        self,
    ) -> list[tuple[str | None, int, int, int, dict[int, int], dict[int, int]]]:
        return self._core.threads()


def in_one_line(trace: Facts) -> str:
    """Describe a trace by its events, threads and duration, and by what it lacks."""
    lost = f", {trace.loss.total:,} lost" if trace.loss else ""
    damaged = trace._facts["damaged_chunks"]
    damaged_text = f", {plural(damaged, 'part')} damaged" if damaged else ""
    off = trace._facts["functions_off"]
    off_text = f", {plural(off, 'function')} switched off" if off else ""
    return (
        f"<eventprof.Trace: {plural(trace._facts['events'], 'event')} of "
        f"{plural(len(trace._thread_rows), 'thread')} in {show_ns(trace.duration)}{lost}"
        f"{damaged_text}{off_text}>"
    )
