"""The options of ``eventprof run`` and of EVENTPROF, as a table."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

_TIME_UNITS = {
    "ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9,
}  # fmt: skip
_TIME = re.compile(r"\s*(\d[\d_]*(?:\.\d*)?|\.\d+)\s*([a-zµ]*)\s*")
_YES, _NO = ("1", "on", "true", "yes"), ("0", "off", "false", "no")

#: The default limit of a file is never above the first, and never below the second; bytes.
_CAP = 4 << 30
_LEAST = 64 << 20


def parse_time(text: str) -> int:
    """Read a duration or an instant.

    Parameters
    ----------
    text : str
        A number and a unit: ns, us, ms, s or min; 0 needs none.

    Returns
    -------
    int
        Nanoseconds.

    Raises
    ------
    ValueError
        The text cannot be read.
    """
    found = _TIME.fullmatch(text)
    if found is not None and not found[2] and float(found[1]) == 0:
        return 0
    if found is None or found[2] not in _TIME_UNITS:
        bare = found is not None and not found[2]
        missing = f": its unit is missing; there are {', '.join(_TIME_UNITS)}" if bare else ""
        raise ValueError(f"a time is a number and a unit, such as '2.5ms', not {text!r}{missing}")
    if "." in found[1]:
        return round(float(found[1]) * _TIME_UNITS[found[2]])
    return int(found[1]) * _TIME_UNITS[found[2]]


def _switch(text: str) -> bool:
    word = text.lower()
    if word not in _YES + _NO:
        raise ValueError(f"it must be 1 or 0, not {text!r}")
    return word in _YES


def _switch_or_auto(text: str) -> bool | str:
    return "auto" if text.lower() == "auto" else _switch(text)


def _depth(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"a depth is a whole number of 1 or more, not {text!r}")
    return int(text)


def _text(text: str) -> str:
    return text


def parse_label(text: str) -> tuple[str, str]:
    """Read ``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"a label is NAME=VALUE, not {text!r}")
    return name.strip(), value.strip()


def _label(text: str) -> tuple[str, str]:
    # EVENTPROF, by which children know the options, has commas between them.
    if "," in text:
        raise ValueError(f"a label is NAME=VALUE without commas, not {text!r}")
    return parse_label(text)


class Option(NamedTuple):
    """One argument of `eventprof.record`."""

    name: str
    parse: Callable[[str], Any]
    metavar: str
    help: str
    several: bool = False
    #: What it is called where one value is given; empty: as the argument.
    word: str = ""

    @property
    def flag(self) -> str:
        """The option of ``eventprof run``."""
        return f"--{(self.word or self.name).replace('_', '-')}"


# fmt: off
OPTIONS = (
    Option("calls", _switch, "", "calls of Python functions (on)"),
    Option("c_calls", _switch, "", "calls of functions that are not written in Python (on)"),
    Option("memory", _switch, "", "allocations and frees (on)"),
    Option("domains", _text, "D,D", "allocations of these allocators only: raw, mem, obj"),
    Option("numpy", _switch_or_auto, "WHICH",
           "data of NumPy's arrays: auto (with all other memory), 1 or 0"),
    Option("native", _switch, "", "blocks that C libraries allocate, by malloc and mmap (off)"),
    Option("lines", _switch, "", "each line that runs, for report --lines (off)"),
    Option("instructions", _switch, "", "instructions of the interpreter (off)"),
    Option("exceptions", _switch, "", "exceptions, where raised and handled (off)"),
    Option("branches", _switch, "", "branches and jumps, and where they went (off)"),
    Option("include", _text, "GLOB",
           "keep only calls of functions that match; by module, file, qualified name, or module "
           "and qualified name with a dot between them; can be repeated", several=True),
    Option("exclude", _text, "GLOB",
           "leave out calls of functions that match; also if --include matches; can be repeated",
           several=True),
    Option("max_depth", _depth, "N", "leave out calls that are inside of N or more recorded calls"),
    Option("min_duration", parse_time, "TIME", "leave out calls shorter than this, such as 10us"),
    Option("threads", _text, "WHICH", "all, or current: only the main thread"),
    Option("buffer", _text, "SIZE", "the limit of the file, such as '500 MiB'; by default the "
           "least of 4 GiB, half of the free space on the disk, and the machine's memory"),
    Option("on_full", _text, "WHAT", "at the limit: overwrite (the oldest events are lost), stop "
           "(the new events are lost), or grow (there is no limit)"),
    Option("backend", _text, "NAME", "where calls come from: auto, monitoring, profile or trace"),
    Option("clock", _text, "NAME", "auto, counter or monotonic"),
    Option("marks", _switch, "",
           "the program's own events: eventprof.mark, span, counter, flow (on)"),
    Option("gc", _switch, "", "runs of the garbage collector (off)"),
    Option("refs", _switch, "", "objects that are created and destroyed; Python 3.13 and later "
           "(off)"),
    Option("audit", _text, "GLOB", "audit events with these names, '*': all; can be repeated",
           several=True),
    Option("waits", _switch, "", "when threads wait: for the interpreter's lock, other locks, a "
           "time, I/O, a process, and who lets them go on (on with calls, on Linux)"),
    Option("hpy", _switch, "", "calls of HPy's functions by modules loaded with HPY=trace (off)"),
    Option("overhead", _switch, "", "measure the cost of an event first, and store it (off)"),
    Option("archive", _switch, "", "pack the file while the program runs: 1 to 2 bytes an event "
           "instead of 8 to 16, and room for several times as many in the same --buffer; at the "
           "limit new events are lost unless --on-full says otherwise (off)"),
    Option("labels", _label, "NAME=VALUE", "what this recording is of, such as release=A: for "
           "reports, diff --by and datasets; can be repeated", several=True, word="label"),
)
# fmt: on


