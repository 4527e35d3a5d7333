"""The program ``eventprof``: chooses the verb, and turns errors into a line and an exit status.

Each verb is a module of ``verbs/`` and has a row in `VERBS_BY_GROUP`. The module has a docstring,
with which its help page begins, ``EXAMPLES``, ``configure(parser)``, and ``run(arguments)``, which
returns the exit status. Only the module of the given verb is imported, so that ``run`` starts
quickly.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any, NoReturn

#: The verbs, each with its purpose, in the order of the help page and in its groups.
VERBS_BY_GROUP = {
    "record": {
        "run": "record a program",
        "merge": "join the recordings of several processes",
        "save": "turn a recording into a compact archive",
        "trim": "cut a part out of a recording, and remove names from it",
    },
    "look": {
        "report": "print the report: where the time and the memory went",
        "tree": "print the tree of calls: time and bytes of each branch",
        "analyze": "name what is likely wrong: findings, with lines and numbers",
        "view": "show a page: every call on a timeline, above the memory by function",
        "flamegraph": "show which stacks took the time, of one recording or of two",
        "heatmap": "show the source, each line coloured by the time or the bytes it took",
        "stats": "list functions with their counts, times and bytes",
        "waits": "list what threads waited for, where, and who let them go on",
        "requests": "list the slowest requests of a service, and where their time went",
        "events": "list events, also of a program that still runs",
        "info": "show what a file holds, whether the recording was finished, and what is missing",
        "verify": "replay a recording, and report errors in it",
        "diff": "compare two recordings by function",
    },
    "exchange": {
        "export": "write a file that another tool reads: Perfetto, speedscope, CSV and others",
        "dataset": "make Parquet files of many recordings, or answer questions about them",
    },
    "": {  # below a line: about eventprof itself
        "demo": "record a program that comes with eventprof, and show the results",
        "man": "print the manual page",
        "completion": "print a script that completes commands in a shell",
        "guide": "explain the output to programs that read it: JSON, units, handles",
    },
}

VERBS = {verb: what for verbs in VERBS_BY_GROUP.values() for verb, what in verbs.items()}

DESCRIPTION = "Record every call, return, allocation and free of a program, and look at them."
EXAMPLES = (
    ("eventprof run script.py argument", "record a script; the file is script-PID.epr"),
    ("eventprof run -m package", "record a module, as python -m runs it"),
    ("eventprof report script-4711.epr", "where the time and the memory went"),
    ("eventprof stats script-4711.epr --sort allocated", "functions, the most bytes first"),
)

_BROKEN_PIPE = 128 + 13  # what the shell reports for a program that SIGPIPE ended
_INTERRUPTED = 128 + 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments : sequence of str, optional
        The words after the program's name; by default those of ``sys.argv``.

    Returns
    -------
    int
        The exit status: 0; 1 if a file cannot be read or written; 2 if the options are wrong. A
        program that ``run`` started ends as it would have without eventprof.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    _leave_unrecorded()
    if not given or given[0] in ("-h", "--help", "help") or given[0] not in VERBS:
        return _without_verb(given)
    verb, *rest = given
    with _numpy_without_threads():
        module = load(verb)
    parser = make_parser(verb, module)
    if verb == "run":
        from .verbs import run

        # As few frames of eventprof as possible are below the program's.
        return run.main(parser, rest)
    found, extra = parser.parse_known_args(rest)
    if extra:
        refuse_unknown(parser, extra)
    return _guarded(verb, module, found)


def _without_verb(given: list[str]) -> int:
    """Handle --help, --version, ``help VERB``, unknown verbs, and no verb."""
    from .. import __version__
    from . import pages

    if not given or given[0] in ("-h", "--help"):
        return _guarded("", None, argparse.Namespace(text=pages.overview()))
    if given[0] in ("-V", "--version"):
        return _guarded("", None, argparse.Namespace(text=f"eventprof {__version__}"))
    if given[0] == "help":
        if len(given) > 1 and given[1] in VERBS:
            return main([given[1], "--help"])
        if len(given) > 1:
            given = given[1:]
        else:
            return main(["--help"])
    from .._words import did_you_mean, printable

    word = given[0]
    if os.path.exists(word) or word.endswith((".epr", ".py")):
        verb = "report" if word.endswith(".epr") else "run"
        hint = f"; to use the file: eventprof {verb} {printable(word)}"
    else:
        hint = did_you_mean(word, VERBS) or f"; the verbs are {', '.join(VERBS)}"
    what = "option" if word.startswith("-") else "verb"
    print(f"eventprof: there is no {what} {word!r}{hint}", file=sys.stderr)
    return 2


def load(verb: str) -> ModuleType:
    """Import the module of a verb."""
    if sys.implementation.name == "pypy":
        from .._pypy import verbs

        return verbs.load(verb)
    return importlib.import_module(f".verbs.{verb}", __name__)


@contextlib.contextmanager
def _numpy_without_threads() -> Iterator[None]:
    """Let NumPy, if it is imported here, start no threads: nothing here uses linear algebra.

    They spin before they sleep, which takes 0.1 s of the processor, as long as 4 million events.
    ``run`` imports no NumPy, so that a program that it runs has all threads.
    """
    name = "OPENBLAS_NUM_THREADS"
    if name in os.environ:
        yield
        return
    os.environ[name] = "1"
    try:
        yield
    finally:
        del os.environ[name]


def _leave_unrecorded() -> None:
    """Drop a recording that EVENTPROF asked for: it is meant for programs, not for eventprof."""
    environment = sys.modules.get(f"{__name__}.environment")
    if environment is not None:
        environment.cancel()


# ---- What verbs share ------------------------------------------------------------------------


class Failure(Exception):
    """An error that a verb reports in one line.

    Parameters
    ----------
    said : str
        The line.
    status : int
        The exit status: 1, or 2 if the options are wrong.
    """

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.status = status


#: The options that name the file, of verbs that have no -o.
_OUTPUTS = {"demo": "--out"}


def exists_already(output: str = "-o") -> str:
    """Return what is said of a file that exists: how to replace it, and how to keep it."""
    return f"exists already; -f replaces it, {output} names another"


class Parser(argparse.ArgumentParser):
    """Reports an error in one line, and names the help page."""

    #: What --help shows of the options, if not all; --help-all shows the rest.
    first_options: Sequence[str] = ()

    def format_help(self) -> str:
        """Return the page of --help."""
        if not self.first_options:
            return super().format_help()
        from .pages import short_help

        return short_help(self)

    def format_all(self) -> str:
        """Return the page of --help-all."""
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Print the error, and exit with status 2."""
        from .._words import printable

        self.exit(2, f"{printable(f'{self.prog}: {message}')}\nTry '{self.prog} --help'.\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            from .._words import did_you_mean

            known = [str(choice) for choice in action.choices]
            hint = did_you_mean(value, known) or f"; there are {', '.join(known)}"
            raise argparse.ArgumentError(action, f"there is no {value!r}{hint}")


class _HelpAll(argparse.Action):
    """Prints the page with all options."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        assert isinstance(parser, Parser)
        print(parser.format_all(), end="")
        parser.exit()


def make_parser(verb: str, module: ModuleType) -> Parser:
    """Make the parser of a verb."""
    from .pages import Formatter, page

    parser = Parser(
        prog=f"eventprof {verb}",
        description=page(module),
        epilog=examples(module.EXAMPLES),
        formatter_class=Formatter,
        allow_abbrev=False,
    )
    parser.first_options = getattr(module, "FIRST_OPTIONS", ())
    if parser.first_options:
        parser.add_argument("--help-all", action=_HelpAll, nargs=0, help="show all options")
    module.configure(parser)
    return parser


def examples(rows: Iterable[tuple[str, str]]) -> str:
    """Lay out examples for a help page."""
    return "\n".join(["examples:", *(f"  {command}\n      {what}" for command, what in rows)])


def refuse_unknown(parser: argparse.ArgumentParser, extra: list[str]) -> NoReturn:
    """Report an unknown option, and suggest a similar one."""
    from .._words import did_you_mean

    for word in extra:
        if word.startswith("-"):
            flags = [flag for action in parser._actions for flag in action.option_strings]
            hint = did_you_mean(word.partition("=")[0], flags)
            parser.error(f"there is no option {word}{hint}")
    parser.error(f"too many arguments: {' '.join(extra)}")


def _guarded(verb: str, module: ModuleType | None, found: argparse.Namespace) -> int:
    """Run a verb; for errors that the user can fix, print one line instead of a traceback."""
    from .. import Error

    name = f"eventprof {verb}".rstrip()
    failed = 1
    try:
        if module is None:
            print(found.text)
            status = 0
        else:
            status = int(module.run(found) or 0)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # The reader closed the pipe. Flushing the rest of the buffer must not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return _BROKEN_PIPE
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Failure as failure:
        text, failed = str(failure), failure.status
    except FileExistsError as error:  # its text names the argument of the Python API
        text = f"{error.filename}: {exists_already(_OUTPUTS.get(verb, '-o'))}"
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        text = f"{where}{error.strerror or error}"
    except ModuleNotFoundError as error:
        text = str(error)
    except (Error, MemoryError) as error:
        text = str(error) or type(error).__name__
    from .._words import printable

    print(printable(f"{name}: {text}"), file=sys.stderr)
    return failed
