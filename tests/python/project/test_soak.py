"""Short runs of what ``./dev soak`` does for an hour and more."""

from __future__ import annotations

import sys
from pathlib import Path

import children
import pytest
from amounts import amount


def run(program, *arguments, folder):
    done = children.run(
        sys.executable, Path(__file__).parents[3] / "tools/long" / program, *arguments, cwd=folder
    )
    return done.stdout


@pytest.mark.thorough
@pytest.mark.parametrize("on_file", [False, True], ids=["memory", "file"])
def test_memory_is_steady_at_full_rate(on_file, tmp_path):
    arguments = ["--file", tmp_path] if on_file else []

    run("soak.py", "--rounds", str(amount(15, 40)), *arguments, folder=tmp_path)


@pytest.mark.thorough
def test_short_threads_give_back_what_they_held(tmp_path):
    printed = run("soak.py", "--threads", "1500", folder=tmp_path)

    assert printed.startswith("1500 short threads")


@pytest.mark.thorough
def test_what_eight_threads_emit_is_recorded_or_counted(tmp_path):
    """Calls and blocks, each policy; every thread has more than a small ring holds."""
    cases = ["overwrite-1", "overwrite-8", "stop-1", "stop-64", "grow", "file-1", "file-stop-64"]

    printed = run("sums.py", "--events", "1000000", *cases, folder=tmp_path)

    assert printed.count("they add up") == len(cases)


def test_a_day_of_a_service(tmp_path):
    printed = run("service.py", tmp_path, "--hours", "6", "--requests", "100", folder=tmp_path)

    assert printed.startswith("6 hours, 6 workers, 0 wrong")
