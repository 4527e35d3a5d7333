"""The magics ``%eventprof`` and ``%%eventprof`` of IPython and notebooks."""

from __future__ import annotations

import ast
import html
import keyword
import shlex
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .._optional import require
from .._words import plural, show_bytes, show_ns
from ..answers.table import own_lines
from ..recording.record import record

if TYPE_CHECKING:
    from ..trace import Trace

_USAGE = """usage: %eventprof [options] statement, or %%eventprof [options] above a cell

  -o NAME      keep the trace in this variable (_eventprof)
  --all        record all threads, the kernel's, too
  --no-memory  record calls alone
  --limit N    show so many lines (10)
  --page       show the whole page: every call on a timeline, over who held the memory"""
#: A longer line of the cell is cut, so that the table is about as wide as the timeline.
_LETTERS = 90
#: A larger page would make the notebook's file slow to open.
_PAGE_BYTES = 20 << 20


def load_ipython_extension(shell: Any) -> None:
    """Add the magics; ``%load_ext eventprof`` calls this."""
    require("IPython", "notebook", "%load_ext eventprof")
    shell.register_magic_function(
        lambda line, cell=None: _magic(shell, line, cell), "line_cell", "eventprof"
    )


class Options:
    """The options of a magic.

    Parameters
    ----------
    line : str
        The text after the magic's name.

    Attributes
    ----------
    statement : str
        The rest of the line, after the options.
    """

    def __init__(self, line: str) -> None:
        self.name = "_eventprof"
        self.threads = "current"
        self.memory = True
        self.limit = 10
        self.page = False
        rest = line.strip()
        while rest.startswith("-"):
            word, _, rest = rest.partition(" ")
            rest = rest.strip()
            if word == "--all":
                self.threads = "all"
            elif word == "--no-memory":
                self.memory = False
            elif word == "--page":
                self.page = True
            elif word in ("-o", "--limit"):
                value, _, rest = rest.partition(" ")
                rest = rest.strip()
                if word == "-o" and value.isidentifier() and not keyword.iskeyword(value):
                    self.name = value
                elif word == "--limit" and value.isdecimal():
                    self.limit = int(value)
                else:
                    raise _usage_error(f"{word} {shlex.quote(value)}")
            else:
                raise _usage_error(word)
        self.statement = rest


def _usage_error(word: str) -> Exception:
    error: Exception = require("IPython.core.error", "notebook", "%eventprof").UsageError(
        f"eventprof: {word}?\n{_USAGE}"
    )
    return error


def _magic(shell: Any, line: str, cell: str | None) -> None:
    options = Options(line)
    if cell is None:
        cell = options.statement
    elif options.statement:
        raise _usage_error(options.statement)
    if not cell.strip():
        raise _usage_error("nothing to run")
    statements, last = _compile(shell, cell)
    recorder = record(memory=options.memory, threads=cast(Any, options.threads))
    names, value = shell.user_ns, None
    try:
        recorder.start()
        try:
            exec(statements, shell.user_global_ns, names)
            if last is not None:
                value = eval(last, shell.user_global_ns, names)
        finally:
            recorder.stop()
    finally:
        # Also if the cell raised: the trace has what it did until then.
        trace = recorder.trace
        names[options.name] = trace
        _display(Summary(trace, statements.co_filename, cell, options))
    if value is not None:
        shell.displayhook(value)


def _compile(shell: Any, cell: str) -> tuple[Any, Any]:
    """Compile a cell: give its statements, and its last expression if it ends with one."""
    text = shell.transform_cell(cell)
    name = shell.compile.cache(text, shell.execution_count, raw_code=cell)
    tree = shell.transform_ast(shell.compile.ast_parse(text, name))
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not cell.rstrip().endswith(";"):
        last = ast.Expression(tree.body.pop().value)
    compiled = [None if part is None else shell.compile(part, name, mode)
                for part, mode in ((tree, "exec"), (last, "eval"))]  # fmt: skip
    return compiled[0], compiled[1]


def _display(summary: Summary) -> None:
    require("IPython.display", "notebook", "%eventprof").display(summary)


