"""Record a program because of its environment: what eventprof.pth imports if EVENTPROF is set.

``EVENTPROF=1`` records everything, ``EVENTPROF=memory=0,include=pkg.*`` what it says: the options
of ``eventprof run``, without dashes. ``EVENTPROF_OUTPUT`` is the file, by default
``eventprof-%p.epr`` in the current directory. Whatever goes wrong is one line on standard error;
the program runs on.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Mapping
from typing import Any

VARIABLE, OUTPUT = "EVENTPROF", "EVENTPROF_OUTPUT"
_DEFAULT_OUTPUT = "eventprof-%p.epr"

_recorder: Any = None
_asked = False


def start() -> None:
    """Start to record, as the environment asks."""
    global _asked, _recorder
    value = os.environ.get(VARIABLE, "").strip()
    # In a virtual environment, Python processes every .pth file twice.
    if value.lower() in ("", "0", "off", "no", "false") or _asked:
        return
    _asked = True
    try:
        from .options import absolute, make_recorder, parse_words

        given = parse_words(value)
        output = absolute(os.environ.get(OUTPUT) or _DEFAULT_OUTPUT)
        recorder = make_recorder(given, output, force=False)
        recorder.start()
        # The first that is registered is the last that runs.
        atexit.register(_finish)
        _recorder = recorder
    except Exception as error:
        where = getattr(error, "filename", None)
        said = f"{where}: {error.strerror}" if isinstance(error, OSError) and where else error
        _say(f"{VARIABLE}={value}: {said}; nothing is recorded")


def _finish() -> None:
    if _recorder is not None and _recorder.state == "running":
        _recorder.stop()


def cancel() -> None:
    """Give up the recording of this process, and its file."""
    global _recorder
    recorder, _recorder = _recorder, None
    if recorder is None:
        return
    if recorder.state == "running":
        recorder.stop()
    atexit.unregister(_finish)
    with contextlib.suppress(OSError):
        os.unlink(recorder.output)


def export(given: Mapping[str, Any], output: str) -> None:
    """Let the Python programs that this process starts be recorded.

    Parameters
    ----------
    given : mapping
        Options, as from `options.from_arguments`.
    output : str
        The file of this process: theirs lie beside it.
    """
    words = []
    for name, value in given.items():
        values = value if isinstance(value, list) else [value]
        words += [f"{name}={int(v) if isinstance(v, bool) else v}" for v in values]
    os.environ[VARIABLE] = ",".join(words) or "1"
    stem, extension = os.path.splitext(output)
    os.environ[OUTPUT] = output if "%p" in output else f"{stem}-%p{extension}"


def _say(text: str) -> None:
    with contextlib.suppress(AttributeError, OSError, ValueError):  # there is no standard error
        print(f"eventprof: {text}", file=sys.stderr, flush=True)
