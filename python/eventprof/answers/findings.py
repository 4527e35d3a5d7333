"""Findings: what is likely wrong with a program, each with numbers, evidence and a command.

A rule is a function of `rules`; it looks at the tree of calls and gives findings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .tree import Tree

if TYPE_CHECKING:
    from ..trace import Trace
    from ..trace.column import Array


@dataclass(frozen=True)
class Evidence:
    """A line that a finding is about, and the node of the tree."""

    name: str
    file: str | None
    line: int | None
    node: int | None = None
    calls: int | None = None

    def place(self) -> str:
        """Give file and line, as far as is known."""
        from ..show.drawing import short_path

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
        From 0 to 1: of the time, or of the bytes, that it is about.
    numbers : dict
        What the claim rests on; times in ns, sizes in bytes.
    evidence : tuple of Evidence
        Lines, the worst first.
    command : str
        Shows more; FILE is the recording.
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
    """What rules look at."""

    trace: Trace
    tree: Tree
    own: Array
    lines: dict[str, Array] = field(default_factory=dict)

    @property
    def whole(self) -> int:
        """The time in calls of all threads, in ns; at least 1."""
        return max(int(self.tree.nodes["total"][0]), 1)

    def node_evidence(self, node: int) -> Evidence:
        """Say where a node was called."""
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
        """Say which own line it is."""
        name, _, file, first, _ = self.tree.functions[function]
        return Evidence(name or "(no name)", file, line if line > 0 else first)


def find(trace: Trace, own: Sequence[str] = ()) -> list[Finding]:
    """Run every rule.

    Parameters
    ----------
    trace : Trace
        Of any recording.
    own : sequence of str
        Globs: what own code is.

    Returns
    -------
    list of Finding
        The ones with the largest share first; empty where nothing is wrong.
    """
    from .rules import RULES
    from .table import own_lines

    tree = trace._tree
    patterns = tuple(own) or trace._own_patterns
    mask = tree.is_own(patterns)
    case = Case(trace, tree, mask, own_lines(tree, patterns))
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
    """Lay findings out, each with its lines and its command."""
    for number, finding in enumerate(findings, 1):
        yield f"{number}. {finding.claim}"
        for evidence in finding.evidence[:3]:
            calls = f", {evidence.calls:,} calls" if evidence.calls else ""
            yield f"   at {evidence.place()}  {evidence.name}{calls}"
        yield f"   {finding.advice}"
        yield f"   more: {finding.command.replace('FILE', file)}"


def as_dict(finding: Finding, file: str) -> dict[str, Any]:
    """Give a finding as JSON has it."""
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
        Of all findings.
    room : int or None
        The most characters.
    findings : int
        How many there are.

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
