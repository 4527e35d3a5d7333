"""``./dev help``: the verbs and their options, which usage.txt has."""

from __future__ import annotations

from pathlib import Path


def main(arguments: list[str]) -> int:
    """Run the verb."""
    print((Path(__file__).parent / "usage.txt").read_text(encoding="utf-8"), end="")
    return 0
