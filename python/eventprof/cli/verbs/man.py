"""Print the manual page, in roff."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from .. import DESCRIPTION, VERBS, load, make_parser
from .. import EXAMPLES as OVERVIEW_EXAMPLES
from ..pages import help_of, page

EXAMPLES = (
    ("eventprof man | man -l -", "read it"),
    ("eventprof man > ~/.local/share/man/man1/eventprof.1", "from then on: man eventprof"),
)

#: The environment variables; the verbs' docstrings have the rest of the page.
_ENVIRONMENT = (
    (
        "EVENTPROF",
        "If it is set when a Python program starts, the program is recorded. 1 records everything; "
        "memory=0,include=pkg.* gives options of run; 0 or an empty value records nothing. A wrong "
        "value is reported on standard error, and the program runs unrecorded.",
    ),
    (
        "EVENTPROF_OUTPUT",
        "The file of such a recording; %p is the process id, %h the host's name. Or a folder "
        "NAME.epd for all processes. By default: eventprof-%p.epr in the current directory.",
    ),
    ("NO_COLOR", "If it is set, report uses no colours."),
)

_STATUS = (
    ("run", "The exit status of the program; 2 if the program was not started."),
    ("0", "No error."),
    ("1", "A file cannot be read or written; one line on standard error says why."),
    (
        "2",
        "Wrong options. verify: 1 if a recording has an error, 2 if a file cannot be read.",
    ),
    ("141", "The reader closed standard output, as head does."),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Take no arguments."""


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    sys.stdout.write(text())
    return 0


def text() -> str:
    """Return the page."""
    return "\n".join(_lines()) + "\n"


def _escape(words: str) -> str:
    words = words.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return f"\\&{words}" if words.startswith(".") else words


def _lines() -> Iterator[str]:
    from ... import __version__

    yield f'.TH EVENTPROF 1 "" "eventprof {__version__}" "User Commands"'
    yield ".SH NAME"
    yield f"eventprof \\- {_escape(DESCRIPTION[0].lower() + DESCRIPTION[1:].rstrip('.'))}"
    yield ".SH SYNOPSIS"
    for verb in VERBS:
        usage = make_parser(verb, load(verb)).format_usage()
        words = " ".join(usage.split()[1:])
        yield f".B {_escape(f'eventprof {verb}')}"
        yield _escape(words.removeprefix(f"eventprof {verb}").strip()) or "\\&"
        yield ".br"
    yield ".SH DESCRIPTION"
    yield _escape(DESCRIPTION)
    for verb in VERBS:
        yield from _verb(verb)
    for title, rows in (("ENVIRONMENT", _ENVIRONMENT), ("EXIT STATUS", _STATUS)):
        yield f".SH {title}"
        for head, text in rows:
            yield from (".TP", f".B {_escape(head)}", _escape(text))
    yield ".SH EXAMPLES"
    yield from _examples(OVERVIEW_EXAMPLES)


def _verb(verb: str) -> Iterator[str]:
    module = load(verb)
    parser = make_parser(verb, module)
    yield f'.SH "EVENTPROF {verb.upper()}"'
    for paragraph in page(module).split("\n\n"):
        yield ".PP"
        yield from (_escape(line) for line in paragraph.splitlines())
    for group in parser._action_groups:
        for action in group._group_actions:
            if "--help" in action.option_strings:
                continue
            flags = ", ".join(action.option_strings) or str(action.metavar or action.dest)
            values = "|".join(map(str, action.choices or ()))
            value = str(action.metavar or values or "") if action.nargs != 0 else ""
            shown = f" {value}" if action.option_strings and value else ""
            yield ".TP"
            yield f".B {_escape(flags + shown)}"
            yield _escape(help_of(action))
    yield from _examples(module.EXAMPLES)


def _examples(rows: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for command, what in rows:
        yield from (".PP", _escape(f"{what[0].upper()}{what[1:]}:"))
        yield from (".RS 4", ".nf", _escape(command), ".fi", ".RE")
