"""What ./dev wheel and ./dev release look at, and the files that a release is made by."""

from __future__ import annotations

import io
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest
from dev import pythons, release, shell, wheel, wheel_check

ROOT = shell.ROOT
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def git(folder, *arguments):
    me = ("-c", "user.name=me", "-c", "user.email=me@here.invalid")
    command = ["git", "-C", str(folder), *me, *arguments]
    return subprocess.run(command, check=True, capture_output=True).stdout


# ---- A wheel -------------------------------------------------------------------------------------

PARTS = {
    "eventprof/_core.cpython-313-x86_64-linux-gnu.so": b"\x7fELF",
    "eventprof/include/eventprof.h": b"",
    "eventprof.pth": b"import _eventprof_start",
    "eventprof-1.2.3.dist-info/licenses/LICENSE": b"MIT",
}
NAME = "eventprof-1.2.3-cp313-cp313-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl"


def put_wheel(folder, name=NAME, **changes):
    """A wheel with these parts, some of them changed; a part of None is left out."""
    parts = {**PARTS, **changes.pop("parts", {})}
    with zipfile.ZipFile(folder / name, "w") as archive:
        for part, data in parts.items():
            if data is not None:
                archive.writestr(part, data)
    return folder / name


def test_a_good_wheel_has_no_faults(tmp_path):
    assert wheel_check.faults_of(put_wheel(tmp_path)) == []


@pytest.mark.parametrize(
    ("parts", "fault"),
    [
        ({"eventprof/_core.cpython-313-x86_64-linux-gnu.so": None}, "no eventprof/_core"),
        ({"eventprof.pth": None}, "no eventprof.*pth inside"),
        ({"eventprof-1.2.3.dist-info/licenses/LICENSE": None}, "licenses/LICENSE inside"),
        (
            {"eventprof/_shim.so": b"\x7fELF\0.text\0.symtab\0"},
            r"eventprof/_shim\.so is not stripped",
        ),
        ({"eventprof/tests/test_it.py": b""}, "is not for users"),
        ({"eventprof/_core.h": b""}, "is not for users"),
        ({"eventprof/viewer/README.md": b""}, "is not for users"),
        ({"eventprof/big": os.urandom(1000) * 3000}, "3,000,[0-9]{3} bytes, at most 2,000,000"),
    ],
)
def test_what_a_wheel_lacks_or_should_not_have_is_named(tmp_path, parts, fault):
    (found,) = wheel_check.faults_of(put_wheel(tmp_path, parts=parts))

    assert re.search(fault, found), found


def test_a_wheel_for_one_machine_is_refused(tmp_path):
    (found,) = wheel_check.faults_of(
        put_wheel(tmp_path, "eventprof-1-cp313-cp313-linux_x86_64.whl")
    )

    assert "run auditwheel repair" in found


def shared_object(flags):
    """An ELF file with one part, the dynamic section, with these DT_FLAGS."""
    head = b"\x7fELF\x02\x01".ljust(32, b"\0") + struct.pack("<Q", 64)
    head = head.ljust(54, b"\0") + struct.pack("<HH", 56, 1)
    part = struct.pack("<IIQQQQQQ", 2, 0, 120, 0, 0, 48, 48, 8)
    return head.ljust(64, b"\0") + part + struct.pack("<6Q", 1, 2, 30, flags, 0, 0)


@pytest.mark.parametrize(("flags", "faults"), [(0x10 | 0x2, 1), (0x2, 0)])
def test_a_wheel_that_musl_does_not_load_is_named(tmp_path, flags, faults):
    parts = {"eventprof/_core.cpython-313-x86_64-linux-musl.so": shared_object(flags)}
    name = "eventprof-1.2.3-cp313-cp313-musllinux_1_2_x86_64.whl"

    found = wheel_check.faults_of(put_wheel(tmp_path, name, parts=parts))

    assert len([fault for fault in found if "musl does not load it" in fault]) == faults
    assert wheel_check.faults_of(put_wheel(tmp_path, parts=parts)) == []


