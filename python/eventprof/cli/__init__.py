"""The program ``eventprof``: picks the verb, and turns what went wrong into a line and a status.

A verb is a module of this folder with a docstring (its help page begins with it), ``EXAMPLES``,
``configure(parser)`` and ``run(arguments)``, which gives the exit status; and a row in `VERBS`.
Only the verb that is asked for is imported, so that ``run`` starts quickly.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any, NoReturn

#: The verbs and what they are for, in the order of the help page.
VERBS = {
    "run": "record a program",
    "report": "print a page: where the time and the memory went",
    "tree": "print the tree of calls: time and bytes of each branch",
    "analyze": "name what is likely wrong: findings, with lines and numbers",
    "view": "show a page: every call on a timeline, over who held the memory",
    "flamegraph": "show which stacks took the time, of one recording or of two",
    "heatmap": "show the source, each line as warm as what it took",
    "stats": "list functions with their counts, times and bytes",
    "events": "list events, also of a program that still runs",
    "info": "say what a file holds, how it ended and what is missing",
    "verify": "replay a recording, and say what is wrong with it",
    "diff": "compare two recordings by function",
    "merge": "join the recordings of several processes",
    "save": "turn a recording into a compact archive",
    "export": "write a file that another tool reads: Perfetto, speedscope, CSV and others",
    "demo": "record a program that comes along, and show what came out",
    "guide": "say how a program, or who drives one, asks for answers: JSON, units, handles",
    "completion": "print a script that completes commands in a shell",
    "man": "print the manual page",
}

DESCRIPTION = "Record every call, return, allocation and free of a program, and look at them."
EXAMPLES = (
    ("eventprof run script.py argument", "record a script; the file is script-PID.epr"),
    ("eventprof run -m package", "record a module, as python -m runs it"),
    ("eventprof report script-4711.epr", "where the time and the memory went"),
    ("eventprof stats script-4711.epr --sort allocated", "functions, the most bytes first"),
)

_BROKEN_PIPE = 128 + 13  # as the shell reports a program that SIGPIPE ended
_INTERRUPTED = 128 + 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments : sequence of str, optional
        What follows the program's name; ``sys.argv`` without.

    Returns
    -------
    int
        The exit status: 0; 1 if a file cannot be read or written; 2 for wrong use. Of ``run``
        there is none, unless the program could not be started: the program ends as it would have
        without it.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    _leave_unrecorded()
    if not given or given[0] in ("-h", "--help", "help") or given[0] not in VERBS:
        return _without_verb(given)
    verb, *rest = given
    module = load(verb)
    parser = make_parser(verb, module)
    if verb == "run":
        from . import run

        # Nothing of ours may stand between the program and the interpreter.
        return run.main(parser, rest)
    found, extra = parser.parse_known_args(rest)
    if extra:
        refuse_unknown(parser, extra)
    return _guarded(verb, module, found)


def _without_verb(given: list[str]) -> int:
    """Answer what needs no verb; None of the given is one."""
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
    return importlib.import_module(f".{verb}", __name__)


def _leave_unrecorded() -> None:
    """Stop a recording that the environment asked for: it is of the programs, not of this one."""
    environment = sys.modules.get(f"{__name__}.environment")
    if environment is not None:
        environment.cancel()


# ---- What verbs share ------------------------------------------------------------------------


class Failure(Exception):
    """What a verb cannot do, as one line for the user.

    Parameters
    ----------
    said : str
        The line.
    status : int
        The exit status: 2 for wrong use.
    """

    def __init__(self, said: str, status: int = 1) -> None:
        super().__init__(said)
        self.status = status


class Parser(argparse.ArgumentParser):
    """Says on one line what is wrong, and where to read more."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong, and exit with status 2."""
        from .._words import printable

        self.exit(2, f"{printable(f'{self.prog}: {message}')}\nTry '{self.prog} --help'.\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            from .._words import did_you_mean

            known = [str(choice) for choice in action.choices]
            hint = did_you_mean(value, known) or f"; there are {', '.join(known)}"
            raise argparse.ArgumentError(action, f"there is no {value!r}{hint}")


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
    module.configure(parser)
    return parser


def examples(rows: Iterable[tuple[str, str]]) -> str:
    """Lay out examples for a help page."""
    return "\n".join(["examples:", *(f"  {command}\n      {what}" for command, what in rows)])


def refuse_unknown(parser: argparse.ArgumentParser, extra: list[str]) -> NoReturn:
    """Say which option there is not, and which may have been meant."""
    from .._words import did_you_mean

    for word in extra:
        if word.startswith("-"):
            flags = [flag for action in parser._actions for flag in action.option_strings]
            hint = did_you_mean(word.partition("=")[0], flags)
            parser.error(f"there is no option {word}{hint}")
    parser.error(f"too many arguments: {' '.join(extra)}")


def _guarded(verb: str, module: ModuleType | None, found: argparse.Namespace) -> int:
    """Run a verb; give one line instead of a traceback for what is the user's to mend."""
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
        # Whoever reads has enough. What is still in the buffer must not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return _BROKEN_PIPE
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Failure as failure:
        said, failed = str(failure), failure.status
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        said = f"{where}{error.strerror or error}"
    except ModuleNotFoundError as error:
        said = str(error)
    except (Error, MemoryError) as error:
        said = str(error) or type(error).__name__
    from .._words import printable

    print(printable(f"{name}: {said}"), file=sys.stderr)
    return failed