def add_options(group: argparse._ArgumentGroup) -> None:
    """Add the options of the table to a parser."""
    for option in OPTIONS:
        if option.parse is _switch:
            group.add_argument(
                option.flag,
                action=argparse.BooleanOptionalAction,
                default=None,
                help=option.help,
            )
        else:
            group.add_argument(
                option.flag,
                dest=option.name,
                metavar=option.metavar,
                action="append" if option.several else "store",
                help=option.help,
            )


def parse_words(text: str) -> dict[str, Any]:
    """Read ``memory=0,include=pkg.*``: names of options with their values, separated by commas.

    Parameters
    ----------
    text : str
        The value of EVENTPROF. A switch without a value is on.

    Returns
    -------
    dict
        Options for `make_recorder`.

    Raises
    ------
    ValueError
        A word is not an option, or its value cannot be read.
    """
    from .._words import did_you_mean

    known = {name: option for option in OPTIONS for name in (option.name, option.word) if name}
    found: dict[str, Any] = {}
    if text.strip().lower() in _YES:
        return found
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = word.partition("=")
        option = known.get(name.strip().replace("-", "_"))
        if option is None:
            hint = did_you_mean(name, known) or f"; known are {', '.join(known)}"
            raise ValueError(f"there is no option {name!r}{hint}")
        if not equals and option.parse is not _switch:
            raise ValueError(f"{name} needs a value: {name}=...")
        value = value.strip() if equals else "1"
        if option.several:
            found.setdefault(option.name, []).append(value)
        else:
            found[option.name] = _parsed(option, value)
    return found


#: The options that counting has, too.
COUNTED = ("calls", "c_calls", "memory", "domains", "include", "exclude", "threads")


class Modes(NamedTuple):
    """What EVENTPROF asks for: options of a recorder and of a counter (None: none is asked for)."""

    recorded: dict[str, Any] | None
    counted: dict[str, Any] | None
    report: str | None


def parse_modes(text: str) -> Modes:
    """Read ``count``, ``pkg:count,other:record,memory=0``, or only options, which means recording.

    Parameters
    ----------
    text : str
        The value of EVENTPROF. The words ``count`` and ``record`` are for all functions;
        ``MODULE:count`` and ``MODULE:record`` are for the functions of a module and of the modules
        in it. ``report=FILE`` says where the counts go. `parse_words` reads the rest.

    Returns
    -------
    Modes
        Options for `make_recorder` and `make_counter`.

    Raises
    ------
    ValueError
        A word is unknown, or its value cannot be read.
    """
    modules: dict[str, list[str]] = {}
    everything: set[str] = set()
    rest, report = [], None
    for word in filter(None, (part.strip() for part in text.split(","))):
        module, colon, mode = word.rpartition(":")
        name, _, value = word.partition("=")
        if word in ("count", "record"):
            everything.add(word)
        elif name == "report":
            if not value:
                raise ValueError("report needs a file, for example report=counts-%p.txt")
            report = value
        elif colon and "=" not in word:
            if mode not in ("count", "record") or not module:
                raise ValueError(f"it must be MODULE:count or MODULE:record, not {word!r}")
            modules.setdefault(mode, []).append(module)
        else:
            rest.append(word)
    given = parse_words(",".join(rest))
    asked = everything | modules.keys() or {"record"}
    if report is not None and "count" not in asked:
        raise ValueError("report=FILE goes with count")

    def options(mode: str) -> dict[str, Any] | None:
        if mode not in asked:
            return None
        own = dict(given)
        if mode not in everything and mode in modules:
            own["include"] = [
                *own.get("include", ()),
                *(each for name in modules[mode] for each in (name, f"{name}.*")),
            ]
        return own

    counted = options("count")
    if counted is not None:
        if "record" not in asked:
            check_counted(counted)
        counted = {name: value for name, value in counted.items() if name in COUNTED}
    return Modes(options("record"), counted, report)


