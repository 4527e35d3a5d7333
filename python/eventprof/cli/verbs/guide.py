"""Explain the output to programs: which verbs give JSON, the fields and their units.

The page is for scripts, and for programs that use eventprof and cannot read pictures.
"""

from __future__ import annotations

import argparse
import textwrap

from ...tables.descriptions import described

EXAMPLES = (("eventprof guide", "the page, in plain text"),)

#: The answer of verbs that write a file.
_WRITTEN = ("one row", ("output", "bytes", "sources", "format", "notes"))
#: The verbs with --json: what a row of each is, and the fields of rows.
FIELDS = {
    "analyze": ("a row for each finding, the most serious first", (
        "handle", "rule", "claim", "advice", "share", "numbers", "evidence", "command",
    )),
    "report": ("a row for each answer; section says to which question", (
        "section", "handle", "name", "module", "file", "line", "value", "share", "part",
        "bytes", "covers", "calls", "self", "total", "allocated", "at_peak",
    )),
    "tree": ("a row for each branch, parents first", (
        "handle", "node", "depth", "name", "module", "file", "line", "caller_line",
        "calls", "total", "self", "waited", "allocated", "at_peak", "folded",
        "folded_total",
    )),
    "stats": ("a row for each function", (
        "handle", *(column.name for column in described("functions")),
    )),
    "waits": ("a row for each place where threads, or with --tasks asyncio's tasks, waited", (
        "kind", "name", "file", "line", "type", "through", "total", "longest", "times", "at_once",
        "threads", "wakers", "meanwhile",
    )),
    "requests": ("a row a request, the slowest first; with --request a row a function", (
        "handle", "request", "method", "route", "path", "status", "error", "start", "total",
        "busy", "waited", "calls", "allocated", "most_in", "most_self", "span", "flags",
    )),
    "events": ("a line an event, and no document", (
        "handle", "time", "event", "thread", "function", "name", "line", "address",
        "size", "domain", "depth", "caller", "caller_line", "value", "offset", "opcode",
    )),
    "info": ("one row", (
        "file", "metadata", "events", "loss", "pairing", "threads",
    )),
    "verify": ("a row for each file", (
        "file", "ok",
    )),
    "diff": ("a row for each function", (
        "name", "module", "file", "status", "self_change",
    )),
    "dataset": ("a row for each function, call or recording of a dataset, as --show says", (
        "function", "process", "name", "module", "file", "line", "kind", "calls", "total", "self",
        "duration", "start", "events", "lost", "peak", "bytes", "blocks",
    )),
    "save": _WRITTEN,
    "merge": _WRITTEN,
    "trim": _WRITTEN,
    "export": _WRITTEN,
    "view": _WRITTEN,
    "flamegraph": _WRITTEN,
    "heatmap": _WRITTEN,
}  # fmt: skip

#: Commands in the order in which they help; FILE is a recording.
STEPS = (
    (
        "eventprof run -o FILE script.py",
        "record a program; output and exit status stay its own",
    ),
    ("eventprof info FILE --json", "is the recording whole? lost is 0, missing is empty"),
    ("eventprof analyze FILE --json --budget 800", "what is likely wrong, the most serious first"),
    ("eventprof report FILE --json --budget 800", "own lines that are slow or hold the peak"),
    ("eventprof tree FILE --json --limit 40", "where time and bytes went, by branch of own code"),
    ("eventprof stats FILE --json --sort self --limit 20", "functions, most time of their own"),
    ("eventprof stats FILE --json --sort at_peak --limit 20", "functions that held the peak"),
    ("eventprof tree FILE --call 0", "one call in detail, as text: its children in order"),
)

_RULES = (
    "An answer is one JSON document: schema, verb, file, events, duration, lost, missing, left_out "
    "and rows. doc/answers.schema.json describes it; schema has its version. events prints a line "
    "for each event instead.",
    "If lost is not 0, or missing not empty, all numbers are too small. As text, the first line "
    "says so.",
    "Times are whole nanoseconds; only mean has a fraction. Sizes are bytes. An unknown value is "
    "null, never 0 or -1.",
    "Exit status 0: answered. 1: a file cannot be read; for verify, a recording has an error. "
    "2: wrong options, with one line that says what is right.",
    "Handles: f-1 is the worst finding, n-12 a branch (row 12 of trace.tree, counted from 0), "
    "fn-3 a function (row of trace.functions), e-7 an event (row of trace.events), c-5 a call, "
    "s-2 a span (row of trace.spans). "
    "They are the same each time that the same file is asked with the same options. tree takes "
    "--node n-12 and --call c-5, stats and events take --function fn-3.",
    "Keep answers short: --budget N of analyze, report and tree is at most N tokens of four "
    "characters each, and left_out says how many rows were dropped; --limit N is at most N rows.",
    "A finding has a claim, advice, numbers, evidence (name, file, line, node, calls) and a "
    "command that shows more.",
    "For questions that no verb answers, there is Python: eventprof.open(FILE) gives tables, and "
    "trace.sql(query) queries them in SQL.",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Take no arguments."""


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    print(text())
    return 0


def text() -> str:
    """Return the page."""
    lines = ["eventprof, used by a program", "", "Steps, in the order in which they help:"]
    for command, what in STEPS:
        lines += [f"  {command}", f"      {what}"]
    lines += ["", "Verbs with --json, and the fields of their rows:"]
    for verb, (form, fields) in FIELDS.items():
        lines.append(f"  {verb}: {form}")
        lines += textwrap.wrap(", ".join(fields), 90, initial_indent=" " * 6,
                               subsequent_indent=" " * 6)  # fmt: skip
    lines += ["", "Rules:"]
    for rule in _RULES:
        lines += textwrap.wrap(rule, 94, initial_indent="  - ", subsequent_indent="    ")
    return "\n".join(lines)
