"""memray's peak: the same holders, in the same order (benchmarks/memray_peak.py)."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

import children
import pytest
from amounts import amount

#: memray and a fold are C code, the same on each Python.
SCRIPT = Path(__file__).parents[3] / "benchmarks" / "memray_peak.py"
SANITIZED = "asan" in os.environ.get("LD_PRELOAD", "") or "sanitizer" in (
    sysconfig.get_config_var("CONFIG_ARGS") or ""
)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="needs LD_PRELOAD")
@pytest.mark.skipif(SANITIZED, reason="the sanitizer is the allocator")
@pytest.mark.parametrize("program", amount(["json"], ["pandas", "json", "jinja2"]))
def test_memray_names_the_same_holders_in_the_same_order(program):
    pytest.importorskip("memray")
    pytest.importorskip("jinja2" if program == "json" else program)

    found = children.run(sys.executable, SCRIPT, program)

    assert "the same order" in found.stdout
    all_of_it = next(line.split() for line in found.stdout.splitlines() if line.startswith("all"))
    assert 0.98 < float(all_of_it[-1]) < 1.02
