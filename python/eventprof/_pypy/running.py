"""A recorder that saves its trace to a file when it stops: what ``eventprof run`` uses on PyPy.

On CPython the events go to the file while the program runs. Here they are in memory until the end,
and a program that is killed leaves none.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from ..base.output import check
from ..recording.options import path_patterns
from .recorder import Recorder, record


class FileRecorder(Recorder):
    """A recorder with a file.

    Attributes
    ----------
    output : str
        Its path.
    """

    _pattern = ""
    _force = False

    @property
    def output(self) -> str:
        """The path, of this process: a forked child's has its number before the suffix."""
        own, forked = map(os.fsdecode, path_patterns(self._pattern))
        words = {"%p": str(os.getpid()), "%%": "%"}
        pattern = own if os.getpid() == self._parent else forked
        return re.sub("%[p%]", lambda found: words[found[0]], pattern)

    _parent = 0

    def start(self) -> None:
        """Begin, unless the file is there already or cannot be written."""
        global _last_started
        self._parent = os.getpid()
        check(self.output, self._force)
        super().start()
        _last_started = self

    def stop(self) -> None:
        """End, and save."""
        super().stop()
        self.trace.save(self.output, force=self._force)

    def _count(self) -> tuple[int, int, str | None, int]:
        trace = self.trace
        return len(trace.events), trace.loss.total, self._full(), trace.duration

    def _full(self) -> str | None:
        full: str | None = super()._count()[2]
        return full


# ---- Workers of multiprocessing ------------------------------------------------------------------
# A forked one ends by os._exit(), without what atexit knows, but runs multiprocessing's finalizers.

_last_started: FileRecorder | None = None


def _after_fork() -> None:
    """Arrange, in a forked child, that a worker of multiprocessing saves its recording at its end.

    multiprocessing calls what is registered here when it has forgotten its parent's finalizers.
    """
    util = sys.modules.get("multiprocessing.util")
    if util is not None and _last_started is not None:
        util.register_after_fork(_last_started, _save_at_end)


def _save_at_end(recorder: FileRecorder) -> None:
    # The last of them, so that the others are recorded.
    sys.modules["multiprocessing.util"].Finalize(None, _save, (recorder,), exitpriority=-1000)


def _save(recorder: FileRecorder) -> None:
    if recorder.state != "running":
        return
    try:
        recorder.stop()
    except OSError as error:
        why = error.strerror or str(error)
        print(f"eventprof: {error.filename}: {why}; the recording is lost", file=sys.stderr)


os.register_at_fork(after_in_child=_after_fork)


def make_recorder(given: Mapping[str, Any], output: str, force: bool) -> FileRecorder:
    """Make the recorder that the command line or the environment asked for.

    Parameters
    ----------
    given : mapping
        Options by name.
    output : str
        The file, with %p and %h.
    force : bool
        Whether it may replace one.

    Returns
    -------
    FileRecorder
        Not started yet.

    Raises
    ------
    UnsupportedError
        PyPy cannot have what was asked for.
    """
    options = dict(given)
    options.pop("archive", None)  # PyPy's recorder always writes one
    domains = options.pop("domains", None)
    if domains is not None:
        options["memory"] = tuple(domains.split(","))
    if not options.get("lines", True):
        del options["lines"]
    for name in options.keys() - (record.__kwdefaults__ or {}).keys():
        from .core import missing

        missing(f"--{name.replace('_', '-')}", "sys.setprofile tells of calls alone",
                "leave it out")  # fmt: skip
    # Imported now: the program may take modules away.
    from . import archive, report  # noqa: F401

    made = record(**options)
    recorder = FileRecorder(made.options, {name: bool(made.flags[name]) for name in made.flags})
    recorder._pattern, recorder._force = output, force
    return recorder
