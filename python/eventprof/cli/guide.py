"""Explain the output for programs: which verbs give JSON, its fields and their units.

For scripts, and for programs that use eventprof and do not read pictures and tables.
"""

from __future__ import annotations

import argparse
import textwrap

EXAMPLES = (("eventprof guide", "the page, in plain text"),)

#: Verbs with --json: how often an object is printed, and its fields (of stats, events and diff:
#: the columns of the table in doc/tables.rst).
FIELDS = {
    "analyze": ("one document", (
        "schema", "file", "events", "duration", "lost", "findings", "left_out",
    )),
    "tree": ("a line a node, parents first", (
        "node", "depth", "name", "module", "file", "line", "caller_line", "calls", "total", "self",
        "waited", "allocated", "at_peak", "folded", "folded_total",
    )),
    "stats": ("a line a function", (
        "name", "module", "file", "line", "kind", "calls", "resumes", "recursive", "total", "self",
        "mean", "min", "max", "p50", "p95", "p99", "allocated", "freed", "net", "blocks", "live",
        "churn", "temporary", "at_peak",
    )),
    "events": ("a line an event", (
        "time", "event", "thread", "function", "name", "line", "address", "size", "domain",
        "depth", "caller", "caller_line", "value", "offset", "opcode",
    )),
    "info": ("one document", (
        "file", "metadata", "events", "loss", "pairing", "threads",
    )),
    "verify": ("a line a file", ("file", "ok")),
    "diff": ("a line a function", ("name", "module", "file", "status", "self_change")),
}  # fmt: skip

#: Steps in the order in which they help; FILE is a recording.
STEPS = (
    (
        "eventprof run -o FILE script.py",
        "record a program; output and exit status stay its own",
    ),
    ("eventprof info FILE --json", "is the recording whole? loss.total is 0, missing is empty"),
    ("eventprof analyze FILE --json --budget 800", "what is likely wrong, the gravest first"),
    ("eventprof tree FILE --json --limit 40", "where time and bytes went, by branch of own code"),
    ("eventprof stats FILE --json --sort self --limit 20", "functions, most time of their own"),
    ("eventprof stats FILE --json --sort at_peak --limit 20", "functions that held the peak"),
    ("eventprof tree FILE --call 0", "one call in detail, as text: its children in order"),
)

_RULES = (
    "Answers go to standard output; one line about lost events goes to standard error. A number "
    "from a recording with loss is too small.",
    "Times are whole nanoseconds, mean alone has a fraction; sizes are bytes. What is not known is "
    "null, never 0 or -1.",
    "Exit status 0: answered. 1: a file cannot be read, or, of verify, something is wrong with it. "
    "2: wrong use, with one line that says how it is meant.",
    "Handles: handle of a finding (f-1 is the gravest), node of a branch (a row of trace.tree) and "
    "the function of an event (a row of trace.functions, counted from 0) are the same each time "
    "that the same file is asked with the same options.",
    "Keep answers short: --budget N of analyze is at most N tokens of four characters each, and "
    "left_out says what was dropped; --limit N of tree, stats, events and diff is at most N rows.",
    "A finding has a claim, advice, numbers, evidence (name, file, line, node, calls) and a "
    "command that shows more; doc/findings.schema.json describes it.",
    "The text of report, view and tree --call is for people. What none of the verbs say, Python "
    "does: eventprof.open(FILE) gives tables; trace.sql(query) asks them in SQL.",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Take no arguments."""


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    print(text())
    return 0


def text() -> str:
    """Give the page."""
    lines = ["eventprof, asked by a program", "", "Steps, in the order in which they help:"]
    for command, what in STEPS:
        lines += [f"  {command}", f"      {what}"]
    lines += ["", "Verbs with --json, and their fields:"]
    for verb, (form, fields) in FIELDS.items():
        lines.append(f"  {verb}: {form}")
        lines += textwrap.wrap(", ".join(fields), 90, initial_indent=" " * 6,
                               subsequent_indent=" " * 6)  # fmt: skip
    lines += ["", "Rules:"]
    for rule in _RULES:
        lines += textwrap.wrap(rule, 94, initial_indent="  - ", subsequent_indent="    ")
    return "\n".join(lines)
