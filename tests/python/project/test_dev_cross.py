"""What ./dev cross and ./dev wheel --target tell compilers and interpreters of another platform."""

from __future__ import annotations

import re
import shutil
import sys

import children
import pytest
from dev import cross, debian, pythons, results, shell, targets, wheel

ROOT = shell.ROOT


@pytest.fixture
def arm(tmp_path, monkeypatch):
    """A platform other than this machine's, and no file of it."""
    monkeypatch.setattr(shell, "BUILD", tmp_path)
    target = targets.Target("it", "it-linux-gnu", "linux", "it", "linux-it", "it-linux-gnu", "itel")
    target.prefix.mkdir(parents=True)
    return target


def test_headers_of_debian_are_found_without_usr_include(arm):
    targets.headers_of(pythons.Python("3.14", 0, "3.14.10", True, True, "python"), arm)

    (made,) = arm.prefix.rglob("pyconfig.h")
    name = made.relative_to(arm.prefix / "include")
    assert re.fullmatch(r"\w+-linux-gnu/python3\.14/pyconfig\.h", str(name))
    assert made.read_text() == f'#include "/usr/include/{name}"\n'


def test_an_interpreter_describes_one_of_another_platform(arm):
    here = pythons.probe(sys.executable)
    variables = targets.python_variables(here, arm)

    code = "import sysconfig as s; print(s.get_platform(), s.get_config_var('EXT_SUFFIX'))"
    said = children.run(here.path, "-c", code, **variables)
    digits = here.name.replace(".", "")
    assert said.stdout.split() == ["linux-it", f".cpython-{digits}-it-linux-gnu.so"], said.stderr


@pytest.mark.parametrize(
    ("wrapper", "expected"),
    [
        (None, ["needs_exe_wrapper = true"]),
        ([], ["needs_exe_wrapper = false"]),
        (["qemu", "-L", "/x"], ["exe_wrapper = ['qemu', '-L', '/x']", "needs_exe_wrapper = true"]),
    ],
)
def test_meson_runs_what_this_machine_can_run(arm, wrapper, expected):
    lines = targets.cross_file(arm, wrapper).read_text().splitlines()

    assert [line for line in lines if "exe_wrapper" in line] == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--target it", "no platform it: x86_64, x86_64-musl, aarch64, "),
        ("--target arm64-macos", "arm64-macos: those wheels are made there"),
        ("--target x86_64-musl --check", "this machine has no Python for x86_64-musl"),
        ("--target x86_64-musl --system", "its compiler does not make x86_64-musl"),
    ],
)
def test_a_platform_that_has_no_wheel_here_is_refused(words, message, capsys):
    with pytest.raises(SystemExit) as ended:
        wheel.parse(words.split())

    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("meson") is None, reason="no meson")
def test_meson_refuses_windows_in_one_line(tmp_path):
    machine = "[host_machine]\nsystem = 'windows'\ncpu_family = 'x86_64'\ncpu = 'x86_64'\n"
    (tmp_path / "windows.ini").write_text(machine + "endian = 'little'\n")

    command = ["meson", "setup", tmp_path / "build", ROOT, f"--cross-file={tmp_path}/windows.ini"]
    done = children.run(*command, status=1)

    (line,) = re.findall(r"ERROR: .*", done.stdout)
    assert line.endswith("eventprof does not support Windows yet: it needs Linux or macOS")


def test_the_platforms_that_are_compiled_for():
    names = [target.name for target in cross.parse([]).targets]

    assert {"x86_64-musl", "arm64-macos", "x86_64-macos"} < set(names)
    assert not any(targets.choose(name).is_native for name in names)
    assert cross.parse(["--free-threaded", "--python", "3.14"]).wheel.asked == ["3.14"]
    assert cross.parse(["--free-threaded"]).targets == []


def test_what_an_emulator_cannot_run_is_named_with_the_reason(monkeypatch, capsys):
    monkeypatch.setattr(
        cross, "EMULATOR_LACKS", {"no clock": ("ticks", "beats"), "no disk": ("io",)}
    )
    suites = {
        "time": {"stdout": "left out: ticks\nleft out: beats\n"},
        "io": {"stdout": "left out: io\nRunning suite(s): io\n"},
        "crashed": {},
    }

    found = results.Results()
    cross.show_left_out(found, suites)
    said = capsys.readouterr().out
    assert said.splitlines() == [
        "  --    ticks not run: no clock",
        "  --    beats not run: no clock",
        "  --    io not run: no disk",
    ]
    assert found.failed == 0

    del suites["io"]
    cross.show_left_out(found, suites)
    assert "no test or suite is called io" in capsys.readouterr().out
    assert found.failed == 1


def test_each_name_that_an_emulator_cannot_run_is_a_test_or_a_suite():
    sources = {path.stem: path.read_text() for path in (ROOT / "tests" / "c").glob("test_*.c")}

    for name in (each for names in cross.EMULATOR_LACKS.values() for each in names):
        assert f"test_{name}" in sources or any(
            f"START_TEST({name})" in text for text in sources.values()
        ), name


def test_a_debian_of_another_processor_is_unpacked(tmp_path, monkeypatch):
    commands = []
    monkeypatch.setattr(shell, "must", commands.append)
    packed = tmp_path / "var" / "cache" / "apt" / "archives"
    packed.mkdir(parents=True)
    for name in ("b.deb", "a.deb", "lock"):
        (packed / name).touch()

    debian.unpack(tmp_path)

    assert commands == [["dpkg-deb", "-x", packed / n, tmp_path] for n in ("a.deb", "b.deb")]