def check_counted(given: Mapping[str, Any]) -> None:
    """Refuse options that only recording has.

    Raises
    ------
    ValueError
        One of these options was given.
    """
    for name in given:
        if name in ("numpy", "native"):
            raise ValueError(f"{name} is for recording: counting has the blocks of Python's "
                             f"allocators; leave {name} out, or count")  # fmt: skip
        if name not in COUNTED:
            raise ValueError(f"{name.replace('_', '-')} is for recording; counting has "
                             f"{', '.join(COUNTED)}")  # fmt: skip


def from_arguments(arguments: argparse.Namespace) -> dict[str, Any]:
    """Collect the options that were given to ``eventprof run``.

    Raises
    ------
    ValueError
        A value cannot be read.
    """
    found = {}
    for option in OPTIONS:
        value = getattr(arguments, option.name)
        if value is not None:
            found[option.name] = _parsed(option, value) if isinstance(value, str) else value
    return found


def _parsed(option: Option, value: str) -> Any:
    try:
        return option.parse(value)
    except ValueError as error:
        raise ValueError(f"{option.name.replace('_', '-')}: {error}") from None


def make_recorder(
    given: Mapping[str, Any], output: str, force: bool, family: str | None = None
) -> Any:
    """Make the recorder that was asked for.

    Parameters
    ----------
    given : mapping
        From `parse_words` or `from_arguments`.
    output : str
        The name of the file, in which %p and %h are replaced.
    force : bool
        Whether it may replace one.
    family : str, optional
        The folder for the files of forked children; without, they are beside the file.

    Returns
    -------
    Recorder
        It is not started yet.

    Raises
    ------
    TypeError, ValueError, MemoryError
        An option has a wrong value.
    eventprof.UnsupportedError
        This version or this interpreter cannot do what was asked for.
    """
    if sys.implementation.name == "pypy":
        from .._pypy.running import make_recorder as make

        return make(given, output, force)
    from .. import _core
    from ..files import family as families
    from ..recording import options as of_recorders
    from ..recording import record as recording

    options = dict(given)
    if "domains" in options:
        options["memory"] = [word.strip() for word in options.pop("domains").split(",")]
    if "labels" in options:
        options["labels"] = dict(map(_label, options["labels"]))
    if "buffer" not in options and options.get("on_full") != "grow":
        options["buffer"] = default_buffer(os.path.dirname(family or output))
    if options.get("archive"):
        # A ring reads the chunks that it drops, and is packed at the end.
        options.setdefault("on_full", "stop")
    # On for a program that is recorded as a whole: 0.1 ms more at the start. record(), often of a
    # short block, has to be asked.
    if "waits" not in options and options.get("calls", True):
        options["waits"] = _core.waits_available()
    recording.load_tables = False
    if family is not None:
        of_recorders.child_pattern = families.member_pattern(family)
    try:
        return recording.record(output=output, force=force, **options)
    finally:
        recording.load_tables = True
        of_recorders.child_pattern = None


def make_counter(given: Mapping[str, Any]) -> Any:
    """Make the counter that was asked for.

    Parameters
    ----------
    given : mapping
        From `parse_modes` or `from_arguments`; the names are among `COUNTED`.

    Returns
    -------
    Counter
        It is not started yet.

    Raises
    ------
    TypeError, ValueError
        An option has a wrong value.
    eventprof.UnsupportedError
        This interpreter cannot count.
    """
    if sys.implementation.name == "pypy":
        from .. import UnsupportedError

        raise UnsupportedError("counting needs CPython; on PyPy use record()")
    from ..recording.counting import count

    options = dict(given)
    if "domains" in options:
        options["memory"] = [word.strip() for word in options.pop("domains").split(",")]
    return count(**options)


def write_counts(counter: Any, path: str | None, force: bool = False) -> None:
    """Write the report of a counter.

    Parameters
    ----------
    counter : Counter
        It must have been started.
    path : str or None
        The name of a file, in which %p and %h are replaced; None: standard error.
    force : bool
        Replace an existing file.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    if path is None:
        if sys.__stderr__ is not None:
            print("eventprof: ", end="", file=sys.__stderr__)
            counter.report(sys.__stderr__)
        return
    from ..base.output import create

    with (
        create(expanded(path), force) as new,
        open(
            new.descriptor, "w", encoding="utf-8", errors="backslashreplace", closefd=False
        ) as file,
    ):
        counter.report(file, limit=1_000_000)


def expanded(path: str) -> str:
    """Put the process and the host into a file's name."""
    words = {"%p": str(os.getpid()), "%h": os.uname().nodename, "%%": "%", "%u": ""}
    return re.sub("%[phu%]", lambda found: words[found[0]], path)


