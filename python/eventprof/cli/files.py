"""Open recordings for the verbs that look at them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from . import Failure

if TYPE_CHECKING:
    from ..trace import Trace


def add_file(parser: argparse.ArgumentParser, name: str = "file", *, several: bool = False) -> None:
    """Give a parser the argument that names recordings."""
    parser.add_argument(
        name,
        metavar="FILE",
        nargs="+" if several else None,
        help="a recording: the log of a program, also of one that was killed, or an archive",
    )


def load(path: str, *, follow: bool = False) -> Trace:
    """Open a recording.

    Parameters
    ----------
    path : str
        Of a log or an archive.
    follow : bool
        Whether its program may still write.

    Returns
    -------
    Trace
        What is in it by now.

    Raises
    ------
    Failure
        It is no recording, or damaged beyond reading.
    OSError
        It cannot be read.
    """
    import eventprof

    try:
        if not hasattr(eventprof, "open"):  # SHIM until there is one
            import os

            from .. import log_file

            trace = log_file.open_log(os.open(path, os.O_RDONLY), path)
            trace.functions
            trace.file = {"codec": None, "sizes": {}, **trace._core.file_facts()}
            return trace
        return eventprof.open(path, follow=follow)
    except FileNotFoundError:
        raise Failure(f"{path}: there is no such file; 'eventprof run' makes one") from None
    except IsADirectoryError:
        raise Failure(f"{path}: this is a directory; name a file in it") from None
    except eventprof.FormatError as error:
        said = str(error)
        raise Failure(said if path in said else f"{path}: {said}") from None


def warn_of_loss(trace: Trace) -> str:
    """Give a line about what is missing, or nothing."""
    parts = []
    if trace.loss:
        kept = trace._facts["events"]
        parts.append(f"{trace.loss.total:,} of {trace.loss.total + kept:,} events were lost")
    file = trace.file
    if file is not None:
        parts += file["missing"]
    return f"(with loss: {'; '.join(parts)})" if parts else ""
