"""A short run of fuzz_verbs.py; the long one is its own."""

from __future__ import annotations

import sys
from pathlib import Path

import children
import pytest


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2])
def test_damaged_files_end_no_verb_by_an_exception_and_merging_adds_up(seed):
    program = Path(__file__).parents[3] / "tools/long/fuzz_verbs.py"

    done = children.run(sys.executable, program, "--seed", seed, "--files", "120", "--groups", "12")

    assert done.stdout == "120 damaged files, 12 groups: 0 wrong\n"