def test_readme_has_the_example_that_a_wheel_is_checked_with():
    text = (ROOT / "README.rst").read_text(encoding="utf-8")

    assert "def price(" in "".join(wheel_check.blocks(text, "python"))
    (session,) = wheel_check.blocks(text, "console")
    assert re.findall(r"^\$ eventprof (\w+)", session, re.MULTILINE)[-1] == "report"


@pytest.mark.slow
def test_no_program_but_those_of_the_environment_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(shell, "BUILD", tmp_path)
    empty = wheel_check.Empty(pythons.probe(sys.executable))

    code = (
        "import shutil; print([shutil.which(name) for name in ('cc', 'gcc', 'clang', 'ld', 'sh')])"
    )
    assert empty.run("python", "-c", code) == (0, "[None, None, None, None, None]\n")
    assert empty.run("python", "-c", "import eventprof")[0] != 0


def test_the_interpreters_that_wheels_are_made_for(tmp_path, monkeypatch):
    here = pythons.Pythons({"3.11.2": None, "3.12": "twelve", "3.14": "fourteen"})
    monkeypatch.setattr(wheel.pythons, "find", lambda: here)

    assert wheel.choose(wheel.parse([])) == ["twelve", "fourteen"]
    assert wheel.choose(wheel.parse(["--python", "3.14", "--check"])) == ["fourteen"]


def test_a_runner_is_one_more_than_those_that_are_asked_for(monkeypatch):
    here = pythons.Pythons({"3.12": pythons.probe(sys.executable), "3.13": None})
    monkeypatch.setattr(wheel.pythons, "find", lambda: here)
    options = wheel.parse(["--python", "3.12", "--with", "3.99=env"])
    monkeypatch.setattr(shell, "output", lambda command, **how: (0, "3.99.1\n"))

    assert [python.full for python in wheel.choose(options)][1:] == ["3.99.1 (3.99)"]


# ---- The sdist -----------------------------------------------------------------------------------


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")
def test_the_sdist_has_what_builds_and_tests_and_no_pictures():
    with tarfile.open(fileobj=io.BytesIO(git(ROOT, "archive", "HEAD"))) as archive:
        names = [member.name for member in archive.getmembers() if member.isfile()]

    for needed in (
        "LICENSE", "README.rst", "meson.build", "pyproject.toml", "dev", "licenses/zstd.txt",
        "python/eventprof/__init__.py", "tests/c/test_log.c", "tests/python/conftest.py",
        "tests/data/", "doc/index.rst", "tools/dev/usage.txt",
    ):  # fmt: skip
        assert any(name.startswith(needed) for name in names), needed
    unwanted = r"^\.ci|^\.git|^doc/(pictures|plots)/|^tests/fuzz/corpus|\.(png|svg)$"
    assert [name for name in names if re.search(unwanted, name)] == []


@pytest.mark.parametrize("has_filters", [True, False])
def test_an_archive_is_unpacked_by_each_python(tmp_path, monkeypatch, has_filters):
    """Debian 12's has no filters, and refuses the argument."""
    with tarfile.open(tmp_path / "it.tar.gz", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("it-1/README"))
    if not has_filters:
        plain = tarfile.TarFile.extractall
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
        monkeypatch.setattr(tarfile.TarFile, "extractall", lambda self, path: plain(self, path))

    assert shell.extract(tmp_path / "it.tar.gz", tmp_path / "to") == tmp_path / "to" / "it-1"
    assert (tmp_path / "to" / "it-1" / "README").exists()


# ---- A release -----------------------------------------------------------------------------------


@pytest.fixture
def ready(tmp_path):
    """A checkout that can be released as 1.2.3."""
    if shutil.which("git") is None:
        pytest.skip("no git")
    files = {
        "meson.build": "project('eventprof',\n  version: '1.2.3',\n)\n",
        "CITATION.cff": 'cff-version: 1.2.0\nversion: "1.2.3"\n',
        "CHANGELOG.rst": "Changes\n=======\n\n1.2.3 (2030-01-02)\n------------------\n",
        "LICENSE": "MIT License",
        "CONTRIBUTING.rst": "./dev test",
        "SECURITY.md": "how to report",
        "doc/versions.rst": "what 0.1 writes",
        "pyproject.toml": "[project]\nclassifiers = [{}]\n[project.urls]\nRepository = 'https://it.invalid'\n".format(
            ", ".join(f'"Programming Language :: Python :: 3.{n}"' for n in range(11, 16))
        ),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "all")
    return tmp_path


