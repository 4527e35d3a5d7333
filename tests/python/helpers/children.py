"""Running a program: in a process of its own, in a fork of what has imported all, or a verb in this process."""

from __future__ import annotations

import contextlib
import io
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


def path():
    """Return the PYTHONPATH by which a child imports what this process can, and the helpers."""
    return os.pathsep.join([os.path.dirname(raw.__file__), *filter(None, sys.path)])


def run(*command, status=0, cwd=None, stdin="", timeout=900, environment=os.environ, **more):
    """Run a command to its end, which must have a status; None: any.

    `more` is added to the environment. Returns what subprocess.run() does, with text.
    """
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=cwd, input=stdin, timeout=timeout, env={**environment, **more},
        capture_output=True, encoding="utf-8",
    )  # fmt: skip
    if status not in (None, done.returncode):
        message = f"{words} ended with {done.returncode}\n{done.stdout}{done.stderr}"
        raise AssertionError(message)
    return done


def program(text, *arguments, flags=(), **options):
    """Run the text of a program, with flags of the interpreter; options are those of run()."""
    command = [sys.executable, *flags, "-c", textwrap.dedent(text), *arguments]
    return run(*command, PYTHONPATH=path(), **options)


def eventprof(*words, **options):
    """Run the command line of eventprof; options are those of run()."""
    return run(sys.executable, "-m", "eventprof", *words, **options)


def here(*words, encoding="utf-8"):
    """Run the command line of eventprof in this process. Returns what subprocess.run() does, with text.

    For verbs that read: a process of its own would import again what this one has.
    """
    from eventprof import cli

    out = io.TextIOWrapper(io.BytesIO(), encoding, write_through=True)
    err = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = cli.main([str(word) for word in words])
        except SystemExit as left:
            status = left.code
    printed = out.buffer.getvalue().decode(encoding)
    return subprocess.CompletedProcess(words, status, printed, err.getvalue())


def child(code, backend, *, arguments=(), before="", **options):
    """Run a program with a recorder, `before` ahead of all imports. Returns: status, output, errors."""
    script = before + PRELUDE.format(backend=backend) + textwrap.dedent(code)
    done = program(script, flags=("-X", "faulthandler", *arguments), status=None, **options)
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
        self.files = [os.devnull, *(os.path.join(folder, name) for name in ("output", "errors"))]
        self.process = subprocess.Popen(
            [sys.executable, "-c", _FORKING, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # The threads of NumPy's library would not be in the forks.
            env={**os.environ, "PYTHONPATH": path(), "OPENBLAS_NUM_THREADS": "1"},
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
