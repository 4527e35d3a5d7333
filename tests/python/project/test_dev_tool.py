"""What ./dev stands on: the interpreters it finds, what it counts, what it asks of pip and apt-get."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
import tomllib

import children
import pytest
from dev import __main__ as start
from dev import environments, lint, packages, pythons, results, sanitize, shell
from dev import test as verb_test
from dev.python_suites import PythonSuites
from packaging.requirements import Requirement

ROOT = shell.ROOT


@pytest.fixture
def build(tmp_path, monkeypatch):
    """A folder of its own for what ./dev makes."""
    monkeypatch.setattr(shell, "BUILD", tmp_path)
    return tmp_path


def dev(*arguments, path=None, **environment):
    """Run ./dev as a program."""
    return children.run(
        ROOT / "dev", *arguments,
        status=None, cwd=ROOT, **{"PATH": path} if path else {}, **environment,
    )  # fmt: skip


# ---- The front door ------------------------------------------------------------------------------


def test_help_names_each_verb():
    done = dev("help")

    assert done.returncode == 0
    for verb in start.VERBS:
        assert f"./dev {verb}" in done.stdout
        assert callable(importlib.import_module(f"dev.{verb}").main)
    assert dev().stdout == dev("--help").stdout == done.stdout


def test_wrong_arguments_end_with_2_and_one_line(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    for words, message in {
        "bogus": "bogus?",
        "test --bogus": "test: --bogus?",
        "test tests/python/nosuch.py::test_it": "test: tests/python/nosuch.py: no such file",
        "test README.rst": "test: README.rst: a file of tests/python or tests/c is meant",
        "test --python": "--python: which one?",
        "test -k": "-k: which ones?",
        "test --jobs 0": "--jobs: how many?",
        "test --with 3/14=x": "--with 3/14=x: a name as 3.14 or 3.14t, not '3/14'",
        "demo --python": "--python: which one?",
        "fuzz 0": "fuzz: 0?",
        "sanitize --with": "--with: NAME=COMMAND",
        "wheel --with 3.14": "--with 3.14: NAME=COMMAND",
        "release now": "release: now?",
    }.items():
        with pytest.raises(SystemExit) as ended:
            start.main(words.split())

        line = f"dev: {message} (./dev help lists verbs and options)\n"
        assert (ended.value.code, *capsys.readouterr()) == (2, "", line), words


@pytest.mark.thorough
def test_what_is_not_here_ends_with_1():
    absent = dev("build", "--python", "3.99")
    silent = dev("test", "--with", "mine=/bin/false")

    assert (absent.returncode, silent.returncode) == (1, 1)
    assert absent.stderr == "dev: no CPython 3.99 found (looked on PATH and in pyenv)\n"
    assert silent.stderr == "dev: --with mine: '/bin/false python' does not run\n"


@pytest.mark.skipif((ROOT / "build" / "pythons").is_dir(), reason="it has fetched some")
def test_without_a_python_it_says_so(tmp_path):
    for name in ("bash", "dirname", "grep"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 1\n")  # one that is too old
    (tmp_path / "python3").chmod(0o755)

    done = dev("help", path=str(tmp_path), HOME=str(tmp_path), PYENV_ROOT="")

    if not (ROOT / "build" / "pythons").is_dir():
        assert (
            done.stderr == "dev: no CPython of 3.11 or later found (looked on PATH and in pyenv)\n"
        )
        assert done.returncode == 1


def test_a_program_that_fails_ends_it_with_its_exit_code(monkeypatch):
    def verb(arguments):
        shell.must([sys.executable, "-c", f"raise SystemExit({arguments[0]})"])

    monkeypatch.setattr(start, "main", verb)
    monkeypatch.setattr(shell, "prepare", lambda: None)
    monkeypatch.setattr(sys, "argv", ["dev", "7"])
    monkeypatch.setattr(start.signal, "signal", lambda number, handler: None)

    assert start.start() == 7


# ---- Interpreters --------------------------------------------------------------------------------


def put_python(path, release, *, headers=1):
    """A program that answers ./dev as such an interpreter would."""
    major, minor, micro = release.rstrip("t").split(".")
    free = "t" if release.endswith("t") else ""
    number = int(major) << 24 | int(minor) << 16 | int(micro) << 8 | 0xF0
    fields = (f"{major}.{minor}{free}", number, release, headers, 1, path)
    answer = "\\t".join(map(str, fields))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nprintf '{answer}\\n'\n")
    path.chmod(0o755)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Three releases of 3.11, one of them twice, and others of 3.13; no other of this machine."""
    versions = tmp_path / "pyenv" / "versions"
    for release in ("3.11.2", "3.11.7", "3.13.0", "3.13.0t"):
        put_python(versions / release / "bin" / "python3", release)
    put_python(tmp_path / "bin" / "python3", "3.11.10", headers=0)
    put_python(tmp_path / "bin" / "python3.11", "3.11.2")
    monkeypatch.setattr(shell, "BUILD", tmp_path / "build")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{tmp_path}/shims:/nowhere")
    put_python(tmp_path / "shims" / "python3", "3.12.1")  # of pyenv: not asked
    return pythons.find()


