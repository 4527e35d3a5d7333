"""Running a script in a process of its own, with a recorder there."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import raw

PRELUDE = """
import os, sys, threading, time, atexit, signal, gc
import raw
backend = {backend!r}
rec = raw.recorder(raw.ALL, backend=backend)
def outer(n): return inner(n) + 1
def inner(n): return len([n])
"""


def child(code, backend, *, timeout=900, arguments=(), env=None, before=""):
    """Runs a script of its own, `before` ahead of all imports. Returns: status, output, errors."""
    script = before + PRELUDE.format(backend=backend) + textwrap.dedent(code)
    path = os.pathsep.join([os.path.dirname(raw.__file__), *sys.path])
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", *arguments, "-c", script],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "PYTHONPATH": path, **(env or {})},
    )
    return done.returncode, done.stdout, done.stderr
