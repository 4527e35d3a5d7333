"""``./dev``: finds the verb, runs it, and gives the exit code."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    # Python put this folder on sys.path; the package `dev` needs the folder above it.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from dev import shell

#: Each verb is a module with ``main(arguments)``, which gives the exit code.
VERBS = (
    "demo",
    "test",
    "bench",
    "fuzz",
    "sanitize",
    "soak",
    "docs",
    "lint",
    "build",
    "wheel",
    "cross",
    "release",
    "clean",
    "help",
)
#: Verbs that only ``./dev test`` starts, as processes of their own.
INNER = {"python-job": "python_job"}
SAME = {"-h": "help", "--help": "help"}


def main(arguments: list[str]) -> int:
    """Run a verb with its arguments; give the exit code."""
    verb = arguments[0] if arguments else "help"
    verb = SAME.get(verb, verb)
    if verb not in VERBS and verb not in INNER:
        shell.misuse(f"{verb}?")
    module = importlib.import_module("dev." + INNER.get(verb, verb))
    status: int = module.main(arguments[1:])
    return status


def start() -> int:
    """Run what the command line asks for. A program that fails ends ./dev with its exit code."""
    # As in a shell: if the reader of a pipe ends, the writer ends silently.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    shell.prepare()
    try:
        return main(sys.argv[1:])
    except subprocess.CalledProcessError as error:
        return error.returncode if error.returncode > 0 else 128 - error.returncode
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        return 130


if __name__ == "__main__":
    sys.exit(start())
