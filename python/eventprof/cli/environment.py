"""Record a program because EVENTPROF is set: then eventprof.pth calls start() (_eventprof_start).

``EVENTPROF=1`` records everything. ``EVENTPROF=memory=0,include=pkg.*`` has options of ``eventprof
run``, without dashes. ``EVENTPROF_OUTPUT`` is the file, by default ``eventprof-%p.epr`` in the
current directory, or a folder ``NAME.epd`` for all processes. ``EVENTPROF=count`` counts instead,
and reports on standard error at the end; ``EVENTPROF=modA:count,modB:record`` chooses by module;
``report=FILE`` among the words names the file for the counts. An error is one line on standard
error, and the program runs on.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Mapping
from typing import Any

VARIABLE, OUTPUT = "EVENTPROF", "EVENTPROF_OUTPUT"
_DEFAULT_OUTPUT = "eventprof-%p%u.epr"

_recorder: Any = None
_counter: Any = None
_report: str | None = None
_not_interrupted: Any = contextlib.nullcontext()
_process = 0
_asked = False


def start() -> None:
    """Start to record or to count, as the environment asks."""
    global _asked, _counter, _process, _recorder, _report
    value = os.environ.get(VARIABLE, "").strip()
    # In a virtual environment, Python may process a .pth file twice.
    if value.lower() in ("", "0", "off", "no", "false") or _asked:
        return
    _asked = True
    try:
        from .options import absolute, make_counter, make_recorder, parse_modes

        modes = parse_modes(value)
        # The function that is registered first is called last.
        if modes.recorded is not None:
            output = absolute(os.environ.get(OUTPUT) or _DEFAULT_OUTPUT)
            folder = _folder(output)
            if folder is not None:
                from ..files import quota
                from ..files.family import member_pattern

                output = member_pattern(folder)
                quota.join()
            recorder = make_recorder(modes.recorded, output, force=False, family=folder)
            if folder is not None:
                recorder._warns = False  # the first process names the losses of all
            recorder.start()
            atexit.register(_finish)
            _recorder = recorder
            _watch_exceptions()
        if modes.counted is not None:
            counter = make_counter(modes.counted)
            _report = None if modes.report is None else absolute(modes.report)
            if _report is not None:
                from ..base.output import check

                check(_expanded(_report) or "")
            _process = os.getpid()
            counter.start()
            atexit.register(_finish_counting)
            _counter = counter
    except Exception as error:
        where = _expanded(getattr(error, "filename", None))
        text = f"{where}: {_why(error)}" if isinstance(error, OSError) and where else error
        what = "nothing is recorded" if _recorder is None else "nothing is counted"
        _say(f"{VARIABLE}={value}: {text}; {what}")


def _watch_exceptions() -> None:
    """Leave out how the interpreter prints an exception that ends the program."""
    from .options import (  # imported now: later, the import would be recorded
        NotInterrupted,
        hold_back_interrupts,
        leave_out_errors_of_threads,
        show_error,
    )

    original = sys.__excepthook__

    def excepthook(kind: Any, value: Any, trace: Any, /) -> None:
        # If the interpreter calls this at its end, there is no frame below. A program may call it,
        # too.
        at_end = sys._getframe().f_back is None and not sys.flags.interactive
        if at_end and _recorder is not None and _recorder.state == "running":
            hold_back_interrupts()
            show_error(original, kind, value, trace)
        else:
            original(kind, value, trace)

    global _not_interrupted
    _not_interrupted = NotInterrupted()
    # Both names: a program may compare sys.excepthook with sys.__excepthook__.
    if sys.excepthook is original:
        sys.excepthook = sys.__excepthook__ = excepthook
    leave_out_errors_of_threads()


def _folder(output: str) -> str | None:
    """Return the folder of a family, if that is what EVENTPROF_OUTPUT names."""
    from .options import expanded

    if sys.implementation.name == "pypy" or not output.endswith(".epd"):
        return None
    return expanded(output)


def _expanded(path: str | None) -> str | None:
    from .options import expanded

    return None if path is None else expanded(path)


def _why(error: OSError) -> str:
    if not isinstance(error, FileExistsError):
        return error.strerror or str(error)
    # Nothing in the environment says that a file may be replaced.
    if _recorder is None and _counter is None and os.environ.get(OUTPUT):
        return f"exists already; name another file in {OUTPUT}, such as NAME-%p.epr"
    return "exists already; name another file, in which %p is the process id"


def _finish() -> None:
    if _recorder is not None and _recorder.state == "running":
        with _not_interrupted:
            _recorder._name_worker()
            _recorder.stop()


def _finish_counting() -> None:
    if _counter is None or _counter.state != "running":
        return
    _counter.stop()
    if _report is None and os.getpid() != _process:  # a forked child, which ends like its parent
        return
    from .options import write_counts

    try:
        write_counts(_counter, _report)
    except OSError as error:
        _say(f"{error.filename or _report}: {_why(error)}; the counts are lost")


def cancel() -> None:
    """Drop the recording of this process, with its file, and its counts."""
    global _counter, _recorder
    counter, _counter = _counter, None
    if counter is not None and counter.state == "running":
        counter.stop()
    recorder, _recorder = _recorder, None
    if recorder is None:
        return
    if recorder.state == "running":
        recorder.stop()
    atexit.unregister(_finish)
    with contextlib.suppress(OSError):
        os.unlink(recorder.output)
        if os.path.dirname(recorder.output).endswith(".epd"):
            os.rmdir(os.path.dirname(recorder.output))  # unless it has other recordings


def export_counting(given: Mapping[str, Any], report: str | None) -> None:
    """Let the Python programs that this process starts be counted.

    Parameters
    ----------
    given : mapping
        Options, as `options.from_arguments` gives them.
    report : str or None
        The file of this process; the files of the others go into the same folder. None: standard
        error.
    """
    words = ["count", *_words(given)]
    if report is not None:
        stem, extension = os.path.splitext(report)
        words.append(f"report={report if '%p' in report else f'{stem}-%p{extension}'}")
    os.environ[VARIABLE] = ",".join(words)


def _words(given: Mapping[str, Any]) -> list[str]:
    words = []
    for name, value in given.items():
        values = value if isinstance(value, list) else [value]
        unit = "ns" if name == "min_duration" else ""
        words += [f"{name}={int(v) if isinstance(v, bool) else v}{unit}" for v in values]
    return words


def export(given: Mapping[str, Any], output: str) -> None:
    """Let the Python programs that this process starts be recorded.

    Parameters
    ----------
    given : mapping
        Options, as from `options.from_arguments`.
    output : str
        Their file; it has %p. Or the folder of the family.
    """
    os.environ[VARIABLE] = ",".join(_words(given)) or "1"
    os.environ[OUTPUT] = output


def _say(text: str) -> None:
    with contextlib.suppress(AttributeError, OSError, ValueError):  # there is no standard error
        from .._words import printable

        print(printable(f"eventprof: {text}"), file=sys.stderr, flush=True)
