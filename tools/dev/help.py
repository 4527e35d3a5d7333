"""``./dev help``: the verbs and their options, which usage.txt has."""

from __future__ import annotations

from dev import shell


def main(arguments: list[str]) -> int:
    """Run the verb."""
    print(shell.usage(), end="")
    return 0
