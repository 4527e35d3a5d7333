"""``./dev build``: build and install into the environment build/venv-X.Y."""

from __future__ import annotations

from dev import environments, shell
from dev.pythons import take_python


def main(arguments: list[str]) -> int:
    """Run the verb."""
    python, arguments = take_python(arguments)
    shell.no_arguments("build", arguments)
    environments.set_up(python, "build run")
    shell.say(f"eventprof is in {python.venv}/bin")
    return 0
