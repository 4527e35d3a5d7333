"""Show what a file holds: the program, the options, whether it was finished, what is missing."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import rows
from ..answer import add_json, document
from ..files import add_file, is_stub, load

if TYPE_CHECKING:
    from ...trace import Trace

EXAMPLES = (
    ("eventprof info FILE", "for people"),
    ("eventprof info FILE --json", "for programs"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_file(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    trace = load(arguments.file, may_be_empty=True, fold=arguments.json, counts=not arguments.json)
    status = 1 if is_stub(trace) else 0
    if arguments.json:
        print(document("info", trace, [_all(trace)], file=arguments.file))
        return status
    lines = list(_lines(arguments.file, trace))
    width = max(len(head) for head, _ in lines)
    for head, text in lines:
        print(f"{head:<{width}}  {rows.printable(text)}".rstrip())
    sys.stdout.flush()
    return status


def _all(trace: Trace) -> dict[str, Any]:
    return {
        "file": trace.file,
        "metadata": trace.metadata,
        "events": trace._facts["events"],
        "loss": {
            "total": trace.loss.total,
            "reason": trace.loss.reason,
            "by_kind": trace.loss.by_kind,
        },
        "pairing": trace.pairing,
        "threads": [thread._asdict() for thread in trace.threads],
    }


def _lines(path: str, trace: Trace) -> Iterator[tuple[str, str]]:
    from ..._words import plural, show_bytes, show_ns
    from ...tables.kinds import unknown_kinds

    file, metadata = trace.file or {}, trace.metadata
    events = trace._facts["events"]
    if trace.loss:
        yield "LOSS", f"{trace.loss.total:,} of {trace.loss.total + events:,} events are missing"
    yield "file", path
    codec = f", {file['codec']}" if file.get("codec") else ""
    version = file.get("version", "?")
    shown = ".".join(map(str, version)) if isinstance(version, (tuple, list)) else version
    imported = metadata.get("imported")
    if imported is None:
        yield "format", f"{file.get('format', '?')}, version {shown}{codec}"
    else:
        yield "format", f"{imported['format']}, of another tool"
        for lack in imported["lacks"]:
            yield "  lacks", lack
        for note in imported["notes"]:
            yield "  left out", note
    yield "size", show_bytes(file.get("bytes", 0))
    for section, size in dict(file.get("sizes", {})).items():
        yield f"  {section}", show_bytes(size)
    for name, number in file.items():
        if name.endswith("_slots"):
            yield f"  {name.removesuffix('_slots')}", plural(number, "slot")
    if file.get("format") != "family":
        yield "ended", _ended(file)
    for missing in file.get("missing", ()):
        yield "missing", missing
    unknown = unknown_kinds(file)
    if unknown is not None:
        yield "left out", unknown
    for note in file.get("notes", ()):
        yield "note", note
    for process in metadata.get("processes", ()):
        yield f"  process {process['pid']}", _process(process, metadata["processes"])
    if metadata.get("clocks"):
        yield "clocks", str(metadata["clocks"])
    yield "program", _command(metadata)
    from ...tables.facts import labels_shown

    if labels := labels_shown(metadata):
        yield "labels", labels
    worker = f", {metadata['worker']}" if metadata.get("worker") else ""
    yield "process", f"{metadata.get('pid', '?')} on {metadata.get('hostname', '?')}{worker}"
    yield "python", f"{metadata.get('python', '?')}, {metadata.get('platform', '?')}"
    yield "recorded by", f"eventprof {metadata.get('eventprof', '?')}"
    start = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(metadata["start_ns"] / 1e9))
    yield "duration", f"{show_ns(trace.duration)} from {start}"
    yield "clock", f"{metadata.get('clock')}, {metadata['clock_frequency_hz'] / 1e9:.3g} GHz"
    yield "calls by", str(metadata.get("backend") or "(not recorded)")
    for source in metadata.get("displaced", ()):
        yield "displaced", f"{source}: another tool took over"
    if options := dict(metadata.get("options", {})):
        yield "options", "of record(), or of eventprof run"
    for name, value in options.items():
        if isinstance(value, (tuple, list)):
            value = " ".join(map(str, value))
        elif name == "buffer" and isinstance(value, int):
            value = show_bytes(value)
        yield f"  {name}", str(value)
    yield "events", f"{events:,} on {plural(len(trace.threads), 'thread')}"
    kinds: dict[str, int] = {}
    from ...trace import WORDS

    for *_, recorded, _lost in trace._thread_rows:
        for kind, number in recorded.items():
            kinds[WORDS[kind]] = kinds.get(WORDS[kind], 0) + number
    for word, number in kinds.items():
        yield f"  {word}", f"{number:,}"
    loss = trace.loss
    yield "lost", f"{loss.total:,} ({loss.reason})" if loss else "none"
    for word, number in loss.by_kind.items():
        yield f"  {word}", f"{number:,}"
    if metadata.get("damaged_chunks"):
        yield "damaged", plural(metadata["damaged_chunks"], "part")


def _process(process: Mapping[str, Any], every: Sequence[Mapping[str, Any]]) -> str:
    """Report what a process of several is."""
    from ..._words import show_ns

    facts = [f"{process['events']:,} events", process["state"]]
    if process["lost"]:
        facts.insert(1, f"{process['lost']:,} LOST")
    if process["parent"] is not None:
        facts.append(f"child of {every[process['parent']]['pid']}")
    facts.append(f"{show_ns(process['start'])} to {show_ns(process['end'])}")
    command = shlex.join(process["command"])
    command = command if len(command) <= 60 else f"{command[:57]}..."
    if process.get("worker"):
        command = f"{process['worker']}, {command}"
    return "; ".join([f"{process['file'] or '?'}: {', '.join(facts)}", command])


def _command(metadata: dict[str, Any]) -> str:
    return shlex.join(map(str, metadata.get("argv", ())))


def _ended(file: dict[str, Any]) -> str:
    if not file.get("unfinished"):
        return "complete: the recording was stopped"
    if file.get("live"):
        return "not finished: the program still runs"
    return "not finished: the program was killed, or ended by os._exit or exec; or it still runs"
