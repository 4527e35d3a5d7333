"""A short run of sums.py, of which ``./dev soak`` makes a long one."""

from __future__ import annotations

import sys
from pathlib import Path

import children
import pytest

CASES = ["all-overwrite-1", "all-stop-64", "all-grow", "all-file-64", "overwrite-1"]


@pytest.mark.thorough
def test_what_is_recorded_and_what_is_lost_is_what_was_emitted_of_each_kind(tmp_path):
    run = children.run(
        sys.executable, Path(__file__).parents[3] / "tools/long/sums.py", "--events", "1200000",
        "--folder", tmp_path, *CASES,
    )  # fmt: skip

    assert run.stdout.count("they add up") == len(CASES)
    lossy = next(line for line in run.stdout.splitlines() if line.startswith("all-overwrite-1"))
    assert " 0 lost" not in lossy
