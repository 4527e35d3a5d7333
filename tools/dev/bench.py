"""``./dev bench [ARG...]``: build, and measure; benchmarks/run.py."""

from __future__ import annotations

from dev import environments, shell
from dev.pythons import take_python


def main(arguments: list[str]) -> int:
    """Run the verb; its exit code is that of the benchmarks."""
    python, arguments = take_python(arguments)
    environments.set_up(python, "build run bench")
    shell.replace(
        [python.venv / "bin" / "python", shell.ROOT / "benchmarks" / "run.py", *arguments]
    )
