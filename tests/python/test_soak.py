"""A short run of what ``./dev soak`` does for an hour."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("on_file", [False, True], ids=["memory", "file"])
def test_memory_is_steady_at_full_rate(on_file, tmp_path):
    program = Path(__file__).parent / "soak.py"
    arguments = ["--file", tmp_path] if on_file else []

    run = subprocess.run(
        [sys.executable, program, "--rounds", "40", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