class Summary:
    """Shows a recorded cell in a notebook: its lines, and a small timeline.

    Parameters
    ----------
    trace : Trace
        The recording.
    file : str
        The name of the cell's file in code objects.
    cell : str
        The text of the cell.
    options : Options
        The options of the magic.
    """

    def __init__(self, trace: Trace, file: str, cell: str, options: Options) -> None:
        self._trace = trace
        self._options = options
        self._rows = _lines(trace, file, cell)

    @property
    def _first(self) -> str:
        trace = self._trace
        lost = f"{plural(trace.loss.total, 'event')} LOST" if trace.loss else "nothing lost"
        peak = int(trace._tree.facts["peak"])
        held = f", at most {show_bytes(peak)} live" if peak else ""
        events = plural(trace._facts["events"], "event")
        return f"eventprof: {events} in {show_ns(trace.duration)}{held}, {lost}"

    def _cells(self) -> list[tuple[str, ...]]:
        shown = sorted(self._rows, key=lambda row: -row[1])[: self._options.limit]
        return [
            (f"{calls:,}", show_ns(time), show_bytes(size), show_bytes(live), f"{line}", text)
            for line, time, calls, size, live, text in sorted(shown)
        ]

    def __repr__(self) -> str:
        heads = ("calls", "time", "allocated", "kept", "line", "of this cell")
        table = [heads, *self._cells()]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join([*(c.rjust(w) for c, w in zip(row[:-1], widths, strict=False)), row[-1]])
            for row in table
        ]
        return "\n".join([self._first, *lines, f"the trace is in {self._options.name}"])

    def _repr_html_(self) -> str:
        """Give a table and the small timeline, without a script, so that every viewer shows it."""
        from ..viewer.picture import fit, svg

        heads = ("calls", "time", "allocated", "kept", "line", "of this cell")
        cell = 'style="text-align:{};padding:0 .6em;white-space:pre;font-family:monospace"'
        right, left = cell.format("right"), cell.format("left")
        rows = [f"<tr>{''.join(f'<th {right}>{head}</th>' for head in heads[:-1])}"
                f"<th {left}>{heads[-1]}</th></tr>"]  # fmt: skip
        for row in self._cells():
            numbers = "".join(f"<td {right}>{html.escape(text)}</td>" for text in row[:-1])
            text = html.escape(fit(row[-1], _LETTERS))
            rows.append(f"<tr>{numbers}<td {left}>{text}</td></tr>")
        parts = [
            f"<div><strong>{html.escape(self._first)}</strong>; the trace is in "
            f"<code>{html.escape(self._options.name)}</code></div>",
            f"<table>{''.join(rows)}</table>",
            svg(self._trace),
        ]
        if self._options.page:
            parts.append(_frame(self._trace))
        return "\n".join(parts)


def _frame(trace: Trace) -> str:
    """Give the page in a frame of its own, which cannot access the notebook."""
    from ..viewer.page import page

    whole = page(trace, title="this cell")
    if len(whole) > _PAGE_BYTES:
        return (
            f"<div>The page has {show_bytes(len(whole))}: too much for a notebook. "
            "<code>.show()</code> opens it in the browser.</div>"
        )
    return (
        '<iframe sandbox="allow-scripts" style="width:100%;height:640px;border:1px solid #ccc" '
        f'srcdoc="{html.escape(whole.decode(), quote=True)}"></iframe>'
    )


def _lines(trace: Trace, file: str, cell: str) -> list[tuple[int, int, int, int, int, str]]:
    """Give for each line of the cell: number, ns, calls, bytes allocated and not freed, text."""
    tree = trace._tree
    found = own_lines(tree, (file,))
    of_cell = np.array([row[2] == file for row in tree.functions] + [False])
    texts = cell.splitlines()
    rows: dict[int, list[int]] = {}
    for at in np.flatnonzero(of_cell[np.maximum(found["function"], -1)]).tolist():
        line = int(found["line"][at])
        if 1 <= line <= len(texts):
            sums = rows.setdefault(line, [0, 0, 0, 0])
            for n, name in enumerate(("self", "calls", "allocated", "live")):
                sums[n] += int(found[name][at])
    return [(line, *sums, texts[line - 1]) for line, sums in sorted(rows.items())]  # type: ignore[misc]
