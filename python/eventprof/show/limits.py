"""The notes of a report: events that were lost, left out, or could not be paired."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from .._words import plural, show_ns
from ..base.text import clean
from ..tables.kinds import unknown_kinds
from ..tables.loss import loss_of_others
from .drawing import BAD, GOOD, MARK, show_percent
from .layout import BLOCK_BITS, BLOCK_WORDS, C_WORDS, KINDS, PYTHON_WORDS, Layout


def limits(page: Layout) -> Iterator[Text]:
    """Report first which events were lost, then what else limits the numbers of the page."""
    loss, events = page.trace.loss, sum(page.recorded.values())
    unsure = [] if loss else loss_of_others(page.trace)
    damaged = page.trace._core.facts()["damaged_chunks"]
    if damaged:
        parts = plural(damaged, "part")
        yield Text(
            f"DAMAGE: {parts} of the recording could not be read, and its events are "
            f"missing; {plural(events, 'event')} {'is' if events == 1 else 'are'} here.",
            style=BAD,
        )
    if loss:
        yield Text(_lost(page, events), style=BAD)
        words = ", ".join(f"{count:,} {word}" for word, count in loss.by_kind.items())
        yield Text(f"{words} are missing. All numbers below are of the events that were kept.")
        if page.known_from > 0:
            yield Text(
                f"Nothing is missing from {show_ns(page.known_from)} on; the time before is self "
                "time of the calls that were open then."
            )
    elif unsure:
        doubt = clean("; ".join(unsure), plain=page.plain)
        yield Text(f"{doubt[:1].upper()}{doubt[1:]}.", style=BAD)
    elif events and not damaged:
        yield Text(f"Nothing lost: {_all(events)}.", style=GOOD)
    elif not damaged and not (page.trace.file or {}).get("awaits_stop"):
        yield Text("Nothing lost, and nothing recorded: no event occurred.", style=GOOD)
    for limit in _other_limits(page):
        yield Text.assemble(("Note: ", MARK), clean(limit, plain=page.plain))


def _all(events: int) -> str:
    return "the only event is here" if events == 1 else f"all {events:,} events are here"


def _lost(page: Layout, events: int) -> str:
    loss = page.trace.loss
    total = loss.total + events
    end = f"after {show_ns(page.trace.duration)}, and recording ended"
    why = {
        "overwritten": "the buffer was full, the oldest were overwritten",
        "damaged": "the file is damaged",
        "limit": f"the buffer was full {end}",
        "memory": f"no memory was left {end}",
        "disk": f"the disk of its file was full {end}",
        "small_disk": "the disk was full before the buffer, the oldest were overwritten",
        "family": "the files of all processes had reached their limit, the oldest were overwritten",
        "cut": "another program cut the file off while it was written",
    }[str(loss.reason)]
    return (
        f"LOSS: {loss.total:,} of {plural(total, 'event')} "
        f"({show_percent(loss.total, total)}) are missing on "
        f"{plural(len(loss.by_thread), 'thread')}: {why}."
    )


def _other_limits(page: Layout) -> Iterator[str]:
    trace, core = page.trace, page.trace._core
    metadata, facts = trace.metadata, core.facts()
    options = metadata.get("options", {})
    flight = metadata.get("flight")
    if isinstance(flight, dict):
        yield (
            f"a flight recorder kept the last {show_ns(trace.duration)}, and wrote them because "
            f"{flight.get('reason')}."
        )
    if isinstance(metadata.get("trimmed"), dict):
        yield _trimmed(metadata["trimmed"])
    if trace.loss.reason in ("limit", "memory", "disk") and not trace.loss:
        yield f"recording ended after {show_ns(trace.duration)}, when the buffer was full."
    if trace.loss.reason == "cut" and not trace.loss:
        yield "another program cut the file off while it was written: the events there are lost."
    for source in metadata.get("displaced", ()):
        yield (
            f"another tool took over the hook of {source!r} during the recording; later events of "
            "that source may be missing."
        )
    file = trace.file
    if file is not None:
        in_first_line = loss_of_others(trace)  # is in the first line
        yield from (f"{note}." for note in file["missing"] if note not in in_first_line)
        yield from (f"{note}." for note in file.get("notes", ()))
        unknown = unknown_kinds(file)
        if unknown is not None:
            yield f"{unknown}."
        if file.get("children_lost"):
            count = file["children_lost"]
            processes = f"{count:,} forked process{'' if count == 1 else 'es'}"
            yield (
                f"{processes} could not write a file ({file['children_error']}): their "
                "events are lost."
            )
        if file["live"] and file.get("awaits_stop"):
            yield (
                "the program is still being recorded, and the events are in memory, because "
                "another recorder with a file began first; this file is written when its recorder "
                "stops."
            )
        elif file["live"]:
            yield "the program is still being recorded; these are its events until now."
        elif file.get("format") == "family":
            states = [each["state"] for each in metadata["processes"]]
            if "unfinished" in states:
                yield (
                    f"{states.count('unfinished'):,} of {len(states):,} processes ended "
                    "without stopping the recorder (killed, or by os._exit); all their events are "
                    "here."
                )
        elif file["unfinished"] and not file.get("awaits_stop"):
            yield "the program ended without stopping the recorder; all its events are here."
    if facts["functions_off"]:
        functions = plural(facts["functions_off"], "function")
        yield (
            f"calls of {functions} were switched off, as include= and exclude= say; how many "
            "calls there were is unknown."
        )
    elif facts["filtered"]:
        events = plural(facts["filtered"], "event")
        yield f"{events} of calls were left out, as include= and exclude= say."
    if facts["deep_calls"]:
        calls = plural(facts["deep_calls"], "call")
        yield f"{calls} nested deeper than max_depth were left out."
    if facts["short_calls"]:
        calls = plural(facts["short_calls"], "call")
        yield f"{calls} that took less than min_duration were left out."
    if options.get("threads") == "current":
        yield "only the thread that started the recorder was recorded, as threads='current' says."
    yield from _not_asked_for(page)
    yield from _unmatched_calls(page)
    yield from _unmatched_blocks(page)


def _trimmed(known: dict[str, Any]) -> str:
    """Name the part of a recording that was kept, of what trimming.py wrote down."""
    first, last, whole = (int(known.get(key, 0)) for key in ("from_ns", "until_ns", "of_ns"))
    parts = [] if last - first == whole else [f"{show_ns(first)} to {show_ns(last)}"]
    parts += ["some threads"] * bool(known.get("threads"))
    parts += ["some functions"] * bool(known.get("functions"))
    parts += [f"no {word}" for word in known.get("dropped") or ()]
    parts += ["other names"] * bool(known.get("anonymised"))
    return (
        f"'eventprof trim' made it of a recording of {show_ns(whole)}: {', '.join(parts) or 'all'}."
    )


def _not_asked_for(page: Layout) -> Iterator[str]:
    """Name the kinds of events that pairs and sums need and that were not asked for."""
    wanted = {KINDS[kind][0] for kind in KINDS if page.kinds >> kind & 1}
    for words, what in (
        (PYTHON_WORDS, "calls and times"),
        (C_WORDS, "calls and times"),
        (BLOCK_WORDS, "bytes and blocks"),
    ):
        missing = [word for word in words if word not in wanted]
        if missing and len(missing) < len(words):
            yield f"events= leaves out {', '.join(missing)}: {what} are incomplete."
    domains = page.trace.metadata.get("options", {}).get("domains", ())
    of_python = [word for word in domains if word in ("raw", "mem", "obj")]
    if page.kinds & BLOCK_BITS and domains and len(of_python) < 3:
        only = f"only {' and '.join(of_python)}" if of_python else "none"
        are = "are" if len(of_python) > 1 else "is"
        yield f"of Python's allocators {only} {are} recorded, as memory= says."


def _unmatched_calls(page: Layout) -> Iterator[str]:
    if not page.has_calls():
        return
    tree = page.trace._tree
    misplaced = page.trace.pairing["calls_misplaced"] if tree.may_be_misplaced() else 0
    if misplaced:
        yield (
            f"{plural(misplaced, 'call')} lie in calls that did not make them: the thread switched "
            "to another stack of calls unseen (another function than eventprof's was set by "
            "greenlet.settrace()); parents, depths and times are wrong around switches."
        )
    unseen = tree.facts["ends_unseen"]
    if unseen:
        yield (
            f"the end of {plural(unseen, 'call')} was not recorded; their times are upper bounds."
        )
    strays = tree.facts["unmatched_ends"]
    if strays:
        yield f"{plural(strays, 'call')} ended whose begin was not recorded."


def _unmatched_blocks(page: Layout) -> Iterator[str]:
    if not page.kinds & BLOCK_BITS:
        return
    facts = page.trace._tree.facts
    strays = facts["unknown_frees"]
    if strays:
        older = "lost, or older" if page.trace.loss else "older than the recording"
        count = plural(strays, "free")
        yield f"{count} of blocks that were {older}: no sum contains their bytes."
    unfreed = facts["frees_lost"]
    if unfreed:
        yield (
            f"the free of {plural(unfreed, 'block')} was not recorded; they may have been "
            "freed earlier than the tables say."
        )