def others_run() -> bool:
    """Whether other threads run that are not daemons: the process waits for these at its end."""
    import _thread

    active = getattr(sys.modules.get("threading"), "_active", {})
    own = _thread.get_ident()
    return any(ident != own and not thread.daemon for ident, thread in list(active.items()))


_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep
_busy = 0


def hold_back_interrupts() -> None:
    """Let no Ctrl-C interrupt eventprof's own code, from the end of the program on.

    The program's functions at exit are interrupted as before. Only Python's own handler is
    replaced, and only on the main thread.
    """
    import _signal  # type: ignore[import-not-found]

    if sys.implementation.name == "pypy":
        return
    before = _signal.getsignal(_signal.SIGINT)
    if before is not _signal.default_int_handler:
        return

    try:  # not contextlib, whose functions would be recorded
        _signal.signal(_signal.SIGINT, _on_interrupt)
    except ValueError:  # this is not the main thread
        return


def _on_interrupt(number: int, frame: Any) -> Any:
    import _signal

    # The interpreter looks for signals where a function begins, before its first line runs.
    is_own = frame is not None and frame.f_code.co_filename.startswith(_FOLDER)
    if _busy or is_own:
        return None
    return _signal.default_int_handler(number, frame)


class NotInterrupted:
    """Ignores Ctrl-C inside of a ``with`` block, after `hold_back_interrupts`.

    Not by contextlib, whose functions would be recorded.
    """

    def __enter__(self) -> None:
        global _busy
        _busy += 1

    def __exit__(self, *_: object) -> None:
        global _busy
        _busy -= 1


def show_error(hook: Callable[..., object], *error: object) -> object:
    """Let the interpreter show an uncaught exception, without recording how it does so.

    Showing an exception makes many events, and none of them is the program's code. Where other
    threads run, its blocks are recorded nevertheless, because these threads may free them.

    Parameters
    ----------
    hook : callable
        The interpreter's own excepthook.
    *error : object
        The arguments of the hook.
    """
    if sys.implementation.name == "pypy":
        return hook(*error)
    from .. import _core

    call = _core.call_muted if len(sys._current_frames()) == 1 else _core.call_beside
    with NotInterrupted():
        return call(hook, *error)


def leave_out_errors_of_threads() -> None:
    """Show exceptions that end threads by `show_error`, so that this is not recorded."""
    if sys.implementation.name == "pypy":
        return
    import _thread

    original = _thread._excepthook

    def excepthook(arguments: Any, /) -> None:
        show_error(original, arguments)

    # A program may ask what is threading's own, by the module.
    excepthook.__module__, excepthook.__name__ = original.__module__, original.__name__
    # threading takes its excepthook from _thread when it is imported. threading is not imported
    # here, because the program could notice that.
    _thread._excepthook = excepthook
    threading: Any = sys.modules.get("threading")
    if threading is not None:
        # Both names: a program may compare sys.excepthook with sys.__excepthook__.
        if threading.excepthook is original:
            threading.excepthook = excepthook
        threading.__excepthook__ = excepthook


def absolute(output: str) -> str:
    """Make a file's name absolute, because the program may change its directory; %p and %h stay."""
    return os.path.join(os.getcwd().replace("%", "%%"), output)


def explain(error: BaseException, output: str) -> str:
    """Explain why a recording cannot start, and what the user can do."""
    if isinstance(error, OSError):
        where = expanded(output) if error.filename in (None, output) else error.filename
        is_folder = os.path.isdir(where) and where.endswith(".epd")
        if isinstance(error, FileExistsError) and not os.path.isfile(where) and not is_folder:
            return f"{where}: this is not a regular file; -o names another one"
    if isinstance(error, FileExistsError):
        from . import exists_already

        return f"{where}: {exists_already()}"
    if isinstance(error, OSError):
        return f"{where}: {error.strerror or error}; -o names another place"
    return str(error) or type(error).__name__


def default_buffer(directory: str) -> int:
    """Choose the limit of a file in bytes."""
    # Other programs need the disk, too, and the file is mapped into memory.
    try:
        disk = os.statvfs(directory or ".")
        free = disk.f_bavail * disk.f_frsize
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return _LEAST
    return max(min(_CAP, free // 2, memory), _LEAST)
