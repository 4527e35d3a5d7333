"""The magics ``%eventprof`` and ``%%eventprof`` of IPython and notebooks."""

from __future__ import annotations

import ast
import html
import keyword
import shlex
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

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
    codes = statements if last is None else [*statements, last]
    if not codes:  # comments alone
        return
    recorder = record(memory=options.memory, threads=cast(Any, options.threads))
    names, value = shell.user_ns, None
    try:
        recorder.start()
        try:
            for statement in statements:
                exec(statement, shell.user_global_ns, names)
            if last is not None:
                value = eval(last, shell.user_global_ns, names)
        finally:
            recorder.stop()
    finally:
        # Also if the cell raised: the trace has what it did until then.
        trace = recorder.trace
        names[options.name] = trace
        _display(Summary(trace, codes[0].co_filename, codes, cell, options))
    if value is not None:
        shell.displayhook(value)


def _compile(shell: Any, cell: str) -> tuple[list[CodeType], CodeType | None]:
    """Compile a cell: each of its statements, and its last expression if it ends with one.

    Each statement is code of its own, as in a cell that IPython runs. So the time of each is known
    without an event for each line that begins.
    """
    text = shell.transform_cell(cell)
    name = shell.compile.cache(text, shell.execution_count, raw_code=cell)
    body = shell.transform_ast(shell.compile.ast_parse(text, name)).body
    last = None
    if body and isinstance(body[-1], ast.Expr) and not cell.rstrip().endswith(";"):
        last = ast.Expression(body.pop().value)
    statements = [shell.compile(ast.Module([each], []), name, "exec") for each in body]
    return statements, None if last is None else shell.compile(last, name, "eval")


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
    codes : list of code
        The code of each statement of the cell, in order.
    cell : str
        The text of the cell.
    options : Options
        The options of the magic.
    """

    def __init__(
        self, trace: Trace, file: str, codes: list[CodeType], cell: str, options: Options
    ) -> None:
        self._trace = trace
        self._options = options
        self._rows = _lines(trace, file, codes, cell)

    @property
    def _first(self) -> str:
        trace = self._trace
        lost = f"{plural(trace.loss.total, 'event')} LOST" if trace.loss else "nothing lost"
        peak = int(trace._tree.facts["peak"])
        held = f", at most {show_bytes(peak)} live" if peak else ""
        events = plural(trace._facts["events"], "event")
        return f"eventprof: {events} in {show_ns(trace.duration)}{held}, {lost}"

    def _cells(self) -> list[tuple[str, ...]]:
        """Return the texts of the table; the last row is the sum of those above it."""
        rows = sorted(self._rows, key=lambda row: -row.time)
        shown, hidden = rows[: self._options.limit], rows[self._options.limit :]
        cells = [row.cells() for row in sorted(shown, key=lambda row: row.place)]
        if hidden:
            more = f"({plural(len(hidden), 'more row')}: --limit)"
            cells.append(_add(hidden, more).cells())
        return [*cells, _add(rows, "(the whole cell)").cells()]

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
        """Return a table and the small timeline, without a script: every viewer shows it."""
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
    """Return the page in a frame of its own, which cannot access the notebook."""
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


# ---- Rows of the table ---------------------------------------------------------------------------


class _Row(NamedTuple):
    """A row of the table: a line of the cell, or what is not told apart by line."""

    place: tuple[
        int, int
    ]  # the first line, and the last one if the row is of several; (0, 0): none
    time: int
    calls: int
    allocated: int
    kept: int
    text: str

    def cells(self) -> tuple[str, ...]:
        first, last = self.place
        line = f"{first}-{last}" if last > first else f"{first}" if first else ""
        sizes = show_bytes(self.allocated), show_bytes(self.kept)
        return f"{self.calls:,}", show_ns(self.time), *sizes, line, self.text


def _add(rows: list[_Row], text: str) -> _Row:
    time, calls = sum(row.time for row in rows), sum(row.calls for row in rows)
    allocated, kept = sum(row.allocated for row in rows), sum(row.kept for row in rows)
    return _Row((0, 0), time, calls, allocated, kept, text)


def _code_lines(code: CodeType) -> tuple[int, int]:
    """Return a code object's first and last line; its head only if it has several others."""
    ranges = [(start, line) for start, _, line in code.co_lines() if line]
    lines = {line for start, line in ranges if start} or {line for _, line in ranges}
    if len(lines) > 1:
        lines |= {line for _, line in ranges}
    return (min(lines), max(lines)) if lines else (0, 0)


def _codes_inside(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes_inside(each)


def _statement_times(trace: Trace, file: str, count: int) -> list[int]:
    """Return the time of each statement of a cell outside of its recorded calls, in ns.

    Returns
    -------
    list of int
        Empty if the statements are not told apart: the calls of some of them were lost.
    """
    core, functions = trace._core, trace._tree.functions
    is_cell = np.array([row[0] == "<module>" and row[2] == file for row in functions] + [False])
    rows = np.flatnonzero(is_cell[np.maximum(core.calls("function"), -1)])
    if trace.loss or len(rows) > count:
        return []
    rows = rows[np.argsort(core.calls("start")[rows], kind="stable")]
    times: list[int] = core.calls("self")[rows].tolist()
    return times


def _lines(trace: Trace, file: str, codes: list[CodeType], cell: str) -> list[_Row]:
    """Return the rows of a cell, whose times add up to the time of its statements.

    What a line calls is charged to the line. The rest of a function or statement is charged to its
    line if it has only one, and otherwise to a row of its own.
    """
    tree, texts = trace._tree, cell.splitlines()
    found = own_lines(tree, (file,))
    is_cell = np.array([row[2] == file for row in tree.functions] + [False])
    inside = {(each.co_qualname, each.co_firstlineno): _code_lines(each)
              for code in codes for each in _codes_inside(code)}  # fmt: skip
    sums: dict[tuple[int, int], list[int]] = {}

    def charge(place: tuple[int, int], values: Iterable[int]) -> None:
        row = sums.setdefault(place, [0, 0, 0, 0])
        row[:] = [a + b for a, b in zip(row, values, strict=True)]

    for found_row in np.flatnonzero(is_cell[np.maximum(found["function"], -1)]).tolist():
        line = int(found["line"][found_row])
        values = [int(found[name][found_row]) for name in ("self", "calls", "allocated", "live")]
        if 1 <= line <= len(texts):
            charge((line, line), values)
            continue
        name, _, _, first, _ = tree.functions[int(found["function"][found_row])]
        place = inside.get((str(name), first or 0), (1, len(texts)))
        if name == "<module>":
            place = 1, len(texts)
            for code, time in zip(codes, _statement_times(trace, file, len(codes)), strict=False):
                charge(_code_lines(code), (time, 0, 0, 0))
                values[0] -= time
        if any(values):
            charge(place, values)
    rows = []
    for (first, last), values in sorted(sums.items()):
        text = texts[first - 1] if 1 <= first <= len(texts) else ""
        if last > first:
            text = f"{text}  (outside of its calls)"
        time, calls, allocated, kept = values
        rows.append(_Row((first, last), time, calls, allocated, kept, text))
    return rows
