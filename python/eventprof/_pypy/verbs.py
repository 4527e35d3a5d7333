"""The verbs of the command line on PyPy: those that need no C core."""

from __future__ import annotations

import argparse
import importlib
import sys
from types import ModuleType

from .core import UnsupportedError, missing

#: Those of the package that need nothing else.
_SHARED = ("run", "guide", "completion", "man")


def load(verb: str) -> ModuleType:
    """Return the module of a verb."""
    if verb in _SHARED:
        return importlib.import_module(f"..cli.verbs.{verb}", __package__)
    name = f"{__name__}.{verb}"
    module = ModuleType(name, _TEXTS.get(verb, _ABSENT))
    known = _Report(verb) if verb in _TEXTS else _Absent(verb)
    module.__dict__.update(
        EXAMPLES=((f"eventprof {verb} FILE", "of an archive"),),
        configure=known.configure,
        run=known.run,
    )
    return module


_TEXTS = {
    "report": "Print a page: the functions that took the most time, compiler and collector.",
    "stats": "List functions with their counts and times.",
}
_ABSENT = "This needs CPython."


class _Report:
    """report and stats."""

    def __init__(self, verb: str) -> None:
        self._verb = verb

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument("file", metavar="FILE", help="an archive")
        parser.add_argument("--limit", metavar="N", type=int, default=15, help="functions (15)")

    def run(self, arguments: argparse.Namespace) -> int:
        """Print it."""
        from .reading import open as open_archive
        from .report import functions, text

        trace = open_archive(arguments.file)
        output = text(trace, arguments.limit)
        if self._verb == "stats":
            output = "\n".join(functions(trace, arguments.limit))
        print(output)
        return 0


class _Absent:
    """A verb that needs the C core."""

    def __init__(self, verb: str) -> None:
        self._verb = verb

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Accept any arguments, so that the error is about the verb."""
        parser.add_argument("rest", nargs="*")
        parser.parse_known_args = self._refuse  # type: ignore[method-assign,assignment]

    def _refuse(self, *_: object, **__: object) -> None:
        try:
            missing("this verb", "it needs the C core, which PyPy cannot have",
                    "use it with CPython: the files open there")  # fmt: skip
        except UnsupportedError as error:
            print(f"eventprof {self._verb}: {error}", file=sys.stderr)
            sys.exit(1)

    def run(self, arguments: argparse.Namespace) -> int:
        """Not reached."""
        return 1
