"""A part of a recording as a file of its own, to be handed on."""

from __future__ import annotations

import os
from collections.abc import Iterable

from .. import _core
from .._words import did_you_mean
from ..base.output import check
from ..tables.kinds import KINDS
from ..tables.processes import is_thread
from ..trace import Trace
from .opening import open as open_recording
from .pseudonyms import Pseudonyms, read_mapping, write_mapping

#: What can be dropped, and the groups of kinds of events.def that it is.
GROUPS = {
    "calls": ("python", "c", "hpy"),
    "blocks": ("block",),
    "lines": ("line", "instruction", "branch"),
    "exceptions": ("exception",),
    "marks": ("mark", "span"),
    "gc": ("gc",),
    "objects": ("object",),
    "audit": ("audit",),
}
#: Facts that are of the whole recording.
_OF_THE_WHOLE = ("runtime_events",)


def trim(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    between: tuple[int, int] | None = None,
    threads: Iterable[str | int] = (),
    functions: Iterable[str] = (),
    drop: Iterable[str] = (),
    anonymise: bool = False,
    mapping: str | os.PathLike[str] | None = None,
    force: bool = False,
) -> Trace:
    """Write a part of a recording to an archive, so that it can be handed on.

    Parameters
    ----------
    source : str or path-like
        A recording of one process; of a folder, one of its files.
    output : str or path-like
        The archive; ``.epr`` is the usual suffix.
    between : (int, int), optional
        Only events between two times in ns, both inside. The new recording begins at the first of
        them: its times count from there, and calls that were open then are open at its start.
    threads : iterable of str or int
        Only these threads: names, globs of names, or native ids. Without any: all.
    functions : iterable of str
        Only calls of functions that match one of these globs, as of ``record(include=...)``.
        Blocks stay.
    drop : iterable of str
        What is left out: words of "calls", "blocks", "lines", "exceptions", "marks", "gc",
        "objects", "audit".
    anonymise : bool
        Give functions, modules, files, threads, tasks, marks and values of labels other names, and
        leave out the program's arguments and the machine's name. What Python and its standard
        library bring keeps its name. Counts, sizes, times, lines and thread ids stay.
    mapping : str or path-like, optional
        Where the other names are kept, as JSON. If the file exists, its names are used again. Keep
        it apart from the archive.
    force : bool
        Replace `output` if it exists.

    Returns
    -------
    Trace
        The new recording, opened from its file.

    Raises
    ------
    FileExistsError
        There is something at `output` already, and `force` was not given.
    ValueError
        No thread has such a name, a word of `drop` is unknown, the first time is after the second
        or after the end, `mapping` goes without `anonymise` or is another file, or `source` is of
        several processes.
    FormatError, OSError
        As of `open` and `Trace.save`.
    """
    source, output = os.fspath(source), os.fspath(output)
    if os.path.isdir(source):
        raise ValueError(
            f"{source}: it is a folder of several recordings; trim the file of each, then merge "
            "these"
        )
    if mapping is not None and not anonymise:
        raise ValueError("mapping: it goes with anonymise")
    check(output, force)
    kinds = _kinds_of(drop)
    names = None
    if anonymise:
        names = Pseudonyms() if mapping is None else read_mapping(os.fspath(mapping))
    trace = open_recording(source)
    if trace._early_metadata.get("processes") or trace._late is not None:
        raise ValueError(
            f"{source}: it holds several processes; trim the file of each, then merge these"
        )
    core = trace._core
    globs, chosen, words = tuple(functions), tuple(threads), tuple(drop)
    if globs:
        core.filter(globs, (), -1, 0, ())
    duration = trace.duration
    first, last = (0, duration) if between is None else between
    if not 0 <= first <= last or first > duration:
        raise ValueError(
            f"between: {first:,} to {last:,} ns is no part of the recording's {duration:,} ns"
        )
    core.trim(first, last, _others(chosen, trace) if chosen else (), kinds)
    metadata = {k: v for k, v in trace._recorder_metadata.items() if k not in _OF_THE_WHOLE}
    metadata["trimmed"] = {
        "from_ns": first,
        "until_ns": min(last, duration),
        "of_ns": duration,
        "threads": len(chosen),
        "functions": len(globs),
        "dropped": words,
        "anonymised": anonymise,
    }
    if names is not None:
        metadata = names.facts(metadata)
        _rename(core, names)

    def keep_names() -> None:
        # First: without its mapping the archive's names would be lost.
        if names is not None and mapping is not None:
            write_mapping(os.fspath(mapping), names)

    Trace(core, metadata)._save(output, force, keep_names)
    return open_recording(output)


def _kinds_of(drop: Iterable[str]) -> int:
    kinds = 0
    for word in drop:
        if word not in GROUPS:
            hint = did_you_mean(word, GROUPS) or f"; there are {', '.join(GROUPS)}"
            raise ValueError(f"drop: there is no {word!r}{hint}")
        for row in KINDS:
            kinds |= (row[7] in GROUPS[word]) << row[0]
    return kinds


def _others(chosen: tuple[str | int, ...], trace: Trace) -> tuple[int, ...]:
    """Return the rows of threads that were not chosen."""
    rows, kept = trace._core.threads(), set()
    for wanted in chosen:
        found = {
            row
            for row, (name, native_id, *_) in enumerate(rows)
            if is_thread(wanted, name, native_id)
        }
        if not found:
            names = ", ".join(sorted({row[0] for row in rows if row[0]})[:10])
            raise ValueError(f"threads: there is no {wanted!r}; some are {names}")
        kept |= found
    return tuple(row for row in range(len(rows)) if row not in kept)


def _rename(core: _core.Trace, names: Pseudonyms) -> None:
    def packed(text: str) -> bytes:
        return text.encode("utf-8", "surrogatepass")

    threads = [names.thread(row[0]) for row in core.threads()]
    core.replace_texts(
        [names.function(row) for row in core.functions()],
        {
            number: packed(names.task(text.decode("utf-8", "surrogatepass")))
            for number, text in core.tasks().items()
        },
        [names.label(value) for value in core.label_values()],
        [None if name is None else packed(name) for name in threads],
    )