def test_each_release_is_found_and_the_newest_has_the_short_name(here):
    found = {name: python.full for name, python in here.found.items()}

    assert found == {
        "3.11": "3.11.10",
        "3.11.2": "3.11.2",
        "3.11.7": "3.11.7",
        "3.13": "3.13.0",
        "3.13t": "3.13.0t",
    }
    assert all(python.name == name for name, python in here.found.items())


def test_this_interpreter_is_found():
    python = pythons.probe(sys.executable)

    if sys.implementation.name == "cpython" and not hasattr(sys, "gettotalrefcount"):
        free = "" if getattr(sys, "_is_gil_enabled", lambda: True)() else "t"
        assert python.number == sys.hexversion
        assert python.name.rstrip("t") + free == pythons.minor(python.full)


@pytest.mark.parametrize(
    ("name", "minor"),
    [
        ("3.11", "3.11"),
        ("3.11.2", "3.11"),
        ("3.13.5t", "3.13t"),
        ("3.13t", "3.13t"),
        ("3.15.0rc1", "3.15"),
        ("3.14-chroot", "3.14-chroot"),
    ],
)
def test_the_minor_version_of_a_name(name, minor):
    assert pythons.minor(name) == minor


def test_names_of_releases(here):
    assert [here.named(name) for name in ("3.11.10", "3.11.7", "3.11.99")] == [
        "3.11",
        "3.11.7",
        "3.11.99",
    ]
    assert here.beside("3.11") == ["3.11.2", "3.11.7"]
    assert here.newest() == "3.13"
    assert here.choose(None).full == "3.13.0"
    assert here["3.11"].lacking == ["python3.11-dev"]
    assert pythons.is_tested("3.11.2")
    assert not pythons.is_tested("3.15.0")


def test_a_runner_is_an_interpreter_by_its_name(here, tmp_path):
    inside = tmp_path / "inside"
    inside.write_text("#!/bin/sh\nshift\necho 3.14.9\n")
    inside.chmod(0o755)

    python = here.add_runner(f"3.14-chroot={inside} python")

    assert (python.full, python.path) == ("3.14.9 (3.14-chroot)", f"{inside} python")
    assert python.command == [str(inside), "python"]
    assert python.within("pip")[0] == str(inside)
    assert here["3.14-chroot"] is python


def test_a_runner_is_checked_although_such_a_python_is_here(here, monkeypatch, capsys):
    monkeypatch.setattr(verb_test.Packages, "install", lambda self: None)

    with pytest.raises(SystemExit) as ended:
        verb_test.prepare(verb_test.parse(["--with", "3.13"]))

    assert ended.value.code == 2
    assert "--with 3.13: NAME=COMMAND" in capsys.readouterr().err


def choose(here, *arguments):
    return verb_test.choose(here, verb_test.parse(list(arguments)))


def test_all_that_are_here_are_tested_and_the_others_named(here):
    choice = choose(here)

    assert choice.versions == ["3.11", "3.13", "3.13t"]
    assert choice.beside == ["3.11.2", "3.11.7"]
    assert choice.absent == ["3.12", "3.14", "3.15", "3.14t", "3.15t"]
    assert choice.pypy


def test_quick_takes_the_newest_alone(here):
    choice = choose(here, "--quick")

    assert (choice.versions, choice.beside, choice.pypy) == (["3.13"], [], False)


