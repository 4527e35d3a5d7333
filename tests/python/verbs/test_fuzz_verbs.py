"""A short run of fuzz_verbs.py; the long one is its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2])
def test_damaged_files_end_no_verb_by_an_exception_and_merging_adds_up(seed):
    program = Path(__file__).parents[3] / "tools/long/fuzz_verbs.py"

    done = subprocess.run(
        [sys.executable, program, "--seed", str(seed), "--files", "120", "--groups", "12"],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "120 damaged files, 12 groups: 0 wrong\n"
