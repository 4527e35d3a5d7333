"""``./dev clean``: remove all that the verbs made."""

from __future__ import annotations

from dev import shell


def main(arguments: list[str]) -> int:
    """Run the verb."""
    shell.remove(shell.BUILD)
    return 0