def test_those_that_are_asked_for_are_tested(here, capsys):
    assert choose(here, "--python", "3.11.10", "--python", "3.13t").versions == ["3.11", "3.13t"]
    assert choose(here, "--python", "pypy").pypy
    with pytest.raises(SystemExit) as ended:
        choose(here, "--python", "3.11", "--python", "3.12")
    assert ended.value.code == 1
    assert "no CPython 3.12 found" in capsys.readouterr().err


def test_the_host_is_the_newest_that_is_tested(here):
    assert verb_test.choose_host(here, ["3.11", "3.11.2", "3.13t"]).name == "3.11"
    assert verb_test.choose_host(here, ["3.13t"]).name == "3.13"  # its meson is not free-threaded


def test_a_release_beside_the_newest_that_lacks_packages_is_wished_for(here, build):
    wanted = packages.Packages()
    wanted.wish_python(dataclasses.replace(here["3.11.2"], headers=False))
    wanted.wish_python(here["3.11.7"])
    assert wanted.wish == ["python3.11-dev"]
    assert pythons.asked_again(dataclasses.replace(here["3.11.2"], headers=False)).lacking == []

    (build / "no-wishes").touch()
    wanted.wish_python(dataclasses.replace(here["3.11.2"], headers=False))
    wanted.wish_for("no-such-program", "it")
    assert wanted.wish == ["python3.11-dev"]


# ---- Arguments -----------------------------------------------------------------------------------


def parts(*arguments):
    options = verb_test.parse(list(arguments))
    return "".join(
        letter
        for letter, runs in [
            ("l", options.lint),
            ("p", options.pages),
            ("c", options.c),
            ("i", options.counts_instructions),
            ("t", options.python),
        ]
        if runs
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "lpcit"),
        (["--quick"], "ct"),
        (["--c-only"], "ci"),
        (["--py-only"], "it"),
        (["--no-lint"], "pcit"),
        (["-k", "x"], "t"),
    ],
)
def test_the_parts_of_a_test(arguments, expected):
    assert parts(*arguments) == expected


def test_arguments_of_pytest_and_jobs():
    options = verb_test.parse(
        ["-k", "a or b", "--jobs", "3", "--with", "x=y", "--", "-x", "--quick"]
    )

    assert options.pytest == ["-k", "a or b", "-x", "--quick"]
    assert (options.jobs, options.runners, options.quick) == (3, ["x=y"], False)


def test_files_that_are_named_run_alone(monkeypatch):
    monkeypatch.chdir(shell.ROOT)
    one = "tests/python/hooks/test_gc.py"
    assert parts(one) == parts("tests/python/exchange", f"{one}::test_it") == "t"
    assert parts("tests/c/test_pair.c") == "c"
    assert parts(one, "tests/c/test_pair.c") == "ct"

    options = verb_test.parse([f"{one}::test_it", "tests/c/test_pair.c", "--", "-x"])
    assert options.pytest == [f"{shell.ROOT}/{one}::test_it", "-x"]
    assert options.suites == ["pair"]


def test_named_files_get_what_they_and_their_helpers_import(tmp_path):
    helpers, folder = tmp_path / "helpers", tmp_path / "hooks"
    helpers.mkdir()
    folder.mkdir()
    (tmp_path / "conftest.py").write_text("import raw\n")
    (helpers / "raw.py").write_text("import psutil\n")
    (folder / "conftest.py").write_text("import own\n")
    (folder / "own.py").write_text("import polars\n")
    (folder / "test_it.py").write_text(
        'IPython = pytest.importorskip("IPython")\n# jobs\ncalls.to_pandas()\ncalls.to_arrow()\n'
    )
    text = environments.texts_of([folder / "test_it.py"], tmp_path)
    lines = (
        "dask[dataframe]>=1\nduckdb\nipython>=8\njoblib\npandas>=2\npolars\npsutil>=6\npyarrow\n"
        "pytest>=8\npytest-timeout>=2.3"
    )

    assert environments.needed_by(lines, text).split("\n") == [
        "ipython>=8",
        "pandas>=2",
        "polars",
        "psutil>=6",
        "pyarrow",
        "pytest>=8",
        "pytest-timeout>=2.3",
    ]


# ---- What is asked of pip and apt-get ------------------------------------------------------------


