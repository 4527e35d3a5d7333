"""``./dev demo [ARG...]``: build, and show what eventprof does."""

from __future__ import annotations

from dev import environments, shell
from dev.pythons import take_python


def main(arguments: list[str]) -> int:
    """Run the verb; its exit code is the demo's."""
    python, arguments = take_python(arguments)
    environments.set_up(python, "build run")
    shell.replace([python.venv / "bin" / "python", "-P", "-m", "eventprof.demo", *arguments])
