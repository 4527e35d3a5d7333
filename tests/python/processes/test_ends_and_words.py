"""How a program ends under eventprof, and what its messages say."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import children
import pytest
from running import execute

import eventprof
from eventprof import cli

pytestmark = pytest.mark.version

PACKAGE = Path(__file__).parents[3] / "python" / "eventprof"

#: The second Ctrl-C comes while the traceback is shown, the third before the last function at exit is called.
INTERRUPTED = """\
import _thread, atexit, sys
class Stream:
    def __init__(self, stream):
        self.stream, self.writes = stream, 0
    def write(self, text):
        self.writes += 1
        if self.writes == 1:
            _thread.interrupt_main()
        return self.stream.write(text)
    def flush(self):
        self.stream.flush()
sys.stderr = Stream(sys.stderr)
atexit.register(_thread.interrupt_main)
def work():
    raise KeyboardInterrupt
work()
"""


def run(folder, *words, **env):
    return execute([sys.executable, *words], folder, **env)


@pytest.mark.parametrize("options", [["-o", "x.epr"], ["--count"]])
def test_three_interrupts_show_the_traceback_of_the_program_alone(tmp_path, options):
    (tmp_path / "program.py").write_text(INTERRUPTED)

    done = run(tmp_path, "-m", "eventprof", "run", *options, "program.py")

    assert done.returncode == -2
    assert done.stderr.count("Traceback") == 1, done.stderr
    assert "in work" in done.stderr
    assert "/eventprof/" not in done.stderr and "Exception ignored" not in done.stderr
    assert "\neventprof: " in done.stderr  # the line at the end
    if "-o" in options:
        trace = eventprof.open(tmp_path / "x.epr")
        assert not trace.file["unfinished"]
        assert "work" in trace.functions["name"]


def test_functions_at_exit_are_interrupted_as_before(tmp_path):
    (tmp_path / "program.py").write_text(
        "import _thread, atexit\n"
        "def last():\n    _thread.interrupt_main()\n    for _ in range(9): pass\n    print('not here')\n"
        "atexit.register(last)\n"
    )

    done = run(tmp_path, "-m", "eventprof", "run", "-o", "x.epr", "program.py")

    assert done.stdout == ""
    assert "in last" in done.stderr and "KeyboardInterrupt" in done.stderr


def test_an_install_for_another_python_says_so(tmp_path):
    there = tmp_path / "eventprof"
    shutil.copytree(PACKAGE, there, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (there / "_core.cpython-39-x86_64-linux-gnu.so").write_bytes(b"")

    done = run(tmp_path, "-c", "import eventprof", PYTHONPATH=str(tmp_path))

    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    last = done.stderr.splitlines()[-1]
    assert f"eventprof in {there} is installed for Python 3.9, and this is {here}" in last
    assert "install it for this Python (" in last
    assert "circular" not in last


def test_an_extension_that_does_not_load_says_why(tmp_path):
    from importlib.machinery import EXTENSION_SUFFIXES

    there = tmp_path / "eventprof"
    shutil.copytree(PACKAGE, there, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (there / f"_core{EXTENSION_SUFFIXES[0]}").write_bytes(b"")

    done = run(tmp_path, "-c", "import eventprof", PYTHONPATH=str(tmp_path))

    # glibc's words, musl's.
    assert re.search("file too short|Exec format error", done.stderr.splitlines()[-1])


def test_hints_name_nothing_private():
    with eventprof.record(memory=False) as rec:
        sorted("text")

    for name in ("headline", "colum", "row_type", "leng"):
        with pytest.raises(AttributeError) as error:
            getattr(rec.trace.functions, name)
        assert "'_" not in str(error.value)
    with pytest.raises(AttributeError, match="did you mean 'columns'"):
        _ = rec.trace.functions.column


@pytest.mark.parametrize("value", [5, "5", "100 kB", (1 << 20) - 1])
def test_a_buffer_is_a_mebibyte_at_least(value):
    for make in (lambda: eventprof.record(buffer=value), lambda: eventprof.flight_recorder(value)):
        with pytest.raises(
            ValueError, match=f"buffer must be 1 MiB or more, not {value!r}: a number"
        ):
            make()
    with pytest.raises(ValueError, match="memory_above must be 1 MiB or more"):
        eventprof.flight_recorder(memory_above=value)


def test_a_short_buffer_is_refused_in_the_shell_and_in_the_environment(tmp_path):
    (tmp_path / "program.py").write_text("print('runs')\n")

    done = run(tmp_path, "-m", "eventprof", "run", "--buffer", "5", "program.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "buffer must be 1 MiB or more, not '5': a number without a unit is bytes" in done.stderr

    done = run(tmp_path, "program.py", EVENTPROF="buffer=5")
    assert done.stdout == "runs\n"
    assert "buffer must be 1 MiB or more, not '5'" in done.stderr


def test_ten_nanoseconds_of_flight_are_a_mistake():
    with pytest.raises(
        ValueError, match="min_age must be 1 ms or more, not 10: .* write it as '10 s'"
    ):
        eventprof.flight_recorder("1 MiB", 10)


def test_diff_says_that_a_second_recording_is_missing(capsys):
    assert cli.main(["diff", "one.epr"]) == 2

    errors = capsys.readouterr().err
    assert errors.startswith(
        "eventprof diff: there is nothing to compare one.epr with: name a second recording"
    )


def test_a_picture_of_several_threads_says_that_times_are_added_up():
    for name in ("flame.js", "graph.js"):
        assert "the sum of ${" in (PACKAGE / "viewer/js" / name).read_text()
    assert '"At ' not in (PACKAGE / "viewer/js" / "detail.js").read_text()
    assert "`At ${showTime(time)}`" in (PACKAGE / "viewer/js" / "detail.js").read_text()


def test_dev_says_why_apt_failed_and_what_is_lost():
    found = children.program(
        "from dev.packages import WITHOUT, errors_of\n"
        "print(errors_of('Hit:1 x\\nE: Unable to locate package libzstd-dev\\nE: Unable to fetch\\n\\nDone\\n'))\n"
        "print(errors_of('a\\nb\\n\\n'), 'libzstd-dev' in WITHOUT)",
        cwd=Path(__file__).parents[3] / "tools",
    )

    assert found.stdout.splitlines() == [
        "['E: Unable to locate package libzstd-dev', 'E: Unable to fetch']", "['a', 'b'] True",
    ]  # fmt: skip
