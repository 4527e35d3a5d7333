"""What ``eventprof run`` itself says and leaves behind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from running import RUN, both, execute, run, same, write

import eventprof

pytestmark = pytest.mark.version

# ---- What run itself says ------------------------------------------------------------------------


def test_a_script_that_is_not_there_is_reported_as_python_does(tmp_path):
    plain = execute([sys.executable, "nosuch.py"], tmp_path)

    found = run(tmp_path, "nosuch.py")

    assert found.returncode == plain.returncode == 2
    assert found.stderr == "eventprof run" + plain.stderr[len(sys.executable) :]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no program: give a script, -m MODULE, -c CODE, or - for standard input"),
        (["-m"], "no program"),
        (["--bufer", "main.py"], "there is no option --bufer; did you mean '--buffer'?"),
        (["--buffer", "lots", "main.py"], "buffer must be bytes as an int, or text as '64 MiB'"),
        (["--on-full", "explode", "main.py"], "on_full must be 'overwrite', 'stop' or 'grow'"),
        (["--max-depth", "0", "main.py"], "--max-depth: a depth is a whole number of 1 or more"),
        (["--min-duration", "soon", "main.py"], "--min-duration: a time is a number and a unit"),
        (["--domains", "objs", "main.py"], "did you mean 'obj'?"),
        (
            ["--no-calls", "--no-c-calls", "--no-memory", "--no-marks", "main.py"],
            "nothing to record",
        ),
    ],
)
def test_wrong_use_is_refused_before_the_program_starts(arguments, message, tmp_path):
    write({"main.py": "print('ran')"}, tmp_path)

    found = run(tmp_path, *arguments)

    assert found.returncode == 2
    assert message in found.stderr
    assert found.stderr.startswith("eventprof run: ")
    assert "Traceback" not in found.stderr
    assert found.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["-q", "main.py", "-q", "x"],
        ["-qf", "-oa.epr", "main.py", "-q", "x"],
        ["-q", "--buffer=3 MiB", "--", "main.py", "-q", "x"],
        ["-q", "--include", "main.py", "--exclude", "b*", "main.py", "-q", "x"],
    ],
)
def test_options_end_where_the_program_begins(arguments, tmp_path):
    write({"main.py": "import sys; print(sys.argv)"}, tmp_path)

    found = run(tmp_path, *arguments)

    assert (found.stdout, found.stderr) == ("['main.py', '-q', 'x']\n", "")


def test_the_report_is_printed_on_standard_error(tmp_path):
    write({"main.py": "print('output')"}, tmp_path)

    found = run(tmp_path, "--report", "main.py")

    assert found.stdout == "output\n"
    assert "What was recorded" in found.stderr


def test_the_file_is_packed(tmp_path):
    text = "def f(i): return [i]\nkept = [f(i) for i in range(20000)]\nimport sys; print('numpy' in sys.modules)"
    write({"main.py": text}, tmp_path)

    as_is = run(tmp_path, "-o", "log.epr", "main.py")
    found = run(tmp_path, "-o", "%p.epr", "--archive", "main.py")

    assert as_is.stdout == found.stdout == "False\n" and found.returncode == 0
    (packed,) = set(tmp_path.glob("*.epr")) - {tmp_path / "log.epr"}
    assert packed.stat().st_size * 4 < (tmp_path / "log.epr").stat().st_size
    trace = eventprof.open(packed)
    assert int((trace.calls["name"] == "f").sum()) == 20000 and not trace.loss
    assert trace.metadata["argv"] == ("main.py",) and trace.verify()
    assert trace.metadata["options"]["on_full"] == "stop"
    assert f"{trace._facts['events']:,} events" in found.stderr


def test_a_packed_file_is_whole_wherever_it_is_moved(tmp_path):
    write({"main.py": "import os; os.rename('out', 'moved')"}, tmp_path)
    (tmp_path / "out").mkdir()

    found = run(tmp_path, "-o", "out/main.epr", "--archive", "main.py")

    assert found.returncode == 0 and "Traceback" not in found.stderr
    assert len(eventprof.open(tmp_path / "moved/main.epr").events) > 0


# ---- What is left behind, and what is shown ------------------------------------------------------


def test_a_module_that_there_is_not_leaves_no_file(tmp_path):
    plain, recorded, lines = both(tmp_path, "-m", "nosuchmod")

    same(plain, recorded)
    assert not lines
    assert not list(tmp_path.glob("*.epr"))


def test_a_module_is_named_with_its_arguments(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text("import sys; print(sys.argv[1:])")

    for arguments, argv in (
        (["-m", "package", "--help"], ("-m", "package", "--help")),
        (["-mpackage", "a"], ("-m", "package", "a")),
        (["-c", "print(1)", "b"], ("-c", "print(1)", "b")),
    ):
        done = execute([*RUN[:-1], "named.epr", "-q", "-f", *arguments], tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert eventprof.open(tmp_path / "named.epr").metadata["argv"] == argv


@pytest.mark.thorough
@pytest.mark.parametrize("start", [["-m", "eventprof"], ["-Bm", "eventprof"], ["-meventprof"], []])
@pytest.mark.parametrize(
    "last", [["-c", "CODE", "x"], ["-cCODE"], ["main.py", "-m"], ["-mmain", "y"]]
)
def test_the_interpreters_own_arguments_are_the_same(tmp_path, start, last):
    code = "import sys; print(sys.orig_argv[1:])"
    (tmp_path / "main.py").write_text(code)
    last = [word.replace("CODE", code) for word in last]
    script = [str(Path(sys.executable).with_name("eventprof"))]
    flags = ["-B"] if start[:1] == ["-Bm"] else []

    plain = execute([sys.executable, *flags, *last], tmp_path)
    recorded = execute(
        [*(script if not start else [sys.executable, *start]), "run", "-q", "-o", "o.epr", *last],
        tmp_path,
    )

    same(plain, recorded)


def test_the_first_line_is_left_out_as_with_x(tmp_path):
    (tmp_path / "main.py").write_text("#!no python\nprint(1)\n1/0\n")

    plain = execute([sys.executable, "-x", "main.py"], tmp_path)
    recorded = execute([sys.executable, "-x", *RUN[1:], "-q", "main.py"], tmp_path)

    assert plain.stdout == "1\n"
    same(plain, recorded)


@pytest.mark.parametrize("arguments", [["main.py"], ["-m", "main"], ["."]])
@pytest.mark.parametrize("script", [False, True])
def test_what_starts_the_program_is_not_in_the_recording(tmp_path, arguments, script):
    (tmp_path / "main.py").write_text("def f(): pass\nf()\n")
    (tmp_path / "__main__.py").write_text("def f(): pass\nf()\n")
    start = RUN[:-2]
    if script:
        start = [str(Path(sys.executable).with_name("eventprof")), "run"]

    done = execute([*start, "-q", "-o", "out.epr", *arguments], tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    trace = eventprof.open(tmp_path / "out.epr")
    assert not {"runpy", "eventprof"} & set(trace.functions["module"])
    assert trace.functions["name"].tolist().count("<module>") == 1
    assert "exec" not in trace.calls[trace.calls["depth"] == 0]["name"].tolist()
    assert trace.verify().ok
    assert trace.pairing["unmatched_ends"] == 0


def test_a_file_that_cannot_be_is_named_as_it_would_be(tmp_path):
    for arguments, message in (
        (["-o", "no/such-%p.epr"], "No such file or directory"),
        (["-o", "/dev/null"], "not a regular file"),
        (["-o", "/dev/null", "-f"], "not a regular file"),
    ):
        done = execute([*RUN[:-2], *arguments, "-c", "0"], tmp_path)
        assert done.returncode == 2
        assert message in done.stderr
        assert "%p" not in done.stderr
        assert "exists already" not in done.stderr
