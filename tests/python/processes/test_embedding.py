"""A program in C that has Python inside, and begins it a second time after Py_FinalizeEx."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from pathlib import Path

import children
import pytest

PROGRAM = """
#include <Python.h>

/* python CODE...: runs each code in an interpreter of its own, one after the other. */
int main(int argc, char **argv)
{
    for (int i = 2; i < argc; i++) {
        PyConfig config;
        PyConfig_InitPythonConfig(&config);
        PyConfig_SetBytesString(&config, &config.program_name, argv[1]);
        if (PyStatus_Exception(Py_InitializeFromConfig(&config))) {
            return 70;
        }
        PyConfig_Clear(&config);
        int failed = PyRun_SimpleString(argv[i]);
        int finalized = Py_FinalizeEx();
        printf("%d: %s\\n", i - 1, failed ? "failed" : finalized < 0 ? "not finalized" : "ok");
        fflush(stdout);
    }
    return 0;
}
"""

RECORDS = """
import eventprof, threading
class Made:
    def work(self):
        return [bytes(n) for n in range(100)]
with eventprof.record() as rec:
    thread = threading.Thread(target=Made().work)
    thread.start()
    thread.join()
assert rec.trace.verify().ok
"""
LEFT_RUNNING = """
import eventprof
rec = eventprof.record()
rec.start()
kept = [bytes(n) for n in range(100)]
"""
REFUSED = """
try:
    import eventprof
except ImportError as error:
    print(error)
else:
    raise SystemExit("it was imported")
"""
WORKS = "print(sorted([3, 1, 2]), [bytes(n) for n in range(100)][2])"


@pytest.fixture(scope="module")
def embedding(tmp_path_factory):
    """The program, which takes the interpreter's path and codes."""
    compiler = shutil.which("cc")
    variables = sysconfig.get_config_vars()
    folder = Path(variables["LIBDIR"])
    header = Path(sysconfig.get_path("include"), "Python.h")
    if compiler is None or not header.exists() or not variables.get("Py_ENABLE_SHARED"):
        pytest.skip("no C compiler, header or shared library of this Python")
    directory = tmp_path_factory.mktemp("embedding")
    source, program = directory / "embedding.c", directory / "embedding"
    source.write_text(PROGRAM)
    library = f"python{variables['LDVERSION']}"
    command = [compiler, "-o", program, source, f"-I{header.parent}", f"-L{folder}"]
    command += [f"-Wl,-rpath,{folder}", f"-l{library}"]
    children.run(*command)
    return program


def run(embedding, *codes):
    # CPython 3.14 knows the environment of its program_name in the first interpreter alone.
    done = children.run(embedding, sys.executable, *codes, PYTHONPATH=children.path())
    return done.stdout, done.stderr


@pytest.mark.parametrize("first", [RECORDS, LEFT_RUNNING])
def test_a_second_interpreter_after_the_first_ended_is_refused(embedding, first):
    printed, errors = run(embedding, first, REFUSED, WORKS)

    lines = printed.splitlines()
    assert lines[0] == "1: ok", errors
    assert "Py_Finalize" in lines[1]
    assert lines[2:] == ["2: ok", "[1, 2, 3] b'\\x00\\x00'", "3: ok"]


def test_the_last_of_several_interpreters_may_record(embedding):
    printed, errors = run(embedding, WORKS, RECORDS)

    assert printed.splitlines()[-1] == "2: ok", errors
