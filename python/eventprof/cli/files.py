"""Open recordings for the verbs that look at them."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..tables.loss import loss_of_others
from . import Failure

if TYPE_CHECKING:
    from ..tables.batches import Unread
    from ..trace import Trace


def add_file(parser: argparse.ArgumentParser, name: str = "file", *, several: bool = False) -> None:
    """Add the argument that names recordings to a parser."""
    parser.add_argument(
        name,
        metavar="FILE",
        nargs="+" if several else None,
        help="a recording: the log file of a program, even of a killed one, an archive, or the "
        "folder of a program with child processes",
    )


def glance(path: str) -> tuple[Trace, Unread | None]:
    """Open a recording and read no event of it, if that is enough to print rows as they come.

    Returns
    -------
    tuple
        The trace, and what is known of it before its events are read; None: `load` it.

    Raises
    ------
    Failure, OSError
        As of `load`.
    """
    import eventprof

    from ..tables.batches import unread

    if os.path.isdir(path):
        _allow_files()
    with readable(path):
        trace = eventprof.open(path)
        return trace, unread(trace)


def load(
    path: str,
    *,
    may_be_empty: bool = False,
    fold: str | bool = False,
    counts: bool = False,
    opened: Trace | None = None,
) -> Trace:
    """Open a recording.

    Parameters
    ----------
    path : str
        A log file, an archive, or a file of another tool.
    may_be_empty : bool
        Whether to open a damaged file of which no event is left.
    fold : bool or str
        Whether the tree is needed: the file is then read once for it, in bounded memory. "threads":
        the tree that has a node for each thread. "functions": facts and functions, and no tree.
    counts : bool
        Whether only facts and counts are needed: they, too, come from one pass then.
    opened : Trace, optional
        The recording, if it was opened already.

    Returns
    -------
    Trace
        The events that are in it now.

    Raises
    ------
    Failure
        The file is not a recording, or it is damaged so much that no event is left.
    OSError
        The file cannot be read.
    """
    import eventprof

    from .progress import Bar

    if os.path.isdir(path):
        _allow_files()
    with readable(path), Bar(f"reading {os.path.basename(path)}"):
        trace = opened or eventprof.open(path)
        # Reads the events, so that errors in the file are found here.
        if fold == "functions":
            trace._core.survey()
        elif fold:
            _ = trace._thread_tree if fold == "threads" else trace._tree
        elif counts:
            trace._core.tenures()  # the pass that needs the least
        _ = trace._facts
    if not may_be_empty and is_stub(trace):
        file = trace.file or {}
        raise Failure(
            f"{path}: DAMAGE: {'; '.join(file['missing'])}; no event is left of this recording"
        )
    return trace


def _allow_files() -> None:
    """Let this program open as many files as the system allows: a folder may have thousands."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def is_stub(trace: Trace) -> bool:
    """Whether no event is left of a file, because it is damaged."""
    file = trace.file or {}
    return not trace._facts["events"] and bool(file.get("missing")) and not file.get("live")


@contextlib.contextmanager
def readable(path: str) -> Iterator[None]:
    """Turn errors about a file into one line for the user."""
    from .. import FormatError

    try:
        yield
    except FileNotFoundError:
        raise Failure(f"{path}: there is no such file; 'eventprof run' makes one") from None
    except IsADirectoryError:
        raise Failure(f"{path}: this is a directory without recordings; name a file") from None
    except FormatError as error:
        message = str(error)
        raise Failure(message if path in message else f"{path}: {message}") from None


def missing_parts(trace: Trace, *, unsure: bool = False) -> list[str]:
    """Report what is missing, in parts of a sentence; empty if nothing is.

    With `unsure`, also that nobody knows it of a file of another tool.
    """
    parts = []
    if trace.loss:
        kept = trace._facts["events"]
        parts.append(f"{trace.loss.total:,} of {trace.loss.total + kept:,} events were lost")
    file = trace.file
    if file is not None:
        parts += file["missing"]
    return list(dict.fromkeys([*parts, *loss_of_others(trace, unsure=unsure)]))


def warn_of_loss(trace: Trace) -> str:
    """Return a line about what is missing, or nothing."""
    parts = missing_parts(trace)
    return f"(with loss: {'; '.join(parts)})" if parts else ""
