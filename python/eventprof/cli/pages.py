"""Help pages: the overview, and how argparse lays out the page of a verb."""

from __future__ import annotations

import argparse
import inspect
from types import ModuleType

from . import DESCRIPTION, EXAMPLES, VERBS, examples


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Leaves the page's text as it was written."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26)


def page(module: ModuleType) -> str:
    """Give what a verb's module says about itself."""
    return inspect.cleandoc(module.__doc__ or "")


def help_of(action: argparse.Action) -> str:
    """Give what an option is for, as argparse prints it."""
    return (action.help or "") % {"default": action.default}


def overview() -> str:
    """Give the page of ``eventprof --help``."""
    verbs = "\n".join(f"  {verb:<12}{what}" for verb, what in VERBS.items())
    return (
        "usage: eventprof VERB [OPTION...] [ARGUMENT...]\n"
        "       eventprof --version\n\n"
        f"{DESCRIPTION}\n\n"
        f"verbs:\n{verbs}\n\n"
        "'eventprof VERB --help' says more about each. EVENTPROF=1 in the environment records\n"
        "Python programs that something else starts.\n\n"
        f"{examples(EXAMPLES)}"
    )