def faults(root):
    return {name: found for name, look in release.QUICK.items() if (found := look(root))}


def test_a_checkout_that_is_ready_has_no_faults(ready):
    assert faults(ready) == {}
    git(ready, "tag", "v1.2.3")
    assert faults(ready) == {}


@pytest.mark.parametrize(
    ("file", "old", "new", "name", "fault"),
    [
        ("meson.build", "1.2.3", "1.2", "version", "version '1.2' is not X.Y.Z"),
        ("CITATION.cff", "1.2.3", "1.2.2", "version", "CITATION.cff: version is not 1.2.3"),
        ("CHANGELOG.rst", "1.2.3 (2030-01-02)", "Unreleased", "changelog", "is 'Unreleased', not"),
        ("CHANGELOG.rst", "---", "", "changelog", "no heading"),
        ("pyproject.toml", "Repository", "Funding", "metadata", "has no Repository"),
        ("pyproject.toml", "3.12", "3.2", "metadata", "no classifier for Python 3.12"),
        ("SECURITY.md", "report", "", "pages of the project", "SECURITY.md: missing, or without"),
    ],
)
def test_what_keeps_it_from_being_released_is_named(ready, file, old, new, name, fault):
    text = (ready / file).read_text(encoding="utf-8")
    (ready / file).write_text(text.replace(old, new), encoding="utf-8")
    git(ready, "commit", "-q", "-a", "-m", "a change")

    found = faults(ready)

    assert fault in found[name][0]


def test_what_is_not_committed_and_a_tag_of_another_commit_are_named(ready):
    git(ready, "tag", "v1.2.3")
    (ready / "LICENSE").write_text("MIT, later")

    assert faults(ready)["tag"] == ["not committed: LICENSE"]
    git(ready, "commit", "-q", "-a", "-m", "later")
    assert "v1.2.3 is the tag of another commit" in faults(ready)["tag"][0]


def test_this_project_names_one_version_and_has_its_pages():
    assert release.version_faults(ROOT) == []
    assert release.page_faults(ROOT) == []
    assert re.fullmatch(release.VERSION, release.version_of(ROOT))


# ---- Files of CI ---------------------------------------------------------------------------------


def uses(text):
    return re.findall(r"^\s*(?:- )?uses: (\S+)", text, re.MULTILINE)


@pytest.mark.skipif(not (ROOT / ".github").is_dir(), reason="an sdist: it has no workflows")
def test_workflows_and_forms_are_yaml_and_their_actions_have_a_tag():
    yaml = pytest.importorskip("yaml")
    files = [*(ROOT / ".github").rglob("*.yml"), ROOT / ".readthedocs.yaml", ROOT / "CITATION.cff"]
    files.append(ROOT / "conda" / "recipe.yaml")
    assert len(files) >= 9
    for file in files:
        text = file.read_text(encoding="utf-8")
        content = yaml.safe_load(text)
        assert isinstance(content, dict), file
        for name in uses(text):
            assert name.startswith("./") or re.search(r"@v\d[\d.]*$", name), (file, name)
        if file.parent.name == "workflows":
            # `on` is true in YAML.
            assert {"name", True, "permissions", "jobs"} <= set(content), file


@pytest.mark.skipif(not (ROOT / ".github").is_dir(), reason="an sdist: it has no workflows")
def test_ci_tests_each_python_that_wheels_are_made_for():
    build = PROJECT["tool"]["cibuildwheel"]["build"].split()
    made = {re.sub(r"^cp3(\d+)(t?)-\*$", r"3.\1\2", each) for each in build}
    text = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    tested = set(re.findall(r'"([^"]+)"', re.search(r"python: \[(.*)\]", text)[1]))

    assert made == tested == {*pythons.TESTED, *pythons.ALSO} - {"3.13t"}


@pytest.mark.skipif(shutil.which("git") is None, reason="no git")
def test_the_release_builds_wheels_with_the_options_of_dev_wheel():
    assert PROJECT["tool"]["cibuildwheel"]["config-settings"]["setup-args"] == list(wheel.SETUP)
