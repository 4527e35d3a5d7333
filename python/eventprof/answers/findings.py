"""Findings: what is likely wrong with a program, each with numbers, evidence and a command.

A rule is a function in rules.py: it looks at the tree of calls and yields findings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from .._words import plural
from .tree import Tree

if TYPE_CHECKING:
    from ..tables.column import Array
    from ..trace import Trace


@dataclass(frozen=True)
class Evidence:
    """A line that a finding is about, with its node of the tree, if it has one."""

    name: str
    file: str | None
    line: int | None
    node: int | None = None
    calls: int | None = None

    def place(self) -> str:
        """Return the file and the line as text, as far as they are known."""
        from ..base.text import short_path

        if self.file is None:
            return self.name
        line = f":{self.line}" if self.line else ""
        return f"{short_path(self.file)}{line}"


@dataclass(frozen=True)
class Finding:
    """One thing that is likely wrong.

    Attributes
    ----------
    rule : str
        Which rule found it.
    claim : str
        What is wrong, in a sentence.
    advice : str
        What to do.
    share : float
        The part of the time, or of the bytes, that the finding is about: from 0 to 1.
    numbers : dict
        The figures behind the claim; times in ns, sizes in bytes.
    evidence : tuple of Evidence
        Lines, the worst first.
    command : str
        A command that shows more; FILE stands for the recording.
    handle : str
        ``f-1`` for the finding with the largest share, and so on.
    """

    rule: str
    claim: str
    advice: str
    share: float
    numbers: dict[str, int | float]
    evidence: tuple[Evidence, ...]
    command: str
    handle: str = ""


@dataclass
class Case:
    """The input of every rule."""

    trace: Trace
    tree: Tree
    own: Array  # bool, by row of the functions, and False at the end: `Tree.is_own`
    lines: dict[str, Array] = field(default_factory=dict)  # `own_lines`

    @property
    def whole(self) -> int:
        """The time in calls of all threads, in ns; at least 1."""
        return max(int(self.tree.nodes["total"][0]), 1)

    @cached_property
    def called_by_own(self) -> Array:
        """Whether own code called each node."""
        called: Array = self.own[np.maximum(self.tree.caller, -1)]
        return called

    def functions_named(self, names: Collection[tuple[str, str]]) -> list[int]:
        """Return the rows of functions by module and name."""
        return [row for row, each in enumerate(self.tree.functions) if (each[1], each[0]) in names]

    def nodes_of(self, functions: Sequence[int]) -> Array:
        """Return the nodes of some functions."""
        return np.flatnonzero(np.isin(self.tree.function, functions))

    def own_nodes_of(self, functions: Sequence[int]) -> Array:
        """Return the nodes of some functions that own code called."""
        nodes = self.nodes_of(functions)
        return nodes[self.called_by_own[nodes]]

    def node_evidence(self, node: int) -> Evidence:
        """Make the evidence for a node: its function, and the line that called it."""
        tree = self.tree
        caller, line = int(tree.caller[node]), int(tree.line[node])
        file = tree.functions[caller][2] if caller >= 0 else None
        if file is None and tree.function[node] >= 0:
            _, _, file, first, _ = tree.functions[int(tree.function[node])]
            line = first or -1
        return Evidence(
            tree.name(node), file, line if line > 0 else None, node, int(tree.own("calls")[node])
        )

    def line_evidence(self, function: int, line: int) -> Evidence:
        """Make the evidence for an own line, or for a whole function if the line is not known."""
        name, _, file, first, _ = self.tree.functions[function]
        return Evidence(name or "(no name)", file, line if line > 0 else first)


def falling(nodes: Array, figure: Array) -> Array:
    """Return nodes in order of a figure of all nodes, the largest first."""
    ordered: Array = nodes[np.argsort(-figure[nodes], kind="stable")]
    return ordered


def case_of(trace: Trace, own: Sequence[str] = ()) -> Case:
    """Return what is looked at.

    Parameters
    ----------
    trace : Trace
        The trace to look at.
    own : sequence of str
        Globs: what own code is. Without any, the globs of `Trace.set_own` count.
    """
    from .table import own_lines

    tree = trace._tree
    patterns = tuple(own) or trace._own_patterns
    return Case(trace, tree, tree.is_own(patterns), own_lines(tree, patterns))


def find(trace: Trace, own: Sequence[str] = ()) -> list[Finding]:
    """Return `find_in` of the `case_of` a trace."""
    return find_in(case_of(trace, own))


def find_in(case: Case) -> list[Finding]:
    """Run every rule.

    Returns
    -------
    list of Finding
        The largest share first; empty if no rule found anything.
    """
    from .rules import RULES

    found: list[Finding] = []
    for rule in RULES:
        found += rule(case)
    found.sort(key=lambda finding: -finding.share)
    return [
        Finding(**{**vars(finding), "handle": f"f-{number}"})
        for number, finding in enumerate(found, 1)
    ]


# ---- As text and for JSON ------------------------------------------------------------------------


def text_lines(findings: Iterable[Finding], file: str) -> Iterator[str]:
    """Yield findings as lines of text, each finding with its evidence and its command."""
    for number, finding in enumerate(findings, 1):
        yield f"{number}. {finding.claim}"
        for evidence in finding.evidence[:3]:
            calls = f", {plural(evidence.calls, 'call')}" if evidence.calls else ""
            name = "" if evidence.file is None else f"  {evidence.name}"
            yield f"   at {evidence.place()}{name}{calls}"
        yield f"   {finding.advice}"
        yield f"   more: {finding.command.replace('FILE', file)}"


def as_dict(finding: Finding, file: str) -> dict[str, Any]:
    """Return a finding as a JSON object."""
    return {
        "handle": finding.handle,
        "rule": finding.rule,
        "claim": finding.claim,
        "advice": finding.advice,
        "share": round(finding.share, 4),
        "numbers": finding.numbers,
        "evidence": [
            {"name": e.name, "file": e.file, "line": e.line, "node": e.node, "calls": e.calls}
            for e in finding.evidence[:5]
        ],
        "command": finding.command.replace("FILE", file),
    }


def within(lines: Sequence[str], room: int | None, findings: int) -> list[str]:
    """Keep the lines that fit, and say what was left out.

    Parameters
    ----------
    lines : sequence of str
        From `text_lines`.
    room : int or None
        The most characters; None: no limit.
    findings : int
        How many findings there are.

    Returns
    -------
    list of str
        Whole findings only.
    """
    if room is None:
        return list(lines)
    blocks: list[list[str]] = []
    for line in lines:
        if not line.startswith(" ") or not blocks:
            blocks.append([])
        blocks[-1].append(line)
    kept: list[str] = []
    shown = 0
    note = "({} of {} findings left out: --budget)"
    spare = len(note) + 8
    for block in blocks:
        size = sum(len(line) + 1 for line in block)
        if size + spare > room:
            break
        room -= size
        kept += block
        shown += 1
    if shown < len(blocks):
        kept.append(note.format(len(blocks) - shown, findings))
    return kept
