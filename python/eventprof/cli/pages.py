"""Help pages: the overview, and how argparse lays out the page of a verb."""

from __future__ import annotations

import argparse
import copy
import os
from types import ModuleType

from . import DESCRIPTION, EXAMPLES, VERBS_BY_GROUP, Parser, examples


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
    """Return the docstring of a verb's module."""
    return (module.__doc__ or "").strip()


def help_of(action: argparse.Action) -> str:
    """Return the help text of an option as argparse prints it."""
    return (action.help or "") % {"default": action.default}


def short_help(parser: Parser) -> str:
    """Return a page with the options in `Parser.first_options`, each explained up to a ';'."""
    formatter = parser._get_formatter()
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups)
    first, _, rest = (parser.description or "").partition("\n\n")
    formatter.add_text(first)
    formatter.start_section("options")
    shown = []
    for flag in parser.first_options:
        option = copy.copy(parser._option_string_actions[flag])
        shown.append(option)
        option.help = (option.help or "").partition(";")[0]
        if isinstance(option, argparse.BooleanOptionalAction):
            option.option_strings = [flag]  # the other of the two is the default
            option.help = f"do not record {option.help.removesuffix(' (on)')}"
        formatter.add_argument(option)
    formatter.end_section()
    more = len(parser._actions) - len(shown) - 2  # --help and --help-all are none
    formatter.add_text(f"{more} more options: {parser.prog} --help-all")
    formatter.add_text(rest)
    formatter.add_text(parser.epilog)
    return formatter.format_help()


def overview() -> str:
    """Return the page of ``eventprof --help``."""
    groups = []
    for title, rows in VERBS_BY_GROUP.items():
        verbs = (f"  {verb:<12}{what}" for verb, what in rows.items())
        groups.append("\n".join([f"{title}:" if title else "  " + "-" * 72, *verbs]))
    return (
        "usage: eventprof VERB [OPTION...] [ARGUMENT...]\n"
        "       eventprof --version\n\n"
        f"{DESCRIPTION}\n\n"
        f"{chr(10).join(groups)}\n\n"
        "'eventprof VERB --help' explains each. EVENTPROF=1 in the environment records\n"
        "Python programs that something else starts.\n\n"
        f"{examples(EXAMPLES)}"
    )
