"""What ./dev cross and ./dev wheel --target tell compilers and interpreters of another platform."""

from __future__ import annotations

import re
import shutil
import sys
import zipfile

import children
import pytest
from dev import cross, cross_python, debian, environments, pythons, results, shell, targets, wheel

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
    parts = {word: cross.parse([word]) for word in ("--c-only", "--py-only")}
    assert {word: (o.c, o.python) for word, o in parts.items()} == {
        "--c-only": (True, False),
        "--py-only": (False, True),
    }


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


def test_a_wheel_for_musl_names_libc_as_distributions_do(tmp_path, monkeypatch):
    path = tmp_path / "a.whl"
    with zipfile.ZipFile(path, "w") as packed:
        for name in ("eventprof/_core.so", "eventprof/cli.py"):
            packed.writestr(name, "as compiled")
    commands = []

    def patchelf(command):
        commands.append(command[:-1])
        command[-1].write_text("changed")

    monkeypatch.setattr(shell, "must", patchelf)
    wheel.name_libc(path, targets.choose("x86_64-musl"))

    assert commands == [["patchelf", "--replace-needed", "libc.so", "libc.musl-x86_64.so.1"]]
    with zipfile.ZipFile(path) as packed:
        texts = {name: packed.read(name) for name in packed.namelist()}
    assert texts == {"eventprof/_core.so": b"changed", "eventprof/cli.py": b"as compiled"}


def test_no_variable_of_a_thread_has_a_fixed_place_on_musl():
    """Its loader refuses an extension with one: meson.build gives them one, and no attribute does."""
    tops = [ROOT / "eventprof", ROOT / "python" / "src"]
    sources = [path for top in tops for path in top.rglob("*.[ch]")]

    assert [path for path in sources if "tls_model" in path.read_text()] == []


@pytest.mark.parametrize("name", cross_python.CHOSEN)
def test_each_test_that_a_platform_lacks_is_there_and_among_the_chosen(name):
    chosen = cross_python.CHOSEN[name]
    files = [environments.TESTS / file for file in chosen.files]

    assert [file for file in files if not file.exists()] == []
    for lacking in (each for names in chosen.lacks.values() for each in names):
        file, _, test = lacking.partition("::")
        path = environments.TESTS / file
        assert any(path.is_relative_to(each) for each in files), lacking
        assert not test or f"def {test}(" in path.read_text(), lacking


def test_what_is_not_run_on_a_platform_is_printed_with_the_reason(capsys):
    lacks = {"no disk": ("a/test_b.py",), "no clock": ("a/test_c.py::test_time",)}
    chosen = cross_python.Chosen((), ("a",), "too slow", lacks)

    assert list(cross_python.left_out(chosen)) == [
        f"--ignore={environments.TESTS}/a/test_b.py",
        "--deselect=tests/python/a/test_c.py::test_time",
    ]
    cross_python.show_left_out(chosen)
    assert capsys.readouterr().out.splitlines() == [
        "  --    of tests/python only a: too slow",
        "  --    a/test_b.py not run: no disk",
        "  --    a/test_c.py::test_time not run: no clock",
    ]


@pytest.mark.parametrize(
    "sha256", ["315f5bdb76d078c43b8ac0064e4a0164612b1fce77c869345bfc94c75894edd3", "0"]
)
def test_a_source_is_the_one_that_is_known(sha256, tmp_path, monkeypatch, capsys):
    (tmp_path / "pool").mkdir()
    (tmp_path / "pool" / "a.tar").write_bytes(b"Hello, world!")
    monkeypatch.setattr(debian, "mirror", lambda: f"file://{tmp_path}")

    if sha256 == "0":
        with pytest.raises(SystemExit):
            debian.fetch("pool/a.tar", sha256, tmp_path / "into")
        assert "not the one that is known here" in capsys.readouterr().err
        assert not (tmp_path / "into").exists()
    else:
        assert (
            debian.fetch("pool/a.tar", sha256, tmp_path / "into").read_bytes() == b"Hello, world!"
        )
    with pytest.raises(SystemExit):
        debian.fetch("pool/b.tar", sha256, tmp_path / "into")
    assert "not in the mirror" in capsys.readouterr().err


def test_a_debian_of_another_processor_is_unpacked(tmp_path, monkeypatch):
    commands = []
    monkeypatch.setattr(shell, "must", commands.append)
    packed = tmp_path / "var" / "cache" / "apt" / "archives"
    packed.mkdir(parents=True)
    for name in ("b.deb", "a.deb", "lock"):
        (packed / name).touch()

    debian.unpack(tmp_path)

    assert commands == [["dpkg-deb", "-x", packed / n, tmp_path] for n in ("a.deb", "b.deb")]
