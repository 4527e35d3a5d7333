"""What `Trace.verify` found: the replay is the extension's, here are its words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _core
from .._words import plural, show_ns
from ..tables.kinds import WORDS

if TYPE_CHECKING:
    from ..trace import Trace
    from ..trace.recorded import Recorded

#: The sorts of findings and what they mean; "damaged" is of files.
SORTS: dict[str, str] = {
    "damaged": "a part of the file is missing or cannot be read",
    **dict(_core.fault_table()),
}


class Fault(NamedTuple):
    """One thing that is wrong with a trace.

    Attributes
    ----------
    sort : str
        One of the words in ``SORTS`` of eventprof.answers.verification.
    row : int or None
        Of `Trace.events`; None: it is about a whole thread, the trace or its file.
    thread : int or None
        Row of `Trace.threads`.
    time : int or None
        ns since the window's start.
    what : str
        What is there.
    expected : str
        What should be there.
    other_row : int or None
        The event that this one does not agree with.
    """

    sort: str
    row: int | None
    thread: int | None
    time: int | None
    what: str
    expected: str
    other_row: int | None

    def __str__(self) -> str:
        place = []
        if self.row is not None:
            place.append(f"event {self.row:,}")
        if self.thread is not None:
            place.append(f"thread {self.thread}")
        if self.time is not None:
            place.append(f"at {show_ns(self.time)}")
        head = f"{', '.join(place)}: " if place else ""
        return f"{head}{self.what}; expected {self.expected}"


class Verification:
    """The outcome of `Trace.verify`: true if nothing is wrong.

    Attributes
    ----------
    findings : tuple of Fault
        The first thing that is wrong, in order of events; more with ``all=True``.
    counts : dict of str to int
        All that was found, by sort.
    excused : dict of str to int
        What would be wrong if the trace knew everything: it is older than the window, was lost or
        left out, or is in a part of the file that is damaged. By sort.
    events : int
        How many were replayed.
    records : int or None
        How many records of the log were looked at one by one as well; None: they are gone, because
        the trace's tables were asked for before, or it is of an archive.
    """

    def __init__(
        self,
        findings: tuple[Fault, ...],
        counts: Mapping[str, int],
        excused: Mapping[str, int],
        events: int,
        records: int | None,
    ) -> None:
        self.findings = findings
        self.counts = dict(counts)
        self.excused = dict(excused)
        self.events = events
        self.records = records

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.counts

    def __bool__(self) -> bool:
        return self.ok

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain objects, for JSON."""
        return {
            "ok": self.ok,
            "events": self.events,
            "records": self.records,
            "counts": self.counts,
            "excused": self.excused,
            "findings": [finding._asdict() for finding in self.findings],
        }

    def __str__(self) -> str:
        excused = sum(self.excused.values())
        also = f" ({excused:,} that look wrong are excused)" if excused else ""
        if self.ok:
            return f"{plural(self.events, 'event')}: nothing is wrong{also}"
        total = sum(self.counts.values())
        lines = [str(finding) for finding in self.findings]
        more = total - len(self.findings)
        if more:
            sorts = ", ".join(f"{count:,} {sort}" for sort, count in self.counts.items())
            lines.append(f"and {more:,} more; in all {sorts}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<eventprof.Verification: {self}>"


def find_pairing(trace: Recorded) -> dict[str, int]:
    """Return `Trace.pairing`: by one pass, if there are no columns yet."""
    if trace._core.has_columns():
        return trace._core.pairing()
    # A full recorder lost events of the end: the allocations of all freed blocks were before.
    return trace._tree.pairing(lost=bool(trace.loss) and not trace._facts["full"])


def verify(trace: Trace, every: bool, limit: int) -> Verification:
    """Replay a trace; see `Trace.verify`.

    Parameters
    ----------
    trace : Trace
        What to replay.
    every : bool
        Whether more than the first finding is wanted.
    limit : int
        How many at most.
    """
    if limit < 1:
        raise ValueError(f"limit must be 1 or more, not {limit}")
    metadata = trace._early_metadata
    parts = [part for part in metadata.get("merged") or () if isinstance(part, dict)]
    options = [part.get("options") or {} for part in parts or (metadata,)]
    displaced = metadata.get("displaced") or ()
    trimmed = metadata.get("trimmed") or {}
    limit = limit if every else 1
    counts, excused, rows, records = trace._core.verify(
        limit,
        bool(trimmed.get("functions")) or any(_filters(each) for each in options),
        bool(trimmed.get("threads"))
        or any(each.get("threads") == "current" for each in options)
        or _differ(options),
        _has_hook_frees(parts or [metadata]),
        any(word != "alloc" for word in displaced),
        "alloc" in displaced,
    )
    words = _Wording(trace)
    found = list(words.of_file())
    findings = (*found[:limit], *(words.of_row(*row) for row in rows[: limit - len(found)]))
    if found:
        counts = {"damaged": words.damage, **counts}
    events = trace._facts["events"]
    return Verification(findings, counts, excused, events, None if records is None else records[0])


def _filters(options: Mapping[str, Any]) -> bool:
    return bool(
        options.get("include")
        or options.get("exclude")
        or options.get("max_depth") is not None
        or options.get("min_duration")
    )


def _has_hook_frees(every: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the trace may have frees of blocks whose allocation, by a hook, was not recorded."""
    # In deep calls the profile hook has more frame objects than it can list (hooks/footprint.h).
    return any(
        each.get("backend") == "profile" and (each.get("options") or {}).get("domains")
        for each in every
    )


def _differ(options: list[dict[str, Any]]) -> bool:
    """Whether merged traces recorded different events: of each, some may be missing."""
    return len({(str(each.get("events")), str(each.get("domains"))) for each in options}) > 1


class _Wording:
    """Words what the extension found."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.damage = 0

    def of_file(self) -> Iterator[Fault]:
        """Yield what the file says of itself."""
        file = self._trace.file
        if file is None or file.get("live"):
            return
        missing = tuple(file.get("missing") or ())
        self.damage = max(int(file.get("missing_count") or 0), len(missing))
        for what in missing:
            yield Fault("damaged", None, None, None, what, "a whole file", None)
        events, written = self._trace._facts["events"], file.get("events_written")
        if isinstance(written, int):
            written -= int(file.get("unknown_events") or 0)
        if not missing and isinstance(written, int) and events != written:
            self.damage += 1
            what = f"{plural(events, 'event')} in the file"
            expected = f"the {written:,} that it says it has"
            yield Fault("damaged", None, None, None, what, expected, None)

    def of_row(
        self,
        sort: str,
        row: int | None,
        thread: int | None,
        time: int,
        kind: int,
        other: int | None,
        expected: int,
        found: int,
        address: int,
    ) -> Fault:
        """Return one finding of the extension's."""
        event = "events" if row is None else WORDS.get(kind, f"an event of kind {kind}")
        what, wanted = self._say(sort, event, other, expected, found, address)
        return Fault(sort, row, thread, None if row is None else time, what, wanted, other)

    def _function(self, row: int) -> str:
        if row < 0:
            return "a function that is not known"
        name = self._trace._core.functions()[row][0]
        return "a function without a name" if name is None else repr(name)

    def _say(
        self,
        sort: str,
        event: str,
        other: int | None,
        expected: int,
        found: int,
        address: int,
    ) -> tuple[str, str]:
        place = f"{address:#x}"
        since = "" if other is None else f" (event {other:,})"
        if sort in ("end_without_call", "end_of_another", "end_missing"):
            what = f"{event} of {self._function(found)}"
            if sort == "end_without_call":
                return what, "no end, as no call is open"
            opened = since or " (open when recording began)"
            return what, f"the end of the innermost call, {self._function(expected)}{opened}"
        says = {
            "unknown_kind": (f"kind {found}", "a kind of event that was asked for"),
            "unknown_thread": (f"thread {found}", f"one of {expected:,} threads"),
            "unknown_site": (f"{event} of place {found:,}", f"a place below {expected:,}"),
            "unknown_function": (f"{event} of function {found:,}", "one that the trace knows"),
            "time_back": (f"{event} at {found:,} ns", f"{expected:,} ns{since} or later"),
            "time_outside": (f"{event} at {found:,} ns", f"0 to {expected:,} ns"),
            "block_rows": (f"{event} with or without a block", "one for allocator events alone"),
            "block_size": (f"{event} of {found:,} bytes", f"0 to {expected:,} bytes"),
            "block_address": (f"{event} of address 0", "the address of a block"),
            "address_lives": (f"{event} of {place}", f"a free before: a block lives there{since}"),
            "freed_twice": (f"{event} of {place}", f"a block there: it was freed already{since}"),
            "realloc_alone": (
                f"{event}{f' after the realloc_free of event {other:,}' if other else ''}",
                "both halves of a realloc, one after the other",
            ),
            "thread_times": (f"its rows say {found:,} ns", f"{expected:,} ns, its first or last"),
            "counts": (f"{plural(found, 'event')}", f"{expected:,}, kind by kind"),
            "clock_back": (
                f"the clock goes back by {found:,} ns",
                f"no step back, or less than {expected:,} ns",
            ),
        }
        return says[sort]
