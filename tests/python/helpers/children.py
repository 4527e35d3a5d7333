"""Running a program in a process of its own: with a recorder there, or in a fork of what has imported all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

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


# ---- Forks ---------------------------------------------------------------------------------------

_FORKING = """
import importlib, json, os, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
for line in sys.stdin:
    code, sys.argv[1:], folder, environment, files = json.loads(line)
    if (pid := os.fork()) == 0:
        for number, path in enumerate(files):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
        os.chdir(folder)
        os.environ.update(environment)
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Forks:
    """Runs programs in forks of one process: what it has imported, none of them imports again.

    Not for programs that record, to which it matters what the process did before.
    """

    def __init__(self, folder, *modules):
        path = os.pathsep.join([os.path.dirname(raw.__file__), *filter(None, sys.path)])
        self.files = [os.devnull, *(os.path.join(folder, name) for name in ("output", "errors"))]
        self.process = subprocess.Popen(
            [sys.executable, "-c", _FORKING, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # The threads of NumPy's library would not be in the forks.
            env={**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
        )

    def run(self, code, *arguments, cwd=None, env=None):
        """Run a program. Returns what subprocess.run() does."""
        words = [str(word) for word in arguments]
        job = [textwrap.dedent(code), words, str(cwd or os.getcwd()), env or {}, self.files]
        print(json.dumps(job), file=self.process.stdin, flush=True)
        status = int(self.process.stdout.readline())
        texts = [Path(path).read_text(encoding="utf-8") for path in self.files[1:]]
        return subprocess.CompletedProcess(words, status, *texts)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