def test_requirements_spell_out_our_own_extras():
    project = {
        "dependency-groups": {"build": ["meson>=1"]},
        "project": {
            "dependencies": ["rich>=13"],
            "optional-dependencies": {
                "all": ["eventprof[pandas, zstd]"],
                "pandas": ["pandas>=2"],
                "zstd": ["zstandard>=0.22"],
                "test": ['eventprof[all]; python_version < "3.14"', "pytest>=8"],
            },
        },
    }

    assert environments.requirements(project, ("run", "build")).split("\n") == [
        "meson>=1",
        "rich>=13",
    ]
    assert environments.requirements(project, ("test",)).split("\n") == [
        'pandas>=2; python_version < "3.14"',
        "pytest>=8",
        'zstandard>=0.22; python_version < "3.14"',
    ]


def test_requirements_of_this_project_are_lines_that_pip_knows():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    for line in environments.requirements(project, ("build", "run", "test", "bench", "docs")).split(
        "\n"
    ):
        assert not line.startswith("eventprof")


@pytest.mark.parametrize("own", [True, False])
def test_only_the_environment_of_an_interpreter_ends_what_was_built_with_another(
    build, monkeypatch, own
):
    python = pythons.Python("3.13", 0, "3.13.0", True, True, "python3.13")
    venv = python.venv if own else build / "venv-wheel"

    def make(command, **_):
        if "venv" in command:
            venv.mkdir()

    monkeypatch.setattr(shell, "ROOT", build)
    monkeypatch.setattr(shell, "must", make)
    (build / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    (build / "3.13").mkdir()

    environments.ensure_venv(python, ("build",), venv)

    assert (build / "3.13").exists() != own


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14", "3.15"])
def test_pip_need_not_compile_the_numpy_that_builds(version):
    """NumPy 2.5 has no wheel for free-threaded 3.13: pip would compile it, for five minutes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    here = {"implementation_name": "cpython", "python_version": version}
    wanted = [Requirement(line) for line in project["build-system"]["requires"]]
    numpy = [r for r in wanted if r.name == "numpy" and (not r.marker or r.marker.evaluate(here))]

    assert len(numpy) == 1
    assert numpy[0].specifier.contains("2.4.6")
    assert numpy[0].specifier.contains("2.5.5") == (version != "3.13")


def test_the_command_that_a_user_types():
    assert packages.to_type(["gcc", "check"], with_sudo=True) == (
        "sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends gcc check'"
    )
    assert packages.to_type(["gcc"], with_sudo=False).startswith("su -c 'apt-get update")


def test_without_apt_get_a_need_ends_it_and_a_wish_does_not(monkeypatch, build, capsys):
    monkeypatch.setenv("PATH", "/nowhere")

    packages.Packages(wish=["valgrind"]).install()
    with pytest.raises(SystemExit):
        packages.Packages(need=["gcc"], wish=["valgrind"]).install()

    message = "dev: missing here, by the names of Debian's packages: gcc\n"
    assert capsys.readouterr().err == message


FAKE_APT = """#!/bin/sh
echo "$@" >>"$LOG"
case "$*" in *bad*) exit 100 ;; esac
"""


@pytest.fixture
def apt(build, monkeypatch):
    """An apt-get that cannot install what has `bad` in its name; gives what it was asked for."""
    monkeypatch.setattr(packages.os, "geteuid", lambda: 0)
    (build / "bin").mkdir()
    (build / "bin" / "apt-get").write_text(FAKE_APT)
    (build / "bin" / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", f"{build}/bin:/usr/bin:/bin")
    monkeypatch.setenv("LOG", str(build / "asked"))
    return lambda: (build / "asked").read_text().splitlines()


def test_needs_and_wishes_are_installed(apt, build):
    packages.Packages(need=["gcc"], wish=["clang", "valgrind"]).install()

    install = "-q install -y --no-install-recommends"
    assert apt() == ["-q update", f"{install} gcc", f"{install} clang valgrind"]
    assert not (build / "no-wishes").exists()


def test_a_wish_that_cannot_be_had_keeps_no_other_away(apt, build):
    packages.Packages(wish=["bad", "clang"]).install()

    assert [line.split()[-1] for line in apt()[2:]] == ["bad", "clang"]
    assert (build / "no-wishes").exists()


def test_a_need_that_cannot_be_had_ends_it(apt):
    with pytest.raises(SystemExit) as ended:
        packages.Packages(need=["bad"]).install()

    assert ended.value.code == 1


# ---- Stamps --------------------------------------------------------------------------------------


def test_the_fingerprint_changes_with_each_file(tmp_path):
    (tmp_path / "meson.build").write_text("x")
    (tmp_path / "python" / "__pycache__").mkdir(parents=True)
    (tmp_path / "python" / "a.py").write_text("a")
    sources = ("meson.build", "python")
    first = environments.fingerprint(tmp_path, sources)

    (tmp_path / "python" / "__pycache__" / "a.pyc").write_text("compiled")
    assert environments.fingerprint(tmp_path, sources) == first
    (tmp_path / "python" / "b.py").write_text("")
    second = environments.fingerprint(tmp_path, sources)
    (tmp_path / "meson.build").write_text("xy")
    assert len({first, second, environments.fingerprint(tmp_path, sources)}) == 3


# ---- Checks --------------------------------------------------------------------------------------


def test_a_check_counts_and_shows_what_failed(capsys):
    found = results.Results()
    found.check("good", [sys.executable, "-c", "print('not shown')"])
    found.check("bad", [sys.executable, "-c", "import sys; print('a'); sys.exit('b')"])
    found.check("absent", ["/no/such/program"])

    assert (found.passed, found.failed) == (1, 2)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "  ok    good"
    assert lines[1] == "  FAIL  bad"
    assert sorted(lines[2:4]) == ["        a", "        b"]
    assert lines[5] == "        /no/such/program: No such file or directory"


def test_a_source_that_meson_does_not_know_is_named(tmp_path):
    for name in (
        "eventprof/base/known.c",
        "eventprof/base/new.c",
        "tests/c/test_known.c",
        "tests/c/test_new.c",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "meson.build").write_text("files('eventprof/base/known.c') foreach name: ['known']")

    assert lint.sources_listed(tmp_path) == (
        1,
        "not in meson.build: eventprof/base/new.c\nnot in meson.build: new\n",
    )
    assert lint.sources_listed(ROOT) == (0, "")


def test_a_line_of_109_columns_is_too_long(tmp_path):
    (tmp_path / "x.c").write_text("é" * 108 + "\n" + "x" * 109 + "\n", encoding="utf-8")

    assert lint.lines_fit(tmp_path, ["x.c"]) == (1, f"x.c:2:{'x' * 109}\n")


@pytest.mark.thorough
def test_what_the_sanitizers_leave_out_is_a_test_and_is_left_out(tmp_path):
    files = {environments.TESTS / name.partition("::")[0] for name in sanitize.LEFT_OUT}
    pytest_here = (sys.executable, *sanitize.pytest_command("collected")[1:], "-q")
    command = (*pytest_here, "--collect-only", *sorted(map(str, files)))

    every = children.run(*command, cwd=tmp_path).stdout
    rest = children.run(*command, *sanitize.left_out(), cwd=tmp_path).stdout

    for name in sanitize.LEFT_OUT:
        assert f"tests/python/{name}" in every
        assert f"tests/python/{name}" not in rest
    assert "tests/python/verbs/test_cli.py::" in rest
    for name in sanitize.OF_THREADS:
        assert (environments.TESTS / name).is_file()


def test_reports_of_the_thread_sanitizer_that_have_a_frame_of_ours():
    report = "WARNING: ThreadSanitizer: data race\n  #0 f {}:12:3\nSUMMARY: ThreadSanitizer: x\n"
    text = "".join(
        map(
            report.format,
            ["Python/ceval.c", "/a/eventprof/record/log.c", "/a/python/src/hooks/bound.c"],
        )
    )

    assert sanitize.count_reports(text) == (2, 3)


# ---- Tests in C ----------------------------------------------------------------------------------


def suite(name, result, checks=10, failures=0, errors=0):
    stdout = f"100%: Checks: {checks}, Failures: {failures}, Errors: {errors}\n" if checks else ""
    return {"name": f"core - eventprof:{name}", "result": result, "stdout": stdout}


def put_log(path, *suites):
    path.write_text("".join(json.dumps(each) + "\n" for each in suites))
    return path


def test_what_suites_report_is_added_up(tmp_path, capsys):
    found = results.Results()
    log = put_log(
        tmp_path / "log",
        suite("log", "OK"),
        suite("pair", "FAIL", 10, 2, 1),
        suite("names", "ERROR", 0),  # crashed: counts as one
        suite("leaks", "FAIL", 10),  # all passed, and the sanitizer has a report
    )

    found.count_c(log)

    assert (found.passed, found.failed, found.c_tests) == (10 + 7 + 0 + 10, 3 + 1 + 1, 32)
    assert capsys.readouterr().out == "  27 passed, 5 failed\n"


def test_suites_that_failed_and_then_passed_are_flaky(tmp_path):
    log = put_log(tmp_path / "log", suite("log", "OK"), suite("pair", "FAIL", 10, 2))
    again = put_log(tmp_path / "again", suite("pair", "OK"))
    found = results.Results()

    found.count_c(log, again)

    assert (found.passed, found.failed) == (20, 0)
    assert found.flaky == ["core - eventprof:pair"]


def test_a_run_without_a_report_is_a_failure(tmp_path):
    found = results.Results()

    found.count_c(tmp_path / "absent")

    assert (found.passed, found.failed) == (0, 1)


def test_only_suites_with_failed_assertions_run_again():
    suites = [
        suite("good", "OK"),
        suite("failed", "FAIL", 10, 1),
        suite("crashed", "FAIL", 10, 1, 1),
        suite("killed", "FAIL", 0),
        suite("late", "TIMEOUT", 10, 1),
    ]

    assert results.with_failed_assertions({each["name"]: each for each in suites}) == ["failed"]


# ---- pytest --------------------------------------------------------------------------------------


def put_outcomes(path, **outcomes):
    """A report of pytest. `teardown`: the test passed, and its tear-down did not."""
    inside = {
        "passed": [""],
        "failed": ["<failure/>"],
        "skipped": ["<skipped/>"],
        "teardown": ["", "<error/>"],
    }
    cases = [
        f'<testcase classname="tests.m" name="{name}">{content}</testcase>'
        for name, outcome in outcomes.items()
        for content in inside[outcome]
    ]
    path.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")


FIRST = {
    "a": "passed",
    "b": "failed",
    "c": "failed",
    "d": "teardown",
    "e": "skipped",
    "f": "failed",
}
PYTHON = pythons.Python("3.12", 1, "3.12.1", True, True, "/bin/python3.12")


def count(status):
    """Count the reports that are there; give the names to run again, and the line of the result."""
    suites = PythonSuites(True, False, [])
    suites.seconds["3.12"] = 7
    suites.count(PYTHON, status, 1)
    again = [python.name for python in suites.again]
    if again:
        suites.count(PYTHON, 1, 2)
    found = results.Results()
    suites.report(found, [PYTHON])
    assert found.python_tests == found.passed + found.failed
    return again, (found.passed, found.failed, found.skipped), found.flaky


def test_what_failed_and_then_passed_is_flaky(build, capsys):
    put_outcomes(build / "pytest-3.12-1.xml", **FIRST)
    put_outcomes(build / "pytest-3.12-2.xml", b="passed", c="failed", d="passed", f="skipped")

    assert count(1) == (["3.12"], (3, 2, 1), ["tests.m::b (3.12.1)", "tests.m::d (3.12.1)"])
    assert capsys.readouterr().out == "  3.12.1: 3 passed, 2 failed, 1 skipped, 7 s\n"


@pytest.mark.parametrize(("arguments", "status"), [([], 1), (["--quick"], 0), (["-k", "x"], 0)])
def test_a_flaky_test_is_printed_and_makes_a_full_run_fail(
    arguments, status, here, monkeypatch, capsys
):
    def run_stages(found, *others):
        found.passed = found.c_tests = found.python_tests = 3
        found.flaky = ["tests.m::b (3.12.1)"]
        return PythonSuites(True, False, [])

    monkeypatch.setattr(
        verb_test, "prepare", lambda options: (verb_test.Choice(), here, here["3.13"])
    )
    monkeypatch.setattr(environments, "ensure_venv", lambda *arguments: None)
    monkeypatch.setattr(verb_test, "run_stages", run_stages)

    assert verb_test.main(arguments) == status
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "  flaky: tests.m::b (3.12.1)",
        "3 passed, 0 failed, 1 flaky",
    ]


def test_a_crash_in_the_second_round_leaves_the_failures_of_the_first(build):
    put_outcomes(build / "pytest-3.12-1.xml", **FIRST)

    assert count(1) == (["3.12"], (1, 4, 1), [])


@pytest.mark.parametrize("status", [134, 139, 2, 1])
def test_a_crash_is_a_failure_and_not_run_again(build, status):
    assert count(status) == ([], (0, 1, 0), [])  # no report was written


def test_a_run_without_a_failure_is_not_run_again(build):
    put_outcomes(build / "pytest-3.12-1.xml", a="passed", e="skipped")

    assert count(0) == ([], (1, 0, 1), [])


FAKE_DEV = """#!/bin/sh
echo "$@" >>"$0.asked"
echo "output of $2, round $6"
cp "$(dirname "$0")/report-$2-$6.xml" "$(dirname "$0")/pytest-$2-$6.xml"
[ "$2" != 3.12 ] || [ "$6" = 2 ]
"""


def test_jobs_run_some_at_a_time_and_what_failed_once_more(build, monkeypatch, capfd):
    monkeypatch.setattr(shell, "ROOT", build)
    (build / "dev").write_text(FAKE_DEV)
    (build / "dev").chmod(0o755)
    put_outcomes(build / "report-3.11-1.xml", a="passed")
    put_outcomes(build / "report-3.12-1.xml", a="passed", b="failed")
    put_outcomes(build / "report-3.12-2.xml", b="passed")
    other = pythons.Python("3.11", 1, "3.11.2", True, True, "/bin/python3.11")
    suites = PythonSuites(True, False, ["-k", "x"], waiting=[PYTHON, other])

    suites.run(1)
    suites.run_again()

    assert {name: tuple(each) for name, each in suites.counts.items()} == {
        "3.12": (2, 0, 0),
        "3.11": (1, 0, 0),
    }
    assert (build / "dev.asked").read_text().splitlines() == [
        "python-job 3.12  true all 1 -k x",
        "python-job 3.11  true no-newest 1 -k x",
        "python-job 3.12  true all 2 -k x",
    ]
    assert capfd.readouterr().out.splitlines() == [
        "== pytest, 1 at a time",
        "== CPython 3.12.1",
        "output of 3.12, round 1",
        "== CPython 3.11.2",
        "output of 3.11, round 1",
        "== once more, alone, on 3.12.1: what failed",
        "output of 3.12, round 2",
    ]
    assert suites.flaky == ["tests.m::b (3.12.1)"]


@pytest.mark.parametrize("quick", [False, True])
def test_what_does_not_depend_on_the_interpreter_is_tested_on_the_first_alone(
    quick, build, monkeypatch, capfd
):
    monkeypatch.setattr(shell, "ROOT", build)
    (build / "dev").write_text(FAKE_DEV)
    (build / "dev").chmod(0o755)
    releases = {"3.13": "3.13.0", "3.11": "3.11.7", "3.11.2": "3.11.2"}
    for name in releases:
        put_outcomes(build / f"report-{name}-1.xml", a="passed")
    found = [
        pythons.Python(name, 1, full, True, True, f"/bin/python{name}")
        for name, full in releases.items()
    ]

    PythonSuites(True, quick, [], waiting=found[: 1 if quick else 3]).run(2)

    asked = {line.split()[1]: line.split()[3] for line in (build / "dev.asked").open()}
    whole = {"3.13": "all", "3.11": "no-newest", "3.11.2": "beside"}
    assert asked == ({"3.13": "quick"} if quick else whole)


def test_a_cpython_that_is_done_makes_room_whoever_began_first(build, monkeypatch, capfd):
    """The first waits for the last: were it waited for, the third would never begin."""
    monkeypatch.setattr(shell, "ROOT", build)
    wait = """[ "$2" != 3.13 ] || while ! grep -q 3.11 "$0.asked"; do sleep 0.01; done"""
    (build / "dev").write_text(FAKE_DEV.replace("cp ", wait + "\ncp ", 1))
    (build / "dev").chmod(0o755)
    names = ("3.13", "3.12", "3.11")
    for name in names:
        put_outcomes(build / f"report-{name}-1.xml", a="passed")
    suites = PythonSuites(
        True,
        False,
        [],
        waiting=[pythons.Python(n, 1, n, True, True, f"/bin/python{n}") for n in names],
    )

    suites.keep_busy(1)  # beside other stages
    assert list(suites.running.values())[0][0].name == "3.13"
    suites.run(2)

    assert (build / "dev.asked").read_text().count("python-job") == 3
    assert suites.counts["3.13"].passed == 1
