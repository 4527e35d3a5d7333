"""The folders of the package: which may import which."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import eventprof

pytestmark = pytest.mark.newest

PACKAGE = Path(eventprof.__file__).parent
#: What each folder may import when it is loaded, beside itself and the files beside it.
BELOW = {
    "recording": set(),
    "trace": {"recording", "answers"},
    "answers": {"recording", "trace", "show"},
    "files": {"recording", "trace"},
    "show": {"trace", "answers"},
    "viewer": {"trace", "answers", "files"},
    "export": {"recording", "trace", "files"},
    "importing": {"trace"},
    "plugins": {"recording", "trace", "answers", "files"},
    "datasets": {"answers", "files", "trace"},
    "cli": {"recording", "files"},
    "_pypy": {"recording"},
}


def loaded_at_once(path):
    """Give the folders of the package that a module imports when it is loaded."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts = path.relative_to(PACKAGE).parts[:-1]
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level:
            base = parts[: len(parts) - node.level + 1]
            for name in [node.module] if node.module else [one.name for one in node.names]:
                yield (*base, *name.split("."))[0]


@pytest.mark.parametrize("room", BELOW)
def test_a_folder_imports_only_what_lies_below_it(room):
    files = sorted((PACKAGE / room).glob("*.py"))
    if not files:
        pytest.skip("not installed here")
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir()}

    wrong = {
        f"{path.name} imports {folder}"
        for path in files
        for folder in loaded_at_once(path)
        if folder in folders and folder not in BELOW[room] | {room}
    }

    assert wrong == set()


def test_importing_the_package_loads_no_numpy_and_no_tables():
    code = (
        "import sys, eventprof; print(sorted(m for m in sys.modules if m.startswith("
        "('numpy', 'rich', 'eventprof.trace', 'eventprof.show', 'eventprof.cli', 'json'))))"
    )

    result = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )

    assert result.stdout.strip() == "[]"
