"""Help pages: the overview, and how argparse lays out the page of a verb."""

from __future__ import annotations

import argparse
import os
from types import ModuleType

from . import DESCRIPTION, EXAMPLES, VERBS, examples


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Prints the text of a help page as it was written."""

    def __init__(self, prog: str) -> None:
        # Without a width, argparse would import shutil, and ask for the width at each option.
        try:
            width = int(os.environ["COLUMNS"])
        except (KeyError, ValueError):
            try:
                width = os.get_terminal_size(1).columns
            except OSError:
                width = 80
        super().__init__(prog, max_help_position=26, width=max(width, 40) - 2)


def page(module: ModuleType) -> str:
    """Give the docstring of a verb's module."""
    return (module.__doc__ or "").strip()


def help_of(action: argparse.Action) -> str:
    """Give the help text of an option as argparse prints it."""
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
