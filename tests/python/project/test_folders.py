"""The folder of a test file says on which interpreters it runs."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import children

TESTS = Path(__file__).parents[1]


def collected(folder, *arguments):
    """Return what pytest says of the test files in a folder that has our conftest.py."""
    for name in ("conftest.py", "folders.toml"):
        shutil.copy(TESTS / name, folder)
    (folder / "pytest.ini").write_text(
        f"[pytest]\nmarkers = newest: once\npythonpath = {TESTS / 'helpers'}\n"
    )
    command = ["-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments]
    # To import other plugins takes seconds each time.
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return children.run(sys.executable, *command, status=None, cwd=folder, **alone).stdout


def write(path):
    path.parent.mkdir(exist_ok=True)
    path.write_text("def test_it():\n    pass\n")


def test_files_are_marked_as_their_folder_says(tmp_path):
    write(tmp_path / "hooks" / "test_a.py")
    write(tmp_path / "verbs" / "test_b.py")

    assert "verbs/test_b.py::test_it\n\n1/2 tests" in collected(tmp_path, "-m", "newest")
    assert "hooks/test_a.py::test_it\n\n1/2 tests" in collected(tmp_path, "-m", "not newest")


def test_a_file_in_no_folder_is_an_error(tmp_path):
    write(tmp_path / "elsewhere" / "test_a.py")

    found = collected(tmp_path)

    assert "elsewhere/test_a.py: in none of the folders of" in found and "1 error" in found
